"""How long the command takes to answer, against `import torch`: `python -m benchmarks.startup`."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

GENELAB = str(Path(sys.executable).with_name("genelab"))
COMMANDS = {
    "import torch": [sys.executable, "-c", "import torch"],
    "genelab list": [GENELAB, "list"],
    "genelab info": [GENELAB, "info", "GeneLab-Inverted-Pendulum-v0"],
    "genelab play --steps 128": [GENELAB, "play", "GeneLab-Inverted-Pendulum-v0", "--steps", "128"],
}


def measure_commands(rounds: int) -> dict[str, float]:
    """Seconds of each command, the median of some rounds in which they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    """Print how long each command takes, and its ratio to the import."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    seconds = measure_commands(parser.parse_args().rounds)
    print("| command | seconds | ratio to import torch |")
    print("|---|---|---|")
    for name, time_taken in seconds.items():
        print(f"| {name} | {time_taken:.2f} | {time_taken / seconds['import torch']:.2f} |")


if __name__ == "__main__":
    main()
