"""`genelab info`."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genelab.cli.command import TaskCommand, assets_option, echo, task_argument
from genelab.config import TASKS, check_out, iter_fields, write_out

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv
    from genelab.managers import Table
    from genelab.scene import Scene, SceneCfg


@click.command("info", cls=TaskCommand)
@task_argument
@click.option(
    "--play", "play", is_flag=True, help="Show the config for watching and judging, not the one for training."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option(
    "--mjcf",
    metavar="OUT",
    type=click.Path(path_type=Path),
    help="Write the whole world as MJCF to OUT: a file *.xml, or a directory or *.zip, with its meshes.",
)
@assets_option
@click.option("--terrain", metavar="FILE", type=click.Path(path_type=Path), help="Draw the ground into FILE, a PNG.")
def command(
    task: str,
    play: bool,
    as_json: bool,
    mjcf: Path | None,
    terrain: Path | None,
    assets: Sequence[Path],
    overrides: Mapping[str, Any],
) -> None:
    """Show what a task is made of: terms, widths, weights, and every config path with its type and default."""
    from genelab.envs import describe_physics, make_env, physics_changes
    from genelab.rl.config import configure
    from genelab.scene.pack import WORLD
    from genelab.sim.registry import AUTO

    cfg = TASKS.get(task)
    env_cfg = cfg.playing if play else cfg.env
    physics = physics_changes(cfg.playing, cfg.env)
    configure(env_cfg, cfg.agent, overrides)
    root = {"env": env_cfg} if cfg.agent is None else {"env": env_cfg, "agent": cfg.agent}
    paths = [(item.path, item.type, item.text) for item in iter_fields(root)]
    # Widths are the same for one environment as for thousands, and on every engine.
    env_cfg.scene.num_envs, env_cfg.simulation.engine, env_cfg.simulation.gpu = 1, AUTO, False
    for name, out in (("mjcf", mjcf if mjcf is None or mjcf.suffix else mjcf / WORLD), ("terrain", terrain)):
        if out is not None:
            check_out(out, name)
    if terrain is not None:
        _need_relief(task, env_cfg.scene)
    env = make_env(env_cfg)
    tables = _tables(env)
    if mjcf is not None:
        write_out(_mjcf(mjcf, env.scene, assets), "mjcf")
    if terrain is not None:
        write_out({terrain: _relief(task, env)}, "terrain")
    env.close()
    if as_json:
        echo(json.dumps(_json(task, physics, tables, paths), indent=2))
        return
    echo(f"{task}: {env_cfg.simulation.dt:g} s × {env_cfg.decimation} per control step ({1 / env.step_dt:g} Hz)")
    if physics:
        other = describe_physics(physics, "coarse" if play else "fine")
        echo(f"{'trained' if play else 'judged'} with {other}")
    for table in tables:
        if table.rows:
            echo(f"\n{table}")
    echo("\nconfig paths")
    for path, kind, value in paths:
        echo(f"  {path}: {kind} = {value}")
    if mjcf is not None:
        echo(f"\nMJCF written to {mjcf}")
    if terrain is not None:
        echo(f"\nground drawn into {terrain}")


def _tables(env: ManagerBasedEnv) -> list[Table]:
    names = ("observation", "action", "command", "reward", "termination", "event", "curriculum", "schedule", "metrics")
    managers = [getattr(env, f"{name}_manager", None) for name in names]
    return _world_tables(env) + [manager.table() for manager in managers if manager is not None]


def _mjcf(out: Path, scene: Scene, assets: Sequence[Path]) -> dict[Path, bytes]:
    """The files to write: the MJCF alone, which names its meshes where they are here, or all that it needs."""
    from genelab.scene.pack import pack

    if out.suffix and out.suffix.lower() != ".zip":
        return {out: scene.spec.to_xml().encode()}
    files = pack(scene.spec, [*scene.model_dirs, *assets])
    if out.suffix.lower() == ".zip":
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return {out: data.getvalue()}
    return {out / name: content for name, content in files.items()}


def _world_tables(env: ManagerBasedEnv) -> list[Table]:
    """What came in, and the options that it brought with it."""
    from genelab.managers import Table
    from genelab.scene import Articulation

    entities = []
    for name, entity in env.scene.entities.items():
        groups = entity.actuators if isinstance(entity, Articulation) else {}
        base = "fixed" if entity.is_fixed_base else "free"
        drives = ", ".join(f"{group} ({len(actuator.joint_ids)})" for group, actuator in groups.items())
        mass = f"{float(entity.body_mass.sum()):.4g}"
        entities.append((name, base, str(len(entity.body_names)), str(len(entity.joint_names)), mass, drives))
    options = [(name, str(option.value), option.source) for name, option in env.scene.options.items()]
    return [
        Table("Entities", ("name", "base", "bodies", "joints", "mass, kg", "actuators (joints)"), entities),
        Table("Options of the world", ("option", "value", "from"), [row for row in options if row[2] != "default"]),
    ]


def _json(task: str, physics: Any, tables: Sequence[Table], paths: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    terms = {table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in tables}
    return {
        "task": task,
        "physics": physics,
        **terms,
        "paths": [{"path": p, "type": t, "default": v} for p, t, v in paths],
    }


def _need_relief(task: str, scene: SceneCfg) -> None:
    from genelab.scene import PlaneCfg

    if scene.terrain is None or isinstance(scene.terrain, PlaneCfg):
        ground = "there is no ground" if scene.terrain is None else "its ground is a plane"
        raise click.UsageError(f"--terrain: {task} has no relief to draw: {ground}")


def _relief(task: str, env: ManagerBasedEnv) -> bytes:
    from genelab.scene import HeightField
    from genelab.scene.terrains import draw_relief

    assert isinstance(env.scene.terrain, HeightField)
    return draw_relief(env.scene.terrain, task)
