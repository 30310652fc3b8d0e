"""Fixtures of the gate."""

from gates import gate, sides

__all__ = ["gate", "sides"]
