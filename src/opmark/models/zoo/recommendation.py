"""Models that recommend."""

from __future__ import annotations

from opmark.models.zoo.entry import Config, ZooModel
from opmark.plugin import Params
from opmark.schema import TensorSpec


def _inputs(params: Params, config: Config) -> dict[str, TensorSpec]:
    return {
        "categorical": TensorSpec((params["batch"], config["columns"]), "int64", 0, config["buckets"]),
        "numeric": TensorSpec((params["batch"], config["numeric"]), params["dtype"], 0.0, 1.0),
    }


MODELS: tuple[ZooModel, ...] = (
    ZooModel(
        name="wide-and-deep",
        domain="rec",
        purpose="regular",
        summary="Wide & Deep over 26 hashed and 13 numeric columns, the probability of a click",
        build="wide_deep:WideAndDeep",
        keras="wide_deep:wide_and_deep",
        inputs=_inputs,
        outputs=("probabilities",),
        parameters=2_380_690,
        full={"columns": 26, "buckets": 1000, "embedding": 32, "numeric": 13, "layers": (1024, 512, 256)},
        small={"columns": 26, "buckets": 100, "embedding": 8, "numeric": 13, "layers": (64, 32, 16)},
        sizes={"full": {}, "small": {}},
        dataset="criteo",
        frameworks=("tensorflow",),
        aliases=("wide&deep", "widedeep"),
        note="ByteMLPerf's rows (column, bucket) are one input of buckets per column here.",
    ),
)
