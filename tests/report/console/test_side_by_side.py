"""Backends side by side."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from opmark.analysis.rows import MachineFacts
from opmark.report.console.side_by_side import print_side_by_side, several_backends
from opmark.schema import EFFORTS, Case, Caution, Compilation, Measurement, Record, Settings, Task, Verification
from opmark.schema.machine import Floor, NoiseFloor

MakeRecord = Callable[..., Record]
Timed = Callable[..., Record]

NINE = (
    "torch-cpu", "torch-compile-cpu", "jax-cpu", "onnxruntime-cpu", "openvino-cpu", "tvm-cpu", "tensorflow-cpu",
    "mxnet-cpu", "numpy-cpu",
)  # fmt: skip


@pytest.fixture
def timed(make_record: MakeRecord) -> Timed:
    """Return the record of a backend that takes a number of milliseconds."""

    def make(backend: str, ms: float = 1.0, implementation: str = "", **fields: Any) -> Record:
        if fields.get("status", "ok") == "ok":
            fields.setdefault("samples", [ms * 1e-3 * factor for factor in (0.99, 1.0, 1.01)] * 5)
        return make_record(backend=backend, implementation=implementation, **fields)

    return make


def drawn(records: Sequence[Record], width: int | None = None, known: Mapping[str, MachineFacts] | None = None) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width or 1000, force_terminal=width is not None, color_system=None)
    print_side_by_side(records, console, known)
    return out.getvalue()


def table(text: str) -> list[list[str]]:
    """Head and rows up to the first blank line, cell by cell."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.partition("\n\n")[0].splitlines()]


def row(text: str) -> list[str]:
    """The cells of the only row, behind the case."""
    return table(text)[1][1:]


# Rows and columns


def test_a_row_is_a_case_and_a_column_a_backend(timed: Timed) -> None:
    records = [
        timed(backend, ms, params={"M": m, "N": 128, "K": 64})
        for backend, ms in (("torch-cpu", 1.0), ("numpy-cpu", 2.0))
        for m in (256, 512)
    ]
    assert table(drawn(records)) == [
        ["case", "torch", "numpy"],
        ["matmul M=256 N=128 K=64 float32", "1.00 ms *", "2.00 ms"],
        ["matmul M=512 N=128 K=64 float32", "1.00 ms *", "2.00 ms"],
    ]


def test_what_all_columns_have_in_common_is_said_once_below(timed: Timed) -> None:
    text = drawn([timed("torch-cpu"), timed("numpy-cpu")])
    assert "median latency warm, 2 threads, backends NAME-cpu" in text.splitlines()


def test_columns_that_differ_in_device_or_threads_say_so(timed: Timed) -> None:
    devices = drawn([timed("torch-cpu"), timed("torch-cuda")])
    assert table(devices)[0] == ["case", "torch-cpu", "torch-cuda"]
    threads = drawn([timed(name, threads=n) for name in ("torch-cpu", "numpy-cpu") for n in (1, 2)])
    assert table(threads)[0] == ["case", "torch ×1", "torch ×2", "numpy ×1", "numpy ×2"]
    assert "2 threads" not in threads


def test_variants_implementations_and_interpreters_are_columns_of_their_own(timed: Timed) -> None:
    names = ["openvino-cpu", "openvino-cpu/throughput", "torch-cpu", "torch-cpu@/opt/old/bin/python", "torch-cpu@guest"]
    records = [timed(name) for name in names] + [timed("torch-cpu", implementation="fused")]
    text = drawn(records)
    assert table(text)[0][1:] == ["openvino", "openvino/throughput", "torch", "torch@old", "torch@guest", "torch/fused"]
    assert "@old is /opt/old/bin/python" in text


def test_interpreters_of_one_name_keep_their_paths(timed: Timed) -> None:
    paths = ["/a/env/bin/python", "/b/env/bin/python"]
    assert table(drawn([timed(f"torch-cpu@{path}") for path in paths]))[0][1:] == [f"torch@{path}" for path in paths]


