"""Choice of the experts of a token: moe_softmax_topk, and DeepSeek-V3's group_topk."""

from __future__ import annotations

from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula, softmax, torch
from opmark.catalogue.operators.llm_norm import ENOUGH_TOKENS, TOKENS, tokens
from opmark.plugin import Launch, Operator, ParamRule, Params
from opmark.plugin.param import choice, dtype, real, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import sizeof

EXPERTS = size("num_experts", "experts, each with a score for each token")
TOPK = size("topk", "experts per token")
LOW = dtype("float32", "float16", "bfloat16")
# Scores lie between 0 and 2: of two that are closer than this, either may be chosen.
_TIE = 1e-5


def _logits(p: Params) -> TensorSpec:
    return TensorSpec((tokens(p), p["num_experts"]), p["dtype"], -4.0, 4.0)


def _bytes_written(p: Params) -> int:
    """Return the bytes of the weights in float32 and of the experts' indices."""
    return int(tokens(p) * p["topk"] * (sizeof("float32") + sizeof("int64")))


def _softmax_flops(p: Params) -> int:
    """Count difference, exponential, sum and quotient, for all scores or for the chosen ones."""
    softened = p["num_experts"] if p["compute_mode"] == "pre-softmax" else p["topk"]
    return int(4 * tokens(p) * softened)


def _weights_of(p: Params, logits: Any, indices: Any) -> Any:
    """Return the weights of the experts with these indices."""
    if p["compute_mode"] == "pre-softmax":
        return np.take_along_axis(softmax(logits), indices, axis=-1)
    return softmax(np.take_along_axis(logits, indices, axis=-1))


def _softmax_topk(p: Params, logits: Any) -> Any:
    indices = np.argsort(-logits, axis=-1, kind="stable")[:, : p["topk"]]
    return _weights_of(p, logits, indices), indices


def _softmax_reference(p: Params, logits: Any) -> Any:
    """Return the weights, the same weights by index, and the number of different experts of a token."""
    weights, _ = _softmax_topk(p, logits)
    return weights, weights, np.full(len(weights), float(p["topk"]))


def _softmax_observe(p: Params, outputs: Any, logits: Any) -> Any:
    """Compare indices by their weights: of equal scores, either may be chosen."""
    weights, indices = outputs
    different = np.array([len(set(row)) for row in indices.tolist()], float)
    return weights, _weights_of(p, logits, indices), different


def _torch_softmax(p: Params, logits: Any) -> Launch:
    import torch

    def before() -> Any:
        return tuple(torch.topk(torch.softmax(logits, -1, dtype=torch.float32), p["topk"]))

    def after() -> Any:
        chosen, indices = torch.topk(logits, p["topk"])
        return torch.softmax(chosen, -1, dtype=torch.float32), indices

    return before if p["compute_mode"] == "pre-softmax" else after


SOFTMAX_TOPK = Operator(
    name="moe_softmax_topk",
    summary="the topk experts with the highest scores, and their weights by a softmax before or after choosing",
    category="moe",
    params=(
        *TOKENS,
        EXPERTS,
        TOPK,
        choice("compute_mode", "whether the softmax is over all experts before the choice, or over the chosen ones",
               ("pre-softmax", "post-softmax"), "pre-softmax"),
        LOW,
    ),
    inputs=lambda p: {"logits": _logits(p)},
    cost=lambda p: Cost(_softmax_flops(p), _logits(p).nbytes, _bytes_written(p)),
    reference=_softmax_reference,
    result_dtype=lambda _: "float32",
    further_dtypes=lambda _: ("int64",),
    observe=_softmax_observe,
    presets={
        "small": {"num_tokens": 64, "num_experts": 64, "topk": 4},
        "typical": {"num_tokens": 4096, "num_experts": 128, "topk": 8},
        "large": {"num_tokens": 131072, "num_experts": 256, "topk": 8},
    },
    rules=(
        ENOUGH_TOKENS,
        ParamRule("topk", "be at most num_experts={num_experts} (got {topk})", lambda p: p["topk"] <= p["num_experts"]),
    ),
    implementations=(formula(_softmax_topk, lambda _: "float32", lambda _: "int64"), torch(_torch_softmax)),
    aliases=("topk_softmax", "softmax_topk"),
)  # fmt: skip


def _group_inputs(p: Params) -> dict[str, TensorSpec]:
    return {"logits": _logits(p), "bias": TensorSpec((p["num_experts"],), "float32", -0.5, 0.5)}


def _group_cost(p: Params) -> Cost:
    """Count sigmoid 3 and bias 1 per score, a sum per group, and sum, quotient and factor per weight."""
    flops = tokens(p) * (4 * p["num_experts"] + p["groups"] + 3 * p["topk"])
    return Cost(flops, nbytes(_group_inputs(p).values()), _bytes_written(p))


def _scores(p: Params, logits: Any, bias: Any) -> tuple[Any, Any, Any]:
    """Return the scores, the biased scores that are compared, and the sum of the two highest of each group."""
    scores = 1 / (1 + np.exp(-logits))
    choosing = scores + bias
    by_group = np.sort(choosing.reshape(len(logits), p["groups"], -1), axis=-1)
    return scores, choosing, by_group[..., -2:].sum(axis=-1)


