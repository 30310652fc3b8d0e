"""Labelled data that users have: one file per data set. Only workers, and `opmark list datasets`, load these files."""
