"""Compares outputs with the float64 reference, before anything is timed."""
