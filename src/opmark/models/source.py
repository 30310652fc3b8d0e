"""ModelSource: where a model comes from, and what the engine has to know of it before a framework is loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from opmark.plugin import Param, ParamRule, Params
from opmark.schema import TensorSpec


class ModelSource(ABC):
    """A model of the zoo, or one that a user has brought."""

    name: str
    summary: str
    domain: str

    @abstractmethod
    def params(self) -> tuple[Param, ...]:
        """Return its parameters besides `dtype`, `outputs` and `weights`, which every model has."""

    @abstractmethod
    def presets(self) -> Mapping[str, Mapping[str, Any]]:
        """Return values of these parameters by size (`small`, `typical`)."""

    @abstractmethod
    def inputs(self, params: Params) -> dict[str, TensorSpec]:
        """Return its inputs in the order in which the model takes them."""

    def unbatched(self) -> frozenset[str]:
        """Return the inputs that have no axis for the batch."""
        return frozenset()

    def batch_axes(self) -> Mapping[int, int]:
        """Return the axis of the batch by the number of the output, where it is not the first."""
        return {}

    def token_cache(self, params: Params) -> int:
        """Return the bytes of keys and values that a case keeps for the next token."""
        return 0

    def output_names(self) -> tuple[str, ...]:
        """Return the names of the outputs, where they have any."""
        return ()

    def rules(self) -> tuple[ParamRule, ...]:
        """Return conditions over several parameters."""
        return ()

    @abstractmethod
    def construct(self, params: Params) -> Any:
        """Construct the torch.nn.Module with weights that may mean nothing yet; counting needs no more."""

    @abstractmethod
    def module(self, params: Params) -> Any:
        """Construct the torch.nn.Module in eval(), with its weights, on the CPU, in float32. Only a worker calls it."""

    @abstractmethod
    def stamp(self, params: Params) -> str:
        """Return a text that changes whenever the model does: versions of packages, times of files."""
