"""A comparison as a table: what failed first, then the slowest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from opmark.errors import UnknownName
from opmark.schema import QUANTITIES
from opmark.schema.comparison import Compared, Geomean, Pairing, difference_lines
from opmark.schema.record import FAILED
from opmark.stats.verdict import ALPHA
from opmark.units import count_noun, percent, significant, small_unit

WORDS = ("slower", "faster", "same", "undecided", "failed", "skipped")
"""What may be said of a case."""
_FEW = 5
_WIDE = 1000
_MATCHED = "no way to compute has the same name on both sides, so they are matched by case"


def word(pair: Pairing) -> str:
    """Its verdict, or why it has none."""
    if any(status in FAILED for status in pair.statuses):
        return "failed"
    return "skipped" if "skipped" in pair.statuses else pair.verdict


def in_both(pair: Pairing) -> bool:
    """Whether neither side has it: that is no news."""
    return "ok" not in pair.statuses


def wanted_words(words: Sequence[str]) -> list[str]:
    for one in words:
        if one not in WORDS:
            raise UnknownName("verdict", one, WORDS)
    return list(words)


def chosen(compared: Compared, only: Collection[str] = ()) -> list[Pairing]:
    """The pairs with these verdicts; without any, all but what failed on both sides."""
    return [pair for pair in compared.pairs if (word(pair) in only if only else not in_both(pair))]


def comparison_view(compared: Compared, only: Collection[str] = ()) -> dict[str, Any]:
    """As plain data; an interval without an end has null there."""
    kept = compared if not only else msgspec.structs.replace(compared, pairs=tuple(chosen(compared, only)))
    return {**msgspec.to_builtins(kept), "counts": dict(compared.counts())}


class Columns(NamedTuple):
    """Which of the columns that name a row tell anything here."""

    phase: bool
    where: bool
    quantity: bool

    @classmethod
    def of(cls, pairs: Sequence[Pairing]) -> Columns:
        return cls(
            len({pair.phase for pair in pairs}) > 1 or any(pair.phase != "forward" for pair in pairs),
            len({pair.where for pair in pairs}) > 1,
            len({(pair.quantity, pair.cache) for pair in pairs if pair.quantity}) > 1,
        )

    @classmethod
    def on_a_page(cls, pairs: Sequence[Pairing]) -> Columns:
        """What is read later, or by others, says of every row what was compared."""
        return cls.of(pairs)._replace(quantity=any(pair.quantity for pair in pairs))

    @property
    def heads(self) -> list[str]:
        named = (("phase", self.phase), ("where", self.where), ("quantity", self.quantity))
        return ["operator", "parameters", *(name for name, told in named if told)]

    def cells(self, pair: Pairing) -> list[str]:
        named = ((pair.phase, self.phase), (places(pair), self.where), (quantity(pair), self.quantity))
        return [pair.op, pair.params, *(text for text, told in named if told)]


FIGURES = ("A", "B", "B/A", "interval", "verdict", "")


def figures(pair: Pairing) -> list[str]:
    return [value(pair, pair.a), value(pair, pair.b), ratio(pair.ratio), interval(pair), word(pair), pair.note]


def value(pair: Pairing, number: float | None) -> str:
    if number is None:
        return ""
    unit = QUANTITIES[pair.quantity].unit if pair.quantity in QUANTITIES else "s"
    scale, name = small_unit(number, unit)
    return f"{significant(number / scale)} {name}"


def ratio(number: float | None) -> str:
    return "" if number is None else f"{significant(number, 4)}x"


def interval(found: Pairing | Geomean) -> str:
    """Nothing where it has no ends."""
    if not found.low or found.high is None or found.high == float("inf"):
        return ""
    return f"{significant(found.low, 4)}–{significant(found.high, 4)}"


def places(pair: Pairing) -> str:
    a, b = pair.where
    return a if a == b else f"{a} -> {b}"


def quantity(pair: Pairing) -> str:
    return f"{pair.quantity} {pair.cache}" if pair.quantity else ""


def header(compared: Compared) -> Iterator[str]:
    """What is compared with what, and what else differs between them."""
    yield f"A {_called(compared.a, compared.runs[0])}, B {_called(compared.b, compared.runs[1])}: {_how(compared)}"
    shared = {pair.where for pair in compared.pairs}
    if len(shared) == 1 and not Columns.of(compared.pairs).where:
        ((a, b),) = shared
        if a == b or compared.runs[0] != compared.runs[1]:
            yield a if a == b else f"{a} -> {b}: {_MATCHED}"
    elif any(a != b for a, b in shared) and compared.runs[0] != compared.runs[1]:
        yield _MATCHED
    if compared.differing:
        yield f"differs: {'; '.join(differences(compared.differing))}"


def _called(name: str, run: str) -> str:
    return name if name == run else f"{name} ({run})"


def _how(compared: Compared) -> str:
    if compared.paired:
        return "measured in turns"
    if compared.clocked:
        return "two sessions, by time and by cycles"
    apart = f"which may differ by {percent(compared.drift)} for the same code" if compared.drift else "clocks locked"
    return f"two sessions, {apart}"


def differences(found: Mapping[str, tuple[Any, Any]]) -> list[str]:
    return [f"{fact} {text}" for fact, text in difference_lines(found)]


def footer(compared: Compared) -> Iterator[str]:
    yield summary(compared)
    for name, lone in zip("AB", compared.only, strict=True):
        if lone:
            listed = "; ".join(lone[:_FEW]) + ("; ..." if len(lone) > _FEW else "")
            yield f"{count_noun(len(lone), 'case')} in {name} only: {listed}"
    neither = [pair for pair in compared.pairs if in_both(pair)]
    if neither:
        why = f": {neither[0].op}: {neither[0].note}" if neither[0].note else ""
        yield f"{count_noun(len(neither), 'case')} without a number on either side{why}"
    yield f"B/A above 1 is slower; intervals hold in {1 - ALPHA:.0%} of comparisons; {_alike(compared)}"


def _alike(compared: Compared) -> str:
    if compared.resolution is None:
        return f"up to {percent(compared.margin)} is called the same"
    drift = f"two sessions may drift by {percent(compared.drift)}"
    return f"up to {percent(compared.resolution)} is called the same: {drift}"


def summary(compared: Compared) -> str:
    """One line: how many of each, and the mean."""
    counts = Counter(word(pair) for pair in compared.pairs if not in_both(pair))
    told = ", ".join(f"{counts[name]} {name}" for name in WORDS if counts[name]) or "nothing to compare"
    mean = compared.geomean
    if mean is None:
        return told
    known = f" ({interval(mean)})" if interval(mean) else ""
    return f"{told}; geometric mean {ratio(mean.ratio)}{known} over {count_noun(mean.cases, 'case')}"
