"""Counts the operations of a model and finds its outputs, with tensors that have a shape and no data.

Only a worker or a child process imports this.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry, sdpa_backward_flop_count, shape_wrapper

from opmark.models.execution import callable_of, converted, name_outputs, placed
from opmark.models.facts import ModelFacts
from opmark.models.source import ModelSource
from opmark.models.weights import no_initialisation
from opmark.plugin import Params


def _attention_flops(query: Any, key: Any, value: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Count both products of attention; groups of queries may share keys and values."""
    return int(2 * prod(query[:3]) * key[2] * (query[3] + value[3]))


def _attention_backward_flops(grad: Any, query: Any, key: Any, value: Any, *args: Any, out_shape: Any = None) -> int:
    return int(sdpa_backward_flop_count(grad, query, key, value))


FORMULAS = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward_flops,
}
"""Operations by call, from shapes: torch's counter knows the attention of GPUs only."""


def flop_formula(packet: Any) -> Any:
    """Return what counts the operations of a call from its arguments and `out_val`; None if nothing knows it."""
    own = FORMULAS.get(packet)
    return flop_registry.get(packet) or (shape_wrapper(own) if own else None)


def count(source: ModelSource, params: Params) -> ModelFacts:
    """Return the facts of a case. A network that looks at values of its tensors is run for it."""
    with torch.no_grad(), torch.device("cpu"):
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                return count_call(*make_call(source, params), params)
        except DataDependentOutputException:
            _, given = make_call(source, params)
            return count_call(placed(source, params, "cpu"), given, params)


def count_call(module: Any, given: Sequence[Any], params: Params) -> ModelFacts:
    """Return the facts of a call of a module with these tensors."""
    with FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter:
        outputs = callable_of(module, params)(*given)
    named = name_outputs(outputs)
    return ModelFacts(
        flops=int(counter.get_total_flops()) or None,
        weights=sum(parameter.numel() for parameter in module.parameters()),
        outputs={name: tuple(output.shape) for name, output in named.items()},
        dtypes=tuple(str(output.dtype).removeprefix("torch.") for output in named.values()),
    )


def make_call(source: ModelSource, params: Params, device: str = "cpu") -> tuple[Any, list[Any]]:
    """Return (the module with weights that mean nothing, its inputs), for a call under FakeTensorMode."""
    with no_initialisation():
        module = source.construct(params)
    module = converted(module.eval(), getattr(torch, str(params["dtype"])), device)
    if params.get("stage") == "decode":
        module.fill_cache(params["batch"], params["seq"])
    specs = source.inputs(params).values()
    return module, [torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=device) for spec in specs]
