"""Tasks that several processes do together, on one host or on many: in step, and never waiting for ever.

In each rank's process: `worker` takes orders, `execute` makes a record of a task, `agree` keeps the ranks in step,
`check` verifies, `measuring` and `overlap` time. In the parent: `crew` gives orders to all ranks and makes one record
of what they answer, `members` are the ends of those processes.
"""
