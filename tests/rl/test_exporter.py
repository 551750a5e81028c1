"""Exported policies are the live ones, whatever trained them, and say all that a deployer needs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from genelab import TASKS, TaskCfg, mdp
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, rl_cfg
from genelab.errors import GenelabError, UsageError
from genelab.managers import ObservationGroupCfg, ObservationTermCfg
from genelab.rl import ExportResult, export_task, exportable, train_task
from genelab.rl.backends import Actor, InferenceSetup, select_backend
from genelab.rl.config import (
    RlGamesAgentCfg,
    RslRlDistributionCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    Sb3AgentCfg,
    Sb3HerCfg,
    Sb3OffPolicyCfg,
    Sb3OnPolicyCfg,
    SkrlAgentCfg,
)
from genelab.rl.export_metadata import describe
from genelab.rl.exported import SUFFIXES, OnnxPolicy, TorchScriptPolicy
from genelab.rl.policies import load_policy
from genelab.rl.world import eval_cfg
from genelab.scene import ArticulationCfg, ImplicitPdActuatorCfg, SceneCfg, mjcf_text
from genelab.scene.actuators import DcMotorActuatorCfg
from genelab.scene.entity import InitialStateCfg
from genelab.sim import SimulationCfg
from genelab_pendulum.common import CART
from genelab_pendulum.memory import TargetCommandCfg
from tests.narrow import present

pytestmark = pytest.mark.xdist_group("exporter")  # each agent is trained once, and used by many tests

ROOT = Path(__file__).parents[2]
PENDULUM = "GeneLab-Inverted-Pendulum-v0"
GOALS = ("observation", "achieved_goal", "desired_goal")


def rsl_rl(rnn_type: Any = None) -> RslRlOnPolicyRunnerCfg:
    critic = RslRlModelCfg(
        hidden_dims=(16,), obs_normalization=True, rnn_type=rnn_type, rnn_hidden_dim=8, rnn_num_layers=2
    )
    actor = RslRlModelCfg(**{**vars(critic), "distribution": RslRlDistributionCfg()})
    clip = 0.1 if rnn_type is None else 2.0
    return RslRlOnPolicyRunnerCfg(num_steps_per_env=16, max_iterations=2, clip_actions=clip, actor=actor, critic=critic)


def skrl(algorithm: Any) -> SkrlAgentCfg:
    return SkrlAgentCfg(
        algorithm=algorithm,
        timesteps=24,
        rollouts=8,
        hidden_dims=(16,),
        batch_size=32,
        learning_starts=4,
        memory_size=80,
    )


def sb3(algorithm: Any, her: Any = None) -> Sb3AgentCfg:
    off_policy = Sb3OffPolicyCfg(
        buffer_size=2000, learning_starts=100, batch_size=32, gradient_steps=1, iteration_steps=20
    )
    return Sb3AgentCfg(
        algorithm=algorithm,
        timesteps=240,
        hidden_dims=(16,),
        action_bound=1.5,
        obs_normalization=True if her else None,
        on_policy=Sb3OnPolicyCfg(n_steps=20, n_epochs=2),
        off_policy=off_policy,
        her=her,
    )


def to_the_goal(achieved: np.ndarray, desired: np.ndarray, infos: Any) -> np.ndarray:
    return -np.abs(achieved - desired)[..., 0]


AGENTS: dict[str, Any] = {
    "rsl_rl-PPO": lambda: rsl_rl(),
    "rsl_rl-LSTM": lambda: rsl_rl("lstm"),
    "rsl_rl-GRU": lambda: rsl_rl("gru"),
    **{f"skrl-{name}": lambda name=name: skrl(name) for name in ("PPO", "A2C", "SAC", "TD3", "DDPG")},
    **{f"sb3-{name}": lambda name=name: sb3(name) for name in ("PPO", "A2C", "SAC", "TD3", "DDPG")},
    "sb3-SAC+HER": lambda: sb3("SAC", Sb3HerCfg(compute_reward=to_the_goal)),
    "rl_games-PPO": lambda: RlGamesAgentCfg(timesteps=16, horizon_length=8, hidden_dims=(16,)),
}


def pendulum() -> ManagerBasedRlEnvCfg:
    """The pendulum with clips that bite, unequal scales and two frames."""
    cfg = rl_cfg(PENDULUM)
    cfg.observations["policy"] = ObservationGroupCfg(
        history_length=2,
        terms={
            "joint_pos": ObservationTermCfg(func=mdp.joint_pos_rel, clip=(-0.02, 0.03), scale=7.0),
            "joint_vel": ObservationTermCfg(func=mdp.joint_vel_rel, clip=(-0.2, float("inf")), delay=(0, 2)),
            "tip": ObservationTermCfg(func=mdp.frame_ang_vel, params={"sensor": "tip"}, scale=(0.2, 0.5, 1.5)),
            "last_action": ObservationTermCfg(func=mdp.last_action),
        },
    )
    return cfg


def with_goals() -> ManagerBasedRlEnvCfg:
    """The pendulum that has to bring its cart to a place."""
    cfg = pendulum()
    policy = cfg.observations.pop("policy")
    goal = ObservationTermCfg(func=mdp.generated_command, params={"command": "goal"}, clip=(-0.3, 0.3), scale=2.0)
    cfg.observations = {  # not in the order that the policy sees them
        "desired_goal": ObservationGroupCfg(terms={"goal": goal}),
        "achieved_goal": ObservationGroupCfg(
            terms={"cart": ObservationTermCfg(func=mdp.joint_pos_rel, params={"asset": CART}, scale=2.0)}
        ),
        "observation": policy,
    }
    cfg.commands = {"goal": TargetCommandCfg(position_range=(-0.8, 0.8))}
    cfg.episode_length_s = 0.1
    return cfg


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Trains each agent once, for a moment, as a task `Test-<agent>`."""
    home, made = tmp_path_factory.mktemp("runs"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TASKS, "_entries", dict(TASKS._entries))

        def checkpoint_of(name: str) -> tuple[str, Path]:
            task = f"Test-{name.replace('+', '-')}-v0"
            if name not in made:
                env = with_goals() if "HER" in name else pendulum()
                TASKS.register(task, lambda: TaskCfg(env=env, agent=AGENTS[name]()))
                made[name] = train_task(task, num_envs=4, seed=3, log_dir=home / name).checkpoint
            return task, made[name]

        yield checkpoint_of


