"""Knobs of torch: switches of a process, and modes and options of torch.compile. Nothing here imports torch."""

from __future__ import annotations

from opmark.plugin import Knob, Operator, Params, Space, SpaceRule
from opmark.plugin.space import threads_knob

_LAYOUTS = Knob("layout", ("contiguous", "channels_last"), "choice", "contiguous", "memory format of images")


def _has_images(operator: Operator, params: Params) -> bool:
    """Return whether any input has the four axes that `channels_last` is for."""
    return any(len(spec.shape) == 4 and not spec.strides for spec in operator.inputs(params).values())


def eager_cpu(operator: Operator, params: Params) -> Space:
    knobs = [
        threads_knob(),
        Knob("onednn", (True, False), "flag", True, "use oneDNN where torch has both it and code of its own"),
        Knob("flush_denormals", (False, True), "flag", False, "take numbers close to zero for zero"),
    ]
    return Space((*knobs, _LAYOUTS) if _has_images(operator, params) else tuple(knobs))


def eager_cuda(operator: Operator, params: Params) -> Space:
    knobs = [
        Knob("cudnn_benchmark", (False, True), "flag", False, "let cuDNN try its algorithms at the first call"),
        Knob("reduced_precision_reduction", (True, False), "flag", True, "sums of 16-bit products in 16 bits"),
        Knob("blas_library", ("default", "cublas", "cublaslt"), "choice", "default", "library of matrix products"),
    ]
    return Space((*knobs, _LAYOUTS) if _has_images(operator, params) else tuple(knobs))


_COMMON = (
    Knob("epilogue_fusion", (True, False), "flag", True, "fuse what follows a template"),
    Knob("max_fusion_size", (16, 64, 256), "choice", 64, "operators in one kernel"),
    Knob("coordinate_descent_tuning", (False, True), "flag", False, "tune the kernels one parameter after the other"),
    Knob("aggressive_fusion", (False, True), "flag", False, "fuse also where little is shared"),
    Knob("shape_padding", (True, False), "flag", True, "pad matrices to sizes that the hardware likes"),
    Knob("split_reductions", (True, False), "flag", True, "reduce long rows in several kernels"),
)


def compile_cpu(operator: Operator, params: Params) -> Space:
    """Options of inductor for C++."""
    return Space((
        threads_knob(),
        Knob("max_autotune", (False, True), "flag", False, "choose between templates and libraries by measuring"),
        *_COMMON[:4],
        Knob("cpp.simdlen", (0, 1, 256, 512), "choice", 0, "bits of a vector; 0: the widest, 1: no vectors"),
        Knob("cpp.min_chunk_size", (512, 4096, 16384), "choice", 512, "fewest elements for a thread"),
        Knob("cpp.dynamic_threads", (False, True), "flag", False, "ask for the number of threads at run time"),
        Knob("cpp.enable_tiling_heuristics", (True, False), "flag", True, "choose loops to make vectors of"),
        Knob("cpp.enable_floating_point_contract_flag", ("off", "fast"), "choice", "off", "fused multiply-adds"),
    ))  # fmt: skip


def compile_cuda(operator: Operator, params: Params) -> Space:
    """Options of inductor for Triton."""
    return Space(
        (
            Knob("max_autotune", (False, True), "flag", False, "choose between templates and libraries by measuring"),
            *_COMMON,
            Knob("triton.cudagraphs", (False, True), "flag", False, "record a graph of the device"),
            Knob("triton.multi_kernel", (0, 1), "choice", 0, "choose between kinds of reductions at run time"),
            Knob("triton.persistent_reductions", (True, False), "flag", True, "keep short rows in registers"),
            Knob("triton.prefer_nd_tiling", (False, True), "flag", False, "tile several axes"),
            Knob("triton.max_tiles", (0, 1, 2, 3), "choice", 0, "axes of a grid; 0: inductor decides"),
        ),
        (
            SpaceRule(
                "have two axes or more where several are tiled",
                lambda c: not c["triton.prefer_nd_tiling"] or c["triton.max_tiles"] != 1,
            ),
        ),
    )
