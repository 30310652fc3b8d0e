"""Counts the operations of a model and finds its outputs, with tensors that have a shape and no data.

`python -m opmark.models.counting NAME PARAMS` prints what it finds as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop

from opmark.errors import OpmarkError
from opmark.models.execution import callable_of, converted, name_outputs
from opmark.models.facts import ModelFacts
from opmark.models.source import ModelSource
from opmark.models.weights import no_initialisation
from opmark.plugin import Params

_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
"""torch's counter knows the attention of GPUs only."""


def count(source: ModelSource, params: Params) -> ModelFacts:
    """Return the facts of a case."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        module, given = make_call(source, params)
        with FlopCounterMode(display=False, custom_mapping={_ATTENTION: _attention_flops}) as counter:
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
    return module, [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=device) for spec in specs]


def _attention_flops(query: Any, key: Any, value: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return int(sdpa_flop(query, key, value))


def main() -> int:
    from opmark.models.family import source_of

    name, written = sys.argv[1:]
    try:
        source = source_of(name)
        assert source is not None
        found = count(source, json.loads(written))
    except OpmarkError as error:
        print(error.message, file=sys.stderr)
        return 1
    print(msgspec.json.encode(found).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
