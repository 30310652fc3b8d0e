"""This machine: what it has, what it is doing, what would disturb a measurement."""
