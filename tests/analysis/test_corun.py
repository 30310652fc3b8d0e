"""What made-up records of a co-run say: slowdowns, verdicts, fairness, what limits an operator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from opmark.analysis.corun import corun_results, slowdown_matrix
from opmark.analysis.rows import MachineFacts
from opmark.runner.corun import Member, alone_task, member_tasks
from opmark.runner.plan import settings_for
from opmark.schema import Case, Cost, Peaks, Record, Task
from opmark.schema.company import Company
from opmark.schema.machine import Level
from opmark.schema.measurement import CORUN_LATENCY, MAKESPAN, SEQUENCE_TIME
from opmark.schema.options import MeasureOptions
from opmark.worker.company import make_measurement

SETTINGS = settings_for(MeasureOptions(effort="quick", threads=1, processes=1))[0]


def member(op: str, core: int) -> Member:
    case = Case.of(op, {"shape": [8], "dtype": "float32"}, "forward")
    return Member(Task(case, "null", "null", SETTINGS), (core,))


MEMBERS = [member("add", 0), member("exp", 1)]


def measured(quantity: str, company: Company, value: float):
    return make_measurement(quantity, company, [value] * 5, SETTINGS.sampling, calls=1)


def a_round(process: int, alone: list[float], beside: list[float], makespan: float, sequence: float, **fields):
    """The records of one round, as a conductor makes them."""
    found = []
    for place, task in enumerate(member_tasks(MEMBERS, process)):
        company = task.settings.company
        own = [measured(CORUN_LATENCY, company, beside[place])]
        if place == 0:
            own += [measured(MAKESPAN, company, makespan), measured(SEQUENCE_TIME, company, sequence)]
        found.append(Record(task, "ok", measurements=tuple(own), environment="here", **fields))
        apart = alone_task(task)
        own = [measured(CORUN_LATENCY, apart.settings.company, alone[place])]
        found.append(Record(apart, "ok", measurements=tuple(own), environment="here", **fields))
    return found


def rounds(count: int = 5, **fields):
    return [
        record for process in range(count)
        for record in a_round(process, [1e-3, 2e-3], [1.5e-3, 2.2e-3], 2.4e-3, 3e-3, **fields)
    ]  # fmt: skip


def test_a_pair_has_slowdowns_makespan_and_a_verdict():
    (found,) = corun_results(rounds())
    assert [one.slowdown.ratio for one in found.members] == [pytest.approx(1.5), pytest.approx(1.1)]
    assert [one.slowdown.verdict for one in found.members] == ["slower", "slower"]
    assert found.together.ratio == pytest.approx(0.8)
    assert found.together.verdict == "faster"
    assert found.efficiency == pytest.approx(1.25)
    assert found.makespan == pytest.approx(2.4e-3)
    speeds = [1 / 1.5, 1 / 1.1]
    assert found.fairness == pytest.approx(sum(speeds) ** 2 / (2 * sum(speed**2 for speed in speeds)))


def test_too_few_rounds_decide_nothing():
    (found,) = corun_results(rounds(3))
    assert found.together.verdict == "undecided"
    (found,) = corun_results(rounds(1))
    assert found.together.low is None
    assert found.members[0].slowdown.verdict == "undecided"


def test_rounds_that_were_disturbed_are_left_out_and_named():
    records = rounds(5)
    records[0] = replace(records[0], status="disturbed", reason="the core was taken away")
    (found,) = corun_results(records)
    assert found.members[0].slowdown.processes == 4
    assert found.members[0].status == "ok"
    assert any(note.startswith("1 of 5 rounds disturbed") for note in found.notes)


def test_a_failure_is_the_status_of_its_member():
    records = rounds(5)
    records[4] = replace(records[4], status="oom", reason="no memory is left", measurements=())
    (found,) = corun_results(records)
    assert (found.members[0].status, found.members[0].reason) == ("oom", "no memory is left")
    assert found.members[1].status == "ok"


def test_two_companies_of_one_run_are_kept_apart():
    other = [member("add", 0), member("tanh", 1)]
    records = rounds(1)
    for task in member_tasks(other, 0):
        own = (measured(CORUN_LATENCY, task.settings.company, 9.0),)
        records.append(Record(task, "ok", measurements=own, environment="here"))
    found = corun_results(records)
    assert [[one.op for one in result.members] for result in found] == [["add", "exp"], ["add", "tanh"]]
    assert found[0].members[0].beside == pytest.approx(1.5e-3)
    assert found[1].members[0].slowdown is None  # its solo was not measured
    assert found[1].together is None


@pytest.mark.parametrize(
    ("cost", "bound"),
    [
        (Cost(flops=2_000_000_000, bytes_read=1000, bytes_written=0), "compute"),
        (Cost(flops=1000, bytes_read=20_000_000, bytes_written=0), "memory"),
        (Cost(flops=1000, bytes_read=1000, bytes_written=0), "latency"),
        (None, ""),
    ],
)
def test_the_roofline_says_what_limits_an_operator(cost, bound):
    peaks = Peaks("a chip", "made up", {"float32": 3e12}, [Level("memory", 3e10)])
    (found,) = corun_results(rounds(cost=cost), {"here": MachineFacts(peaks)})
    assert found.members[0].bound == bound
    (unknown,) = corun_results(rounds(cost=cost))
    assert unknown.members[0].bound == ""


@given(
    alone=st.tuples(*[st.floats(1e-6, 1.0)] * 2), slow=st.tuples(*[st.floats(1.0, 50.0)] * 2),
    scale=st.floats(1e-3, 1e3),
)  # fmt: skip
def test_ratios_do_not_depend_on_the_unit_of_time(alone, slow, scale):
    def results(factor: float):
        times = [one * factor for one in alone]
        beside = [one * own for one, own in zip(times, slow, strict=True)]
        records = [
            record for process in range(4) for record in a_round(process, times, beside, max(beside), sum(times))
        ]
        return corun_results(records)[0]

    one, other = results(1.0), results(scale)
    assert one.fairness == pytest.approx(other.fairness)
    assert 0.5 <= one.fairness <= 1 + 1e-9  # Jain's index of two
    assert one.efficiency == pytest.approx(other.efficiency)
    for a, b in zip(one.members, other.members, strict=True):
        assert a.slowdown.ratio == pytest.approx(b.slowdown.ratio)


def test_a_matrix_has_a_cell_for_each_order():
    names, cells = slowdown_matrix(corun_results(rounds()))
    assert len(names) == 2
    assert cells[names[0], names[1]].ratio == pytest.approx(1.5)
    assert cells[names[1], names[0]].ratio == pytest.approx(1.1)
