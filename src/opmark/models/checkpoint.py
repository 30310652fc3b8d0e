"""Loads weights that a user has: safetensors, or a state dict of torch.save; and writes those of a model for a guest
without torch. Only a worker or a child process imports this."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from opmark.errors import UserError
from opmark.models.facts import kept_file, make_room
from opmark.models.source import ModelSource
from opmark.plugin import Params

_LISTED = 3
_NESTED = ("state_dict", "model_state_dict", "model")
"""Keys under which training scripts keep the state dict beside other things."""


def load_weights(module: Any, place: str, name: str) -> None:
    """Fill a module with the weights of a file or folder; UserError where names or shapes are other ones."""
    fill(module, read_tensors(Path(place)), place, name)


def fill(module: Any, found: dict[str, Any], place: str, name: str) -> None:
    """Fill all parameters and buffers of a module with tensors by name, which come from `place`."""
    own = {key: value for key, value in module.state_dict().items() if isinstance(value, torch.Tensor)}
    found = _align(found, own)
    missing = [names[0] for names in _names_of_tensors(module) if not found.keys() & set(names)]
    unexpected = [key for key in found if key not in own]
    shapes = [
        f"{key}: expected {_shape(own[key])}, got {_shape(value)}"
        for key, value in found.items()
        if key in own and own[key].shape != value.shape
    ]
    if missing or unexpected or shapes:
        problems = (("another shape", shapes), ("missing", missing), ("unexpected", unexpected))
        listed = "; ".join(f"{what}: {_some(keys)}" for what, keys in problems if keys)
        raise UserError(
            f"the weights in `{place}` are not those of `{name}`: {listed}",
            "weights belong to one configuration: try another size of the model; a network of your own with its "
            "weights is measured as model:FILE.py:FUNCTION",
        )
    with torch.no_grad():
        for key, value in found.items():
            own[key].copy_(value)


def _names_of_tensors(module: Any) -> Iterable[list[str]]:
    """Return the names of each tensor of the state dict: a tied one has several. Counters of batches are left out."""
    names: dict[int, list[str]] = {}
    for key, value in module.state_dict(keep_vars=True).items():
        if isinstance(value, torch.Tensor) and not key.endswith("num_batches_tracked"):
            names.setdefault(id(value), []).append(key)
    return names.values()


def read_tensors(path: Path) -> dict[str, Any]:
    """Return the tensors of a file, or of all safetensors of a folder."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise UserError(
            f"`{path}` holds no file that ends in .safetensors", "give a file, or the folder of a checkpoint"
        )
    found: dict[str, Any] = {}
    for file in files:
        found |= _read_safetensors(file) if file.suffix == ".safetensors" else _read_state_dict(file)
    return found


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise UserError(f"`{path}` is read by the package safetensors", "pip install 'opmark[models]'") from None
    try:
        found: dict[str, Any] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"`{path}` cannot be read as safetensors: {error}", "is the file complete?") from None
    return found


def _read_state_dict(path: Path) -> dict[str, Any]:
    hint = "torch.save(model.state_dict(), PATH) writes one; opmark loads no pickled objects, which are programs"
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - its reader raises anything for bytes that are something else
        first = str(error).strip().partition("\n")[0].partition(". ")[0]
        raise UserError(f"`{path}` cannot be read as a state dict: {first}", hint) from None
    if isinstance(found, Mapping):
        found = next((found[key] for key in _NESTED if isinstance(found.get(key), Mapping)), found)
    if not isinstance(found, Mapping) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise UserError(f"`{path}` holds a {type(found).__name__}, expected tensors by name", hint)
    return dict(found)


def _align(found: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors under the names of the module: one of the two may have a prefix such as `module.`."""
    if not found or any(key in own for key in found):
        return found
    other = next(iter(found))
    for key in own:
        if key.endswith(f".{other}"):
            return {key.removesuffix(other) + one: value for one, value in found.items()}
        if other.endswith(f".{key}"):
            return {one.removeprefix(other.removesuffix(key)): value for one, value in found.items()}
    return found


def _some(keys: Sequence[str]) -> str:
    more = len(keys) - _LISTED
    return ", ".join(keys[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _shape(tensor: Any) -> str:
    return "x".join(map(str, tensor.shape)) or "()"


def weights_file(source: ModelSource, params: Params) -> Path:
    """Return a file of NumPy's kind (.npz) with the weights and statistics of a model in float32: a kept one, else a
    new one. Another version of the model or of its packages has another file."""
    from opmark.models.execution import as_made, weight_arrays

    path: Path = kept_file(source, as_made(params), "npz")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}.new")
        with new.open("wb") as file:
            np.savez(file, **weight_arrays(source, params))
        new.replace(path)
        make_room(path)
    return path