@pytest.fixture(scope="module")
def exports(checkpoints: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Exports each agent once per format."""
    home = tmp_path_factory.mktemp("exports")

    @cache
    def export(name: str, format: Any) -> ExportResult:
        return export_task(*checkpoints(name), format=format, out=home / f"{name}{SUFFIXES[format]}")

    return export


def env_of(task: str, num_envs: int) -> ManagerBasedRlEnv:
    return ManagerBasedRlEnv(eval_cfg(rl_cfg(task), num_envs))


@pytest.mark.parametrize("format", ["torchscript", "onnx"])
@pytest.mark.parametrize("name", AGENTS)
def test_the_exported_policy_acts_as_the_live_one(name: str, format: Any, checkpoints: Any, exports: Any) -> None:
    """Two environments with one seed: the live policy in a normal one, the exported policy in a raw one."""
    task, checkpoint = checkpoints(name)
    result = exports(name, format)
    assert result.parity_error <= 1e-5
    recurrent = name in ("rsl_rl-LSTM", "rsl_rl-GRU")
    num_envs = 1 if recurrent and format == "torchscript" else 5
    normal, raw = env_of(task, num_envs), env_of(task, num_envs)
    live = select_backend(TASKS.get(task).agent).load(normal, TASKS.get(task).agent, checkpoint)
    exported = load_policy(raw, None, result.path)
    actions: list[Tensor] = []
    with torch.no_grad():
        seen, seen_raw = normal.reset(seed=1)[0], raw.reset(seed=1)[0]
        for setup in (live, exported):
            setup.reset(None)
        for step in range(40):
            action, same = live.policy(seen), exported.policy(seen_raw)
            assert same.shape == (num_envs, 1)
            assert (action - same).abs().max() <= 1e-5, step
            actions.append(action.clone())
            seen, _, terminated, truncated, _ = normal.step(action)
            seen_raw, *_ = raw.step(action)
            forget = terminated | truncated
            forget[: num_envs // 2 + 1] |= step == 20
            for setup in (live, exported):
                setup.reset(forget)
    assert torch.cat(actions).std() > 1e-4  # it does something
    groups = GOALS if "HER" in name else ("policy",)
    for group in groups:
        assert not torch.equal(seen[group], seen_raw[group])  # clip and scale were left to the policy
        assert torch.equal(seen[group], raw.observation_manager.groups[group].process(seen_raw[group]))


ELSEWHERE = """
import json, sys
import numpy as np

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ImportError(name)

sys.meta_path.insert(0, Nothing())
for name, (once, every_step) in json.load(open("programs.json")).items():
    seen = np.load(f"{{name}}.npz")
    start = True
    for raw_obs, actions, forget in zip(seen["raw"], seen["actions"], seen["resets"]):
        space = dict(raw_obs=raw_obs) if start else dict(space, raw_obs=raw_obs)
        if {torch}:
            import torch
            space["raw_obs"] = torch.from_numpy(raw_obs)
        if start:
            exec(once, space)
        exec(every_step, space)
        error = np.abs(np.asarray(space["actions"]) - actions).max()
        assert space["actions"].shape == actions.shape and error <= 1e-5, (name, error)
        start = forget.any()
assert not {absent!r} & set(sys.modules), set(sys.modules)
print(len(json.load(open("programs.json"))), "agree")
"""


@pytest.mark.parametrize("format", ["torchscript", "onnx"])
def test_the_documented_lines_are_enough_where_nothing_else_is_installed(
    format: Any, checkpoints: Any, exports: Any
) -> None:
    """A process without genelab, the libraries, and for ONNX without torch, runs the documents' code on each file."""
    programs = {}
    for name in AGENTS:
        task, checkpoint = checkpoints(name)
        env = env_of(task, 8)
        setup = load_policy(env, TASKS.get(task).agent, checkpoint)
        assert setup.actor is not None
        seen = exportable.collect(env, setup, [env.observation_manager.groups[group] for group in setup.actor.groups])
        rows = slice(0, 1) if setup.actor.memory or format == "onnx" else slice(None)  # one robot, or any number
        np.savez(f"{name}.npz", raw=seen.raw[:, rows], actions=seen.actions[:, rows], resets=seen.resets[:, rows])
        programs[name] = documented(format, bool(setup.actor.memory), str(exports(name, format).path))
    Path("programs.json").write_text(json.dumps(programs))
    absent = {"genelab", "rsl_rl", "skrl", "stable_baselines3", "rl_games", "tensordict", "gymnasium", "mujoco"}
    code = ELSEWHERE.format(absent=absent | ({"torch"} if format == "onnx" else set()), torch=format == "torchscript")
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (answer.stdout, answer.returncode) == ("15 agree\n", 0), answer.stderr


def documented(format: str, recurrent: bool, name: str) -> tuple[str, str]:
    """The lines for one start, and those for every control step, of the documents."""
    text = (ROOT / "docs/eval-and-export.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    loads = "torch.jit.load" if format == "torchscript" else "onnxruntime.InferenceSession"
    (block,) = [b for b in blocks if loads in b and ("each episode" in b) == recurrent]
    once, every_step = block.replace(f"policy{SUFFIXES[format]}", name).split("# every control step\n")
    return once, every_step


def test_the_metadata_have_every_key_of_the_spec(checkpoints: Any) -> None:
    task, checkpoint = checkpoints("rsl_rl-PPO")
    result = export_task(task, checkpoint, out=Path("deploy.ts"))
    about = json.loads(Path("deploy.ts.metadata.json").read_text())
    assert about == result.metadata
    spec = {
        "task": "Test-rsl_rl-PPO-v0",
        "checkpoint": str(checkpoint),
        "obs_dim": 16,
        "action_dim": 1,
        "action_range": [-0.1, 0.1],
        "normalization_baked": True,
        "is_recurrent": False,
        "format": "torchscript",
        "torch_version": torch.__version__,
    }
    assert {key: about[key] for key in spec} == spec
    assert about["exported_at"].endswith("+00:00")
    assert "recurrent" not in about
    group = about["obs_groups"]["policy"]
    assert (group["start"], group["dim"], group["history_length"], group["frame_dim"]) == (0, 16, 2, 8)
    place = ("name", "dim", "start", "scale", "clip")
    assert [{key: term[key] for key in place} for term in group["terms"]] == [
        {"name": "joint_pos", "dim": 2, "start": 0, "scale": 7.0, "clip": [-0.02, 0.03]},
        {"name": "joint_vel", "dim": 2, "start": 2, "scale": 1.0, "clip": [-0.2, None]},
        {"name": "tip", "dim": 3, "start": 4, "scale": [0.2, 0.5, 1.5], "clip": None},
        {"name": "last_action", "dim": 1, "start": 7, "scale": 1.0, "clip": None},
    ]
    told = {
        term["name"]: (term["unit"], term["frame"], term["columns"], term["source"]["kind"]) for term in group["terms"]
    }
    assert told == {
        "joint_pos": (["m", "rad"], None, ["cart", "pole"], "joint_pos"),
        "joint_vel": (["m/s", "rad/s"], None, ["cart", "pole"], "joint_vel"),
        "tip": ("rad/s", "tip", ["x", "y", "z"], "ang_vel"),
        "last_action": (["1"], None, ["cart"], "last_action"),
    }


def test_the_metadata_have_what_a_robots_program_needs(checkpoints: Any) -> None:
    task, checkpoint = checkpoints("rsl_rl-PPO")
    about = export_task(task, checkpoint).metadata
    assert (about["step_dt"], about["physics_dt"], about["decimation"], about["engine"]) == (0.01, 0.005, 2, "mujoco")
    (action,) = about["actions"]
    assert (action["name"], action["start"], action["dim"], action["target"]) == ("cart", 0, 1, "position")
    assert (action["joint_names"], action["scale"], action["offset"]) == (["cart"], [1.0], [0.0])
    robot = about["entities"][action["entity"]]
    assert (robot["joint_names"], robot["default_joint_pos"]) == (["cart", "pole"], [0.0, 0.0])
    assert robot["joint_pos_limits"] == [[-3.0, 3.0], [-1.2, 1.2]]  # not 1.2000000476837158
    assert (robot["stiffness"], robot["damping"], robot["effort_limit"]) == ([80.0, None], [8.0, None], [None, None])
    assert (about["backend"], about["algorithm"], about["learned_normalizer"]) == ("rsl_rl", "PPO", True)
    assert about["parity"]["max_abs_error"] <= about["parity"]["tolerance"] == 1e-5
    assert about["versions"]["mujoco"]


def test_the_metadata_name_each_joint_and_what_drives_it() -> None:
    """Three joints, of which one is free, one a servo and one a DC motor; two action terms."""
    joints = "".join(
        f'<body><joint name="{name}" ref="0" {more}/><geom size=".1"/></body>'
        for name, more in (("a", 'actuatorfrcrange="-3 3"'), ("b", ""), ("c", 'range="-1 1"'))
    )
    xml = f"<mujoco><compiler angle='radian'/><worldbody><body name='base'>{joints}</body></worldbody></mujoco>"
    servo = ImplicitPdActuatorCfg(joint_names=("a",), stiffness={"a": 40.1}, damping=0.7)
    motor = DcMotorActuatorCfg(
        joint_names=("c",), stiffness=20.0, damping=0.5, saturation_effort=23.7, velocity_limit=30.0
    )
    robot = ArticulationCfg(
        spec=mjcf_text,
        spec_args={"xml": xml},
        actuators={"servo": servo, "motor": motor},
        init_state=InitialStateCfg(joint_pos={"a": 0.1, "c": -0.3}),
    )
    cfg = ManagerBasedRlEnvCfg(
        scene=SceneCfg(num_envs=2, entities={"robot": robot}),
        simulation=SimulationCfg(engine="mujoco"),
        episode_length_s=1.0,
        actions={
            "torque": mdp.JointEffortActionCfg(joint_names=("c",), scale=2.5, clip=(-1.0, 1.0)),
            "place": mdp.JointPositionActionCfg(joint_names=("a",), scale=0.25),
        },
        observations={"policy": ObservationGroupCfg(terms={"q": ObservationTermCfg(func=mdp.joint_pos_rel)})},
    )
    actor = Actor(network=torch.nn.Identity(), algorithm="PPO", normalizes=False, action_range=None)
    about = describe(ManagerBasedRlEnv(cfg), actor, task="T", backend="none", checkpoint=Path(__file__))
    drives = about["entities"]["robot"].pop("drives")
    assert {name: drive["joint_names"] for name, drive in drives.items()} == {"servo": ["a"], "motor": ["c"]}
    assert "stiffness · (target − q)" in drives["servo"]["law"]
    assert about["entities"]["robot"] == {
        "joint_names": ["a", "b", "c"],
        "default_joint_pos": [0.1, 0.0, -0.3],
        "joint_pos_limits": [[None, None], [None, None], [-1.0, 1.0]],
        "stiffness": [40.1, None, 20.0],
        "damping": [0.7, None, 0.5],
        "effort_limit": [3.0, None, 23.7],
        "saturation_effort": [None, None, 23.7],
        "velocity_limit": [None, None, 30.0],
        "armature": [0.0, 0.0, 0.0],
        "frictionloss": [0.0, 0.0, 0.0],
        "passive_damping": [0.0, 0.0, 0.0],
        "actuators": {"servo": "ImplicitPdActuatorCfg", "motor": "DcMotorActuatorCfg"},
    }
    torque, place = about["actions"]
    assert (torque["start"], torque["target"], torque["joint_names"]) == (0, "effort", ["c"])
    assert (torque["scale"], torque["offset"], torque["clip"]) == ([2.5], [0.0], [-1.0, 1.0])
    assert (place["start"], place["target"], place["joint_names"]) == (1, "position", ["a"])
    assert (place["scale"], place["offset"], place["clip"]) == ([0.25], [0.1], None)
    assert (about["action_dim"], about["action_range"], about["learned_normalizer"]) == (2, None, False)


def test_goals_are_three_groups_in_the_order_of_the_spec(checkpoints: Any) -> None:
    about = export_task(*checkpoints("sb3-SAC+HER")).metadata
    places = {name: (group["start"], group["dim"]) for name, group in about["obs_groups"].items()}
    assert list(places.items()) == [("observation", (0, 16)), ("achieved_goal", (16, 1)), ("desired_goal", (17, 1))]
    assert (about["obs_dim"], about["action_range"]) == (18, [-1.5, 1.5])
    assert about["commands"]["goal"]["position_range"] == [-0.8, 0.8]


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("rsl_rl-LSTM", ["obs", "h_in", "c_in"], ["actions", "h_out", "c_out"]),
        ("rsl_rl-GRU", ["obs", "h_in"], ["actions", "h_out"]),
    ],
)
def test_a_recurrent_policy_has_its_ports_named(
    name: str, inputs: list[str], outputs: list[str], checkpoints: Any
) -> None:
    import onnxruntime

    about = export_task(*checkpoints(name), format="onnx").metadata
    assert about["is_recurrent"]
    assert about["recurrent"] == {
        "rnn_type": name[-len("LSTM") :].strip("-").lower(),
        "rnn_num_layers": 2,
        "rnn_hidden_dim": 8,
        "hidden_state_shape": [2, 1, 8],
        "onnx_inputs": inputs,
        "onnx_outputs": outputs,
    }
    session = onnxruntime.InferenceSession("policy.onnx")
    assert [port.name for port in session.get_inputs()] == inputs
    assert [port.name for port in session.get_outputs()] == outputs
    assert [port.shape for port in session.get_inputs()[1:]] == [[2, "batch", 8]] * (len(inputs) - 1)


