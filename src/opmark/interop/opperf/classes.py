"""The classes of DL Operator Benchmarks, made from a table, and the functions that run all classes of a kind."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import groupby
from statistics import fmean
from typing import Any

from opmark.api.requests import talk
from opmark.errors import OpmarkError, nearest
from opmark.interop.opperf.class_inputs import CLASSES, INITIALIZER, Class, class_meaning, complete_inputs
from opmark.interop.opperf.measurement import CPU, brief_reason, measure, print_doubt, show_command
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Caution, Entry, Record
from opmark.schema.options import PathLike


def normal(shape: Any = (1,), **options: Any) -> Any:
    """Placeholder for MXNet's own function: the worker draws values from the domain of each operator."""
    raise OpmarkError("the worker draws the values of tensors itself", "leave the initializer as it is")


class MXNetOperatorBenchmarkBase:
    """One operator with its inputs. Results are stored as a run; `db=":memory:"` stores none."""

    of: Class
    failure = "not run yet"
    """Why there are no results."""
    cautions: tuple[Caution, ...] = ()
    """Reasons to doubt the results."""
    show_command = ""
    """The command that shows the record."""
    _has_new_doubts = False

    def __init__(
        self, ctx: Any = CPU, warmup: int | None = None, runs: int | None = None,
        inputs: Mapping[str, Any] | None = None, *, framework: str = "torch", threads: int | None = None,
        db: PathLike | None = None,
    ) -> None:  # fmt: skip
        self.ctx = ctx
        self.warmup = self.of.warmup if warmup is None else warmup
        self.runs = self.of.runs if runs is None else runs
        self.inputs = _with_functions(complete_inputs(self.of, inputs or {}))
        self.results: dict[str, float] = {}
        self.framework, self.threads, self.db = framework, threads, db
        if any(key.endswith("initializer") and callable(v) and v is not normal for key, v in (inputs or {}).items()):
            warnings.warn("initializer is ignored: values are drawn from the domain of the operator", stacklevel=2)

    def run_benchmark(self) -> None:
        """Measure the operator; raise OpmarkError with the reason if this is not possible."""
        run_all([self])
        if not self.results:
            raise OpmarkError(f"{self.of.name}: {brief_reason(self.failure)}", "`opmark show` shows the record")

    def print_benchmark_results(self) -> None:
        for name, seconds in self.results.items():
            print(f"{name} - {seconds:.6f} seconds")
        self._print_doubts()

    def get_benchmark_results(self) -> dict[str, float]:
        self._print_doubts()
        return self.results

    def _print_doubts(self) -> None:
        """Print the doubts once, when the numbers are used first."""
        if self._has_new_doubts:
            print_doubt(f"{', '.join(self.results)} is", [caution.code for caution in self.cautions], self.show_command)
            self._has_new_doubts = False

    def source(self, place: int) -> str:
        """Return a name that is unique among the benchmarks of a run."""
        return f"{self.of.name}[{place}]"

    def entry(self, place: int = 0) -> Entry:
        inputs = {key: list(value) if isinstance(value, tuple) else value for key, value in self.inputs.items()}
        found = class_meaning(self.of, inputs)
        for note in found.notes:
            talk(f"{self.of.name}: {note}")
        operator = find_operator(found.op)
        backward = inputs["run_backward"] and operator.why_no_phase(operator.complete(found.params), "backward") is None
        phase: Any = "both" if backward and self.of.backward else "forward"
        return Entry(found.op, found.params, phases=[phase], source=self.source(place))

    def set_result(self, record: Record, show_command: str) -> None:
        if record.measurements:
            self.cautions, self.show_command = record.measurements[0].cautions, show_command
            self._has_new_doubts = bool(self.cautions)
            word = "Forward_Backward" if record.task.case.phase == "both" else "Forward"
            self.results[f"MX_{self.of.label}_{word}_Time"] = fmean(record.measurements[0].samples)
        else:
            self.failure = f"{record.status_text}: {record.reason}"