def test_a_backend_that_is_not_known_here_has_its_column(timed: Timed) -> None:
    assert table(drawn([timed("gone-npu"), timed("torch-cpu")]))[0][1:] == ["gone-npu", "torch-cpu"]


def test_several_processes_are_one_number(timed: Timed) -> None:
    records = [
        timed(name, ms + 0.001 * i, process=i)
        for i in range(5)
        for name, ms in (("torch-cpu", 1.0), ("numpy-cpu", 2.0))
    ]
    text = drawn(records)
    assert row(text) == ["1.00 ms *", "2.00 ms"]
    assert "over 5 processes" in text


def test_rows_stand_in_the_order_of_the_backend_that_ran_them_all(timed: Timed) -> None:
    """Skipped cases are recorded before those that run."""
    records = [timed("numpy-cpu", op="exp", params={"shape": [4]}, status="skipped", reason="no")]
    records += [timed("torch-cpu"), timed("torch-cpu", op="exp", params={"shape": [4]}), timed("numpy-cpu")]
    assert [cells[0].split()[0] for cells in table(drawn(records))] == ["case", "matmul", "exp"]


def test_a_phase_is_told_where_it_is_not_forward(timed: Timed) -> None:
    records = [timed(name, phase=phase) for name in ("torch-cpu", "jax-cpu") for phase in ("forward", "backward")]
    assert [cells[0].split()[-1] for cells in table(drawn(records))] == ["case", "forward", "backward"]


@pytest.mark.parametrize(("backends", "several"), [
    (["torch-cpu"], False), (["torch-cpu", "torch-cpu"], False), (["torch-cpu", "numpy-cpu"], True),
    (["openvino-cpu", "openvino-cpu/throughput"], True),
])  # fmt: skip
def test_side_by_side_is_for_cases_that_several_backends_were_asked_for(
    timed: Timed, backends: list[str], several: bool
) -> None:
    assert several_backends([timed(name) for name in backends]) is several
    apart = [timed(name, params={"M": i + 1, "N": 1, "K": 1}) for i, name in enumerate(backends)]
    assert several_backends(apart) is False


# The fastest


def test_the_fastest_is_marked_only_where_it_is_ahead_by_more_than_noise(timed: Timed) -> None:
    far, near = ([timed("torch-cpu", 1.0), timed("numpy-cpu", ms)] for ms in (1.5, 1.05))
    assert row(drawn(far)) == ["1.00 ms *", "1.50 ms"]
    assert row(drawn(near)) == ["1.00 ms", "1.05 ms"]
    assert "no *:" in drawn(near)
    assert "no *:" not in drawn(far)


def test_the_measured_noise_of_the_machine_is_heeded(timed: Timed) -> None:
    records = [timed("torch-cpu", 1.0), timed("numpy-cpu", 1.5)]
    loud = NoiseFloor("chip", "torch-cpu", 2, "2030", 10, 10, [Floor("exp", "", 1e-3, 0.4, 0.1)])
    known = {records[0].environment: MachineFacts(noise=loud)}
    assert row(drawn(records, known=known)) == ["1.00 ms", "1.50 ms"]


@pytest.mark.parametrize("reason", ["null computes nothing", "not asked for"])
def test_a_number_that_is_not_verified_shows_it_and_does_not_win(timed: Timed, reason: str) -> None:
    records = [
        timed("null", 0.1, verification=Verification("none", reason)),
        timed("torch-cpu", 1.0),
        timed("numpy-cpu", 2.0),
    ]
    text = drawn(records)
    assert row(text) == ["100 µs ?", "1.00 ms *", "2.00 ms"]
    assert f"? unchecked: not verified, and not in the race: {reason}" in text


def test_a_check_at_a_smaller_size_has_a_sign_and_counts(timed: Timed) -> None:
    text = drawn([timed("torch-cpu", verification=Verification("scaled")), timed("numpy-cpu", 2.0)])
    assert row(text) == ["1.00 ms *~", "2.00 ms"]
    assert "~ verified at a smaller size" in text


