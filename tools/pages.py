"""What mkdocs builds besides the pages of docs/: commands and reference from the code, and every page as Markdown.

A link that leaves docs/ works in the repository; on the site the file it points to is brought in, and the link with it.
"""

from __future__ import annotations

import ast
import logging
import os
import posixpath
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

import click

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

MOVED = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
"""Pages of the repository that have a name of their own on the site."""
REFERENCE = {
    "terms": (
        "Terms",
        "The terms that a task is put together from: actions, commands, curricula, events, observations, rewards and "
        "terminations. A task writes `func=mdp.joint_pos_rel`: everything that can stand there has its name in "
        "`genelab.mdp`.",
        ("genelab.mdp",),
    ),
    "managers": (
        "Managers and rows",
        "Each manager runs the terms of one part of the MDP, and a row is the config of one term.",
        ("genelab.managers",),
    ),
    "scene": (
        "Scene",
        "What is in the world: robots and objects, actuators, ground and sensors.",
        ("genelab.scene", "genelab.scene.sensors", "genelab.scene.terrains"),
    ),
    "simulation": (
        "Simulation and engines",
        "The settings of the physics, and the engines that step it.",
        ("genelab.sim",),
    ),
    "envs": (
        "Environments",
        "The environments that a config or a task's id gives, and the same as Gymnasium's.",
        ("genelab.envs", "genelab.gym"),
    ),
    "agents": (
        "Agents",
        "The agent configs of rsl_rl, skrl, Stable-Baselines3 and rl-games, and what a backend for another library "
        "is made of.",
        ("genelab.rl.config", "genelab.rl.backends"),
    ),
    "python": (
        "Train, judge, export, play",
        "What `genelab train`, `eval`, `export`, `play`, `motion` and `benchmark` do, as functions and classes to use "
        "from Python.",
        ("genelab.rl", "genelab.viewer", "genelab.motion", "genelab.bench"),
    ),
    "config": (
        "Configs and overrides",
        "How configs are checked, overridden, saved and registered as tasks, and the tests that a third party runs "
        "against an engine or a library of its own.",
        ("genelab.config", "genelab.testing"),
    ),
    "launch": (
        "Many seeds, many processes",
        "The functions behind `genelab train --seeds`, `--gpus` and `--ranks`.",
        ("genelab.rl.launch.seeds", "genelab.rl.launch.ranks"),
    ),
    "bundled": (
        "Terms and configs of the bundled tasks",
        "What the bundled tasks bring with them: terms, commands, actions and configs. Their other terms are those of "
        "`genelab.mdp`.",
        (
            "genelab_pendulum.common",
            "genelab_pendulum.double_pendulum",
            "genelab_pendulum.memory",
            "genelab_franka.pick_place",
            "genelab_showcase.rubiks",
            "genelab_showcase.wuji_hand",
        ),
    ),
}
"""Pages of the reference: title, what is on it, and the packages whose public names it has."""
ABOUT = {
    "commands/motion.md": "Convert, check and play motions for a robot to follow.",
    "contributing.md": "How to run the tests, and how to add a task, an engine, an RL library or a sensor to the "
    "repository.",
    "manipulation.md": "A Franka arm learns to pick up a cube and to bring it to a goal, with hindsight experience "
    "replay and demonstrations.",
}
"""What llms.txt says of pages whose first sentence does not say what they are about."""
LOG = logging.getLogger("mkdocs.hooks.pages")
LINK = re.compile(r"(?P<open>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?P<target>[^()\s#]+)(?P<anchor>#[^()\s]*)?\)")
SOURCE = re.compile(r"(?P<open>(?:src|poster)=\")(?P<target>[^\"#]+)(?P<anchor>)\"")


