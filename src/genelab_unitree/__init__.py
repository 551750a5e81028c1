"""Unitree's legged robots: walking and following a motion. Source of the published settings: docs/sources.md."""

from genelab.config import TASKS

TASKS.register(
    "Genelab-Velocity-Flat-Unitree-Go1-v0",
    "genelab_unitree.go1:flat_task",
    description="A quadruped walks as commanded on flat ground.",
    robot="Unitree Go1",
    backend="rsl_rl PPO",
    published="genelab_unitree.go1:published_flat_task",
)
TASKS.register(
    "Genelab-Velocity-Rough-Unitree-Go1-v0",
    "genelab_unitree.go1:rough_task",
    description="A quadruped walks as commanded on rough ground.",
    robot="Unitree Go1",
    backend="rsl_rl PPO",
    published="genelab_unitree.go1:published_rough_task",
)
TASKS.register(
    "Genelab-Velocity-Flat-Unitree-G1-v0",
    "genelab_unitree.g1:flat_task",
    description="A humanoid walks as commanded on flat ground.",
    robot="Unitree G1",
    backend="rsl_rl PPO",
    published="genelab_unitree.g1:published_flat_task",
)
TASKS.register(
    "Genelab-Velocity-Rough-Unitree-G1-v0",
    "genelab_unitree.g1:rough_task",
    description="A humanoid walks as commanded on rough ground.",
    robot="Unitree G1",
    backend="rsl_rl PPO",
    published="genelab_unitree.g1:published_rough_task",
)
TASKS.register(
    "Genelab-Velocity-Flat-Unitree-Go2W-v0",
    "genelab_unitree.go2w:flat_task",
    description="A quadruped on wheels rolls and steps as commanded on flat ground.",
    robot="Unitree Go2-W",
    backend="rsl_rl PPO",
    published="genelab_unitree.go2w:published_flat_task",
)
TASKS.register(
    "Genelab-Velocity-Flat-Unitree-Go2W-CrabStage1-v0",
    "genelab_unitree.go2w:stage_1_task",
    description="A quadruped on wheels steps as commanded on flat ground, its wheels locked.",
    robot="Unitree Go2-W",
    backend="rsl_rl PPO",
    published="genelab_unitree.go2w:published_stage_1_task",
)
TASKS.register(
    "Genelab-Tracking-Flat-Unitree-G1-v0",
    "genelab_unitree.tracking:flat_task",
    description="A humanoid follows a motion on flat ground.",
    robot="Unitree G1",
    backend="rsl_rl PPO",
    published="genelab_unitree.tracking:published_flat_task",
)
TASKS.register(
    "Genelab-Tracking-Flat-Unitree-G1-No-State-Estimation-v0",
    "genelab_unitree.tracking:flat_task_without_state_estimation",
    description="A humanoid follows a motion on flat ground and does not know its place and speed.",
    robot="Unitree G1",
    backend="rsl_rl PPO",
    published="genelab_unitree.tracking:published_flat_task_without_state_estimation",
)
