"""Turns configurations into numbers that a model can learn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2

from opmark.errors import UserError
from opmark.plugin import Configuration, Knob, Space
from opmark.plugin.space import FeatureKind, Value

Features = Callable[[Configuration], list[float]]


def knob_groups(space: Space) -> list[Callable[[Value], list[float]]]:
    """Return for each knob how its value becomes numbers: sizes and factors as logarithms, because twice as much is one
    step wherever it happens; an order as the place of each loop; a word as one number per word."""
    return [_encoder(knob) for knob in space.knobs]


def knob_features(space: Space) -> Features:
    groups = knob_groups(space)

    def encode(configuration: Configuration) -> list[float]:
        pairs = zip(space.knobs, groups, strict=True)
        return [number for knob, group in pairs for number in group(configuration[knob.name])]

    return encode


def program_features(space: Space, kind: FeatureKind) -> Features:
    """Return features of the loops that a configuration makes: those that the space offers, else what its splits say.

    itervar: of every loop its extent and the extents inside of it. curve: how many iterations, and how many elements
    over all axes together, the loops from each level inwards touch. UserError if the space has neither.
    """
    if space.features:
        own = space.features
        return lambda configuration: list(own(configuration, kind))
    splits = [knob for knob in space.knobs if knob.kind == "split"]
    if not splits:
        raise UserError(
            f"the tuner learns from loops ({kind}), and this space has no splits and offers no features of loops",
            "--tuner guided, xgb or xgb_knob learn from the values of the knobs",
        )
    others = knob_features(Space(tuple(knob for knob in space.knobs if knob.kind != "split")))

    def encode(configuration: Configuration) -> list[float]:
        nests = [_inner_extents(configuration[knob.name]) for knob in splits]
        found: list[float] = []
        if kind == "itervar":
            for knob, inner in zip(splits, nests, strict=True):
                factors = configuration[knob.name]
                assert isinstance(factors, tuple)
                found += [log2(factor) for factor in factors] + inner
        else:
            levels = max(map(len, nests))
            for level in range(levels):
                touched = [inner[min(level, len(inner) - 1)] for inner in nests]
                found += [sum(touched), max(touched), min(touched)]
        return found + others(configuration)

    return encode


def _inner_extents(factors: Value) -> list[float]:
    """Return for each loop of a split the logarithm of the iterations that lie inside of it, itself included."""
    assert isinstance(factors, tuple)
    total, found = 0.0, list[float]()
    for factor in reversed(factors):
        total += log2(factor)
        found.append(total)
    return found[::-1]


def _encoder(knob: Knob) -> Callable[[Value], list[float]]:
    values = knob.values
    if all(isinstance(value, bool) for value in values):
        return lambda value: [float(bool(value))]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        if all(value > 0 for value in values if isinstance(value, int | float)):
            return lambda value: [log2(value)]  # type: ignore[arg-type]
        return lambda value: [float(value)]  # type: ignore[arg-type]
    if knob.kind == "split":
        return lambda value: [log2(factor) for factor in value]  # type: ignore[union-attr, arg-type]
    if knob.kind == "order" and len({len(value) for value in values if isinstance(value, tuple)}) == 1:
        return lambda value: [float(value.index(i)) for i in sorted(value)]  # type: ignore[union-attr, arg-type]
    return lambda value: [float(value == other) for other in values]


def scaled(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the rows with every column between 0 and 1."""
    lows = [min(column) for column in zip(*rows, strict=True)]
    highs = [max(column) for column in zip(*rows, strict=True)]
    return [
        [(value - low) / (high - low) if high > low else 0.0 for value, low, high in zip(row, lows, highs, strict=True)]
        for row in rows
    ]
