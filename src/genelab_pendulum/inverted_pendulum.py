"""Balance one pole on a cart."""

from __future__ import annotations

from genelab import mdp
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import RewardTermCfg, SceneEntityCfg, TerminationTermCfg
from genelab.rl.config import RslRlDistributionCfg, RslRlModelCfg, RslRlOnPolicyRunnerCfg, SkrlAgentCfg
from genelab_pendulum.common import CART, equivariant_ppo, pendulum_env, push
from genelab_pendulum.robots import single_pendulum_cfg

POLE = SceneEntityCfg(joint_names=("pole",))


def env_cfg() -> ManagerBasedRlEnvCfg:
    """Ten seconds; the most there is to earn is 40."""
    cfg = pendulum_env(single_pendulum_cfg(), tip="pole", spacing=2.5, episode_length_s=10.0)
    cfg.rewards = {
        "alive": RewardTermCfg(func=mdp.is_alive, weight=1.0),
        "upright": RewardTermCfg(func=mdp.joint_cos, weight=3.0, params={"asset": POLE}),
        "pole_position": RewardTermCfg(func=mdp.joint_pos_l2, weight=-0.5, params={"asset": POLE}),
        "cart_position": RewardTermCfg(func=mdp.joint_pos_l2, weight=-0.05, params={"asset": CART}),
        "cart_velocity": RewardTermCfg(func=mdp.joint_vel_l2, weight=-0.005, params={"asset": CART}),
        "pole_velocity": RewardTermCfg(func=mdp.joint_vel_l2, weight=-0.01, params={"asset": POLE}),
        "action_rate": RewardTermCfg(func=mdp.action_rate_l2, weight=-0.005),
    }
    cfg.terminations["pole_fell"] = TerminationTermCfg(func=mdp.joint_pos_beyond, params={"bound": 0.4, "asset": POLE})
    cfg.events["push_cart"] = push(0.5, (2.0, 5.0))
    return cfg


def ppo_cfg() -> RslRlOnPolicyRunnerCfg:
    """PPO on two layers of 128; 20 iterations of 256 environments solve it, published are 150 of 4096."""
    return RslRlOnPolicyRunnerCfg(
        experiment_name="inverted_pendulum_flat",
        max_iterations=20,
        save_interval=10,
        actor=RslRlModelCfg(hidden_dims=(128, 128), distribution=RslRlDistributionCfg()),
        critic=RslRlModelCfg(hidden_dims=(128, 128)),
        algorithm=equivariant_ppo(),
    )


def task() -> TaskCfg:
    """GeneLab-Inverted-Pendulum-v0."""
    env = env_cfg()
    return TaskCfg(env=env, play_env=play_cfg(env), agent=ppo_cfg())


def skrl_task() -> TaskCfg:
    """GeneLab-Inverted-Pendulum-Skrl-v0."""
    env = env_cfg()
    agent = SkrlAgentCfg(experiment_name="inverted_pendulum_flat", timesteps=4800)
    return TaskCfg(env=env, play_env=play_cfg(env), agent=agent)
