"""Records to show."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from rich.console import Console

from opmark.analysis.rows import MachineFacts
from opmark.plugin.registry import operator
from opmark.report.console.records import print_records
from opmark.schema import EFFORTS, Case, Cost, Measurement, Memory, Record, Settings, Task, Verification
from opmark.schema.cost import Traffic
from opmark.schema.load import Load, LoadFacts
from opmark.schema.measurement import REQUEST_LATENCY
from opmark.schema.record import MEASURED

SAMPLES = [1.00e-3, 1.01e-3, 1.02e-3, 1.03e-3, 1.04e-3, 1.05e-3, 1.06e-3]
"""Median 1.03 ms; its interval is 1.00 to 1.06 ms."""

# 2.06e9 bytes and 4.12e9 flops a second at that median.
COST = Cost(flops=4_243_600, bytes_read=2_000_000, bytes_written=121_800)


@pytest.fixture
def make_record() -> Callable[..., Record]:
    """A record of any operator; with measurements if it is ok and nothing else is said."""

    def make(op: str = "matmul", params: dict[str, Any] | None = None, **fields: Any) -> Record:
        given = {"M": 256, "N": 128, "K": 64} if params is None else params
        known = op in ("matmul", "exp", "layer_norm", "fault")
        phase, wrt = fields.pop("phase", "forward"), fields.pop("wrt", ())
        case = Case.of(op, operator(op).complete(given) if known else given, phase, ("llm",), wrt)
        named = {name: fields.pop(name) for name in ("process", "mode", "load") if name in fields}
        settings = Settings(fields.pop("threads", 2), "quick", EFFORTS["quick"], **named)
        task = Task(case, fields.pop("backend", "null"), fields.pop("implementation", "null"), settings)
        status = fields.pop("status", "ok")
        cautions = tuple(fields.pop("cautions", ()))
        if status in MEASURED:
            samples = fields.pop("samples", SAMPLES)
            measurement = Measurement("latency", "warm", "virtual", samples, 4, 2e-9, 40, 0.1, "precise", cautions)
            fields = {
                "measurements": (measurement,),
                "cost": COST,
                "memory": Memory(3 * 2**20, 2**20, "resident pages", 4096),
                "verification": Verification("full", "", None, 1e-7, 2e-7, (1e-5, 1e-5)),
                "environment": "0123456789abcdef",
                "started": "2030-01-01T00:00:00.000+00:00",
                "duration": 0.5,
                **fields,
            }
        return Record(task, status, **fields)

    return make


@pytest.fixture
def make_measurement() -> Callable[..., Measurement]:
    def make(quantity: str, cache: str, samples: list[float], **fields: Any) -> Measurement:
        timer = fields.pop("timer", "virtual")
        return Measurement(quantity, cache, timer, samples, 1, 0.0, 2, 0.1, "precise", **fields)  # type: ignore[arg-type]

    return make


@pytest.fixture
def make_loaded(make_record: Callable[..., Record]) -> Callable[..., Record]:
    """A record under load whose requests take a millisecond, a few of them three; so many in flight as clients."""

    def make(load: Load, **fields: Any) -> Record:
        seconds = fields.pop("seconds", 1e-3)
        samples = [seconds * (3 if i % 50 == 7 else 1 + 1e-3 * (i % 10)) for i in range(load.total)]
        due = [i * (1 / load.rate if load.rate else seconds / load.clients) for i in range(load.total)]
        window = max(at + one for at, one in zip(due, samples, strict=True))
        late = tuple([1e-5] * load.total) if load.rate else ()
        facts = LoadFacts(load, window, sum(samples) / window, tuple(due), late, 1e-6)
        measurement = Measurement(
            REQUEST_LATENCY, "warm", load.text, samples, 1, 0.0, 2, 0.1, "count", fields.pop("cautions", ()), load=facts
        )
        if fields.get("status", "ok") == "ok":
            fields["measurements"] = (measurement,)
        return make_record(load=load, **fields)

    return make


@pytest.fixture
def make_sent(make_record: Callable[..., Record]) -> Callable[..., Record]:
    """A record of communication that takes so many seconds; of all_reduce among 4 ranks if nothing else is said."""

    def make(size: int, seconds: float = 1e-3, op: str = "all_reduce", **fields: Any) -> Record:
        by_rank = fields.pop("by_rank", ())
        given = {"size": size, "ranks": 4} | fields.pop("params", {})
        bus, link = fields.pop("bus", 1.5 * size), fields.pop("link", "peers")
        samples = [max(one) for one in zip(*by_rank, strict=True)] or [seconds] * 7
        measurement = Measurement("latency", "warm", "virtual", samples, 1, 0.0, 2, 0.1, "precise", by_rank=by_rank)
        return make_record(
            op, operator(op).complete(given) if op == "all_reduce" else given,
            **{
                "measurements": (measurement,), "memory": None, "backend": "torch-cpu", "implementation": "torch",
                "cost": Cost(None, size, size, Traffic(size, bus, given["ranks"], link)), **fields,
            },
        )  # fmt: skip

    return make


@pytest.fixture
def printed() -> Callable[..., str]:
    """What a table looks like: on a terminal of a given width, or in a file where there is none."""

    def show(
        records: Sequence[Record], width: int | None = None, known: Mapping[str, MachineFacts] | None = None
    ) -> str:
        terminal = width is not None
        out = io.StringIO()
        # Without colours: what is said is to be read, not how.
        console = Console(file=out, width=width or 1000, force_terminal=terminal, color_system=None)
        print_records(records, console, known)
        return out.getvalue()

    return show
