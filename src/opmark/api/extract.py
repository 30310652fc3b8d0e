"""The operators that a model calls, as a workload: `opmark extract`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from opmark.analysis.rows import case_parameters
from opmark.api.keywords import keywords_of
from opmark.api.program_requests import ExtractRequest
from opmark.api.requests import RunRequest, model_name
from opmark.catalogue import workload_file
from opmark.catalogue.expansion import cases_of
from opmark.errors import InvalidParameter, TaskError, UserError
from opmark.models.extraction import Extraction, Graph, extract_operators
from opmark.models.family import source_of
from opmark.models.source import ModelSource
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case, Entry, ImportProblem, Workload
from opmark.schema.case import MODEL_PREFIX, VIEWS_TAG
from opmark.schema.record import MEASURED
from opmark.schema.workload import VERSION
from opmark.store import memory
from opmark.units import count_noun

GRAPHS = ("torch", "onnx")


@dataclass(frozen=True)
class ModelOperators:
    """The operators of one case of a model."""

    model: Case
    workload: Workload
    problems: tuple[ImportProblem, ...] = ()
    """Calls or nodes that cannot be written as an operator."""
    calls: int = 0
    views: int = 0
    computed: bool = False
    """Whether the model was computed, because tensors without data did not do."""

    @property
    def text(self) -> str:
        """The workload as a file."""
        return workload_file.yaml_text(self.workload)

    @property
    def summary(self) -> str:
        distinct = len(self.workload.cases) - any(entry.op == self.model.op for entry in self.workload.cases)
        views = f"; views, which move no data, are left out: {count_noun(self.views, 'call')}"
        return (
            f"{describe_case(self.model)}: {count_noun(distinct, 'distinct operator')} "
            f"in {count_noun(self.calls, 'call')}"
            + (views if self.views else "")
            + (" (found by computing the model)" if self.computed else "")
        )


@dataclass(frozen=True)
class FusedGraph:
    """The graph that a backend runs instead of a model's own, by kinds of kernels."""

    model: Case
    backend: str
    kernels: Mapping[str, int]
    """Number of kernels by kind, the most frequent first."""
    operators: Mapping[str, int]
    """Number of operators of the graph that the backend was given, by kind."""


def find_operators(
    source: ModelSource, params: Mapping[str, Any], graph: Graph, device: str, *, real: bool = False
) -> Extraction:
    """Return the operators of a model; UserError where it cannot be traced."""
    try:
        return extract_operators(source, params, graph, device, real=real)
    except TaskError as error:
        raise UserError(error.message, error.hint) from None


@keywords_of(ExtractRequest)
def extract(request: ExtractRequest) -> ModelOperators | FusedGraph:
    """Return the operators that a model calls, each once with its count; for a backend, the kernels of its graph."""
    return extract_request(request)


def extract_request(request: ExtractRequest) -> ModelOperators | FusedGraph:
    case = model_case(request.model, request.params, request.size)
    if request.graph not in GRAPHS:
        find_backend(request.graph)
        return _fused_graph(case, request.graph)
    source = source_of(case.op.removeprefix(MODEL_PREFIX))
    assert source is not None
    graph: Any = request.graph
    found = find_operators(source, case.params, graph, request.device, real=request.real)
    return model_operators(case, found, with_model=request.with_model)


def model_case(name: str, params: Mapping[str, Any] | None, size: str) -> Case:
    """Return the one case of a model that is meant."""
    operator = find_operator(model_name(name))
    given = dict(params or {})
    sizes = [size] if size else [] if any(p.required and p.name in given for p in operator.params) else ["typical"]
    cases = cases_of(Entry(operator.name, given, sizes), find_operator)
    if len(cases) != 1:
        raise InvalidParameter(
            f"expected one case of `{name}`, got {len(cases)}", "give one value for each parameter, as in -p batch=1"
        )
    return cases[0]


def model_operators(case: Case, found: Extraction, *, with_model: bool = False) -> ModelOperators:
    """Return the operators as a workload; each has the case of the model as its source."""
    source = f"{case.op}#{case.id}"
    entries = [replace(entry, source=source) for entry in found.entries]
    if not entries:
        raise UserError(
            f"`{case.op}` calls no operator that could be written down", "`--graph onnx` looks at its graph"
        )
    if with_model:
        entries.insert(0, _entry_of(case, found.views))
    about = f"Operators of {describe_case(case)}: {count_noun(found.calls, 'call')}; without views: {found.views}."
    workload = Workload(VERSION, case.op.removeprefix(MODEL_PREFIX), entries, about)
    return ModelOperators(case, workload, tuple(found.problems), found.calls, found.views, found.computed)


def _entry_of(case: Case, views: int) -> Entry:
    return Entry(case.op, dict(case.params), tags=[f"{VIEWS_TAG}{views}"])


def describe_case(case: Case) -> str:
    phase = "" if case.phase == "forward" else case.phase
    return " ".join(filter(None, (case.op, case_parameters(case), phase)))


def _fused_graph(case: Case, backend: str) -> FusedGraph:
    """Let the backend compile the model, and look at what it made of it."""
    from opmark.api.run import run_request

    request = RunRequest(
        [case.op], params=dict(case.params), backend=[backend], samples=1, warmup=0, processes=1, verify=False,
        retries=0, db=memory.NAME,
    )  # fmt: skip
    (record,) = run_request(request).records
    made = record.compilation
    if made is None or not (made.kernels or made.operators):
        why = "it compiles nothing" if record.status in MEASURED else record.reason
        raise UserError(
            f"{backend} has no graph of its own for `{case.op}`: {why}", "without --graph, torch's own calls are listed"
        )
    return FusedGraph(case, backend, _kinds(made.kernels), _kinds(made.operators))


def _kinds(names: tuple[str, ...]) -> dict[str, int]:
    return dict(Counter(names).most_common())
