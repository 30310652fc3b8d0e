"""What the records of a tuning tell: the trials in their order, the best so far, and how much each knob matters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log
from statistics import fmean, median
from typing import Any, NamedTuple

from opmark.schema import Record
from opmark.schema.record import MEASURED


class TrialFigure(NamedTuple):
    """One candidate, the first time that it was measured."""

    number: int
    """From 1, in the order of measuring."""
    implementation: str
    configuration: dict[str, Any]
    seconds: float | None
    """None if it failed."""
    reason: str
    key: str
    """Id of its task."""


def trials_of(records: Iterable[Record]) -> list[TrialFigure]:
    """Return the candidates of one case in the order in which they were tried. What was measured again in the race of
    the best is one of them, once."""
    found: dict[tuple[str, Any], TrialFigure] = {}
    for record in sorted(records, key=lambda one: one.started):
        chosen = record.task.settings.configuration
        name = (record.task.implementation, chosen)
        if not chosen or name in found:
            continue
        measured = record.measurement() if record.status in MEASURED else None
        seconds = median(measured.samples) if measured and measured.samples else None
        found[name] = TrialFigure(
            len(found) + 1, record.task.implementation, dict(chosen), seconds, record.reason, record.task.id
        )
    return list(found.values())


def best_so_far(trials: Sequence[TrialFigure]) -> list[tuple[int, float]]:
    """Return the number of each trial that was faster than all before it, with its time."""
    found: list[tuple[int, float]] = []
    for trial in trials:
        if trial.seconds is not None and (not found or trial.seconds < found[-1][1]):
            found.append((trial.number, trial.seconds))
    return found


def knob_importance(trials: Sequence[TrialFigure]) -> dict[str, float]:
    """Return for each knob the share of the variance of the logarithm of the time that its values explain, each by
    itself, corrected for the number of its values: a knob that does not matter has about 0. Shares of knobs that act
    together may add up to less than 1."""
    timed = [(trial.configuration, log(trial.seconds)) for trial in trials if trial.seconds]
    if len(timed) < 3:
        return {}
    mean = fmean(value for _, value in timed)
    total = sum((value - mean) ** 2 for _, value in timed)
    found: dict[str, float] = {}
    for knob in timed[0][0]:
        groups: dict[Any, list[float]] = {}
        for configuration, value in timed:
            groups.setdefault(configuration.get(knob), []).append(value)
        within = sum(sum((value - fmean(values)) ** 2 for value in values) for values in groups.values())
        freedom = len(timed) - len(groups)
        if total <= 0 or len(groups) < 2 or freedom < 1:
            found[knob] = 0.0
            continue
        # As the adjusted coefficient of determination: many values explain some of the variance by chance.
        found[knob] = max(0.0, 1 - (within / freedom) / (total / (len(timed) - 1)))
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def knob_places(trials: Sequence[TrialFigure]) -> dict[str, list[Any]]:
    """Return the values of each knob that occur, in a natural order."""
    found: dict[str, list[Any]] = {}
    for trial in trials:
        for knob, value in trial.configuration.items():
            if value not in found.setdefault(knob, []):
                found[knob].append(value)
    for knob, values in found.items():
        found[knob] = sorted(values, key=_order)
    return found


def _order(value: Any) -> tuple[int, Any]:
    if isinstance(value, tuple | list):
        return 1, tuple(reversed(value))
    return (0, value) if isinstance(value, int | float) else (2, str(value))
