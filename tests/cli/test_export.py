"""`genelab export`, used as a person would."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from genelab.cli.main import run
from genelab.rl import train_task
from genelab.rl.exportable import golden_error
from genelab.rl.exported import metadata_path, open_policy
from genelab.rl.locate import pretrained_policy

TASK = "GeneLab-Inverted-Pendulum-v0"
RNN = "GeneLab-Inverted-Pendulum-Memory-Rnn-v0"

pytestmark = pytest.mark.xdist_group("export-cli")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("runs")
    for task in (TASK, RNN):
        train_task(task, num_envs=8, max_iterations=1, seed=3, log_dir=home / task)
    return home


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_says_what_it_wrote_and_how_to_run_it(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["export", TASK, str(runs / TASK)]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == f"{TASK}: rsl_rl PPO from {runs / TASK / 'model_final.pt'}"
    assert lines[1].startswith("policy      policy.ts (")
    assert lines[2:5] == [
        "metadata    policy.ts.metadata.json",
        "input       8 raw observations of any number of robots: policy",
        "output      1 actions every 0.01 s",
    ]
    assert float(lines[5].split()[1]) <= 1e-5
    assert lines[-2:] == ["  policy = torch.jit.load('policy.ts').eval()", "  actions = policy(raw_obs)"]
    assert sorted(path.name for path in Path().iterdir()) == ["policy.ts", "policy.ts.metadata.json"]


def test_the_lines_for_memory(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["export", RNN, str(runs / RNN), "--format", "onnx"]) == 0
    out = capfd.readouterr().out
    assert out.startswith(f"{RNN}: rsl_rl PPO, LSTM from")
    assert "\ninput       9 raw observations of any number of robots: policy\n" in out
    assert out.endswith('  actions, h, c = policy.run(None, {"obs": raw_obs, "h_in": h, "c_in": c})\n')
    assert run(["export", RNN, str(runs / RNN)]) == 0
    out = capfd.readouterr().out
    assert "\ninput       9 raw observations of one robot: policy\n" in out
    assert "  policy.reset()  # at the start of each episode\n" in out


def test_what_a_memory_of_one_robot_advises_serves_more(runs: Path) -> None:
    assert run(["export", RNN, str(runs / RNN)]) == 0
    with pytest.raises(torch.jit.Error, match=r"For more robots export it as ONNX, "):
        torch.jit.load("policy.ts")(torch.zeros(2, 9))
    assert run(["export", RNN, str(runs / RNN), "--format", "onnx"]) == 0
    session = onnxruntime.InferenceSession("policy.onnx")
    obs = np.random.default_rng(0).normal(size=(3, 9)).astype(np.float32)
    layers, _, width = json.loads(Path("policy.onnx.metadata.json").read_text())["recurrent"]["hidden_state_shape"]
    state = {name: np.zeros((layers, 3, width), np.float32) for name in ("h_in", "c_in")}
    together = session.run(None, {"obs": obs, **state})
    for row in range(3):
        alone = session.run(None, {"obs": obs[[row]], **{name: one[:, [row]] for name, one in state.items()}})
        assert together[0][[row]] == pytest.approx(alone[0], abs=1e-6)
        assert together[1][:, [row]] == pytest.approx(alone[1], abs=1e-6)


def test_the_name_decides_the_format_and_overrides_apply(runs: Path) -> None:
    words = ["--out", "p.onnx", "--opset", "15", "--env.decimation", "4", "--dt", "0.0025"]
    assert run(["export", TASK, str(runs / TASK), *words]) == 0
    about = json.loads(Path("p.onnx.metadata.json").read_text())
    assert (about["format"], about["opset"]) == ("onnx", 15)
    assert (about["step_dt"], about["physics_dt"], about["decimation"]) == (0.01, 0.0025, 4)


def test_an_onnx_file_is_for_any_number_of_robots_unless_told(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one, more = ("one robot", "static", [1, 8]), ("any number of robots", "dynamic", ["batch", 8])
    asked = {"static": one, "1": one, "dynamic": more, None: more}
    for batch, (robots, kind, shape) in asked.items():
        words = [] if batch is None else ["--batch", batch]
        assert run(["export", TASK, str(runs / TASK), "--out", f"{kind}.onnx", *words]) == 0
        assert f"raw observations of {robots}: policy\n" in capfd.readouterr().out
        session = onnxruntime.InferenceSession(f"{kind}.onnx")
        assert session.get_inputs()[0].shape == shape
        about = json.loads(Path(f"{kind}.onnx.metadata.json").read_text())
        assert about["batch"] == kind
        assert json.loads(session.get_modelmeta().custom_metadata_map["genelab"]) == about
    obs = np.array(about["golden"]["observations"], np.float32)
    assert session.run(None, {"obs": obs})[0] == pytest.approx(np.array(about["golden"]["actions"]), abs=1e-5)
    assert run(["export", TASK, "static.onnx", "--out", "copy.onnx"]) == 0
    assert onnxruntime.InferenceSession("copy.onnx").get_inputs()[0].shape == [1, 8], "a copy is what it was"
    capfd.readouterr()
    assert run(["export", TASK, "dynamic.onnx", "--out", "other.onnx", "--batch", "static"]) == 2
    assert "an exported policy already, of batch dynamic, not static: pass --batch dynamic" in capfd.readouterr().err
    assert run(["export", TASK, str(runs / TASK), "--batch", "static"]) == 2
    assert capfd.readouterr().err == "genelab: --batch is for --format onnx\n"


def test_golden_rows_of_a_memory_are_one_robots_first_steps(runs: Path) -> None:
    for name in ("p.onnx", "p.ts"):
        assert run(["export", RNN, str(runs / RNN), "--out", name]) == 0
        about = json.loads(Path(f"{name}.metadata.json").read_text())
        assert about["golden"]["resets"] == [True] + [False] * 15
        policy = open_policy(Path(name).read_bytes(), about, torch.device("cpu"))
        assert golden_error(policy, about["golden"]) < 1e-5
        about["golden"]["resets"] = [True] * 16  # whoever forgets in between is another policy
        assert golden_error(policy, about["golden"]) > 1e-5


def test_an_exported_file_plays_and_evaluates(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["export", TASK, str(runs / TASK), "--out", "p.ts"]) == 0
    assert run(["play", TASK, "--checkpoint", "p.ts", "--steps", "5"]) == 0
    assert run(["eval", TASK, "p.ts", "--episodes", "4", "--num-envs", "4"]) == 0
    assert json.loads(Path("eval.json").read_text())["checkpoint"] == "p.ts"
    capfd.readouterr()
    assert run(["eval", TASK, "p.ts", "--stochastic"]) == 2
    assert "an exported policy is deterministic" in capfd.readouterr().err


def test_a_shipped_policy_is_copied_in_its_own_format(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["export", TASK, "pretrained"]) == 0
    shipped = pretrained_policy(TASK)
    assert shipped is not None
    assert Path("policy.ts").read_bytes() == shipped.read_bytes()
    assert Path("policy.ts.metadata.json").read_bytes() == metadata_path(shipped).read_bytes()
    out, err = capfd.readouterr()
    assert "copied      it was an exported policy already\n" in out
    assert err == ""
    assert run(["eval", TASK, "policy.ts", "--episodes", "1", "--max-steps", "1001"]) == 0
    assert run(["export", TASK, "policy.ts", "--out", "q.ts"]) == 0
    capfd.readouterr()
    for words, message in (
        (["q.ts", "--out", "q.ts"], "--out: q.ts is the policy itself; give another file"),
        (["pretrained", "--env.actions.cart.scale", "2"], "scale 1, here 2: pass --env.actions.cart.scale=1"),
    ):
        assert run(["export", TASK, *words]) == 2
        err = capfd.readouterr().err
        assert message in err
        assert err.count("\n") == 1
    assert not list(Path().glob("*.onnx*"))


def test_a_shipped_policy_becomes_onnx_in_a_new_directory(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["export", TASK, "pretrained", "--out", "new/p.onnx"]) == 0
    assert "difference  " in capfd.readouterr().out
    about = json.loads(Path("new/p.onnx.metadata.json").read_text())
    assert (about["format"], about["opset"]) == ("onnx", 17)
    assert about["parity"]["max_abs_error"] <= 1e-5
    shipped = pretrained_policy(TASK)
    assert shipped is not None
    obs = np.random.default_rng(0).normal(size=(1, about["obs_dim"])).astype(np.float32)
    (actions,) = onnxruntime.InferenceSession("new/p.onnx").run(None, {"obs": obs})
    assert actions == pytest.approx(torch.jit.load(shipped)(torch.from_numpy(obs)).numpy(), abs=1e-5)
    assert run(["eval", TASK, "new/p.onnx", "--episodes", "1", "--max-steps", "1001", "--out", "far/off/e.json"]) == 0
    assert json.loads(Path("far/off/e.json").read_text())["metrics"]["length_mean"] == 1000.0
    capfd.readouterr()
    assert run(["export", TASK, "new/p.onnx", "--out", "q.ts"]) == 2
    assert "an exported policy already, of format onnx, not torchscript" in capfd.readouterr().err


def test_memory_of_one_robot_does_not_become_onnx(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["export", RNN, str(runs / RNN), "--out", "p.ts"]) == 0
    capfd.readouterr()
    assert run(["export", RNN, "p.ts", "--out", "p.onnx"]) == 2
    assert "which ONNX keeps outside: give the checkpoint that it was made from" in capfd.readouterr().err


def test_a_copy_must_be_what_its_metadata_say(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["export", TASK, "pretrained", "--out", "p.ts"]) == 0
    about = json.loads(Path("p.ts.metadata.json").read_text())
    Path("p.ts.metadata.json").write_text(json.dumps({**about, "action_dim": 2}))
    assert run(["export", TASK, "p.ts"]) == 2
    assert "p.ts: not what its metadata say: it answers (1, 1)" in capfd.readouterr().err
    assert not Path("policy.ts").exists()


@pytest.mark.parametrize(
    ("task", "checkpoint", "words", "message"),
    [
        (TASK, "nowhere.pt", [], "nowhere.pt: no such checkpoint"),
        (RNN, TASK, [], "with other observations: policy.terms.target_cue is missing there"),
        ("GeneLab-Inverted-Pendulum-Skrl-v0", TASK, [], "made with rsl_rl, but this task's agent is of skrl"),
        (TASK, TASK, ["--format", "onnx", "--opset", "3"], "--opset: 3 cannot be written, only 7 to 20"),
        (TASK, TASK, ["--format", "onnx", "--opset", "99"], "--opset: 99 cannot be written, only 7 to 20"),
        (TASK, TASK, ["--opset", "17"], "--opset is for --format onnx"),
        (TASK, TASK, ["--out", "/proc/no/policy.ts"], "--out: cannot write /proc/no/policy.ts"),
        (TASK, TASK, ["--out", "."], "--out: . is a directory"),
        (TASK, TASK, ["--out", "/proc/policy.ts"], "--out: cannot write /proc/policy.ts"),
        (TASK, TASK, ["--format", "torchscript", "--out", "policy.onnx"], "policy.onnx is the name of an onnx file"),
        (TASK, TASK, ["--out", "p.pt"], "--out: p.pt would be taken for a checkpoint; call it p.ts"),
        (TASK, TASK, ["--format", "onnx", "--out", "p.zip"], "p.zip would be taken for a checkpoint; call it p.onnx"),
        (TASK, TASK, ["--format", "jit"], "'jit' is not one of 'torchscript', 'onnx'"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    task: str, checkpoint: str, words: list[str], message: str, runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = checkpoint if checkpoint.endswith(".pt") else str(runs / checkpoint / "model_final.pt")
    assert run(["export", task, path, *words]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("genelab: ")
    assert err.count("\n") == 1
    assert message in err
    assert not list(Path().iterdir())


def test_without_onnxruntime_it_says_what_to_install(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert run(["export", TASK, str(runs / TASK), "--format", "onnx"]) == 2
    assert capfd.readouterr().err == "genelab: onnxruntime is not installed: pip install 'genelab[onnx]'\n"
    assert not list(Path().iterdir())


def test_the_lowest_and_the_highest_opset_work(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for opset in ("7", "20"):
        code = run(["export", TASK, str(runs / TASK), "--format", "onnx", "--opset", opset])
        assert (code, capfd.readouterr().err) == (0, "")
