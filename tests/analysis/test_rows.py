"""Rows are the same whether they are made of heads without samples or of whole records."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from showcase import run

from opmark.analysis.rows import (
    MachineFacts,
    Row,
    RowCollector,
    RunView,
    headline_name,
    rows_of_records,
    split_by_headline,
)
from opmark.api.items import view_stored_run
from opmark.report.row_view import row_view
from opmark.schema import EFFORTS, Case, Caution, Cost, Environment, Measurement, Memory, Record, Settings, Task
from opmark.schema.cost import Traffic
from opmark.schema.machine import MEMORY, Level, Peaks, findings_key
from opmark.schema.record import Compilation
from opmark.stats import log_interval
from opmark.store.sql import open_sql

pytestmark = pytest.mark.verdicts

MakeRecord = Callable[..., Record]

FAST = Environment.of({"machine": "dgx", "gpu": "NVIDIA H200", "device": "cuda", "backend": "torch-cuda"})
SLOW = Environment.of({"machine": "box", "gpu": "NVIDIA A100-SXM4-80GB", "device": "cuda", "backend": "torch-cuda"})
PEAKS = {
    FAST.id: Peaks("NVIDIA H200", "calibrate", {"float32": 5e13}, [Level("L2", 8e12, 50 << 20), Level("memory", 4e12)]),
    SLOW.id: Peaks("NVIDIA A100-SXM4-80GB", "calibrate", {"float32": 1e13}, [Level("memory", 1e12)]),
}
COST = Cost(flops=1_000_000, bytes_read=8_000_000, bytes_written=4_000_000)


def measured(quantity: str, cache: Any, samples: Sequence[float], *codes: str) -> Measurement:
    cautions = tuple(Caution(code, f"{code} was seen", "wait") for code in codes)
    return Measurement(quantity, cache, "virtual", list(samples), 1, 0.0, 2, 0.1, "precise", cautions)


def spread(centre: float) -> list[float]:
    return [centre * (1 + i / 100) for i in range(-3, 4)]


COLD = measured("device_time", "cold", spread(5e-6), "imprecise")
WARM = measured("device_time", "warm", spread(3e-6))


def record(
    *measurements: Measurement, status: Any = "ok", settings: dict[str, Any] | None = None, **fields: Any
) -> Record:
    phase, wrt = fields.pop("phase", "forward"), fields.pop("wrt", ())
    case = Case.of("exp", {"shape": [fields.pop("n", 1024)], "dtype": "float32"}, phase, ("tag",), wrt)
    chosen = Settings(**{"threads": 2, "effort": "quick", "sampling": EFFORTS["quick"], **(settings or {})})
    given: dict[str, Any] = {"cost": COST, "environment": FAST.id, "started": "2030-01-01T00:00:00.000+00:00",
                             "duration": 0.5, "memory": Memory(3 << 20, 0, "allocator", 512)}  # fmt: skip
    task = Task(case, "torch-cuda", "torch", chosen)
    return Record(task, status, measurements=measurements, **{**given, **fields})


def processes(*centres: float, codes: tuple[str, ...] = ("imprecise",), **fields: Any) -> list[Record]:
    found = []
    for i, centre in enumerate(centres):
        own = measured("device_time", "cold", spread(centre), *codes)
        found.append(record(own, settings={"process": i}, **fields))
    return found


TABLE: dict[str, list[Record]] = {
    "cold-before-warm": [record(COLD, WARM)],
    "warm-before-cold": [record(WARM, COLD)],
    "another-environment": [record(COLD), record(COLD, n=2048, environment=SLOW.id)],
    "three-processes": processes(5e-6, 5.02e-6, 5.1e-6),
    "processes-that-differ": processes(5e-6, 9e-6, 7e-6, codes=("imprecise", "noisy")),
    "one-of-three-failed": [
        *processes(5e-6, 5.1e-6),
        record(status="error", reason="broken", settings={"process": 2}, cost=None, memory=None),
    ],
    "first-of-two-has-no-number": [
        record(status="oom", reason="full", cost=None, memory=None),
        *processes(1.0, 5e-6, codes=("imprecise", "noisy"))[1:],
    ],
    "median-0": [record(measured("latency", "warm", [0.0] * 7))],
    "energy": [record(measured("energy", "warm", spread(0.25)))],
    "time-before-energy": [record(WARM, measured("energy", "warm", spread(0.25)))],
    "view": [record(WARM, view=True, cost=None)],
    "communication": [record(WARM, cost=Cost(None, 4096, 4096, Traffic(8192, 1.5 * 8192, 4, "peers")))],
    "gradients": [record(WARM, phase="backward", wrt=(name,)) for name in ("x", "w")],
    "compiled": [record(WARM, compilation=Compilation(1.5), settings={"process": i}) for i in (0, 1)],
    "nothing": [record(status="skipped", reason="not here", cost=None, memory=None, environment="", duration=0.0)],
    "notes": [record(WARM, notes=("a", "b", "a"))],
}
for _name, _setting in {
    "timer": {"timer": "events"}, "quantities": {"quantities": ("latency",)}, "caches": {"caches": ("cold",)},
    "verify": {"verify": False}, "seed": {"seed": 7}, "effort": {"effort": "standard"}, "mode": {"mode": "discrete"},
    "threads": {"threads": 4}, "sampling": {"sampling": EFFORTS["standard"]},
}.items():  # fmt: skip
    TABLE[f"another-{_name}"] = [record(WARM), record(COLD, settings=_setting)]


def looked_at(db: Path, records: list[Record]) -> RunView:
    made, _ = run(1, "table", records)
    with closing(open_sql(db, create=True)) as store:
        for environment in (FAST, SLOW):
            store.add_environment(environment)
            peaks = PEAKS[environment.id]
            store.keep("peaks", findings_key(environment.facts), "2030-01-01T00:00:00.000+00:00", peaks)
        store.begin(made)
        store.extend(made.id, records)
        return view_stored_run(store, made)


@pytest.mark.parametrize("name", TABLE)
def test_an_item_is_what_a_row_of_the_same_records_is(tmp_path: Path, name: str) -> None:
    records = TABLE[name]
    looked = looked_at(tmp_path / "table.db", records)
    found = rows_of_records(records, looked.run.id, looked.machines)
    assert list(looked.rows) == found
    assert all(row.records == () for row in looked.rows)
    for item, row in zip(looked.rows, found, strict=True):
        assert _plain(item) == _told(row_view(row))


@pytest.mark.parametrize("name", TABLE)
def test_rows_of_a_run_that_goes_on_are_those_of_the_stored_run(name: str) -> None:
    """As `opmark run --json` and `opmark show --json` print them."""
    records, machines = TABLE[name], {key: MachineFacts(peaks) for key, peaks in PEAKS.items()}
    found: list[Row] = []
    collector = RowCollector(
        "r", [record.task for record in records], lambda key: machines.get(key, MachineFacts()), found.append
    )
    for one in records:
        collector.add(one)
    stored = rows_of_records(records, "r", machines)
    assert sorted(map(_text, found)) == sorted(map(_text, stored))
    collector.end()
    assert len(found) == len(stored), "nothing is given twice"


def _text(row: Row) -> bytes:
    return msgspec.json.encode(row_view(row))


def test_a_gain_is_the_same_while_a_run_goes_on() -> None:
    """The first implementation is told that others will come; one that is done before it waits for it."""
    by = [replace(record(WARM), task=replace(record(WARM).task, implementation=name)) for name in ("a", "b")]
    late = replace(by[0], task=replace(by[0].task, settings=replace(by[0].task.settings, process=1)))
    found: list[Row] = []
    collector = RowCollector("r", [one.task for one in (*by, late)], lambda _: MachineFacts(), found.append)
    collector.add(by[0])
    collector.add(by[1])
    assert found == []
    collector.add(late)
    assert [(row.implementation, row.processes, row.gain) for row in found] == [("a", 2, 1.0), ("b", 1, 1.0)]


def test_an_interrupted_run_gives_what_there_is() -> None:
    records = processes(5e-6, 5.1e-6, 5.2e-6)
    found: list[Row] = []
    collector = RowCollector("r", [one.task for one in records], lambda _: MachineFacts(), found.append)
    collector.add(records[0])
    assert found == []
    collector.end()
    assert [row.processes for row in found] == [1]


FIELDS = ("run", "case", "op", "phase", "params", "backend", "implementation", "threads", "processes", "effort", "mode",
          "status", "reason", "environment", "started", "duration")  # fmt: skip
RATES = ("bytes_per_second", "flops_per_second")


def _plain(item: Any) -> dict[str, Any]:
    timings = [(t.quantity, t.cache, t.unit, t.median, (t.low, t.high), t.samples, {*t.cautions}) for t in item.timings]
    shares = [share and (share.share, share.bound) for share in (item.of_peak, item.of_datasheet)]
    memory = (item.memory, item.memory_source, item.memory_resolution)
    lists = [list(item.tags), list(item.notes), list(item.wrt)]
    plain = {name: getattr(item, name) for name in (*FIELDS, *RATES)}
    buses = (item.algorithm_bandwidth, item.bus_bandwidth)
    return plain | {"timings": timings, "shares": shares, "memory": memory, "lists": lists, "buses": buses,
                    "compiled": item.compile_time}  # fmt: skip


def _told(told: dict[str, Any]) -> dict[str, Any]:
    ordered = [(quantity, cache) for quantity, by_cache in told["quantities"].items() for cache in by_cache]
    timings = []
    for quantity, cache in ordered:
        one = told["quantities"][quantity][cache]
        codes = {caution["code"] for caution in one["warnings"]}
        timings.append((quantity, cache, one["unit"], one["median"], tuple(one["interval"]), one["samples"], codes))
    metrics, memory = told["metrics"], told["memory"] or {"peak": None, "source": "", "resolution": 1}
    named = (metrics["of_measured_peak"], metrics["of_datasheet_peak"])
    compiled = told["compilation"]["cold"] if told["compilation"] else None
    buses = (metrics.get("algorithm_bandwidth"), metrics.get("bus_bandwidth"))
    return {name: told[name] for name in FIELDS} | {name: metrics[name] for name in RATES} | {
        "timings": timings, "shares": [share and (share["share"], share["bound"]) for share in named],
        "memory": (memory["peak"], memory["source"], memory["resolution"]),
        "lists": [told["tags"], told["notes"], told["wrt"]], "buses": buses, "compiled": compiled,
    }  # fmt: skip


def test_what_is_no_number_is_none_and_leaves_those_of_other_processes(tmp_path: Path) -> None:
    broken = measured("device_time", "cold", [math.nan] * 7)
    mixed = [record(broken), *processes(1.0, 5e-6, 6e-6)[1:]]
    alone, together = looked_at(tmp_path / "nan.db", [record(broken, n=2048), *mixed]).rows
    assert [alone.timings[0].median, alone.seconds, alone.of_peak, alone.bytes_per_second] == [None] * 4
    first = together.timings[0]
    assert first.median == pytest.approx(math.sqrt(30) * 1e-6)
    assert (first.low, first.high) == log_interval([5e-6, 6e-6])[:2]
    assert (first.samples, first.processes, together.processes) == (21, 3, 3)


def test_how_far_processes_are_apart_replaces_how_sure_each_was(tmp_path: Path) -> None:
    near = processes(5e-6, 5.02e-6, 5.1e-6, codes=("imprecise", "noisy"))
    apart = processes(5e-6, 9e-6, 7e-6, n=2048)
    alone = record(COLD, n=4096)
    found = looked_at(tmp_path / "apart.db", [*near, *apart, alone]).rows
    assert [item.cautions for item in found] == [("noisy",), ("processes-differ",), ("imprecise",)]


def test_more_than_the_hardware_can_do_is_doubtful(tmp_path: Path) -> None:
    """12 MB at 4 TB/s take 3 µs."""
    centres = (2.5e-6, 2.9e-6, 5e-6)
    records = [record(measured("device_time", "cold", spread(c)), WARM, n=1024 << i) for i, c in enumerate(centres)]
    found = looked_at(tmp_path / "peak.db", records).rows
    assert [item.timings[0].cautions for item in found] == [("above-peak",), (), ()]
    assert all(item.timings[1].cautions == () for item in found)


def test_more_than_the_datasheet_says_is_doubtful(make_record: MakeRecord) -> None:
    """2.12 MB in 1.03 ms are 2.06 GB/s, of a memory that has 1.5 GB/s by its sheet."""
    one = make_record()
    for bandwidth, codes in ((1.5e9, ["above-datasheet"]), (2.0e9, []), (3e9, [])):
        sheet = Peaks("Slow 1", "its sheet", {"float32": 1e13}, [Level(MEMORY, bandwidth)])
        (row,) = rows_of_records([one], machines={one.environment: MachineFacts(datasheet=sheet)})
        assert [caution.code for _, caution in row.warnings()] == list(row.headline_cautions) == codes


def test_limits_are_those_of_where_it_ran_and_of_the_state_of_the_caches(tmp_path: Path) -> None:
    """Cold, data come from memory at 4 TB/s; warm, from a cache of 8 TB/s; the other chip has 1 TB/s."""
    records = [record(COLD), record(WARM, n=2048), record(COLD, n=4096, environment=SLOW.id)]
    shares = [item.of_peak for item in looked_at(tmp_path / "limits.db", records).rows]
    assert [share and (round(share.share, 4), share.bound) for share in shares] == [
        (0.6, "memory"),
        (0.5, "L2"),
        (2.4, "memory"),
    ]


def test_gradients_of_other_inputs_are_other_items_with_other_names(tmp_path: Path) -> None:
    found = looked_at(tmp_path / "wrt.db", TABLE["gradients"]).rows
    assert [item.name.rpartition(" ")[2] for item in found] == ["dx", "dw"]
    assert [replace(item, key="", case="", wrt=()) for item in found[:1]] == [
        replace(item, key="", case="", wrt=()) for item in found[1:]
    ]


def test_rows_of_each_headline_are_apart_and_failures_stay_with_their_backend(make_record: MakeRecord) -> None:
    def of(backend: str, *found: Measurement, **fields: Any) -> Record:
        return make_record(backend=backend, measurements=found, **fields)

    device, latency = measured("device_time", "cold", spread(1e-6)), measured("latency", "warm", spread(1e-5))
    records = [
        of("jax-cuda", status="error", reason="no"),
        of("torch-cuda", device, latency),
        of("torch-cpu", status="error", reason="no", threads=4),
        of("torch-cpu", latency),
        of("torch-cuda", device, threads=4),
    ]
    parts = split_by_headline(rows_of_records(records))
    assert [[(row.backend, row.threads) for row in part] for part in parts] == [
        [("jax-cuda", 2), ("torch-cuda", 2), ("torch-cuda", 4)],
        [("torch-cpu", 4), ("torch-cpu", 2)],
    ]
    assert list(map(headline_name, parts)) == ["device_time cold", "latency warm"]
    assert split_by_headline([]) == []
    failures = rows_of_records(records[:1])
    assert split_by_headline(failures) == [failures]
