"""Counts the operations of a model and finds its outputs, with tensors that have a shape and no data.

`python -m opmark.models.counting NAME PARAMS` prints what it finds as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop

from opmark.errors import OpmarkError
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
                return _count(source, params, source.construct(params))
        except DataDependentOutputException:
            return _count(source, params, original(source, params))


def _count(source: ModelSource, params: Params, module: Any) -> ModelFacts:
    given = [torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in source.inputs(params).values()]
    module = converted(module.eval(), getattr(torch, str(params["dtype"])))
    if params.get("stage") == "decode":
        module.fill_cache(params["batch"], params["seq"])
    with FlopCounterMode(display=False, custom_mapping={_ATTENTION: _attention_flops}) as counter:
        named = name_outputs(callable_of(module, params)(*given))
    return ModelFacts(
        flops=int(counter.get_total_flops()) or None,
        weights=sum(parameter.numel() for parameter in module.parameters()),
        outputs={name: tuple(output.shape) for name, output in named.items()},
        dtypes=tuple(str(output.dtype).removeprefix("torch.") for output in named.values()),
    )


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
