"""Drills of faults: `python -m tests.faults` (docs/reliability.md)."""
