"""One side of `benchmarks.before_after`: `python -P turns.py step|training TASK NUM_ENVS STEPS`.

Whatever checkout of genelab is on the path, it makes a turn for each line that it is sent, and answers with the control
steps that it made and the seconds they took. It uses what all checkouts have had.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Turn = tuple[int, float]
"""Control steps of all environments, and seconds."""


def stepping(task: str, num_envs: int, steps: int, wait: Callable[[], None]) -> Iterator[Turn]:
    """Turns of `env.step` with random actions, as the task is trained."""
    import torch

    from genelab import TASKS
    from genelab.envs import ManagerBasedRlEnv
    from genelab.rl.backends import select_backend

    known: Any = TASKS.get(task)
    known.env.scene.num_envs, known.env.seed = num_envs, 0
    env = ManagerBasedRlEnv(known.env)
    env.shows_final_obs = getattr(select_backend(known.agent), "reads_final_obs", True)
    torch.manual_seed(0)
    actions = 2 * torch.rand(steps, num_envs, env.action_dim) - 1
    env.reset(seed=0)
    while True:
        wait()
        start = time.perf_counter()
        with torch.inference_mode():
            for action in actions:
                env.step(action)
        yield steps * num_envs, time.perf_counter() - start


def training(task: str, num_envs: int, answer: Callable[[Turn], None], wait: Callable[[], None]) -> None:
    """Turns of an iteration: collecting and learning."""
    from genelab.rl import train_task

    made, start = 0, time.perf_counter()

    def report(progress: Any) -> None:
        nonlocal made, start
        answer((progress.env_steps - made, time.perf_counter() - start))
        made = progress.env_steps
        wait()
        start = time.perf_counter()

    wait()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as home:
        options: dict[str, Any] = {"num_envs": num_envs, "max_iterations": 10**9, "seed": 0}
        train_task(task, **options, log_dir=Path(home) / "run", report=report)


def main() -> None:
    """Answer until nobody asks any more."""
    what, task, num_envs, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever else is printed is no answer

    def answer(told: object) -> None:
        print(json.dumps(told), file=answers, flush=True)

    def wait() -> None:
        if not sys.stdin.readline():
            sys.exit()

    import genelab

    answer(str(Path(genelab.__file__).parent.parent))
    if what == "training":
        training(task, num_envs, answer, wait)
    for turn in stepping(task, num_envs, steps, wait):
        answer(turn)


if __name__ == "__main__":
    main()
