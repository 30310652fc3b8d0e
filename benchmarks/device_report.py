"""Measures the suites on one device within a time, and writes a page of results: `python -m benchmarks.device_report`.

A part is a suite, or a sample of it. What is measured is kept in a store, so that the next call goes on where this one
ended, and the page is written anew from all that the store holds.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import opmark
from opmark.analysis.rows import Row, RunView
from opmark.api.items import view_stored_run
from opmark.errors import UserError
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import catalogue
from opmark.schema import Record
from opmark.schema.machine import chip
from opmark.store.sql import open_sql
from opmark.units import count_noun, percent, rate, seconds, significant, small_unit

SUITES = ("vision", "fused", "recsys", "llm", "torch-all", "param", "opperf", "sweep", "bytemicroperf")
"""The short ones come first: where time is short, most suites are whole all the same."""
SPEED_SUITES = ("llm", "torch-all")
SPEED_SAMPLE = 60
TOP = "top-line"
_ENOUGH = 15.0
"""Seconds below which no further part is begun: a worker takes as long to start."""
_SHARE = 2
"""How many times its even share of the time a part may take; short parts leave theirs to the others."""
_MOST_REASON = 200
_TOP_QUANTITIES = ("device_time", "latency", "host_time", "throughput", "energy")
_COMPUTE = ("gemm", "attention", "convolution")
_MEMORY = ("memory", "element-wise", "activation", "normalization", "reduction")


def top_line_workload(size: str) -> dict[str, Any]:
    """Return the cases that a vendor would quote: products in every element type, bandwidth, attention, the least
    kernel."""
    wide, half = ["float32", "bfloat16"], ["float16", "bfloat16"]
    cases: list[dict[str, Any]] = [
        {"op": "matmul", "params": {"dtype": ["float64", "float32", "tfloat32", *half]}},
        {"op": "quant_matmul", "params": {"dtype": ["int8", "float8_e4m3fn"]}},
        {"op": "copy"},
        {"op": "add", "params": {"dtype": wide}},
        {"op": "softmax", "params": {"dtype": wide}},
        {"op": "layer_norm", "params": {"dtype": wide}, "phases": ["forward", "backward"]},
        {"op": "scaled_dot_product_attention", "params": {"dtype": half, "causal": [False, True]}},
        {"op": "conv2d", "params": {"dtype": ["float32", "float16"]}},
    ]
    least = {"op": "add", "params": {"shape": [1024]}}
    return {"schema": 1, "name": TOP, "cases": [*({**case, "sizes": [size]} for case in cases), least]}


@dataclass(frozen=True)
class Part:
    """Something to measure, under a label of its own in the store."""

    label: str
    options: dict[str, Any]


class TimeIsUp(Exception):
    """Ends a run between two cases; what it has measured is stored."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    try:
        parts = _parts(options)
    except UserError as error:
        print(error.message, file=sys.stderr)
        return 2
    _measure(parts, options)
    views = _read_parts(parts, options.db)
    if not views:
        print("nothing was measured, so there is no page to write", file=sys.stderr)
        return 1
    name = _chip_of(views.values())
    path = options.page or Path("docs/results") / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(_page(name, parts, views, options)) + "\n")
    left = [part.label for part in parts if part.label not in views or not _is_whole(views[part.label])]
    print(f"wrote {path}" + (f"; not finished: {', '.join(left)}; the same command goes on" if left else ""))
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device_report", description=__doc__)
    parser.add_argument("--backend", default="torch-cuda", help="as in `opmark list backends` [default: torch-cuda]")
    parser.add_argument("--suites", default=",".join(SUITES), help="names with commas between them [default: nine]")
    parser.add_argument("--sample", type=int, default=500, help="cases of each suite [default: 500]")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds for this call [default: 540]")
    parser.add_argument("--effort", default="quick", help="as of `opmark run` [default: quick]")
    parser.add_argument("--quantity", help="of the suites, as of `opmark run` [default on a device: device_time]")
    parser.add_argument("--cache", help="of the suites, as of `opmark run` [default on a device: cold]")
    parser.add_argument("--size", default="large", help="size of the top-line cases [default: large]")
    parser.add_argument("--db", type=Path, default=Path("device-report.db"), help="store [default: device-report.db]")
    parser.add_argument("--page", type=Path, help="page to write [default: docs/results/CHIP.md]")
    return parser.parse_args(arguments)