def test_a_doubtful_number_says_so(timed: Timed) -> None:
    doubt, worse = Caution("noisy", "it spreads", "wait"), Caution("preempted", "gone", "")
    text = drawn(
        [timed("torch-cpu", cautions=[worse]), timed("jax-cpu", 1.5, cautions=[doubt]), timed("numpy-cpu", 9.0)]
    )
    assert row(text) == ["(1.00 ms) !!", "1.50 ms !", "9.00 ms"]  # nobody wins: the doubtful one may be the fastest
    assert "! noisy: matmul on jax: it spreads" in text
    assert "  hint: stop other work" in text
    assert "!! disturbed: the number is the scheduler's" in text


# Several quantities, as on a device

COLD, WARM, LATENCY = "device_time cold", "device_time warm", "latency warm"
FOUR = ("torch-cuda", "torch-compile-cuda", "jax-cuda", "triton-cuda")
DEVICE = {COLD: 50.0, WARM: 40.0, "device_span cold": 55.0, LATENCY: 90.0, "host_time warm": 9.0}
"""What is measured of a call on a device by default, in microseconds."""


def measured(backend: str, times: Mapping[str, float], asked: Sequence[str] = (), **fields: Any) -> Record:
    """Return the record of a backend with these times, in microseconds by quantity and state of the caches."""
    doubts = fields.pop("cautions", {})
    found = []
    for name, us in times.items():
        samples = [us * 1e-6 * factor for factor in (0.99, 1.0, 1.01)] * 5
        quantity, cache = name.split()
        how = (quantity, cache, "virtual", samples, 1, 0.0, 2, 0.1, "precise", doubts.get(name, ()))
        found.append(Measurement(*how))  # type: ignore[arg-type]
    case = Case.of("exp", {"shape": [fields.pop("size", 4)], "dtype": "float32"}, "forward")
    settings = Settings(2, "quick", EFFORTS["quick"], quantities=tuple(asked))
    task = Task(case, backend, "", settings)
    fields = {"status": "ok", "verification": Verification("full"), "environment": "here", **fields}
    return Record(task, measurements=tuple(found), **fields)


def shown(text: str) -> dict[tuple[str, str], list[str]]:
    """Read tables again: the cells of each column, by the quantity above it and its head; in a table of one quantity,
    by that of the legend. Heads end where their columns end."""
    found: dict[tuple[str, str], list[str]] = {}
    lines = text.splitlines()
    said = re.search(r"^median (\w+ \w+)", text, re.MULTILINE)
    for at, line in enumerate(lines):
        if not line.startswith("case "):
            continue
        above = lines[at - 1] if at else ""
        titles = {title.start(): title[0] for title in re.finditer(r"\w+ (?:cold|warm|rotated)", above)}
        heads = list(re.finditer(r"\S+", line))
        for row in takewhile(bool, lines[at + 1 :]):
            for before, head in pairwise(heads) if row.startswith("exp") else ():  # else it is a second line
                key = titles[max(i for i in titles if i <= head.start())] if titles else said[1] if said else ""
                cell = re.split(r"\s{2,}", row[before.end() : head.end()].rstrip())[-1].strip()
                found.setdefault((key, head[0]), []).append(cell)
    return found


@pytest.mark.parametrize("width", [80, 100, 160, None])
def test_a_device_has_its_time_cold_and_warm_and_the_latency_each_in_columns_of_its_own(width: int | None) -> None:
    times = {name: {key: us + i for key, us in DEVICE.items()} for i, name in enumerate(FOUR)}
    text = drawn([measured(name, own) for name, own in times.items()], width)
    found = shown(text)
    heads = [name.removesuffix("-cuda") for name in FOUR]
    assert list(found) == [(key, head) for key in (COLD, WARM, LATENCY) for head in heads]
    for (key, head), (cell,) in found.items():
        assert cell == f"{times[f'{head}-cuda'][key]:.1f} µs"
    assert max(map(len, text.splitlines())) <= (width or 1000)
    assert "…" not in text
    tables = sum(line.startswith("case ") for line in text.splitlines())
    assert tables == {80: 3, 100: 2, 160: 1, None: 1}[width], "quantities stay together as far as there is room"


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_nine_backends_with_three_quantities_are_printed_in_blocks_and_nothing_is_lost(width: int) -> None:
    records = [measured(name, {COLD: 10.0 + i, WARM: 30.0 + i, LATENCY: 50.0 + i}) for i, name in enumerate(NINE)]
    text = drawn(records, width)
    assert max(map(len, text.splitlines())) <= width
    found = shown(text)
    assert len(found) == 27
    for i, name in enumerate(NINE):
        for key, us in ((COLD, 10.0), (WARM, 30.0), (LATENCY, 50.0)):
            assert found[key, name.removesuffix("-cpu")] == [f"{us + i:.1f} µs"]


