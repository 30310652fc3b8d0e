"""Runs in a worker process: prepares a task, verifies it, measures it and makes its record."""
