"""Where the packages meet: plan, worker processes, sessions.

Called `runner` and not `run`, because `opmark.run(...)` is the function that people call.
"""
