"""What `make demo` did, as a table: `python -m benchmarks.demo RUN`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(run: Path) -> None:
    """Print a line for each step of the demo."""
    training, evaluation, export = (_read(run / name) for name in ("run.json", "eval.json", "policy.ts.metadata.json"))
    metrics, episodes = evaluation["metrics"], evaluation["num_episodes"]
    size = (run / "policy.ts").stat().st_size
    print(f"""
| step   | result |
|--------|--------|
| train  | {training["env_steps"]:,} steps in {training["wall_seconds"]:.0f} s on {training["engine"]} |
| eval   | return {metrics["return_mean"]:.2f} ± {metrics["return_std"]:.2f} of 40 in {episodes} episodes |
| export | {run / "policy.ts"}, {size / 1024:.0f} kB, {export["parity"]["max_abs_error"]:.0e} from the live policy |
""")


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
