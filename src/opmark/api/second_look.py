"""What looked slower is measured again before anybody is told: in turns with the baseline, where that can be had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opmark.analysis.compare import compare as compare_sides
from opmark.analysis.compare import side_of, where
from opmark.api.again import Against, Lost, Then, same_code, side_again, side_as_told
from opmark.api.common import PathLike, open_store
from opmark.api.finding import Found
from opmark.api.measuring import planned
from opmark.errors import StoreError, UserError
from opmark.interfaces import Store
from opmark.runner.session import new_run, perform, recorded
from opmark.runner.sides import Side
from opmark.runner.wanted import Wanted
from opmark.schema import Case, Run
from opmark.schema.comparison import Compared, Pairing
from opmark.schema.figure import Figure
from opmark.schema.quantity import Cache
from opmark.stats.verdict import STAGES
from opmark.units import counted

LABEL = "check"
EFFORT = "quick"
SAME_CODE = (
    "the baseline and what is now are the same code, in revision, interpreter and versions: it is the machine that "
    "changed"
)

Key = tuple[str, tuple[str, str], str, Cache | None]
"""Of a pairing."""


class Look(NamedTuple):
    """What the second look says of a case."""

    pair: Pairing | None
    """None: it was not measured again."""
    confirmed: bool
    cleared: bool
    why: str


class _Group(NamedTuple):
    """What can be measured together."""

    a: tuple[str, int]
    b: tuple[str, int]
    """Backend and threads of both sides."""
    quantity: str
    cache: Cache | None


def key_of(pair: Pairing) -> Key:
    return pair.case, pair.where, pair.quantity, pair.cache


def candidates(compared: Compared, margin: float) -> list[Pairing]:
    """What is slower, and what may be: undecided, and slower by more than the margin as far as one can see."""
    undecided = [pair for pair in compared.pairs if pair.verdict == "undecided" and (pair.ratio or 0.0) > 1 + margin]
    return [pair for pair in compared.pairs if pair.verdict == "slower"] + undecided


@dataclass
class SecondLook:
    base: Found
    now: Found
    against: Against
    margin: float
    drift: float
    budget: float
    timeout: float
    db: PathLike | None
    say: Callable[[str], None]
    measure: Callable[..., Compared]
    """Two sides in turns."""
    on_turn: Callable[..., None] | None = None
    how: Mapping[str, Any] = field(default_factory=dict)
    """More of how to measure."""
    notes: list[str] = field(default_factory=list)
    runs: list[tuple[str, str]] = field(default_factory=list)

    def at(self, pairs: Sequence[Pairing]) -> dict[Key, Look]:
        if not pairs:
            return {}
        ways = [_ways(found) for found in (self.base, self.now)]
        groups: dict[_Group, list[Pairing]] = {}
        for pair in pairs:
            one, other = (known[pair.case, name] for known, name in zip(ways, pair.where, strict=True))
            group = _Group((one.backend, one.threads), (other.backend, other.threads), pair.quantity, pair.cache)
            groups.setdefault(group, []).append(pair)
        found: dict[Key, Look] = {}
        for group, some in groups.items():
            found |= self._group(group, some, ways, self.budget * len(some) / len(pairs))
        return found

    def _group(
        self, group: _Group, pairs: Sequence[Pairing], ways: Sequence[Mapping[tuple[str, str], Figure]], budget: float
    ) -> dict[Key, Look]:
        first = pairs[0]
        a = self._then(self.base, ways[0][first.case, first.where[0]])
        b = self._then(self.now, ways[1][first.case, first.where[1]])
        ops = sorted({pair.op for pair in pairs})
        self.say(f"{counted(len(pairs), 'case')} may be slower on {group.b[0]}: measured again")
        with ExitStack() as stack:
            now = side_again(b, ops, stack, here=True)
            if isinstance(now, Lost):
                why = f"not measured again: {self.now.name} cannot be had any more: {now.why}"
                return self._all(pairs, Look(None, confirmed=False, cleared=False, why=why))
            if self.against.said:
                then: Side | Lost = side_as_told(a, self.against, ops, stack)
            else:
                then = side_again(a, ops, stack)
            if isinstance(then, Lost):
                return self._from_stored(group, pairs, then.why)
            if same_code(then, now):
                return self._all(pairs, Look(None, confirmed=False, cleared=True, why=SAME_CODE))
            return self._in_turns(group, pairs, then, now, budget)

    def _then(self, found: Found, figure: Figure) -> Then:
        known = found.store.environments([figure.environment]) if figure.environment else {}
        facts = known[figure.environment].facts if figure.environment in known else {}
        return Then(found.name, figure.backend, figure.threads, found.run.revision, facts)

    def _all(self, pairs: Iterable[Pairing], look: Look) -> dict[Key, Look]:
        self._note(look.why)
        return {key_of(pair): look for pair in pairs}

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _in_turns(self, group: _Group, pairs: Sequence[Pairing], a: Side, b: Side, budget: float) -> dict[Key, Look]:
        why = f"measured again in turns: {a.name} on {a.backend}, {b.name} on {b.backend}"
        try:
            compared = self.measure(
                a, b, self._cases(pairs), margin=self.margin, budget=budget, timeout=self.timeout, db=self.db,
                label=LABEL, say=self.say, on_turn=self.on_turn, **self._of(group),
            )  # fmt: skip
        except StoreError:
            raise
        except UserError as error:  # some cases cannot be measured like this, such as ranks of a revision
            return self._from_stored(group, pairs, error.message)
        self._note(why)
        self.runs.append(compared.runs)
        return {key_of(pair): _judged(again, why) for pair, again in _matched(pairs, compared)}

    def _from_stored(self, group: _Group, pairs: Sequence[Pairing], reason: str) -> dict[Key, Look]:
        """Against the numbers of the baseline once more: both looks have to say the same."""
        why = (
            f"the baseline itself could not be measured again ({reason}): what is now was, in fresh processes, and is "
            "held against the stored numbers once more"
        )
        with closing(open_store(self.db, create=True)) as store:
            run = self._fresh(store, group, self._cases(pairs))
            a, b = side_of(self.base.store, self.base.run, self.base.name), side_of(store, run, self.now.name)
            cases = {case.id: case for case in self._cases(pairs)}
            compared = compare_sides(a, b, cases, margin=self.margin, drift=self.drift, unlike=True)
        self._note(why)
        self.runs.append((self.base.run.id, run.id))
        looks = {}
        for pair, again in _matched(pairs, compared):
            look = _judged(again, why)
            looks[key_of(pair)] = look._replace(confirmed=look.confirmed and pair.verdict == "slower")
        return looks

    def _fresh(self, store: Store, group: _Group, cases: list[Case]) -> Run:
        backend, threads = group.b
        plan = planned(
            Wanted(cases), backend=[backend], threads=[threads], processes=STAGES[0], effort=EFFORT, **self._of(group)
        )
        run = new_run(plan, LABEL)
        made = perform(plan, self.timeout, self.say, store.add_environment)
        for _ in recorded(store, run, made, begun=False):
            pass
        return run

    def _of(self, group: _Group) -> dict[str, Any]:
        """What was measured at first, and nothing else."""
        cache = {"cache": [group.cache]} if group.cache else {}
        return {**self.how, "quantity": [group.quantity], **cache}

    def _cases(self, pairs: Sequence[Pairing]) -> list[Case]:
        return list(self.now.store.cases([pair.case for pair in pairs]).values())


def _ways(found: Found) -> dict[tuple[str, str], Figure]:
    """A figure of each case and way, by the name that a pairing has for it; one that was measured, if there is one."""
    ways: dict[tuple[str, str], Figure] = {}
    for figure in found.store.figures(runs=[found.run.id]):
        key = figure.case, where(figure.backend, figure.implementation, figure.threads)
        if key not in ways or not ways[key].environment:
            ways[key] = figure
    return ways


def _matched(pairs: Sequence[Pairing], compared: Compared) -> list[tuple[Pairing, Pairing | None]]:
    """By case and, where a case has several, by the name of what is now."""
    exact = {(again.case, again.where[1]): again for again in compared.pairs}
    by_case = {again.case: again for again in compared.pairs}
    return [(pair, exact.get((pair.case, pair.where[1]), by_case.get(pair.case))) for pair in pairs]


def _judged(again: Pairing | None, why: str) -> Look:
    if again is None:
        return Look(None, confirmed=False, cleared=False, why=f"{why}, without a result")
    return Look(again, confirmed=again.verdict == "slower", cleared=again.verdict in ("same", "faster"), why=why)
