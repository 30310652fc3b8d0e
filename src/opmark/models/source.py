"""ModelSource: where a model comes from, and what the engine has to know of it before a framework is loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opmark.plugin import Param, ParamRule, Params
from opmark.schema import TensorSpec

if TYPE_CHECKING:
    from opmark.models.facts import ModelDescription, ModelFacts


class ModelSource(ABC):
    """A model of the zoo, or one that a user has brought."""

    name: str
    summary: str
    domain: str
    program: str = ""
    """File of the user that is executed to load it."""
    framework: str = "torch"
    """Module that loads it."""
    execution: str = "opmark.models.execution"
    """Module with its reference, its bounds and what builds it for each framework. Only workers import it."""
    implemented: tuple[str, ...] = ("torch", "onnx", "jax")
    """Frameworks that it is built for."""
    options: tuple[str, ...] = ("outputs", "weights")
    """Parameters that it shares with other models."""
    fixed_types: bool = False
    """Whether it is a graph that may contain conversions to element types, so that not every type works."""
    reference_by: str = "torch on the CPU, in float64 if that fits into memory, else in float32"

    @abstractmethod
    def params(self) -> tuple[Param, ...]:
        """Return its parameters besides `dtype` and `options`."""

    @abstractmethod
    def presets(self) -> Mapping[str, Mapping[str, Any]]:
        """Return values of these parameters by size (`small`, `typical`)."""

    @abstractmethod
    def inputs(self, params: Params) -> dict[str, TensorSpec]:
        """Return its inputs in the order in which the model takes them."""

    def batched(self, params: Params) -> bool:
        """Return whether a case is a batch of samples that can be checked one by one; else it is checked as a whole."""
        return True

    def unbatched(self, params: Params) -> frozenset[str]:
        """Return the inputs that have no axis for the batch."""
        return frozenset()

    def batch_axes(self, params: Params) -> Mapping[int, int]:
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

    def count(self, params: Params) -> ModelFacts:
        """Return operations, weights and outputs of a case. Only a worker or a child process calls it."""
        from opmark.models.counting import count

        return count(self, params)

    def describe(self, params: Params) -> ModelDescription:
        """Return the description of a model that a user has brought. Only a worker or a child process calls it."""
        raise NotImplementedError