def run_all(benchmarks: Sequence[MXNetOperatorBenchmarkBase]) -> None:
    """Measure benchmarks; those with the same settings share a run, and so a process."""
    for (warmup, runs, framework, threads, *_), alike in groupby(benchmarks, key=_settings):
        some = list(alike)
        result = measure(
            [one.entry(i) for i, one in enumerate(some)], ctx=some[0].ctx, framework=framework, warmup=warmup,
            runs=runs, threads=threads, db=some[0].db,
        )  # fmt: skip
        for i, one in enumerate(some):
            for record in result.records:
                if one.source(i) in record.task.case.sources:
                    one.set_result(record, show_command(result))


def _settings(one: MXNetOperatorBenchmarkBase) -> tuple[int, int, str, int | None, str, str]:
    return one.warmup, one.runs, one.framework, one.threads, str(one.db), str(one.ctx)


def _with_functions(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs as in DL Operator Benchmarks: shapes as tuples, initializers as functions."""
    return {key: normal if value == INITIALIZER and key.endswith("initializer") else _tuple(value)
            for key, value in inputs.items()}  # fmt: skip


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@cache
def make_class(name: str) -> type[MXNetOperatorBenchmarkBase]:
    of = CLASSES[name]
    about = f"{of.name} of DL Operator Benchmarks: {find_operator(class_meaning(of, of.inputs).op).summary}."
    return type(
        name,
        (MXNetOperatorBenchmarkBase,),
        {"of": of, "__doc__": about, "__module__": f"opmark.interop.opperf.{of.module}"},
    )


def _function_name(category: str) -> str:
    return (
        f"run_{category}_operations_benchmarks"
        if category == "customop"
        else f"run_all_{category}_operations_benchmarks"
    )


FUNCTIONS: dict[str, str] = {_function_name(of.category): of.category for of in CLASSES.values()}
"""Categories by the function that runs all their classes."""


@cache
def make_function(name: str) -> Callable[..., list[dict[str, float]]]:
    category = FUNCTIONS[name]

    def run(
        ctx: Any = CPU, inputs: Mapping[str, Any] | None = None, *, warmup: int | None = None, runs: int | None = None,
        framework: str = "torch", threads: int | None = None, db: PathLike | None = None,
    ) -> list[dict[str, float]]:  # fmt: skip
        names = [of.name for of in CLASSES.values() if of.category == category]
        settings: dict[str, Any] = {
            "warmup": warmup, "runs": runs, "framework": framework, "threads": threads, "db": db,
        }  # fmt: skip
        return run_classes(names, ctx, inputs or {}, **settings)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"Run all classes of {category.replace('_', ' ')} in one process; print the times and return them."
    return run


def run_classes(names: Sequence[str], ctx: Any, inputs: Mapping[str, Any], **settings: Any) -> list[dict[str, float]]:
    """Run classes; each gets the `inputs` that it has. An input that no class has is an error."""
    for key in inputs:
        if not any(key in CLASSES[name].inputs for name in names):
            complete_inputs(CLASSES[names[0]], {key: None})
    benchmarks = []
    for name in names:
        own = {key: value for key, value in inputs.items() if key in CLASSES[name].inputs}
        benchmarks.append(make_class(name)(ctx, inputs=own, **settings))
    run_all(benchmarks)
    for one in benchmarks:
        one.print_benchmark_results()
        if not one.results:
            talk(f"{one.of.name} was not measured: {brief_reason(one.failure)}")
    return [one.get_benchmark_results() for one in benchmarks]


def members(module: str) -> list[str]:
    """Return the names in a module of DL Operator Benchmarks."""
    classes = {of.name: of.category for of in CLASSES.values() if of.module == module}
    return [*classes, *(name for name, category in FUNCTIONS.items() if category in classes.values())]


def member(module: str, name: str) -> Any:
    """Return a class or function of a module."""
    known = members(module)
    if name in known:
        return make_class(name) if name in CLASSES else make_function(name)
    near = nearest(name, known)
    hint = f"; did you mean {near}?" if near else ""
    raise AttributeError(f"module 'opmark.interop.opperf.{module}' has no attribute {name!r}{hint}")