# Commands


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every verb of `genelab` by its name, `benchmark` before `benchmark play`."""
    from genelab.cli.verbs import cli

    yield from _below(cli, click.Context(cli, info_name="genelab"))


def _below(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield inner.command_path.removeprefix("genelab "), command, inner
        if isinstance(command, click.Group):
            yield from _below(command, inner)


def command_pages() -> dict[str, str]:
    """A page for each verb, with its inner verbs, and one that lists them."""
    pages: dict[str, str] = {}
    rows = []
    for name, command, context in commands():
        verb, _, inner = name.partition(" ")
        path = f"commands/{verb}.md"
        if not inner:
            pages[path] = f"# genelab {name}\n\n"
            rows.append(f"| [`genelab {name}`]({verb}.md) | {_first(command.help or '')} |")
        else:
            pages[path] += f"## genelab {name}\n\n"
        pages[path] += command_text(command, context)
    head = (
        "# Commands\n\nEvery verb of `genelab`, with its usage and its options. Every verb takes `--help`. `-` and `_` "
        "are the same in option names, task ids are matched in any case, and `--a.b.c VALUE`, `--a.b.c=VALUE` and "
        "`a.b.c=VALUE` are the same override of a config. The exit "
        "code is 0, 1 for a run that failed, 2 for bad input and 130 for one that was interrupted.\n\n"
        "These pages are made from the code.\n\n| command | what it does |\n|---|---|\n"
    )
    return {"commands/index.md": head + "\n".join(rows) + "\n"} | pages


def command_text(command: click.Command, context: click.Context) -> str:
    """Help, usage and a table of the options."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = f"```text\n{usage}\n```\n\n{_paragraphs(command.help or '')}\n\n"
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    if options:
        rows = [_option_row(option, context) for option in options]
        text += "\n".join(["| option | value | meaning |", "|---|---|---|", *rows]) + "\n\n"
    if type(command).__name__ == "TaskCommand":
        text += "Any field of the task's config can be set besides: `--env.simulation.dt 0.002`, `agent.seed=3`.\n\n"
    return text


def _option_row(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    return f"| {names} | {_cell(_value(option, context))} | {_cell(option.help or '')} |"


def _value(option: click.Option, context: click.Context) -> str:
    """What an option takes."""
    kind = option.type
    if option.is_flag:
        return ""
    if isinstance(kind, click.Choice):
        return ", ".join(f"`{choice}`" for choice in kind.choices)
    if isinstance(kind, click.IntRange | click.FloatRange) and not option.metavar:
        number = "integer" if isinstance(kind, click.IntRange) else "number"
        low = "" if kind.min is None else f"{'>' if kind.min_open else '≥'} {kind.min}"
        high = "" if kind.max is None else f"≤ {kind.max}"
        return f"{number} {' and '.join(bound for bound in (low, high) if bound)}"
    return option.make_metavar(context)


def _cell(text: str) -> str:
    return _paragraphs(text).replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


def _first(text: str) -> str:
    return re.split(r"(?<=\.)\s", _paragraphs(text).split("\n\n")[0])[0]


# Reference


def public_names(package: str) -> dict[str, list[str]]:
    """Modules below a package, and which of their names the package makes public; in the order of its imports."""
    file = ROOT / "src" / Path(*package.split("."))
    init = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    tree = ast.parse(init.read_text(encoding="utf-8"))
    public = next(
        (ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign) and _is_all(node)), None
    )
    homes: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("genelab."):
            for name in (alias.name for alias in node.names if alias.name in (public or ())):
                known = homes.setdefault(_home_of(name, node.module), [])
                known += [name] if name not in known else []
    own = [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and not node.name.startswith("_")
        and (public is None or node.name in public)
    ]
    return {module: names for module, names in {**homes, package: own}.items() if names}


def _home_of(name: str, module: str) -> str:
    """The module that has a name which a package passes on."""
    if (ROOT / "src" / Path(*module.split("."))).is_dir():
        for node in tree_of(module).body:
            if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
                return _home_of(name, node.module)
    return module


def _is_all(node: ast.Assign) -> bool:
    return isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"


def reference_pages() -> dict[str, str]:
    """A page for each topic of the reference, with an order to mkdocstrings for each module."""
    rows = [
        f"| [{title}]({name}.md) | {_first(about)} | `{'`, `'.join(packages)}` |"
        for name, (title, about, packages) in REFERENCE.items()
    ]
    head = (
        "# Reference\n\nEvery config with its fields, and every term with its parameters, as their docstrings "
        "tell them. `genelab info TASK` shows what a task is made of.\n\n"
        "| page | what is on it | names from |\n|---|---|---|\n"
    )
    pages = {"reference/index.md": head + "\n".join(rows) + "\n"}
    seen: set[str] = set()
    for name, (title, about, packages) in REFERENCE.items():
        text = f"# {title}\n\n{about}\n\n"
        for package in packages:
            for module, names in public_names(package).items():
                new = [item for item in names if f"{module}.{item}" not in seen]
                seen.update(f"{module}.{item}" for item in new)
                if new:
                    text += f"## {module}\n\n{_paragraphs(docstring_of(module))}\n\n"
                    text += "".join(f"::: {module}.{item}\n\n" for item in new)
        pages[f"reference/{name}.md"] = text
    rest = [name for name in settings() if name not in seen]
    pages["reference/more.md"] = (
        "# More settings\n\nThe configs that no other page of the reference has.\n\n"
        + "".join(f"::: {name}\n\n" for name in rest)
    )
    return pages


