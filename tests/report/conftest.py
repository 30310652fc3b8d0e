"""Fixtures that make records for rows and tables."""

from record_fixtures import make_loaded, make_measurement, make_record, make_sent, printed

__all__ = ["make_loaded", "make_measurement", "make_record", "make_sent", "printed"]
