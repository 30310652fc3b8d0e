"""The gate: what is now against a baseline, and every slowdown measured again before it counts: `opmark check`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from opmark.analysis.compare import compare as compare_sides
from opmark.analysis.compare import side_of
from opmark.api.again import Against
from opmark.api.common import DEFAULT_TIMEOUT, PathLike, check_timeout, talk
from opmark.api.comparing import cases_of, check_share
from opmark.api.finding import Finder, Found
from opmark.api.interleaving import BUDGET, measure_sides
from opmark.api.measuring import plan, run
from opmark.api.second_look import Look, SecondLook, candidates, key_of
from opmark.errors import UnknownName, UserError
from opmark.registry import parameters_of
from opmark.result import Result
from opmark.runner.supervisor import DEFAULT_COMPILE_TIMEOUT
from opmark.runner.wanted import ARGUMENTS, wanted
from opmark.schema import Case
from opmark.schema.checked import FAIL_ON, Checked, Finding, Outcome
from opmark.schema.comparison import Compared, Pairing
from opmark.schema.record import FAILED
from opmark.schema.shown import shown
from opmark.stats.verdict import DRIFT
from opmark.units import counted

MARGIN = 0.03
"""A build is not to fail for less."""
DEFAULT_FAIL_ON = ("slower", "failed")

# What `run` takes and `plan` does not.
_OF_RUNNING = ("label", "resume", "profile", "on_start", "on_record", "on_environment")
# What is measured again is measured with these as well.
_OF_MEASURING = (
    "seed",
    "verify",
    "rel_ci",
    "min_time",
    "max_time",
    "warmup",
    "samples",
    "mode",
    "timer",
)


def check(
    ops: str | Sequence[str] = (),
    *,
    baseline: str,
    current: str | None = None,
    margin: float = MARGIN,
    drift: float = DRIFT,
    fail_on: Sequence[str] = DEFAULT_FAIL_ON,
    against_rev: str = "",
    against_python: str = "",
    against_backend: str = "",
    make: str = "",
    budget: float = BUDGET,
    unlike: bool = False,
    db: PathLike | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    compile_timeout: float = DEFAULT_COMPILE_TIMEOUT,
    on_turn: Callable[..., None] | None = None,
    measure: Callable[..., Result] = run,
    in_turns: Callable[..., Compared] = measure_sides,
    say: Callable[[str], None] = talk,
    **asked: Any,
) -> Checked:
    """A stored run (`current`), or what `opmark.run` would measure, against a baseline.

    Whatever looks slower is measured again, in turns with the baseline where that can be had once more: as its git
    revision, in its interpreter, or as `against_...` says; `make` is run in a revision's files first. Only what is
    slower in turns, by more than the margin, is `slower`.
    """
    check_share(margin, "margin")
    check_share(drift, "drift")
    check_timeout(budget, "budget")
    check_words(fail_on)
    check_timeout(compile_timeout, "compile_timeout")
    against = Against(against_rev, against_python, against_backend)
    against.check()
    with ExitStack() as stack:
        finder = Finder(stack, db)
        base = _baseline(finder, baseline)
        if current is None:
            _refuse_strangers(base, ops, asked)
            # Who checks measures what may never be merged: it is no part of the history.
            made = measure(
                ops, db=db, timeout=timeout, compile_timeout=compile_timeout, say=say, session=secrets.token_hex(8),
                **asked,
            )  # fmt: skip
            now = Found(finder.store(), made.run, made.run.label or "now")
        else:
            now = _run(finder, current)
        first = _first_look(base, now, margin=margin, drift=drift, unlike=unlike)
        wanting = candidates(first, margin)
        look = SecondLook(
            base, now, against, margin, drift, budget, timeout, compile_timeout, db, say, in_turns,
            live=current is None, make=make, on_turn=on_turn, how=_how(asked, now, wanting if current else ()),
        )  # fmt: skip
        second = look.at(wanting)
        findings = tuple(_finding(pair, second.get(key_of(pair))) for pair in first.pairs)
    return Checked(first, findings, first.only[0], tuple(fail_on), tuple(look.notes), tuple(look.runs))


def check_words(fail_on: Iterable[str]) -> None:
    for word in fail_on:
        if word not in FAIL_ON:
            raise UnknownName("reason to fail", word, FAIL_ON)


def _run(finder: Finder, name: str) -> Found:
    found = finder.run(name)
    if found is None:
        known = [run.label for run in finder.store().runs() if run.label]
        raise UnknownName("run", name, dict.fromkeys(known))
    return found


def _baseline(finder: Finder, name: str) -> Found:
    """UserError where there is nothing in it to hold anything against."""
    found = _run(finder, name)
    statuses = [figure.status for figure in found.store.figures(runs=[found.run.id])]
    if "ok" not in statuses:
        raise UserError(
            f"the baseline `{name}` (run {found.run.id}) measured nothing: {counted(len(statuses), 'record')}, none of "
            "them ok",
            f"`opmark show {found.run.id}` says why",
        )
    return found


def _refuse_strangers(base: Found, ops: str | Sequence[str], asked: dict[str, Any]) -> None:
    """UserError before anything is measured that the baseline does not have, or by several at once."""
    chosen = wanted(ops, **{name: value for name, value in asked.items() if name in ARGUMENTS})
    if chosen.place:
        raise UserError(
            f"a launcher ({chosen.place.launcher}) has started several processes of this check",
            "let it start `opmark run`, and then `opmark check --run RUN` by itself",
        )
    whole = plan(ops, **{name: value for name, value in asked.items() if name not in _OF_RUNNING})
    asked_for = {task.case.id for task in whole.tasks} | {record.task.case.id for record in whole.skipped}
    known = {figure.case: figure.op for figure in base.store.figures(runs=[base.run.id])}
    if not asked_for & known.keys():
        there = base.store.cases(known)
        named = [sorted({_named(case) for case in cases}) for cases in ((t.case for t in whole.tasks), there.values())]
        raise UserError(
            f"no case in common: asked for {counted(len(asked_for), 'case')} ({_few(named[0])}), the baseline "
            f"`{base.name}` has {counted(len(known), 'case')} ({_few(named[1])})",
            "a case is an operator with all its parameters and its phase; ask for what the baseline was made with",
        )


def _named(case: Case) -> str:
    return " ".join(filter(None, (case.op, shown(case, parameters_of(case.op)), case.phase)))


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _first_look(base: Found, now: Found, **how: Any) -> Compared:
    a, b = side_of(base.store, base.run, base.name), side_of(now.store, now.run, now.name)
    return compare_sides(a, b, cases_of((base.store, a), (now.store, b)), **how)


def _how(asked: Mapping[str, Any], now: Found, stored: Sequence[Pairing]) -> dict[str, Any]:
    """As it was asked for, or as the stored run was measured."""
    if not stored:
        return {name: asked[name] for name in _OF_MEASURING if name in asked}
    used = next(record.task.settings for record in now.store.records(now.run.id))
    found = {"seed": used.seed, "verify": used.verify, "mode": used.mode, "timer": used.timer}
    rule = used.sampling
    fixed = {"warmup": rule.warmup, "samples": rule.samples}
    return {**found, **{name: value for name, value in fixed.items() if value is not None}}


def _finding(pair: Pairing, look: Look | None) -> Finding:
    return Finding(pair, look.outcome, look.pair, look.why) if look else Finding(pair, _outcome(pair))


def _outcome(pair: Pairing) -> Outcome:
    """Of what was not looked at again; what fails now was."""
    then, now = pair.statuses
    if now == "ok":
        return "mended" if then in FAILED else pair.verdict
    if then in FAILED:
        return "broken"
    return "undecided" if then == "skipped" else "missing"
