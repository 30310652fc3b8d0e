"""Kernels written in Triton, launched on torch tensors.

They stand in modules of their own (`_kernels_*`): Triton reads a kernel from its source, with `triton` and its language
as names of the module, in a language that no type checker knows. These are imported where a launch is built.
"""
