"""opmark model export: a model of torch as a file for other compilers."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmark.api.model import export
from opmark.errors import UserError

pytestmark = pytest.mark.models


@pytest.mark.parametrize(
    ("to", "output", "message"),
    [
        ("mlir", "net.onnx", "a model in mlir is a file that ends in .mlir or .mlirbc, got `net.onnx`"),
        ("onnx", "net", "a model in onnx is a file that ends in .onnx, got `net`"),
        ("tosa", "net.mlir", "no form of a model named `tosa`"),
        ("mlir", "nowhere/net.mlir", "there is no folder"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(to: str, output: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        export("model:wide-and-deep", to=to, output=output)
    assert message in caught.value.message
    assert caught.value.hint


def test_only_models_of_torch_are_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.mlir").write_text(
        "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { func.return %a : tensor<2xf32> }"
    )
    with pytest.raises(UserError, match="is no model of torch, and only these are exported"):
        export("model:net.mlir", output="other.mlir")


def test_a_model_becomes_an_onnx_file(tmp_path: Path) -> None:
    import onnx

    found = export("model:wide-and-deep", to="onnx", output=tmp_path / "net.onnx", size="small")
    assert found.files == (str(tmp_path / "net.onnx"),)
    model = onnx.load(found.files[0])
    assert len(model.graph.node) == found.operators
    assert found.weights > 0


def test_a_model_becomes_bytecode_with_its_weights_beside_it(tmp_path: Path) -> None:
    found = export("model:wide-and-deep", output=tmp_path / "net.mlirbc", size="small")
    assert [Path(file).name for file in found.files] == ["net.mlirbc", "net.safetensors"]
    assert Path(found.files[0]).read_bytes().startswith(b"ML\xefR")
