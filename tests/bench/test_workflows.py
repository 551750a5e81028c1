"""The four workflows on a real task, used through the command line."""

from __future__ import annotations

import datetime
import hashlib
import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from torch import Tensor

from genelab import TASKS, TaskCfg
from genelab.bench import (
    BenchmarkMonitor,
    Output,
    PlayBenchmark,
    RuntimeBenchmark,
    Workload,
    read_bundle,
    resolve_play_checkpoint,
)
from genelab.bench.schema import BUNDLES, Bundle, PlayBundle, RuntimeBundle, StartupBundle, TrainingBundle
from genelab.bench.serialize import json_schema
from genelab.bench.stepping import SuccessCounter
from genelab.cli.main import run
from genelab.envs import ManagerBasedRlEnv, StepResult, play_cfg, rl_cfg
from genelab.errors import GenelabError, UsageError
from genelab.managers import RewardTermCfg
from genelab.rl.config import RslRlModelCfg, RslRlOnPolicyRunnerCfg
from genelab.rl.locate import pretrained_policy
from genelab.viewer import Film
from tests.bench.stubs import TASK
from tests.narrow import as_kind, present

LIBRARIES = ("rsl_rl", "rl_games", "skrl", "sb3")
SHORT = "--env.episode_length_s=0.4"
"""Episodes of 40 control steps."""


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def benchmark(workflow: str, *words: str, task: str = TASK, code: int = 0) -> None:
    given = ["benchmark", workflow, task, "--num_envs", "4", "--out", "out", *words]
    assert run(given) == code


def bundle_of(workflow: str) -> Bundle:
    """The only bundle of a workflow, which answers to its schema."""
    (path,) = Path("out").glob(f"benchmark_{workflow}_*[0-9].json")
    jsonschema.validate(json.loads(path.read_text()), json_schema(BUNDLES[workflow]))
    return read_bundle(path)


def lasted(env: ManagerBasedRlEnv, steps: int) -> Tensor:
    """Pays nothing; an episode that lasts so long is a success."""
    env.extras["is_success"] = env.episode_length_buf >= steps
    return torch.zeros(env.num_envs)


@pytest.fixture
def lasting_task(monkeypatch: pytest.MonkeyPatch) -> str:
    """The pendulum, with a success that can be missed."""
    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))

    def make() -> TaskCfg:
        env = rl_cfg(TASK)
        env.episode_length_s = 1.0
        env.rewards["lasted"] = RewardTermCfg(func=lasted, weight=1.0, params={"steps": 62})
        agent = RslRlOnPolicyRunnerCfg(max_iterations=2, critic=RslRlModelCfg(hidden_dims=(8,)))
        play_env = play_cfg(env)
        play_env.observations["policy"].enable_noise = True  # which no policy is judged with
        return TaskCfg(env=env, play_env=play_env, agent=agent)

    TASKS.register("Lasting-v0", make)
    return "Lasting-v0"


def interrupt_step(monkeypatch: pytest.MonkeyPatch, after: int, what: Callable[[], Any]) -> None:
    """Let something happen in a control step."""
    count = 0
    original = ManagerBasedRlEnv._advance

    def advance(self: ManagerBasedRlEnv, *args: Any) -> Any:
        nonlocal count
        count += 1
        if count == after:
            what()
        return original(self, *args)

    monkeypatch.setattr(ManagerBasedRlEnv, "_advance", advance)


def raising(error: BaseException) -> Callable[[], None]:
    def crash() -> None:
        raise error

    return crash


