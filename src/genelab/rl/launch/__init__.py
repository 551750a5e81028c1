"""Trainings of several processes: many seeds (`seeds`, `ray`) and many ranks (`ranks`).

A launcher starts the command line that it is given in other processes (`process`), once the task has been looked at
(`task`).
"""
