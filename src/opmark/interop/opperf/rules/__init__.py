"""benchmark.opperf.rules: which inputs operators have by default."""
