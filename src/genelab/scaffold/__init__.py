"""A project for a robot of one's own: what is found out about a model, and the files that are written from it."""

from genelab.scaffold.project import KINDS, Kind, project_files
from genelab.scaffold.survey import Survey, survey

__all__ = ["KINDS", "Kind", "Survey", "project_files", "survey"]
