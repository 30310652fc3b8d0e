"""Expands the configs of PyTorch's operator_benchmark to points."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product
from math import isfinite, prod
from typing import Any, NamedTuple

from opmark.errors import InvalidParameter

KINDS = ("config_list", "cross_product_configs", "random_sample_configs")
MOST_POINTS = 1_000_000

_TORCH_NAMES = {
    "float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32", "short": "int16",
    "char": "int8", "byte": "uint8", "cfloat": "complex64", "cdouble": "complex128", "chalf": "complex32",
}  # fmt: skip


class Point(NamedTuple):
    values: dict[str, Any]
    tags: tuple[str, ...]
    device: str = ""


class RefusedRow(NamedTuple):
    """A row that cannot be read, and is left out."""

    place: str
    message: str


class Points(NamedTuple):
    points: list[Point]
    notes: tuple[str, ...]
    wrong: tuple[RefusedRow, ...] = ()


def points(kind: str, config: Any, draw: str) -> Points:
    """Return each point once; raise InvalidParameter if nothing of a config can be read. `draw` seeds random points."""
    if not isinstance(config, dict):
        raise InvalidParameter(f"expected axes by name, got `{str(config)[:40]}`", "as in {M: [8, 16], tags: [short]}")
    tags = _tags(config.get("tags", []))
    wrong: list[RefusedRow] = []
    if kind == "config_list":
        rows = _list_rows(config, wrong)
    else:
        rows = _draw_rows(config, draw) if kind == "random_sample_configs" else _cross_rows(config)
    found: dict[str, Point] = {}
    notes: dict[str, None] = {}
    for row in rows:
        values = {str(name): _value(str(name), value) for name, value in row.items()}
        device = str(values.pop("device", ""))
        if device and device != "cpu":
            notes[f"device {device}: the backend decides about the device (--backend torch-cuda)"] = None
        found.setdefault(repr(values), Point(values, tags, device))
    return Points(list(found.values()), tuple(notes), tuple(wrong))


def dtype(name: str) -> str:
    """Return opmark's name of an element type: `torch.float` is float32."""
    plain = name.removeprefix("torch.")
    return _TORCH_NAMES.get(plain, plain)


def _value(name: str, value: Any) -> Any:
    if isinstance(value, str) and (name == "dtype" or name.endswith("_dtype") or value.startswith("torch.")):
        return dtype(value)
    return value


def _tags(tags: Any) -> tuple[str, ...]:
    listed = [tags] if isinstance(tags, str) else tags
    if not isinstance(listed, list) or not all(isinstance(tag, str) for tag in listed):
        raise InvalidParameter(f"`tags`: expected names, got `{str(tags)[:40]}`", "as in tags: [short]")
    return tuple(dict.fromkeys(listed))


def _list_rows(config: Mapping[str, Any], wrong: list[RefusedRow]) -> list[dict[str, Any]]:
    _check_keys(config, ("attr_names", "attrs", "cross_product_configs", "tags"))
    names, rows = config.get("attr_names"), config.get("attrs")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidParameter(f"`attr_names`: expected names of axes, got `{str(names)[:40]}`", "as in [M, N]")
    if not isinstance(rows, list) or not rows:
        raise InvalidParameter(f"`attrs`: expected rows of values, got `{str(rows)[:40]}`", "as in [[8, 16]]")
    good = []
    for i, row in enumerate(rows):
        if isinstance(row, list) and len(row) == len(names):
            good.append(row)
        else:
            wrong.append(RefusedRow(f".attrs[{i}]", f"expected rows of {len(names)} values, got `{str(row)[:40]}`"))
    more = config.get("cross_product_configs")
    others = _cross_rows(more) if isinstance(more, dict) and more else [{}]
    if more is not None and not isinstance(more, dict):
        raise InvalidParameter(f"`cross_product_configs`: expected axes by name, got `{str(more)[:40]}`")
    _check_point_count(len(good) * len(others))
    return [{**dict(zip(names, row, strict=True)), **other} for row in good for other in others]


def _cross_rows(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    axes = _axes(config, ("tags",))
    _check_point_count(prod(len(values) for values in axes.values()))
    return [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]


def _draw_rows(config: Mapping[str, Any], draw: str) -> list[dict[str, Any]]:
    """Draw rows with weights and with replacement, always the same ones for the same seed."""
    axes = _axes(config, ("tags", "probs", "total_samples"))
    count, weights = config.get("total_samples"), config.get("probs", {})
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidParameter(f"`total_samples`: expected a whole number of at least 1, got `{str(count)[:40]}`")
    _check_point_count(count)
    if not isinstance(weights, dict) or set(weights) - set(axes):
        raise InvalidParameter(f"`probs`: expected a weight for each value of an axis, got `{str(weights)[:40]}`")
    for name, values in weights.items():
        if not _are_weights(values, len(axes[name])):
            raise InvalidParameter(f"`probs.{name}`: expected {len(axes[name])} weights, got `{str(values)[:40]}`")
    generator = random.Random(draw)
    return [
        {name: generator.choices(values, weights.get(name))[0] for name, values in axes.items()} for _ in range(count)
    ]


def _are_weights(values: Any, count: int) -> bool:
    if not isinstance(values, list) or len(values) != count:
        return False
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v <= 1e6]
    return len(numbers) == count and isfinite(sum(numbers)) and sum(numbers) > 0


def _axes(config: Mapping[str, Any], others: tuple[str, ...]) -> dict[str, list[Any]]:
    axes = {str(k): v if isinstance(v, list) else [v] for k, v in config.items() if k not in others}
    if not axes:
        raise InvalidParameter("the config has no axes", "as in {M: [8, 16]}")
    for name, values in axes.items():
        if not values:
            raise InvalidParameter(f"axis `{name}` is empty", "give at least one value")
    return axes


def _check_keys(config: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in config:
        if key not in known:
            raise InvalidParameter(f"`{key}` is not known here", f"it has {', '.join(known)}")


def _check_point_count(count: int) -> None:
    if count > MOST_POINTS:
        raise InvalidParameter(f"the config makes {count} points; expected at most {MOST_POINTS}", "use fewer values")
