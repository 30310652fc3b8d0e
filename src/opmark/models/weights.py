"""Seeded weights for models without trained ones, the same on every machine and device, and such that the outputs
depend on the inputs. Only a worker imports this module.

Default initialisations can blind every comparison: with untouched statistics of batch normalisation, a detector's
output hardly moves with the picture, and a wrong one looks right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from math import prod
from typing import Any
from unittest import mock

import torch

_BLOCK = 4_194_301
"""Number of random values that all weights repeat, each from a place of its own: drawing billions would take minutes.
It is a prime, so that rows and blocks do not repeat alike."""
_NOISE = 0.1
"""Standard deviation of biases, and of the gains of normalisations around 1."""
_LEAST_VARIANCE = 0.5
"""Smallest variance of a batch normalisation. Weights keep the size of their inputs, so that usual ones are near 1."""
_BRANCH_ENDS = (
    "out_proj", "c_proj", "output.dense", "attention.dense", "ffn_output", "attention.out", "cross.out", ".down",
)  # fmt: skip
"""Ends of the names of linear layers whose results a Transformer adds to its residual stream."""
_BRANCH_GAIN = 0.25
"""Share of the variance that these layers keep. Attention averages over tokens: without this, the tokens of all texts
look alike after a dozen layers."""
_INITIALISERS = (
    "uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "eye_", "dirac_", "xavier_uniform_",
    "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_", "sparse_",
)  # fmt: skip


@contextmanager
def no_initialisation() -> Iterator[None]:
    """Construct modules without drawing their weights, which `initialise` fills in afterwards."""
    patches = [mock.patch.object(torch.nn.init, name, lambda tensor, *a, **k: tensor) for name in _INITIALISERS]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def initialise(module: Any, seed: int = 0) -> None:
    """Fill all parameters. Equal seeds give equal values on every device, up to the rounding to its element type.

    A module whose tables are no random numbers has a method write_tables(), which is called last.
    """
    block = torch.randn(_BLOCK, generator=torch.Generator().manual_seed(seed), device="cpu")
    blocks: dict[Any, Any] = {}
    filled = set[int]()
    with torch.no_grad():
        for prefix, owner in module.named_modules():
            if isinstance(owner, torch.nn.modules.batchnorm._NormBase):
                owner.reset_running_stats()  # memory that no initialisation has touched may hold NaN
            for name, parameter in owner.named_parameters(recurse=False):
                if id(parameter) not in filled:  # tied weights are filled once
                    filled.add(id(parameter))
                    values = blocks.setdefault(parameter.device, block.to(parameter.device))
                    _fill(parameter, values, *_distribution(owner, prefix, name, parameter.shape), f"{prefix}.{name}")
        for owner in module.modules():
            if hasattr(owner, "write_tables"):
                owner.write_tables()


def _distribution(owner: Any, prefix: str, name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    """Return (mean, standard deviation): results keep about the size of their inputs from layer to layer."""
    kind = type(owner).__name__
    if "bias" in name and len(shape) == 1:
        return 0.0, _NOISE
    if not shape:
        return 1.0, _NOISE
    if len(shape) == 1 and "norm" in kind.lower():
        return 1.0, _NOISE
    if kind == "Embedding" or len(shape) == 1:
        return 0.0, float(shape[-1]) ** -0.5
    fan_in = shape[0] if kind == "Conv1D" else prod(shape[1:])  # transformers' Conv1D is a transposed Linear
    if kind.startswith("Conv") and kind != "Conv1D":
        gain = 2.0  # a relu behind it drops half
    else:
        gain = _BRANCH_GAIN if prefix.endswith(_BRANCH_ENDS) else 1.0
    return 0.0, (gain / fan_in) ** 0.5


def _fill(parameter: Any, block: Any, mean: float, deviation: float, name: str) -> None:
    """Repeat the block over a parameter, from a place that depends on its name."""
    start = int.from_bytes(sha256(name.encode()).digest()[:4], "big") % _BLOCK
    flat, done = parameter.data.view(-1), 0
    while done < flat.numel():
        part = block[start : start + flat.numel() - done]
        flat[done : done + len(part)] = part * deviation + mean
        done, start = done + len(part), 0


def calibrate(module: Any, inputs: Mapping[str, Any]) -> None:
    """Set the statistics of batch normalisations by one pass over these inputs, and leave `module` in eval()."""
    norms = [one for one in module.eval().modules() if isinstance(one, torch.nn.modules.batchnorm._BatchNorm)]
    hooks = [one.register_forward_pre_hook(_set_statistics) for one in norms]
    try:
        if norms:
            with torch.no_grad():
                module(*inputs.values())
    finally:
        for hook in hooks:
            hook.remove()


def _set_statistics(norm: Any, arguments: tuple[Any, ...]) -> None:
    """Take the mean of each channel from its values, but one variance for all channels, and no small one.

    A pass may have a few values per channel only. Where they happen to lie close together, their own variance would
    amplify other inputs, layer by layer, up to thousands.
    """
    channels = arguments[0].transpose(0, 1).flatten(1)
    norm.running_mean.copy_(channels.mean(1))
    norm.running_var.fill_(channels.var(correction=0).clamp(min=_LEAST_VARIANCE))
