"""Shares of a step: how much of the time of a program each of its calls takes, where a workload says how often it
makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from opmark.schema.comparison import Pairing, StepChange
from opmark.schema.measurement import QUANTITIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opmark.analysis.rows import Row


class Step(NamedTuple):
    """The calls of a program on one backend, measured one by one."""

    rows: Sequence[Row]
    """Each case once."""
    seconds: float
    """Sum over all calls."""

    @property
    def calls(self) -> int:
        return sum(row.count for row in self.rows)

    @property
    def recorded(self) -> tuple[float, float, int]:
        """Seconds of all calls in the program that they come from, those of the same calls here, and the number of
        their cases."""
        known = [(row.count, row.original, row.seconds) for row in self.rows if row.original and row.seconds]
        there = sum(count * original for count, original, _ in known)
        return there, sum(count * seconds for count, _, seconds in known), len(known)


def steps_of(rows: Iterable[Row]) -> dict[object, Step]:
    """Return the step of each backend in each state of the caches, by `_place`; none where no row has a count above 1
    or an original duration."""
    groups: dict[object, dict[str, Row]] = {}
    weighted: set[object] = set()
    for row in rows:
        if not _counts(row) or row.load is not None:
            continue
        place = _place(row)
        groups.setdefault(place, {}).setdefault(row.case, row)  # the first of several implementations is the usual one
        if row.count > 1 or row.original is not None:
            weighted.add(place)
    found = {place: tuple(own.values()) for place, own in groups.items() if place in weighted}
    return {place: Step(own, sum(row.count * (row.seconds or 0.0) for row in own)) for place, own in found.items()}


def with_shares(rows: Sequence[Row]) -> list[Row]:
    """Return all rows of a run with their shares of the step."""
    steps = steps_of(rows)
    return [_with_share(row, steps.get(_place(row))) for row in rows] if steps else list(rows)


def _with_share(row: Row, step: Step | None) -> Row:
    if step is None or row.seconds is None or not _counts(row):
        return row
    changed = replace(row, step_share=row.count * row.seconds / step.seconds)
    changed.__dict__.update(row.__dict__)
    return changed


def _counts(row: Row) -> bool:
    """Return whether the time of a row is one of a call, and was not spoilt by the scheduler."""
    return row.seconds is not None and row.headline is not None and row.headline.usable and not row.is_model


def _place(row: Row) -> Any:
    """Return what the rows of one step have in common."""
    return row.backend, row.threads, row.mode, row.headline.key if row.headline else None


def step_changes(pairs: Iterable[Pairing], counts: Mapping[str, int]) -> tuple[StepChange, ...]:
    """Return the time of the step on both sides, for each place and quantity, over the cases that both have. `counts`
    has counts above 1 by the id of the case; there is no step without them."""
    found: dict[Any, list[Pairing]] = {}
    for pair in pairs if counts else ():
        if pair.a and pair.b and pair.cache and QUANTITIES[pair.quantity].unit == "s":
            found.setdefault((pair.where, pair.quantity, pair.cache), []).append(pair)
    return tuple(
        StepChange(
            where, quantity, cache, len(own),
            sum(counts.get(pair.case, 1) * (pair.a or 0.0) for pair in own),
            sum(counts.get(pair.case, 1) * (pair.b or 0.0) for pair in own),
        )
        for (where, quantity, cache), own in found.items()
        if any(pair.case in counts for pair in own)
    )  # fmt: skip
