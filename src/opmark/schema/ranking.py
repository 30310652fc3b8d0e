"""Ranking: which implementation wins where, as data that a program can choose by.

These structs are the JSON that `opmark rank --json` writes: fields are added, but none is renamed or taken away while
`schema` is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

SCHEMA = 1


class Accuracy(Struct, frozen=True):
    """The worst of all outputs against the float64 reference; None where that is not known, which is not 0."""

    max_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    max_ulp: float | None = None
    cosine: float | None = None
    nan: int | None = None
    """Where the reference has none."""
    inf: int | None = None


class Ranked(Struct, frozen=True):
    """One way to compute a case, and its place."""

    backend: str
    """As `--backend` takes it, variant and interpreter included."""
    implementation: str
    variant: str
    """The way in which the backend prepares it; empty where it has only one."""
    python: str
    """The interpreter that was asked for; empty: opmark's own, or that of the backend's guest."""
    median: float
    """Seconds (of `energy`: joules)."""
    interval: tuple[float, float]
    processes: int
    ratio: float
    """Of the median over that of the best."""
    behind: bool
    """Whether it is slower than the best by more than chance and noise. If not, either may be the faster one."""
    checked: str
    """`full`, or `scaled`: verified at a smaller size."""
    numerics: Accuracy
    compile_cold: float | None
    """Seconds; None where nothing is compiled."""
    compile_cached: float | None
    run: str
    environment: str


class Best(Struct, frozen=True):
    backend: str
    implementation: str
    variant: str
    python: str
    median: float
    decided: bool
    """Whether it is ahead of every other one by more than chance and noise; false where nothing else was measured."""


class LeftOut(Struct, frozen=True):
    """What was tried and is not in the order."""

    backend: str
    implementation: str
    why: str
    run: str


class Place(Struct, frozen=True):
    """A case on a chip: the keys to look it up by, and the order."""

    op: str
    params: dict[str, Any]
    """Complete: defaults are written out."""
    dtype: str
    """Empty where the operator has none."""
    phase: str
    wrt: tuple[str, ...]
    threads: int
    device: str
    chip: str
    quantity: str
    cache: str
    case: str
    """Hash of op, params, phase and wrt."""
    best: Best
    order: list[Ranked]
    """The fastest first; only what was measured and verified."""
    left_out: list[LeftOut]


class Tally(Struct, frozen=True):
    """A backend within a group of cases."""

    backend: str
    implementation: str
    cases: int
    """It is in the order of so many."""
    wins: int
    """It is ahead of all others there by more than chance and noise."""
    ratio: float | None
    """Geometric mean of median over best median, over the cases that every backend of the group has; None without."""
    own_ratio: float
    """The same over all cases that this one has: another set for each, so not to compare backends by."""


class Group(Struct, frozen=True):
    """Cases of one chip, phase and number of threads, taken together."""

    by: str
    """`all`, `operator`, `dtype`, `size`."""
    key: dict[str, Any]
    """What they have in common: `op`, `dtype`, `params` (without the dtype), by what they were grouped by."""
    chip: str
    threads: int
    phase: str
    cases: int
    contested: int
    """Cases that more than one backend has."""
    undecided: int
    """Of these, those that nobody wins."""
    common: int
    """Cases that every backend of the group has."""
    backends: list[Tally]
    """Those that win most first."""


class Described(Struct, frozen=True):
    """What has to be known of an operator to look a case of it up."""

    aliases: tuple[str, ...]
    defaults: dict[str, Any]
    """Of the parameters that may be left out."""


class Ranking(Struct, frozen=True):
    schema: int
    made: str
    """UTC, ISO 8601."""
    opmark: str
    """Version."""
    runs: list[str]
    chips: list[str]
    environments: dict[str, dict[str, Any]]
    """Chip, versions, threads and all else that is known of where each number was measured, by id."""
    operators: dict[str, Described]
    cases: list[Place]
    summary: list[Group]
    """Over all cases."""
    groups: list[Group]
    """As `--by` asks for; empty by case."""

    def choose(
        self,
        op: str,
        params: Mapping[str, Any] | None = None,
        *,
        dtype: str | None = None,
        phase: str = "forward",
        threads: int | None = None,
        chip: str | None = None,
        decided: bool = False,
    ) -> Best | None:
        """The best way to compute exactly this case; None where it was not measured: nothing is guessed.

        Parameters that are left out have their defaults. Threads and chip may be left out where only one of them was
        measured. With `decided`, only a win by more than chance and noise is one.
        """
        found = self.places(op, params, dtype=dtype, phase=phase, threads=threads, chip=chip)
        if len(found) != 1 or (decided and not found[0].best.decided):
            return None
        return found[0].best

    def places(
        self,
        op: str,
        params: Mapping[str, Any] | None = None,
        *,
        dtype: str | None = None,
        phase: str = "forward",
        threads: int | None = None,
        chip: str | None = None,
    ) -> list[Place]:
        """Every place of a case, with the whole order: to choose by more than the median."""
        name = next((known for known, about in self.operators.items() if op in about.aliases), op)
        defaults = self.operators[name].defaults if name in self.operators else {}
        given = {**(params or {}), **({} if dtype is None else {"dtype": dtype})}
        complete = {**defaults, **{key: _plain(value) for key, value in given.items()}}
        return [
            place
            for place in self.cases
            if (place.op, place.params, place.phase, place.wrt) == (name, complete, phase, ())
            and threads in (None, place.threads)
            and chip in (None, place.chip)
        ]


def _plain(value: Any) -> Any:
    """A shape is a list, however it is given."""
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
