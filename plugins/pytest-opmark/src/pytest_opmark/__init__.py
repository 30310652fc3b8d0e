"""Tests that fail when an operator or a function became slower than its baseline."""

from __future__ import annotations

from pytest_opmark.fixture import OpmarkFixture, OpmarkUndecided

__all__ = ["OpmarkFixture", "OpmarkUndecided"]
