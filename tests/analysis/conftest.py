"""Records to make rows and tables of."""

from record_fixtures import make_loaded, make_measurement, make_record, make_sent, printed

__all__ = ["make_loaded", "make_measurement", "make_record", "make_sent", "printed"]