def test_each_quantity_has_its_own_winner() -> None:
    """JAX has the fastest kernel, and its callers wait longest."""
    torch, jax = {COLD: 55.6, WARM: 20.0, LATENCY: 138.0}, {COLD: 22.1, WARM: 20.0, LATENCY: 189.0}
    text = drawn([measured("torch-cuda", torch), measured("jax-cuda", jax)])
    assert shown(text) == {
        (COLD, "torch"): ["55.6 µs"], (COLD, "jax"): ["22.1 µs *"],
        (WARM, "torch"): ["20.0 µs"], (WARM, "jax"): ["20.0 µs"],
        (LATENCY, "torch"): ["138 µs *"], (LATENCY, "jax"): ["189 µs"],
    }  # fmt: skip
    assert "* ahead of every other verified one in this quantity by more than chance and noise" in text


def test_a_backend_without_device_time_has_empty_columns_and_a_reason() -> None:
    """As the records of JAX in stores of earlier versions: its latency is compared with latencies alone."""
    records = [measured("torch-cuda", DEVICE), measured("jax-cuda", {LATENCY: 10.0})]
    text = drawn(records)
    assert shown(text) == {
        (COLD, "torch"): ["50.0 µs"], (COLD, "jax"): ["-"], (WARM, "torch"): ["40.0 µs"], (WARM, "jax"): ["-"],
        (LATENCY, "torch"): ["90.0 µs"], (LATENCY, "jax"): ["10.0 µs *"],
    }  # fmt: skip
    reason = "jax: exp: not measured: device_time cold, device_time warm; measured: latency warm"
    assert reason in text.splitlines()


def test_a_reason_that_a_note_gives_is_given_once() -> None:
    notes = ("device_time cold: the profiler lost it; device_span then comes from events or a graph",)
    spanned = {WARM: 20.0, "device_span cold": 60.0, LATENCY: 99.0}
    text = drawn([measured("torch-cuda", DEVICE), measured("jax-cuda", spanned, notes=notes)])
    assert shown(text)[COLD, "jax"] == ["-"], "another quantity never takes its place"
    assert [line for line in text.splitlines() if "not measured" in line] == [f"jax: exp: not measured: {notes[0]}"]


def test_a_cpu_beside_a_device_is_compared_in_latency() -> None:
    text = drawn([measured("torch-cuda", DEVICE), measured("torch-cpu", {LATENCY: 2000.0})])
    assert {key: cell for (key, head), (cell,) in shown(text).items() if head == "torch-cpu"} == {
        COLD: "-", WARM: "-", LATENCY: "2.00 ms",
    }  # fmt: skip
    assert shown(text)[LATENCY, "torch-cuda"] == ["90.0 µs *"]


@pytest.mark.parametrize(
    ("asked", "times", "keys"),
    [
        (["latency"], {LATENCY: 5.0}, [LATENCY]),
        (["device_span"], {"device_span cold": 5.0, "device_span warm": 4.0}, ["device_span cold", "device_span warm"]),
        (["latency", "host_time"], {LATENCY: 5.0, "host_time warm": 2.0}, [LATENCY, "host_time warm"]),
        ([], {"device_span cold": 5.0, "device_span warm": 4.0, LATENCY: 9.0},
         ["device_span cold", "device_span warm", LATENCY]),
        ([], {WARM: 5.0, LATENCY: 9.0, "throughput warm": 8.0}, [WARM, LATENCY]),
        ([], {LATENCY: 9.0}, [LATENCY]),
    ],
)  # fmt: skip
def test_what_was_asked_for_is_shown(asked: list[str], times: dict[str, float], keys: list[str]) -> None:
    text = drawn([measured(name, times, asked) for name in ("torch-cuda", "jax-cuda")])
    assert list(dict.fromkeys(key for key, _ in shown(text))) == keys
    assert (f"median {keys[0]}, " in text) == (len(keys) == 1)


