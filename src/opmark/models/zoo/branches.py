"""Models with branches that may run beside each other, for `opmark schedule`."""

from __future__ import annotations

from opmark.models.zoo.entry import Config, ZooModel
from opmark.plugin import Params
from opmark.schema import TensorSpec


def _tokens(params: Params, config: Config) -> dict[str, TensorSpec]:
    return {"x": TensorSpec((params["batch"], params["seq"], config["hidden"]), params["dtype"])}


def _columns(params: Params, config: Config) -> dict[str, TensorSpec]:
    return {
        "categorical": TensorSpec((params["batch"], config["columns"], config["bag"]), "int64", 0, config["buckets"]),
        "numeric": TensorSpec((params["batch"], config["numeric"]), params["dtype"], 0.0, 1.0),
    }


def _user_and_item(params: Params, config: Config) -> dict[str, TensorSpec]:
    return {name: TensorSpec((params["batch"], config[name]), params["dtype"]) for name in ("user", "item")}


MODELS: tuple[ZooModel, ...] = (
    ZooModel(
        name="multi-head",
        domain="nlp",
        purpose="structure",
        summary="Two layers of attention with eight heads, each with products of its own: nothing is fused",
        build="branches:MultiHead",
        inputs=_tokens,
        parameters=2 * (4 * 512 * 512 + 4 * 512 + 2 * 512),
        full={"hidden": 512, "heads": 8, "layers": 2},
        small={"hidden": 64, "heads": 4, "layers": 1},
        sizes={"full": {"seq": 256}, "small": {"seq": 32}},
        frameworks=(),
    ),
    ZooModel(
        name="dlrm",
        domain="rec",
        purpose="structure",
        summary="DLRM: 26 bags of embeddings beside a network of 13 numeric columns, products of all pairs",
        build="branches:Dlrm",
        inputs=_columns,
        parameters=17_139_521,
        full={"columns": 26, "buckets": 10_000, "bag": 8, "embedding": 64, "numeric": 13, "bottom": (512, 256),
              "top": (512, 256)},
        small={"columns": 6, "buckets": 100, "bag": 4, "embedding": 16, "numeric": 13, "bottom": (32,), "top": (32,)},
        sizes={"full": {}, "small": {}},
        outputs=("probability",),
        frameworks=(),
    ),
    ZooModel(
        name="two-towers",
        domain="rec",
        purpose="structure",
        summary="Two towers: networks for user and item beside each other, and the cosine of their results",
        build="branches:TwoTowers",
        inputs=_user_and_item,
        parameters=2_100_480,
        full={"user": 512, "item": 384, "layers": (1024, 512), "width": 128},
        small={"user": 64, "item": 48, "layers": (64, 32), "width": 16},
        sizes={"full": {}, "small": {}},
        outputs=("cosine",),
        frameworks=(),
    ),
    ZooModel(
        name="mixture-of-experts",
        domain="nlp",
        purpose="structure",
        summary="A layer of eight experts with soft routing: each expert computes its own slots",
        build="branches:SoftMixture",
        inputs=_tokens,
        parameters=8_532_992,
        full={"hidden": 512, "ffn": 1024, "experts": 8, "slots": 32},
        small={"hidden": 64, "ffn": 64, "experts": 4, "slots": 4},
        sizes={"full": {"seq": 256}, "small": {"seq": 16}},
        frameworks=(),
        aliases=("moe",),
    ),
)  # fmt: skip
