"""The parent's side of tasks that several processes do together, on one host or on many.

A `RankGroup` (`group`) sends commands to all ranks and makes one record of their replies; `rank_process` is the
parent's end of each rank's process, and `launcher` says where the processes come from. `worker/ranks/` runs inside of
them.

Under torchrun, Slurm or mpirun (`job`) every rank has a parent of its own. The parent of rank 0 waits for the others
and drives their workers; each of the others is an `agent`. `connection` has the messages between them, and
`authentication` the proof that they belong together.
"""
