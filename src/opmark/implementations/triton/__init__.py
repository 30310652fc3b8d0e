"""Triton: kernels of our own, as neighbours of what torch has."""
