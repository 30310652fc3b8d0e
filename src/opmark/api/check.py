"""Compare a run with a baseline, and measure every slowdown again before it counts: `opmark check`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from opmark.analysis.compared_side import side_of
from opmark.analysis.comparison import compare as compare_sides
from opmark.analysis.rows import case_parameters
from opmark.api.ab import ab_request, measure_sides
from opmark.api.baseline import BaselineSide
from opmark.api.compare import BEHIND, RunFinder, RunReference, cases_of
from opmark.api.confirm import ConfirmationResult, SlowdownConfirmation, doubtful_pairs, key_of
from opmark.api.keywords import keywords_of
from opmark.api.requests import ABRequest, CheckRequest, RunRequest, TurnOptions
from opmark.api.run import plan_cases, run_request
from opmark.errors import UnknownName, UserError
from opmark.runner.selection import select_cases
from opmark.schema import Case
from opmark.schema.case import shown_case
from opmark.schema.comparison import CheckedCase, CheckResult, Compared, Outcome, Pairing
from opmark.schema.options import MeasureOptions, Selection, options_of, split_names
from opmark.schema.record import COUNTED, FAILED, MEASURED
from opmark.units import count_noun

# Options that may be given beside a stored run: they apply to cases that are measured again.
_ALLOWED_WITH_RUN = ("allow", "timeout", "compile_timeout", "clocks")
# Options that cases are measured again with.
_MEASURED_AGAIN = (
    "seed",
    "verify",
    "rel_ci",
    "min_time",
    "max_time",
    "min_samples",
    "warmup",
    "samples",
    "mode",
    "timer",
)


class NoCommonCase(UserError):
    """The baseline has none of the cases that are checked."""


@keywords_of(CheckRequest)
def check(request: CheckRequest) -> CheckResult:
    """Compare a stored run (`current`), or what `opmark.run` would measure, with a baseline.

    Cases that look slower are measured again, in turns with the baseline if it can be run once more: as its git
    revision, in its interpreter, or as `against_...` says; `make` is run in a revision's files first. Only cases that
    are slower in turns, by more than the margin, are `slower`. Without a baseline, `against_rev` is measured in turns
    with the files as they are.
    """
    return check_request(request)


def check_request(request: CheckRequest) -> CheckResult:
    if not request.baseline:
        return _check_in_turns(request)
    if request.current is not None:
        _refuse_with_run(request)
    against = BaselineSide(request.against_rev, request.against_python, request.against_backend)
    against.check()
    margin, drift = request.margin, request.drift
    with ExitStack() as stack:
        finder = RunFinder(stack, request.db)
        asked = _cases_to_check(request) if request.current is None else None
        stored = None if request.current is None else _run(finder, request.current)
        base, label_notes = find_baseline(finder, request.baseline, asked, stored)
        if asked is not None:
            _refuse_other_cases(base, asked)
            # The code under check may never be merged: the session keeps the run out of histories.
            now_request = RunRequest(**_shared(request, RunRequest), session=secrets.token_hex(8), say=request.say)
            result = (request.measure or run_request)(now_request)
            now = RunReference(finder.store(), result.run, result.run.label or "now")
        else:
            assert stored is not None
            now = stored
        first = compare_stored(base, now, margin=margin, drift=drift, unlike=request.unlike)
        doubtful = doubtful_pairs(first, margin)
        options = _turn_options(request, now if request.current and doubtful else None)
        look = SlowdownConfirmation(
            base, now, against, options, drift, request.db, request.say, request.in_turns or measure_sides,
            live=request.current is None, allow=split_names(request.allow), make=request.make, on_turn=request.on_turn,
        )  # fmt: skip
        second = look.at(doubtful)
        findings = tuple(_finding(pair, second.get(key_of(pair))) for pair in first.pairs)
    notes = (*label_notes, *look.notes)
    return CheckResult(first, findings, first.only[0], _fail_on(request), notes, tuple(look.runs))


def _check_in_turns(request: CheckRequest) -> CheckResult:
    """Compare the files as they are with a revision, both measured now: no stored run is needed."""
    if not request.against_rev or request.current or request.against_python or request.against_backend:
        raise UserError(
            "no baseline is named",
            "as in --baseline main, the label of an earlier run; or --against-rev HEAD~1 alone, which measures both",
        )
    known, own = options_of(CheckRequest), _shared(request, ABRequest)
    given = {name: value for name, value in own.items() if name == "margin" or value != known[name].default}
    found = ab_request(ABRequest(**given, rev=request.against_rev, on_turn=request.on_turn, say=request.say))
    findings = tuple(CheckedCase(pair, _outcome(pair, measured_twice=True)) for pair in found.pairs)
    return CheckResult(found, findings, found.only[0], _fail_on(request))


def _fail_on(request: CheckRequest) -> tuple[str, ...]:
    return tuple(word for word in split_names(request.fail_on) if word != "none")


def _shared(request: CheckRequest, other: type) -> dict[str, Any]:
    """Return the options that another request has as well, by name."""
    return {name: getattr(request, name) for name in options_of(other) if name in options_of(CheckRequest)}


def _refuse_with_run(request: CheckRequest) -> None:
    """Raise UserError for options that would have no effect, because a stored run has been measured already."""
    measuring = {**options_of(Selection), **options_of(MeasureOptions)}
    others = [(name, options_of(CheckRequest)[name]) for name in ("label", "retries")]
    for name, found in [*measuring.items(), *others]:
        if name not in _ALLOWED_WITH_RUN and getattr(request, name) != found.default and getattr(request, name) != []:
            option = "operators" if name == "ops" else found.flag
            raise UserError(f"--run is of a run that is stored; {option} is for what is measured now", "leave one out")


def _run(finder: RunFinder, name: str) -> RunReference:
    found = finder.run(name)
    if found is None:
        known = [run.label for run in finder.store().runs() if run.label]
        raise UnknownName("run", name, dict.fromkeys(known))
    return found


def find_baseline(
    finder: RunFinder, name: str, asked: Mapping[str, Case] | None, stored: RunReference | None
) -> tuple[RunReference, tuple[str, ...]]:
    """Find the baseline, and say which run it is where its label has several; UserError if none of its cases was
    measured.

    A label names its newest run that has a case in common with what is checked, other than the run that is checked:
    nights that measure a part of the cases each have one label.
    """
    found = _run(finder, name)
    alike = [run for run in found.store.runs() if run.label and run.label == found.run.label]
    notes: tuple[str, ...] = ()
    if found.run.label == name.rpartition(BEHIND)[2]:
        cases = set(asked) if asked is not None else counted_cases(stored) if stored else set()
        earlier = [run for run in alike if not (stored and stored.store is found.store and stored.run.id == run.id)]
        if not earlier:
            raise UserError(
                f"`{name}` is the label of the run that is checked and of no other",
                "a second run with this label, or another baseline, is needed; `opmark runs` lists what there is",
            )
        chosen = next((run for run in earlier[:_FAR_BACK] if cases & counted_cases(found._replace(run=run))), None)
        found = found._replace(run=chosen or earlier[0])
        newer = [run for run in alike[: alike.index(found.run)] if not stored or run.id != stored.run.id]
        but = f"; the {count_noun(len(newer), 'newer one')} measured none of these cases" if newer else ""
        if len(alike) > 1:
            notes = (f"`{name}` is the label of {len(alike)} runs: the baseline is {found.run.id}{but}",)
    if stored and stored.store is found.store and stored.run.id == found.run.id:
        raise UserError(
            f"the baseline `{name}` is the run that is checked itself ({found.run.id})",
            "name another one: `LABEL@{-1}` is the run with the label before its newest; `opmark runs` lists them",
        )
    statuses = [figure.status for figure in found.store.figures(runs=[found.run.id])]
    if not COUNTED.intersection(statuses):
        raise UserError(
            f"the baseline `{name}` (run {found.run.id}) measured nothing that counts: "
            f"{count_noun(len(statuses), 'record')}, none of them ok or unchecked",
            f"`opmark show {found.run.id}` says why",
        )
    return found, notes


_FAR_BACK = 100
"""Number of runs of a label that are looked through for the cases of a check."""


def counted_cases(found: RunReference) -> set[str]:
    return {figure.case for figure in found.store.figures(runs=[found.run.id]) if figure.status in COUNTED}


def _cases_to_check(request: CheckRequest) -> dict[str, Case]:
    """Return the cases that will be measured, by id; UserError if a launcher has started several processes."""
    selected = select_cases(request, request.seed)
    if selected.place:
        raise UserError(
            f"a launcher ({selected.place.launcher}) has started several processes of this check",
            "let it start `opmark run`, and then `opmark check --run RUN` by itself",
        )
    whole = plan_cases(selected, request)
    return {task.case.id: task.case for task in (*whole.tasks, *(record.task for record in whole.skipped))}


def _refuse_other_cases(base: RunReference, asked_for: Mapping[str, Case]) -> None:
    """Raise UserError before anything is measured if the baseline has none of the cases."""
    known = {figure.case: figure.op for figure in base.store.figures(runs=[base.run.id])}
    if not asked_for.keys() & known.keys():
        there = base.store.cases(known)
        named = [sorted({_case_name(case) for case in cases}) for cases in (asked_for.values(), there.values())]
        raise NoCommonCase(
            f"no case in common: asked for {count_noun(len(asked_for), 'case')} ({_list_first(named[0])}), the "
            f"baseline `{base.name}` has {count_noun(len(known), 'case')} ({_list_first(named[1])})",
            "a case is an operator with all its parameters and its phase; ask for what the baseline was made with",
        )


def _case_name(case: Case) -> str:
    return " ".join(filter(None, (shown_case(case).op, case_parameters(case), case.phase)))


def _list_first(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def compare_stored(base: RunReference, now: RunReference, **how: Any) -> Compared:
    a, b = side_of(base.store, base.run, base.name), side_of(now.store, now.run, now.name)
    return compare_sides(a, b, cases_of((base.store, a), (now.store, b)), **how)


def _turn_options(request: CheckRequest, stored: RunReference | None) -> TurnOptions:
    """Return how to measure again: with the options of the request, or with those of the stored run."""
    limits = {name: getattr(request, name) for name in ("timeout", "compile_timeout", "budget", "margin", "clocks")}
    if stored is None:
        return TurnOptions(**{name: getattr(request, name) for name in _MEASURED_AGAIN}, **limits)
    used = next(record.task.settings for record in stored.store.records(stored.run.id))
    return TurnOptions(
        seed=used.seed, verify=used.verify, mode=used.mode, timer=used.timer, warmup=used.sampling.warmup,
        samples=used.sampling.samples, **limits,
    )  # fmt: skip


def _finding(pair: Pairing, look: ConfirmationResult | None) -> CheckedCase:
    return CheckedCase(pair, look.outcome, look.pair, look.why) if look else CheckedCase(pair, _outcome(pair))


def _outcome(pair: Pairing, *, measured_twice: bool = False) -> Outcome:
    """Return the outcome of a case that was not measured again, or need not be, since it was `measured_twice`."""
    then, now = pair.statuses
    if now in MEASURED:
        return "mended" if then in FAILED else pair.verdict
    if then in FAILED:
        return "broken"
    if measured_twice and now in FAILED:
        return "failed"
    return "undecided" if then == "skipped" else "missing"
