"""Counts the operations of a model and finds its outputs, with tensors that have a shape and no data.

Only a worker or a child process imports this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop

from opmark.models.execution import callable_of, converted, name_outputs, original
from opmark.models.facts import ModelFacts
from opmark.models.source import ModelSource
from opmark.models.weights import no_initialisation
from opmark.plugin import Params

_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
"""torch's counter knows the attention of GPUs only."""


def count(source: ModelSource, params: Params) -> ModelFacts:
    """Return the facts of a case. A network that looks at values of its tensors is run for it."""
    with torch.no_grad(), torch.device("cpu"):
        try:
            with FakeTensorMode(allow_non_fake_inputs=True), no_initialisation():
                return count_call(source.construct(params).eval(), _given(source, params), params)
        except DataDependentOutputException:
            return count_call(original(source, params), _given(source, params), params)


def _given(source: ModelSource, params: Params) -> list[Any]:
    return [torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in source.inputs(params).values()]


def count_call(module: Any, given: Sequence[Any], params: Params) -> ModelFacts:
    """Return the facts of a call of a module with these tensors."""
    module = converted(module, getattr(torch, str(params["dtype"])))
    if params.get("stage") == "decode":
        module.fill_cache(params["batch"], params["seq"])
    with FlopCounterMode(display=False, custom_mapping={_ATTENTION: _attention_flops}) as counter:
        outputs = callable_of(module, params)(*given)
    named = name_outputs(outputs)
    return ModelFacts(
        flops=int(counter.get_total_flops()) or None,
        weights=sum(parameter.numel() for parameter in module.parameters()),
        outputs={name: tuple(output.shape) for name, output in named.items()},
        dtypes=tuple(str(output.dtype).removeprefix("torch.") for output in named.values()),
    )


def _attention_flops(query: Any, key: Any, value: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return int(sdpa_flop(query, key, value))
