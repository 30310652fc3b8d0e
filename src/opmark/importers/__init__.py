"""Foreign files into workloads: one file a format."""