def test_only_the_quantity_that_is_doubtful_is_marked() -> None:
    noisy, spoilt = Caution("noisy", "it spreads", "wait"), Caution("drifting", "it drifts", "rest")
    doubts = {LATENCY: (noisy,), "host_time warm": (spoilt,)}
    text = drawn([measured("torch-cuda", DEVICE, cautions=doubts), measured("jax-cuda", DEVICE)])
    cells = {key: cell for (key, head), (cell,) in shown(text).items() if head == "torch"}
    assert cells == {COLD: "50.0 µs", WARM: "40.0 µs", LATENCY: "90.0 µs !"}
    assert "! noisy: exp on torch: latency warm: it spreads" in text
    assert "drift" not in text, "nobody sees that number here"


def test_compiling_stands_beside_the_first_quantity_alone() -> None:
    compiled = measured("torch-compile-cuda", DEVICE, compilation=Compilation(cold=2.1))
    text = drawn([compiled, measured("torch-cuda", DEVICE)])
    assert text.count("(2.10 s)") == 1
    assert "50.0 µs (2.10 s)" in text


def test_what_failed_is_said_in_every_quantity_and_explained_once() -> None:
    text = drawn([measured("torch-cuda", DEVICE), measured("jax-cuda", {}, status="error", reason="it broke")])
    assert [cell for (_, head), (cell,) in shown(text).items() if head == "jax"] == ["error"] * 3
    assert text.count("it broke") == 1


@st.composite
def runs(draw: st.DrawFn) -> list[Record]:
    """Runs of several cases and backends, with any quantities; every number is there once."""
    quantities = ("device_time", "device_span", "latency", "throughput", "host_time", "event_time")
    keys = [f"{quantity} {cache}" for quantity in quantities for cache in ("cold", "warm", "rotated")]
    asked = draw(st.sampled_from([(), ("latency",), quantities]))
    numbers = iter(draw(st.permutations(range(100, 1000))))
    records = []
    for size in range(1, draw(st.integers(1, 3)) + 1):
        for backend in draw(st.lists(st.sampled_from(FOUR), min_size=2, max_size=4, unique=True)):
            own = draw(st.lists(st.sampled_from(keys), max_size=6, unique=True))
            fields = {} if own else {"status": draw(st.sampled_from(["error", "skipped"])), "reason": "no"}
            records.append(measured(backend, {key: next(numbers) for key in own}, asked, size=size, **fields))
    return records


@given(runs(), st.sampled_from([60, 80, 100, 160, None]))
def test_no_column_has_numbers_of_two_quantities(records: list[Record], width: int | None) -> None:
    of = {
        f"{round(m.samples[1] * 1e6)} µs": (f"{m.quantity} {m.cache}", record.task.backend.removesuffix("-cuda"))
        for record in records
        for m in record.measurements
    }
    printed = [
        (column, re.sub(r" [*!]+$", "", cell))
        for column, cells in shown(drawn(records, width)).items()
        for cell in cells
    ]
    numbers = [(column, cell) for column, cell in printed if cell in of]
    assert [(column, cell) for column, cell in numbers if of[cell] != column] == []
    assert len({cell for _, cell in numbers}) == len(numbers), "each number stands in one place"
    keys = {key for (key, _), _ in printed}
    assert {cell for _, cell in numbers} == {text for text, (key, _) in of.items() if key in keys}
    assert not keys or {"latency warm"} & {key for key, _ in of.values()} <= keys


# What has no number