def test_runtime(capfd: pytest.CaptureFixture[str]) -> None:
    words = ("--num_frames", "20", "--warmup_steps", "3", "--seed", "5", "--formatter", "schema,json,summary")
    benchmark("runtime", *words)
    bundle = bundle_of("runtime")
    assert isinstance(bundle, RuntimeBundle)
    run_, speed = bundle.run, bundle.runtime
    assert (run_.framework, run_.seed, run_.num_envs, run_.status) == (None, 5, 4, "completed")
    assert run_.config.physics_backend == "mujoco"
    assert run_.run_id.startswith(f"runtime_mujoco_{TASK}_20")
    assert run_.run_id.endswith("_seed5")
    assert (speed.iterations_completed, speed.steps_per_iteration) == (20, 4)
    timing = speed.environment_step_timing
    assert timing is not None
    assert timing.environment_step_fps == speed.total_fps == speed.collection_fps
    assert (timing.environment_step_calls, timing.simulation_step_calls, timing.warmup_steps) == (20, 20, 3)
    times = speed.startup_time_s
    assert None not in (times.python_imports, times.task_config, times.app_launch, times.env_creation, times.first_step)
    assert speed.total_wall_time_s < run_.duration_s
    start, end = (datetime.datetime.fromisoformat(stamp) for stamp in (run_.start_time_utc, run_.end_time_utc))
    assert (end - start).total_seconds() == pytest.approx(run_.duration_s, abs=0.05)
    (flat,) = Path("out").glob("*.phases.json")
    assert speed.total_fps is not None
    assert json.loads(flat.read_text())["runtime"]["total_fps.mean"] == speed.total_fps.mean
    out = capfd.readouterr().out
    assert f"{speed.total_fps.mean:,.6g}" in out
    assert f"written to {flat}" in out


def test_a_seed_that_was_not_given_is_the_one_that_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.randbits", lambda bits: 1234)
    benchmark("runtime", "--num-steps", "1", "--warmup-steps", "0")
    assert bundle_of("runtime").run.seed == 1234


def test_overrides_reach_the_run_and_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ManagerBasedRlEnv] = []
    original = ManagerBasedRlEnv.close

    def close(env: ManagerBasedRlEnv) -> None:
        seen.append(env)
        original(env)

    monkeypatch.setattr(ManagerBasedRlEnv, "close", close)
    benchmark("runtime", "--num-steps", "1", "--dt", "0.004", "env.decimation=3", "--engine", "mujoco")
    overrides = bundle_of("runtime").run.config.overrides
    assert overrides == ("env.simulation.dt=0.004", "env.simulation.engine=mujoco", "env.decimation=3")
    assert seen[0].step_dt == pytest.approx(0.012)


def test_startup(capfd: pytest.CaptureFixture[str]) -> None:
    benchmark("startup", "--top_n", "3", "--formatter", "schema,summary")
    bundle = bundle_of("startup")
    assert isinstance(bundle, StartupBundle)
    assert list(bundle.phases) == ["python_imports", "task_config", "app_launch", "env_creation", "first_step"]
    creation = bundle.phases["env_creation"]
    own = [one.own_time_s for one in creation.top_functions]
    assert len(own) == 3
    assert own == sorted(own, reverse=True)
    assert 0 < sum(own) <= creation.total_time_s < bundle.run.duration_s
    shown = capfd.readouterr().out
    for phase in bundle.phases.values():
        for one in phase.top_functions:
            assert one.name in shown


def test_a_whitelist_says_what_it_did_not_find(capfd: pytest.CaptureFixture[str]) -> None:
    patterns = {"env_creation": ["genelab.scene.scene:__init__", "nobody:*"]}
    Path("white.json").write_text(json.dumps(patterns))
    benchmark("startup", "--whitelist", "white.json")
    bundle = bundle_of("startup")
    assert isinstance(bundle, StartupBundle)
    assert [one.name for one in bundle.phases["env_creation"].top_functions] == ["genelab.scene.scene:__init__"]
    assert bundle.phases["first_step"].top_functions == ()
    assert bundle.extra == {"unmatched_patterns": "env_creation/nobody:*"}
    assert "no function of the phase answers to env_creation/nobody:*" in capfd.readouterr().err


