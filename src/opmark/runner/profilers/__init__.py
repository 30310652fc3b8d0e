"""External profilers: how each is started, and what its output says."""
