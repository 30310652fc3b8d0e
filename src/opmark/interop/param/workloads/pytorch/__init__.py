"""PARAM's workloads, for programs that load them: all operators of torch are known without."""