@pytest.mark.parametrize("name", ["rsl_rl-LSTM", "rsl_rl-GRU"])
@pytest.mark.parametrize("shape", [(2,), (2, 1), (0,), ()])
def test_a_file_with_the_memory_of_one_robot_refuses_another_number_of_rows(
    name: str, shape: tuple[int, ...], exports: Any
) -> None:
    """An LSTM that writes the state of two rows where there is room for one brings the process down."""
    result = exports(name, "torchscript")
    policy, width = torch.jit.load(result.path), result.metadata["obs_dim"]
    first = policy(torch.zeros(1, width))
    with pytest.raises(torch.jit.Error, match=r"keeps the memory of one robot: give it .* \(1, obs_dim\)\. For more"):
        policy(torch.zeros(*shape, width))
    policy.reset()
    assert torch.equal(policy(torch.zeros(1, width)), first)


@pytest.mark.parametrize("format", ["torchscript", "onnx"])
def test_memory_is_compared_with_its_resets(format: Any, checkpoints: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that does not forget in mid-run is not the live one."""
    task, checkpoint = checkpoints("rsl_rl-LSTM")
    kinds: dict[str, type[TorchScriptPolicy] | type[OnnxPolicy]]
    kinds = {"torchscript": TorchScriptPolicy, "onnx": OnnxPolicy}
    kind: Any = kinds[format]
    forget = kind.reset
    monkeypatch.setattr(kind, "reset", lambda self, dones: forget(self, dones) if dones is None else None)
    with pytest.raises(GenelabError, match="the exported policy is not the live one"):
        export_task(task, checkpoint, format=format)
    assert not list(Path().iterdir())


def test_half_of_the_environments_forget_in_mid_run_though_no_episode_ends(checkpoints: Any) -> None:
    task, checkpoint = checkpoints("rsl_rl-GRU")
    cfg = eval_cfg(rl_cfg(task), 8)
    cfg.terminations = {}
    env = ManagerBasedRlEnv(cfg)
    setup = load_policy(env, TASKS.get(task).agent, checkpoint)
    seen = exportable.collect(env, setup, [env.observation_manager.groups["policy"]])
    assert (seen.raw.shape, seen.actions.shape) == ((64, 8, 16), (64, 8, 1))
    assert seen.resets.nonzero().tolist() == [[32, 0], [32, 1], [32, 2], [32, 3]]


@pytest.mark.parametrize("format", ["torchscript", "onnx"])
def test_a_policy_that_differs_is_refused_and_nothing_is_written(
    format: Any, checkpoints: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, checkpoint = checkpoints("skrl-TD3")
    write = f"to_{format}"
    original = getattr(exportable, write)

    def spoil(by: float) -> None:
        def spoiled(policy: Any, *rest: Any) -> bytes:
            weights = policy.network.parts[0].net[-1].bias
            weights += by
            return original(policy, *rest)

        monkeypatch.setattr(exportable, write, spoiled)

    spoil(5e-5)
    with pytest.raises(GenelabError, match=r"differ by \S+e-05, more than 1e-05; nothing was written"):
        export_task(task, checkpoint, format=format)
    assert not list(Path().iterdir())
    spoil(5e-6)
    assert 1e-6 < present(export_task(task, checkpoint, format=format).parity_error) < 1e-5


def test_an_opset_that_cannot_express_the_policy_is_refused(checkpoints: Any) -> None:
    """SB3's normaliser works in 64 bit, which older operators do not have."""
    task, checkpoint = checkpoints("sb3-PPO")
    with pytest.raises(UsageError, match=r"`opset=7` cannot be run, try 17"):
        export_task(task, checkpoint, format="onnx", opset=7)
    assert not list(Path().iterdir())


def test_a_failed_write_leaves_what_was_there(checkpoints: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task, checkpoint = checkpoints("skrl-TD3")
    old: ExportResult = export_task(task, checkpoint)
    before = {path.name: path.read_bytes() for path in Path().iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"`out`: cannot write policy\.ts: No space left on device"):
        export_task(task, checkpoint)
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before
    assert old.size == len(before["policy.ts"])


def test_a_library_without_an_actor_is_named(checkpoints: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from genelab.rl.backends.skrl.backend import SkrlBackend

    task, checkpoint = checkpoints("skrl-TD3")
    setup = InferenceSetup(policy=lambda observations: torch.zeros(8, 1))
    monkeypatch.setattr(SkrlBackend, "load", lambda *args, **options: setup)
    with pytest.raises(UsageError, match="policies of skrl cannot be exported"):
        export_task(task, checkpoint)
