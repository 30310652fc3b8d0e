"""Runs in the parent process: selects cases, plans tasks, supervises workers and passes on their records.

Called `runner` and not `run`, because `opmark.run(...)` is the function that people call.
"""