@pytest.mark.parametrize("library", LIBRARIES)
def test_training_and_playing_with_each_library(library: str, capfd: pytest.CaptureFixture[str]) -> None:
    benchmark("training", "--rl_library", library, "--max_iterations", "2", "--seed", "3", "-q", SHORT)
    trained = bundle_of("training")
    assert isinstance(trained, TrainingBundle)
    assert (trained.run.framework, trained.run.max_iterations, trained.run.seed) == (library, 2, 3)
    assert (trained.runtime.iterations_completed, trained.runtime.steps_per_iteration) == (2, 96)
    timing = trained.runtime.environment_step_timing
    assert timing is not None
    assert (timing.warmup_steps, timing.environment_step_calls, timing.simulation_step_calls) == (24, 24, 24)
    assert trained.learning.reward is not None
    assert trained.learning.reward.series_per_iter is not None
    assert len(trained.learning.reward.series_per_iter) == 2
    rates = [trained.runtime.total_fps, trained.runtime.collection_fps, timing.environment_step_fps]
    means = [rate.mean for rate in rates if rate is not None]
    assert means == sorted(means)  # the more is counted, the slower
    assert (trained.extra["iterations_measured"], trained.extra["env_steps"]) == (1, 192)
    assert trained.runtime.iteration_time_s is not None
    assert trained.runtime.total_wall_time_s >= trained.runtime.iteration_time_s.mean
    assert trained.success_rate is None
    assert trained.checkpoint_path is not None

    words = ("--rl-library", library, "--checkpoint", trained.checkpoint_path, "--seed", "2", SHORT)
    benchmark("play", *words, "--num-frames", "40", "--warmup-steps", "2")
    played = bundle_of("play")
    assert isinstance(played, PlayBundle)
    assert (played.run.framework, played.checkpoint_path) == (library, trained.checkpoint_path)
    assert played.runtime.iterations_completed == 40
    assert played.runtime.total_fps == played.runtime.collection_fps
    assert played.extra["episodes"] == 4
    assert played.reward is not None


FILM = ("--video-length", "5", "--video-size", "64x48")


def test_a_film_is_made_after_what_is_measured(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []
    frames: list[Film] = []
    original, draw = BenchmarkMonitor.end, Film.after_step

    def end(monitor: BenchmarkMonitor) -> None:
        measured.append(len(frames))
        original(monitor)

    def after_step(film: Film) -> None:
        frames.append(film)
        draw(film)

    monkeypatch.setattr(BenchmarkMonitor, "end", end)
    monkeypatch.setattr(Film, "after_step", after_step)
    words = ("--checkpoint", "pretrained", "--num-steps", "40", "--warmup-steps", "0", "--seed", "1", SHORT)
    benchmark("play", *words, "--video", *FILM)
    bundle = bundle_of("play")
    assert isinstance(bundle, PlayBundle)
    assert (measured, len(frames)) == ([0], 5)
    assert bundle.video_path is not None
    assert bundle.video_path == f"out/{bundle.run.run_id}.mp4"
    assert Path(bundle.video_path).stat().st_size > 0
    timing = bundle.runtime.environment_step_timing
    assert timing is not None
    assert (timing.environment_step_calls, bundle.runtime.iterations_completed, bundle.extra["episodes"]) == (40, 40, 4)
    assert bundle.video_path in capfd.readouterr().out


def test_a_film_goes_where_it_is_told() -> None:
    benchmark("play", "--checkpoint", "pretrained", "--num-steps", "2", "--video", "seen.mp4", *FILM)
    bundle = bundle_of("play")
    assert isinstance(bundle, PlayBundle)
    assert bundle.video_path == "seen.mp4"
    assert Path("seen.mp4").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--video", "seen.gif"), "must end in .mp4"),
        (("--video", "--camera", "nobody"), "no camera is called 'nobody'"),
        (("--camera", "track"), "--camera goes with --video"),
    ],
)
def test_a_film_that_cannot_be_is_refused_before_anything_is_measured(
    words: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_step(monkeypatch, 1, raising(AssertionError("it was measured")))
    benchmark("play", "--checkpoint", "pretrained", *words, code=2)
    assert message in capfd.readouterr().err


def test_a_film_that_fails_leaves_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Film, "after_step", lambda self: raising(GenelabError("the disk is full"))())
    benchmark("play", "--checkpoint", "pretrained", "--num-steps", "2", "--video", *FILM)
    bundle = bundle_of("play")
    assert isinstance(bundle, PlayBundle)
    assert (bundle.run.status, bundle.video_path) == ("completed", None)
    assert "no film: the disk is full" in capfd.readouterr().err