def _group_weights(p: Params, scores: Any, indices: Any) -> Any:
    chosen = np.take_along_axis(scores, indices, axis=-1)
    return chosen / chosen.sum(axis=-1, keepdims=True) * scores.dtype.type(p["scale"])


def _group_topk(p: Params, logits: Any, bias: Any) -> Any:
    scores, choosing, group_scores = _scores(p, logits, bias)
    groups = np.argsort(-group_scores, axis=-1, kind="stable")[:, : p["topk_groups"]]
    open_groups = np.zeros(group_scores.shape, bool)
    np.put_along_axis(open_groups, groups, True, axis=-1)
    allowed = np.repeat(open_groups, p["num_experts"] // p["groups"], axis=-1)
    indices = np.argsort(-np.where(allowed, choosing, -np.inf), axis=-1, kind="stable")[:, : p["topk"]]
    return _group_weights(p, scores, indices), indices


def _group_observe(p: Params, outputs: Any, logits: Any, bias: Any) -> Any:
    """Return the errors of the weights for the chosen experts, if these may be chosen."""
    weights, indices = outputs
    scores, choosing, group_scores = _scores(p, logits, bias)
    off = np.where(_is_valid_choice(p, indices, choosing, group_scores)[:, None],
                   weights - _group_weights(p, scores, indices), np.nan)  # fmt: skip
    return _group_reference(p, logits, bias) + off


def _is_valid_choice(p: Params, indices: Any, choosing: Any, group_scores: Any) -> Any:
    """Return whether no better expert or group was left out; of nearly equal ones either may be chosen."""
    taken = np.zeros(choosing.shape, bool)
    np.put_along_axis(taken, indices, True, axis=-1)
    each = p["num_experts"] // p["groups"]
    bar = np.sort(group_scores, axis=-1)[:, -p["topk_groups"], None]
    allowed, sure = (np.repeat(group_scores >= bar + slack, each, axis=-1) for slack in (-_TIE, _TIE))
    worst = np.where(taken, choosing, np.inf).min(axis=-1)
    missed = np.where(sure & ~taken, choosing, -np.inf).max(axis=-1)
    falling = np.diff(np.take_along_axis(choosing, indices, axis=-1), axis=-1) <= _TIE
    whole = (taken.sum(axis=-1) == p["topk"]) & falling.all(axis=-1)
    return whole & (allowed | ~taken).all(axis=-1) & (missed <= worst + _TIE)


def _group_reference(p: Params, logits: Any, bias: Any) -> Any:
    return _group_topk(p, logits, bias)[0]


def _torch_group(p: Params, logits: Any, bias: Any) -> Launch:
    import torch

    each = p["num_experts"] // p["groups"]

    def launch() -> Any:
        scores = torch.sigmoid(logits.float())
        choosing = scores + bias
        grouped = choosing.unflatten(1, (p["groups"], each))
        best = torch.topk(grouped, 2, dim=-1)[0].sum(-1)
        groups = torch.topk(best, p["topk_groups"], dim=-1, sorted=False)[1]
        closed = torch.ones_like(best, dtype=torch.bool).scatter_(1, groups, value=False)
        masked = grouped.masked_fill(closed.unsqueeze(-1), float("-inf")).flatten(1)
        indices = torch.topk(masked, p["topk"], dim=-1)[1]
        chosen = scores.gather(1, indices)
        return chosen / chosen.sum(-1, keepdim=True) * p["scale"], indices

    return launch


GROUP_TOPK = Operator(
    name="group_topk",
    summary="the topk experts by sigmoid and bias, out of the groups whose two best are best, and their weights",
    category="moe",
    params=(
        *TOKENS,
        EXPERTS,
        TOPK,
        size("groups", "groups of neighbouring experts"),
        size("topk_groups", "groups that experts may be chosen from"),
        real("scale", "sum of the weights of a token", 1.0),
        LOW,
    ),
    inputs=_group_inputs,
    cost=_group_cost,
    reference=_group_reference,
    result_dtype=lambda _: "float32",
    further_dtypes=lambda _: ("int64",),
    observe=_group_observe,
    presets={
        "small": {"num_tokens": 64, "num_experts": 64, "topk": 4, "groups": 8, "topk_groups": 4},
        "typical": {"num_tokens": 2048, "num_experts": 256, "topk": 8, "groups": 8, "topk_groups": 4, "scale": 2.5},
        "large": {"num_tokens": 131072, "num_experts": 256, "topk": 8, "groups": 8, "topk_groups": 4, "scale": 2.5},
    },
    rules=(
        ENOUGH_TOKENS,
        ParamRule("groups", "divide num_experts={num_experts} into groups of at least 2 (got {groups})",
             lambda p: p["num_experts"] % p["groups"] == 0 and p["num_experts"] // p["groups"] >= 2),
        ParamRule("topk_groups", "be at most groups={groups} (got {topk_groups})",
             lambda p: p["topk_groups"] <= p["groups"]),
        ParamRule("topk", "be at most the experts of {topk_groups} groups out of {groups} (got {topk})",
             lambda p: p["topk"] <= p["topk_groups"] * (p["num_experts"] // p["groups"])),
    ),
    implementations=(formula(_group_topk, lambda _: "float32", lambda _: "int64"), torch(_torch_group)),
    aliases=("grouped_topk", "sigmoid_group_topk", "biased_grouped_topk", "noaux_tc"),
)  # fmt: skip

OPERATORS = (SOFTMAX_TOPK, GROUP_TOPK)
