"""What opmark itself costs: `python -m benchmarks`, or `make bench`."""
