"""rl_games' agent while it learns, epoch by epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genelab.rl.backends.base import InferenceSetup, TrainContext
from genelab.rl.backends.loop import LoopLearner
from genelab.rl.backends.rl_games.config import RlGamesAgentCfg
from genelab.rl.backends.rl_games.env import GenelabRlGamesVecEnv
from genelab.rl.backends.rl_games.models import inference_of, make_model, network_of
from genelab.rl.checkpoint import check_network, save_atomically
from genelab.rl.monitor import TrainMonitor


class RlGamesLearner(LoopLearner):
    """rl_games' agent while it learns."""

    def __init__(self, agent: Any, env: GenelabRlGamesVecEnv, context: TrainContext[RlGamesAgentCfg]) -> None:
        self.agent = agent
        self.env = env
        self._context = context
        self._cfg = context.agent

    def learn(self, budget: int, monitor: TrainMonitor) -> None:
        """Collect and learn until the budget is spent."""
        agent = self.agent
        agent.init_tensors()
        agent.obs = agent.obs_to_tensors(self.env.seen())
        while agent.epoch_num * agent.horizon_length < budget:
            agent.update_epoch()
            _, collect, learn, _, a_losses, c_losses, _, entropies, kls, rate, _ = agent.train_epoch()
            agent.dataset.update_values_dict(None)
            agent.frame += agent.curr_frames
            losses = {"policy": a_losses, "value": c_losses, "entropy": entropies, "kl": kls}
            monitor.iteration(
                self,
                done=agent.epoch_num * agent.horizon_length,
                env_steps=agent.curr_frames,
                collect_seconds=collect,
                learn_seconds=learn,
                scalars={
                    **{f"Loss/{name}": torch.stack(values).mean().item() for name, values in losses.items()},
                    **agent.central_value_losses,
                    "Loss/learning_rate": rate,
                    "Policy/mean_std": agent.model.a2c_network.sigma.detach().exp().mean().item(),
                },
            )

    def save(self, path: Path) -> None:
        weights = self.agent.get_full_state_weights()
        save_atomically({**weights, "network": network_of(self._cfg), "genelab": self._context.meta()}, path)

    def inference(self) -> InferenceSetup:
        with torch.random.fork_rng():  # a network is born with random weights; the learner must not notice
            model = make_model(self.env.env, self._cfg)
        model.load_state_dict(self.agent.model.state_dict())
        return inference_of(model)

    def weights(self) -> dict[str, Tensor]:
        return self.agent.model.state_dict()

    def load_weights(self, content: dict[str, Any], path: Path) -> None:
        """Start from the networks and normalisers of a checkpoint."""
        check_network(content["network"], network_of(self._cfg), path)
        self.agent.model.load_state_dict(content["model"])
        if self.agent.has_central_value:
            self.agent.central_value_net.load_state_dict(content["assymetric_vf_nets"])

    def state(self) -> dict[str, Any]:
        return {
            "agent": self.agent.get_full_state_weights(),
            "learning_rate": self.agent.last_lr,
            "observations": {name: value.cpu() for name, value in self.env.observations.items()},
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on where an interrupted run stopped."""
        self.agent.set_full_state_weights(state["agent"])
        self.agent.last_lr = state["learning_rate"]
        self.env.observations = {name: value.to(self.env.env.device) for name, value in state["observations"].items()}
