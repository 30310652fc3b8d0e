"""Records to rows and back."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opmark.schema import Caution, Cost, Measurement, Memory, Record, Verification
from opmark.store.record_codec import Damaged, from_row, pack_samples, plain_body, to_row

# The fixture makes records and remembers nothing, so that one serves all examples.
COMMON = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])


def back(record: Record) -> Record:
    row = to_row("a run", record)
    return from_row(row["body"], row["samples"])


def bits(values: list[float]) -> bytes:
    """NaN is not equal to itself, and -0.0 is to 0.0: only the bits tell."""
    return struct.pack(f"<{len(values)}d", *values)


@COMMON
@given(samples=st.lists(st.lists(st.floats(width=64), max_size=40), max_size=4))
def test_samples_come_back_bit_by_bit(make_record: Callable[..., Record], samples: list[list[float]]) -> None:
    found = back(make_record(1, *samples))
    assert [bits(m.samples) for m in found.measurements] == [bits(values) for values in samples]
    assert [m.quantity for m in found.measurements] == [f"quantity {i}" for i in range(len(samples))]


finite = st.floats(allow_nan=False, allow_infinity=False)


@COMMON
@given(
    reason=st.text(),
    cautions=st.lists(st.builds(Caution, st.text(), st.text(), st.text()), max_size=3),
    cost=st.none() | st.builds(Cost, *[st.integers(0, 2**63)] * 3),
    memory=st.none() | st.builds(Memory, st.integers(0, 2**60), st.integers(0, 2**60), st.text()),
    error=st.none() | finite,
    duration=finite,
)
def test_everything_else_comes_back_as_it_was(
    make_record: Callable[..., Record],
    reason: str,
    cautions: list[Caution],
    cost: Cost | None,
    memory: Memory | None,
    error: float | None,
    duration: float,
) -> None:
    measurement = Measurement("latency", "cold", "t", [1.0, 2.0], 7, 1e-300, 9, 5e-324, "budget", tuple(cautions))
    record = make_record(
        status="wrong",
        reason=reason,
        cost=cost,
        memory=memory,
        verification=Verification("scaled", "a note", {"shape": [2]}, error, error, (1e-5, 0.1)),
        environment="fedcba9876543210",
        started="2030-01-01T00:00:00.000+00:00",
        duration=duration,
    )
    record = Record(**{**{f: getattr(record, f) for f in record.__struct_fields__}, "measurements": (measurement,)})
    assert back(record) == record


def test_the_columns_say_what_people_ask_about(make_record: Callable[..., Record]) -> None:
    record = make_record(4, [1.0], status="ok", environment="e", started="s", duration=0.5)
    row = to_row("a run", record)
    asked = (
        "run_id",
        "task_id",
        "case_id",
        "op",
        "phase",
        "backend",
        "status",
        "environment_id",
        "started",
        "duration",
    )
    assert [row[key] for key in asked] == [
        "a run", record.task.id, record.task.case.id, "add", "forward", "null", "ok", "e", "s", 0.5,
    ]  # fmt: skip


def test_samples_stand_packed_in_their_own_column_and_not_in_the_body(make_record: Callable[..., Record]) -> None:
    """How many groups, how many of each, then float64 by the place of their bytes: as the table says."""
    row = to_row("a run", make_record(1, [0.5, 0.25], [0.125]))
    plain = zlib.decompress(row["samples"][1:])
    assert struct.unpack_from("<3I", plain) == (2, 2, 1)
    assert struct.unpack("<3d", bytes(plain[12 + 3 * i + n] for n in range(3) for i in range(8))) == (0.5, 0.25, 0.125)
    assert b"0.125" not in plain_body(row["body"])
    assert from_row(row["body"], pack_samples([[1.0], [2.0]])).measurements[1].samples == [2.0]


def test_a_body_is_a_fraction_of_its_text(make_record: Callable[..., Record]) -> None:
    row = to_row("a run", make_record(1, [1.0]))
    assert len(row["body"]) < len(plain_body(row["body"])) / 3


def test_a_record_keeps_the_identity_of_its_task_and_case(make_record: Callable[..., Record]) -> None:
    """`--resume` recognizes what is done by the id of a task that was read from the store."""
    record = make_record(8)
    assert (back(record).task.id, back(record).task.case.id) == (record.task.id, record.task.case.id)


@pytest.mark.parametrize("cut", [1, 4, 20, 60])
def test_a_body_that_is_cut_off_is_no_record(make_record: Callable[..., Record], cut: int) -> None:
    row = to_row("a run", make_record(1, [1.0]))
    with pytest.raises(Damaged):
        from_row(row["body"][:-cut], row["samples"])


@pytest.mark.parametrize("first", [b"", b"\x00", b"\x02", b"x"])
def test_a_body_or_samples_that_begin_otherwise_are_not_ours(make_record: Callable[..., Record], first: bytes) -> None:
    row = to_row("a run", make_record(1, [1.0]))
    with pytest.raises(Damaged):
        from_row(first + row["body"][1:], row["samples"])
    with pytest.raises(Damaged):
        from_row(row["body"], b"\x03" + row["samples"][1:])


@pytest.mark.parametrize("samples", [b"", b"\x02", None, "text", pack_samples([]), pack_samples([[1.0], [2.0]])])
def test_samples_that_do_not_fit_are_damage(make_record: Callable[..., Record], samples: bytes) -> None:
    row = to_row("a run", make_record(1, [1.0]))
    with pytest.raises(Damaged):
        from_row(row["body"], samples)
