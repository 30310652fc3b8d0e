"""The ledger of a model: operators that were measured one by one, beside the whole model of the same run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from opmark.analysis.metrics import peak_share
from opmark.analysis.rows import Row, Timing
from opmark.errors import UserError
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case, Cost
from opmark.schema.case import MODEL_PREFIX, VIEWS_TAG
from opmark.schema.machine import Peaks
from opmark.schema.record import MEASURED
from opmark.schema.tensor import is_float

_CACHE = 32 << 20
"""Assumed size of the last cache where the machine does not say."""
_BUSY, _IDLE = ("rotated", "cold", "warm"), ("warm", "rotated", "cold")
"""States of the caches by preference: in a model that moves more data than they hold, an operator's data was driven out
since it was last used; else it is still there."""
CLOSE = {"cpu": 0.15, "device": 0.10}
"""How far the sum of the operators may be from the model before the ledger says that it does not explain the model."""


class LedgerRow(Struct, frozen=True):
    """An operator of the model."""

    op: str
    parameters: str
    case: str
    """Id of its case."""
    count: int
    """Calls in one call of the model."""
    status: str
    reason: str
    cache: str = ""
    seconds: float | None = None
    """Median of one call; None if it was not measured."""
    total: float | None = None
    """Seconds of all its calls."""
    share: float | None = None
    """`total` relative to the time of the model."""
    flops: int | None = None
    bytes: int | None = None
    least: float | None = None
    """Seconds of one call at the roofline; None if the cost or a peak is not known."""
    bound: str = ""
    """What limits it there: `compute`, or a level of memory."""
    gain: float | None = None
    """Seconds that the model would save if all calls reached the roofline."""


class Ledger(Struct, frozen=True):
    """A model and its operators on one backend."""

    run: str
    model: str
    backend: str
    threads: int
    quantity: str
    seconds: float
    """Median of the model."""
    rows: list[LedgerRow]
    """The largest gain first; operators whose roofline is not known follow by their total."""
    total: float
    """Sum over the operators that were measured."""
    calls: int
    views: int
    launch: float | None = None
    """Seconds of the smallest call on this machine."""
    peaks: str = ""
    """Where the peaks come from; empty if they are not known."""
    footprint: int = 0
    """Bytes of the model's weights and inputs, and of the results of all calls."""
    driven_out: bool = False
    """Whether these are more than the caches hold, so that the time of an operator is one without its data in them."""
    disturbed: str = ""
    """Why the time of the model counts nowhere: other work took the cores while it was measured. Empty if it does."""

    @property
    def difference(self) -> float:
        """Seconds of the model that its operators do not explain; negative if they take longer one by one."""
        return self.seconds - self.total

    @property
    def missing(self) -> list[LedgerRow]:
        return [row for row in self.rows if row.seconds is None]

    @property
    def between(self) -> float | None:
        """Seconds that calls which only make views take, by the time of the smallest call."""
        return self.views * self.launch if self.launch is not None and self.quantity == "latency" else None

    @property
    def close(self) -> bool:
        """Whether the sum is as near to the model as it should be."""
        return abs(self.difference) <= CLOSE["cpu" if self.quantity == "latency" else "device"] * self.seconds


def make_ledgers(rows: Sequence[Row]) -> list[Ledger]:
    """Return a ledger for each model of a run on each backend. Raise UserError where there is none."""
    models = [
        row for row in rows if row.op.startswith(MODEL_PREFIX) and row.status in MEASURED and row.phase == "forward"
    ]
    found = [ledger for model in models if (ledger := _ledger(model, rows))]
    if not found:
        tried = next((row for row in rows if row.op.startswith(MODEL_PREFIX) and row.reason), None)
        why = f": {tried.op} is {tried.status}, {tried.reason}" if tried else ""
        raise UserError(
            f"the run holds no model that was measured together with its operators{why}",
            "`opmark ledger model:bert-base -p batch=1` measures both; or `opmark extract MODEL --with-model -o "
            "ops.yaml`, then `opmark run -w ops.yaml --cache warm,rotated`",
        )
    return found


