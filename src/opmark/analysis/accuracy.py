"""How far each output of a verified record is from the reference, and whether that is near enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from opmark.schema import Numerics, Record, Verification
from opmark.schema.record import HISTOGRAM_DECADES


class OutputAccuracy(NamedTuple):
    name: str
    numerics: Numerics
    bound: str
    """How far it may be off, in words."""
    verdict: Literal["PASS", "FAIL", ""]
    """Empty if nothing tells: the comparison cannot tell right from wrong, or another output may be the wrong one."""


def output_accuracies(record: Record) -> list[OutputAccuracy]:
    check = record.verification
    if check is None:
        return []
    return [
        OutputAccuracy(
            check.outputs[i] if i < len(check.outputs) else str(i), one, _bound(check, i), _verdict(record, check, i)
        )
        for i, one in enumerate(check.numerics)
    ]


def _bound(check: Verification, i: int) -> str:
    if i < len(check.bounds):
        return f"{check.bounds[i]:.2g} rms"
    if check.tolerance is None:
        return ""
    return f"{check.tolerance[0]:.2g} |x| + {check.tolerance[1]:.2g} typical"


def _verdict(record: Record, check: Verification, i: int) -> Literal["PASS", "FAIL", ""]:
    one = check.numerics[i]
    if (one.nan, one.inf) != (one.nan_expected, one.inf_expected):
        return "FAIL"
    if check.checked == "none":
        return ""
    if i < len(check.bounds) and one.max_abs is not None and one.rms is not None:
        return "PASS" if one.max_abs <= check.bounds[i] * one.rms else "FAIL"
    if record.status != "wrong":
        return "PASS"
    return "FAIL" if len(check.numerics) == 1 else ""


def histogram_of(numerics: Sequence[Numerics]) -> list[int]:
    """Return the number of elements by decade of their error, over all outputs."""
    return [sum(counts) for counts in zip(*(one.histogram for one in numerics if one.histogram), strict=True)]


def bin_names() -> list[str]:
    """Return the names of the bins of a histogram, the smallest errors first."""
    least, most = HISTOGRAM_DECADES
    return [f"below 1e{least}", *(f"1e{n} to 1e{n + 1}" for n in range(least, most)), f"from 1e{most} on"]
