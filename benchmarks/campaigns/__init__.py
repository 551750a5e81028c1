"""Campaigns that try to break the command line: mutated words, bad files, kill -9. Each is one command with a seed.

    python -m benchmarks.campaigns.command_lines --seed 1 --tries 2000
    python -m benchmarks.campaigns.bad_files --seed 1 --tries 600
    python -m benchmarks.campaigns.kills --seed 1 --tries 100 --dir kills

All verbs are covered: deploy, motion, sweep, new-task, doctor and the export targets beside train, play, eval, export,
report and benchmark. `--only WORD` tries the commands with a word alone, a verb or a target; of kills, one job. Each
try has a number, and `--first N --tries 1 -v` repeats it. At the end a table has by verb the tries, their exit codes,
tracebacks, code that was run and files that were changed outside.

The promise they hold the lab to: exit codes are 0, 1, 2 or 130; no traceback; no file is touched outside of the working
directory; no code in a file is run; Ctrl-C ends whatever goes on; a killed run loses nothing and resumes bit for bit, a
killed sweep goes on, and a killed export or new task can be made by the same command.

Words and files are tried in forked children, as root on Linux in a mount namespace of their own where only the working
directory can be written.
"""
