"""What every RL library keeps: the lab's promises hold, whoever learns.

All tests of a class share one agent config and the runs that are made with it: a cart on a rail that is to stay in the
middle, four environments, episodes of 20 steps that time out or fail.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from genelab import TASKS, TaskCfg, mdp
from genelab.config import load_json, read_json, to_dict
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, play_cfg
from genelab.errors import UsageError
from genelab.managers import EventTermCfg, ObservationGroupCfg, ObservationTermCfg, RewardTermCfg, TerminationTermCfg
from genelab.rl import EvalSettings, Progress, TrainResult, evaluate_task, export_task, resume_task
from genelab.rl.backends import BACKENDS, Backend, InferenceSetup, TrainContext, select_backend
from genelab.rl.config import BackendConfig
from genelab.rl.train import train_task
from genelab.rl.world import eval_cfg
from genelab.scene import ArticulationCfg, ImplicitPdActuatorCfg, SceneCfg, mjcf_text

TASK = "Contract-Cart-v0"
NUM_ENVS = 4
SEED = 7
EVALUATION = EvalSettings(every=2, episodes=4)
CART = """
<mujoco>
  <worldbody>
    <body name="cart">
      <joint name="rail" type="slide" axis="1 0 0" damping=".1"/>
      <geom type="box" size=".1 .1 .1" mass="1" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
</mujoco>
"""


def cart_env() -> ManagerBasedRlEnvCfg:
    """Stay in the middle of the rail; the critic also sees the speed without noise."""
    servo = ImplicitPdActuatorCfg(joint_names=("rail",), stiffness=40.0, damping=4.0, effort_limit=20.0)
    robot = ArticulationCfg(spec=mjcf_text, spec_args={"xml": CART}, actuators={"servo": servo})
    place, speed = ObservationTermCfg(func=mdp.joint_pos_rel), ObservationTermCfg(func=mdp.joint_vel_rel, scale=0.1)
    last = ObservationTermCfg(func=mdp.last_action)
    start = {"position_range": (-1.0, 1.0), "velocity_range": (-1.0, 1.0)}
    return ManagerBasedRlEnvCfg(
        scene=SceneCfg(num_envs=NUM_ENVS, entities={"robot": robot}),
        decimation=4,
        episode_length_s=0.4,
        actions={"rail": mdp.JointPositionActionCfg()},
        observations={
            "policy": ObservationGroupCfg(terms={"place": place, "last": last}),
            "critic": ObservationGroupCfg(terms={"place": place, "last": last, "speed": speed}),
        },
        rewards={"place": RewardTermCfg(func=mdp.joint_pos_l2, weight=-1.0)},
        terminations={
            "time_out": TerminationTermCfg(func=mdp.time_out, time_out=True),
            "far": TerminationTermCfg(func=mdp.joint_pos_beyond, params={"bound": 1.2}),
        },
        events={"start": EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=start)},
    )


def judged_env() -> ManagerBasedRlEnvCfg:
    """The contract's task, as policies are judged in it."""
    cfg = TASKS.get(TASK).playing
    assert isinstance(cfg, ManagerBasedRlEnvCfg)
    return eval_cfg(cfg, NUM_ENVS)


@dataclass(kw_only=True)
class Run:
    """A training, and what was seen of it."""

    result: TrainResult
    progress: list[Progress] = field(default_factory=list)
    first: Tensor | None = None
    """What the learner would do with what is seen in `act`, when it is complete and has not learned yet."""
    last: Tensor | None = None
    """The same when it has learned."""
    shows_final_obs: bool | None = None
    """Whether the environment computed the last observations of episodes."""

    def kept(self) -> dict[str, Any]:
        """What a resumed run would start from: learner, environment, random numbers."""
        return torch.load(self.result.path / "resume.pt", weights_only=True)


