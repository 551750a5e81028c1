"""rsl_rl's extensions: learning from mirror images, and curiosity by random network distillation."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from rsl_rl.extensions import Symmetry
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from genelab import TASKS
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import UsageError
from genelab.managers import ObservationGroupCfg
from genelab.rl import TrainResult, resume_task
from genelab.rl.backends import select_backend
from genelab.rl.config import (
    RslRlDistributionCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    RslRlPpoAlgorithmCfg,
    RslRlRndCfg,
    RslRlRndScheduleCfg,
    RslRlSymmetryCfg,
)
from tests.rl.helpers import PENDULUM, agent_of, play_env, same, train_agent

pytestmark = pytest.mark.usefixtures("alone")

# Positions and velocities of cart and pole, angular velocity of the pole, last action. In the mirror x ↦ −x everything
# changes its sign but the angular velocity about x.
SIGNS = torch.tensor([-1.0, -1, -1, -1, 1, -1, -1, -1])
CALLS: list[tuple[Any, Any, Any]] = []


def mirror(env: Any, obs: Any, actions: Tensor | None) -> tuple[Any, Tensor | None]:
    CALLS.append((env, obs, actions))
    if obs is not None:
        obs = torch.cat([obs, obs.apply(lambda group: group * SIGNS)])
    return obs, None if actions is None else torch.cat([actions, -actions])


def agent(iterations: int, *, rnn_type: Any = None, **algorithm: Any) -> RslRlOnPolicyRunnerCfg:
    critic = RslRlModelCfg(hidden_dims=(16,), rnn_type=rnn_type, rnn_hidden_dim=8)
    return RslRlOnPolicyRunnerCfg(
        max_iterations=iterations,
        num_steps_per_env=8,
        save_interval=3,
        actor=dataclasses.replace(critic, distribution=RslRlDistributionCfg()),
        critic=critic,
        algorithm=RslRlPpoAlgorithmCfg(num_learning_epochs=2, num_mini_batches=2, **algorithm),
    )


def scalars(result: TrainResult, tag: str) -> list[float]:
    events = EventAccumulator(str(result.path))
    events.Reload()
    return [event.value for event in events.Scalars(tag)]


def asymmetry(result: TrainResult) -> float:
    """How far the actions are from being mirrored where the observations are."""
    cfg = agent_of(result)
    policy = select_backend(cfg).load(play_env(), cfg, result.checkpoint).policy
    seen = torch.randn(256, 8, generator=torch.Generator().manual_seed(0)) * 0.1
    with torch.inference_mode():
        there, here = policy({"policy": seen * SIGNS, "critic": seen}), policy({"policy": seen, "critic": seen})
    return float((there + here).abs().mean())


def symmetry(**changes: Any) -> RslRlSymmetryCfg:
    return RslRlSymmetryCfg(data_augmentation_func=mirror, **changes)


# Symmetry


def test_mirror_images_are_learned_from(learners: list[Any]) -> None:
    CALLS.clear()
    result = train_agent(agent(3, symmetry_cfg=symmetry()), "run")
    # 3 iterations × 2 epochs × 2 parts of 4 environments × 8 steps, each asked once for the batch, once for the loss.
    assert len(CALLS) == 24
    for batch, means in zip(CALLS[::2], CALLS[1::2], strict=True):
        env, obs, actions = batch
        assert isinstance(env.unwrapped, ManagerBasedRlEnv)
        assert (obs["policy"].shape, obs["critic"].shape, actions.shape) == ((16, 8), (16, 8), (16, 1))
        assert (means[1], means[2].shape) == (None, (16, 1))
    assert len(scalars(result, "Loss/symmetry")) == 3
    cfg = agent_of(result)
    assert cfg.algorithm.symmetry_cfg == symmetry()
    assert cfg.algorithm.symmetry_cfg.data_augmentation_func is mirror
    env = play_env()
    loaded, live = select_backend(cfg).load(env, cfg, result.checkpoint), learners[-1].inference()
    with torch.inference_mode():
        observations, _ = env.reset(seed=0)
        assert torch.equal(loaded.policy(observations), live.policy(observations))


def test_a_mirror_loss_makes_the_policy_symmetric() -> None:
    CALLS.clear()
    cfg = symmetry(use_data_augmentation=False, use_mirror_loss=True, mirror_loss_coeff=10.0)
    mirrored = train_agent(agent(12, symmetry_cfg=cfg), "mirrored")
    assert CALLS[0][1]["policy"].shape == (16, 8)
    assert CALLS[0][2] is None  # only the observations of the batch
    watched = train_agent(agent(12, symmetry_cfg=symmetry(use_data_augmentation=False)), "watched")
    losses, others = scalars(mirrored, "Loss/symmetry"), scalars(watched, "Loss/symmetry")
    assert losses[-1] < 0.1 * losses[0]
    assert losses[-1] < 0.1 * others[-1]
    assert asymmetry(mirrored) < 0.5 * asymmetry(watched)


def test_symmetry_that_only_watches_changes_nothing() -> None:
    watched = train_agent(agent(2, symmetry_cfg=symmetry(use_data_augmentation=False)), "watched")
    plain, learned = train_agent(agent(2), "plain"), train_agent(agent(2, symmetry_cfg=symmetry()), "learned")
    assert same(plain.checkpoint, watched.checkpoint)
    assert not same(plain.checkpoint, learned.checkpoint)


def test_the_symmetry_in_the_log_is_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = train_agent(agent(2, symmetry_cfg=symmetry()), "ours")
    monkeypatch.setattr("genelab.rl.backends.rsl_rl._asymmetry", Symmetry.compute_loss)
    other = train_agent(agent(2, symmetry_cfg=symmetry()), "theirs")
    assert scalars(ours, "Loss/symmetry") == scalars(other, "Loss/symmetry")
    assert same(ours.checkpoint, other.checkpoint)


def test_symmetry_and_memory_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="networks with memory cannot learn from mirror images"):
        train_agent(agent(1, rnn_type="lstm", symmetry_cfg=symmetry()), "run")


# Random network distillation


def curiosity(**changes: Any) -> RslRlRndCfg:
    return RslRlRndCfg(weight=10.0, num_outputs=4, **changes)


NORMALIZED = {"state_normalization": True, "reward_normalization": True}
SCHEDULE = RslRlRndScheduleCfg(initial_step=8, final_step=40, final_value=2.0)


def test_curiosity_is_logged_and_learns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = train_agent(agent(20, rnd_cfg=curiosity(**NORMALIZED)), "run")
    losses = scalars(result, "Loss/rnd")
    assert len(losses) == 20
    assert losses[-1] < 0.5 * losses[0]  # what was seen often surprises less
    assert scalars(result, "Rnd/weight") == pytest.approx([0.1] * 20)  # 10 per second, in steps of 0.01 s
    content = torch.load(result.checkpoint, weights_only=True)
    assert content["rnd_state_dict"]["predictor.0.weight"].shape == (8, 8)
    assert content["rnd_state_dict"]["state_normalizer.count"] == 20 * 8 * 4


def test_the_reward_of_curiosity_changes_what_is_learned() -> None:
    plain = train_agent(agent(2, rnd_cfg=dataclasses.replace(curiosity(), weight=0.0)), "plain")
    curious = train_agent(agent(2, rnd_cfg=curiosity()), "curious")
    first, second = (torch.load(run.checkpoint, weights_only=True)["actor_state_dict"] for run in (plain, curious))
    assert not torch.equal(first["mlp.0.weight"], second["mlp.0.weight"])


def test_the_weight_of_curiosity_follows_its_schedule() -> None:
    result = train_agent(agent(6, rnd_cfg=curiosity(weight_schedule=SCHEDULE)), "run")
    assert scalars(result, "Rnd/weight") == pytest.approx([0.1, 0.08, 0.06, 0.04, 0.02, 0.02])


def test_a_group_for_curiosity_is_what_it_sees() -> None:
    env = TASKS.get(PENDULUM).env
    terms = env.observations["policy"].terms
    env.observations["rnd_state"] = ObservationGroupCfg(terms={"joint_pos": terms["joint_pos"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = train_agent(agent(1, rnd_cfg=curiosity()), "run", env=env)
    content = torch.load(result.checkpoint, weights_only=True)
    assert content["rnd_state_dict"]["predictor.0.weight"].shape == (2, 2)


@pytest.mark.parametrize(
    "algorithm",
    [
        {"symmetry_cfg": symmetry(use_mirror_loss=True, mirror_loss_coeff=0.5)},
        {"rnd_cfg": curiosity()},
        {"rnd_cfg": curiosity(weight_schedule=SCHEDULE, **NORMALIZED)},
    ],
    ids=["symmetry", "rnd", "rnd-normalized-schedule"],
)
def test_an_interrupted_and_resumed_run_is_the_uninterrupted_one(algorithm: dict[str, Any]) -> None:
    whole = train_agent(agent(6, **algorithm), "whole")
    part = train_agent(agent(3, **algorithm), "part")
    resumed = resume_task(Path("part"), max_iterations=6)
    assert not same(part.path / "model_3.pt", resumed.checkpoint)
    assert same(whole.checkpoint, resumed.checkpoint)
    before, after = agent_of(whole), agent_of(part)
    assert before == dataclasses.replace(after, max_iterations=6) == dataclasses.replace(agent(6, **algorithm), seed=3)
