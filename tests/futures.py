"""Whether two environments go on alike."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv
from genelab.managers import SceneEntityCfg
from genelab.managers.base import select


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    """Saved and loaded again, without running any code."""
    file = io.BytesIO()
    torch.save(state, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


def assert_same_future(first: ManagerBasedRlEnv, second: ManagerBasedRlEnv, steps: int) -> int:
    """Both do the same, to the last bit; returns how many episodes ended."""
    ended = 0
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        action = 2 * torch.rand(first.num_envs, first.action_dim, generator=generator) - 1
        (seen, *outcome, info), (seen_too, *outcome_too, info_too) = first.step(action), second.step(action)
        pairs = [(seen[name], seen_too[name]) for name in seen] + list(zip(outcome, outcome_too, strict=True))
        final = info.get("final_obs", {})
        pairs += [(final[name], info_too["final_obs"][name]) for name in final]
        assert all(torch.equal(a, b) for a, b in pairs)
        ended += int((outcome[1] | outcome[2]).sum())
    return ended


def make_far(cfg: Any) -> tuple[ManagerBasedRlEnv, ManagerBasedRlEnv]:
    """Two environments of a task, the first in the middle of four episodes of 0.3 s."""
    cfg.scene.num_envs, cfg.seed, cfg.episode_length_s = 4, 3, 0.3
    first, second = ManagerBasedRlEnv(cfg), ManagerBasedRlEnv(cfg)
    first.reset()
    first.episode_length_buf = torch.tensor([0, 1, 2, 4], device=first.device)
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        first.step(2 * torch.rand(4, first.action_dim, generator=generator) - 1)
    return first, second


def check_going_back(env: ManagerBasedRlEnv) -> None:
    """An environment on an engine that promises no bits goes back to a state, models included, and goes on alike."""
    robot = select(SceneEntityCfg(), env)

    def draw_models() -> Tensor:
        mdp.randomize_mass(env, None, (0.8, 1.2), "scale", robot)
        return env.scene.engine.get_model_field("body_mass")

    def run(steps: int) -> tuple[list[Tensor], int]:
        generator, said, ended = torch.Generator().manual_seed(1), [], 0
        for _ in range(steps):
            action = 2 * torch.rand(env.num_envs, env.action_dim, generator=generator) - 1
            observations, reward, terminated, truncated, _ = env.step(action)
            said += [*observations.values(), reward, env.robot.body_pos_w]
            ended += int((terminated | truncated).sum())
        return said, ended

    env.reset(seed=0)
    mass = draw_models()
    env.episode_length_buf[0] = env.max_episode_length - 12  # ends meanwhile
    run(8)
    state = through_a_file(env.state_dict())
    future, ended = run(12)
    assert ended > 0
    env.reset(seed=5)
    assert not torch.equal(draw_models(), mass)
    run(3)
    env.load_state_dict(state)
    assert torch.equal(env.scene.engine.get_model_field("body_mass"), mass)
    for a, b in zip(future, run(12)[0], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
