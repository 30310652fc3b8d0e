"""Other Python interpreters that a backend can run in: environments of `opmark env`, or any interpreter by its path."""
