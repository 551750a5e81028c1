"""What works on this machine, what is missing, and the command that mends it.

Every check stands alone. What could hang, abort or take long to import is asked in another process (`probes`), so that
a broken package is a line and not a traceback.
"""

from genelab.doctor.checks import Check, base_works, examine

__all__ = ["Check", "base_works", "examine"]