@pytest.mark.parametrize("spelling", ["rl_games", "rl-games"])
def test_a_library_may_be_spelled_either_way(spelling: str, capfd: pytest.CaptureFixture[str]) -> None:
    benchmark("training", "--rl-library", spelling, "--max-iterations", "1", "-q")
    bundle = bundle_of("training")
    assert (bundle.run.framework, bundle.run.config.algorithm) == ("rl_games", "PPO")
    assert (bundle.run.config.device, bundle.run.config.budget_unit) == ("cpu", "timesteps")


def test_the_main_numbers_are_shown_without_being_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    benchmark("play", "--checkpoint", "pretrained", "--num-steps", "40", SHORT)
    played = bundle_of("play")
    assert isinstance(played, PlayBundle)
    assert played.runtime.total_fps is not None
    assert played.reward is not None
    out = capfd.readouterr().out
    assert f"{played.runtime.total_fps.mean:,.0f} steps/s, policy and env.step" in out
    assert f"{played.reward.mean:.3f} over 4 episodes" in out
    benchmark("runtime", "--num-steps", "3", "--warmup-steps", "0")
    ran = bundle_of("runtime")
    assert isinstance(ran, RuntimeBundle)
    assert ran.runtime.total_fps is not None
    assert f"{ran.runtime.total_fps.mean:,.0f} steps/s, env.step alone" in capfd.readouterr().out
    benchmark("training", "--max-iterations", "1", "-q", SHORT)
    assert "steps/s, rollouts and updates" in capfd.readouterr().out


