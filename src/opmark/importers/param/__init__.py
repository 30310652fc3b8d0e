"""PARAM's configs (train/compute/python): `{operator: {"config": [{"build": [...], "input": [...]}]}}`."""

from opmark.importers.param.importer import PARAM

__all__ = ["PARAM"]
