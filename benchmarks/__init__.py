"""Measurements of this project on the machine they run on. Ratios within one run are what to compare."""

import genelab  # noqa: F401  before torch, whose threads would take cores from the physics
