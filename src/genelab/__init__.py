"""GeneLab: a laboratory for robot reinforcement learning.

Importing this package is cheap; torch and the simulators are imported by the modules that need them.
"""

from genelab.config import TASKS, TaskCfg
from genelab.gymnasium_hook import register_when_imported

__version__ = "0.1.0"

__all__ = ["TASKS", "TaskCfg", "__version__"]

register_when_imported()
