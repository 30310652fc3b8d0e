"""Outputs against the float64 reference, before anything is timed."""
