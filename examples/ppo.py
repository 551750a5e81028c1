"""PPO in one file on `gymnasium.make_vec`, in the manner of CleanRL: `python examples/ppo.py`.

Nothing of genelab's own learning is used: an environment of arrays, a network, and the update.
"""

from __future__ import annotations

import genelab  # isort: skip  # noqa: F401  before torch, whose threads would spin otherwise

import argparse

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Normal


def layer(width: int, out: int, gain: float = 2**0.5) -> nn.Linear:
    """A linear layer with orthogonal weights."""
    linear = nn.Linear(width, out)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    """A Gaussian policy and a value."""

    def __init__(self, width: int, actions: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(layer(width, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, actions, gain=0.01))
        self.critic = nn.Sequential(layer(width, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, gain=1.0))
        self.log_std = nn.Parameter(torch.zeros(actions))

    def policy(self, observation: torch.Tensor) -> Normal:
        """What it would do."""
        return Normal(self.actor(observation), self.log_std.exp())

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """What it expects."""
        return self.critic(observation)[:, 0]


def train(task: str, num_envs: int, steps: int, iterations: int, seed: int = 0) -> list[float]:
    """Train, and return the mean return of the episodes that ended in each iteration."""
    torch.manual_seed(seed)
    env = gymnasium.make_vec(task, num_envs=num_envs, numpy=True, group="policy")
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(env)
    agent = Agent(env.single_observation_space.shape[0], env.single_action_space.shape[0])
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    gamma, gae, clip = 0.99, 0.95, 0.2
    seen = torch.as_tensor(env.reset(seed=seed)[0])
    curve: list[float] = []
    for iteration in range(iterations):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (1 - iteration / iterations)
        rows: list[tuple[torch.Tensor, ...]] = []
        returns: list[float] = []
        for _ in range(steps):
            with torch.no_grad():
                policy, value = agent.policy(seen), agent.value(seen)
                action = policy.sample()
            observation, reward, terminated, truncated, info = env.step(action.numpy())
            done = torch.as_tensor(terminated | truncated).float()
            paid = torch.as_tensor(reward)
            if truncated.any():  # an episode that was cut off keeps the value of its last state
                with torch.no_grad():
                    last = torch.as_tensor(np.stack(info["final_obs"][truncated]))
                    paid[torch.as_tensor(truncated)] += gamma * agent.value(last)
            if "episode" in info:
                returns += info["episode"]["r"][info["_episode"]].tolist()
            rows.append((seen, action, policy.log_prob(action).sum(1), value, paid, done))
            seen = torch.as_tensor(observation)
        observations, actions, log_probs, values, rewards, dones = map(torch.stack, zip(*rows, strict=True))
        advantages, last = torch.zeros_like(rewards), torch.zeros(num_envs)
        with torch.no_grad():
            following = agent.value(seen)
        for t in reversed(range(steps)):
            delta = rewards[t] + gamma * following * (1 - dones[t]) - values[t]
            advantages[t] = last = delta + gamma * gae * (1 - dones[t]) * last
            following = values[t]
        targets = advantages + values
        flat = [part.flatten(0, 1) for part in (observations, actions, log_probs, advantages, targets)]
        for _ in range(5):
            for batch in torch.randperm(steps * num_envs).chunk(4):
                seen_b, action_b, log_prob_b, advantage_b, target_b = (part[batch] for part in flat)
                policy = agent.policy(seen_b)
                ratio = (policy.log_prob(action_b).sum(1) - log_prob_b).exp()
                advantage_b = (advantage_b - advantage_b.mean()) / (advantage_b.std() + 1e-8)
                surrogate = torch.min(ratio * advantage_b, ratio.clamp(1 - clip, 1 + clip) * advantage_b)
                loss = -surrogate.mean() + 0.5 * (agent.value(seen_b) - target_b).square().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        if returns:
            curve.append(float(np.mean(returns)))
            print(f"iteration {iteration + 1}: return {curve[-1]:.2f} of {len(returns)} episodes", flush=True)
    env.close()
    return curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="GeneLab-Inverted-Pendulum-v0")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    train(**vars(parser.parse_args()))
