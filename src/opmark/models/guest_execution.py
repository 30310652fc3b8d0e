"""What `execution` does, in a guest that has no torch: the host's process knows reference, bounds and weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from opmark.models.checking import Effects, bound_outputs, explain_blindness
from opmark.models.facts import ask_child
from opmark.models.host import PackedArray, pack, unpack
from opmark.models.source import ModelSource
from opmark.plugin import Params


def reference(source: ModelSource, params: Params, **arrays: Any) -> Any:
    packed = {name: pack(array) for name, array in arrays.items()}
    return tuple(map(unpack, ask_child("reference", source, params, list[PackedArray], arrays=packed)))


def rounding_bounds(source: ModelSource, params: Params) -> tuple[float, ...]:
    return bound_outputs(params["dtype"], _effects(source, json.dumps(dict(params), sort_keys=True)))


def why_blind(source: ModelSource, params: Params) -> str:
    return explain_blindness(params["dtype"], _effects(source, json.dumps(dict(params), sort_keys=True)))


@lru_cache(maxsize=8)
def _effects(source: ModelSource, written: str) -> Effects:
    found: Effects = ask_child("effects", source, json.loads(written), Effects)
    return found


def build_tensorflow(source: ModelSource, params: Params, **tensors: Any) -> Any:
    from opmark.models.keras_program import build

    return build(source, params, read_weights, **tensors)


def read_weights(source: ModelSource, params: Params) -> Mapping[str, Any]:
    import numpy as np

    with np.load(ask_child("weights", source, params, str)) as found:
        return dict(found)
