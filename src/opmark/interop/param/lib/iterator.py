"""PARAM's lib.iterator: the interface of config iterators that a user writes, and their registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from opmark.interop.param import expansion

ATTR_COPY, ATTR_RANGE, ATTR_LIST = "__copy__", "__range__", "__list__"
META_ATTRS = {ATTR_COPY, ATTR_RANGE, ATTR_LIST}


class ConfigIterator(ABC):
    """Yields pairs of an id and a spec."""

    def __init__(self, configs: dict[str, Any], key: str, device: str) -> None:
        self.configs, self.key, self.device = configs, key, device

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self

    @abstractmethod
    def __next__(self) -> tuple[Any, Any]: ...


class PointIterator(ConfigIterator):
    """An iterator of opmark as a class that can be derived from; a mistake in a spec is raised."""

    points: Callable[[Any, str, str], Iterator[tuple[str, Any]]]

    def __init__(self, configs: dict[str, Any], key: str, device: str) -> None:
        super().__init__(configs, key, device)
        self.generator = type(self).points(configs, key, device)

    def __next__(self) -> tuple[Any, Any]:
        point_id, spec = next(self.generator)
        if isinstance(spec, Exception):
            raise spec
        return point_id, spec


class DefaultConfigIterator(PointIterator):
    points = staticmethod(expansion.iterate_specs)


class RangeConfigIterator(PointIterator):
    points = staticmethod(expansion.iterate_ranges)


class DummyConfigIterator(PointIterator):
    points = staticmethod(expansion.iterate_once)


config_iterator_map: dict[str, Any] = {
    kind.__name__: kind for kind in (DefaultConfigIterator, RangeConfigIterator, DummyConfigIterator)
}
"""Classes by the names that configs use."""


def register_config_iterator(name: str, iterator_class: Any) -> None:
    if name in config_iterator_map:
        raise ValueError(f"Duplicate iterator registration name: {name}")
    config_iterator_map[name] = iterator_class


def remove_meta_attr(config: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a spec without `__range__`, `__copy__` and `__list__`."""
    found = deepcopy(config)
    for arg in [*found.get("args", []), *found.get("kwargs", {}).values()]:
        for attribute in META_ATTRS:
            arg.pop(attribute, None)
    return found


def genericList_to_list(genericList: dict[str, Any]) -> list[Any]:
    return [item["value"] for item in genericList["value"]]
