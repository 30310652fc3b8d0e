"""The catalogue, one file per family. Every module here that has `OPERATORS` is found; there is no list of them.

A reference takes and returns NumPy arrays (float64 for floating-point inputs) and is never timed. A framework is
imported only inside the function that builds its launch, so that two implementations can never share a name.
"""
