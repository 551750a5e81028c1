"""Many trainings that look for better settings: what is searched (`space`), for what (`objective`), the file that
remembers it (`study`), and the loop that starts trainings and learns from them (`search`).

It stands on Optuna, the extra `sweep`; nothing here imports it before a study is opened.
"""

from genelab.rl.sweep.objective import Objective
from genelab.rl.sweep.search import SweepResult, resume_sweep, sweep_task
from genelab.rl.sweep.study import STUDY_FILE, SweepSettings, Trial, read_study

__all__ = [
    "STUDY_FILE",
    "Objective",
    "SweepResult",
    "SweepSettings",
    "Trial",
    "read_study",
    "resume_sweep",
    "sweep_task",
]
