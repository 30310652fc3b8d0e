"""How much memory cases take, against what their data takes at least."""

from __future__ import annotations

from opmark.charts.common import NOWHERE, places
from opmark.charts.parts import by_backend, called, diagonal, few, listed, positive
from opmark.schema.chart import Axis, Chart, Mark
from opmark.schema.item import Item, Looked
from opmark.units import counted, significant

_MUCH = 2
"""Times its data: what takes more is named."""


def memory(looked: Looked) -> list[Chart]:
    where = places(looked)
    told = [item for item in looked.items if item.status == "ok" and item.memory is not None]
    foreign = [where.get(item.environment, NOWHERE).device and _of_the_host(item) for item in told]
    elsewhere = [item for item, away in zip(told, foreign, strict=True) if away]
    known = [item for item, away in zip(told, foreign, strict=True) if not away]
    drawn = [item for item in known if _seen(item) and positive(item.bytes)]
    if not drawn:
        return []
    kept, hidden = few([(item, _dot(item)) for item in drawn])
    series = by_backend(kept)
    return [
        Chart(
            id="memory",
            title="Peak memory against the data",
            about="On the line a case takes its inputs and outputs and nothing more; above it, room to work in.",
            kind="plot",
            x=Axis("bytes moved at least", "B", "log2"),
            y=Axis("peak memory", "B", "log2"),
            series=(*series, diagonal(series, "as much as its data")),
            notes=(*_much(drawn), *_left_out(known), *_elsewhere(elsewhere), *hidden),
        )
    ]


def _of_the_host(item: Item) -> bool:
    """Whether it was the kernel that counted, which sees nothing of a device's memory."""
    return item.memory_source.startswith("resident pages")


def _seen(item: Item) -> bool:
    return positive(item.memory) and item.memory >= item.memory_resolution


def _elsewhere(items: list[Item]) -> list[str]:
    backends = listed(list(dict.fromkeys(item.backend for item in items)))
    said = (
        f"{counted(len(items), 'case')} of {backends} left out: counted on the host, which is not the device's memory"
    )
    return [said] if items else []


def _factor(item: Item) -> float:
    return (item.memory or 0) / (item.bytes or 1)


def _dot(item: Item) -> Mark:
    note = f"{significant(_factor(item))} times its data" if _factor(item) > _MUCH else ""
    return Mark(item.bytes or 0, item.memory or 0, called(item), link=item.key, note=note)


def _much(drawn: list[Item]) -> list[str]:
    """Most first."""
    found = sorted((item for item in drawn if _factor(item) > _MUCH), key=lambda item: -_factor(item))
    named = listed([f"{called(item)} {significant(_factor(item))} times" for item in found])
    return [f"{len(found)} of {counted(len(drawn), 'case')} over {_MUCH} times their data: {named}"] if found else []


def _left_out(known: list[Item]) -> list[str]:
    unseen = sum(not _seen(item) for item in known)
    unsized = sum(_seen(item) and not positive(item.bytes) for item in known)
    told = ((unseen, "less than the counter of memory can tell"), (unsized, "nobody told how many bytes they move"))
    return [f"{counted(count, 'case')} left out: {why}" for count, why in told if count]
