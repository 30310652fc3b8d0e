"""The two networks of PARAM: their known number of parameters, and training mode."""

from __future__ import annotations

import subprocess
import sys

import pytest

from opmark.catalogue.families.callables import operator_of
from opmark.interop.param.calls import MODELS


@pytest.mark.parametrize(
    ("name", "weights"), [("pytorch.model.alex_net", 61_100_840), ("pytorch.model.resnet", 25_557_032)]
)
def test_a_network_has_its_published_number_of_weights(name: str, weights: int) -> None:
    pytest.importorskip("torch")
    from opmark.plugin.registry import resolve

    network = resolve(MODELS[name].replace(":", "."))()
    assert sum(weight.numel() for weight in network.parameters()) == weights
    assert network.training


@pytest.mark.parametrize("name", MODELS.values())
def test_a_network_is_built_and_called_as_any_class_is(name: str) -> None:
    torch = pytest.importorskip("torch")
    operator = operator_of(name)
    assert operator is not None
    (implementation,) = [i for i in operator.implementations if i.framework == "torch"]
    params = {"args": ["2x3x64x64 float32"], "kwargs": {}, "build": {"kwargs": {"num_classes": 7}}}
    call = implementation.build(params, **{"args.0": torch.rand(2, 3, 64, 64)})
    assert call().shape == (2, 7)
    assert len(call.leaves) > 10


def test_other_numbers_of_blocks() -> None:
    pytest.importorskip("torch")
    from opmark.interop.param.library import ResNet

    assert len(ResNet(layers=[1, 1, 1, 2])) == len(ResNet()) - 16 + 5


def test_naming_them_takes_no_torch() -> None:
    code = "import sys, opmark.interop.param.library; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
