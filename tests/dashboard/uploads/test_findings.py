"""Findings about machines in uploads, and invented numbers, do not change the results of others."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from made_up import BOX, made_run, record
from msgspec.structs import replace
from push_parts import FOUND, PEAKS, everything, fill, line, lines_of, packed, sealed

from opmark.dashboard.endpoint import RequestRefused
from opmark.dashboard.uploads.store import receive
from opmark.schema.machine import Floor, NoiseFloor, findings_key
from opmark.store.limits import Limits
from opmark.store.runs import noise_under
from opmark.store.sql import open_sql

RUN = made_run(1).id
CHIP, BACKEND = findings_key(BOX.facts), noise_under("null", BOX.facts)
NOISE = NoiseFloor("AMD EPYC", "null", 2, FOUND, 10, 16, [Floor("add", "shape=[8]", 1e-6, 0.01, 0.02)])
PEAKS_LINE, NOISE_LINE = 6, 5
Change = Callable[[list[Any]], None]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    place = tmp_path / "here.db"
    fill(place)
    with closing(open_sql(place, create=True)) as store:
        store.keep("noise", BACKEND, FOUND, NOISE)
    return place


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there.db"


def _put(*path: Any, value: Any) -> Change:
    def change(lines: list[Any]) -> None:
        inner = lines
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value

    return change


def _floor(name: str, value: Any) -> Change:
    return _put(NOISE_LINE, "finding", "body", "floors", 0, name, value=value)


def _peak(*path: Any, value: Any) -> Change:
    return _put(PEAKS_LINE, "finding", "body", *path, value=value)


def _samples(*values: float) -> Change:
    packed_up = base64.b64encode(struct.pack(f"<{len(values)}d", *values)).decode()
    return _put(3, "samples", value=[packed_up])


LATER = (datetime.now(timezone.utc) + timedelta(days=3)).isoformat(timespec="milliseconds")
REFUSED: dict[str, tuple[Change, str]] = {
    "noise of nothing": (_put(NOISE_LINE, "finding", "body", "floors", value=[]), "line 6: floors: expected at least"),
    "noise of no time": (_floor("seconds", 0), "line 6: seconds: expected 1e-12 to"),
    "noise of a negative time": (_floor("seconds", -1e-6), "line 6: seconds"),
    "noise above all differences": (_floor("between", 5.0), "line 6: between: expected 0 to 1, got 5"),
    "negative noise": (_floor("within", -0.1), "line 6: within"),
    "a peak of next to nothing": (_peak("flops", "float32", value=1.0), r"line 7: flops of float32: expected 1000 to"),
    "a peak without end": (_peak("flops", "float32", value=1e300), "line 7: flops of float32"),
    "a memory that stands still": (_peak("levels", 0, "bandwidth", value=0.0), "line 7: bandwidth of memory"),
    "a cache of no size": (_peak("levels", 0, "nbytes", value=0), "line 7: nbytes of memory"),
    "a call that takes for ever": (_peak("launch", value={"latency": 1e300}), "line 7: launch, latency"),
    "a finding from the future": (
        _put(PEAKS_LINE, "finding", "started", value="9999-01-01T00:00:00.000+00:00"), "line 7: started: .* to come"),
    "one from the day after tomorrow": (_put(NOISE_LINE, "finding", "started", value=LATER), "line 6: started"),
    "a note from the future": (
        _put(0, "notes", value=[{"kind": "label", "text": "x", "noted": "9999-01-01T00:00:00.000+00:00"}]),
        "line 1: noted: .*not to come"),
    "samples below all clocks": (_samples(5e-324, 1e-3), "line 4: samples: expected 0, or 1e-30 to"),
    "samples beyond all": (_samples(1e-3, -1e308), "line 4: samples"),
    "a measurement of nothing": (_samples(), "line 4: latency: expected samples"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_measured_is_refused(here: Path, there: Path, name: str) -> None:
    change, why = REFUSED[name]
    lines = [json.loads(one) for one in lines_of(here, RUN)[:-1]]
    change(lines)
    with pytest.raises(RequestRefused, match=why) as refused:
        receive(there, sealed([line(one) for one in lines]))
    assert refused.value.status == 422
    assert not there.exists()


@pytest.mark.parametrize("text", ["2030-W01-1", "20300101", "2030-01-01", "2030-01-01T00:00:00", "2030-01-01T00:00:00Z",
                                  "2030-01-01T02:00:00.000+02:00", "2030-13-01T00:00:00.000+00:00", "",
                                  "2030-01-01 00:00:00.000+00:00", "2030-01-01T00:00:00.0+00:00",
                                  "2030-01-01T00:00:00.000+00:00\n", "٢٠٣٠-01-01T00:00:00.000+00:00"])  # fmt: skip
def test_a_date_is_written_in_one_way(here: Path, there: Path, text: str) -> None:
    """They are compared as texts."""
    lines = [json.loads(one) for one in lines_of(here, RUN)[:-1]]
    lines[0]["run"]["started"] = text
    with pytest.raises(RequestRefused, match="line 1: started: expected a date"):
        receive(there, sealed([line(one) for one in lines]))


@pytest.mark.parametrize("text", ["2030-01-01T00:00:00+00:00", "2030-01-01T00:00:00.123456+00:00"])
def test_seconds_may_be_whole_or_finer(here: Path, there: Path, text: str) -> None:
    lines = [json.loads(one) for one in lines_of(here, RUN)[:-1]]
    lines[0]["run"]["started"] = text
    assert receive(there, sealed([line(one) for one in lines])).new == 3


def test_what_is_known_of_a_machine_is_not_replaced(here: Path, there: Path) -> None:
    fill(there, made_run(2, "mine"), [record(1)])  # which knows its peaks, and nothing of its noise
    with closing(open_sql(here, create=True)) as store:
        store.keep("peaks", CHIP, "2021-01-01T00:00:00.000+00:00", replace(PEAKS, flops={"float32": 2e12}))
    assert receive(there, packed(here, RUN)).findings == 1
    with closing(open_sql(there)) as store:
        assert store.kept("peaks", CHIP)["flops"] == {"float32": 1e11}
        assert store.kept("noise", BACKEND)["floors"][0]["between"] == 0.01
    before = everything(there)
    with closing(open_sql(here, create=True)) as store:
        louder = replace(NOISE, floors=[Floor("add", "shape=[8]", 1e-6, 0.9, 0.9)])
        store.keep("noise", BACKEND, "2021-01-01T00:00:00.000+00:00", louder)
    assert receive(there, packed(here, RUN)).findings == 0
    assert everything(there) == before


def test_what_is_found_out_here_counts_more_than_what_came(here: Path, there: Path) -> None:
    receive(there, packed(here, RUN))
    with closing(open_sql(there, create=True)) as store:
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        store.keep("peaks", CHIP, now, replace(PEAKS, flops={"float32": 3e11}))
        assert store.kept("peaks", CHIP)["flops"] == {"float32": 3e11}


def test_what_was_no_number_comes_over_as_such(here: Path, there: Path) -> None:
    receive(there, packed(here, RUN))
    with closing(open_sql(there)) as store:
        samples = store.records(RUN)[0].measurements[0].samples
    assert math.isnan(samples[1])
    assert samples[2] == math.inf


def test_all_that_is_in_memory_together_is_limited(here: Path, there: Path) -> None:
    body = packed(here, RUN)
    with pytest.raises(RequestRefused, match="line 6: expected at most 30 values besides"):
        receive(there, body, Limits(held=30))
    assert not there.exists()
    assert receive(there, body, Limits(held=200)).new == 3
