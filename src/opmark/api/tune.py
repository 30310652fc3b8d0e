"""Tune cases, and say whether it was worth it: `opmark tune`."""

from __future__ import annotations

import secrets
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from dataclasses import replace as replace_fields
from typing import Any

import msgspec
from msgspec.structs import replace

from opmark.api.ab import measure_sides
from opmark.api.extract import describe_case, find_operators, model_operators
from opmark.api.keywords import keywords_of
from opmark.api.requests import TuneRequest, TurnOptions
from opmark.api.result import existing_store, open_store
from opmark.catalogue.expansion import cases_of
from opmark.errors import InvalidParameter, UserError
from opmark.models.extraction import Graph
from opmark.models.family import source_of as model_source
from opmark.plugin import BackendInfo
from opmark.plugin.registry import MODEL, backends, implementations
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.plugin.space import TUNED_OPERATORS
from opmark.runner.clocks import ClockLocks
from opmark.runner.guests.placement import why_missing
from opmark.runner.plan import Plan, default_threads, make_plan, settings_for
from opmark.runner.selection import default_backends, select_cases
from opmark.runner.session import begin_or_resume, new_run
from opmark.runner.supervisor import WorkerOptions
from opmark.runner.workload_source import problem_lines
from opmark.schema import Case, Run, Settings, Task
from opmark.schema.case import MODEL_PREFIX, content_id
from opmark.schema.comparison import Pairing
from opmark.schema.messages import Side
from opmark.schema.options import MeasureOptions, StoreOptions, as_list, split_names
from opmark.schema.record import utc_now
from opmark.schema.tuned import TunedEntry
from opmark.store.protocol import Store
from opmark.tuning.database import base_name, choose_entry, refuse_tuned, store_tuned, with_configuration
from opmark.tuning.search import SearchOptions, SearchResult, Trial, TuningCandidate, run_folder, search
from opmark.tuning.spaces import Tunable, find_tunables, source_of, tunables_or_refuse
from opmark.tuning.target import read_target
from opmark.tuning.tuners import find_tuner
from opmark.units import count_noun

__all__ = ["CaseTuning", "Trial", "Tuning", "tune", "tune_request", "tuning_view"]

_SHORTEST_VERDICT = 60.0
"""Seconds that a comparison in turns may take, however short the search was."""
_DEFAULT, _TUNED = "default", "tuned"


@dataclass(frozen=True)
class CaseTuning:
    """What became of one case."""

    case: Case
    entry: TunedEntry
    search: SearchResult | None = None
    against_default: Pairing | None = None
    against_library: Pairing | None = None
    standing: TunedEntry | None = None
    """An earlier entry that stays, because this tuning decided nothing. Its own entry is then not stored."""


@dataclass(frozen=True)
class Tuning:
    """The result of `opmark tune`."""

    backend: str
    library: str
    run: Run
    cases: list[CaseTuning]
    runs: tuple[str, ...]
    """Ids of all runs that were stored: candidates first, then what was measured in turns."""
    notes: tuple[str, ...] = ()

    @property
    def entries(self) -> list[TunedEntry]:
        return [one.entry for one in self.cases]


@keywords_of(TuneRequest)
def tune(request: TuneRequest) -> Tuning:
    """Search the knobs of cases on a backend, and hold what was found against the default and the vendor library.

    Every candidate is a record of the run. A configuration that is not surely faster than the default, measured in
    turns, is not kept as the best: then the database says that the default stays.
    """
    return tune_request(request)


def tune_request(request: TuneRequest) -> Tuning:
    selected = select_cases(request, request.seed)
    if selected.source is not None:
        for line in problem_lines(selected.source.problems, (*selected.source.notes, *selected.left_out)):
            request.say(line)
    info = _backend(request, selected.cases)
    return _TuningSession(request, info).run(selected.cases)


