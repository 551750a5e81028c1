"""`genelab train`, used as a person would."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from genelab.cli.main import run
from genelab.cli.progress import duration, line
from genelab.config import TASKS
from genelab.envs import ManagerBasedRlEnvCfg
from genelab.errors import GenelabError
from genelab.managers import ScheduleCfg
from genelab.rl import Progress
from tests.rl.helpers import same

TASK = "GeneLab-Inverted-Pendulum-v0"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def train(*words: str) -> int:
    """Train without the evaluation that this is not about."""
    cheap = [] if any("-eval" in word for word in words) else ["--no-final-eval"]
    return run(["train", TASK, "--num-envs", "4", "--log-dir", "run", *words, *cheap])


def params(name: str) -> dict[str, Any]:
    return json.loads(Path(f"run/params/{name}.json").read_text())


def test_options_reach_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert train("--max_iterations", "2", "--seed", "9", "--agent.algorithm.gamma", "0.9", "--dt", "0.004") == 0
    out = capfd.readouterr().out
    assert out.startswith("completed: 2 iterations, 192 env steps")
    assert f"genelab eval {TASK} run/model_final.pt --dt=0.004\n" in out  # the discount is of no use there
    assert f"genelab play {TASK} --checkpoint run/model_final.pt --dt=0.004\n" in out
    assert (params("env")["scene"]["num_envs"], params("env")["simulation"]["dt"]) == (4, 0.004)
    assert (params("agent")["max_iterations"], params("agent")["seed"]) == (2, 9)
    assert params("agent")["algorithm"]["gamma"] == 0.9


def test_the_command_it_names_plays_the_policy(capfd: pytest.CaptureFixture[str]) -> None:
    assert train("--steps", "1", "--quiet") == 0
    command = capfd.readouterr().out.splitlines()[-1].partition("genelab ")[2].split()
    assert run([*command, "--steps", "5"]) == 0
    assert "5 steps" in capfd.readouterr().out


def test_the_lines_it_names_make_the_runs_world_again(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--env.actions.cart.scale", "0.5", "--env.actions.cart.clip=[-2, 2]", "--agent.actor.hidden_dims=[8]"]
    words += ["--engine", "mujoco", "env.scene.num_envs=6", "--seed=4", "--env.auto-reset=true", "--headless"]
    assert train("--steps", "1", "--quiet", "--import", "genelab", *words) == 0
    lines = capfd.readouterr().out.splitlines()[-2:]
    ways = [shlex.split(line.partition("genelab ")[2]) for line in lines]
    given = ["--import=genelab", "--engine=mujoco", "--env.actions.cart.scale=0.5", words[2]]
    assert ways[0] == ["eval", TASK, "run/model_final.pt", *given]
    assert ways[1] == ["play", TASK, "--checkpoint", "run/model_final.pt", *given]
    assert run([*ways[0], "--episodes", "2"]) == run([*ways[1], "--steps", "2"]) == 0
    assert run([*ways[0][:3], "--episodes", "2"]) == 2
    assert (
        "trained with env.actions.cart.scale 0.5, here 1: pass --env.actions.cart.scale=0.5" in capfd.readouterr().err
    )
    assert run([*ways[0][:3], "--episodes", "2", given[2]]) == 2
    message = "trained with env.actions.cart.clip [-2, 2], here none: pass '--env.actions.cart.clip=[-2, 2]'"
    assert message in capfd.readouterr().err
    assert run(["train", TASK, "--resume", "run", "--steps", "2", "-q", "--no-final-eval"]) == 0
    assert capfd.readouterr().out.splitlines()[-2].endswith(shlex.join(given[1:]))


def test_progress_is_plain_lines_when_it_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    assert train("--max-iterations", "3") == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("iteration 1/3 · 33% · ETA 0:")
    assert lines[-1].startswith("iteration 3/3 · 100% · ETA 0:00")
    assert all("steps/s (collecting" in text for text in lines)


def test_quiet_says_only_the_result(capfd: pytest.CaptureFixture[str]) -> None:
    assert train("--max-iterations", "1", "-q") == 0
    assert capfd.readouterr().err == ""


def test_eval_every_works_without_a_budget_option() -> None:
    words = ("agent.max_iterations=2", "--eval_every", "1", "--eval_episodes", "4", "--eval_num_envs", "2")
    assert train(*words, "--eval_seed", "5") == 0
    meta = json.loads(Path("run/best_model_meta.json").read_text())
    assert (meta["seed"], meta["episodes"]) == (5, 4)


def test_eval_every_beyond_the_budget_evaluates_once_and_says_where_the_best_model_is(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert train("--max-iterations", "1", "--eval-every", "100", "--eval-episodes", "2", "--seed", "1") == 0
    out, err = capfd.readouterr()
    told, line = (line for line in err.splitlines() if "evaluation" in line)
    assert told == ("genelab: an evaluation every 100 iterations, and this training has 1: only the last is evaluated")
    assert line.startswith("genelab: evaluation at iteration 1: return ")
    assert line.endswith(", the best so far")
    assert "best       run/best_model.pt\n" in out


def evaluations() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path("run/evaluations.json").read_text())
    return found


SHORT = ("--max-iterations", "2", "--seed", "5", "-q", "--env.episode_length_s", "0.2")


def test_the_final_policy_is_evaluated_once_and_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """In its play config, without exploration: what was printed before belongs to a policy that explores."""
    assert train(*SHORT, "--final-eval") == 0
    out, err = capfd.readouterr()
    (found,) = evaluations()
    assert re.fullmatch(r"final evaluation: return \d\.\d\d( ± \d\.\d\d)? \(10 episodes\)", out.splitlines()[1])
    assert f"return {found['return_mean']:.2f}" in out
    assert (found["iteration"], found["episodes"], err) == (2, 10, "")
    assert json.loads(Path("run/best_model_meta.json").read_text())["metrics"]["return_mean"] == found["return_mean"]
    assert run(["eval", TASK, "run", "--episodes", "10", "--out", "eval.json", *SHORT[-2:]]) == 0
    judged = json.loads(Path("eval.json").read_text())["metrics"]
    assert judged["return_mean"] == pytest.approx(found["return_mean"])


def test_what_was_evaluated_at_the_end_already_is_not_evaluated_again(capfd: pytest.CaptureFixture[str]) -> None:
    assert train(*SHORT, "--eval-every", "1", "--eval-episodes", "3") == 0
    assert [one["iteration"] for one in evaluations()] == [1, 2]
    assert f"final evaluation: return {evaluations()[-1]['return_mean']:.2f}" in capfd.readouterr().out


def test_the_final_evaluation_changes_neither_the_weights_nor_what_is_resumed() -> None:
    for final, name in (("--final-eval", "a"), ("--no-final-eval", "b")):
        assert train(*SHORT, final) == 0
        Path("run").rename(name)
    assert same(Path("a/model_final.pt"), Path("b/model_final.pt"))
    first, second = (torch.load(f"{name}/resume.pt", weights_only=True) for name in "ab")
    assert torch.equal(first["torch_rng"], second["torch_rng"])
    for name in "ab":
        assert run(["train", TASK, "--resume", name, "--max-iterations", "3", "-q", "--eval-episodes", "2"]) == 0
    assert same(Path("a/model_final.pt"), Path("b/model_final.pt"))
    assert [one["iteration"] for one in json.loads(Path("a/evaluations.json").read_text())] == [2, 3]


@pytest.mark.parametrize("error", [RuntimeError("no such joint"), GenelabError("no such joint"), KeyboardInterrupt()])
def test_a_final_evaluation_that_fails_does_not_cost_the_run(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("genelab.rl.eval_callback.evaluate", fail)
    assert train(*SHORT, "--final-eval") == 0
    out, err = capfd.readouterr()
    (remark,) = err.splitlines()
    assert remark.startswith("genelab: no final evaluation: ")
    assert "no such joint" in remark or remark.endswith(": interrupted")
    assert "final evaluation" not in out
    assert json.loads(Path("run/run.json").read_text())["status"] == "completed"
    assert Path("run/model_final.pt").is_file()


def scheduled() -> Any:
    """The pendulum with help that lasts nearly 2 iterations of 24 steps, and a penalty that comes in over 1."""
    task = TASKS.get(TASK)
    assert isinstance(task.env, ManagerBasedRlEnvCfg)
    task.env.schedules = {
        "help": ScheduleCfg(start=0.5, steps=24, until=47),
        "penalty": ScheduleCfg(start=0.5, steps=24),
    }
    return task


@pytest.mark.parametrize(
    ("words", "remark"),
    [
        (("--max-iterations", "2"), None),
        (
            ("--max-iterations", "3"),
            "schedules are for another budget than this run's 72 control steps; over long before, so what they taught "
            "may be unlearned: 'help' (ends at 47). ",
        ),
        (
            ("--max-iterations", "2", "--agent.num-steps-per-env", "10"),
            "schedules are for another budget than this run's 20 control steps; not over by then, so the last policy "
            "has not learned on the task's own rewards: 'help' (ends at 47), 'penalty' (ends at 24). ",
        ),
    ],
)
def test_schedules_that_do_not_end_with_the_budget_are_named(
    words: tuple[str, ...], remark: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    with TASKS.temporarily():
        TASKS.register("Scheduled-v0", scheduled)
        assert run(["train", "Scheduled-v0", "--num-envs", "4", "--log-dir", "run", *words]) == 0
        remarks = [line for line in capfd.readouterr().err.splitlines() if "schedules" in line]
        fix = "Change the budget, or `env.schedules.NAME.begin`, `.steps` and `.until`"
        assert remarks == ([] if remark is None else [f"genelab: {remark}{fix}"])
        if remark is None:  # a longer budget for the rest of it
            assert run(["train", "Scheduled-v0", "--resume", "run", "--max-iterations", "3"]) == 0
            assert "'help' (ends at 47)" in capfd.readouterr().err


def test_resume_goes_on_in_the_same_directory(capfd: pytest.CaptureFixture[str]) -> None:
    assert train("--max-iterations", "1") == 0
    assert run(["train", TASK, "--resume", "run", "--max-iterations", "3", "--no-final-eval"]) == 0
    told = re.search(
        r"completed: 3 iterations, 288 env steps, 192 of them now in [\d.]+ s \(([\d,]+) env steps per second\)",
        capfd.readouterr().out,
    )
    assert told is not None
    rate = float(told[1].replace(",", ""))
    assert rate == pytest.approx(json.loads(Path("run/run.json").read_text())["steps_per_second"], rel=0.01)
    assert torch.load("run/resume.pt", weights_only=True)["monitor"]["done"] == 3


def test_prof_traces_iterations(capfd: pytest.CaptureFixture[str]) -> None:
    words = ("--prof", "--prof-out", "t", "--prof-wait", "0", "--prof-warmup", "0", "--prof-active", "2")
    assert train("--max-iterations", "3", "-q", *words) == 0
    captured = capfd.readouterr()
    assert len(list(Path("t").glob("*.pt.trace.json"))) == 1
    assert "traces     t\n" in captured.out
    assert captured.err == ""


def test_prof_of_a_short_training_says_that_it_left_no_trace(capfd: pytest.CaptureFixture[str]) -> None:
    assert train("--max-iterations", "3", "-q", "--prof") == 0
    captured = capfd.readouterr()
    assert "--prof left no trace: the run had 3 iterations, and a trace begins after 10" in captured.err
    assert "traces" not in captured.out


def test_prof_of_a_training_that_ends_in_the_trace_says_how_much_of_it_there_is(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert train("--max-iterations", "3", "-q", "--prof", "--prof-wait", "1", "--prof-warmup", "0") == 0
    captured = capfd.readouterr()
    assert "--prof: the trace has 2 iterations, not 20: the run had only 3" in captured.err
    assert "traces     logs/prof" in captured.out


def test_progress_beyond_the_budget_is_not_more_than_all_of_it() -> None:
    progress = Progress(
        done=1920,
        total=1700,
        unit="timesteps",
        env_steps=1920,
        elapsed=1.0,
        eta=0.0,
        collect_fps=2.0,
        total_fps=1.0,
        learn_share=0.5,
        return_mean=None,
        length_mean=None,
    )
    assert line(progress).startswith("timestep 1,920/1,700 · 100% · ETA 0:00")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-iterations", "0"), "Invalid value for '--max-iterations': 0 is not in the range x>=1."),
        (("--max-iterations", "2", "--steps", "3"), "--steps is another name for --max-iterations"),
        (("--agent.algorithm.gama", "1"), "agent.algorithm.gama: no such key. Did you mean 'gamma'"),
        (("--checkpoint", "nothing.pt"), "nothing.pt: no such checkpoint"),
        (("--checkpoint", "pretrained"), "policy.ts is an exported policy, which cannot learn; give a checkpoint"),
        (("--no-final-eval", "--eval-seed", "3"), "--eval-num-envs and --eval-seed go without --no-final-eval"),
        (("--no-final-eval", "--eval-every", "3"), "--eval-every evaluates the final policy, too"),
        (("--env.seed", "4"), "env.seed: a training decides this itself: pass --seed"),
        (("--seeds", "1,2", "--env.seed=4"), "env.seed: a training decides this itself: pass --seed"),
        (("--vis", "--headless"), "--vis and --headless exclude each other"),
        (("--vis", "--seeds", "1,2"), "--vis shows one training: it does not go with --seeds, --gpus and --ranks"),
        (("--viewer", "web", "--ranks", "2"), "--vis shows one training: it does not go with --seeds"),
    ],
)
def test_wrong_words(words: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert train(*words) == 2
    err = capfd.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
    assert not Path("run").exists()


def test_weights_of_another_network_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["train", TASK, "--num-envs", "4", "--log-dir", "first", "--steps", "1", "-q", "--no-final-eval"]) == 0
    capfd.readouterr()
    assert train("--checkpoint", "first", "--agent.actor.hidden_dims", "[8]", "-q") == 2
    err = capfd.readouterr().err
    assert "model_final.pt: made with agent.actor.hidden_dims [128, 128]; here it is [8]" in err
    assert len(err.splitlines()) == 1
    assert not Path("run").exists()
    assert train("--checkpoint", "first", "--max-iterations", "1", "-q") == 0


def test_a_refused_run_leaves_what_was_there_before(capfd: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    Path("run/notes.txt").write_text("mine")
    refused = ("--env.rewards.alive.func", "genelab.mdp:upright_exp")  # which shows when the terms are made
    assert train(*refused) == 2
    assert "upright_exp needs the parameter 'std'" in capfd.readouterr().err
    assert [path.name for path in Path("run").iterdir()] == ["notes.txt"]
    assert run(["train", TASK, "--num-envs", "4", *refused]) == 2
    assert not Path("logs").exists()


def test_resume_takes_no_other_config(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["train", TASK, "--resume", "run", "env.simulation.dt=0.1"]) == 2
    assert "--resume goes on with the run's own config" in capfd.readouterr().err


def test_weights_to_start_from_are_found_by_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, before any child starts: to a second seed, `latest` would be the first."""
    assert run(["train", TASK, "--num-envs", "4", "--max-iterations", "1", "-q", "--no-final-eval"]) == 0
    made = next(Path("logs/rsl_rl").glob("*/*/model_final.pt")).absolute()
    given: list[Any] = []

    def stop(*args: object, **options: object) -> None:
        given.append(options.get("checkpoint") or options["words"])
        raise GenelabError("stop")

    monkeypatch.setattr("genelab.rl.train.train_task", stop)
    monkeypatch.setattr("genelab.rl.launch.seeds.train_seeds", stop)
    assert train("--checkpoint", "latest") == train("--checkpoint", str(made.parent)) == 1
    assert train("--checkpoint", "latest", "--seeds", "1,2") == 1
    assert given[:2] == [made, made]
    assert f"--checkpoint={made}" in given[2]


