"""The ledger: times and counts are multiplied, gains are ranked, and states of the caches are those of the model."""

from __future__ import annotations

from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console

from opmark.analysis.ledger import Ledger, make_ledgers
from opmark.analysis.rows import MachineFacts, rows_of_records
from opmark.errors import UserError
from opmark.report.console.ledger import print_ledger
from opmark.schema import EFFORTS, Case, Caution, Cost, Measurement, Record, Settings, Task, Verification
from opmark.schema.machine import MEMORY, Level, Peaks
from opmark.schema.measurement import PREEMPTED

PEAKS = Peaks(
    "Fast 9000", "made up", {"float32": 1e12}, [Level("L2", 1e12, 1 << 20), Level(MEMORY, 1e11)],
    launch={"latency": 1e-6},
)  # fmt: skip


def record(case: Case, times: dict[str, float], cost: Cost | None, status: str = "ok") -> Record:
    measured = tuple(
        Measurement("latency", cache, "virtual", [seconds] * 9, 1, 0.0, 1, 0.0, "count")  # type: ignore[arg-type]
        for cache, seconds in times.items()
    )
    task = Task(case, "torch-cpu", "torch", Settings(1, "quick", EFFORTS["quick"]))
    return Record(task, status, "", measured, cost, verification=Verification("full"), environment="e")  # type: ignore[arg-type]


MODEL = Case.of("model:gpt2", {"size": "small", "batch": 1, "seq": 32, "dtype": "float32"}, "forward", ("views=10",))
SOURCE = (f"model:gpt2#{MODEL.id}",)


def exp(n: int, count: int, sources: tuple[str, ...] = SOURCE) -> Case:
    return Case.of("exp", {"shape": [n], "dtype": "float32"}, "forward", sources=sources, count=count)


def ledger(*records: Record) -> Ledger:
    (found,) = make_ledgers(rows_of_records(records, "r", {"e": MachineFacts(PEAKS)}))
    return found


def test_times_are_multiplied_by_counts_and_ranked_by_gain() -> None:
    small = Cost(0, 50_000, 50_000)  # 100 ns at the speed of L2
    found = ledger(
        record(MODEL, {"warm": 1e-3}, Cost(1, 1, 1)),
        record(exp(1, 2), {"warm": 1e-4, "rotated": 9e-4}, small),
        record(exp(2, 50), {"warm": 1e-5, "rotated": 9e-4}, small),
    )
    assert [row.parameters for row in found.rows] == ["2 float32", "1 float32"]
    first = found.rows[0]
    assert (first.count, first.seconds, first.cache) == (50, 1e-5, "warm") or found.driven_out
    assert found.calls == 52
    assert found.views == 10
    assert found.between == pytest.approx(10e-6)


def test_a_model_that_fits_into_the_caches_finds_its_data_there() -> None:
    fits = ledger(
        record(MODEL, {"warm": 1e-3}, Cost(1, 1, 1)),
        record(exp(1, 3), {"warm": 1e-4, "rotated": 3e-4}, Cost(0, 100, 100)),
    )
    assert not fits.driven_out
    assert fits.total == pytest.approx(3e-4)
    assert fits.difference == pytest.approx(7e-4)
    assert not fits.close
    large = ledger(
        record(MODEL, {"warm": 1e-3}, Cost(1, 1, 1)),
        record(exp(1, 3), {"warm": 1e-4, "rotated": 3e-4}, Cost(0, 1 << 20, 1 << 20)),
    )
    assert large.driven_out
    assert large.total == pytest.approx(9e-4)
    assert large.close


def test_the_gain_is_what_lies_above_the_roofline() -> None:
    found = ledger(
        record(MODEL, {"warm": 1e-3}, Cost(1, 1, 1)), record(exp(1, 4), {"warm": 1e-5}, Cost(5_000_000, 100, 100))
    )
    row = found.rows[0]
    assert row.least == pytest.approx(5e-6)
    assert row.bound == "compute"
    assert row.gain == pytest.approx(2e-5)
    assert row.share == pytest.approx(0.04)


def test_an_operator_without_a_number_is_missing_and_not_zero() -> None:
    found = ledger(
        record(MODEL, {"warm": 1e-3}, Cost(1, 1, 1)),
        record(exp(1, 4), {"warm": 1e-5}, Cost(1, 100, 100)),
        record(exp(2, 4), {}, None, "oom"),
    )
    assert [row.status for row in found.missing] == ["oom"]
    assert found.missing[0].total is None


def test_a_model_that_was_disturbed_is_marked() -> None:
    spoilt = record(MODEL, {"warm": 1e-3}, Cost(1, 1, 1), "disturbed")
    caution = Caution(PREEMPTED, "the core was taken away")
    spoilt = replace(spoilt, reason="busy", measurements=(replace(spoilt.measurements[0], cautions=(caution,)),))
    assert ledger(spoilt, record(exp(1, 1), {"warm": 1e-5}, Cost(1, 100, 100))).disturbed == "busy"


def test_operators_of_another_model_are_not_counted() -> None:
    other = record(exp(5, 100, ("model:other#0000",)), {"warm": 1.0}, Cost(1, 100, 100))
    mine = record(exp(1, 1), {"warm": 1e-5}, Cost(1, 100, 100))
    assert ledger(record(MODEL, {"warm": 1e-3}, Cost(1, 1, 1)), mine, other).calls == 1


def test_counts_of_several_models_cannot_be_told_apart() -> None:
    both = record(exp(5, 7, (*SOURCE, "model:other#0000")), {"warm": 1.0}, Cost(1, 100, 100))
    with pytest.raises(UserError, match="several models"):
        ledger(record(MODEL, {"warm": 1e-3}, Cost(1, 1, 1)), both)


def test_a_run_without_a_model_says_how_to_make_one() -> None:
    with pytest.raises(UserError, match="no model"):
        make_ledgers(rows_of_records([record(exp(1, 1), {"warm": 1e-5}, None)]))


def test_operators_in_different_states_of_the_caches_say_which() -> None:
    def printed(*operators: Record) -> str:
        out = StringIO()
        console = Console(file=out, width=300, color_system=None)
        print_ledger(ledger(record(MODEL, {"warm": 1e-3}, Cost(1, 1, 1)), *operators), console)
        return out.getvalue()

    cost = Cost(0, 50_000, 50_000)
    both = printed(record(exp(1, 2), {"warm": 1e-4}, cost), record(exp(2, 2), {"rotated": 3e-4}, cost))
    assert "100 µs warm" in both
    assert "300 µs rotated" in both
    assert "100 µs warm" not in printed(record(exp(1, 2), {"warm": 1e-4}, cost))
