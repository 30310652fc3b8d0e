from __future__ import annotations

import pytest
from handmade import looked, sound
from showcase import showcase

from opmark.api.items import view_run
from opmark.report.charts.gallery import FIGURES, gallery


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    path = tmp_path_factory.mktemp("gallery") / "runs.db"
    showcase(path)
    return path


def test_the_order_of_a_page():
    order = ["tuning", "schedules", "factors", "corun", "roofline", "heatmap", "frameworks", "sweep", "load", "bus",
             "overhead", "threads", "fused", "memory", "differences", "predictions"]  # fmt: skip
    assert list(FIGURES) == order


@pytest.mark.parametrize("label", ["showcase", "base", "one", "failures", "nightly~0"])
def test_every_figure_of_every_kind_of_run_keeps_the_promises_of_charts(db, label):
    sound(gallery(view_run(label, db=db)))


def test_a_run_with_everything_has_every_figure(db):
    found = view_run("showcase", db=db)
    # Percentiles need whole records, errors are in those of models only, nothing was tuned, scheduled or studied, and
    # nothing ran together.
    empty = [name for name, figure in FIGURES.items() if not figure(found)]
    assert empty == ["tuning", "schedules", "factors", "corun", "load", "differences"]
    assert sorted(chart.id for chart in gallery(found) if chart.id.startswith("sweep")) == [
        f"sweep-{op}-forward{end}" for op in ("add", "exp", "matmul", "softmax") for end in ("", "-rate")
    ]


def test_links_lead_to_items(db):
    found = view_run("showcase", db=db)
    keys = {item.key for item in found.rows}
    links = {mark.link for chart in gallery(found) for _, mark in chart.marks() if mark.link}
    assert links
    assert links <= keys


def test_nothing_of_nothing(db):
    assert gallery(looked()) == []
    assert gallery(view_run("failures", db=db)) == []
