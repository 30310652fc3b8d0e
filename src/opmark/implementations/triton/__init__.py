"""Kernels written in Triton, launched on torch tensors.

They are in modules of their own (`_kernels_*`), which are imported when a launch is built: Triton reads a kernel from
its source, which needs `triton` and its language as names of the module and which no type checker understands.
"""
