"""The checks, group by group."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from genelab import __version__
from genelab.config import TASKS
from genelab.config.offer import Offer
from genelab.doctor.probes import DRAW, ENGINE, LIBRARY, TORCH, WINDOW, Answer, Probe
from genelab.errors import summary
from genelab.rl.backends.registry import BACKENDS
from genelab.rl.provenance import cpu_name
from genelab.sim import ENGINES

Status = Literal["ok", "missing", "broken", "note"]
Ask = Callable[..., Callable[[], Answer]]
"""Starts to ask and returns what waits for the answer."""

_DRAWS = {
    "egl": ("EGL", "apt-get install libegl1 libegl-mesa0 libopengl0"),
    "osmesa": ("OSMesa", "apt-get install libosmesa6"),
}
_CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
"""Where PyTorch keeps them."""
_NOT_FOR_USERS = ("all", "dev")
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)\s*(?P<versions>[^;]*?)\s*(?:;\s*(?P<marker>.*))?")
_EXTRA = re.compile(r"extra == ['\"](?P<name>[\w.-]+)['\"]")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the report."""

    group: str
    name: str
    status: Status
    """`missing`: not installed, and fine without; `broken`: there, and does not work; `note`: works, but look."""
    detail: str
    """What was found."""
    mend: str = ""
    """The command that mends it."""
    is_base: bool = False
    """Whether nothing works without it."""


def ask_process(code: str, **env: str) -> Callable[[], Answer]:
    """Ask in another process."""
    return Probe(code, **env).answer


def base_works(checks: Sequence[Check]) -> bool:
    """Whether tasks can be trained and played here."""
    return all(check.status not in ("missing", "broken") for check in checks if check.is_base)


def examine(ask: Ask = ask_process) -> list[Check]:
    """Everything there is to say, in the order of its groups. All questions are asked before any answer is there."""
    torch = ask(TORCH)
    engines = {name: ask(ENGINE % name) for name in ENGINES.names() if ENGINES.entry(name).extra is None}
    libraries = {name: ask(LIBRARY % name) for name in BACKENDS.names() if BACKENDS.entry(name).extra is None}
    draws = {name: ask(DRAW % name, MUJOCO_GL=name) for name in _DRAWS}
    window = ask(WINDOW) if _has_display() else None
    groups: list[tuple[str, Callable[[], Iterator[Check]]]] = [
        ("system", _system),
        ("base", lambda: _base(torch, engines, libraries)),
        ("gpu", lambda: _gpu(torch)),
        ("engines", lambda: _offers("engines", [ENGINES.entry(name) for name in ENGINES.names()])),
        ("libraries", lambda: _offers("libraries", [BACKENDS.entry(name) for name in BACKENDS.names()])),
        ("rendering", lambda: _rendering(draws, window)),
        ("extras", _extras),
        ("tasks", _tasks),
    ]
    return [check for group, checks in groups for check in _guarded(group, checks)]


def _guarded(group: str, checks: Callable[[], Iterator[Check]]) -> list[Check]:
    """The checks of a group; what goes wrong with the checking itself is one of them."""
    found = []
    try:
        for check in checks():
            found.append(check)
    except Exception as error:
        found.append(Check(group=group, name=group, status="broken", detail=summary(error)))
    return found


