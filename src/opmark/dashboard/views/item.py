"""One item of a run, with the samples of every process."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from opmark.analysis.rows import Row
from opmark.charts.samples import samples
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.reading import Reader
from opmark.schema import Run
from opmark.schema.chart import Chart
from opmark.schema.measurement import Caution

SAMPLES = 1000
"""Drawn of each quantity; the report, which has thousands of items, draws fewer."""


class Asked(Struct, frozen=True):
    run: str
    key: str


class Answer(Struct, frozen=True):
    run: Run
    item: Row
    facts: dict[str, Any]
    """Facts of the environment that it ran in."""
    cautions: list[Caution]
    charts: list[Chart]
    """The samples, a chart a quantity and state of the caches."""


def view(reader: Reader, asked: Asked) -> Answer:
    run = reader.run(asked.run)
    row, facts = reader.row(run, asked.key)
    timed = [timing for timing in row.timings if timing.samples]
    charts = [samples(row, timing.quantity, timing.cache, most=SAMPLES) for timing in timed]
    cautions = list({caution.code: caution for _, caution in row.warnings()}.values())
    return Answer(run, row, facts, cautions, charts)


ENDPOINT = Endpoint(
    "/runs/{run}/items/{key}",
    view,
    Asked,
    Answer,
    "item.html",
    "Item",
    "An item of a run, with its samples.",
    of_runs=("run",),
)
