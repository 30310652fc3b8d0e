"""benchmark.opperf.nd_operations: one module per kind of operators, as opperf has them.

`from opmark.interop.opperf.nd_operations.unary_operators import run_mx_unary_operators_benchmarks` works as there.
"""

from __future__ import annotations

import sys
from types import ModuleType

from opmark.interop.opperf.performance import category_function

MODULES: dict[str, tuple[str, ...]] = {
    "unary_operators": ("run_mx_unary_operators_benchmarks",),
    "binary_operators": (
        "run_mx_binary_broadcast_operators_benchmarks",
        "run_mx_binary_element_wise_operators_benchmarks",
        "run_mx_binary_misc_operators_benchmarks",
    ),
    "gemm_operators": ("run_gemm_operators_benchmarks",),
    "random_sampling_operators": ("run_mx_random_sampling_operators_benchmarks",),
    "reduction_operators": ("run_mx_reduction_operators_benchmarks",),
    "sorting_searching_operators": ("run_sorting_searching_operators_benchmarks",),
    "indexing_routines": ("run_indexing_routines_benchmarks",),
    "array_manipulation_operators": (
        "run_rearrange_operators_benchmarks",
        "run_shape_operators_benchmarks",
        "run_expanding_operators_benchmarks",
        "run_rounding_operators_benchmarks",
        "run_join_split_operators_benchmarks",
    ),
    "nn_basic_operators": ("run_nn_basic_operators_benchmarks",),
    "nn_activation_operators": ("run_activation_operators_benchmarks",),
    "nn_conv_operators": (
        "run_pooling_operators_benchmarks",
        "run_convolution_operators_benchmarks",
        "run_transpose_convolution_operators_benchmarks",
    ),
    "nn_optimizer_operators": ("run_optimizer_operators_benchmarks",),
    "nn_loss_operators": ("run_loss_operators_benchmarks",),
    "misc_operators": ("run_mx_misc_operators_benchmarks",),
    "linalg_operators": ("run_linalg_operators_benchmarks",),
}
"""Functions by the module of opperf that has them."""

for _name, _functions in MODULES.items():
    _module = ModuleType(f"{__name__}.{_name}", f"opperf's {_name.replace('_', ' ')}.")
    vars(_module).update({function: category_function(function) for function in _functions})
    sys.modules[_module.__name__] = _module
    globals()[_name] = _module
