"""Embedding tables by fbgemm_gpu's SplitTableBatchedEmbeddingBagsCodegen, where that package is installed.

Its backward pass contains the optimizer and returns no gradient, so only its forward pass is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from opmark.errors import Unsupported
from opmark.plugin import Implementation, Launch, Params

_PACKAGE = "fbgemm_gpu"
_PRECISIONS = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16"}
_POOLING = {"sum": "SUM", "mean": "MEAN"}


def by_fbgemm(build: Callable[..., Launch]) -> tuple[Implementation, ...]:
    """Return the implementation `fbgemm` if the package is installed; whether it can be imported shows in a worker."""
    return (Implementation("torch", build, "fbgemm"),) if find_spec(_PACKAGE) else ()


def lookup(p: Params, sizes: Sequence[tuple[int, int]], weight: Any, indices: Any, offsets: Any, own: Any) -> Launch:
    """Return a launch that gives the pooled rows of all tables side by side: bags x sum of dims.

    `sizes` are rows and dim of each table, `offsets` are the starts of all bags, and `own` are the weights of samples.
    fbgemm's own storage is replaced by `weight`, so that other data that is written there is seen.
    """
    import torch

    if p["dtype"] not in _PRECISIONS:
        raise Unsupported(f"fbgemm has no tables of {p['dtype']}")
    odd = next((dim for _, dim in sizes if dim % 4), None)
    if odd is not None:
        raise Unsupported(f"fbgemm needs rows of a multiple of 4 elements, got {odd}")
    common, training, configs = _modules()
    on_host = weight.device.type == "cpu"
    location = common.EmbeddingLocation.HOST if on_host else common.EmbeddingLocation.DEVICE
    device = training.ComputeDevice.CPU if on_host else training.ComputeDevice.CUDA
    precision = getattr(configs.SparseType, _PRECISIONS[p["dtype"]])
    tables = training.SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, dim, location, device) for rows, dim in sizes],
        pooling_mode=getattr(common.PoolingMode, _POOLING[p["mode"]]),
        weights_precision=precision,
        output_dtype=precision,
        device=weight.device,
    )
    (tables.weights_host if on_host else tables.weights_dev).data = weight.view(-1)
    ends = torch.cat([offsets, torch.tensor([len(indices)], dtype=offsets.dtype, device=offsets.device)])
    return lambda: tables(indices, ends, own).detach()


def _modules() -> tuple[Any, Any, Any]:
    names = ("split_table_batched_embeddings_ops_common", "split_table_batched_embeddings_ops_training",
             "split_embedding_configs")  # fmt: skip
    try:
        common, training, configs = (import_module(f"{_PACKAGE}.{name}") for name in names)
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        # A package for another torch fails when its libraries are loaded (OSError) or registered (RuntimeError).
        raise Unsupported(f"{_PACKAGE} cannot be imported: {type(error).__name__}: {error}") from None
    return common, training, configs
