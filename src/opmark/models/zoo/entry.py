"""ZooModel: what is known of a model of the zoo without importing a framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from opmark.plugin import Params
from opmark.schema import TensorSpec

Config = Mapping[str, Any]
"""Arguments of the constructor of a network: numbers of layers, widths, vocabulary."""


@dataclass(frozen=True, kw_only=True)
class ZooModel:
    name: str
    domain: Literal["cv", "nlp", "rec", "mm", "speech"]
    purpose: str
    """`regular`, `popular` and `sota`, as ByteMLPerf's table has them; `structure` for a part of a model; `opbench`;
    `real` for a small one with trained weights."""
    summary: str
    build: str = ""
    """`module:function` below opmark.models.networks, as in `decoder:Decoder`. The function takes the
    configuration by name and returns a torch.nn.Module, whose forward takes the inputs in the order of `inputs` and
    returns a tensor or a tuple of tensors. It does not initialise weights: opmark.models.weights does, and then calls
    write_tables() of every module that has it, for tables that are no random numbers."""
    inputs: Callable[[Params, Config], dict[str, TensorSpec]]
    """inputs(params, config): the batch is the first axis of every input that is not in `unbatched`. Floats have the
    type params["dtype"], whole numbers are int64."""
    parameters: int
    """Number of parameters at full size, a frozen table of positions among them."""
    full: Config
    small: Config | None = None
    """A configuration that runs in milliseconds on two cores, of the same structure; none for a model with `file`."""
    sizes: Mapping[str, Mapping[str, int]]
    """Values of the parameters besides `batch`, by preset: {"full": {"seq": 384}, "small": {"seq": 64}}; `seq` is a
    number of tokens, `image` the height and width of a picture."""
    dataset: str = "none"
    precision: str = "fp32"
    frameworks: tuple[str, ...] = ("pytorch",)
    """Frameworks in which ByteMLPerf has it."""
    outputs: tuple[str, ...] = ("output",)
    unbatched: frozenset[str] = frozenset()
    """Inputs that stay the same whatever the batch is, as the prompts of CLIP."""
    batch_axes: Mapping[str, int] = field(default_factory=dict)
    """The axis of the batch of an output, where it is not the first."""
    stages: tuple[str, ...] = ()
    """Values of the parameter `stage`, where the same weights serve several: `prefill` reads a text, `decode` adds one
    token to a cache of `seq` tokens. A network in the stage `decode` gets its cache from fill_cache(batch, seq)."""
    cache_bytes: Callable[[Config, Params], int] | None = None
    """cache_bytes(config, params): bytes of keys and values in the stage `decode`."""
    keras: str = ""
    """`module:function` below opmark.models.keras_networks that makes the same network in Keras from the configuration
    and `dtype`, so that TensorFlow runs it; its layers are named after the modules that `build` makes."""
    needs: str = ""
    """A package besides torch that the network comes from."""
    file: str = ""
    """File or folder of an installed package, as in `magika/models/model.onnx`: the graph itself, weights, or what they
    are trained on. Empty for a model whose weights are random."""
    weights: str = ""
    """Function of opmark.models.trained that makes the weights from `file`; empty where the file is the graph."""
    aliases: tuple[str, ...] = ()
    note: str = ""
    """What a reader of the table has to know."""

    def config(self, params: Params) -> Config:
        return self.full if self.small is None or params.get("size") != "small" else self.small