class Lab:
    """Trains the agent of a contract."""

    def __init__(self, agent: BackendConfig, iterations: int, home: Path) -> None:
        self.agent = agent
        self.home = home
        self.backend = select_backend(agent)
        self.iterations = iterations
        self.budget = iterations * self.backend.budget_per_iteration(agent, NUM_ENVS)

    def train(self, name: str, *, iterations: int | None = None, stop_after: int | None = None, **options: Any) -> Run:
        """Train into a directory of this name below `home`, so many iterations; `stop_after` interrupts it before."""
        count = self.iterations if iterations is None else iterations
        budget = count * self.backend.budget_per_iteration(self.agent, NUM_ENVS)
        run = Run(result=None)  # type: ignore[arg-type]

        def report(progress: Progress) -> bool:
            run.progress.append(progress)
            return len(run.progress) == stop_after

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(self.backend), "train", self._watched(run))
            run.result = train_task(
                TASK,
                agent=copy.deepcopy(self.agent),
                max_iterations=budget,
                seed=SEED,
                log_dir=self.home / name,
                report=report,
                **options,
            )
        return run

    def _watched(self, run: Run) -> Any:
        """`Backend.train` that keeps what the learner does before and after."""
        train = type(self.backend).train

        def acts(context: TrainContext[Any]) -> Tensor:
            assert context.monitor.learner is not None, "monitor.learner must be set before on_ready is called"
            return act(context.monitor.learner.inference(), context.env)

        def watched(backend: Backend[Any], context: TrainContext[Any]) -> None:
            ready = context.on_ready

            def on_ready() -> None:
                run.first = acts(context)
                ready()

            context.on_ready = on_ready
            run.shows_final_obs = context.env.shows_final_obs
            train(backend, context)
            run.last = acts(context)

        return watched

    def load(self, checkpoint: Path, *, deterministic: bool = True) -> Tensor:
        """What the policy of a checkpoint does with what is seen in `act`."""
        env = ManagerBasedRlEnv(judged_env())
        setup = self.backend.load(env, copy.deepcopy(self.agent), checkpoint, deterministic=deterministic)
        actions = act(setup, env)
        env.close()
        return actions


def act(setup: InferenceSetup, env: ManagerBasedRlEnv) -> Tensor:
    """What a policy does in four steps `(4, N, action_dim)`, half of the environments beginning anew after two.

    What it sees is made up, and the same at every call.
    """
    drawn = torch.Generator().manual_seed(0)
    widths = {name: group.dim for name, group in env.observation_manager.groups.items()}
    seen = [
        {name: torch.randn(NUM_ENVS, width, generator=drawn).to(env.device) for name, width in widths.items()}
        for _ in range(4)
    ]
    half = torch.arange(NUM_ENVS, device=env.device) < NUM_ENVS // 2
    with torch.inference_mode():
        setup.reset(None)
        first = [setup.policy(observations).clone() for observations in seen[:2]]
        setup.reset(half)
        return torch.stack([*first, *(setup.policy(observations).clone() for observations in seen[2:])])


def tensors(value: Any) -> list[Tensor]:
    """All tensors in nested dicts, lists and tuples."""
    parts = list(value.values()) if isinstance(value, dict) else value
    if isinstance(parts, list | tuple):
        return [tensor for part in parts for tensor in tensors(part)]
    return [value] if isinstance(value, Tensor) else []


def assert_same(first: Run, second: Run) -> None:
    """Both runs would be resumed from the same bits; what was never written may be NaN."""
    one, two = first.kept(), second.kept()
    for part in ("learner", "env", "torch_rng"):
        pairs = list(zip(tensors(one[part]), tensors(two[part]), strict=True))
        assert all(a.shape == b.shape and a.nan_to_num().equal(b.nan_to_num()) for a, b in pairs), part
    assert first.result.env_steps == second.result.env_steps


