"""What looked slower, or failed, is measured again before anybody is told: in turns with the baseline, if it can be."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from dataclasses import replace as replace_option
from typing import NamedTuple

from msgspec.structs import replace

from opmark.analysis.comparison import compare as compare_sides
from opmark.analysis.comparison import side_of, where
from opmark.api.ab import options_of_side
from opmark.api.baseline import Baseline, BaselineLost, BaselineSide, baseline_side, same_code, side_as_told
from opmark.api.compare import RunReference
from opmark.api.requests import TurnOptions
from opmark.api.result import open_store
from opmark.api.run import plan_cases
from opmark.errors import StoreError, UserError
from opmark.runner.plan import rank_count
from opmark.runner.selection import SelectedCases
from opmark.runner.session import RunRecorder, new_run, run_group, start_workers
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Case, Run
from opmark.schema.comparison import Compared, Outcome, Pairing
from opmark.schema.measurement import PREEMPTED, Cache
from opmark.schema.messages import Side
from opmark.schema.options import PathLike, StoreOptions
from opmark.schema.record import FAILED, Figure
from opmark.stats.verdict import STAGES
from opmark.store.protocol import Store
from opmark.units import count_noun, significant

LABEL = "check"
SAME_CODE = (
    "the baseline and what is now are the same operators of opmark in the same interpreter and versions: it is the "
    "machine that changed"
)

Key = tuple[str, tuple[str, str], str, Cache | None]
"""Of a pairing."""


class ConfirmationResult(NamedTuple):
    """What the second look says of a case."""

    pair: Pairing | None
    """None: it was not measured again."""
    outcome: Outcome
    why: str


class _RemeasureGroup(NamedTuple):
    """What can be measured together."""

    a: tuple[str, int]
    b: tuple[str, int]
    """Backend and threads of both sides."""
    quantity: str
    """Nothing where there was no number: then it is what the backend measures first."""
    cache: Cache | None
    module: str
    """Of a callable: one module may be had again where another one is not."""
    fails: bool


def key_of(pair: Pairing) -> Key:
    return pair.case, pair.where, pair.quantity, pair.cache


def failing(pair: Pairing) -> bool:
    """Whether it fails now and did not before."""
    return pair.statuses[1] in FAILED and pair.statuses[0] not in FAILED


def candidates(compared: Compared, margin: float) -> list[Pairing]:
    """What is slower, or may be. What drifted between two sessions may hide a part of it; what has no number may be
    anything; and what fails now may do so once only."""
    least = 1 + margin - compared.drift

    def slow(pair: Pairing) -> bool:
        return pair.verdict == "slower" or pair.ratio is None or pair.ratio > least

    return [pair for pair in compared.pairs if failing(pair) or (pair.statuses == ("ok", "ok") and slow(pair))]


def beyond(pair: Pairing, margin: float) -> bool:
    """Whether all of its interval is slower than the margin: a build is not to fail for less."""
    return pair.verdict == "slower" and pair.low is not None and pair.low > 1 + margin


@dataclass
class SlowdownConfirmation:
    base: RunReference
    now: RunReference
    against: BaselineSide
    options: TurnOptions
    """How to measure again; the budget is for all cases together."""
    drift: float
    db: PathLike | None
    say: Callable[[str], None]
    measure: Callable[..., Compared]
    """Measures two sides in turns."""
    live: bool
    """Whether what is now was measured a moment ago."""
    make: str = ""
    """A command for the files of a revision."""
    on_turn: Callable[..., None] | None = None
    notes: list[str] = field(default_factory=list)
    runs: list[tuple[str, str]] = field(default_factory=list)

    def at(self, pairs: Sequence[Pairing]) -> dict[Key, ConfirmationResult]:
        if not pairs:
            return {}
        ways = [_ways(found) for found in (self.base, self.now)]
        groups: dict[_RemeasureGroup, list[Pairing]] = {}
        for pair in pairs:
            one, other = (known[pair.case, name] for known, name in zip(ways, pair.where, strict=True))
            group = _RemeasureGroup(
                (one.backend, one.threads), (other.backend, other.threads), pair.quantity, pair.cache,
                pair.op.rpartition(":")[0], failing(pair),
            )  # fmt: skip
            groups.setdefault(group, []).append(pair)
        found: dict[Key, ConfirmationResult] = {}
        for group, some in groups.items():
            found |= self._group(group, some, self.options.budget * len(some) / len(pairs))
        return found

    def _group(self, group: _RemeasureGroup, pairs: Sequence[Pairing], budget: float) -> dict[Key, ConfirmationResult]:
        a, b = self._then(self.base, *group.a), self._then(self.now, *group.b)
        ops = sorted({pair.op for pair in pairs})
        what = "failed" if group.fails else "may be slower"
        self.say(f"{count_noun(len(pairs), 'case')} {what} on {group.b[0]}: measured again")
        with ExitStack() as stack:
            now = baseline_side(b, ops, stack, here=self.live, command=self.make)
            if isinstance(now, BaselineLost):
                return self._gone(pairs, now.why)
            if self.against.said:
                then: Side | BaselineLost = side_as_told(a, self.against, ops, stack, command=self.make)
            else:
                then = baseline_side(a, ops, stack, command=self.make)
            if isinstance(then, BaselineLost):
                return self._from_stored(group, pairs, now, then.why)
            # What files of a repository call may be another by now, though they are the same: only the catalogue's
            # operators are known by their versions.
            if not group.fails and then.checkout is None and same_code(then, now):
                return self._all(pairs, ConfirmationResult(None, "cleared", SAME_CODE))
            return self._in_turns(group, pairs, then, now, budget)

    def _then(self, found: RunReference, backend: str, threads: int) -> Baseline:
        every = found.store.figures(runs=[found.run.id])
        own = [f.environment for f in every if f.environment and (f.backend, f.threads) == (backend, threads)]
        known = found.store.environments(own[:1])
        facts = known[own[0]].facts if own and own[0] in known else {}
        return Baseline(found.name, backend, threads, found.run.revision, facts)

    def _all(self, pairs: Iterable[Pairing], look: ConfirmationResult) -> dict[Key, ConfirmationResult]:
        self._note(look.why)
        return {key_of(pair): look for pair in pairs}

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _gone(self, pairs: Sequence[Pairing], reason: str) -> dict[Key, ConfirmationResult]:
        """A failure of all processes of a case is one that came again already."""
        why = f"not measured again: {self.now.name} cannot be had any more: {reason}"
        measured = {
            (f.case, where(f.backend, f.implementation, f.threads))
            for f in self.now.store.figures(runs=[self.now.run.id]) if f.status == "ok"
        }  # fmt: skip
        self._note(why)
        always = {key_of(pair): failing(pair) and (pair.case, pair.where[1]) not in measured for pair in pairs}
        return {key: ConfirmationResult(None, "failed" if fails else "undecided", why) for key, fails in always.items()}

    def _in_turns(
        self, group: _RemeasureGroup, pairs: Sequence[Pairing], a: Side, b: Side, budget: float
    ) -> dict[Key, ConfirmationResult]:
        why = f"measured again in turns: {a.name} on {a.backend}, {b.name} on {b.backend}"
        try:
            compared = self.measure(
                a, b, self._cases(pairs), replace_option(self._options_for(group), budget=budget),
                StoreOptions(label=LABEL, db=self.db), say=self.say, on_turn=self.on_turn, settled=self._settled,
            )  # fmt: skip
        except StoreError:
            raise
        except UserError as error:  # some cases cannot be measured like this, such as ranks of a revision
            return self._from_stored(group, pairs, b, error.message)
        self._note(why)
        self.runs.append(compared.runs)
        looks: dict[Key, ConfirmationResult] = {}
        astray: dict[str, list[Pairing]] = {}
        for pair, again in _matched(pairs, compared):
            reason = self._not_the_baseline(pair, again) if again else ""
            if reason:
                astray.setdefault(reason, []).append(pair)
            else:
                looks[key_of(pair)] = self._noted(self._judged(pair, again, why))
        for reason, some in astray.items():
            looks |= self._from_stored(group, some, b, reason)
        return looks

    def _settled(self, pair: Pairing) -> bool:
        return pair.verdict in ("same", "faster") or beyond(pair, self.options.margin)

    def _not_the_baseline(self, pair: Pairing, again: Pairing) -> str:
        """Why A, as it was measured again, does not stand for what was stored: what else it needs has changed, or is
        not made. Where B is slower than this A, in turns, that is no matter: these two differ by their code."""
        if failing(pair) and again.statuses[1] in FAILED:
            return ""
        if again.statuses[0] != "ok":
            return f"its revision does not run here: {again.note}"
        if self.against.said or not pair.a or not again.a or beyond(again, self.options.margin):
            return ""
        off = again.a / pair.a
        if off <= 1 + self.options.margin + self.drift:  # a faster machine hides nothing from a comparison in turns
            return ""
        return f"measured again, it takes {significant(off, 3)}x of what is stored, so that something else has changed"

    def _noted(self, look: ConfirmationResult) -> ConfirmationResult:
        self._note(look.why)
        return look

    def _judged(self, pair: Pairing, again: Pairing | None, why: str) -> ConfirmationResult:
        if again is None:
            return ConfirmationResult(None, "undecided", f"{why}, without a result")
        if again.statuses[1] in FAILED:
            return ConfirmationResult(again, "failed" if failing(pair) else "undecided", why)
        pairs = min(again.processes)
        if again.ratio is not None and pairs < STAGES[0]:
            spoilt = "the scheduler spoilt the others" if PREEMPTED in again.note else "the budget was too small"
            few = f"{count_noun(pairs, 'pair')} of the {STAGES[0]} that are needed were measured: {spoilt}"
            return ConfirmationResult(again, "undecided", f"{why}, but only {few} (--budget {self.options.budget:g})")
        return ConfirmationResult(again, self._outcome(again), why)

    def _outcome(self, again: Pairing) -> Outcome:
        if beyond(again, self.options.margin):
            return "slower"
        return "cleared" if again.verdict in ("same", "faster") else "undecided"

    def _from_stored(
        self, group: _RemeasureGroup, pairs: Sequence[Pairing], now: Side, reason: str
    ) -> dict[Key, ConfirmationResult]:
        """Against the numbers of the baseline once more. A machine that has become slower would confirm itself, so that
        this confirms nothing."""
        why = (
            f"the baseline itself could not be measured again ({reason}): what is now was, in fresh processes, and is "
            "held against the stored numbers once more"
        )
        try:
            compared = self._held_against_stored(group, pairs, now)
        except StoreError:
            raise
        except UserError as error:  # what was measured until then is worth a report
            return self._all(
                pairs, ConfirmationResult(None, "undecided", f"not measured again: {error.message} ({reason})")
            )
        self._note(why)
        self.runs.append(compared.runs)
        return {key_of(pair): _unsure(pair, again, why) for pair, again in _matched(pairs, compared)}

    def _held_against_stored(self, group: _RemeasureGroup, pairs: Sequence[Pairing], now: Side) -> Compared:
        with closing(open_store(self.db, create=True)) as store:
            run = self._fresh(store, group, now, self._cases(pairs))
            a, b = side_of(self.base.store, self.base.run, self.base.name), side_of(store, run, self.now.name)
            cases = {case.id: case for case in self._cases(pairs)}
            return compare_sides(a, b, cases, margin=self.options.margin, drift=self.drift, unlike=True)

    def _fresh(self, store: Store, group: _RemeasureGroup, now: Side, cases: list[Case]) -> Run:
        options = options_of_side(self._options_for(group), now, STAGES[0])
        plan = plan_cases(SelectedCases(cases), options)
        run = replace(new_run(plan, LABEL), session=secrets.token_hex(8))
        if now.checkout:
            run = replace(run, revision=now.checkout.commit)
            if now.checkout.instead_of and any(map(rank_count, cases)):
                raise UserError("a revision is not handed on to the ranks of a case that takes several processes")
        workers = WorkerOptions(self.options.timeout, self.options.compile_timeout, self.say, store.add_environment)
        recorder = RunRecorder(store, run)
        for tasks in plan.groups():  # one at a time: each is measured in a fresh process
            for _, worker, hello in start_workers([(tasks, now)], workers):
                for record in run_group(tasks, worker, hello):
                    recorder.add(record)
        for record in plan.skipped:
            recorder.add(record)
        return run

    def _options_for(self, group: _RemeasureGroup) -> TurnOptions:
        """Measure the quantity that was compared at first, and nothing else; a mode has one quantity anyway."""
        quantity = group.quantity if group.quantity and not self.options.mode else ""
        return replace_option(self.options, quantity=quantity, cache=group.cache or "")

    def _cases(self, pairs: Sequence[Pairing]) -> list[Case]:
        return list(self.now.store.cases([pair.case for pair in pairs]).values())


def _ways(found: RunReference) -> dict[tuple[str, str], Figure]:
    """A figure of each case and way, by the name that a pairing has for it."""
    every = found.store.figures(runs=[found.run.id])
    return {(f.case, where(f.backend, f.implementation, f.threads)): f for f in every}


def _matched(pairs: Sequence[Pairing], compared: Compared) -> list[tuple[Pairing, Pairing | None]]:
    """By case and, where a case has several, by the name of what is now."""
    exact = {(again.case, again.where[1]): again for again in compared.pairs}
    by_case = {again.case: again for again in compared.pairs}
    return [(pair, exact.get((pair.case, pair.where[1]), by_case.get(pair.case))) for pair in pairs]


def _unsure(pair: Pairing, again: Pairing | None, why: str) -> ConfirmationResult:
    """Of numbers of two sessions, both times."""
    if again is None:
        return ConfirmationResult(None, "undecided", f"{why}, without a result")
    if again.statuses[1] in FAILED:
        return ConfirmationResult(again, "failed" if failing(pair) else "undecided", why)
    if again.verdict == "slower":
        return ConfirmationResult(again, "unconfirmed" if pair.verdict == "slower" else "undecided", why)
    return ConfirmationResult(again, "cleared" if again.verdict in ("same", "faster") else "undecided", why)