def settings() -> Iterator[str]:
    """Every dataclass that users write, by its full name; what a benchmark leaves behind is none."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        module = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(file.read_text(encoding="utf-8")).body if file.name != "schema.py" else ():
            marks = node.decorator_list if isinstance(node, ast.ClassDef) else []
            if any("dataclass" in ast.unparse(mark) for mark in marks) and _is_settings(node):
                yield f"{module}.{node.name}"


def _is_settings(node: ast.AST) -> TypeGuard[ast.ClassDef]:
    return isinstance(node, ast.ClassDef) and node.name.endswith(("Cfg", "Config", "Options", "Settings"))


def tree_of(module: str) -> ast.Module:
    """The source of a module."""
    file = ROOT / "src" / Path(*module.split("."))
    return ast.parse((file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text(encoding="utf-8"))


def docstring_of(module: str) -> str:
    """What a module says of itself."""
    return ast.get_docstring(tree_of(module)) or ""


def in_plain_markdown(text: str) -> str:
    """A page of the reference for those who read Markdown: signatures, fields and docstrings in place of the orders."""
    return re.sub(r"^::: (\S+)\.(\w+)$", lambda found: _told(found[1], found[2]), text, flags=re.MULTILINE)


def _told(module: str, name: str) -> str:
    for node in tree_of(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            fields = [line for cls in _line_of(node) for line in _fields(cls)]
            return f"### {name}\n\n{_signature(node)}{ast.get_docstring(node) or ''}\n\n" + "".join(fields)
    return f"### {name}\n"


@cache
def _classes() -> dict[str, ast.ClassDef]:
    """Every class of genelab by its name."""
    files = sorted((ROOT / "src/genelab").rglob("*.py"))
    nodes = (node for file in files for node in ast.parse(file.read_text(encoding="utf-8")).body)
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


def _line_of(node: ast.AST) -> Iterator[ast.ClassDef]:
    """A class and those of genelab it is derived from."""
    if isinstance(node, ast.ClassDef):
        yield node
        for base in node.bases:
            yield from _line_of(_classes().get(ast.unparse(base).partition("[")[0], base))


def _signature(node: ast.ClassDef | ast.FunctionDef) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"`class {node.name}({bases})`\n\n" if bases else ""
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"`{node.name}({ast.unparse(node.args)}){result}`\n\n"


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """A line for each field that a class adds."""
    for field, after in zip(node.body, [*node.body[1:], None], strict=False):
        if isinstance(field, ast.AnnAssign):
            said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            default = f" = {ast.unparse(field.value)}" if field.value else ""
            words = " ".join(str(said).split())
            yield f"- `{ast.unparse(field.target)}: {ast.unparse(field.annotation)}{default}`: {words}\n"


# Links


def home(path: str) -> str:
    """Where a file of the repository is on the site."""
    return path.removeprefix("docs/") if path.startswith("docs/") else MOVED.get(path, f"files/{path}")


def origin(uri: str) -> str:
    """Where a page of the site comes from in the repository."""
    back = {there: here for here, there in MOVED.items()}
    return back.get(uri) or (uri.removeprefix("files/") if uri.startswith("files/") else f"docs/{uri}")


def targets(text: str, path: str) -> Iterator[str]:
    """Files of the repository that a page at `path` links to."""
    for found in (*LINK.finditer(text), *SOURCE.finditer(text)):
        if ":" not in found["target"]:
            yield posixpath.normpath(posixpath.join(posixpath.dirname(path), found["target"]))


def with_links_of_the_site(text: str, uri: str) -> str:
    """The text of a page, whose links to files of the repository are links within the site."""
    path = origin(uri)

    def moved(found: re.Match[str]) -> str:
        target = found["target"]
        if ":" not in target:
            there = home(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)))
            target = posixpath.relpath(there, posixpath.dirname(uri) or ".")
        return f"{found['open']}{target}{found['anchor'] or ''}{')' if found['open'].endswith('(') else chr(34)}"

    return SOURCE.sub(moved, LINK.sub(moved, text))


def brought_in() -> list[str]:
    """Files outside docs/ that pages link to, and that those link to."""
    found: list[str] = []
    waiting = [*MOVED, *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md")))]
    while waiting:
        path = waiting.pop()
        if not path.startswith("docs/"):
            found.append(path)
        if path.endswith(".md"):
            more = targets((ROOT / path).read_text(encoding="utf-8"), path)
            waiting += [file for file in more if file not in found + waiting and not file.startswith("docs/")]
    return [path for path in found if (ROOT / path).is_file()]  # of others mkdocs will say that they are not there


# The front page


def with_live_page(html: str, address: str) -> str:
    """The front page with an exported policy's page in place of its picture; without an address as it is."""
    frame = f'<iframe class="live" src="{address}" title="A Go1 that walks in your browser" loading="lazy"></iframe>'
    return re.sub(r'<div class="live">.*?</div>', frame, html, flags=re.DOTALL) if address else html


