"""Other interpreters that a backend can run in: made by `opmark env`, or anybody's, by path."""
