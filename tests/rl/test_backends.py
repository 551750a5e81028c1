"""The type of an agent config chooses the RL library, and each is told the same of how an episode ended."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pytest
import torch

from genelab import TASKS
from genelab.config import from_dict, load_json, to_dict
from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.errors import UsageError
from genelab.managers import TerminationTermCfg
from genelab.rl.backends import BACKENDS, select_backend
from genelab.rl.config import BackendConfig, RslRlOnPolicyRunnerCfg, SkrlAgentCfg

PENDULUM = "GeneLab-Inverted-Pendulum-v0"


def _ends(env: ManagerBasedRlEnv, steps: list[int]) -> torch.Tensor:
    return env.episode_length_buf >= torch.tensor(steps)


def _time_outs(library: str, env: ManagerBasedRlEnv) -> list[bool]:
    """Which episodes a library is told to have timed out, after a step without action."""
    action = torch.zeros(env.num_envs, 1)
    if library == "rsl_rl":
        from genelab.rl.backends import RslRlVecEnvWrapper

        return RslRlVecEnvWrapper(env, None).step(action)[3]["time_outs"].tolist()
    if library == "skrl":
        from genelab.rl.backends import GenelabSkrlWrapper

        return GenelabSkrlWrapper(env, 1.0).step(action)[3].flatten().tolist()
    if library == "rl_games":
        from genelab.rl.backends import GenelabRlGamesVecEnv

        return GenelabRlGamesVecEnv(env).step(action)[3]["time_outs"].tolist()
    from genelab.rl.backends.sb3.env import GenelabSb3VecEnv

    wrapper = GenelabSb3VecEnv(env)
    wrapper.reset()
    infos = wrapper.step(action.numpy())[3]
    return [info.get("TimeLimit.truncated", False) for info in infos]


@pytest.mark.parametrize("library", ["rsl_rl", "skrl", "rl_games", "sb3"])
def test_a_failure_in_the_step_of_a_time_out_is_a_failure(library: str) -> None:
    cfg = rl_cfg(PENDULUM, play=True)
    cfg.scene.num_envs = 4
    cfg.terminations = {  # the first fails, the second times out, the third does both, the fourth goes on
        "fell": TerminationTermCfg(func=_ends, params={"steps": [1, 9, 1, 9]}),
        "late": TerminationTermCfg(func=_ends, params={"steps": [9, 1, 1, 9]}, time_out=True),
    }
    env = ManagerBasedRlEnv(cfg)
    assert _time_outs(library, env) == [False, True, False, False]
    env.close()


def test_the_type_of_the_config_chooses() -> None:
    assert select_backend(RslRlOnPolicyRunnerCfg(max_iterations=1)).name == "rsl_rl"

    @dataclass(kw_only=True)
    class Mine(RslRlOnPolicyRunnerCfg):
        """A variant of a config goes the way of its base."""

    assert select_backend(Mine(max_iterations=1)).name == "rsl_rl"


def test_no_config_or_an_unknown_one_is_one_line() -> None:
    with pytest.raises(UsageError, match="has no agent config: it can be played, not trained"):
        select_backend(None)
    with pytest.raises(UsageError, match="no RL backend is registered for an agent config of type BackendConfig"):
        select_backend(BackendConfig())


@pytest.mark.parametrize(
    ("library", "how"),
    [
        ("rsl_rl", "rsl-rl-lib"),
        ("skrl", "'genelab[skrl]'"),
        ("rl_games", "'genelab[rl-games]'"),
        ("sb3", "'genelab[sb3]'"),
    ],
)
def test_a_missing_library_says_how_to_install_it(library: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = BACKENDS.entry(library).load().default_agent()
    monkeypatch.setattr("genelab.config.offer._installed", lambda package: False)
    with pytest.raises(UsageError, match=re.escape(f"{library} is not installed: pip install {how}")):
        select_backend(agent)


def test_agent_configs_of_earlier_runs_read_by_the_name_they_had(tmp_path: Path) -> None:
    """They lived in `genelab.rl.config`, and files say so."""
    agent = SkrlAgentCfg(timesteps=7)
    written = to_dict(agent)
    assert written["__type__"] == "genelab.rl.backends.skrl.config:SkrlAgentCfg"
    assert from_dict({**written, "__type__": "genelab.rl.config:SkrlAgentCfg"}) == agent
    shipped = resources.files("genelab_unitree") / "pretrained/Genelab-Velocity-Rough-Unitree-Go1-v0/params/agent.json"
    earlier = tmp_path / "agent.json"
    earlier.write_text(shipped.read_text().replace("genelab.rl.backends.rsl_rl.config:", "genelab.rl.config:"))
    assert '"genelab.rl.config:RslRlOnPolicyRunnerCfg"' in earlier.read_text()
    TASKS.get("Genelab-Velocity-Rough-Unitree-Go1-v0")
    assert isinstance(load_json(str(earlier)), RslRlOnPolicyRunnerCfg)
    assert load_json(str(earlier)) == load_json(str(shipped))
