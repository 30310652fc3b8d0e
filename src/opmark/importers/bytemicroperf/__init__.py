"""The importer of ByteMicroPerf's workloads, of all three generations; `foreign` translates cases back."""

from opmark.importers.bytemicroperf.importer import BYTEMICROPERF

__all__ = ["BYTEMICROPERF"]