def _ledger(model: Row, rows: Sequence[Row]) -> Ledger | None:
    own: dict[str, Row] = {}
    for row in rows:
        sources = {source.partition("#")[2] for source in _case(row).sources}
        if model.case in sources and _place(row) == _place(model):
            if len(sources) > 1:
                raise UserError(
                    f"{row.name} was measured for several models at once, so its count in {model.op} is not known",
                    "measure each model in a run of its own",
                )
            own.setdefault(row.case, row)  # of several implementations the first is the one that the model calls
    headline = next((t for t in model.timings if t.cache == "warm"), model.headline)
    if not own or headline is None or not headline.median:
        return None
    known = model.machine.measured or model.machine.datasheet
    results = sum(row.record.cost.bytes_written * row.count for row in own.values() if row.record.cost)
    footprint = (model.bytes or 0) + results
    driven_out = footprint > _last_cache(known)
    found = [_row(row, headline, known, _BUSY if driven_out else _IDLE) for row in own.values()]
    tags = [tag for tag in _case(model).tags if tag.startswith(VIEWS_TAG)]
    least = [one.seconds for one in found if one.seconds]
    launch = (known.launch.get("latency") if known else None) or min(least, default=None)
    return Ledger(
        model.run,
        model.name,
        model.backend,
        model.threads,
        headline.quantity,
        headline.median,
        sorted(found, key=lambda one: (-(one.gain or 0.0), -(one.total or 0.0))),
        sum(one.total or 0.0 for one in found),
        sum(one.count for one in found),
        int(tags[0].removeprefix(VIEWS_TAG)) if tags else 0,
        launch,
        known.source if known else "",
        footprint,
        driven_out,
        model.reason if headline.disturbed else "",
    )


def _case(row: Row) -> Case:
    return row.record.task.case


def _place(row: Row) -> tuple[str, int, str]:
    return row.backend, row.threads, row.mode


def _last_cache(peaks: Peaks | None) -> int:
    return max((level.nbytes or 0 for level in peaks.levels), default=0) or _CACHE if peaks else _CACHE


def _row(row: Row, headline: Timing, peaks: Peaks | None, caches: Sequence[str]) -> LedgerRow:
    case = _case(row)
    fitting = [t for t in row.timings if t.quantity == headline.quantity and t.usable]
    timing = min(fitting, key=lambda t: caches.index(t.cache), default=None)
    bare = LedgerRow(row.op, row.parameters, row.case, row.count, row.status, row.reason)
    if timing is None or timing.median is None:
        return bare
    cost = row.record.cost
    total = timing.median * row.count
    share = _peak_share(cost, timing, case, peaks) if peaks else None
    least = share[0] * timing.median if share else None
    return LedgerRow(
        row.op,
        row.parameters,
        row.case,
        row.count,
        row.status,
        row.reason,
        timing.cache,
        timing.median,
        total,
        total / headline.median if headline.median else None,
        cost.flops if cost else None,
        cost.bytes_moved if cost else None,
        least,
        share[1] if share else "",
        max(0.0, total - least * row.count) if least is not None else None,
    )


def _peak_share(cost: Cost | None, timing: Timing, case: Case, peaks: Peaks) -> tuple[float, str] | None:
    """Return (share of the roofline, what limits it). Operations that nobody counts, as in most callables, are taken as
    free: moving the data is still a bound."""
    if cost is None or timing.median is None:
        return None
    whole = Cost(cost.flops or 0, cost.bytes_read, cost.bytes_written)
    dtype = str(case.params.get("dtype", "")) or _dtype_of(case)
    found = peak_share(whole, timing.median, dtype, peaks, cold=timing.cache == "cold")
    return (found.share, found.bound) if found else None


def _dtype_of(case: Case) -> str:
    """Return the first floating-point type among the tensors of a callable."""
    dtypes = [spec.dtype for spec in find_operator(case.op).inputs(case.params).values()]
    return next((dtype for dtype in dtypes if is_float(dtype)), "")
