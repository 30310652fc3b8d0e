"""Indices over several axes: gather_nd, one_hot, and conversions between coordinates and flat indices."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import EXACT, INDEX_BYTES, SHAPE, elements, reference_in_numpy, signed_spec
from opmark.catalogue.operators._builders import torch
from opmark.catalogue.operators.gather import MOVED, lookup
from opmark.plugin import Launch, Operator, ParamRule, Params
from opmark.plugin.param import dtype, shape, size
from opmark.schema import Cost, TensorSpec

WHOLE = dtype("int64", default="int64")


def _coordinates(sizes: Any, n: int) -> TensorSpec:
    """Return [axes, n] coordinates, each below the size of its axis."""
    bounds = list(sizes)

    def make(generator: Any) -> Any:
        return np.stack([generator.integers(0, bound, n) for bound in bounds])

    return TensorSpec((len(bounds), n), "int64", 0, max(bounds), make)


def _depth(p: Params) -> tuple[int, ...]:
    return tuple(p["shape"][: p["depth"]])


def _gather_nd_counts(p: Params) -> tuple[int, int, int]:
    return p["indices"] * prod(p["shape"][p["depth"] :]), p["depth"] * p["indices"], elements(p)


def _torch_gather_nd(p: Params, x: Any, index: Any) -> Launch:
    places = tuple(index.unbind(0))
    return lambda: x[places]


GATHER_ND = lookup(
    "gather_nd",
    "slices of a tensor by coordinates of its first axes",
    _gather_nd_counts,
    params=(
        SHAPE,
        size("depth", "how many axes have a coordinate", 2),
        size("indices", "number of slices that are picked"),
        dtype(*MOVED),
    ),
    inputs=lambda p: {"x": signed_spec(p), "index": _coordinates(_depth(p), p["indices"])},
    reference=lambda p, x, index: x[tuple(index)],
    presets={
        "small": {"shape": [32, 32, 64], "indices": 256},
        "typical": {"shape": [256, 256, 64], "indices": 8192},
        "large": {"shape": [1024, 512, 256], "indices": 65536},
    },
    rules=(ParamRule("depth", "be at most the number of axes of {shape} (got {depth})",
                lambda p: p["depth"] <= len(p["shape"])),),
    gradients=("x",),
    implementations=(
        reference_in_numpy(lambda p, x, index: x[tuple(index)]),
        torch(_torch_gather_nd, "torch.Tensor.__getitem__"),
    ),
)  # fmt: skip


def _one_hot(p: Params, index: Any) -> Any:
    hot = np.zeros((p["indices"], p["depth"]), np.int64)
    hot[np.arange(p["indices"]), index] = 1
    return hot


def _torch_one_hot(p: Params, index: Any) -> Launch:
    from torch.nn.functional import one_hot

    return lambda: one_hot(index, p["depth"])


ONE_HOT = Operator(
    name="one_hot",
    summary="a row of zeros for each index, with a one at its place",
    category="indexing",
    params=(size("indices", "number of indices"), size("depth", "length of a row"), WHOLE),
    inputs=lambda p: {"index": TensorSpec((p["indices"],), "int64", 0, p["depth"])},
    cost=lambda p: Cost(0, p["indices"] * INDEX_BYTES, p["indices"] * p["depth"] * INDEX_BYTES),
    reference=_one_hot,
    presets={
        "small": {"indices": 256, "depth": 64},
        "typical": {"indices": 4096, "depth": 256},
        "large": {"indices": 65536, "depth": 1024},
    },
    implementations=(reference_in_numpy(_one_hot),
                     torch(_torch_one_hot, "torch.nn.functional.one_hot")),
)  # fmt: skip

RAVEL_PARAMS = (
    shape("shape", "shape of the tensor that is indexed"),
    size("indices", "number of indices"),
    WHOLE,
)
RAVEL_PRESETS = {
    "small": {"shape": [128, 128], "indices": 1024},
    "typical": {"shape": [1024, 1024], "indices": 262_144},
    "large": {"shape": [1024, 1024, 64], "indices": 16_777_216},
}
FITS = ParamRule(
    "shape", "have at most 2^62 elements, as an index has 64 bits (got {shape})", lambda p: elements(p) <= 2**62
)


def _torch_ravel(p: Params, index: Any) -> Launch:
    import torch

    steps = [prod(p["shape"][i + 1 :]) for i in range(len(p["shape"]))]
    weights = torch.tensor(steps, device=index.device)[:, None]
    return lambda: (index * weights).sum(0)


# Integer products do not count as flops.
RAVEL_MULTI_INDEX = Operator(
    name="ravel_multi_index",
    summary="flat indices from coordinates",
    category="indexing",
    params=RAVEL_PARAMS,
    inputs=lambda p: {"index": _coordinates(p["shape"], p["indices"])},
    cost=lambda p: Cost(0, len(p["shape"]) * p["indices"] * INDEX_BYTES, p["indices"] * INDEX_BYTES),
    reference=lambda p, index: np.ravel_multi_index(tuple(index), tuple(p["shape"])),
    tolerance=EXACT,
    presets=RAVEL_PRESETS,
    rules=(FITS,),
    implementations=(
        reference_in_numpy(lambda p, index: np.ravel_multi_index(tuple(index), tuple(p["shape"]))),
        torch(_torch_ravel),
    ),
)  # fmt: skip


def _torch_unravel(p: Params, index: Any) -> Launch:
    import torch

    sizes = tuple(p["shape"])
    return lambda: torch.unravel_index(index, sizes)


UNRAVEL_INDEX = Operator(
    name="unravel_index",
    summary="coordinates from flat indices",
    category="indexing",
    params=RAVEL_PARAMS,
    inputs=lambda p: {"index": TensorSpec((p["indices"],), "int64", 0, elements(p))},
    cost=lambda p: Cost(0, p["indices"] * INDEX_BYTES, len(p["shape"]) * p["indices"] * INDEX_BYTES),
    reference=lambda p, index: np.unravel_index(index, tuple(p["shape"])),
    tolerance=EXACT,
    presets=RAVEL_PRESETS,
    rules=(FITS,),
    implementations=(
        reference_in_numpy(lambda p, index: np.unravel_index(index, tuple(p["shape"]))),
        torch(_torch_unravel, "torch.unravel_index"),
    ),
)

OPERATORS = (GATHER_ND, ONE_HOT, RAVEL_MULTI_INDEX, UNRAVEL_INDEX)
