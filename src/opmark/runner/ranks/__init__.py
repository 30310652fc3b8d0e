"""Tasks that several processes do together, on one host or on many: in step, and never waiting for ever.

In each rank's process: `execute` makes a record of a task, `agree` keeps the ranks in step, `check` verifies,
`measuring` and `overlap` time. In the parent: `crew` is a group of ranks, which sends commands to all of them and makes
one record of their replies, `members` are the parent's ends of those processes, `muster` says where they come from.

Under torchrun, Slurm or mpirun (`launcher`) every rank has a parent of its own. The parent of rank 0 waits for the
others (`muster`) and drives their workers; each of the others is an `agent`. `wire` is what they say to each other.
"""
