"""What `genelab doctor` says of machines that lack something; the answers of other processes are faked, but for one."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from genelab.cli.main import run
from genelab.doctor import Check, base_works, checks, examine
from genelab.doctor.probes import Answer, Probe

CPU = Answer(found={"version": "2.13.0+cpu", "cuda": None, "gpus": []})


def asking(torch: Answer = CPU, **others: Answer) -> Callable[..., Callable[[], Answer]]:
    """Answers by a word of the question; everything else works."""

    def ask(code: str, **env: str) -> Callable[[], Answer]:
        if "torch.cuda" in code:
            return lambda: torch
        found = next((answer for word, answer in others.items() if word in code), Answer())
        return lambda: found

    return ask


def found(lines: list[Check], group: str, name: str) -> Check:
    (check,) = [one for one in lines if (one.group, one.name) == (group, name)]
    return check


@pytest.fixture
def uninstalled(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Packages that seem not to be installed."""
    names: set[str] = set()
    original = importlib.metadata.version

    def version(package: str) -> str:
        if package in names:
            raise importlib.metadata.PackageNotFoundError(package)
        return original(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    return names


@pytest.fixture
def required(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What genelab's package asks for."""
    lines = ["torch>=2.6", 'ray>=2.40; extra == "ray"', 'av>=14; extra == "video"', 'ruff; extra == "dev"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    return lines


def test_a_machine_with_everything_works(required: list[str]) -> None:
    lines = examine(asking())
    assert base_works(lines)
    assert [one for one in lines if one.status == "broken"] == []
    assert found(lines, "gpu", "cuda").detail == "no GPU, and torch is a build for the CPU"
    assert {one.name for one in lines if one.group == "extras"} == {"ray", "video"}


def test_what_is_not_installed_is_named_with_the_command(uninstalled: set[str], required: list[str]) -> None:
    uninstalled |= {"skrl", "genesis-world", "ray"}
    lines = examine(asking())
    assert base_works(lines)
    library = found(lines, "libraries", "skrl")
    assert (library.status, library.mend) == ("missing", "pip install 'genelab[skrl]'")
    assert found(lines, "engines", "genesis").mend == "pip install 'genelab[genesis]'"
    extra = found(lines, "extras", "ray")
    assert (extra.status, extra.detail, extra.mend) == ("missing", "ray not installed", "pip install 'genelab[ray]'")


def test_a_version_that_does_not_fit_is_noted(required: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    required.append('skrl<3,>=2.0; extra == "skrl"')
    original = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.4.3" if name == "skrl" else original(name))
    check = found(examine(asking()), "libraries", "skrl")
    assert (check.status, check.mend) == ("note", "pip install 'genelab[skrl]'")
    assert "wants skrl<3,>=2.0" in check.detail


def test_a_base_that_is_broken_is_a_line(uninstalled: set[str], required: list[str]) -> None:
    lines = examine(asking(torch=Answer(error="OSError: libcudart.so.12: cannot open shared object file")))
    assert not base_works(lines)
    check = found(lines, "base", "torch")
    assert (check.status, check.mend) == ("broken", "pip install --force-reinstall genelab")
    assert "libcudart" in check.detail
    uninstalled.add("torch")
    lines = examine(asking(torch=Answer(error="ModuleNotFoundError: No module named 'torch'")))
    assert found(lines, "base", "torch").mend == "pip install torch"


@pytest.mark.parametrize(
    ("cuda", "gpus", "driver", "status", "words"),
    [
        ("12.8", [], False, "note", "torch is a build for CUDA 12.8, and there is no GPU"),
        ("12.8", [], True, "note", "finds no GPU: is the driver too old"),
        (None, [], True, "note", "there is a GPU, and torch is a build for the CPU"),
        ("12.8", ["NVIDIA H200"], True, "ok", "CUDA 12.8: NVIDIA H200"),
    ],
)
def test_what_torch_was_built_for_and_what_is_there(
    cuda: str | None, gpus: list[str], driver: bool, status: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "has_nvidia_driver", lambda: driver)
    torch = Answer(found={"version": "2.13.0", "cuda": cuda, "gpus": gpus})
    lines = examine(asking(torch=torch))
    check = found(lines, "gpu", "cuda")
    assert check.status == status
    assert words in check.detail
    assert bool(check.mend) == (status == "note")
    assert base_works(lines)
    use = [(one.status, one.mend) for one in lines if (one.group, one.name) == ("gpu", "in use")]
    assert use == [("note", "genelab train TASK --gpu")] * bool(gpus)


def test_drawing_needs_one_of_two_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    broken = Answer(error="it ended with signal 6")
    lines = examine(asking(**{'"mujoco.egl"': broken}))
    assert found(lines, "rendering", "EGL").status == "missing"
    assert found(lines, "rendering", "EGL").mend == "apt-get install libegl1 libegl-mesa0 libopengl0"
    assert "as a web page" in found(lines, "rendering", "window").detail
    lines = examine(asking(**{'"mujoco.egl"': broken, '"mujoco.osmesa"': broken}))
    assert found(lines, "rendering", "OSMesa").status == "broken"
    assert base_works(lines)
    monkeypatch.setenv("DISPLAY", ":9")
    lines = examine(asking(glfw=Answer(error="AssertionError: GLFW finds no display")))
    assert found(lines, "rendering", "window").status == "broken"


def test_a_check_that_fails_itself_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise RuntimeError("no /proc here")

    monkeypatch.setattr(checks, "cpu_name", fail)
    lines = examine(asking())
    assert found(lines, "system", "system").detail == "RuntimeError: no /proc here"
    assert found(lines, "tasks", "tasks").status == "ok"


def test_a_process_that_dies_is_an_answer() -> None:
    assert Probe("import os; os.abort()").answer().error == "it ended with signal 6"
    assert Probe("raise OSError('no driver')").answer().error == "OSError: no driver"
    assert Probe("print('chat')").answer().error == "it said nothing"
    assert Probe("print('chat'); print('{\"a\": 1}'); print('more')").answer().found == {"a": 1}


ASKS = """
import time
from genelab.doctor.probes import Probe
print(Probe("import time; time.sleep(60)")._process.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_doctor_leaves_no_process(number: signal.Signals) -> None:
    doctor = subprocess.Popen(
        [sys.executable, "-c", ASKS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert doctor.stdout is not None
    probe = psutil.Process(int(doctor.stdout.readline()))
    assert probe.is_running()
    doctor.send_signal(number)
    doctor.wait(30)
    with contextlib.suppress(psutil.NoSuchProcess):
        deadline = time.monotonic() + 10
        while probe.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_doctor_on_this_machine_with_a_broken_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """For real: the processes it asks find a torch that cannot be imported, and it says so in one line."""
    (tmp_path / "torch.py").write_text("raise OSError('libtorch_cpu.so: cannot open shared object file')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(checks.__file__).parents[2]}")
    assert run(["doctor", "--json"]) == 1
    report = json.loads(capfd.readouterr().out)
    assert report["works"] is False
    lines = {(one["group"], one["name"]): one for one in report["checks"]}
    assert lines["base", "torch"]["detail"] == "OSError: libtorch_cpu.so: cannot open shared object file"
    assert lines["base", "mujoco"]["status"] == "broken"
    assert lines["system", "python"]["status"] == "ok"
    monkeypatch.setattr("genelab.doctor.examine", lambda: [Check(**one) for one in report["checks"]])
    assert run(["doctor"]) == 1
    out = capfd.readouterr().out
    assert "genelab does not work here: torch, mujoco, rsl_rl" in out
    assert "Traceback" not in out
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in out
