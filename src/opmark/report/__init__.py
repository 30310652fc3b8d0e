"""Records for people and for programs. Computes nothing that `metrics` does not."""