class BackendContract:
    """Subclass it as `TestMine`, name the library, and give it an agent that learns fast, for tests that are."""

    library: ClassVar[str]
    """The name it is registered by."""
    iterations: ClassVar[int] = 4
    """Of a whole run."""
    exports: ClassVar[bool] = True
    """Whether its policies are exported."""

    @pytest.fixture(scope="class")
    def agent(self) -> BackendConfig:
        """The agent that is trained; a fixture with `params` tries several."""
        return BACKENDS.entry(self.library).load().default_agent()

    @pytest.fixture(scope="class")
    def env(self) -> ManagerBasedRlEnvCfg:
        """Where it is trained: a cart, for actors and critics that see different things."""
        return cart_env()

    @pytest.fixture(scope="class")
    def lab(
        self, agent: BackendConfig, env: ManagerBasedRlEnvCfg, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Lab]:
        """One thread, and a task with the agent."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        with TASKS.temporarily():
            task = TaskCfg(env=env, play_env=play_cfg(env), agent=copy.deepcopy(agent))
            TASKS.register(TASK, lambda: task)
            yield Lab(agent, self.iterations, tmp_path_factory.mktemp("contract"))
        torch.set_num_threads(threads)

    @pytest.fixture(scope="class")
    def whole(self, lab: Lab) -> Run:
        """A run from its start to its end."""
        return lab.train("whole")

    # -- what it says of itself

    def test_its_name_and_its_configs_lead_to_it(self, agent: BackendConfig) -> None:
        backend = BACKENDS.entry(self.library).load()
        default = backend.default_agent()
        default.validate()
        assert [select_backend(cfg).name for cfg in (agent, default)] == [self.library] * 2
        assert backend.algorithm(agent) is None or isinstance(backend.algorithm(agent), str)

    def test_a_budget_is_kept_and_spent_by_the_iteration(self, lab: Lab, whole: Run) -> None:
        backend, agent = lab.backend, copy.deepcopy(lab.agent)
        backend.set_budget(agent, 123)
        assert backend.budget(agent) == 123
        per_iteration = backend.budget_per_iteration(lab.agent, NUM_ENVS)
        assert [each.done for each in whole.progress] == [per_iteration * (i + 1) for i in range(lab.iterations)]
        assert {(each.total, each.unit) for each in whole.progress} == {(lab.budget, backend.unit)}
        steps = [each.env_steps for each in whole.progress]
        assert steps == [steps[0] * (i + 1) for i in range(lab.iterations)]
        assert whole.result.env_steps == steps[-1]
        backend.set_budget(agent, lab.budget)
        assert backend.control_steps(agent, NUM_ENVS) in (None, steps[-1] // NUM_ENVS)

    def test_final_observations_are_computed_where_they_are_read(self, lab: Lab, whole: Run) -> None:
        assert whole.shows_final_obs is lab.backend.reads_final_obs

    # -- what it leaves

    def test_a_run_leaves_a_run_directory_and_nothing_else(
        self,
        lab: Lab,
        whole: Run,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        assert (whole.result.status, whole.result.checkpoint.stem) == ("completed", lab.backend.final_name)
        assert whole.result.checkpoint.suffix == lab.backend.suffix
        monkeypatch.chdir(tmp_path)
        capfd.readouterr()
        lab.train("quiet", iterations=1)
        assert capfd.readouterr().out == ""
        assert not list(tmp_path.iterdir())

    def test_its_agent_config_reads_back(self, lab: Lab, whole: Run) -> None:
        expected = copy.deepcopy(lab.agent)
        expected.seed = SEED
        lab.backend.set_budget(expected, lab.budget)
        lab.backend.settle(expected)
        assert to_dict(load_json(whole.result.path / "params" / "agent.json")) == to_dict(expected)

    # -- same bits

    def test_the_same_seed_gives_the_same_bits(self, lab: Lab, whole: Run) -> None:
        assert_same(whole, lab.train("again"))

    def test_an_interrupted_run_goes_on_as_if_it_had_not_been(self, lab: Lab, whole: Run) -> None:
        cut = lab.train("cut", stop_after=lab.iterations // 2)
        assert (cut.result.status, len(cut.progress)) == ("interrupted", lab.iterations // 2)
        assert_same(whole, Run(result=resume_task(cut.result.path)))
        assert torch.equal(lab.load(whole.result.checkpoint), lab.load(cut.result.path / whole.result.checkpoint.name))

    def test_evaluation_while_training_changes_nothing_and_judges_what_is_saved(self, lab: Lab, whole: Run) -> None:
        watched = lab.train("watched", evaluation=EVALUATION)
        assert_same(whole, watched)
        assert watched.result.best is not None
        settings = EvalSettings(episodes=EVALUATION.episodes, num_envs=NUM_ENVS, seed=EVALUATION.seed)
        report = evaluate_task(TASK, watched.result.best, settings)
        meta = read_json(watched.result.path / "best_model_meta.json")
        assert report["metrics"]["return_mean"] == pytest.approx(meta["metrics"]["return_mean"], rel=1e-6)

    # -- policies

    def test_a_loaded_policy_acts_exactly_as_the_live_one(self, lab: Lab, whole: Run) -> None:
        assert whole.last is not None
        actions = lab.load(whole.result.checkpoint)
        assert actions.shape == (4, NUM_ENVS, 1)
        assert actions.isfinite().all()
        assert torch.equal(actions, whole.last)
        assert lab.load(whole.result.checkpoint, deterministic=False).shape == actions.shape

    def test_a_checkpoint_knows_its_network(self, lab: Lab, whole: Run) -> None:
        """Whatever the agent config says by now."""
        default = Lab(lab.backend.default_agent(), lab.iterations, lab.home)
        assert torch.equal(default.load(whole.result.checkpoint), lab.load(whole.result.checkpoint))

    def test_a_warm_start_begins_with_the_policy_of_the_checkpoint(self, lab: Lab, whole: Run) -> None:
        """A normaliser may have seen the first observations already, so they need not be the same to the bit."""
        warm = lab.train("warm", iterations=1, checkpoint=whole.result.checkpoint)
        assert whole.first is not None
        assert whole.last is not None
        assert warm.first is not None
        far = (whole.first - whole.last).abs().max()  # from what a cold start begins with
        assert (warm.first - whole.last).abs().max() < 0.05 * far

    def test_an_exported_policy_is_judged_as_its_checkpoint(self, lab: Lab, whole: Run) -> None:
        if not self.exports:
            pytest.skip("this library does not export its policies")
        settings = EvalSettings(episodes=2, num_envs=1, seed=0)  # a file may hold the memory of one robot
        exported = lab.home / "policy.ts"
        export_task(TASK, whole.result.checkpoint, out=exported)  # which compares them itself, step by step
        reports = [
            evaluate_task(TASK, path, settings)["metrics"]["return_mean"]
            for path in (whole.result.checkpoint, exported)
        ]
        assert reports[0] == pytest.approx(reports[1], rel=1e-4)

    # -- what it refuses

    def test_a_checkpoint_for_other_observations_is_refused_in_one_line(self, lab: Lab, whole: Run) -> None:
        cfg = judged_env()
        del cfg.observations["policy"].terms["last"]
        env = ManagerBasedRlEnv(cfg)
        with pytest.raises(UsageError, match="last is 1 there, missing here") as caught:
            lab.backend.load(env, lab.agent, whole.result.checkpoint)
        assert "\n" not in str(caught.value)
        env.close()

    @pytest.mark.parametrize("content", [b"", b"no checkpoint"])
    def test_what_is_no_checkpoint_is_refused_in_one_line(self, lab: Lab, content: bytes) -> None:
        path = lab.home / f"other{lab.backend.suffix}"
        path.write_bytes(content)
        with pytest.raises(UsageError, match=path.name) as caught:
            lab.load(path)
        assert "\n" not in str(caught.value)
