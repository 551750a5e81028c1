"""rsl_rl's runner while it learns, as the monitor sees it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genelab.errors import UsageError
from genelab.rl.backends.base import InferenceSetup, Learner, TrainContext
from genelab.rl.backends.rsl_rl.config import RslRlOnPolicyRunnerCfg
from genelab.rl.backends.rsl_rl.networks import inference_of, make_actor
from genelab.rl.backends.rsl_rl.weights import layers_of, naming_the_network, networks_of, widened, with_networks
from genelab.rl.backends.rsl_rl.wrapper import RslRlVecEnvWrapper
from genelab.rl.checkpoint import check_network, save_atomically
from genelab.rl.rank import Rank


class RslRlLearner(Learner):
    """rsl_rl's runner while it learns."""

    def __init__(self, runner: Any, env: RslRlVecEnvWrapper, context: TrainContext[RslRlOnPolicyRunnerCfg]) -> None:
        self._runner = runner
        self._env = env
        self._agent = context.agent
        self._budget = context.budget
        self._context = context

    def save(self, path: Path) -> None:
        meta = {**self._context.meta(), "agent": networks_of(self._agent)}
        save_atomically({**self._runner.alg.save(), "genelab": meta}, path)

    def aim_after(self, iterations: int) -> None:
        """How far the next iteration may go, and how much noise it may have."""
        share = iterations / self._budget
        self._runner.alg.desired_kl = kl_at(self._agent, share)
        noise = self._agent.actor.distribution
        if noise is not None and noise.final_std is not None:
            bound = _between(noise.init_std, noise.final_std, share)
            distribution = self._runner.alg.actor.distribution
            distribution.std_range[1], distribution.log_std_range[1] = bound, math.log(bound)

    def inference(self) -> InferenceSetup:
        # A second network has a recurrent state of its own, and the learner's mode and buffers stay as they are.
        with torch.random.fork_rng():  # it is born with random weights; the learner must not notice
            actor = make_actor(self._env.env, self._agent)
        actor.load_state_dict(self._runner.alg.get_policy().state_dict())
        return inference_of(actor, self._agent)

    def state(self) -> dict[str, Any]:
        alg = self._runner.alg
        return {
            "iteration": self._runner.current_learning_iteration + 1,
            "learning_rate": alg.learning_rate,
            "observations": {name: value.cpu() for name, value in self._env.get_observations().items()},
            "hidden": [_to_cpu(model.get_hidden_state()) for model in (alg.actor, alg.critic)],
            "alg": alg.save(),
            "rnd": None if alg.rnd is None else _rnd_state(alg.rnd),
        }

    def weights(self) -> dict[str, Tensor]:
        models = {"actor": self._runner.alg.actor, "critic": self._runner.alg.critic}
        return {f"{name}.{key}": value for name, model in models.items() for key, value in model.state_dict().items()}

    def load_weights(self, content: dict[str, Any], path: Path) -> None:
        """Start from the networks of a checkpoint, which may have seen less than there is to see here."""
        if (saved := content["genelab"].get("agent")) is not None:
            check_network(layers_of(with_networks(self._agent, saved)), layers_of(self._agent), path)
        with naming_the_network(path, "agent.actor and agent.critic describe"):
            content = {**content, **widened(content, self._env.env, self._runner.alg)}
            self._runner.alg.load(content, {"actor": True, "critic": True}, strict=True)
        if not all(network.symmetric() for network in self._runner.alg.tied):
            raise UsageError(
                f"{path}: its networks are not their own mirror image, "
                "as agent.algorithm.symmetry_cfg.equivariant wants them"
            )

    def resume(self, state: dict[str, Any]) -> None:
        """Go on where an interrupted run stopped."""
        alg = self._runner.alg
        alg.load(state["alg"], None, strict=True)
        alg.learning_rate = state["learning_rate"]
        self._runner.current_learning_iteration = state["iteration"]
        self._env.set_observations(state["observations"])
        for model, hidden in zip((alg.actor, alg.critic), state["hidden"], strict=True):
            if hidden is not None:
                model.reset(hidden_state=hidden)
        if alg.rnd is not None:
            _set_rnd_state(alg.rnd, state["rnd"])


class MonitorLogger:
    """Stands where rsl_rl's own logger does and tells the monitor."""

    writer = None  # so that the runner does not write checkpoints of its own

    def __init__(self, learner: RslRlLearner, context: TrainContext[RslRlOnPolicyRunnerCfg]) -> None:
        self._learner = learner
        self._monitor = context.monitor
        self._device = context.env.device
        self._rank = Rank.current()
        self._env_steps = context.agent.num_steps_per_env * context.env.num_envs * self._rank.world_size

    def init_logging_writer(self) -> None:
        """The monitor has the writer."""

    def process_env_step(self, *args: Any) -> None:
        """The monitor looks on by itself."""

    def log(
        self,
        it: int,
        collect_time: float,
        learn_time: float,
        loss_dict: dict[str, float],
        learning_rate: float,
        action_std: Tensor,
        rnd_weight: float | None,
        **rest: Any,
    ) -> None:
        """An iteration has ended."""
        self._learner.aim_after(it + 1)
        if not self._rank.alone:
            self._monitor.stop_requested = self._rank.any_stop_requested(self._device)
        losses = {f"Loss/{name}": float(value) for name, value in loss_dict.items()}
        self._monitor.iteration(
            self._learner,
            done=it + 1,
            env_steps=self._env_steps,
            collect_seconds=collect_time,
            learn_seconds=learn_time,
            scalars={
                **losses,
                "Loss/learning_rate": learning_rate,
                "Policy/mean_std": float(action_std.detach().mean()),
                **({} if rnd_weight is None else {"Rnd/weight": rnd_weight}),
            },
        )


def kl_at(agent: RslRlOnPolicyRunnerCfg, share: float) -> float:
    """The KL divergence to aim at after a share of the run."""
    first, last = agent.algorithm.desired_kl, agent.algorithm.final_kl
    return first if last is None else _between(first, last, share)


def _between(first: float, last: float, share: float) -> float:
    """From one positive number to another, by equal factors."""
    return first ** (1.0 - share) * last**share


def _rnd_state(rnd: Any) -> dict[str, Any]:
    """What random network distillation remembers and rsl_rl does not save: control steps, and the discounted sum."""
    average = rnd.reward_normalizer.disc_avg.avg if rnd.reward_normalization else None
    return {"steps": rnd.update_counter, "average": _to_cpu(average)}


def _set_rnd_state(rnd: Any, state: dict[str, Any]) -> None:
    rnd.update_counter = state["steps"]
    if rnd.reward_normalization:
        rnd.reward_normalizer.disc_avg.avg = state["average"].to(rnd.device)


def _to_cpu(hidden: Any) -> Any:
    if isinstance(hidden, tuple):
        return tuple(part.cpu() for part in hidden)
    return hidden if hidden is None else hidden.cpu()
