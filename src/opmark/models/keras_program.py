"""A model of the zoo in Keras, with the weights of its torch network. Only a worker imports this."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from opmark.errors import Unsupported, in_stage
from opmark.models.zoo_source import ZooSource
from opmark.plugin import Function, LaidOutSlot, Params

NETWORK = "network"
"""Name of a layer whose weights belong to the torch network itself, and not to one of its modules."""
_TORCH_NAMES = {
    "kernel": "weight",
    "embeddings": "weight",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
"""Names in torch of a layer's variables, where they differ from Keras's."""
_LAYOUTS = {2: (1, 0), 4: (2, 3, 1, 0)}
"""Axes of torch's kernels in the order that Keras has them, by their number: (out, in) and (out, in, height, width)."""
_IMAGE_AXES = 4

ReadWeights = Callable[[ZooSource, Params], Mapping[str, Any]]


@in_stage("export")
def build(source: Any, params: Params, read: ReadWeights, **tensors: Any) -> Function:
    """Return the model as a function of its inputs; `read` returns the weights of the torch network by name.

    Pictures are turned to Keras's layout, channels last, when they are filled in, and not in a call.
    """
    if params.get("outputs") == "layers":
        raise Unsupported(
            f"`{source.name}` in Keras returns its own outputs only, not those of every layer: torch's modules and "
            "Keras's layers are not the same ones"
        )
    model = _made(source, json.dumps({**params, "batch": 1}, sort_keys=True), read)
    slots = [
        LaidOutSlot(slot, _put_channels_last) if len(slot.value.shape) == _IMAGE_AXES else slot
        for slot in tensors.values()
    ]

    def call(*values: Any) -> Any:
        outputs = model(list(values), training=False)
        return tuple(outputs) if isinstance(outputs, list | tuple) else outputs

    return Function(call, tuple(slots))


@lru_cache(maxsize=1)
def _made(source: ZooSource, written: str, read: ReadWeights) -> Any:
    params = json.loads(written)
    module, _, function = source.model.keras.partition(":")
    network = getattr(import_module(f"opmark.models.keras_networks.{module}"), function)
    model = network(dtype=params["dtype"], **source.model.config(params))
    copy_weights(model._flatten_layers(recursive=True, include_self=False), read(source, params))
    return model


def _put_channels_last(image: Any) -> Any:
    import tensorflow as tf

    return tf.transpose(image, (0, 2, 3, 1))


def copy_weights(layers: Iterable[Any], weights: Mapping[str, Any]) -> None:
    """Give each variable of the layers its weight of the torch network; raise ValueError unless each is used once."""
    left = dict(weights)
    for layer in layers:
        for variable in layer._trainable_variables + layer._non_trainable_variables:
            name = torch_name(layer.name, variable.name)
            if name not in left:
                raise ValueError(f"no weight `{name}` is left for `{variable.path}`")
            array = to_keras_layout(variable.name, left.pop(name))
            if array.shape != tuple(variable.shape):
                raise ValueError(f"`{variable.path}`: expected the shape {tuple(variable.shape)}, got {array.shape}")
            variable.assign(array.astype(variable.dtype) if variable.dtype != "bfloat16" else array)
    if left:
        raise ValueError(f"no layer takes the weights {', '.join(sorted(left))}")


def torch_name(layer: str, variable: str) -> str:
    """Return the name in torch of a layer's variable."""
    own = _TORCH_NAMES.get(variable, variable)
    return own if layer == NETWORK else f"{layer}.{own}"


def to_keras_layout(variable: str, array: Any) -> Any:
    """Return a weight of torch with its axes in Keras's order."""
    return array.transpose(_LAYOUTS[array.ndim]) if variable == "kernel" else array
