"""fbgemm's SplitTableBatchedEmbeddingBagsCodegen of PARAM as an operator of the catalogue."""

from __future__ import annotations

from typing import Any

from opmark.importers.param.arguments import Misfit, quote
from opmark.importers.param.operators import Call

BAGS = "SplitTableBatchedEmbeddingBagsCodegen"
NOTE = (
    "SplitTableBatchedEmbeddingBagsCodegen: torch's embedding_bag runs over all tables in one call, instead of the "
    "kernel of fbgemm; a backward pass computes the gradient, and the optimizer step is a separate operator "
    "(embedding_bag_sgd_update, embedding_bag_rowwise_adagrad_update)"
)
PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
MODES = {0: "sum", 1: "mean"}
_BUILD = ("num_tables", "rows", "dims", "pooling", "weighted", "weights_precision", "optimizer", "lr", "eps",
          "weight_decay", "weight_decay_mode", "mode")  # fmt: skip


def operator_and_params(build: Call | None, given: Call) -> tuple[str, dict[str, Any]]:
    """Translate a build and the arguments from the data generator; raise Misfit if no operator has them."""
    if build is None:
        raise Misfit("", "expected a build with the sizes of the tables", f"it has {', '.join(_BUILD[:6])}", build=True)
    if given.args or not given.kwargs:
        raise Misfit("", "expected lookups in tables, got other arguments", f"they come from {BAGS}InputDataGenerator")
    options = {**dict(zip(_BUILD, build.args, strict=False)), **build.kwargs}
    surplus = [*build.args[len(_BUILD) :], *(name for name in build.kwargs if name not in _BUILD)]
    if surplus:
        raise Misfit("", f"a build has no option {quote(surplus[0])}", f"it has {', '.join(_BUILD)}", build=True)
    mode = MODES.get(options.get("pooling", 0)) if isinstance(options.get("pooling", 0), int) else None
    if mode is None:
        got = quote(options.get("pooling"))
        raise Misfit(".args[3]", f"pooling: expected 0 (sum) or 1 (mean), got {got}", build=True)
    precision = options.get("weights_precision", "fp32")
    dtype = PRECISIONS.get(precision) if isinstance(precision, str) else None
    if dtype is None:
        raise Misfit(
            ".args[5]", f"weights_precision: expected {', '.join(PRECISIONS)}, got {quote(precision)}", build=True
        )
    params = {**given.kwargs, "mode": mode, "dtype": dtype}
    if not options.get("weighted"):
        return "batched_embedding_bag", params
    if params.pop("tables", None) != 1:
        raise Misfit(".args[4]", "weighted: expected false for several tables", "one table can be weighted", build=True)
    return "embedding_bag", {**params, "weighted": True}
