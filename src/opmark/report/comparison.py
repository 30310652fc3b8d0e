"""Words, cells and lines of a comparison, for all its formats."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from opmark.errors import UnknownName
from opmark.schema import QUANTITIES
from opmark.schema.comparison import Compared, Geomean, Pairing, difference_lines
from opmark.schema.measurement import Cache
from opmark.schema.record import FAILED, MEASURED
from opmark.stats.verdict import ALPHA, FEWEST
from opmark.units import count_noun, cycles, percent, seconds, significant, small_unit

WORDS = ("slower", "faster", "same", "undecided", "failed", "skipped")
"""Verdicts of a case."""
_FEW = 5
_WIDE = 1000
_MATCHED = "no way to compute has the same name on both sides, so they are matched by case"


def word(pair: Pairing) -> str:
    """Return the verdict of a pair, or the reason why it has none."""
    if any(status in FAILED for status in pair.statuses):
        return "failed"
    return "skipped" if "skipped" in pair.statuses else pair.verdict


def failed_on_both(pair: Pairing) -> bool:
    """Whether neither side has a number, which is no change."""
    return not any(status in MEASURED for status in pair.statuses)


def check_words(words: Sequence[str]) -> list[str]:
    for one in words:
        if one not in WORDS:
            raise UnknownName("verdict", one, WORDS)
    return list(words)


def select_pairs(compared: Compared, only: Collection[str] = ()) -> list[Pairing]:
    """Return the pairs with these verdicts; without `only`, all but those that failed on both sides."""
    return [pair for pair in compared.pairs if (word(pair) in only if only else not failed_on_both(pair))]


def comparison_view(compared: Compared, only: Collection[str] = ()) -> dict[str, Any]:
    """Return a comparison as plain data; an unbounded interval has null for its end."""
    part = compared if not only else msgspec.structs.replace(compared, pairs=tuple(select_pairs(compared, only)))
    return {**msgspec.to_builtins(part), "counts": dict(compared.counts())}


class OneQuantity(Protocol):
    """A row of a table whose numbers are of one quantity."""

    @property
    def quantity(self) -> str: ...
    @property
    def cache(self) -> Cache | None: ...


_Found = TypeVar("_Found")


def split_by_quantity(found: Sequence[_Found], of: Callable[[_Found], OneQuantity]) -> list[list[_Found]]:
    """Return the rows of each quantity and state of the caches apart, so that no column of a table mixes them; rows
    without a number stay with the first."""
    keys = [(of(one).quantity, of(one).cache) for one in found]
    first = next((key for key in keys if key[0]), ("", None))
    parts: dict[tuple[str, Cache | None], list[_Found]] = {}
    for one, key in zip(found, keys, strict=True):
        parts.setdefault(key if key[0] else first, []).append(one)
    return list(parts.values())


class Columns(NamedTuple):
    """The columns of a table of pairs: those that are needed to name its rows, and those with their figures."""

    phase: bool
    where: bool
    quantity: bool
    cycles: bool
    """Whether the clock moved between the sides of a pair."""

    @classmethod
    def of(cls, pairs: Sequence[Pairing]) -> Columns:
        return cls(
            len({pair.phase for pair in pairs}) > 1 or any(pair.phase != "forward" for pair in pairs),
            len({pair.where for pair in pairs}) > 1,
            len({(pair.quantity, pair.cache) for pair in pairs if pair.quantity}) > 1,
            any(pair.cycles and pair.cycles.moved for pair in pairs),
        )

    @classmethod
    def for_page(cls, pairs: Sequence[Pairing]) -> Columns:
        """Return the columns for a page, which is read later or by others and therefore always names the quantity."""
        return cls.of(pairs)._replace(quantity=any(pair.quantity for pair in pairs))

    @property
    def heads(self) -> list[str]:
        optional = (("phase", self.phase), ("where", self.where), ("quantity", self.quantity))
        return ["operator", "parameters", *(name for name, used in optional if used)]

    def cells(self, pair: Pairing) -> list[str]:
        optional = ((pair.phase, self.phase), (places(pair), self.where), (quantity(pair), self.quantity))
        return [pair.op, pair.params, *(text for text, used in optional if used)]

    @property
    def figure_heads(self) -> list[str]:
        return ["A", "B", "B/A", *(CYCLES if self.cycles else ()), "interval", "verdict", ""]

    def figures(self, pair: Pairing) -> list[str]:
        """Return the figures of a pair; the last two are its verdict and its note."""
        times = [value(pair, pair.a), value(pair, pair.b), ratio(pair.ratio)]
        return [*times, *(_cycle_figures(pair) if self.cycles else ()), interval(pair), word(pair), pair.note]


CYCLES = ("A cycles", "B cycles", "B/A cycles")


def _cycle_figures(pair: Pairing) -> list[str]:
    found = pair.cycles
    return [cycles(found.a), cycles(found.b), ratio(found.ratio)] if found else [""] * len(CYCLES)


def value(pair: Pairing, number: float | None) -> str:
    if number is None:
        return ""
    unit = QUANTITIES[pair.quantity].unit if pair.quantity in QUANTITIES else "s"
    scale, name = small_unit(number, unit)
    return f"{significant(number / scale)} {name}"


def ratio(number: float | None) -> str:
    return "" if number is None else f"{significant(number, 4)}x"


def interval(found: Pairing | Geomean) -> str:
    """Return an interval as text; empty if it is unbounded."""
    if not found.low or found.high is None or found.high == float("inf"):
        return ""
    return f"{significant(found.low, 4)}–{significant(found.high, 4)}"


def places(pair: Pairing) -> str:
    a, b = pair.where
    return a if a == b else f"{a} -> {b}"


def quantity(pair: Pairing) -> str:
    return f"{pair.quantity} {pair.cache}" if pair.quantity else ""


def header(compared: Compared) -> Iterator[str]:
    """Yield lines about the two sides, and the facts in which they differ."""
    a, b = (_side_name(name, run) for name, run in zip((compared.a, compared.b), compared.runs, strict=True))
    yield f"A {a}, B {b}: {_describe_method(compared)}"
    shared = {pair.where for pair in compared.pairs}
    if len(shared) == 1 and not Columns.of(compared.pairs).where:
        ((a, b),) = shared
        if a == b or compared.runs[0] != compared.runs[1]:
            yield a if a == b else f"{a} -> {b}: {_MATCHED}"
    elif any(a != b for a, b in shared) and compared.runs[0] != compared.runs[1]:
        yield _MATCHED
    if compared.differing:
        yield f"differs: {'; '.join(differences(compared.differing))}"


def _side_name(name: str, run: str) -> str:
    return name if name == run else f"{name} ({run})"


def _describe_method(compared: Compared) -> str:
    if compared.paired:
        return "measured in turns"
    if compared.runs[0] == compared.runs[1]:
        itself = all(a == b for a, b in (pair.where for pair in compared.pairs))
        return "a run with itself" if itself else "one process each, in one run"
    return f"two sessions, {'by time and by cycles, ' if compared.clocked else ''}{_describe_sessions(compared)}"


def _describe_sessions(compared: Compared) -> str:
    if compared.sessions is None:
        return f"which may differ by {percent(compared.drift)} for the same code" if compared.drift else "clocks locked"
    spread = f"{percent(compared.drift)} for the same code"
    stored = f"from {count_noun(compared.sessions, 'stored run')}" if compared.sessions else "assumed"
    return f"which spread by {spread} ({stored})"


def differences(found: Mapping[str, tuple[Any, Any]]) -> list[str]:
    return [f"{fact} {text}" for fact, text in difference_lines(found)]


def footer(compared: Compared) -> Iterator[str]:
    yield summary(compared)
    yield from step_lines(compared)
    yield from doubtful_lines(compared)
    yield from clock_lines(compared)
    few = sum(pair.verdict == "undecided" and 0 < min(pair.processes) < FEWEST for pair in compared.pairs)
    if few and not compared.paired:
        yield (
            f"{few} undecided with fewer than {FEWEST} processes: --processes 5 tells more of the next one, and "
            "`opmark doctor --aa` how much is noise here"
        )
    yield from in_turns_lines(compared)
    yield legend(compared)


def legend(compared: Compared) -> str:
    return f"B/A above 1 is slower; intervals hold in {1 - ALPHA:.0%} of comparisons; {_describe_margin(compared)}"


def doubtful_lines(compared: Compared) -> Iterator[str]:
    """Yield what was not compared, and which numbers are not to be relied on."""
    for name, lone in zip("AB", compared.only, strict=True):
        if lone:
            listed = "; ".join(lone[:_FEW]) + ("; ..." if len(lone) > _FEW else "")
            yield f"{count_noun(len(lone), 'case')} in {name} only: {listed}"
    neither = [pair for pair in compared.pairs if failed_on_both(pair)]
    if neither:
        why = f": {neither[0].op}: {neither[0].note}" if neither[0].note else ""
        yield f"{count_noun(len(neither), 'case')} without a number on either side{why}"
    unchecked = sum("unchecked" in pair.statuses for pair in compared.pairs)
    if unchecked:
        yield (
            f"WARNING: {count_noun(unchecked, 'case')} unchecked: nothing has verified the result of a side, and what "
            "is wrong may be fast; `opmark show` says why"
        )
    disturbed = sum("disturbed" in pair.statuses for pair in compared.pairs)
    if disturbed:
        yield (
            f"WARNING: {count_noun(disturbed, 'case')} disturbed: other work took the cores from a side, whose number "
            "counts nowhere; stop other work (`opmark doctor` names it), or use fewer --threads, and measure again"
        )


def clock_lines(compared: Compared) -> Iterator[str]:
    """Yield how far the clock moved between the sides, for the case where it moved most."""
    known = [(pair, pair.cycles) for pair in compared.pairs if pair.cycles]
    moved = [(pair, found) for pair, found in known if found.moved]
    if not moved:
        return
    pair, found = max(moved, key=lambda one: abs(math.log(one[1].clocks[1] / one[1].clocks[0])))
    a, b = (f"{clock / 1e6:.0f}" for clock in found.clocks)
    among = "" if len(known) == 1 else f" in {len(moved)} of {count_noun(len(known), 'case')}, most in {pair.op}:"
    yield (
        f"the clock moved{among} from {a} MHz in A to {b} MHz in B: cycles tell slower code from a slower clock, but "
        "what waits for memory does not follow that clock; --clocks lock holds it still where that is permitted"
    )


def in_turns_lines(compared: Compared) -> Iterator[str]:
    """Yield the command that decides what two sessions leave undecided, for the case with the largest difference."""
    open_ = [pair for pair in compared.pairs if pair.verdict == "undecided" and pair.ratio]
    if not open_ or compared.runs[0] == compared.runs[1] or compared.paired:
        return
    typed = [pair for pair in open_ if pair.in_turns]
    if not typed:
        yield f"{len(open_)} undecided; measure in turns: `opmark ab`, where both sides can still be run"
        return
    widest = max(typed, key=lambda pair: abs(math.log(pair.ratio or 1.0)))
    which = "" if len(open_) == 1 else ", the largest difference first"
    yield f"{len(open_)} undecided; measure in turns{which}: {widest.in_turns}"


def _describe_margin(compared: Compared) -> str:
    if compared.resolution is None:
        return f"up to {percent(compared.margin)} is called the same"
    why = f"two sessions may drift by {percent(compared.drift)}" if compared.sessions is None else "two sessions differ"
    return f"up to {percent(compared.resolution)} is called the same: {why}"


def summary(compared: Compared) -> str:
    """Return one line with the number of each verdict, and the mean."""
    counts = Counter(word(pair) for pair in compared.pairs if not failed_on_both(pair))
    listed = ", ".join(f"{counts[name]} {name}" for name in WORDS if counts[name]) or "nothing to compare"
    mean = compared.geomean
    if mean is None:
        return listed
    known = f" ({interval(mean)})" if interval(mean) else ""
    return f"{listed}; geometric mean {ratio(mean.ratio)}{known} over {mean_cases(compared, mean)}"


def step_lines(compared: Compared) -> Iterator[str]:
    """Yield how the whole step changed, on each pair of backends, where cases have counts."""
    several = len({step.where for step in compared.steps}) > 1
    for step in compared.steps:
        first, second = step.where
        on = f" on {first if first == second else f'{first} -> {second}'}" if several else ""
        yield (
            f"the step{on}: {seconds(step.a)} -> {seconds(step.b)}, {ratio(step.ratio)} "
            f"(count x {step.quantity} {step.cache} over {count_noun(step.cases, 'case')})"
        )


def mean_cases(compared: Compared, mean: Geomean) -> str:
    """Return the number of cases of the mean, with their quantity if there are others."""
    quantity = f" by {mean.quantity} {mean.cache}" if Columns.of(compared.pairs).quantity else ""
    return count_noun(mean.cases, "case") + quantity
