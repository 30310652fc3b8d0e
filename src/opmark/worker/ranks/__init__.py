"""One rank of a group: tasks that several worker processes do together. `sync` keeps the ranks in step."""
