"""The table of endpoints. A row is a page, an address of the JSON API and a part of the OpenAPI document."""

from __future__ import annotations

from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.views import case, compare, coverage, figures, item, progress, roofline, run, runs, search

ENDPOINTS: tuple[Endpoint, ...] = (
    runs.ENDPOINT,
    run.ENDPOINT,
    progress.ENDPOINT,
    item.ENDPOINT,
    figures.ENDPOINT,
    search.ENDPOINT,
    roofline.ENDPOINT,
    case.ENDPOINT,
    compare.ENDPOINT,
    coverage.ENDPOINT,
)
