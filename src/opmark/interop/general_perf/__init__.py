"""ByteMLPerf's general_perf: its models, workloads and reports, measured by opmark."""
