"""A stranger's backend for verdicts that have to be the same on every machine: NumPy by a clock that counts steps."""

from __future__ import annotations

from opmark.plugin import BackendInfo

INFO = BackendInfo(
    name="steps-cpu",
    framework="numpy",
    device="cpu",
    summary="NumPy; a microsecond passes with every line of Python that a call runs",
    dtypes=frozenset({"float64", "float32"}),
    loads="opmark_steps_code:Backend",
)
