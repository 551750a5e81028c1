"""Campaigns that try to break the command line: mutated words, bad files, kill -9. Each is one command with a seed.

    python -m benchmarks.campaigns.command_lines --seed 1 --count 1000
    python -m benchmarks.campaigns.bad_files --seed 1 --count 500
    python -m benchmarks.campaigns.kills --seed 1 --count 200 --dir kills

The promise they hold the lab to: exit codes are 0, 1, 2 or 130; no traceback; no file is touched outside of the working
directory; no code in a file is run; Ctrl-C ends whatever goes on; a killed run loses nothing and resumes bit for bit.
"""
