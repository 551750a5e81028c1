"""Unitree's legged robots: walking as commanded."""

from genelab.config import TASKS

for _robot, _kind in (("Go1", "A quadruped"), ("G1", "A humanoid")):
    for _ground in ("Flat", "Rough"):
        TASKS.register(
            f"Genelab-Velocity-{_ground}-Unitree-{_robot}-v0",
            f"genelab_unitree.{_robot.lower()}:{_ground.lower()}_task",
            description=f"{_kind} walks as commanded on {_ground.lower()} ground.",
            robot=f"Unitree {_robot}",
            backend="rsl_rl PPO",
        )
