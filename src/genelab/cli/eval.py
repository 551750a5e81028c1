"""`genelab eval`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from genelab.cli.command import TaskCommand, import_modules, say, shortcut_overrides, simulation_options, task_argument
from genelab.config import Override


@click.command("eval", cls=TaskCommand)
@task_argument
@click.argument("checkpoint", metavar="CKPT", type=click.Path(path_type=Path))
@click.option("--num-envs", type=click.IntRange(min=1), default=64, help="Environments side by side [64].")
@click.option("--episodes", type=click.IntRange(min=1), default=100, help="Episodes in all [100].")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the evaluation [0].")
@click.option("--deterministic/--stochastic", default=True, help="The policy's mean, or samples [deterministic].")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), default=Path("eval.json"), help="[eval.json]")
@click.option("--max-steps", type=click.IntRange(min=1), help="Stop after this many control steps.")
@simulation_options
def command(
    task: str,
    imports: Sequence[str],
    checkpoint: Path,
    num_envs: int,
    episodes: int,
    seed: int,
    deterministic: bool,
    out: Path,
    max_steps: int | None,
    overrides: Sequence[Override],
    **options: Any,
) -> None:
    """Judge the policy of a checkpoint by full episodes, a fixed number from each environment."""
    changes = [*shortcut_overrides(options), *overrides]
    import_modules(imports)
    from genelab.rl import evaluate_task

    report = evaluate_task(
        task,
        checkpoint,
        num_envs=num_envs,
        episodes=episodes,
        seed=seed,
        deterministic=deterministic,
        max_steps=max_steps,
        overrides=changes,
        out=out,
        notify=say,
    )
    metrics = report["metrics"]
    success = metrics["success_rate"]
    click.echo(f"{report['task']}: {report['num_episodes']} episodes on {report['engine']}, seed {seed}")
    click.echo(f"return  {metrics['return_mean']:.3f} ± {metrics['return_std']:.3f}")
    click.echo(f"length  {metrics['length_mean']:.1f} ± {metrics['length_std']:.1f} steps")
    click.echo(f"success {'not published by this task' if success is None else f'{success:.1%}'}")
    click.echo(f"written to {out} after {report['wall_clock_seconds']:.1f} s")
