"""Where tasks run: on this machine, or on the nodes of a Ray cluster. The same task in, the same record out.

`base` says what an executor is and has the local one. On Ray, `dispatch` gives units of work (`units`) to seats on
the nodes (`seat`), one per device, under leases (`leases`); `cluster` and `seats` are the view that a driver has of
nodes and seats, and `ray_actors` is the only file that Ray loads on nodes.
"""
