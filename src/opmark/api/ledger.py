"""Which operators of a model matter: `opmark ledger`."""

from __future__ import annotations

from opmark.analysis.ledger import Ledger, make_ledgers
from opmark.analysis.rows import rows_of_records
from opmark.api.extract import find_operators, model_case, model_operators
from opmark.api.keywords import keywords_of
from opmark.api.program_requests import LedgerRequest
from opmark.api.requests import RunRequest
from opmark.api.result import Result
from opmark.api.run import run_request
from opmark.api.show import show
from opmark.errors import UserError
from opmark.models.family import source_of
from opmark.plugin.registry import backend as find_backend
from opmark.schema.case import MODEL_PREFIX
from opmark.schema.options import MeasureOptions, StoreOptions, options_of, split_names


@keywords_of(LedgerRequest)
def ledger(request: LedgerRequest) -> list[Ledger]:
    """Return the ledger of a stored run, or measure a model with its operators and return its ledger."""
    return ledger_request(request)[0]


def ledger_request(request: LedgerRequest) -> tuple[list[Ledger], Result]:
    what = request.what
    measures = what is not None and what.startswith(MODEL_PREFIX)
    result = _measure(request, str(what)) if measures else show(what, db=request.db)
    rows = rows_of_records(result.records, result.run.id, result.peaks)
    return make_ledgers(rows), result


def _measure(request: LedgerRequest, model: str) -> Result:
    """Measure a model and its operators in one run: the same quantity for all, in both states of the caches."""
    names = split_names(request.backend) or ["torch-cpu"]
    info = find_backend(names[0])
    if len(names) > 1 or info.framework != "torch" or info.compiles:
        raise UserError(
            f"a ledger holds the calls of eager torch against a model, got {', '.join(names)}",
            "--backend torch-cpu or torch-cuda; `opmark extract MODEL --graph BACKEND` lists what another one fuses",
        )
    case = model_case(model, request.params, request.size)
    source = source_of(case.op.removeprefix(MODEL_PREFIX))
    assert source is not None
    found = find_operators(source, case.params, "torch", info.device)
    whole = model_operators(case, found, with_model=True)
    for problem in whole.problems:
        request.say(f"not measured: {problem}")
    shared = {**options_of(MeasureOptions), **options_of(StoreOptions)}
    options = {name: getattr(request, name) for name in shared}
    options |= {
        "backend": names,
        "quantity": request.quantity or (["latency"] if info.device == "cpu" else ["device_time"]),
        "cache": request.cache or ["warm", "rotated"],
        "processes": request.processes or 1,
    }
    return run_request(
        RunRequest(
            workload=whole.workload,
            **options,
            retries=request.retries,
            on_start=request.on_start,
            on_record=request.on_record,
            say=request.say,
        )
    )
