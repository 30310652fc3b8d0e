"""The judge of a kernel: clock, inputs, reference and verdict are in one process, the candidate is in another one."""
