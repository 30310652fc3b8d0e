"""Makes the weights of models that have real ones: reads those of packages, or trains them with a fixed seed.

Only a worker or a child process imports this.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from safetensors.torch import save_file
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn.functional import cross_entropy

from opmark.errors import UserError
from opmark.models.checkpoint import read_tensors
from opmark.models.datasets.digits import read_digits
from opmark.models.datasets.speeches import read_speeches
from opmark.models.weights import initialise, no_initialisation
from opmark.models.zoo_source import ZooSource

Loss = Callable[[Any, torch.Generator], Any]
"""loss(module, generator): the loss over a batch that the generator draws."""


def write_weights(source: ZooSource, path: Path) -> None:
    """Make the weights of a model with the function that its entry names, and write them as safetensors."""
    with no_initialisation():
        module = source.construct({})
    with unset_fake_temporarily():  # counting calls this while tensors have no data
        tensors = globals()[source.model.weights](module, source.file())
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}.new")
    save_file({name: value.contiguous().clone() for name, value in tensors.items()}, new)
    new.replace(path)


# Weights of packages.


def read_g2p(module: Any, path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            return {name: torch.from_numpy(file[name]) for name in file}
    except (OSError, ValueError, BadZipFile) as error:
        raise UserError(f"`{path}` cannot be read as weights of g2p-en: {error}", "install g2p-en again") from None


def read_minilm(module: Any, path: Path) -> dict[str, Any]:
    """Return the tensors of the file; positions, which older versions of transformers kept in it, are no weights."""
    return {name: value for name, value in read_tensors(path).items() if not name.endswith("position_ids")}


# Training.


def train_digits(module: Any, path: Path) -> dict[str, Any]:
    """Train for some seconds on the pictures that are not held out."""
    pictures, labels = (torch.from_numpy(one) for one in read_digits(path, held_out=False))

    def loss(network: Any, generator: torch.Generator) -> Any:
        rows = torch.randint(len(labels), (64,), generator=generator)
        return cross_entropy(network(pictures[rows]), labels[rows])

    return _train(module, loss, steps=600, rate=2e-3)


def train_gpt(module: Any, path: Path) -> dict[str, Any]:
    """Train for about half a minute on the addresses that are not held out."""
    text = torch.from_numpy(read_speeches(path, held_out=False).astype(np.int64))
    window = torch.arange(module.model.config.n_positions + 1)

    def loss(network: Any, generator: torch.Generator) -> Any:
        starts = torch.randint(len(text) - len(window), (8,), generator=generator)
        rows = text[starts[:, None] + window]
        return cross_entropy(network(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    return _train(module, loss, steps=400, rate=4e-3)


def _train(module: Any, loss: Loss, *, steps: int, rate: float) -> dict[str, Any]:
    """Return the weights after a number of steps of AdamW, whose rate rises and falls once."""
    with _reproducible():
        initialise(module)
        generator = torch.Generator().manual_seed(0)
        optimizer = torch.optim.AdamW(module.train().parameters(), rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            loss(module, generator).backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return {name: value.detach() for name, value in module.state_dict().items()}


@contextmanager
def _reproducible() -> Iterator[None]:
    """Compute with gradients and on one thread: more of them add up in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(threads)
