"""Ranking: which implementation is fastest for which case, for programs to choose by.

These structs are the JSON that `opmark rank --json` writes: fields are added, but none is renamed or taken away while
`schema` is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

SCHEMA = 1


class Accuracy(Struct, frozen=True):
    """Largest errors over all outputs against the float64 reference; None if unknown."""

    max_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    max_ulp: float | None = None
    cosine: float | None = None
    nan: int | None = None
    """Number of NaN where the reference has none."""
    inf: int | None = None


class RankedImplementation(Struct, frozen=True):
    """One way to compute a case, and how it compares with the best."""

    backend: str
    """The name that `--backend` takes, variant and interpreter included."""
    implementation: str
    variant: str
    """The backend's variant; empty if it has only one."""
    python: str
    """The interpreter that was asked for; empty: opmark's own, or the one of the backend's guest."""
    median: float
    """Seconds; for `energy`, joules."""
    interval: tuple[float, float]
    processes: int
    ratio: float
    """Median over the best median."""
    behind: bool
    """Whether it is slower than the best by more than chance and noise. If not, either may be faster."""
    checked: str
    """`full`, `sampled` (a part of it), or `scaled`: verified at a smaller size, in a record of 0.8."""
    numerics: Accuracy
    compile_cold: float | None
    """Seconds; None if nothing is compiled."""
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
    """Whether it beats every other one by more than chance and noise; false if nothing else was measured."""


class LeftOut(Struct, frozen=True):
    """A way that was tried but has no place in the order, and why."""

    backend: str
    implementation: str
    why: str
    run: str


class RankedCase(Struct, frozen=True):
    """A case on a chip: the keys to look it up by, and the order of its implementations."""

    op: str
    params: dict[str, Any]
    """All parameters, defaults included."""
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
    order: list[RankedImplementation]
    """The fastest first; only implementations that were measured and verified."""
    left_out: list[LeftOut]


class Tally(Struct, frozen=True):
    """The score of one implementation within a group of cases."""

    backend: str
    implementation: str
    cases: int
    """Number of cases that it has a place in."""
    wins: int
    """Number of cases in which it beats all others by more than chance and noise."""
    ratio: float | None
    """Geometric mean of median over best median, over cases that every backend of the group has; None if there is
    none."""
    own_ratio: float
    """The same over all cases of this backend: the cases differ by backend, so do not compare backends by it."""


class RankingGroup(Struct, frozen=True):
    """Cases of one chip, phase and number of threads, ranked by one quantity and state of the caches, taken
    together."""

    by: str
    """`all`, `operator`, `dtype`, `size`."""
    key: dict[str, Any]
    """What the cases have in common: `op`, `dtype` or `params` (without the dtype), depending on `by`."""
    chip: str
    threads: int
    phase: str
    cases: int
    contested: int
    """Number of cases that more than one backend has."""
    undecided: int
    """Number of contested cases that nobody wins."""
    common: int
    """Number of cases that every backend of the group has."""
    backends: list[Tally]
    """The one with most wins first."""
    quantity: str = ""
    cache: str = ""
    """What the cases are ranked by; empty in files of 0.10 and before."""


class OperatorDefaults(Struct, frozen=True):
    """Aliases and defaults of an operator, which are needed to look up one of its cases."""

    aliases: tuple[str, ...]
    defaults: dict[str, Any]
    """Defaults of the optional parameters."""


class Ranking(Struct, frozen=True):
    schema: int
    made: str
    """UTC, ISO 8601."""
    opmark: str
    """Version of opmark."""
    runs: list[str]
    chips: list[str]
    environments: dict[str, dict[str, Any]]
    """Facts of every environment in which a number was measured, by id."""
    operators: dict[str, OperatorDefaults]
    cases: list[RankedCase]
    summary: list[RankingGroup]
    """Groups over all cases."""
    groups: list[RankingGroup]
    """Groups by `--by`; empty for `--by case`."""
    quantity: str = ""
    cache: str = ""
    """What was asked for; empty: what each case has, and its place says which."""
    without: int = 0
    """Number of cases that are not ranked, because they have verified numbers, but none of what was asked for."""

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
        """Return the best way to compute exactly this case, or None if it was not measured: nothing is guessed.

        Parameters that are left out have their defaults. Threads and chip may be left out if only one of each was
        measured. With `decided`, only a win by more than chance and noise counts.
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
    ) -> list[RankedCase]:
        """Return every place of a case with its whole order, to choose by more than the median."""
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
    """Turn tuples into lists, as stored parameters have them."""
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
