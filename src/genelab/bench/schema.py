"""What a benchmark leaves: four bundles of plain numbers. Importing them imports neither torch nor a simulator.

A bundle carries its own versions and hardware, so that a file can be read alone. What is unknown is None, `null` in the
file; so is what a run that crashed or was interrupted did not come to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

SCHEMA_VERSION = 1
"""Grows when a field changes its meaning or goes; a new field, which must have a default, does not change it."""

Status = Literal["completed", "interrupted", "crashed"]
Scalar = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class MeanStd:
    """A mean with its spread. Of a rate, the mean is the work of all samples over the time of all samples."""

    mean: float
    std: float
    """Of the samples, with n − 1; 0 for fewer than two."""
    peak: float | None = None
    """The largest sample."""


@dataclass(frozen=True, kw_only=True)
class GpuDeviceInfo:
    """One GPU."""

    name: str
    mem_gb: float
    """Memory of the device, 10⁹ bytes."""
    compute_cap: str
    """CUDA compute capability, for example 8.9."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The machine."""

    hostname: str
    gpu_devices: tuple[GpuDeviceInfo, ...]
    """None of them: an empty list."""
    cpu_name: str
    cpu_count: int | None
    """Physical cores."""
    ram_gb: float
    """Memory of the machine, 10⁹ bytes."""


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The software; null for what is not installed."""

    genelab: str
    torch: str
    numpy: str | None = None
    mujoco: str | None = None
    genesis: str | None = None
    rsl_rl: str | None = None
    rl_games: str | None = None
    skrl: str | None = None
    sb3: str | None = None
    git_commit: str | None = None
    """Of the directory that the benchmark was started in; null outside a repository."""
    git_branch: str | None = None
    git_dirty: bool | None = None
    """Whether it had changes that were not committed."""
    packages: dict[str, str | None] = field(default_factory=dict)
    """What engines and RL libraries that plugins brought run on, by distribution."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What was chosen."""

    physics_backend: str
    """The engine that was used, whatever `auto` was asked for: mujoco, genesis or one that a plugin brought."""
    rendering_backend: str = "none"
    """What drew pictures."""
    overrides: tuple[str, ...] = ()
    """Changes of the task's config, as path=value."""
    device: str | None = None
    """Where the tensors were: cpu or cuda."""
    algorithm: str | None = None
    """What the RL library learns with, or learned with: PPO, SAC, …; null where none is involved or it does not say."""
    budget_unit: str | None = None
    """What the library's own budget counts, iterations or timesteps; null where nothing is learned."""


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """Which run it was, and how it ended."""

    run_id: str
    """{framework or workflow}_{physics}_{task}_{stamp}_seed{seed}."""
    framework: str | None
    """The RL library: rsl_rl, rl_games, skrl, sb3 or one that a plugin brought; null where none is involved."""
    config: RunConfig
    task: str
    seed: int
    """The seed in use, drawn if none was given."""
    start_time_utc: str
    end_time_utc: str
    duration_s: float
    """From start to end, everything included."""
    status: Status
    num_envs: int
    """Environments side by side."""
    max_iterations: int | None = None
    """Learning iterations asked for; null where nothing is learned."""


@dataclass(frozen=True, kw_only=True)
class StartupTime:
    """How long the phases of the start took, s."""

    app_launch: float | None
    """Starting the physics engine."""
    env_creation: float | None
    """Building the environment and its first reset."""
    first_step: float | None
    """The first control step."""
    python_imports: float | None = None
    """Importing torch, the environments and the RL library."""
    task_config: float | None = None
    """Making the task's config."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentStepTiming:
    """Where the time of `env.step` goes."""

    environment_step_time_s: MeanStd
    environment_step_fps: MeanStd
    """Control steps of all environments per second of `env.step`."""
    simulation_step_time_s: MeanStd | None = None
    """The part of a control step that the engine takes."""
    outside_simulation_step_time_s: MeanStd | None = None
    """The rest: actions, rewards, observations, resets."""
    outside_simulation_step_fraction: float | None = None
    """The rest over the whole."""
    environment_step_calls: int
    simulation_step_calls: int | None = None
    """Calls of the engine; one may run several physics steps."""
    measurement_mode: Literal["host_return", "serialized_synchronized"]
    """Whether the clock waited for the device, which a GPU needs to be honest, or for the call alone."""
    warmup_steps: int
    """Control steps before the measured ones."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How fast it was. An iteration is a control step, or, in training, a rollout and the update from it.

    The first iteration of a training, in which everything is cold, is not measured if there is another.
    """

    startup_time_s: StartupTime
    iterations_completed: int
    """All of them, measured or not."""
    total_wall_time_s: float
    """From the first measured iteration to the end of the last."""
    steps_per_iteration: int
    """Control steps of all environments together."""
    iteration_time_s: MeanStd | None
    collection_fps: MeanStd | None
    """Control steps per second of collecting: `env.step` (runtime), policy and step (play), and storage (training)."""
    total_fps: MeanStd | None
    """Control steps per second of everything in an iteration."""
    iterations_per_s: MeanStd | None
    environment_step_timing: EnvironmentStepTiming | None = None


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What the process took, sampled every second once the first step was made."""

    gpu_util_pct: MeanStd | None = None
    cpu_util_pct: MeanStd | None = None
    """100 is one core; null for less than 0.1 s."""
    gpu_mem_gb: MeanStd | None = None
    """Reserved by torch in this process, 10⁹ bytes; what the engine itself allocates is not in it."""
    ram_gb: MeanStd | None = None
    """Of this process, 10⁹ bytes."""


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """A number as it changed over the iterations."""

    final_raw: float
    """After the last iteration that has one."""
    final_ema: float
    """The same, smoothed."""
    series_per_iter: tuple[float | None, ...] | None = None
    """After each iteration, null where there was none yet; null as a whole if it was not wanted."""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What was learned."""

    ema_alpha: float
    """Weight of the newest value in the smoothed one."""
    reward: LearningCurve | None = None
    """Mean return of the last 100 episodes."""
    ep_length: LearningCurve | None = None
    """Mean length of the last 100 episodes, control steps."""
    success_rate: LearningCurve | None = None
    """Share of the iteration's episodes that succeeded; null if the task publishes no `is_success`."""


