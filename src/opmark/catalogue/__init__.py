"""Workload files in, cases out."""
