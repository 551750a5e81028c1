"""Measurements of this project on the machine they run on. Ratios within one run are what to compare."""
