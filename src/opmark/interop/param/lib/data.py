"""PARAM's lib.data: the interface of data generators that a user writes, and their registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from opmark.interop.param.expansion import DEFAULT_GENERATOR
from opmark.interop.param.lib.pytorch.data_impl import DefaultDataGenerator


class DataGenerator(ABC):
    """Turns a spec into the arguments of a call; it is made and called in a worker."""

    @abstractmethod
    def get_data(self, config: dict[str, Any], device: str) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and named arguments."""


data_generator_map: dict[str, Any] = {
    DEFAULT_GENERATOR: DefaultDataGenerator,
    DEFAULT_GENERATOR.replace(":", "::"): DefaultDataGenerator,
}
"""Classes by the names that configs use."""


def register_data_generator(name: str, data_gen_class: Any) -> None:
    if name in data_generator_map:
        raise ValueError(f'Duplicate data generator registration name: "{name}"')
    data_generator_map[name] = data_gen_class
