"""Exports come from anywhere: what is damaged or changed is refused in one line, and NaN never reaches a drive."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genelab.rl import export_for
from genelab.rl.targets import run
from genelab.rl.targets.plain import with_rollout
from genelab.rl.targets.run import METADATA, POLICY, WORLD, Policy, Runner, Stopped, main

pytestmark = pytest.mark.xdist_group("deploy")

PENDULUM, GO1 = "GeneLab-Inverted-Pendulum-v0", "Genelab-Velocity-Flat-Unitree-Go1-v0"
G1 = "Genelab-Velocity-Flat-Unitree-G1-v0"


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of `--for mujoco`, by task."""
    home, made = tmp_path_factory.mktemp("exports"), {}

    def export(task: str) -> Path:
        if task not in made:
            made[task] = export_for("mujoco", task, "pretrained", out=home / task).out
        return made[task]

    return export


@pytest.fixture
def copy(exports: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """A folder to change; without its manifest, which would find every change first."""

    def make(task: str = PENDULUM, *, manifest: bool = False) -> Path:
        folder = tmp_path / "folder"
        shutil.copytree(exports(task), folder)
        if not manifest:
            (folder / "manifest.json").unlink()
        return folder

    return make


def change(folder: Path, changed: Callable[[dict[str, Any]], Any]) -> None:
    """Change the metadata of a folder."""
    path = folder / METADATA
    about = json.loads(path.read_text())
    changed(about)
    path.write_text(json.dumps(about))


def refusal(folder: Path, capfd: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    """The one line that a folder is refused with."""
    assert main([str(folder), *(words or ("--check",))]) == code
    (line,) = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("note: ")]
    assert line.startswith("run.py: ")
    return line


def test_an_export_repeats_its_rollout(exports: Callable[[str], Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(exports(GO1)), "--check"]) == 0
    said, complaints = capfd.readouterr()
    assert complaints == ""
    assert "rollout: 16 of 16 control steps agree" in said
    assert "manifest.json: 4 files agree, its own SHA-256 is " in said


def swap_legs(about: dict[str, Any]) -> None:
    names = about["actions"][0]["joint_names"]
    names[0], names[3] = names[3], names[0]


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "scale of 1.1": lambda about: about["actions"][0].update(scale=[1.1 * x for x in about["actions"][0]["scale"]]),
    "offset of 0.01": lambda about: about["actions"][0].update(
        offset=[x + 0.01 for x in about["actions"][0]["offset"]]
    ),
    "order of joints": swap_legs,
    "share of the script": lambda about: about["actions"][0].update(share=0.9),
    "clock": lambda about: about["commands"]["gait"].update(frequency=2.1),
    "height at the start": lambda about: about["start"]["entities"]["robot"]["root_pos"].__setitem__(2, 2.0),
    "physics_dt": lambda about: about.update(physics_dt=0.05, step_dt=0.2),
    "decimation": lambda about: about.update(decimation=8, step_dt=0.04),
    "observed joints": lambda about: [
        term["source"].update(minus=[0.0] * 12)
        for term in about["obs_groups"]["policy"]["terms"]
        if term["name"] == "joint_pos"
    ],
}


