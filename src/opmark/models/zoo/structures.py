"""Parts of models: stacks of Transformer layers, blocks of convolutions, recurrent layers, products of matrices."""

from __future__ import annotations

from dataclasses import replace

from opmark.models.zoo.entry import Config, ZooModel
from opmark.plugin import Params
from opmark.schema import TensorSpec


def _sequence(params: Params, config: Config) -> dict[str, TensorSpec]:
    return {"x": TensorSpec((params["batch"], params["seq"], config["hidden"]), params["dtype"])}


def _sequence_and_memory(params: Params, config: Config) -> dict[str, TensorSpec]:
    (x,) = _sequence(params, config).values()
    return {"x": x, "memory": x}


def _picture(params: Params, config: Config) -> dict[str, TensorSpec]:
    side = params["image"]
    return {"x": TensorSpec((params["batch"], config["channels"], side, side), params["dtype"])}


def _transformer(name: str, summary: str, parameters: int) -> ZooModel:
    part = name.removeprefix("transformer-")
    return ZooModel(
        name=name,
        domain="nlp",
        purpose="structure",
        summary=summary,
        build=f"structures:Transformer{part.capitalize()}",
        inputs=_sequence_and_memory if part == "decoder" else _sequence,
        parameters=parameters,
        full={"hidden": 512, "heads": 8, "ffn": 2048, "layers": 6},
        small={"hidden": 128, "heads": 4, "ffn": 256, "layers": 2},
        sizes={"full": {"seq": 512}, "small": {"seq": 32}},
    )


def _convolution(kind: str, summary: str, parameters: int, kernel: int, groups: int, small_groups: int) -> ZooModel:
    return ZooModel(
        name=f"conv-{kind}",
        domain="cv",
        purpose="structure",
        summary=f"{summary}, then batch normalisation and ReLU",
        build="structures:conv_block",
        inputs=_picture,
        parameters=parameters,
        full={"channels": 256, "kernel": kernel, "groups": groups},
        small={"channels": 32, "kernel": kernel, "groups": small_groups},
        sizes={"full": {"image": 56}, "small": {"image": 14}},
    )


def _recurrent(kind: str, summary: str, parameters: int) -> ZooModel:
    return ZooModel(
        name=kind,
        domain="nlp",
        purpose="structure",
        summary=summary,
        build="structures:Recurrent",
        inputs=_sequence,
        parameters=parameters,
        full={"kind": kind.upper(), "hidden": 512, "layers": 2},
        small={"kind": kind.upper(), "hidden": 128, "layers": 2},
        sizes={"full": {"seq": 128}, "small": {"seq": 16}},
    )


def _deep_recurrent(kind: str, parameters: int) -> ZooModel:
    return replace(
        _recurrent(kind, f"Eight {kind.upper()} layers of 1024", parameters),
        name=f"{kind}-8x1024",
        purpose="opbench",
        full={"kind": kind.upper(), "hidden": 1024, "layers": 8},
        frameworks=(),
        note=f"OpBench calls it {kind}.",
    )


def _products(name: str, summary: str, build: str, inputs: tuple[str, ...], width: int) -> ZooModel:
    def make(params: Params, config: Config) -> dict[str, TensorSpec]:
        shape = params["batch"], params["rows"], config["width"]
        return {name: TensorSpec(shape, params["dtype"]) for name in inputs}

    return ZooModel(
        name=name,
        domain="nlp",
        purpose="opbench",
        summary=summary,
        build=build,
        inputs=make,
        parameters=len(inputs) * width * width,
        full={"width": width},
        small={"width": 64},
        sizes={"full": {"rows": width}, "small": {"rows": 32}},
        frameworks=(),
    )


MODELS: tuple[ZooModel, ...] = (
    _transformer("transformer-encoder", "Six encoder layers of the first Transformer (base)", 18_914_304),
    _transformer(
        "transformer-decoder",
        "Six decoder layers of the first Transformer (base): causal attention, then attention to `memory`",
        25_224_192,
    ),
    _convolution("group", "A 3x3 convolution in 32 groups, as in ResNeXt", 18_944, 3, 32, 8),
    _convolution("depthwise", "A 3x3 convolution of each channel by itself, as in MobileNet", 2_816, 3, 256, 32),
    _convolution("pointwise", "A 1x1 convolution, as in MobileNet", 66_048, 1, 1, 1),
    _recurrent("gru", "Two GRU layers", 3_151_872),
    _recurrent("lstm", "Two LSTM layers", 4_202_496),
    _recurrent("rnn", "Two plain recurrent layers with tanh", 1_050_624),
    _deep_recurrent("gru", 50_380_800),
    _deep_recurrent("lstm", 67_174_400),
    _deep_recurrent("rnn", 16_793_600),
    _products("matmul", "A product with a matrix of weights of 1024x1024", "structures:product", ("x",), 1024),
    _products(
        "matmul_matmul_add",
        "Two products with matrices of weights of 2048x2048, and their sum",
        "structures:SumOfProducts",
        ("x", "z"),
        2048,
    ),
)
