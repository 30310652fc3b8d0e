"""benchmark.opperf.utils: the functions that measure single operators."""