def test_a_checkpoint_of_another_task_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert train("--max-iterations", "1") == 0
    capfd.readouterr()
    assert run(["play", "GeneLab-Double-Inverted-Pendulum-v0", "--checkpoint", "run/model_final.pt"]) == 2
    assert "trained on GeneLab-Inverted-Pendulum-v0 with other observations" in capfd.readouterr().err


def test_a_line_of_progress() -> None:
    progress = Progress(
        done=50, total=200, unit="iterations", env_steps=614400, elapsed=30.0, eta=90.0,
        collect_fps=60000.0, total_fps=24000.0, learn_share=0.6, return_mean=12.345, length_mean=310.4,
    )  # fmt: skip
    assert line(progress) == (
        "iteration 50/200 · 25% · ETA 1:30 · return 12.35 (exploring) · length 310 · "
        "24,000 steps/s (collecting 60,000, learning 60% of the time)"
    )
    assert (duration(59.6), duration(3725)) == ("1:00", "1:02:05")


def test_the_published_settings_are_a_task_of_their_own(capfd: pytest.CaptureFixture[str]) -> None:
    """One flag trains with them; the lines it prints judge and play the policy in the same world."""
    words = ["--num-envs", "4", "--log-dir", "run", "--max-iterations", "1", "--quiet", "--no-final-eval"]
    assert run(["train", "genelab-velocity-flat-unitree-go1-v0", "--published", *words]) == 0
    judge = capfd.readouterr().out.splitlines()[-2].partition("genelab ")[2].split()
    assert judge[1].lower() == "genelab-velocity-flat-unitree-go1-v0@published"
    assert (params("env")["simulation"]["dt"], params("env")["decimation"]) == (0.002, 10)
    assert list(params("env")["commands"]) == ["twist"]
    assert (params("env")["schedules"], params("agent")["algorithm"]["symmetry_cfg"]) == ({}, None)
    assert run([*judge, "--num-envs", "2", "--episodes", "2", "--max-steps", "1000", "--no-probe"]) == 0
    assert run(["train", "GeneLab-Rubiks-Play-v0", "--published"]) == 2
    assert "GeneLab-Rubiks-Play-v0 has no published settings of its own" in capfd.readouterr().err
