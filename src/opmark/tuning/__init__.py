"""Tuning: spaces of configurations, tuners that search them, and the database of what was found."""
