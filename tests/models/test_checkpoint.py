"""Weights from files: what fits is loaded, and what does not is said by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from opmark.errors import UserError
from opmark.models.checkpoint import load_weights
from opmark.models.family import source_of


def network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))


def weights() -> dict[str, Any]:
    torch.manual_seed(5)
    return {
        name: torch.randn_like(value) if value.is_floating_point() else value
        for name, value in network().state_dict().items()
    }


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("kind", ["safetensors", "folder", "state dict", "nested"])
def test_weights_are_loaded(kind: str, prefix: str, tmp_path: Path) -> None:
    found, place = {prefix + name: value for name, value in weights().items()}, tmp_path / "w.pt"
    if kind in ("safetensors", "folder"):
        place = tmp_path / "w.safetensors"
        save_file(found, place)
    else:
        torch.save({"state_dict": found, "epoch": 3} if kind == "nested" else found, place)
    module = network()
    load_weights(module, str(tmp_path if kind == "folder" else place), "net")
    for name, value in weights().items():
        assert torch.equal(module.state_dict()[name], value)


def test_what_does_not_fit_is_listed(tmp_path: Path) -> None:
    found = weights()
    found["0.weight"] = torch.zeros(3, 5)
    found["other"] = torch.zeros(1)
    del found["1.bias"]
    save_file(found, tmp_path / "w.safetensors")
    with pytest.raises(UserError) as caught:
        load_weights(network(), str(tmp_path / "w.safetensors"), "net")
    said = caught.value.message
    assert "another shape: 0.weight: expected 3x4, got 3x5" in said
    assert "missing: 1.bias" in said
    assert "unexpected: other" in said
    assert caught.value.hint


def test_one_name_of_tied_weights_is_enough(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    module[1].weight = module[0].weight
    save_file({"1.weight": torch.ones(4, 4)}, tmp_path / "w.safetensors")
    load_weights(module, str(tmp_path / "w.safetensors"), "net")
    assert torch.equal(module[0].weight, torch.ones(4, 4))


def test_no_pickled_object_is_loaded(tmp_path: Path) -> None:
    torch.save(network(), tmp_path / "w.pt")
    with pytest.raises(UserError, match="cannot be read as a state dict: Weights only load failed") as caught:
        load_weights(network(), str(tmp_path / "w.pt"), "net")
    assert "pickled" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_a_file_of_something_else_is_said(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("hello")
    with pytest.raises(UserError, match="cannot be read as"):
        load_weights(network(), str(tmp_path / name), "net")


def test_a_model_of_the_zoo_takes_weights(tmp_path: Path) -> None:
    source = source_of("gru")
    assert source is not None
    params = {**source.presets()["small"], "dtype": "float32"}
    given = {name: torch.full_like(value, 0.25) for name, value in source.construct(params).state_dict().items()}
    save_file(given, tmp_path / "w.safetensors")
    chosen = {**params, "weights": str(tmp_path / "w.safetensors")}
    module = source.module(chosen)
    assert not module.training
    assert all((value == 0.25).all() for value in module.parameters())
    before = source.stamp(chosen)
    save_file({**given, "more": torch.zeros(1)}, tmp_path / "w.safetensors")
    assert source.stamp(chosen) != before  # what was kept of the old file is not taken for the new one
    with pytest.raises(UserError, match=r"parameter `weights`: .* cannot be read"):
        source.stamp({**params, "weights": str(tmp_path / "missing")})