# Events of mkdocs


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Let the robot walk where `make docs-live` builds the site."""
    return with_live_page(html, os.environ.get("GENELAB_LIVE", "")) if page.file.src_uri == "index.md" else html


def on_config(config: Any) -> Any:
    """Fill Commands and Reference, and put pages that nobody listed at the end of the guides."""
    sections = {title: part for entry in config.nav for title, part in entry.items()}
    sections["Commands"][:] = list(command_pages())
    sections["Reference"][:] = list(reference_pages())
    listed = str(config.nav)
    pages = (page.relative_to(ROOT / "docs").as_posix() for page in sorted((ROOT / "docs").rglob("*.md")))
    for page in pages:
        if f"'{page}'" not in listed:
            sections["Guides"].append(page)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add what is generated and what is brought in."""
    from mkdocs.structure.files import File

    for uri, text in {**command_pages(), **reference_pages()}.items():
        files.append(File.generated(config, uri, content=text))
    for path in brought_in():
        files.append(File.generated(config, home(path), abs_src_path=str(ROOT / path)))
    return files


TEXTS: dict[str, tuple[str, str]] = {}
"""Title and Markdown of every page, by its place on the site."""


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Move links, and keep the text for its twin."""
    uri = page.file.src_uri
    generated = uri.startswith(("commands/", "reference/"))
    text = markdown if generated else with_links_of_the_site(markdown, uri)
    TEXTS[uri] = (page.title or uri, in_plain_markdown(text) if uri.startswith("reference/") else text)
    return re.sub(r"^\|.*\|$", lambda row: _bare_pipes(row[0]), text, flags=re.MULTILINE)


def _bare_pipes(row: str) -> str:
    """A row of a table for Python-Markdown, which shows the backslash of `a\\|b` where others leave it out."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row)


def on_post_build(config: Any) -> None:
    """Write each page as Markdown beside itself, and the list of them, llms.txt."""
    site = Path(config.site_dir)
    for uri, (_, text) in TEXTS.items():
        (site / uri).parent.mkdir(parents=True, exist_ok=True)
        (site / uri).write_text(text, encoding="utf-8")
    (site / "llms.txt").write_text(contents(config.nav), encoding="utf-8")


def contents(nav: list[dict[str, Any]]) -> str:
    """The list of pages for language models: title, address of the Markdown, first sentence."""
    lines = [
        "# GeneLab",
        "",
        "> A framework for robot reinforcement learning in Python. A robot and its world are one MJCF, simulated by "
        "MuJoCo on the CPU or by Genesis or MuJoCo Warp on a GPU; tasks are configs of terms; one command trains, "
        "evaluates, exports and shows a policy.",
        "",
    ]
    for entry in nav:
        for title, part in entry.items():
            uris = [part] if isinstance(part, str) else [uri for item in part for uri in _uris(item)]
            lines += [
                f"## {title}",
                "",
                *(f"- [{TEXTS[uri][0]}]({uri}): {_about(uri)}" for uri in uris),
                "",
            ]
    return "\n".join(lines)


def _uris(item: Any) -> list[str]:
    return [item] if isinstance(item, str) else list(item.values())


def _about(uri: str) -> str:
    """What a page is about, in a sentence; mkdocs warns of one that is none, so that a strict build fails."""
    said = ABOUT.get(uri) or _opening(TEXTS[uri][1])
    if not said.endswith("."):
        LOG.warning("%s begins with no sentence that llms.txt could show: %r", uri, said)
    return said


def _opening(text: str) -> str:
    """The first sentence of a page that is prose."""
    for part in text.split("\n\n"):
        if re.match(r"[A-Z*]|`[^`]", part):
            return _first(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", part))
    return ""
