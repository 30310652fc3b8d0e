"""Traces of programs: reading them from files, capturing them, turning them into workloads, replaying them."""