@pytest.mark.parametrize("name", CHANGES)
def test_metadata_that_were_changed_are_refused(
    name: str, copy: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copy(GO1)
    change(folder, CHANGES[name])
    assert "the export does not repeat its recorded rollout: " in refusal(folder, capfd)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r'mass="([\d.]+)"', lambda found: f'mass="{1.05 * float(found[1])}"'),
        (r"<option ", lambda found: '<option gravity="0 0 -9.5" '),
        (r'friction="([\d.]+)', lambda found: f'friction="{0.5 * float(found[1])}'),
        (r'gainprm="([\d.]+)', lambda found: f'gainprm="{1.05 * float(found[1])}'),
    ],
    ids=["mass", "gravity", "friction", "gain"],
)
def test_a_world_that_was_changed_is_refused(
    pattern: str, text: Callable[[re.Match[str]], str], copy: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copy(GO1)
    world, count = re.subn(pattern, text, (folder / WORLD).read_text())
    assert count
    (folder / WORLD).write_text(world)
    assert "the export does not repeat its recorded rollout: " in refusal(folder, capfd)


def test_another_machine_may_round_otherwise(exports: Callable[[str], Path]) -> None:
    """A network that differs in the last bits is far from the tolerances: they find changes, not machines."""

    class Rounded(Policy):
        def __call__(self, obs: np.ndarray) -> np.ndarray:
            return super().__call__(obs) + rng.uniform(-1e-6, 1e-6, self.width)

    runner, rng = Runner(exports(G1), seed=0), np.random.default_rng(0)
    policy = Rounded(exports(G1) / POLICY, runner.about)
    recorded = runner.about["rollout"]
    made = run.rollout(runner.robot, policy, runner.about, recorded)
    for key, tolerance in run.ROLLOUT_TOLERANCES.items():
        wanted = np.array(recorded[key])
        assert (np.abs(np.array(made[key]) - wanted) / np.maximum(1.0, np.abs(wanted))).max() < 0.05 * tolerance
    run.check_rollout(runner.robot, policy, runner.about, recorded)


SHAPES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "scale NaN": (lambda about: about["actions"][0].update(scale=[float("nan")]), "NaN is no number"),
    "scale inf": (lambda about: about["actions"][0].update(scale=[float("inf")]), "Infinity is no number"),
    "scale 1e5": (lambda about: about["actions"][0].update(scale=[1e5]), "actions.scale: 100000 is not between"),
    "no golden rows": (lambda about: about["golden"].update(observations=[], actions=[], resets=[]), "no golden rows"),
    "golden tolerance": (lambda about: about["golden"].update(tolerance=1e6), "with a tolerance of 1e+06"),
    "step_dt 0": (lambda about: about.update(step_dt=0), "step_dt: 0 is not between"),
    "step_dt": (lambda about: about.update(step_dt=0.5), "step_dt 0.5 is not decimation * physics_dt"),
    "stiffness": (
        lambda about: about["entities"]["robot"].update(stiffness=[-1.0, None]),
        "robot.stiffness: -1 is not between",
    ),
    "number": (lambda about: about["ends"][1]["params"].update(bound=1e300), "bound: 1e+300 is not between"),
    "commands": (lambda about: about.update(commands="x"), "this export cannot be run: AttributeError"),
    "actions": (lambda about: about.update(actions={"a": 1}), "this export cannot be run: TypeError"),
    "entities": (lambda about: about.pop("entities"), "not in the metadata: 'entities'"),
    "joint": (lambda about: about["actions"][0].update(joint_names=["leg"]), "rollout: controls differ"),
    "obs_dim": (lambda about: about.update(obs_dim=9), "takes 8 observations, its metadata say 9"),
    "no rollout": (lambda about: about.pop("rollout"), "the rollout of the whole loop is missing"),
    "empty rollout": (lambda about: about["rollout"].update(positions=[]), "has not 16 control steps"),
    "newer": (lambda about: about.update(schema_version=3), "schema_version 3 is unknown"),
    "escape": (lambda about: about.update(task="\x1b]0;title\x07"), "has control characters"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_metadata_out_of_bounds_or_shape_are_refused(
    name: str, copy: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder, (changed, message) = copy(), SHAPES[name]
    change(folder, changed)
    assert message in refusal(folder, capfd)


def test_a_policy_that_run_cannot_run_is_exported_without_a_rollout(exports: Callable[[str], Path]) -> None:
    folder = exports(PENDULUM)
    said: list[str] = []
    about = json.loads((folder / METADATA).read_text())
    about["actions"][0]["type"] = "RiddleAction"
    del about["rollout"], about["schema_version"]
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}
    files[METADATA] = json.dumps(about).encode()
    assert with_rollout(files, about, said.append) == files
    (line,) = said
    assert "the action RiddleAction is not known here" in line


def test_an_export_of_before_runs_with_a_word_of_warning(
    copy: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copy()
    change(folder, lambda about: (about.pop("rollout"), about.pop("schema_version")))
    assert main([str(folder), "--check"]) == 0
    assert "note: this export has no recorded rollout" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (POLICY, lambda data: data[:1000], "onnxruntime cannot load it"),
        (POLICY, lambda data: b"", "onnxruntime cannot load it"),
        (METADATA, lambda data: b"[" * 100_000, "is not JSON"),
        (METADATA, lambda data: b"[]", "holds a list, not an object"),
        (METADATA, lambda data: data.replace(b'"seed"', b"\xff"), None),
        (WORLD, lambda data: data[:500], "is not XML"),
        (WORLD, lambda data: data.replace(b"<worldbody>", b'<worldbody><replicate count="10000000"/>'), "<replicate>"),
        (WORLD, lambda data: data.replace(b"<worldbody>", b'<include file="/etc/passwd"/><worldbody>'), "<include>"),
        (
            WORLD,
            lambda data: data.replace(
                b"<worldbody>", b'<asset><hfield name="h" file="../h.png" size="1 1 1 1"/></asset><worldbody>'
            ),
            "../h.png is not a file of the folder",
        ),
        (
            WORLD,
            lambda data: data.replace(b"<worldbody>", b'<size memory="64G"/><worldbody>'),
            "MuJoCo cannot load it",
        ),
    ],
)
def test_bad_files_are_refused(
    name: str,
    content: Callable[[bytes], bytes],
    message: str | None,
    copy: Callable[..., Path],
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = copy()
    (folder / name).write_bytes(content((folder / name).read_bytes()))
    if message is not None:
        assert message in refusal(folder, capfd)


def test_a_manifest_names_the_file_that_is_another(
    copy: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copy(manifest=True)
    world = (folder / WORLD).read_text()
    (folder / WORLD).write_text(world + "\n")
    assert "manifest.json: world.xml is not the file that was exported" in refusal(folder, capfd)
    (folder / WORLD).write_text(world)
    (folder / "assets").mkdir()
    (folder / "assets" / "more.stl").touch()
    assert "manifest.json does not list assets/more.stl" in refusal(folder, capfd)
    shutil.rmtree(folder / "assets")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["../outside"] = {"sha256": ""}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "'../outside' is no file of the folder" in refusal(folder, capfd)


class Broken(Policy):
    """A policy that answers NaN from some step on."""

    steps_left = 100

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        self.steps_left -= 1
        return super().__call__(obs) if self.steps_left >= 0 else np.full(self.width, np.nan)


def test_nan_reaches_no_drive(exports: Callable[[str], Path]) -> None:
    runner = Runner(exports(GO1), seed=0)
    runner.controller.policy = broken = Broken(exports(GO1) / POLICY, runner.about)
    broken.steps_left = 2
    with pytest.raises(Stopped, match="an action of the policy is NaN or infinite"):
        list(runner.steps(1.0))
    assert runner.controller.steps == 2
    assert np.isfinite(runner.robot.data.ctrl).all()
    for value in (np.nan, np.inf):
        with pytest.raises(Stopped, match="a control of the drives is NaN or infinite"):
            runner.robot.write_motors({"position": {"robot/FR_hip_joint": np.array(value)}})


def test_a_run_that_diverges_ends_with_1(copy: Callable[..., Path], capfd: pytest.CaptureFixture[str]) -> None:
    folder = copy()

    def throw(about: dict[str, Any]) -> None:
        del about["rollout"], about["schema_version"]
        about["start"]["events"][0]["params"].update(velocity_range=[1e9, 1e9], position_range=[1e9, 1e9])
        about["ends"].clear()

    change(folder, throw)
    assert "is NaN or infinite: nothing more is sent to the drives" in refusal(folder, capfd, "--episodes", "1", code=1)


def test_a_world_that_takes_too_long_is_left(
    copy: Callable[..., Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy()
    texture = b'<asset><texture name="t" type="2d" builtin="flat" width="20000" height="20000"/></asset>'
    world = (folder / WORLD).read_bytes().replace(b"<worldbody>", texture + b"<worldbody>")
    (folder / WORLD).write_bytes(world)
    child = subprocess.Popen([sys.executable, str(folder / "run.py"), "--check"], stderr=subprocess.PIPE, text=True)
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=3)[1].splitlines()[-1] == "run.py: interrupted"
    assert child.returncode == 130
    monkeypatch.setattr(run, "COMPILE_SECONDS", 0.5)
    assert "MuJoCo has not compiled it after 0.5 s" in refusal(folder, capfd)


def test_reports_and_logs_are_written_whole_or_not_at_all(
    exports: Callable[[str], Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, report, log = exports(PENDULUM), tmp_path / "r.json", tmp_path / "log.npz"
    assert main([str(folder), "--episodes", "1", "--report", str(report), "--log", str(log)]) == 0
    assert json.loads(report.read_text())["episodes"] == 1
    with np.load(log) as file:
        assert len(file["action"])
    capfd.readouterr()
    for place in ("/proc/nowhere/r.json", str(tmp_path), "/dev/null"):
        assert main([str(folder), "--report", place]) == 2
        said, complaint = capfd.readouterr()
        assert said == ""  # before anything is run
        assert complaint.startswith(f"run.py: cannot write {place}: ")
    full = (
        "import resource, sys; from pathlib import Path; from genelab.rl.targets.run import write_whole\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        f"write_whole(Path({str(report)!r}), bytes(1000))"
    )
    before = report.read_bytes()
    answer = subprocess.run([sys.executable, "-c", full], capture_output=True, text=True, check=False)
    assert "cannot write" in answer.stderr
    assert report.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.npz", "r.json"]


def test_a_script_is_checked_before_its_first_command(
    exports: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([str(exports(GO1)), "--script", "0.5 0 0: 1, 0 0 0: 1, 9 0 0: 1"]) == 2
    said, complaint = capfd.readouterr()
    assert "achieved" not in said
    assert "the command 9 is outside of -1 … 1" in complaint


@pytest.mark.parametrize("words", [["--seconds", "nan"], ["--episodes", "0"], ["--seed", "-1"], ["--command", "x"]])
def test_words_that_make_no_sense_are_refused(
    words: list[str], exports: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert f"argument {words[0]}: " in refusal(exports(PENDULUM), capfd, *words)


def test_standing_is_the_mean_speed_as_the_probe_has_it(exports: Callable[[str], Path]) -> None:
    swaying = np.array([[0.1, 0.0, 0.0], [-0.1, 0.0, 0.0], [0.0, 0.0, 0.2], [0.0, 0.0, 0.0]])
    assert run.standing(swaying) == pytest.approx(0.1)
    runner = Runner(exports(G1), seed=0)
    runner.steering.ranges = [[0.0, 0.0]] * 3  # to stand is all that is left
    (report,) = run.all_directions(runner, 1, 10.0)["directions"].values()
    assert 0.01 < report["achieved"] < 0.1  # its mean velocity is 0.000
