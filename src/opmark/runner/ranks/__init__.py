"""Tasks that several processes do together, on one host or on many: in step, and never waiting for ever.

In each rank's process: `worker` takes orders, `execute` makes a record of a task, `agree` keeps the ranks in step,
`check` verifies, `measuring` and `overlap` time. In the parent: `crew` gives orders to all ranks and makes one record
of what they answer, `members` are the ends of those processes, `muster` says where they come from.

Under torchrun, Slurm or mpirun (`launcher`) every rank has a parent of its own. That of rank 0 waits for the others
(`gathering`) and drives their workers (`remote`); each of the others is an `agent`. `wire` is what they say to each
other, `interface` the way that their data takes.
"""
