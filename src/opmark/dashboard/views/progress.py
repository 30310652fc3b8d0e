"""How far a run is: asked for every two seconds by pages that show one under way."""

from __future__ import annotations

from msgspec import Struct

from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.progress import Progress
from opmark.dashboard.reading import Reader


class Asked(Struct, frozen=True):
    run: str


def view(reader: Reader, asked: Asked) -> Progress:
    return reader.progress(reader.run(asked.run))


ENDPOINT = Endpoint("/runs/{run}/progress", view, Asked, Progress, "", "Progress", "How far a run is.")