@pytest.mark.parametrize("status", ["wrong", "error", "timeout", "oom", "skipped"])
def test_what_has_no_number_is_said_in_a_word_and_explained_below(timed: Timed, status: str) -> None:
    text = drawn([timed("torch-cpu"), timed("numpy-cpu", status=status, reason="because [of it]")])
    assert row(text) == ["1.00 ms", status]
    assert f"numpy: matmul: {status}: because [of it]" in text.splitlines()


def test_a_reason_of_several_is_given_once(timed: Timed) -> None:
    shape = {"params": {"shape": [4]}}
    records = [timed("torch-cpu"), timed("torch-cpu", op="exp", **shape)]
    for name in ("openvino-cpu", "tvm-cpu"):
        for op, params in (("matmul", {}), ("exp", shape)):
            records.append(
                timed(name, op=op, **params, status="skipped", reason=f"`{op}` has no implementation for onnx")
            )
    told = [line for line in drawn(records).splitlines() if "no implementation" in line]
    assert told == ["openvino, tvm: matmul, exp: skipped: has no implementation for onnx"]


def test_a_long_reason_is_cut_and_says_where_the_rest_is(timed: Timed) -> None:
    text = drawn([timed("torch-cpu"), timed("numpy-cpu", status="error", reason="x" * 900)])
    assert "x" * 201 not in text
    assert "opmark show --long" in text


def test_a_case_that_a_backend_was_not_asked_for_leaves_its_cell_empty(timed: Timed) -> None:
    records = [timed("torch-cpu"), timed("numpy-cpu", 2.0), timed("torch-cpu", op="exp", params={"shape": [4]})]
    assert table(drawn(records))[2] == ["exp", "4 float32", "1.00 ms"]


# Compiling


def test_compiling_stands_beside_running(timed: Timed) -> None:
    text = drawn([timed("torch-cpu", 2.0), timed("torch-compile-cpu", compilation=Compilation(cold=2.1, cached=0.2))])
    assert row(text) == ["2.00 ms", "1.00 ms * (2.10 s)"]
    assert "(...) compiling it, with empty caches" in text


def test_without_anything_compiled_there_are_no_brackets(timed: Timed) -> None:
    assert "(" not in drawn([timed("torch-cpu"), timed("numpy-cpu")])


# Naive schedules


def test_a_naive_schedule_does_not_stand_alone(timed: Timed, printed: Callable[..., str]) -> None:
    note = "runs default schedules, which are naive: compare with a library, e.g. --backend torch-cpu,tvm-cpu"
    assert note in drawn([timed("tvm-cpu"), timed("tvm-cpu@guest")])
    assert note in printed([timed("tvm-cpu")])
    failed = timed("torch-cpu", status="error", reason="no")
    assert note in drawn([timed("tvm-cpu"), failed]), "a column without a number is nothing to compare with"
    assert note not in drawn([timed("tvm-cpu"), timed("torch-cpu")])
    assert note not in printed([timed("torch-cpu")])


# Width


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_nine_backends_fit_a_terminal_in_blocks_and_nothing_is_lost(timed: Timed, width: int) -> None:
    compiled = Compilation(cold=12.3)
    records = [
        timed(name, 1 + i, compilation=compiled if i else None, verification=Verification("scaled"))
        for i, name in enumerate(NINE)
    ]
    text = drawn(records, width)
    blocks = [part for part in text.split("\n\n") if part.startswith("case")]
    assert max(len(line.rstrip()) for block in blocks for line in block.splitlines()) <= width
    assert "…" not in text
    if width >= 100:
        assert len(blocks) <= 2
    shown = " ".join("\n".join(blocks).split())
    for i, name in enumerate(NINE):
        assert f" {name.removesuffix('-cpu')} " in f"{shown} "
        assert f"{1 + i}.00 ms" in shown
    assert shown.count("(12.3 s)") == 8
    assert shown.count("M=256") == len(blocks)


def test_a_file_gets_one_line_a_case_however_wide(timed: Timed) -> None:
    assert len(table(drawn([timed(name) for name in NINE]))) == 2
