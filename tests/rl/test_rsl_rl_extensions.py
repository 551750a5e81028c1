"""rsl_rl's extensions: learning from mirror images, and curiosity by random network distillation."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from rsl_rl.extensions import Symmetry
from rsl_rl.models import MLPModel, RNNModel
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensordict import TensorDict
from torch import Tensor, nn

from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.errors import UsageError
from genelab.managers import ObservationGroupCfg
from genelab.rl import TrainResult, resume_task
from genelab.rl.backends import select_backend
from genelab.rl.backends.rsl_rl.precision import MixedPrecision
from genelab.rl.backends.rsl_rl.symmetry import Tied, images
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
    setup = select_backend(cfg).load(play_env(), cfg, result.checkpoint)
    seen = torch.randn(256, 8, generator=torch.Generator().manual_seed(0)) * 0.1
    done: list[Tensor] = []
    for side in (seen, seen * SIGNS):
        setup.reset(None)
        with torch.inference_mode():
            done.append(torch.cat([setup.policy({"policy": scale * side, "critic": side}) for scale in (1.0, -0.5)]))
    return float((done[0] + done[1]).abs().mean())


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
    mirrored = train_agent(agent(16, symmetry_cfg=cfg), "mirrored")
    assert CALLS[0][1]["policy"].shape == (16, 8)
    assert CALLS[0][2] is None  # only the observations of the batch
    watched = train_agent(agent(16, symmetry_cfg=symmetry(use_data_augmentation=False)), "watched")
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
    monkeypatch.setattr("genelab.rl.backends.rsl_rl.runner._asymmetry", Symmetry.compute_loss)
    other = train_agent(agent(2, symmetry_cfg=symmetry()), "theirs")
    assert scalars(ours, "Loss/symmetry") == scalars(other, "Loss/symmetry")
    assert same(ours.checkpoint, other.checkpoint)


def test_memory_does_not_learn_from_mirror_images_but_can_be_its_own() -> None:
    with pytest.raises(UsageError, match="with equivariant=true they are their own"):
        train_agent(agent(1, rnn_type="lstm", symmetry_cfg=symmetry()), "run")
    tied = train_agent(agent(4, rnn_type="lstm", symmetry_cfg=symmetry(equivariant=True)), "tied")
    assert asymmetry(tied) < 1e-6


def model_and_batch(rnn_type: str | None = None) -> tuple[Any, Tied, Any]:
    torch.manual_seed(0)
    batch = TensorDict({"policy": torch.randn(32, 8)}, batch_size=[32])
    cfg: dict[str, Any] = {"distribution_cfg": {"class_name": "GaussianDistribution"}, "obs_normalization": True}
    kind: Any = MLPModel
    if rnn_type is not None:
        kind, cfg = RNNModel, {**cfg, "rnn_type": rnn_type, "rnn_hidden_dim": 4, "rnn_num_layers": 2}
    model = kind(batch, {"actor": ["policy"]}, "actor", 1, (6, 4), **cfg)
    of_groups, of_actions = images(mirror, None, batch, 1)
    tied = Tied(model, [of_groups["policy"]], of_actions)
    tied.begin()
    return model, tied, batch


@pytest.mark.parametrize("rnn_type", [None, "lstm", "gru"])
def test_tied_weights_learn_what_mirror_images_teach(rnn_type: str | None) -> None:
    """The gradient of a batch is that of the batch with its mirror images, with memory over three steps."""
    model, tied, batch = model_and_batch(rnn_type)
    wanted = torch.randn(32, 1)
    gradients = []
    for obs, actions in ((batch, wanted), mirror(None, batch, wanted)):
        model.zero_grad()
        model.reset()
        for scale in (1.0, 0.5, -2.0):
            model(obs * scale, stochastic_output=True)
        (-model.get_output_log_prob(actions)).mean().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
        means = model.output_mean.detach()
    assert tied.symmetric()
    for plain, mirrored in zip(*gradients, strict=True):
        assert torch.allclose(plain, mirrored, atol=1e-6)
        assert plain.shape == (1,) or plain.abs().sum() > 0  # the bias of an action that changes its sign is zero
    assert torch.allclose(means[32:], -means[:32], atol=1e-6)


def test_a_tied_normaliser_has_seen_the_mirror_images() -> None:
    model, tied, batch = model_and_batch()
    for obs in (batch + 1.0, 3.0 * batch):
        model.update_normalization(obs)
        tied.normalize_both_sides()
    seen = mirror(None, torch.cat([batch + 1.0, 3.0 * batch]), None)[0]["policy"]
    assert torch.allclose(model.obs_normalizer.mean, seen.mean(0), atol=1e-6)
    assert torch.allclose(model.obs_normalizer.std, seen.std(0, unbiased=False), atol=1e-5)


@pytest.mark.parametrize("noise", ["GaussianDistribution", "HeteroscedasticGaussianDistribution"])
def test_an_equivariant_policy_stays_its_own_mirror_image(noise: Any) -> None:
    cfg = agent(4, symmetry_cfg=symmetry(equivariant=True))
    cfg.actor.distribution = RslRlDistributionCfg(class_name=noise)
    assert asymmetry(train_agent(cfg, "tied")) < 1e-6


def test_only_symmetric_weights_can_be_tied() -> None:
    tied = train_agent(agent(4, symmetry_cfg=symmetry(equivariant=True)), "tied")
    learned = train_agent(agent(4, symmetry_cfg=symmetry()), "learned")
    assert asymmetry(tied) < 1e-6 < 1e-3 < asymmetry(learned)
    went_on = train_agent(agent(1, symmetry_cfg=symmetry(equivariant=True)), "on", checkpoint=tied.checkpoint)
    assert asymmetry(went_on) < 1e-6
    with pytest.raises(UsageError, match="its networks are not their own mirror image"):
        train_agent(agent(1, symmetry_cfg=symmetry(equivariant=True)), "no", checkpoint=learned.checkpoint)


def turn(env: Any, obs: Any, actions: Tensor | None) -> tuple[Any, Tensor | None]:
    """Not a mirror: twice is not nothing."""
    if obs is not None:
        obs = torch.cat([obs, obs.apply(lambda group: group.roll(1, dims=1))])
    return obs, None if actions is None else torch.cat([actions] * 2)


def thrice(env: Any, obs: Any, actions: Tensor | None) -> tuple[Any, Tensor | None]:
    obs, actions = (None if value is None else torch.cat([value] * 3) for value in (obs, actions))
    return obs, actions


def test_what_cannot_be_tied_is_refused() -> None:
    odd = agent(1, symmetry_cfg=symmetry(equivariant=True))
    odd.critic.hidden_dims = (15,)
    with pytest.raises(UsageError, match="an even number of units, got 15"):
        train_agent(odd, "odd")
    with pytest.raises(UsageError, match="twice must change nothing"):
        train_agent(agent(1, symmetry_cfg=RslRlSymmetryCfg(data_augmentation_func=turn, equivariant=True)), "turn")
    with pytest.raises(UsageError, match="one mirror image"):
        train_agent(agent(1, symmetry_cfg=RslRlSymmetryCfg(data_augmentation_func=thrice, equivariant=True)), "thrice")


# Mixed precision


def test_hidden_layers_in_bfloat16_are_close_and_the_last_is_exact() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.ELU(), nn.Linear(16, 16), nn.ELU(), nn.Linear(16, 2)]
    seen, plain, mixed = torch.randn(64, 8), nn.Sequential(*layers), MixedPrecision(*layers)
    assert plain.state_dict().keys() == mixed.state_dict().keys()
    apart = (mixed(seen) - plain(seen)).abs().max()
    assert 1e-5 < apart < 2e-2
    assert mixed(seen).dtype == torch.float32
    with torch.no_grad():
        last = layers[-1]
        assert isinstance(last, nn.Linear)
        last.bias.add_(1e-4)  # bfloat16 could not tell 1 from 1.0001
    moved = mixed(seen) - plain(seen)
    assert (moved.abs().max() - apart).abs() < 1e-5


def test_mixed_precision_is_for_devices_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {}
    for has in (False, True):
        monkeypatch.setattr("genelab.rl.backends.rsl_rl.runner.computes_bfloat16", lambda device, has=has: has)
        runs[has] = train_agent(agent(1, use_mixed_precision=True), f"mixed-{has}")
    plain = train_agent(agent(1), "plain")
    assert same(plain.checkpoint, runs[False].checkpoint)
    assert not same(plain.checkpoint, runs[True].checkpoint)


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
    env = rl_cfg(PENDULUM)
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
        {"symmetry_cfg": symmetry(equivariant=True), "use_mixed_precision": True},
        {"rnd_cfg": curiosity()},
        {"rnd_cfg": curiosity(weight_schedule=SCHEDULE, **NORMALIZED)},
    ],
    ids=["symmetry", "equivariant-mixed", "rnd", "rnd-normalized-schedule"],
)
def test_an_interrupted_and_resumed_run_is_the_uninterrupted_one(algorithm: dict[str, Any]) -> None:
    whole = train_agent(agent(6, **algorithm), "whole")
    part = train_agent(agent(3, **algorithm), "part")
    resumed = resume_task(Path("part"), max_iterations=6)
    assert not same(part.path / "model_3.pt", resumed.checkpoint)
    assert same(whole.checkpoint, resumed.checkpoint)
    before, after = agent_of(whole), agent_of(part)
    assert before == dataclasses.replace(after, max_iterations=6) == dataclasses.replace(agent(6, **algorithm), seed=3)
