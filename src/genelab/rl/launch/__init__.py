"""Trainings of several processes: many seeds (`seeds`, `ray`) and many ranks (`ranks`).

A launcher starts `genelab train` again in other processes (`process`), once the task has been looked at (`task`).
"""
