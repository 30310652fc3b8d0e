"""Exporters, which write runs and workloads in the formats of other systems."""
