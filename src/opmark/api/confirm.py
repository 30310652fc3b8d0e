"""Measure cases again that look slower or fail, before `opmark check` reports them: in turns with the baseline if
that is possible."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from dataclasses import replace as replace_option
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from opmark.analysis.compared_side import side_of
from opmark.analysis.comparison import compare as compare_sides
from opmark.analysis.comparison import where
from opmark.api.ab import options_of_side
from opmark.api.baseline import Baseline, BaselineLost, BaselineSide, baseline_side, named_side, same_code
from opmark.api.compare import RunReference
from opmark.api.requests import TurnOptions
from opmark.api.result import open_store
from opmark.api.run import plan_cases
from opmark.errors import StoreError, UserError
from opmark.runner.allowed_callables import AllowedCallables
from opmark.runner.clocks import ClockLocks
from opmark.runner.plan import rank_count
from opmark.runner.selection import SelectedCases
from opmark.runner.session import RunRecorder, new_run, run_group, start_workers
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Case, Run
from opmark.schema.comparison import Compared, Outcome, Pairing
from opmark.schema.load import parse_load_text
from opmark.schema.measurement import PREEMPTED, Cache
from opmark.schema.messages import Side
from opmark.schema.options import PathLike, StoreOptions
from opmark.schema.record import FAILED, MEASURED, Figure
from opmark.stats.verdict import STAGES
from opmark.store.protocol import Store
from opmark.units import count_noun, significant

LABEL = "check"
SAME_CODE = (
    "the baseline and what is now are the same operators of opmark in the same interpreter and versions: it is the "
    "machine that changed"
)

Key = tuple[str, tuple[str, str], str, Cache | None]
"""Identifies a pairing: case, names of both ways, quantity, state of the caches."""


class ConfirmationResult(NamedTuple):
    """The outcome of measuring a case again."""

    pair: Pairing | None
    """The new comparison; None: the case was not measured again."""
    outcome: Outcome
    why: str


class _RemeasureGroup(NamedTuple):
    """Properties of pairings that are measured again together."""

    a: tuple[str, int]
    b: tuple[str, int]
    """Backend and threads of both sides."""
    quantity: str
    """Empty where there was no number: then the backend measures its own headline."""
    cache: Cache | None
    module: str
    """Module of a callable. Groups are per module, because each module may or may not be available again."""
    fails: bool
    load: str = ""
    """The load as `Load.text` writes it; empty without load."""


def key_of(pair: Pairing) -> Key:
    return pair.case, pair.where, pair.quantity, pair.cache


def fails_now(pair: Pairing) -> bool:
    """Return whether a case fails now and did not before."""
    return pair.statuses[1] in FAILED and pair.statuses[0] not in FAILED


def doubtful_pairs(compared: Compared, margin: float) -> list[Pairing]:
    """Return the pairings to measure again: those that are slower or may be, since drift between sessions may hide a
    part of it, those without a ratio, and those that fail now, since they may fail only once."""
    least = 1 + margin - compared.drift

    def slow(pair: Pairing) -> bool:
        return pair.verdict == "slower" or pair.ratio is None or pair.ratio > least

    return [pair for pair in compared.pairs if fails_now(pair) or (MEASURED.issuperset(pair.statuses) and slow(pair))]


def clearly_slower(pair: Pairing, margin: float) -> bool:
    """Return whether the whole interval of the ratio lies above the margin. A build does not fail for less."""
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
    """Function that measures two sides in turns."""
    live: bool
    """Whether the run to check was measured a moment ago."""
    allow: Sequence[str] = ()
    """Modules whose functions the cases of a stored run may call."""
    make: str = ""
    """Command to run in the files of a revision first."""
    on_turn: Callable[..., None] | None = None
    notes: list[str] = field(default_factory=list)
    runs: list[tuple[str, str]] = field(default_factory=list)

    def at(self, pairs: Sequence[Pairing]) -> dict[Key, ConfirmationResult]:
        if not pairs:
            return {}
        if not self.live:
            self._refuse_functions(pairs)
        ways = [_ways(found) for found in (self.base, self.now)]
        groups: dict[_RemeasureGroup, list[Pairing]] = {}
        for pair in pairs:
            one, other = (known[pair.case, name] for known, name in zip(ways, pair.where, strict=True))
            group = _RemeasureGroup(
                (one.backend, one.threads), (other.backend, other.threads), pair.quantity, pair.cache,
                pair.op.rpartition(":")[0], fails_now(pair), other.load,
            )  # fmt: skip
            groups.setdefault(group, []).append(pair)
        found: dict[Key, ConfirmationResult] = {}
        for group, some in groups.items():
            found |= self._confirm_group(group, some, self.options.budget * len(some) / len(pairs))
        return found

    def _refuse_functions(self, pairs: Sequence[Pairing]) -> None:
        """Raise UserError where a stored case calls what a workload file here might not: a store may come from anybody,
        as a file may."""
        allowed = AllowedCallables(self.allow, Path.cwd())
        for case in self._cases(pairs):
            try:
                allowed.check(case.op)
            except UserError as error:
                raise UserError(f"{self.now.name}: {error.message}, so it is not measured again", error.hint) from None

    def _confirm_group(
        self, group: _RemeasureGroup, pairs: Sequence[Pairing], budget: float
    ) -> dict[Key, ConfirmationResult]:
        a, b = self._stored_side(self.base, *group.a), self._stored_side(self.now, *group.b)
        ops = sorted({pair.op for pair in pairs})
        what = "failed" if group.fails else "may be slower"
        self.say(f"{count_noun(len(pairs), 'case')} {what} on {group.b[0]}: measured again")
        with ExitStack() as stack:
            now = baseline_side(b, ops, stack, here=self.live, command=self.make)
            if isinstance(now, BaselineLost):
                return self._without_candidate(pairs, now.why)
            if self.against.named:
                then: Side | BaselineLost = named_side(a, self.against, ops, stack, command=self.make)
            else:
                then = baseline_side(a, ops, stack, command=self.make)
            if isinstance(then, BaselineLost):
                return self._from_stored(group, pairs, now, then.why)
            # Equal versions mean equal code only for operators of the catalogue: files of a repository may call other
            # code that has changed.
            if not group.fails and then.checkout is None and same_code(then, now):
                return self._same_for_all(pairs, ConfirmationResult(None, "cleared", SAME_CODE))
            return self._measure_in_turns(group, pairs, then, now, budget)

    def _stored_side(self, found: RunReference, backend: str, threads: int) -> Baseline:
        every = found.store.figures(runs=[found.run.id])
        own = [f.environment for f in every if f.environment and (f.backend, f.threads) == (backend, threads)]
        known = found.store.environments(own[:1])
        facts = known[own[0]].facts if own and own[0] in known else {}
        return Baseline(found.name, backend, threads, found.run.revision, facts)

    def _same_for_all(self, pairs: Iterable[Pairing], look: ConfirmationResult) -> dict[Key, ConfirmationResult]:
        self._note(look.why)
        return {key_of(pair): look for pair in pairs}

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _without_candidate(self, pairs: Sequence[Pairing], reason: str) -> dict[Key, ConfirmationResult]:
        """Return outcomes without measuring again. A case that failed in all of its processes has failed repeatedly."""
        why = f"not measured again: {self.now.name} cannot be had any more: {reason}"
        measured = {
            (f.case, where(f.backend, f.implementation, f.threads, f.load))
            for f in self.now.store.figures(runs=[self.now.run.id]) if f.status in MEASURED
        }  # fmt: skip
        self._note(why)
        always = {key_of(pair): fails_now(pair) and (pair.case, pair.where[1]) not in measured for pair in pairs}
        return {key: ConfirmationResult(None, "failed" if fails else "undecided", why) for key, fails in always.items()}

    def _measure_in_turns(
        self, group: _RemeasureGroup, pairs: Sequence[Pairing], a: Side, b: Side, budget: float
    ) -> dict[Key, ConfirmationResult]:
        why = f"measured again in turns: {a.name} on {a.backend}, {b.name} on {b.backend}"
        try:
            compared = self.measure(
                a, b, self._cases(pairs), replace_option(self._options_for(group), budget=budget),
                StoreOptions(label=LABEL, db=self.db), say=self.say, on_turn=self.on_turn, settled=self._is_settled,
            )  # fmt: skip
        except StoreError:
            raise
        except UserError as error:  # some cases cannot be measured like this, such as ranks of a revision
            return self._from_stored(group, pairs, b, error.message)
        self._note(why)
        self.runs.append(compared.runs)
        looks: dict[Key, ConfirmationResult] = {}
        astray: dict[str, list[Pairing]] = {}
        for pair, again in _match(pairs, compared):
            reason = self._why_not_the_baseline(pair, again) if again else ""
            if reason:
                astray.setdefault(reason, []).append(pair)
            else:
                looks[key_of(pair)] = self._add_note(self._judge(pair, again, why))
        for reason, some in astray.items():
            looks |= self._from_stored(group, some, b, reason)
        return looks

    def _is_settled(self, pair: Pairing) -> bool:
        return pair.verdict in ("same", "faster") or clearly_slower(pair, self.options.margin)

    def _why_not_the_baseline(self, pair: Pairing, again: Pairing) -> str:
        """Return why A, measured again, does not represent the stored baseline: something else that it needs has
        changed, or was not built. If B is slower than this A in turns, that does not matter: their code differs."""
        if fails_now(pair) and again.statuses[1] in FAILED:
            return ""
        if again.statuses[0] not in MEASURED:
            return f"its revision does not run here: {again.note}"
        if self.against.named or not pair.a or not again.a or clearly_slower(again, self.options.margin):
            return ""
        off = again.a / pair.a
        if off <= 1 + self.options.margin + self.drift:  # a faster machine hides nothing from a comparison in turns
            return ""
        return f"measured again, it takes {significant(off, 3)}x of what is stored, so that something else has changed"

    def _add_note(self, look: ConfirmationResult) -> ConfirmationResult:
        self._note(look.why)
        return look

    def _judge(self, pair: Pairing, again: Pairing | None, why: str) -> ConfirmationResult:
        if again is None:
            return ConfirmationResult(None, "undecided", f"{why}, without a result")
        if again.statuses[1] in FAILED:
            return ConfirmationResult(again, "failed" if fails_now(pair) else "undecided", why)
        pairs = min(again.processes)
        if again.ratio is not None and pairs < STAGES[0]:
            spoilt = "the scheduler spoilt the others" if PREEMPTED in again.note else "the budget was too small"
            few = f"{count_noun(pairs, 'pair')} of the {STAGES[0]} that are needed were measured: {spoilt}"
            return ConfirmationResult(again, "undecided", f"{why}, but only {few} (--budget {self.options.budget:g})")
        return ConfirmationResult(again, self._outcome(again), why)

    def _outcome(self, again: Pairing) -> Outcome:
        if clearly_slower(again, self.options.margin):
            return "slower"
        return "cleared" if again.verdict in ("same", "faster") else "undecided"

    def _from_stored(
        self, group: _RemeasureGroup, pairs: Sequence[Pairing], now: Side, reason: str
    ) -> dict[Key, ConfirmationResult]:
        """Compare new measurements of B with the stored numbers of A. A machine that became slower would look like a
        slowdown, so this can clear a case, but not confirm it."""
        why = (
            f"the baseline itself could not be measured again ({reason}): what is now was, in fresh processes, and is "
            "held against the stored numbers once more"
        )
        try:
            compared = self._compare_with_stored(group, pairs, now)
        except StoreError:
            raise
        except UserError as error:  # the rest of the check is still worth a report
            return self._same_for_all(
                pairs, ConfirmationResult(None, "undecided", f"not measured again: {error.message} ({reason})")
            )
        self._note(why)
        self.runs.append(compared.runs)
        return {key_of(pair): _judge_unpaired(pair, again, why) for pair, again in _match(pairs, compared)}

    def _compare_with_stored(self, group: _RemeasureGroup, pairs: Sequence[Pairing], now: Side) -> Compared:
        with closing(open_store(self.db, create=True)) as store:
            run = self._measure_candidate(store, group, now, self._cases(pairs))
            a, b = side_of(self.base.store, self.base.run, self.base.name), side_of(store, run, self.now.name)
            cases = {case.id: case for case in self._cases(pairs)}
            return compare_sides(a, b, cases, margin=self.options.margin, drift=self.drift, unlike=True)

    def _measure_candidate(self, store: Store, group: _RemeasureGroup, now: Side, cases: list[Case]) -> Run:
        options = options_of_side(self._options_for(group), now, STAGES[0])
        plan = plan_cases(SelectedCases(cases), options, db=self.db)
        run = replace(new_run(plan, LABEL), session=secrets.token_hex(8))
        if now.checkout:
            run = replace(run, revision=now.checkout.commit)
            if now.checkout.instead_of and any(map(rank_count, cases)):
                raise UserError("a revision is not handed on to the ranks of a case that takes several processes")
        recorder = RunRecorder(store, run)
        with closing(ClockLocks(self.options.clocks, self.say)) as clocks:
            workers = WorkerOptions(
                self.options.timeout, self.options.compile_timeout, self.say, store.add_environment, clocks=clocks
            )
            for tasks in plan.groups():  # one at a time: each is measured in a fresh process
                for _, worker, hello in start_workers([(tasks, now)], workers):
                    for record in run_group(tasks, worker, hello):
                        recorder.add(record)
        for record in plan.skipped:
            recorder.add(record)
        return run

    def _options_for(self, group: _RemeasureGroup) -> TurnOptions:
        """Return the options that measure only the quantity that was compared. A mode has a single quantity anyway."""
        if group.load:
            clients, arrival, rate = parse_load_text(group.load)
            return replace_option(
                self.options, quantity="", cache="", clients=clients, arrival=arrival, rate=rate or ()
            )
        quantity = group.quantity if group.quantity and not self.options.mode else ""
        return replace_option(self.options, quantity=quantity, cache=group.cache or "")

    def _cases(self, pairs: Sequence[Pairing]) -> list[Case]:
        return list(self.now.store.cases([pair.case for pair in pairs]).values())


def _ways(found: RunReference) -> dict[tuple[str, str], Figure]:
    """Return one figure of each case and way, by the names that pairings use."""
    every = found.store.figures(runs=[found.run.id])
    return {(f.case, where(f.backend, f.implementation, f.threads, f.load)): f for f in every}


def _match(pairs: Sequence[Pairing], compared: Compared) -> list[tuple[Pairing, Pairing | None]]:
    """Pair each pairing with its new comparison: by case and way of B, or by case alone."""
    exact = {(again.case, again.where[1]): again for again in compared.pairs}
    by_case = {again.case: again for again in compared.pairs}
    return [(pair, exact.get((pair.case, pair.where[1]), by_case.get(pair.case))) for pair in pairs]


def _judge_unpaired(pair: Pairing, again: Pairing | None, why: str) -> ConfirmationResult:
    """Return the outcome of a comparison between sessions, which may differ by drift."""
    if again is None:
        return ConfirmationResult(None, "undecided", f"{why}, without a result")
    if again.statuses[1] in FAILED:
        return ConfirmationResult(again, "failed" if fails_now(pair) else "undecided", why)
    if again.verdict == "slower":
        return ConfirmationResult(again, "unconfirmed" if pair.verdict == "slower" else "undecided", why)
    return ConfirmationResult(again, "cleared" if again.verdict in ("same", "faster") else "undecided", why)
