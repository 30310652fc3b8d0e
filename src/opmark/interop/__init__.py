"""Thin front ends: the command lines and Python calls of other systems, measured by opmark."""