def _parts(options: argparse.Namespace) -> list[Part]:
    """Return what is measured. On a device the suites have its own time with cold caches alone, unless the options say
    otherwise: two of them say how long all quantities take."""
    if find_backend(options.backend).device != "cpu":
        options.quantity = options.quantity or "device_time"
        options.cache = options.cache or "cold"
    common = {"backend": options.backend, "effort": options.effort}
    suites = [name for name in options.suites.split(",") if name]
    top = {"workload": top_line_workload(options.size), "quantity": _TOP_QUANTITIES, **common}
    some = min(SPEED_SAMPLE, options.sample)
    chosen = {name: value for name in ("quantity", "cache") if (value := getattr(options, name))}
    return [
        Part(TOP, top),
        *(
            Part(f"{name}, all quantities", {"suite": name, "sample": some, **common})
            for name in SPEED_SUITES
            if name in suites and chosen
        ),
        *(Part(name, {"suite": name, "sample": options.sample, **chosen, **common}) for name in suites),
    ]


def _measure(parts: Sequence[Part], options: argparse.Namespace) -> None:
    """Measure one part after the other until the time is up. A part that cannot run here says so and is left out."""
    end = time.monotonic() + options.budget
    for number, part in enumerate(parts):
        left = end - time.monotonic()
        if left < min(_ENOUGH, options.budget / 2):
            return
        due = time.monotonic() + min(left, _SHARE * left / (len(parts) - number))
        print(f"{part.label}: up to {due - time.monotonic():.0f} s", file=sys.stderr, flush=True)
        try:
            _measure_part(part, options.db, due)
        except UserError as error:
            print(f"{part.label}: {error.message}", file=sys.stderr)


def _measure_part(part: Part, db: Path, due: float) -> None:
    def stop_when_due(_: Record) -> None:
        if time.monotonic() > due:
            raise TimeIsUp

    with suppress(TimeIsUp):
        opmark.run(
            **part.options, label=part.label, db=db, resume=_is_begun(part, db), retries=0, on_record=stop_when_due,
            say=lambda text: None,
        )  # fmt: skip


def _is_begun(part: Part, db: Path) -> bool:
    """Return whether the store has a run of this part with the same plan, which can go on."""
    if not db.exists():
        return False
    plan = opmark.plan(**part.options).id
    with closing(open_sql(db)) as store:
        return any(run.label == part.label and run.plan == plan for run in store.runs())


def _read_parts(parts: Sequence[Part], db: Path) -> dict[str, RunView]:
    """Return the newest run of each part that has one."""
    if not db.exists():
        return {}
    with closing(open_sql(db)) as store:
        newest = {run.label: run for run in reversed(store.runs())}
        return {part.label: view_stored_run(store, newest[part.label]) for part in parts if part.label in newest}


# The page.


def _chip_of(views: Iterable[RunView]) -> str:
    names = Counter(chip(facts) for view in views for facts in view.environments.values())
    return names.most_common(1)[0][0] if names else "unknown chip"


def _is_whole(view: RunView) -> bool:
    return view.records >= view.run.tasks


def _page(name: str, parts: Sequence[Part], views: dict[str, RunView], options: argparse.Namespace) -> Iterator[str]:
    facts = next((facts for view in views.values() for facts in view.environments.values()), {})
    told = ("torch", "jax", "cuda", "hip", "driver", "python", "os", "sensors", "clocks")
    listed = ", ".join(f"{key} {facts[key]}" for key in told if facts.get(key))
    newest = max(view.run.started for view in views.values())[:10]
    yield f"# Results: {name}"
    yield ""
    version = next(iter(views.values())).run.version
    yield f"Measured with opmark {version} on {options.backend}, last on {newest}: {listed}."
    if TOP in views:
        yield from _top_line(views[TOP].rows)
    rows = [row for view in views.values() for row in view.rows]
    yield from _best_rates(rows)
    yield from _suites(parts, views)
    yield from _failures(views)
    yield from _how(options)


def _top_line(rows: Sequence[Row]) -> Iterator[str]:
    columns = [
        ("device cold", "device_time", "cold"), ("device warm", "device_time", "warm"), ("latency", "latency", None),
        ("launch", "host_time", None), ("back to back", "throughput", None),
    ]  # fmt: skip
    shown = [column for column in columns if any(row.timing(*column[1:]) for row in rows)]  # type: ignore[arg-type]
    yield from ("", "## Top-line figures", "")
    yield from _header(["case", *(column[0] for column in shown), "rate", "of datasheet", "energy"])
    for row in rows:
        times = [_time(row, quantity, cache) for _, quantity, cache in shown]
        energy = row.timing("energy")
        joules = "" if energy is None or energy.median is None else _joules(energy.median)
        share = percent(row.of_datasheet.share) if row.of_datasheet else ""
        yield _line([row.name, *times, _rate(row) if row.usable else row.status, share, joules])
    first = next((row.headline for row in rows if row.headline), None)
    if first:
        yield ""
        yield f"Rates and shares are of the first time of a row, {first.quantity} with {first.cache} caches."


