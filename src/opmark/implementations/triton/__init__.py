"""Kernels written in Triton, launched on torch tensors.

They stand in modules of their own (`_kernels_*`), since a kernel is read from its source, with `triton` and its language
as names of its module. These are imported where a launch is built.
"""
