"""benchmark.opperf.utils.op_registry_utils: opperf's operators by category, with their default inputs.

opperf asks MXNet for its operators; here they are those of the suite `opperf`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from opmark.errors import UnknownName, UserError
from opmark.interop.opperf.operators import CATEGORIES, NO_COUNTERPART, OPERATORS
from opmark.interop.opperf.performance import default_inputs, has_backward
from opmark.interop.opperf.utils import refuse_import
from opmark.runner.survey import survey

_CATEGORIES = {
    "get_all_unary_operators": "unary",
    "get_all_broadcast_binary_operators": "binary-broadcast",
    "get_all_elemen_wise_binary_operators": "binary-elementwise",
    "get_all_misc_binary_operators": "binary-misc",
    "get_all_random_sampling_operators": "random",
    "get_all_linalg_operators": "linalg",
    "get_all_reduction_operators": "reduction",
    "get_all_nn_basic_operators": "nn-basic",
    "get_all_nn_activation_operators": "activation",
    "get_all_optimizer_operators": "optimizer",
    "get_all_sorting_searching_operators": "sorting",
    "get_all_rearrange_operators": "rearrange",
    "get_remaining_miscellaneous_operators": "misc",
    "get_all_indexing_routines": "indexing",
    "get_all_loss_operators": "loss",
    "get_all_shape_operators": "shape",
    "get_all_expanding_operators": "expanding",
    "get_all_rounding_operators": "rounding",
}
_REFUSED = dict.fromkeys(
    ("_select_ops", "_set_op_arguments", "_get_", "get_all_large_tensor_operators"),
    "it reads MXNet's registry; the functions `get_all_..._operators` list the operators that opmark has",
)
_TENSOR, _OPTION = "NDArray-or-Symbol", "option"


def _operators_of(category: str) -> dict[str, dict[str, Any]]:
    """Return the operators of a category, each with `has_backward`, `nd_op_handle` (its name, which
    `run_performance_test` takes) and `params`."""
    return {name: _describe(name) for name in CATEGORIES[category] if name in OPERATORS}


def _describe(name: str) -> dict[str, Any]:
    row = OPERATORS[name][0]
    tensors = [names.split("|")[0].rstrip("*") for names in row.tensors]
    names = [*tensors, *row.options]
    types = [_TENSOR] * len(tensors) + [_OPTION] * len(row.options)
    params = {"narg": len(names), "arg_names": names, "arg_types": types}
    return {"has_backward": has_backward(name), "nd_op_handle": name, "params": params}


def __getattr__(name: str) -> Callable[[], dict[str, dict[str, Any]]]:
    if name in _CATEGORIES:
        return partial(_operators_of, _CATEGORIES[name])
    refuse_import(__name__, name, _REFUSED)


def prepare_op_inputs(op: str, arg_params: Any = None, int64_tensor: str = "off") -> list[dict[str, Any]]:
    """Return the inputs of the suite for an operator, as `run_performance_test` takes them."""
    if not isinstance(op, str) or op not in OPERATORS:
        raise UnknownName("operator of opperf", str(op), OPERATORS, "opmark opperf --list")
    found = default_inputs(op, large=int64_tensor == "on")
    if not found:
        raise UserError(
            f"`{op}`: opperf's words cannot say what the suite measures", f"run_op_benchmarks(['{op}']) measures it"
        )
    return found


def get_operators_with_no_benchmark(operators_with_benchmark: Iterable[str]) -> list[str]:
    """Return opperf's operators that are not among those given."""
    known = {*(name for names in CATEGORIES.values() for name in names), *NO_COUNTERPART}
    return sorted(known - set(operators_with_benchmark))


def get_current_runtime_features() -> dict[str, dict[str, str]]:
    """Return the backends by name, with a check mark if they are installed, in place of MXNet's compile flags."""
    marks = {found.name.upper(): "✖" if found.reason else "✔" for found in survey()}
    return {"runtime_features": {name: f"{mark} {name}" for name, mark in sorted(marks.items())}}