def _time(row: Row, quantity: str, cache: Any) -> str:
    timing = row.timing(quantity, cache)
    if timing is None or timing.median is None:
        return ""
    return f"({seconds(timing.median)})" if timing.disturbed else seconds(timing.median)


def _joules(value: float) -> str:
    scale, unit = small_unit(value, "J")
    return f"{significant(value / scale)} {unit}"


def _rate(row: Row) -> str:
    """Return what limits such an operator: operations per second where it computes, bytes per second where it moves."""
    if _category(row) in _COMPUTE and row.flops_per_second:
        return rate(row.flops_per_second, "FLOP/s")
    return rate(row.bytes_per_second, "B/s") if row.bytes_per_second else ""


def _category(row: Row) -> str:
    known = catalogue().get(row.op)
    return known.category if known else ""


def _best_rates(rows: Sequence[Row]) -> Iterator[str]:
    """List the highest rate of each category and element type, over everything that was measured."""
    best: dict[tuple[str, str, str], tuple[float, Row]] = {}
    for row in rows:
        category = _category(row)
        if not row.usable or any(code.startswith("above-") for code in row.headline_cautions):
            continue
        pairs = ((_COMPUTE, "FLOP/s", row.flops_per_second), (_MEMORY, "B/s", row.bytes_per_second))
        for categories, unit, value in pairs:
            key = (category, row.dtype, unit)
            if category in categories and value and value > best.get(key, (0.0, row))[0]:
                best[key] = value, row
    if best:
        yield from ("", "## Highest rates seen", "")
        yield from _header(["category", "element type", "rate", "case"])
        for (category, dtype, unit), (value, row) in sorted(best.items()):
            yield _line([category, dtype, rate(value, unit), row.name])


def _suites(parts: Sequence[Part], views: dict[str, RunView]) -> Iterator[str]:
    yield from ("", "## Suites", "")
    yield from _header(["part", "planned", "measured", "failed", "skipped", "doubtful", "per minute", "time"])
    for part in parts:
        view = views.get(part.label)
        if view is None:
            yield _line([part.label, "", "not run", "", "", "", "", ""])
            continue
        ran = [row for row in view.rows if row.status != "skipped"]
        measured = [row for row in ran if row.timings]
        took = sum(row.duration for row in ran)
        yield _line([
            part.label, str(view.run.tasks), str(len(measured)), str(sum(row.failed for row in ran)),
            str(len(view.rows) - len(ran)), str(sum(bool(row.headline_cautions) for row in measured)),
            f"{60 * len(ran) / took:.0f}" if took else "", seconds(took) if took else "",
        ])  # fmt: skip
    yield ""
    yield "All columns count tasks: one case with one implementation. The time is that of the tasks themselves, without"
    yield "the start of workers. A task is doubtful if its first figure has a warning."


def _failures(views: dict[str, RunView]) -> Iterator[str]:
    """List what failed or was skipped, one line per reason: numbers in it do not tell reasons apart."""
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for label, view in views.items():
        for row in view.rows:
            if row.failed or row.status == "skipped":
                reason = row.reason.partition("\n")[0]
                groups[label, row.status, re.sub(r"\d[\d.,]*", "N", reason)].append(row)
    yield from ("", "## Failed and skipped", "")
    if not groups:
        yield "Nothing."
        return
    yield from _header(["part", "status", "tasks", "reason of the first", "for example"])
    for (label, status, _), rows in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]))):
        example = rows[0]
        reason = shorten(example.reason.partition("\n")[0], _MOST_REASON, placeholder=" ...")
        yield _line([label, status, str(len(rows)), reason, example.name])


def _how(options: argparse.Namespace) -> Iterator[str]:
    yield from ("", "## How this was measured", "")
    drawn, sample = count_noun(options.sample, "case"), f"`--sample {options.sample}`"
    yield f"Of each suite at most {drawn} are drawn ({sample}), one of each operator where there is room, and"
    how = "".join(f"--{name} {value} " for name in ("quantity", "cache") if (value := getattr(options, name)))
    yield f"measured with `{how}--effort {options.effort}`. Outputs are verified against a float64 reference;"
    yield "callables, as in torch-all, have none. docs/measure.md says what the quantities are. To repeat it, give the"
    yield "same command until everything is measured:"
    yield ""
    yield "```"
    yield (
        f"python -m benchmarks.device_report --backend {options.backend} --suites {options.suites} "
        f"--sample {options.sample} {how}--effort {options.effort} --size {options.size} --db {options.db}"
    )
    yield f"opmark show {TOP} --db {options.db}    # the cases behind a line"
    yield "```"


def _header(names: Sequence[str]) -> Iterator[str]:
    yield _line(names)
    yield f"|{'---|' * len(names)}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


if __name__ == "__main__":
    raise SystemExit(main())