def _system() -> Iterator[Check]:
    import psutil

    version, wanted = platform.python_version(), (3, 11)
    fits = sys.version_info >= wanted
    yield Check(
        group="system",
        name="python",
        status="ok" if fits else "broken",
        detail=f"{version}, {platform.system()} {platform.release()} {platform.machine()}",
        mend="" if fits else "install Python 3.11 or newer",
        is_base=True,
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Check(group="system", name="processor", status="ok", detail=f"{cpu_name()}, {cores} cores for this process")
    memory = psutil.virtual_memory()
    free = memory.available / 2**30
    yield Check(
        group="system",
        name="memory",
        status="ok" if free >= 1.0 else "note",
        detail=f"{memory.total / 2**30:.1f} GB, {free:.1f} GB free",
        mend="" if free >= 1.0 else "train with fewer environments, or end other programs",
    )
    disk = shutil.disk_usage(Path.cwd()).free / 2**30
    yield Check(
        group="system", name="disk", status="ok" if disk >= 1.0 else "note", detail=f"{disk:.1f} GB free where logs go"
    )


def _base(
    torch: Callable[[], Answer],
    engines: dict[str, Callable[[], Answer]],
    libraries: dict[str, Callable[[], Answer]],
) -> Iterator[Check]:
    yield Check(group="base", name="genelab", status="ok", detail=__version__, is_base=True)
    mend = "pip install --force-reinstall genelab"
    answer = torch()
    detail = answer.error or str(answer.found["version"])
    if answer.error is None and importlib.metadata.version("torch") != answer.found["version"]:
        detail += f" (installed as {importlib.metadata.version('torch')})"
    yield _of_base("torch", answer, detail, "pip install torch" if _version("torch") is None else mend)
    for name, wait in (engines | libraries).items():
        entry: Offer = ENGINES.entry(name) if name in engines else BACKENDS.entry(name)
        answer = wait()
        detail = answer.error or ", ".join(f"{package} {_version(package)}" for package in entry.packages)
        lacking = [package for package in entry.packages if _version(package) is None]
        yield _of_base(name, answer, detail, f"pip install {' '.join(lacking)}" if lacking else mend)


def _of_base(name: str, answer: Answer, detail: str, mend: str) -> Check:
    broken = answer.error is not None
    status: Status = "broken" if broken else "ok"
    return Check(group="base", name=name, status=status, detail=detail, mend=mend if broken else "", is_base=True)


def _gpu(torch: Callable[[], Answer]) -> Iterator[Check]:
    answer = torch()
    if answer.error is not None:
        yield Check(group="gpu", name="cuda", status="note", detail="torch does not work, and cannot say")
        return
    gpus, cuda, driver = answer.found["gpus"], answer.found["cuda"], has_nvidia_driver()
    if gpus:
        yield Check(group="gpu", name="cuda", status="ok", detail=f"CUDA {cuda}: {', '.join(gpus)}")
        detail, mend = "tasks run on the CPU unless the GPU is asked for", "genelab train TASK --gpu"
        yield Check(group="gpu", name="in use", status="note", detail=detail, mend=mend)
    elif driver and cuda is None:
        yield Check(
            group="gpu",
            name="cuda",
            status="note",
            detail="there is a GPU, and torch is a build for the CPU: the GPU is not used",
            mend="pip uninstall torch, then pip install torch",
        )
    elif driver:
        detail = f"there is a driver, and torch (CUDA {cuda}) finds no GPU: is the driver too old, or the GPU in use?"
        yield Check(group="gpu", name="cuda", status="note", detail=detail, mend="nvidia-smi")
    elif cuda is not None:
        yield Check(
            group="gpu",
            name="cuda",
            status="note",
            detail=f"torch is a build for CUDA {cuda}, and there is no GPU: it works, and is larger by gigabytes",
            mend=f"pip install --force-reinstall torch --index-url {_CPU_BUILDS}",
        )
    else:
        yield Check(group="gpu", name="cuda", status="ok", detail="no GPU, and torch is a build for the CPU")


def has_nvidia_driver() -> bool:
    """Whether this machine has a driver for NVIDIA's GPUs."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def _offers(group: str, entries: Sequence[Offer]) -> Iterator[Check]:
    """What can be chosen by name: installed or not, in a version that goes with this genelab or not."""
    for entry in entries:
        lacking = [package for package in entry.packages if _version(package) is None]
        what = " ".join(lacking) if entry.extra is None else f"'genelab[{entry.extra}]'"
        if lacking:
            detail = f"{', '.join(lacking)} not installed"
            yield Check(group=group, name=entry.name, status="missing", detail=detail, mend=f"pip install {what}")
            continue
        detail = ", ".join(f"{package} {_version(package)}" for package in entry.packages) or "comes with its package"
        wrong = [text for package in entry.packages if (text := _misfit(package)) is not None]
        yield Check(
            group=group,
            name=entry.name,
            status="note" if wrong else "ok",
            detail="; ".join([detail, *wrong]),
            mend=f"pip install {what}" if wrong else "",
        )


def _rendering(draws: dict[str, Callable[[], Answer]], window: Callable[[], Answer] | None) -> Iterator[Check]:
    answers = {name: wait() for name, wait in draws.items()}
    other = any(answer.error is None for answer in answers.values())
    for name, answer in answers.items():
        title, mend = _DRAWS[name]
        if answer.error is None:
            yield Check(group="rendering", name=title, status="ok", detail="draws off-screen, for films")
        else:
            status: Status = "missing" if other else "broken"
            detail = f"{answer.error}{', and is not needed: the other one draws' if other else ''}"
            yield Check(group="rendering", name=title, status=status, detail=detail, mend=mend)
    if window is None:
        detail = "no display: what is to be seen is served as a web page instead"
        yield Check(group="rendering", name="window", status="ok", detail=detail)
        return
    answer = window()
    status = "ok" if answer.error is None else "broken"
    mend = "" if answer.error is None else "apt-get install libgl1"
    yield Check(group="rendering", name="window", status=status, detail=answer.error or "opens", mend=mend)


def _has_display() -> bool:
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _extras() -> Iterator[Check]:
    """What `pip install 'genelab[...]'` adds, besides engines and RL libraries."""
    told = {ENGINES.entry(name).extra for name in ENGINES.names()} | {
        BACKENDS.entry(name).extra for name in BACKENDS.names()
    }
    extras: dict[str, list[str]] = {}
    for extra, package, _ in _requirements():
        if extra is not None and extra not in told and extra not in _NOT_FOR_USERS:
            extras.setdefault(extra, []).append(package)
    if not extras:
        detail = "genelab is not installed as a package: what it needs is not known"
        yield Check(group="extras", name="extras", status="note", detail=detail, mend="pip install -e .")
    for extra, packages in extras.items():
        mend = f"pip install 'genelab[{extra}]'"
        lacking = [package for package in packages if _version(package) is None]
        wrong = [text for package in packages if (text := _misfit(package)) is not None]
        if lacking:
            detail = f"{', '.join(lacking)} not installed"
            yield Check(group="extras", name=extra, status="missing", detail=detail, mend=mend)
        else:
            detail = ", ".join(f"{package} {_version(package)}" for package in packages)
            status: Status = "note" if wrong else "ok"
            detail = "; ".join([detail, *wrong])
            yield Check(group="extras", name=extra, status=status, detail=detail, mend=mend if wrong else "")


def _tasks() -> Iterator[Check]:
    TASKS.load_plugins()
    for failure in TASKS.failures:
        yield Check(group="tasks", name=failure.name, status="broken", detail=summary(failure.error))
    packages = sorted({entry.package for entry in TASKS.entries()})
    yield Check(group="tasks", name="tasks", status="ok", detail=f"{len(TASKS)} from {', '.join(packages) or 'nobody'}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _misfit(package: str) -> str | None:
    """What genelab wants of a package, if the installed version is another."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    version = _version(package)
    for _, name, versions in _requirements():
        if version is not None and _canonical(name) == _canonical(package) and versions:
            try:
                fits = SpecifierSet(versions).contains(version, prereleases=True)
            except InvalidSpecifier:
                continue
            if not fits:
                return f"genelab {__version__} wants {package}{versions}"
    return None


def _requirements() -> Iterator[tuple[str | None, str, str]]:
    """Extra, package and versions of everything that genelab's own package asks for."""
    try:
        lines = importlib.metadata.requires("genelab") or []
    except importlib.metadata.PackageNotFoundError:
        lines = []
    for line in lines:
        found = _REQUIREMENT.fullmatch(line.strip())
        if found is not None and not found["name"].startswith("genelab"):
            extra = _EXTRA.search(found["marker"] or "")
            yield (None if extra is None else extra["name"]), found["name"], found["versions"]


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
