"""Runs and workloads in the formats of other systems: one file a format."""
