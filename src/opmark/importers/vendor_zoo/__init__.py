"""The importer of hardware files of ByteMLPerf's vendor_zoo."""

from opmark.importers.vendor_zoo.importer import VENDOR_ZOO

__all__ = ["VENDOR_ZOO"]
