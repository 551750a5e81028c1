"""Balance one pole on a cart.

Source of what is called published: docs/sources.md.
"""

from __future__ import annotations

from genelab import mdp
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import part, reward, termination
from genelab.rl.config import (
    RslRlDistributionCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    RslRlSymmetryCfg,
    SkrlAgentCfg,
)
from genelab_pendulum.common import CART, mirror, pendulum_env, ppo, published_ppo, push
from genelab_pendulum.robots import single_pendulum_cfg

POLE = part(joints=("pole",))


def env_cfg() -> ManagerBasedRlEnvCfg:
    """Ten seconds; the most there is to earn is 40."""
    cfg = pendulum_env(single_pendulum_cfg(), tip="pole", spacing=2.5, episode_length_s=10.0)
    cfg.rewards = {
        "alive": reward(mdp.is_alive, 1.0),
        "upright": reward(mdp.joint_cos, 3.0, asset=POLE),
        "pole_position": reward(mdp.joint_pos_l2, -0.5, asset=POLE),
        "cart_position": reward(mdp.joint_pos_l2, -0.05, asset=CART),
        "cart_velocity": reward(mdp.joint_vel_l2, -0.005, asset=CART),
        "pole_velocity": reward(mdp.joint_vel_l2, -0.01, asset=POLE),
        "action_rate": reward(mdp.action_rate_l2, -0.005),
    }
    cfg.terminations["pole_fell"] = termination(mdp.joint_pos_beyond, bound=0.4, asset=POLE)
    cfg.events["push_cart"] = push(0.5, (2.0, 5.0))
    return cfg


def ppo_cfg() -> RslRlOnPolicyRunnerCfg:
    """PPO on two layers of 128; 20 iterations of 256 environments solve it, published are 150 of 4096."""
    return RslRlOnPolicyRunnerCfg(
        experiment_name="inverted_pendulum_flat",
        max_iterations=20,
        num_steps_per_env=24,
        save_interval=10,
        actor=RslRlModelCfg(hidden_dims=(128, 128), activation="elu", distribution=RslRlDistributionCfg(init_std=1.0)),
        critic=RslRlModelCfg(hidden_dims=(128, 128), activation="elu"),
        # Networks that are their own mirror image, as a cart with a pole on it is.
        algorithm=ppo(RslRlSymmetryCfg(data_augmentation_func=mirror, equivariant=True)),
    )


def skrl_cfg() -> SkrlAgentCfg:
    """The same with skrl, at the published budget of 200 iterations."""
    return SkrlAgentCfg(
        experiment_name="inverted_pendulum_flat",
        algorithm="PPO",
        timesteps=4800,
        rollouts=24,
        hidden_dims=(128, 128),
        activation="elu",
        learning_rate=1e-3,
        kl_threshold=0.01,
        learning_epochs=5,
        mini_batches=4,
        discount_factor=0.99,
        gae_lambda=0.95,
        ratio_clip=0.2,
        entropy_loss_scale=0.005,
        value_loss_scale=1.0,
        grad_norm_clip=1.0,
        initial_std=1.0,
    )


def task() -> TaskCfg:
    """GeneLab-Inverted-Pendulum-v0."""
    env = env_cfg()
    return TaskCfg(env=env, play_env=play_cfg(env), agent=ppo_cfg())


def skrl_task() -> TaskCfg:
    """GeneLab-Inverted-Pendulum-Skrl-v0."""
    env = env_cfg()
    return TaskCfg(env=env, play_env=play_cfg(env), agent=skrl_cfg())


def published_task() -> TaskCfg:
    """GeneLab-Inverted-Pendulum-v0@published."""
    env = env_cfg()
    env.scene.num_envs = 4096
    return TaskCfg(
        env=env,
        play_env=play_cfg(env),
        agent=published_ppo("inverted_pendulum_flat", 150, (128, 128), save_interval=25),
    )


def published_skrl_task() -> TaskCfg:
    """GeneLab-Inverted-Pendulum-Skrl-v0@published."""
    env = env_cfg()
    env.scene.num_envs = 4096
    return TaskCfg(env=env, play_env=play_cfg(env), agent=skrl_cfg())
