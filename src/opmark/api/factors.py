"""What decides the time of an operator: `opmark factors`."""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from msgspec.structs import replace

from opmark.analysis.factors import SESSION, study, values_of
from opmark.api.keywords import keywords_of
from opmark.api.requests import FactorsRequest
from opmark.api.result import existing_store, open_store
from opmark.errors import InvalidParameter, UserError
from opmark.hardware.sensors import CpuSensors
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend as find_backend
from opmark.runner.clocks import ClockLocks
from opmark.runner.guests.placement import why_missing
from opmark.runner.plan import Plan, make_plan, rank_count, settings_for
from opmark.runner.selection import default_backends, select_cases
from opmark.runner.session import Retries, begin_or_resume, new_run
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Case, Run, Task
from opmark.schema.case import content_id
from opmark.schema.factors import FactorSetting, FactorStudy
from opmark.schema.options import MeasureOptions, as_list, split_names
from opmark.store.protocol import Store
from opmark.store.runs import find_run
from opmark.tuning.database import refuse_tuned
from opmark.tuning.factor_search import FactorOptions, FactorProgress, measure_factors
from opmark.tuning.factors import CaseFactor, choose_factors, find_factors, with_knobs
from opmark.tuning.spaces import find_tunables
from opmark.units import count_noun

__all__ = ["FactorProgress", "factor_settings", "factors", "factors_request", "stored_study"]

VERSION_OF_DESIGN = 1
"""Changes when a study measures other points than before, so that older runs are not resumed."""
_USUAL_OPERATOR = "matmul"
"""The operator whose settings `--list` shows where none is named."""


@keywords_of(FactorsRequest)
def factors(request: FactorsRequest) -> FactorStudy:
    """Vary sizes, parameters, knobs, threads and resources of one case, and return what each of them does to the time,
    and to the energy where there is a sensor.

    Every point is a record of the run in several fresh processes: what differs between these is noise. `run`: read a
    stored run instead of measuring.
    """
    return factors_request(request)


def factors_request(request: FactorsRequest) -> FactorStudy:
    if request.run is not None:
        return _read_study(request)
    case, info = _one_case(request)
    base = _base_task(request, case, info)
    chosen = choose_factors(split_texts(request.factor), find_factors(base, info), base)
    base = with_knobs(base, chosen)
    _refuse_few_trials(request, chosen)
    plan = content_id([
        "factors", base.id, [[f.name, [repr(level) for level in f.levels], f.low, f.high] for f in chosen],
        request.trials, request.processes, request.interactions, VERSION_OF_DESIGN,
    ])  # fmt: skip
    with (
        closing(ClockLocks(request.clocks, request.say)) as clocks,
        closing(open_store(request.db, create=True, say=request.say)) as store,
    ):
        label = request.label or f"factors {case.op} on {info.name}"
        run = replace(new_run(Plan((), ()), label), plan=plan, session=f"{SESSION}{secrets.token_hex(8)}")
        recorder, done = begin_or_resume(
            store, run, resume=request.resume, label=request.label, say=request.say, on_record=request.on_record
        )
        workers = WorkerOptions(
            request.timeout, request.compile_timeout, request.say, store.add_environment, clocks=clocks
        )
        options = FactorOptions(
            request.trials, request.processes, time.monotonic() + request.budget, workers, Retries(request.retries),
            done, recorder.add, request.interactions, request.on_progress,
        )  # fmt: skip
        found = measure_factors(base, chosen, options)
    try:
        return study(values_of(found.records), recorder.run.id, found.notes)
    except UserError as error:
        if not found.notes:
            raise
        raise UserError(error.message, f"{found.notes[-1]}; --resume goes on") from None


def split_texts(texts: str | Sequence[str]) -> list[str]:
    """Return factors as a list: a text may name one, since its levels have commas between them."""
    return [texts] if isinstance(texts, str) and texts else list(texts)


