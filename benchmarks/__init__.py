"""Benchmarks of opmark itself: `python -m benchmarks`, or `make bench`."""