def _backend(request: TuneRequest, cases: Sequence[Case]) -> BackendInfo:
    named = split_names(request.backend) or default_backends(cases)
    if len(named) != 1:
        raise UserError(f"expected one backend to tune on, got {', '.join(named)}", "as in --backend tvm-cpu")
    info = find_backend(named[0])
    refuse_tuned(info, f"tune {base_name(info)}")
    if missing := why_missing(info):
        raise UserError(f"backend `{info.name}` cannot run here: {missing}", "`opmark list backends` says what can")
    return info


@dataclass
class _Found:
    """A case, what can be tuned of it, and what the search found."""

    case: Case
    tunables: list[Tunable]
    default: Task
    result: SearchResult | None = None
    chosen: TuningCandidate | None = None
    """What is held against the default; None where nothing is better."""
    known: TunedEntry | None = None
    """What the database has for the case or its nearest shape."""
    pairs: dict[str, Pairing] = field(default_factory=dict)


class _TuningSession:
    def __init__(self, request: TuneRequest, info: BackendInfo) -> None:
        self.request, self.info = request, info
        self.budget = request.budget
        find_tuner(request.tuner, info)
        threads = as_list(request.threads) or [default_threads()]
        if len(threads) > 1:
            raise UserError(
                f"expected one number of threads to tune for, got {', '.join(map(str, threads))}",
                "tune once for each; entries for other numbers of threads are kept beside each other",
            )
        self.threads = threads[0]
        self.library = _library(request.library, info)
        self.runs: list[str] = []
        self.notes: list[str] = []
        if self.request.trials < 1:
            raise InvalidParameter(f"--trials: expected at least 1, got {request.trials}")

    def run(self, cases: Sequence[Case]) -> Tuning:
        request = self.request
        models = [case for case in cases if find_operator(case.op).category == MODEL]
        found = [one for case in cases if (one := self._prepare(case, alone=len(cases) == 1))]
        operators: dict[str, list[_Found]] = {}
        for case in models:
            if self.info.takes_tuned_operators and not self._backend_tunes:
                operators[case.id] = [
                    one for part in self._operators_of(case) if (one := self._prepare(part, alone=False))
                ]
        every = {one.case.id: one for one in [*found, *(one for some in operators.values() for one in some)]}
        if not every:
            names = ", ".join(dict.fromkeys(case.op for case in cases))
            raise UserError(f"nothing of {names} has knobs on {self.info.name}", "`opmark space OP` lists what has")
        with (
            closing(ClockLocks(request.clocks, request.say)) as clocks,
            closing(open_store(request.db, create=True, say=request.say)) as store,
        ):
            run = self._search_all(list(every.values()), store, clocks)
        self._judge(list(every.values()))
        tuned = [self._entry(one, run) for one in every.values()]
        tuned += self._tune_models(models, operators, {one.entry.case: one.entry for one in tuned}, run)
        with closing(open_store(request.db, create=True, say=request.say)) as store:
            tuned = [replace_fields(one, standing=self._standing(store, one)) for one in tuned]
            # Where no candidate was tried, nothing is known, not even that the default stays.
            tried = [one for one in tuned if one.search is None or one.search.candidates or one.entry.verdict]
            store_tuned(store, [one.entry for one in tried if one.standing is None])
        shutil.rmtree(run_folder(run.id), ignore_errors=True)
        return Tuning(self.info.name, self.library, run, tuned, (run.id, *self.runs), tuple(self.notes))

    # What is tuned.

    @property
    def _backend_tunes(self) -> bool:
        """Whether the tuner is one that the backend brings: it tunes a model as a whole."""
        return self.request.tuner in self.info.tuners

    def _prepare(self, case: Case, *, alone: bool) -> _Found | None:
        """Return a case with its spaces; None if it has none, unless it stands alone: that is a mistake."""
        impl = (split_names(self.request.impl) or [""])[0]
        model = find_operator(case.op).category == MODEL
        if (alone and not (model and self.info.takes_tuned_operators)) or self._backend_tunes:
            tunables = tunables_or_refuse(case, self.info, impl, self.request.tuner)
        else:
            tunables = find_tunables(case, self.info, impl)
            for one in tunables:
                one.space.refuse_empty(one.name)
        if not tunables:
            if not model:
                self._note(f"{case.op} has no knobs on {self.info.name}: left out")
            return None
        settings = self._settings()
        plan = make_plan([case], [self.info.name], [settings], may_be_empty=True)
        if plan.tasks:
            default = plan.tasks[0]
        elif reasons := [record.reason for record in plan.skipped if record.task.implementation]:
            if alone:
                raise UserError(f"{case.op} cannot run on {self.info.name}: {reasons[0]}")
            self._note(f"{case.op}: left out: {reasons[0]}")
            return None
        else:  # it runs only with knobs: their defaults are the default
            default = Task(case, self.info.name, tunables[0].implementation.label, settings)
        return _Found(case, tunables, default)

    def _settings(self) -> Settings:
        """Return the settings of a candidate: one quantity in one state of the caches, so that a trial is short."""
        request = self.request
        values: dict[str, Any] = {"effort": "quick", "processes": 1, "threads": self.threads}
        settings = settings_for(_measure_options(request, **values))[0]
        caches = settings.caches or (("warm",) if self.info.device != "cpu" else ())
        quantities = settings.quantities or (("device_time",) if self.info.device == "cuda" else ())
        return replace(settings, caches=caches, quantities=quantities)

    def _operators_of(self, model: Case) -> list[Case]:
        source = model_source(model.op.removeprefix(MODEL_PREFIX))
        assert source is not None
        device = "cuda" if self.info.device == "cuda" else "cpu"
        # A backend for ONNX compiles the nodes of the ONNX graph, which are not the calls of torch.
        graph: Graph = "onnx" if self.info.framework == "onnx" else "torch"
        found = model_operators(model, find_operators(source, model.params, graph, device))
        cases = [case for entry in found.workload.cases for case in cases_of(entry, find_operator)]
        wanted = self.request.operators
        return [case for case in cases if not wanted or case.id in wanted]

    # The search.

    def _search_all(self, found: list[_Found], store: Store, clocks: ClockLocks) -> Run:
        request = self.request
        what = [sorted(one.case.id for one in found), self.info.name, list(split_names(request.impl))]
        plan = content_id(["tune", *what, request.tuner, request.seed, self.threads, VERSION_OF_SEARCH])
        label = request.label or f"tune {found[0].case.op} on {self.info.name}"
        run = replace(new_run(Plan((), ()), label), plan=plan, session=secrets.token_hex(8))
        recorder, done = begin_or_resume(
            store, run, resume=request.resume, label=request.label, say=request.say, on_record=request.on_record
        )
        workers = WorkerOptions(
            request.timeout, request.compile_timeout, request.say, store.add_environment, clocks=clocks
        )
        folder = run_folder(recorder.run.id)
        began = time.monotonic()
        for place, one in enumerate(found):
            left = self.budget - (time.monotonic() - began)
            share = left / (len(found) - place)
            starts = self._known(one)
            options = SearchOptions(
                request.tuner, request.trials, request.seed, time.monotonic() + share, workers, done, recorder.add,
                request.on_trial, starts=starts, folder=folder,
            )  # fmt: skip
            if request.on_case:
                request.on_case(describe_case(one.case), place, len(found))
            one.result = search(one.tunables, one.default, options)
            one.chosen = self._choose(one)
        return recorder.run

    def _known(self, one: _Found) -> tuple[TuningCandidate, ...]:
        """Return what the database has for this case or its nearest shape: the search begins with it."""
        with existing_store(self.request.db) as store:
            known = choose_entry(store, one.case, self.info, self.threads) if store else None
        impls = split_names(self.request.impl)
        if known is None or known.entry.default_stays or (impls and known.entry.implementation not in impls):
            return ()
        one.known = known.entry
        return (TuningCandidate(known.entry.implementation, known.entry.configuration, None),)

    def _choose(self, one: _Found) -> TuningCandidate | None:
        """Return the candidate to hold against the default; None if the default is among the best or nothing ran."""
        assert one.result is not None
        best = one.result.best
        if best is None:
            reasons = list(dict.fromkeys(each.reason for each in one.result.candidates if each.reason))
            why = "; ".join(reasons[:2]) or one.result.stopped
            self._note(f"{describe_case(one.case)}: no candidate could be measured: {why}")
        return best

    # The verdicts.

    def _judge(self, found: Sequence[_Found]) -> None:
        """Measure default and tuned in turns, then what is kept and the library."""
        better = [one for one in found if one.chosen is not None]
        self._compare(better, _DEFAULT, self.info.name, {one.case.id: one.chosen for one in better})
        kept = {one.case.id: one.chosen for one in found if _is_faster(one)}
        if self.library:
            self._compare(list(found), self.library, self.library, kept)

    def _compare(
        self,
        found: Sequence[_Found],
        name: str,
        backend: str,
        chosen: Mapping[str, TuningCandidate | None],
        cases: Sequence[Case] | None = None,
    ) -> None:
        """Measure a backend as it is (A) and the tuned one (B) in turns, and keep the verdicts under the name of A."""
        if not found:
            return
        request = self.request
        defaults = {one.case.id: one.default for one in found}
        sides = (Side(name, backend, self.threads), Side(_TUNED, self.info.name, self.threads))

        def configure(side: Side, task: Task) -> Task:
            default = defaults[task.case.id]
            settings = replace(task.settings, caches=default.settings.caches, quantities=default.settings.quantities)
            task = replace(task, settings=settings)
            if side.backend == self.info.name:
                task = replace(task, implementation=default.implementation)
            one = chosen.get(task.case.id)
            if side.name == _TUNED and one is not None:
                return with_configuration(task, one.configuration, one.implementation)
            return task

        options = _turn_options(request)
        try:
            compared = measure_sides(
                *sides, [one.case for one in found], options, StoreOptions(label=request.label, db=request.db),
                on_turn=request.on_turn, say=request.say, configure=configure,
            )  # fmt: skip
        except UserError as error:
            if name == _DEFAULT:
                raise
            self._note(f"not compared with {name}: {error.message}")
            return
        self.runs += compared.runs
        pairs = {pair.case: pair for pair in compared.pairs}
        for one in found:
            if one.case.id in pairs:
                one.pairs[name] = pairs[one.case.id]

    def _entry(self, one: _Found, run: Run) -> CaseTuning:
        """Return what is stored of a case: the best configuration if it is surely faster, else that the default
        stays."""
        kept = one.chosen if _is_faster(one) else None
        assert one.result is not None
        every = implementations(find_operator(one.case.op), self.info, every=True) if one.tunables else ()
        own = next((each for each in every if kept and each.label == kept.implementation), None)
        pair, library = one.pairs.get(_DEFAULT), one.pairs.get(self.library)
        found_before = one.known is not None and kept is not None and kept.configuration == one.known.configuration
        tuner = one.known.tuner if one.known and found_before else self.request.tuner
        entry = TunedEntry(
            one.case.op, one.case.params, one.case.id, base_name(self.info),
            kept.implementation if kept else "", dict(kept.configuration) if kept else {},
            read_target(self.info, self.threads), source_of(own, self.info) if own else "", one.case.phase,
            str(one.case.params.get("dtype", "")), pair.verdict if pair else "",
            pair.a if pair else one.result.default.seconds, pair.b if pair else None, self.library if library else "",
            library.a if library else None, library.verdict if library else "", tuner,
            len(one.result.candidates), run.id, tuple(self.runs), utc_now(), note=one.result.stopped,
        )  # fmt: skip
        return CaseTuning(one.case, entry, one.result, pair, library)

    def _standing(self, store: Store, one: CaseTuning) -> TunedEntry | None:
        """Return the configuration that an earlier tuning found for this very case, if this one has not decided
        anything: a busy machine, or a budget that is too small, is no reason to forget it."""
        if one.entry.verdict not in ("", "undecided"):
            return None
        known = choose_entry(store, one.case, self.info, self.threads)
        if known is None or known.distance or known.entry.default_stays:
            return None
        self._note(f"{describe_case(one.case)}: nothing was decided: what was tuned on {known.entry.made[:10]} stays")
        return known.entry

    # Models.

    def _tune_models(
        self, models: Sequence[Case], operators: Mapping[str, Sequence[_Found]], entries: Mapping[str, TunedEntry],
        run: Run,
    ) -> list[CaseTuning]:  # fmt: skip
        """Apply the tuned operators to the models they belong to, and measure these again, in turns."""
        done = []
        for case in models:
            tuned = [entries[one.case.id] for one in operators.get(case.id, ()) if one.case.id in entries]
            faster = [entry for entry in tuned if not entry.default_stays]
            if case.id not in operators:
                continue
            self._note(
                f"{describe_case(case)}: {len(faster)} of {count_noun(len(tuned), 'tuned operator')} surely faster"
                + ("" if faster else ": there is nothing to apply")
            )
            if not faster:
                continue
            wanted = [
                {"op": e.op, "params": e.params, "implementation": e.implementation, "configuration": e.configuration}
                for e in faster
            ]
            configuration = {TUNED_OPERATORS: msgspec.json.encode(wanted).decode()}
            plan = make_plan([case], [self.info.name], [self._settings()])
            whole = _Found(case, [], plan.tasks[0], SearchResult(TuningCandidate("", {}, None)))
            whole.chosen = TuningCandidate(plan.tasks[0].implementation, configuration, None)
            self._judge([whole])
            done.append(self._entry(whole, run))
        return done

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            self.request.say(text)