@dataclass(frozen=True, kw_only=True)
class CProfileFunction:
    """A function in a profile."""

    name: str
    """module:function; functions of one name in one module, as methods of several classes, are one."""
    own_time_s: float
    cum_time_s: float
    """With what it called; of functions of one name that call each other, the inner one counts twice."""
    calls: int


@dataclass(frozen=True, kw_only=True)
class StartupPhase:
    """A phase of the start, under the profiler."""

    total_time_s: float
    top_functions: tuple[CProfileFunction, ...]
    """By own time, largest first; with a whitelist, what it names."""


@dataclass(frozen=True, kw_only=True)
class StartupConfig:
    """What was kept of the profiles."""

    top_n: int
    whitelist: dict[str, tuple[str, ...]] | None = None
    """Patterns of module:function, by phase."""


@dataclass(frozen=True, kw_only=True)
class RuntimeBundle:
    """How fast a task steps with random actions."""

    run: RunIdentity
    versions: Versions
    hardware: Hardware
    runtime: Runtime
    resources: Resources
    extra: dict[str, Scalar] = field(default_factory=dict)
    """Outside the contract."""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, kw_only=True)
class StartupBundle:
    """Where the time goes until a task has made its first step."""

    run: RunIdentity
    versions: Versions
    hardware: Hardware
    phases: dict[str, StartupPhase]
    """python_imports, task_config, app_launch, env_creation, first_step, in their order."""
    config: StartupConfig
    extra: dict[str, Scalar] = field(default_factory=dict)
    """Outside the contract."""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, kw_only=True)
class TrainingBundle:
    """How fast a task trains, and what is learned meanwhile."""

    run: RunIdentity
    versions: Versions
    hardware: Hardware
    runtime: Runtime
    resources: Resources
    learning: Learning
    success_rate: float | None = None
    """Share of the last window's episodes that succeeded; null if the task publishes no `is_success`."""
    checkpoint_path: str | None = None
    """The last checkpoint."""
    video_path: str | None = None
    extra: dict[str, Scalar] = field(default_factory=dict)
    """Outside the contract."""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, kw_only=True)
class PlayBundle:
    """How fast a trained policy acts, and how good it is.

    Episodes are the first ones of every environment, as many from each; null if not every one ended for certain.
    """

    run: RunIdentity
    versions: Versions
    hardware: Hardware
    runtime: Runtime
    resources: Resources
    success_rate: float | None = None
    """Share of the episodes that succeeded; null if the task publishes no `is_success`."""
    reward: MeanStd | None = None
    """Return of an episode."""
    ep_length: MeanStd | None = None
    """Length of an episode, control steps."""
    checkpoint_path: str | None = None
    video_path: str | None = None
    extra: dict[str, Scalar] = field(default_factory=dict)
    """Outside the contract."""
    schema_version: int = SCHEMA_VERSION


Bundle = RuntimeBundle | StartupBundle | TrainingBundle | PlayBundle
BUNDLES: dict[str, type[Bundle]] = {
    "runtime": RuntimeBundle,
    "startup": StartupBundle,
    "training": TrainingBundle,
    "play": PlayBundle,
}
"""The bundle of each workflow."""


def workflow_of(bundle: Bundle) -> str:
    """The name of the workflow that leaves such a bundle."""
    return next(name for name, kind in BUNDLES.items() if isinstance(bundle, kind))