@pytest.mark.parametrize("num_steps", [100, 230])
def test_play_agrees_with_eval(lasting_task: str, num_steps: int) -> None:
    benchmark("training", "--no-series", "--ema-alpha", "0.5", "-q", "--seed", "1", task=lasting_task)
    trained = bundle_of("training")
    assert isinstance(trained, TrainingBundle)
    assert trained.learning.ema_alpha == 0.5
    assert trained.learning.reward is not None
    assert trained.learning.reward.series_per_iter is None
    assert trained.checkpoint_path is not None
    words = ("--num-envs", "8", "--seed", "9", "--checkpoint", trained.checkpoint_path)
    benchmark("play", *words, "--num-steps", str(num_steps), task=lasting_task)
    played = bundle_of("play")
    assert isinstance(played, PlayBundle)
    episodes = 8 * (num_steps // 100)
    judge = ["eval", lasting_task, trained.checkpoint_path, "--num-envs", "8", "--seed", "9", "--out", "eval.json"]
    assert run([*judge, "--episodes", str(episodes)]) == 0
    metrics = json.loads(Path("eval.json").read_text())["metrics"]
    assert played.extra["episodes"] == episodes
    assert played.reward is not None
    assert played.reward.mean == pytest.approx(metrics["return_mean"], rel=1e-7)
    assert played.ep_length is not None
    assert played.ep_length.mean == metrics["length_mean"]
    assert played.success_rate == metrics["success_rate"]
    assert 0 < metrics["success_rate"] < 1
    assert [played.extra["success_ci95_low"], played.extra["success_ci95_high"]] == metrics["success_ci95"]


def test_training_counts_success_and_stops_at_enough(lasting_task: str, capfd: pytest.CaptureFixture[str]) -> None:
    stop = ("--check-success", "--success-threshold", "0", "--success-window", "3")
    benchmark("training", "--max-iterations", "9", *stop, "--seed", "1", "-q", task=lasting_task)
    bundle = bundle_of("training")
    assert isinstance(bundle, TrainingBundle)
    assert (bundle.run.status, bundle.runtime.iterations_completed, bundle.run.max_iterations) == ("completed", 3, 9)
    assert bundle.extra["stopped_early"] is True
    assert bundle.success_rate is not None
    assert 0 < bundle.success_rate < 1
    assert bundle.learning.success_rate is not None
    hits = bundle.success_rate * as_kind(bundle.extra["success_episodes"], int)
    assert hits == pytest.approx(round(hits))
    low, high = (as_kind(bundle.extra[f"success_ci95_{end}"], float) for end in ("low", "high"))
    assert low < bundle.success_rate < high
    assert bundle.checkpoint_path is not None
    assert Path(bundle.checkpoint_path).is_file()


def test_the_first_iteration_of_a_training_is_cold_and_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_step(monkeypatch, 1, lambda: time.sleep(2.0))
    benchmark("training", "--max-iterations", "3", "-q")
    bundle = bundle_of("training")
    assert isinstance(bundle, TrainingBundle)
    speed, timing = bundle.runtime, bundle.runtime.environment_step_timing
    assert timing is not None
    assert (speed.iterations_completed, timing.warmup_steps, timing.environment_step_calls) == (3, 24, 48)
    assert speed.startup_time_s.first_step is not None
    assert speed.startup_time_s.first_step >= 2.0
    assert bundle.extra["iterations_measured"] == 2
    assert as_kind(bundle.extra["first_iteration_s"], float) >= 2.0
    assert speed.iteration_time_s is not None
    assert present(speed.iteration_time_s.peak) < 2.0
    assert speed.total_wall_time_s >= 2 * speed.iteration_time_s.mean
    assert present(timing.environment_step_time_s.peak) < 2.0


def test_a_training_of_one_iteration_is_measured_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_step(monkeypatch, 1, lambda: time.sleep(0.5))
    benchmark("training", "--max-iterations", "1", "-q")
    bundle = bundle_of("training")
    assert isinstance(bundle, TrainingBundle)
    timing = bundle.runtime.environment_step_timing
    assert timing is not None
    assert (timing.warmup_steps, timing.environment_step_calls) == (0, 24)
    assert bundle.extra["iterations_measured"] == 1
    assert bundle.runtime.total_wall_time_s == bundle.extra["first_iteration_s"]
    assert bundle.runtime.total_wall_time_s >= 0.5


def test_success_is_counted_without_waiting_for_the_device() -> None:
    """A meta tensor has no value to read."""
    flags = torch.zeros(4, dtype=torch.bool, device="meta")
    counter = SuccessCounter()
    for _ in range(2):
        counter.after_step(StepResult({}, flags.float(), flags, flags, {"is_success": flags}))
    assert counter.tells


def test_a_training_that_crashes_names_its_newest_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_step(monkeypatch, 60, raising(GenelabError("lost")))
    benchmark("training", "--max-iterations", "9", "--agent.save-interval", "1", "-q", code=1)
    bundle = bundle_of("training")
    assert isinstance(bundle, TrainingBundle)
    assert bundle.checkpoint_path is not None
    assert Path(bundle.checkpoint_path).match("out/rsl_rl_*/model_2.pt")


def test_a_task_that_does_not_tell_of_success_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    benchmark("training", "--max-iterations", "1", "--check-success", "-q")
    assert "--check-success had no effect" in capfd.readouterr().err
    assert bundle_of("training").run.seed == 42  # the agent's own


def test_too_few_steps_for_an_episode_are_told_of(capfd: pytest.CaptureFixture[str]) -> None:
    benchmark("play", "--checkpoint", "pretrained", "--num-steps", "30", SHORT)
    bundle = bundle_of("play")
    assert isinstance(bundle, PlayBundle)
    assert (bundle.reward, bundle.ep_length, bundle.success_rate) == (None, None, None)
    assert bundle.extra["episodes"] == 0
    assert "an episode may last 40 steps, --num-steps 30 is less" in capfd.readouterr().err


STEPS = ("--num-steps", "10", "--warmup-steps", "2")
WORKFLOWS: dict[str, tuple[tuple[str, ...], int]] = {
    "runtime": (STEPS, 7),
    "play": ((*STEPS, "--checkpoint", "pretrained"), 7),
    "training": (("--max-iterations", "3", "-q"), 30),
    "startup": ((), 1),
}
"""Their words, and a control step in the middle of each."""


@pytest.mark.parametrize("workflow", list(WORKFLOWS))
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(GenelabError("lost"), "crashed", 1), (KeyboardInterrupt(), "interrupted", 130)],
    ids=["crash", "ctrl-c"],
)
def test_however_it_ends_there_is_a_bundle_that_says_so(
    workflow: str,
    error: BaseException,
    status: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    words, after = WORKFLOWS[workflow]
    interrupt_step(monkeypatch, after, raising(error))
    benchmark(workflow, *words, code=code)
    bundle = bundle_of(workflow)
    assert bundle.run.status == status
    assert bundle.run.duration_s > 0
    if isinstance(bundle, StartupBundle):
        assert list(bundle.phases)[-1] == "env_creation"
    else:
        assert bundle.runtime.iterations_completed == {"runtime": 3, "play": 3, "training": 1}[workflow]
    assert "written to out/benchmark_" in capfd.readouterr().out


@pytest.mark.parametrize("workflow", ["runtime", "play", "training"])
def test_bad_input_that_comes_to_light_late_is_a_crash(workflow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, after = WORKFLOWS[workflow]
    interrupt_step(monkeypatch, after, raising(UsageError("late")))
    benchmark(workflow, *words, code=2)
    assert bundle_of(workflow).run.status == "crashed"


@pytest.mark.parametrize("workflow", list(WORKFLOWS))
def test_bad_input_that_the_first_step_finds_leaves_no_bundle(workflow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_step(monkeypatch, 1, raising(UsageError("early")))
    benchmark(workflow, *WORKFLOWS[workflow][0], code=2)
    assert not Path("out").exists()


def test_an_engine_that_does_not_start_leaves_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genelab.sim.engine.device_of", lambda cfg: raising(GenelabError("lost"))())
    benchmark("runtime", "--seed", "8", code=1)
    bundle = bundle_of("runtime")
    assert isinstance(bundle, RuntimeBundle)
    assert (bundle.run.status, bundle.run.seed) == ("crashed", 8)
    assert bundle.runtime.startup_time_s.task_config is not None
    assert bundle.runtime.startup_time_s.app_launch is None


def test_commit_and_policy_are_those_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are changed while it runs."""
    policy = Path(pretrained_policy(TASK) or "")
    for name in ("policy.ts", "policy.ts.metadata.json"):
        Path(name).write_bytes(policy.with_name(name).read_bytes())
    commit = "git init -q && git add . && git -c user.name=a -c user.email=b commit -qm c && git rev-parse HEAD"
    head = subprocess.run(commit, shell=True, check=True, capture_output=True, text=True).stdout.strip()
    digest = hashlib.sha256(Path("policy.ts").read_bytes()).hexdigest()
    interrupt_step(monkeypatch, 2, lambda: Path("policy.ts").write_text("another"))
    benchmark("play", "--checkpoint", "policy.ts", *STEPS)
    bundle = bundle_of("play")
    assert (bundle.versions.git_commit, bundle.versions.git_dirty) == (head, False)
    assert bundle.extra["checkpoint_sha256"] == digest


def test_an_exported_policy_tells_which_library_it_is_of() -> None:
    policy = str(pretrained_policy(TASK))
    benchmark("play", "--checkpoint", policy, *STEPS, task="GeneLab-Inverted-Pendulum-Skrl-v0")
    assert bundle_of("play").run.framework == "rsl_rl"


def test_a_bug_is_a_crash_too(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_step(monkeypatch, 1, raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        run(["benchmark", "runtime", TASK, "--num-envs", "4", "--out", "out"])
    bundle = bundle_of("runtime")
    assert isinstance(bundle, RuntimeBundle)
    assert bundle.run.status == "crashed"
    assert (bundle.runtime.total_fps, bundle.runtime.startup_time_s.first_step) == (None, None)
    assert bundle.runtime.startup_time_s.env_creation is not None


def test_a_crash_while_the_environment_is_made_leaves_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ManagerBasedRlEnv, "reset", lambda self, **options: raising(GenelabError("lost"))())
    benchmark("play", "--checkpoint", "pretrained", "--seed", "8", code=1)
    bundle = bundle_of("play")
    assert isinstance(bundle, PlayBundle)
    assert (bundle.run.status, bundle.run.seed, bundle.runtime.iterations_completed) == ("crashed", 8, 0)
    assert bundle.runtime.startup_time_s.env_creation is None


def test_a_training_that_is_asked_to_stop_saves_and_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_step(monkeypatch, 30, lambda: signal.raise_signal(signal.SIGINT))
    benchmark("training", "--max-iterations", "9", "-q", code=130)
    bundle = bundle_of("training")
    assert isinstance(bundle, TrainingBundle)
    assert (bundle.run.status, bundle.runtime.iterations_completed) == ("interrupted", 2)
    assert bundle.checkpoint_path is not None


def test_sigterm_leaves_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    interrupt_step(monkeypatch, 5, lambda: signal.raise_signal(signal.SIGTERM))
    benchmark("runtime", *STEPS, code=130)
    assert bundle_of("runtime").run.status == "interrupted"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("runtime", "No-Such-Task"), "unknown task 'No-Such-Task'"),
        (("runtime", TASK, "--gpu"), "--gpu: no CUDA device was found here"),
        (("runtime", TASK, "--formatter", "shema"), "--formatter: there is no 'shema', only schema, json, summary."),
        (("runtime", TASK, "--formatter", ","), "--formatter: name one of schema, json, summary"),
        (("runtime", TASK, "--out", "file"), "--out: cannot write to file"),
        (("runtime", TASK, "--num-steps", "0"), "0 is not in the range"),
        (("runtime", TASK, "env.decimtion=2"), "no such key. Did you mean 'decimation'"),
        (("startup", TASK, "--whitelist", "none.json"), "--whitelist: cannot read none.json"),
        (("training", TASK, "--rl-library", "jax"), "'jax' is not one of 'rl_games', 'rsl_rl', 'sb3', 'skrl'"),
        (("play", TASK, "--checkpoint", "nothing.pt"), "nothing.pt: no such checkpoint"),
        (("play", "GeneLab-Inverted-Pendulum-Skrl-v0"), "pass --checkpoint FILE or RUN_DIR"),
        (("play", TASK, "--best"), "pass --checkpoint FILE or RUN_DIR"),
        (("play", TASK, "--checkpoint", "pretrained", "--rl-library", "skrl"), "policy.ts was trained with rsl_rl;"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_bundle(
    words: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("")
    assert run(["benchmark", *words]) == 2
    err = capfd.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
    assert not list(Path().rglob("benchmark_*.json"))


def test_without_a_checkpoint_the_newest_run_is_played_then_the_shipped_policy() -> None:
    said: list[str] = []
    workload = Workload(task=TASK, num_envs=2, overrides={"env.episode_length_s": "0.1"})
    output = Output(directory=Path("out"), formatters=())

    def play(**options: Any) -> PlayBundle:
        options = {"workload": workload, "notify": said.append, "num_steps": 10, "warmup_steps": 0, **options}
        return PlayBenchmark(**options).run(output)

    shipped = play()
    assert shipped.checkpoint_path is not None
    assert shipped.checkpoint_path.endswith("policy.ts")
    assert said == [f"no `checkpoint` given and no run below ./logs: playing the shipped {shipped.checkpoint_path}"]
    assert run(["train", TASK, "--num-envs", "2", "--max-iterations", "1", "-q", "--no-final-eval"]) == 0
    newest = play()
    assert newest.checkpoint_path is not None
    assert Path(newest.checkpoint_path).match("logs/rsl_rl/*/*/model_final.pt")
    assert said[1:] == [f"no `checkpoint` given: playing {newest.checkpoint_path} of the newest run"]
    with pytest.raises(UsageError, match=r"has no best_model\.pt"):
        play(best=True)
    assert run(["train", TASK, "--num-envs", "2", "--max-iterations", "1", "-q", "--eval-every", "1"]) == 0
    best = play(best=True).checkpoint_path
    assert best is not None
    assert Path(best).match("logs/rsl_rl/*/*/best_model.pt")


def test_no_policy_to_play_is_a_missing_file_too() -> None:
    """Isaac Lab's adapters catch a FileNotFoundError; the command line prints it in one line, as all bad input."""
    task = "GeneLab-Inverted-Pendulum-Skrl-v0"
    with pytest.raises(FileNotFoundError, match=f"{task} was never trained below ./logs: pass `checkpoint=FILE`"):
        resolve_play_checkpoint(None, task, TASKS.get(task).agent)
    with pytest.raises(UsageError):
        resolve_play_checkpoint(None, task, TASKS.get(task).agent)


def test_a_library_that_is_not_the_tasks_own_finds_its_own_runs() -> None:
    assert run(["train", TASK, "--num-envs", "2", "--max-iterations", "1", "-q", "--no-final-eval"]) == 0
    made = next(Path("logs/rsl_rl").glob("*/*"))
    with pytest.raises(UsageError, match="made with rsl_rl, but this task's agent is of skrl"):
        PlayBenchmark(workload=Workload(task=TASK, num_envs=2, rl_library="skrl"), checkpoint=made).run(
            Output(directory=Path("out"))
        )


def test_it_runs_without_a_command_line() -> None:
    bundle = RuntimeBenchmark(workload=Workload(task=TASK, num_envs=2), num_steps=3, warmup_steps=0).run(
        Output(directory=Path("made/here"), formatters=("schema",))
    )
    (path,) = Path("made/here").iterdir()
    assert read_bundle(path) == bundle


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_learns_and_acts_on_physics_of_64_bits(library: str) -> None:
    precise = ("--rl-library", library, "--env.simulation.precision=64")
    benchmark("training", "--max-iterations", "1", *precise)
    (made,) = [path for path in Path("out").rglob("model*") if path.stem in ("model", "model_final")]
    benchmark("play", "--num-steps", "2", "--checkpoint", str(made), *precise)
    assert bundle_of("play").run.status == "completed"


@pytest.mark.genesis
@pytest.mark.xdist_group("genesis")
@pytest.mark.parametrize("workflow", ["runtime", "play", "training", "startup"])
def test_the_other_engine(workflow: str) -> None:
    benchmark(workflow, *WORKFLOWS[workflow][0], "--engine", "genesis", "--env.simulation.precision=64")
    bundle = bundle_of(workflow)
    assert (bundle.run.config.physics_backend, bundle.run.status) == ("genesis", "completed")
    if not isinstance(bundle, StartupBundle):
        timing = bundle.runtime.environment_step_timing
        assert timing is not None
        assert timing.simulation_step_calls == timing.environment_step_calls
