"""GeneLab: a laboratory for robot reinforcement learning.

Importing this package is cheap; torch and the simulators are imported by the modules that need them.
"""

import os

from genelab.config import TASKS, TaskCfg
from genelab.gymnasium_hook import register_when_imported

# Threads of torch that wait for each other sleep instead of spinning, if torch is not imported yet. Spinning ones take
# the cores from the physics, and beside another busy process they made training ten times slower; alone on the machine
# they are a tenth faster. The environment variable, if set, decides.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

__all__ = ["TASKS", "TaskCfg", "__version__"]

register_when_imported()
