"""ByteMicroPerf's workloads, of all three generations. `foreign` has the way back."""

from opmark.importers.bytemicroperf.importer import BYTEMICROPERF

__all__ = ["BYTEMICROPERF"]
