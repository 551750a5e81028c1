"""The report as one page that needs nothing besides itself."""

from __future__ import annotations

import base64
import datetime
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from genelab import __version__
from genelab.config import check_out, write_out
from genelab.errors import UsageError, refusing
from genelab.report.curves import Unit, draw_curves, draw_terms
from genelab.report.runs import Group, read_groups
from genelab.report.sweeps import draw_sweep, is_sweep, read_sweep, summary_table, trial_table
from genelab.report.tables import Table, difference_table, evaluation_table, machine_table, run_table
from genelab.rl.run import RunDirectory
from genelab.rl.sweep.study import STUDY_FILE
from genelab.text import printable

FILM_BYTES = 25_000_000
"""A larger film is not put into the page."""
OTHER_REWARDS = "The rewards differ: their returns cannot be compared. Judge both with the same rewards."

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; color: #26323a; background: #fff;
  max-width: 1180px; margin: 0 auto; padding: 2rem 1.5rem 4rem; }
h1 { font-size: 1.7rem; margin: 0; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; padding-bottom: .25rem; border-bottom: 2px solid #e3e7ea; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p.note { color: #5b6a73; margin: .3rem 0 .8rem; max-width: 75ch; }
img, video { max-width: 100%; height: auto; display: block; margin: 1.1rem 0 .4rem; }
video { width: 720px; border-radius: 4px; background: #eef1f3; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .32rem .8rem .32rem 0; border-bottom: 1px solid #e3e7ea; }
th { color: #5b6a73; font-weight: 600; white-space: nowrap; }
td { overflow-wrap: anywhere; min-width: 3.2rem; }
code { font: .85em/1.4 ui-monospace, "DejaVu Sans Mono", monospace; background: #f3f5f6; padding: .1em .3em;
  border-radius: 3px; overflow-wrap: anywhere; }
"""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was written."""

    page: Path
    picture: Path
    table: Path
    markdown: str
    """The evaluation table, and what differs between the configs of one task."""


def write_report(paths: Sequence[Path], out: Path, *, unit: Unit = "steps") -> Report:
    """Write the page, and beside it, under the same name, its curves as PNG and its evaluations as Markdown."""
    check_out(out)
    if out.suffix.lower() not in (".html", ".htm"):  # another name could be that of the picture or the table
        raise UsageError(f"`out`: {out} must end in .html")
    if any(is_sweep(path) for path in paths):
        return _write_sweep(paths, out)
    groups = read_groups(paths)
    table = evaluation_table(groups)
    markdown = "\n".join([table.markdown(), *_differences(groups)])
    report = Report(page=out, picture=out.with_suffix(".png"), table=out.with_suffix(".md"), markdown=markdown)
    files = {
        report.picture: draw_curves(groups, unit, "png"),
        report.table: report.markdown.encode(),
        out: _page(groups, table, unit).encode(),
    }
    write_out(files)
    return report


def _write_sweep(paths: Sequence[Path], out: Path) -> Report:
    if len(paths) > 1:
        raise UsageError(f"{paths[0]}: a sweep is reported by itself: give one directory")
    (path,) = paths
    RunDirectory(path).check_links()
    with refusing(path / STUDY_FILE, "cannot be shown"):
        sweep = read_sweep(path)
        table = trial_table(sweep)
        parts = [
            f"<h1>{_text(sweep.settings.task)}</h1>",
            f'<p class="note">A sweep, {_written()}</p>',
            _table(summary_table(sweep)),
            "<h2>How it went</h2>",
            _note(
                "Crosses end what was pruned, failed or killed; grey lines are trials without a result. The best is "
                "orange, the task's own settings are dark."
            ),
            _picture(draw_sweep(sweep, "svg"), "the trials of the sweep"),
            "<h2>Trials</h2>",
            _table(table),
        ]
        picture = draw_sweep(sweep, "png")
    report = Report(page=out, picture=out.with_suffix(".png"), table=out.with_suffix(".md"), markdown=table.markdown())
    files = {
        report.picture: picture,
        report.table: report.markdown.encode(),
        out: _document(sweep.settings.task, parts).encode(),
    }
    write_out(files)
    return report


def _differences(groups: Sequence[Group]) -> list[str]:
    """Where the configs of each task differ, as Markdown."""
    found = []
    for task in dict.fromkeys(group.task for group in groups):
        table = difference_table([group for group in groups if group.task == task])
        if table is not None:
            found.append(table.markdown() + (f"\n{OTHER_REWARDS}\n" if _rewards_differ(table) else ""))
    return found


def _rewards_differ(differences: Table) -> bool:
    return any(row[0].startswith("env.rewards.") for row in differences.rows)


def _written() -> str:
    today = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    return f"written by genelab {_text(__version__)} on {today}"


def _page(groups: Sequence[Group], table: Table, unit: Unit) -> str:
    tasks = list(dict.fromkeys(group.task for group in groups))
    title = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    runs = sum(len(group.runs) + len(group.repeats) for group in groups)
    parts = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="note">{runs} run{"s" if runs > 1 else ""}, {_written()}</p>',
        "<h2>How good</h2>",
        _note(
            "Means with 95 % intervals: over the episodes of a single run, over the runs' means if there are several "
            "seeds. Time and control steps are those of one run."
        ),
        _table(table),
        "<h2>How it learned</h2>",
        _note(_about_bands(groups)),
    ]
    for task in tasks:
        block = [group for group in groups if group.task == task]
        parts += [_picture(draw_curves(block, unit, "svg"), f"learning curves of {task}"), *_of_task(block)]
    parts += ["<h2>Runs</h2>", _table(run_table(groups)), *_commands(groups)]
    parts += ["<h2>Machine and versions</h2>", _table(machine_table(groups))]
    return _document(title, parts)


def _document(title: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{_text(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _of_task(groups: Sequence[Group]) -> list[str]:
    """What a task has besides its curves: reward terms, differences, a film."""
    parts = []
    if (terms := draw_terms(groups)) is not None:
        parts += ["<h3>What it was paid for</h3>", _picture(terms, "reward terms")]
    films = [(group.label, run.film) for group in groups for run in group.runs if run.film is not None]
    for label, film in films[:1]:
        parts += [f"<h3>Film of {_text(label)}: {_text(film.name)}</h3>", _film(film)]
    differences = difference_table(groups)
    if differences is not None:
        parts += ["<h3>Where the configs differ</h3>", _table(differences)]
        parts += [_note(OTHER_REWARDS)] if _rewards_differ(differences) else []
    elif changes := groups[0].runs[0].record.get("overrides"):
        words = " ".join(f"<code>{_text(change)}</code>" for change in changes)
        parts += ["<h3>Changed from the task's own config</h3>", f"<p>{words}</p>"]
    return parts


def _about_bands(groups: Sequence[Group]) -> str:
    if all(len(group.runs) == 1 for group in groups):
        return "Each point is the mean over a small part of the run."
    return "Lines are means over seeds, bands reach from the lowest seed to the highest, as far as all seeds have come."


def _commands(groups: Sequence[Group]) -> list[str]:
    commands = dict.fromkeys(run.record.get("command", "") for group in groups for run in group.runs)
    return [f"<p><code>{_text(_as_typed(command))}</code></p>" for command in commands if command]


def _as_typed(command: str) -> str:
    """The command without the folder of the program: a page that is sent to others need not tell it."""
    program, space, rest = command.partition(" ")
    name = PurePath(program).name
    return ("genelab" if name in ("main.py", "__main__.py") else name) + space + rest


def _film(path: Path) -> str:
    if path.stat().st_size > FILM_BYTES:
        return f"<p>Too large for this page: <code>{_text(str(path))}</code></p>"
    content = path.read_bytes()
    if content[4:8] != b"ftyp":
        return f"<p>Not shown, since it is no MP4: <code>{_text(str(path))}</code></p>"
    data = base64.b64encode(content).decode()
    return f'<video controls loop muted playsinline src="data:video/mp4;base64,{data}"></video>'


def _picture(svg: bytes, what: str) -> str:
    data = base64.b64encode(svg).decode()
    return f'<img alt="{_text(what)}" src="data:image/svg+xml;base64,{data}">'


def _table(table: Table) -> str:
    head = "".join(f"<th>{_text(cell)}</th>" for cell in table.head)
    rows = "\n".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>'


def _note(text: str) -> str:
    return f'<p class="note">{_text(text)}</p>'


def _text(text: str) -> str:
    return html.escape(printable(text))
