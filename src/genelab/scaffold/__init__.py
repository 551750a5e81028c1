"""A project for a robot of one's own: what is found out about a model, and the files that are written from it."""

from genelab.scaffold.project import KINDS, findings, project_files, task_id
from genelab.scaffold.survey import Kind, Survey, survey

__all__ = ["KINDS", "Kind", "Survey", "findings", "project_files", "survey", "task_id"]
