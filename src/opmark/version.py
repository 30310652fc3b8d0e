"""The version of opmark, as installed."""

from importlib.metadata import version

VERSION = version("opmark")