def factor_settings(request: FactorsRequest) -> list[FactorSetting]:
    """Return every setting that can be varied of an operator here, and what cannot be, with the reason."""
    if not split_names(request.ops) and request.workload is None and request.suite is None and not request.op:
        request = dataclasses.replace(request, ops=(_USUAL_OPERATOR,))
    case, info = _one_case(request)
    return [factor.setting() for factor in find_factors(_base_task(request, case, info), info)]


def stored_study(store: Store, run: Run) -> FactorStudy:
    """Return the factors of a stored run."""
    return study(values_of(store.records(run.id)), run.id)


def _read_study(request: FactorsRequest) -> FactorStudy:
    for name in ("factor", "ops"):
        if split_texts(getattr(request, name)):
            what = "--factor" if name == "factor" else "an operator"
            raise UserError(f"--run reads a stored run, and {what} says what to measure", "leave one of them out")
    with existing_store(request.db) as store:
        if store is None:
            raise UserError("there is no store yet", "`opmark factors OP` measures something")
        return stored_study(store, find_run(store, request.run))


def _one_case(request: FactorsRequest) -> tuple[Case, BackendInfo]:
    selected = select_cases(request, request.seed)
    cases = selected.cases
    if len(cases) != 1:
        raise UserError(
            f"factors are varied around one case, and {count_noun(len(cases), 'case')} are selected",
            "name one operator, and give --size and each -p one value; --factor says what to vary",
        )
    named = split_names(request.backend) or default_backends(cases)
    if len(named) != 1:
        raise UserError(f"expected one backend, got {', '.join(named)}", "as in --backend torch-cpu")
    info = find_backend(named[0])
    refuse_tuned(info, "knobs are factors of their own")
    if missing := why_missing(info):
        raise UserError(f"backend `{info.name}` cannot run here: {missing}", "`opmark list backends` says what can")
    if rank_count(cases[0]):
        raise UserError(
            f"{cases[0].op} runs in several ranks, which have no factors yet", "`opmark run` sweeps --ranks and sizes"
        )
    return cases[0], info


def _base_task(request: FactorsRequest, case: Case, info: BackendInfo) -> Task:
    """Return the task around which everything is varied: one quantity in one state of the caches, and the energy where
    something counts it."""
    if len(as_list(request.threads)) > 1:
        raise InvalidParameter(
            "--threads: expected one number, at which the other factors are varied", "--factor threads=1,2 varies it"
        )
    values: dict[str, Any] = {
        one.name: getattr(request, one.name) for one in dataclasses.fields(MeasureOptions) if one.name != "processes"
    }
    settings = settings_for(MeasureOptions(**values, processes=1))[0]
    usual = "latency" if info.device in ("cpu", "none") else "device_time" if info.device == "cuda" else ""
    quantities = settings.quantities or ((usual,) if usual else ())
    if not settings.quantities and quantities and counts_energy(info):
        quantities = (*quantities, "energy")
    caches = settings.caches[:1] or (("warm",) if info.device != "cpu" else ())
    settings = replace(settings, quantities=quantities if not settings.load else (), caches=caches)
    plan = make_plan([case], [info.name], [settings], impl=split_names(request.impl), may_be_empty=True)
    if plan.tasks:
        return plan.tasks[0]
    tunable = find_tunables(case, info)  # it may run only with knobs
    if not tunable:
        raise UserError(f"{case.op} cannot run on {info.name}: {plan.skipped[0].reason}", "`opmark describe OP`")
    return Task(case, info.name, tunable[0].implementation.label, settings)


def counts_energy(info: BackendInfo) -> bool:
    """Whether a sensor counts the energy of the device, as far as can be told without starting the backend."""
    if info.device == "cpu":
        sensors = CpuSensors.detect()
        return sensors is not None and sensors.energy() is not None
    return info.device == "cuda"


def _refuse_few_trials(request: FactorsRequest, chosen: Sequence[CaseFactor]) -> None:
    least = 1 + sum(min(len(factor.first_levels()), 3) - 1 for factor in chosen)
    if request.trials < least:
        raise InvalidParameter(
            f"--trials: {count_noun(len(chosen), 'factor')} need at least {least} points, got {request.trials}",
            "fewer --factor, or more --trials",
        )
