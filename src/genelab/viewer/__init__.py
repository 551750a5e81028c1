"""Looking at a task. Everything draws the one compiled MJCF, whichever engine steps it."""

from genelab.viewer.base import Onlooker
from genelab.viewer.film import Film, FilmCfg, parse_size

__all__ = ["Film", "FilmCfg", "Onlooker", "parse_size"]