def tuning_view(found: Tuning) -> dict[str, Any]:
    """Return a tuning as plain data: of each case the entry, the candidates and the verdicts."""
    cases = []
    for one in found.cases:
        failed = Counter(each.reason for each in one.search.candidates if each.reason) if one.search else Counter[str]()
        best = one.search.best if one.search else None
        cases.append({
            "case": describe_case(one.case),
            "entry": msgspec.to_builtins(one.entry),
            "best": dict(best.configuration) if best else None,
            "tied": len(one.search.tied) if one.search else 0,
            "stopped": one.search.stopped if one.search else "",
            "failed": dict(failed),
            "against_default": msgspec.to_builtins(one.against_default),
            "against_library": msgspec.to_builtins(one.against_library),
            "stored": one.standing is None,
            "standing": one.standing.made if one.standing else "",
        })  # fmt: skip
    return {
        "backend": found.backend, "library": found.library, "run": found.run.id, "runs": list(found.runs),
        "cases": cases, "notes": list(found.notes),
    }  # fmt: skip


VERSION_OF_SEARCH = 1
"""Changes when a search asks other questions than before, so that older runs are not resumed."""


def _is_faster(one: _Found) -> bool:
    """Where other work disturbed some processes of a side, the verdict is that of the others."""
    pair = one.pairs.get(_DEFAULT)
    return pair is not None and pair.verdict == "faster"


def _library(named: str, info: BackendInfo) -> str:
    """Return the backend of the vendor library: torch on the same kind of device, or the one that is named."""
    if named == "none":
        return ""
    if named:
        found = find_backend(named)
        if missing := why_missing(found):
            raise UserError(f"--library {named} cannot run here: {missing}", "`opmark list backends` says what can")
        return found.name
    usual = f"torch-{info.device}"
    if usual not in backends() or why_missing(backends()[usual]) or usual == info.name:
        return ""
    return usual


def _measure_options(request: MeasureOptions, **changed: Any) -> MeasureOptions:
    return MeasureOptions(**{**_measure_values(request), **changed})


def _turn_options(request: TuneRequest) -> TurnOptions:
    own = {"effort": "quick", "processes": request.processes, "impl": (), "backend": ()}
    budget = max(_SHORTEST_VERDICT, request.budget)
    return TurnOptions(**{**_measure_values(request), **own, "margin": request.margin, "budget": budget})


def _measure_values(request: MeasureOptions) -> dict[str, Any]:
    return {one.name: getattr(request, one.name) for one in fields(MeasureOptions)}
