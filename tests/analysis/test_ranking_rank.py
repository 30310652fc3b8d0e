"""Which implementation wins where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from opmark.analysis.ranking import BY, Source, rank, read
from opmark.errors import UnknownName, UserError
from opmark.plugin.registry import operator
from opmark.schema import (  # fmt: skip
    EFFORTS,
    Case,
    Caution,
    Compilation,
    Measurement,
    Numerics,
    Record,
    Settings,
    Task,
    Verification,
)
from opmark.schema.load import Load
from opmark.schema.machine import Floor, NoiseFloor
from opmark.schema.measurement import PREEMPTED
from opmark.schema.ranking import RankedCase, Ranking

pytestmark = pytest.mark.verdicts

CPU = {"cpu": "a processor", "device": "cpu", "backend": "torch-cpu"}
ENVIRONMENTS: dict[str, dict[str, Any]] = {"here": CPU, "there": {**CPU, "cpu": "another"}, "card": {"gpu": "a card"}}
NUMBERS = Numerics(4, 4, 0, 0, 0, 0, max_abs=1e-7, mean_abs=5e-8, max_rel=2e-7, cosine=1.0, max_ulp=2.0)


def timed(backend: str, seconds: float = 1.0, op: str = "exp", **fields: Any) -> Record:
    """A verified record; its samples spread by a percent."""
    params = operator(op).complete(fields.pop("params", {"shape": [4]}))
    case = Case.of(op, params, fields.pop("phase", "forward"))
    named = {name: fields.pop(name) for name in ("process",) if name in fields}
    settings = Settings(fields.pop("threads", 2), "quick", EFFORTS["quick"], **named)
    samples = [seconds * factor for factor in (0.99, 1.0, 1.01)] * 5
    quantity, cautions = fields.pop("quantity", "latency"), fields.pop("cautions", ())
    found = (Measurement(quantity, "warm", "virtual", samples, 1, 0.0, 1, 0.0, "count", cautions),)
    fields = {
        "status": "ok", "measurements": found, "verification": Verification("full", numerics=(NUMBERS,)),
        "environment": "here", **fields,
    }  # fmt: skip
    return Record(Task(case, backend, fields.pop("implementation", backend.partition("-")[0]), settings), **fields)


def ranked(*records: Record, by: str = "case", older: tuple[Record, ...] = (), **more: Any) -> Ranking:
    runs = [("new", records), *([("old", older)] if older else [])]
    return rank(Source(runs, ENVIRONMENTS, **more), by)


def order(place: RankedCase) -> list[str]:
    return [one.backend for one in place.order]


# One case


def test_the_fastest_stands_first_with_ratios_to_it() -> None:
    (place,) = ranked(timed("numpy-cpu", 3.0), timed("torch-cpu", 1.0), timed("jax-cpu", 2.0)).cases
    assert order(place) == ["torch-cpu", "jax-cpu", "numpy-cpu"]
    assert [one.ratio for one in place.order] == pytest.approx([1.0, 2.0, 3.0])
    assert [one.behind for one in place.order] == [False, True, True]
    assert (place.best.backend, place.best.median, place.best.decided) == ("torch-cpu", 1.0, True)


def test_a_lead_within_the_noise_decides_nothing() -> None:
    (place,) = ranked(timed("torch-cpu", 1.0), timed("jax-cpu", 1.02), timed("numpy-cpu", 3.0)).cases
    assert (place.best.backend, place.best.decided) == ("torch-cpu", False)
    assert [one.behind for one in place.order] == [False, False, True]


def test_a_lone_one_is_the_best_and_has_decided_nothing() -> None:
    (place,) = ranked(timed("torch-cpu")).cases
    assert (place.best.backend, place.best.decided) == ("torch-cpu", False)


def test_the_keys_to_look_it_up_by_are_all_there() -> None:
    (place,) = ranked(timed("torch-cpu", threads=4)).cases
    found = (place.op, place.params, place.dtype, place.phase, place.threads, place.device, place.chip)
    assert found == ("exp", {"shape": [4], "dtype": "float32"}, "float32", "forward", 4, "cpu", "a processor")
    assert (place.quantity, place.cache) == ("latency", "warm")


def test_variant_and_interpreter_are_told_apart() -> None:
    names = ["openvino-cpu", "openvino-cpu/throughput", "torch-cpu@/opt/env/bin/python", "gone-npu/fast@guest"]
    (place,) = ranked(*(timed(name, 1.0 + i) for i, name in enumerate(names))).cases
    assert order(place) == names, "as --backend takes them"
    assert [(one.variant, one.python) for one in place.order] == [
        ("latency", ""), ("throughput", ""), ("", "/opt/env/bin/python"), ("fast", "guest"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"status": "wrong", "reason": "far off", "measurements": ()}, "wrong: far off"),
        ({"status": "skipped", "reason": "no such dtype", "measurements": (), "environment": ""}, "skipped: no such"),
        ({"verification": Verification("none", "not asked for")}, "not verified: not asked for"),
        ({"cautions": (Caution(PREEMPTED, ""),)}, "preempted"),
        ({"status": "unchecked", "reason": "nothing verifies it"}, "unchecked: nothing verifies it"),
        ({"status": "disturbed", "reason": "the core was taken"}, "disturbed: the core was taken"),
    ],
)
def test_what_is_not_verified_or_not_measured_is_left_out_with_its_reason(fields: dict[str, Any], why: str) -> None:
    (place,) = ranked(timed("torch-cpu", 1.0), timed("jax-cpu", 0.1, **fields)).cases
    assert order(place) == ["torch-cpu"]
    (out,) = place.left_out
    assert (out.backend, out.run) == ("jax-cpu", "new")
    assert out.why.startswith(why)


def test_a_case_without_any_verified_number_is_no_case() -> None:
    found = ranked(timed("torch-cpu", status="error", reason="no", measurements=()))
    assert (found.cases, found.summary, found.chips) == ([], [], [])


def test_accuracy_is_that_of_the_worst_output_and_unknown_stays_unknown() -> None:
    other = replace(NUMBERS, max_abs=1e-3, max_ulp=None, nan=3, nan_expected=1, cosine=0.5)
    (place,) = ranked(timed("torch-cpu", verification=Verification("full", numerics=(NUMBERS, other)))).cases
    found = place.order[0].numerics
    assert (found.max_abs, found.max_rel, found.max_ulp, found.cosine, found.nan) == (1e-3, 2e-7, None, 0.5, 2)
    (place,) = ranked(timed("torch-cpu", verification=Verification("full"))).cases
    assert set(msgspec.to_builtins(place.order[0].numerics).values()) == {None}


def test_compiling_is_told_apart_from_running() -> None:
    (place,) = ranked(timed("jax-cpu", compilation=Compilation(2.0, 0.5)), timed("torch-cpu", 2.0)).cases
    assert [(one.compile_cold, one.compile_cached) for one in place.order] == [(2.0, 0.5), (None, None)]


# What is never mixed


@pytest.mark.parametrize(
    "other", [{"environment": "there"}, {"environment": "card"}, {"threads": 1}, {"phase": "backward"}], ids=str
)
def test_chips_threads_and_phases_are_never_mixed(other: dict[str, Any]) -> None:
    found = ranked(timed("torch-cpu", 1.0), timed("jax-cpu", 2.0, **other))
    assert [order(place) for place in found.cases] == [["torch-cpu"], ["jax-cpu"]]
    assert len(found.summary) == 2


def test_quantities_are_never_mixed() -> None:
    (place,) = ranked(timed("torch-cpu"), timed("jax-cpu"), timed("numpy-cpu", 0.1, quantity="throughput")).cases
    assert order(place) == ["torch-cpu", "jax-cpu"]
    assert place.left_out[0].why == "latency warm was not measured"


# What is ranked by


COLD, WARM, LATENCY = ("device_time", "cold"), ("device_time", "warm"), ("latency", "warm")
ALL = {COLD: 1.0, WARM: 0.5, LATENCY: 2.0}


def many(backend: str, times: dict[tuple[str, str], float], op: str = "exp", **fields: Any) -> Record:
    """A record with several quantities, in seconds."""
    near = (0.99, 1.0, 1.01)
    found = tuple(
        Measurement(quantity, cache, "virtual", [s * factor for factor in near * 5], 1, 0.0, 1, 0.0, "count")  # type: ignore[arg-type]
        for (quantity, cache), s in times.items()
    )
    return timed(backend, op=op, measurements=found, environment="card", **fields)


def by(found: Ranking) -> list[tuple[str, str]]:
    return [(place.quantity, place.cache) for place in found.cases]


def test_a_device_is_ranked_by_its_own_time_with_cold_caches() -> None:
    """By latency and with warm caches the other one is faster."""
    jax = {COLD: 0.4, WARM: 0.6, LATENCY: 3.0}
    found = ranked(many("torch-cuda", ALL), many("jax-cuda", jax))
    assert by(found) == [COLD]
    assert order(found.cases[0]) == ["jax-cuda", "torch-cuda"]
    assert (found.quantity, found.cache) == ("", ""), "nothing was asked for"
    assert [(group.quantity, group.cache) for group in found.summary] == [COLD]


def test_where_one_has_no_device_time_all_are_ranked_by_latency() -> None:
    found = ranked(many("torch-cuda", ALL), many("jax-cuda", {LATENCY: 3.0}), many("triton-cuda", ALL))
    assert by(found) == [LATENCY]
    assert set(order(found.cases[0])) == {"torch-cuda", "jax-cuda", "triton-cuda"}


def test_one_that_failed_does_not_decide_what_is_ranked_by() -> None:
    broken = timed("jax-cuda", status="error", reason="no", measurements=(), environment="card")
    unverified = many("null-device", {LATENCY: 0.1}, verification=Verification("none", "computes nothing"))
    assert by(ranked(many("torch-cuda", ALL), broken, unverified)) == [COLD]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([{WARM: 1.0, LATENCY: 2.0}] * 2, WARM),
        ([{WARM: 1.0, LATENCY: 2.0}, {COLD: 1.0, LATENCY: 2.0}], LATENCY),
        ([{("throughput", "warm"): 1.0}] * 2, ("throughput", "warm")),
        ([{("latency", "cold"): 1.0}] * 2, ("latency", "cold")),
        ([{COLD: 1.0}, {LATENCY: 2.0}], LATENCY),
        ([{COLD: 1.0}, {("energy", "warm"): 2.0}], COLD),
    ],
)
def test_other_quantities_are_ranked_by_if_nothing_else_is_there(
    times: list[dict[tuple[str, str], float]], expected: tuple[str, str]
) -> None:
    found = ranked(*(many(name, own) for name, own in zip(("torch-cuda", "jax-cuda"), times, strict=True)))
    assert by(found) == [expected]
    having = [name for name, own in zip(("torch-cuda", "jax-cuda"), times, strict=True) if expected in own]
    assert order(found.cases[0]) == having
    assert all(out.why == f"{' '.join(expected)} was not measured" for out in found.cases[0].left_out)
    assert len(found.cases[0].left_out) == 2 - len(having)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"quantity": "latency"}, LATENCY),
        ({"quantity": "device_time"}, COLD),
        ({"quantity": "device_time", "cache": "warm"}, WARM),
        ({"cache": "warm"}, WARM),
        ({"cache": "cold"}, COLD),
    ],
    ids=str,
)
def test_what_is_asked_for_is_ranked_by(asked: dict[str, str], expected: tuple[str, str]) -> None:
    found = asking(many("torch-cuda", ALL), many("jax-cuda", {**ALL, expected: 0.1}), **asked)
    assert by(found) == [expected]
    assert order(found.cases[0]) == ["jax-cuda", "torch-cuda"]
    assert {"quantity": found.quantity, "cache": found.cache} == {"quantity": "", "cache": "", **asked}


def asking(*records: Record, **asked: str) -> Ranking:
    return rank(Source([("new", records)], ENVIRONMENTS), **asked)


def test_who_lacks_what_is_asked_for_is_left_out_with_the_reason() -> None:
    (place,) = asking(many("torch-cuda", ALL), many("jax-cuda", {LATENCY: 0.1}), quantity="device_time").cases
    assert order(place) == ["torch-cuda"]
    assert [(out.backend, out.why) for out in place.left_out] == [("jax-cuda", "device_time cold was not measured")]
    assert not place.best.decided, "nobody else was measured so"


def test_cases_that_nobody_measured_so_are_counted() -> None:
    found = asking(many("torch-cuda", ALL), many("torch-cuda", {LATENCY: 1.0}, "sin"), quantity="device_time")
    assert [place.op for place in found.cases] == ["exp"]
    assert found.without == 1


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"quantity": "energy"}, "no verified energy in these runs to rank by"),
        ({"cache": "rotated"}, "no verified number with rotated caches in these runs to rank by"),
        ({"quantity": "latency", "cache": "cold"}, "no verified latency with cold caches in these runs to rank by"),
    ],
    ids=str,
)
def test_what_nothing_has_is_refused_with_what_there_is(asked: dict[str, str], said: str) -> None:
    with pytest.raises(UserError) as caught:
        asking(many("torch-cuda", ALL), **asked)
    assert caught.value.message == said
    assert "device_time cold, device_time warm, latency warm" in (caught.value.hint or "")


@pytest.mark.parametrize("asked", [{"quantity": "latncy"}, {"cache": "wram"}], ids=str)
def test_an_unknown_quantity_or_state_of_the_caches_is_the_users_mistake(asked: dict[str, str]) -> None:
    with pytest.raises(UnknownName) as caught:
        asking(many("torch-cuda", ALL), **asked)
    assert {"quantity": "latency", "cache": "warm"}[next(iter(asked))] in (caught.value.hint or "")


@pytest.mark.parametrize("grouping", BY)
def test_groups_never_mix_quantities_or_caches(grouping: str) -> None:
    records = [many(name, ALL) for name in ("torch-cuda", "jax-cuda")]
    records += [many(name, {LATENCY: 1.0}, "sin") for name in ("torch-cuda", "jax-cuda")]
    records += [many(name, {WARM: 1.0}, "cos") for name in ("torch-cuda", "jax-cuda")]
    found = ranked(*records, by=grouping)
    assert by(found) == [COLD, LATENCY, WARM]
    for groups in (found.summary, found.groups):
        for group in groups:
            alike = [place for place in found.cases if (place.quantity, place.cache) == (group.quantity, group.cache)]
            assert group.cases == len(alike) == 1
    assert len(found.summary) == 3


def test_of_each_quantity_the_newest_number_counts() -> None:
    """The newest run measured latency alone: the device time is that of the run before."""
    newest = many("torch-cuda", {LATENCY: 9.0})
    older = (many("torch-cuda", ALL), many("jax-cuda", ALL))
    found = ranked(newest, older=older)
    assert by(found) == [COLD]
    assert {one.backend: one.run for one in found.cases[0].order} == {"torch-cuda": "old", "jax-cuda": "old"}
    latency = rank(Source([("new", [newest]), ("old", older)], ENVIRONMENTS), quantity="latency")
    assert {one.backend: one.run for one in latency.cases[0].order} == {"torch-cuda": "new", "jax-cuda": "old"}


def test_requests_under_load_are_not_ranked() -> None:
    record = many("torch-cuda", {("request_latency", "warm"): 1.0})
    load = Load(clients=1)
    loaded = replace(record, task=replace(record.task, settings=replace(record.task.settings, load=load)))
    assert asking(loaded).cases == []
    assert asking(loaded, quantity="request_latency").cases == []


# Several runs


def test_of_what_was_measured_twice_the_newest_counts() -> None:
    (place,) = ranked(timed("torch-cpu", 2.0), older=(timed("torch-cpu", 1.0), timed("jax-cpu", 9.0))).cases
    assert [(one.backend, one.median, one.run) for one in place.order] == [
        ("torch-cpu", 2.0, "new"), ("jax-cpu", 9.0, "old"),
    ]  # fmt: skip
    assert place.best.decided


def test_a_crash_does_not_undo_an_older_number_but_a_wrong_result_does() -> None:
    crashed, wrong = (timed("torch-cpu", status=s, reason="r", measurements=()) for s in ("error", "wrong"))
    older = (timed("torch-cpu", 1.0), timed("jax-cpu", 2.0))
    assert order(ranked(crashed, older=older).cases[0]) == ["torch-cpu", "jax-cpu"]
    assert order(ranked(wrong, older=older).cases[0]) == ["jax-cpu"]


def test_processes_of_one_run_are_one_number() -> None:
    records = [
        timed(name, s * (1 + i / 1000), process=i)
        for i in range(5)
        for name, s in (("torch-cpu", 1), ("jax-cpu", 1.05))
    ]
    (place,) = ranked(*records).cases
    assert [one.processes for one in place.order] == [5, 5]
    assert place.best.decided


def test_the_noise_of_the_machine_is_heeded() -> None:
    records = timed("torch-cpu", 1.0), timed("jax-cpu", 1.5)
    loud = NoiseFloor("a processor", "torch-cpu", 2, "2030", 10, 10, [Floor("exp", "", 1.0, 0.4, 0.1)])
    assert ranked(*records).cases[0].best.decided
    assert not ranked(*records, noise={"here": loud}).cases[0].best.decided


# Groups


def records() -> list[Record]:
    """Two operators: torch wins three cases, numpy one, jax has two of them and wins none."""
    found = []
    for op, dtype, times in (
        ("exp", "float32", {"torch-cpu": 1.0, "numpy-cpu": 2.0, "jax-cpu": 4.0}),
        ("exp", "float64", {"torch-cpu": 1.0, "numpy-cpu": 8.0, "jax-cpu": 4.0}),
        ("sin", "float32", {"torch-cpu": 1.0, "numpy-cpu": 2.0}),
        ("sin", "float64", {"torch-cpu": 3.0, "numpy-cpu": 1.0}),
    ):
        found += [timed(name, s, op, params={"shape": [4], "dtype": dtype}) for name, s in times.items()]
    return found


def test_the_summary_counts_wins_and_takes_the_geometric_mean_over_what_all_have() -> None:
    (summary,) = ranked(*records()).summary
    assert (summary.cases, summary.contested, summary.undecided, summary.common) == (4, 4, 0, 2)
    found = {tally.backend: (tally.wins, tally.cases, tally.ratio) for tally in summary.backends}
    assert list(found) == ["torch-cpu", "numpy-cpu", "jax-cpu"], "who wins most stands first"
    assert found["torch-cpu"] == (3, 4, pytest.approx(1.0))
    assert found["numpy-cpu"] == (1, 4, pytest.approx(4.0))
    assert found["jax-cpu"] == (0, 2, pytest.approx(4.0))
    own = {tally.backend: tally.own_ratio for tally in summary.backends}
    assert own["numpy-cpu"] == pytest.approx((2 * 8 * 2 * 1) ** 0.25)


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("operator", [{"op": "exp"}, {"op": "sin"}]),
        ("dtype", [{"dtype": "float32"}, {"dtype": "float64"}]),
        ("size", [{"op": "exp", "params": {"shape": [4]}}, {"op": "sin", "params": {"shape": [4]}}]),
        ("case", []),
    ],
)
def test_groups_are_by_what_was_asked_for(by: str, keys: list[dict[str, Any]]) -> None:
    found = ranked(*records(), by=by)
    assert [group.key for group in found.groups] == keys
    assert all((group.by, group.cases) == (by, 2) for group in found.groups)
    assert len(found.cases) == 4, "the cases are always there"


def test_a_group_without_a_common_case_has_no_mean() -> None:
    found = ranked(timed("torch-cpu"), timed("jax-cpu", op="sin"), by="dtype")
    assert [tally.ratio for tally in found.groups[0].backends] == [None, None]
    assert found.groups[0].contested == 0


def test_an_unknown_grouping_is_the_users_mistake() -> None:
    with pytest.raises(UnknownName, match="no grouping named `opertor`") as caught:
        ranked(by="opertor")
    assert "operator" in (caught.value.hint or "")
    assert set(BY) == {"operator", "dtype", "size", "case"}


# To choose by


def test_a_program_chooses_by_exactly_its_case() -> None:
    found = ranked(*records())
    best = found.choose("exp", {"shape": (4,)}, dtype="float32")
    assert best is not None
    assert (best.backend, best.decided) == ("torch-cpu", True)
    assert found.choose("exp", {"shape": [4]}) == best, "what is left out has its default"
    assert found.choose("sin", {"shape": [4], "dtype": "float64"}).backend == "numpy-cpu"  # type: ignore[union-attr]
    assert found.choose("sin", {"shape": [4]}, threads=2, chip="a processor") is not None


@pytest.mark.parametrize(
    "asked",
    [{"params": {"shape": [5]}}, {"op": "cos"}, {"phase": "backward"}, {"threads": 1}, {"chip": "another"},
     {"dtype": "float16"}, {"params": {}}],
    ids=str,
)  # fmt: skip
def test_what_was_not_measured_is_not_guessed(asked: dict[str, Any]) -> None:
    assert ranked(*records()).choose(**{"op": "exp", "params": {"shape": [4]}, **asked}) is None


def test_where_there_are_two_chips_or_numbers_of_threads_one_has_to_be_named() -> None:
    found = ranked(timed("torch-cpu"), timed("jax-cpu", environment="there"), timed("numpy-cpu", threads=1))
    assert found.choose("exp", {"shape": [4]}) is None
    assert found.choose("exp", {"shape": [4]}, chip="another").backend == "jax-cpu"  # type: ignore[union-attr]
    assert found.choose("exp", {"shape": [4]}, threads=1).backend == "numpy-cpu"  # type: ignore[union-attr]


def test_only_what_is_decided_if_that_is_asked_for() -> None:
    found = ranked(timed("torch-cpu", 1.0), timed("jax-cpu", 1.01))
    assert found.choose("exp", {"shape": [4]}) is not None
    assert found.choose("exp", {"shape": [4]}, decided=True) is None


def test_an_alias_names_its_operator() -> None:
    found = ranked(timed("torch-cpu", op="matmul", params={"M": 2, "N": 2, "K": 2}))
    assert found.choose("mm", {"M": 2, "N": 2, "K": 2}) == found.cases[0].best


def test_an_operator_that_is_no_longer_installed_is_chosen_by_its_full_parameters() -> None:
    record = timed("torch-cpu")
    gone = replace(record, task=replace(record.task, case=Case.of("gone", {"n": 3, "k": 1}, "forward")))
    found = ranked(gone)
    assert found.choose("gone", {"n": 3, "k": 1}) is not None
    assert found.choose("gone", {"n": 3}) is None


# As a file


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    found = ranked(*records(), by="operator")
    (tmp_path / "best.json").write_bytes(msgspec.json.encode(found))
    assert read(tmp_path / "best.json") == found


def test_a_file_of_a_version_that_named_no_quantity_is_read(tmp_path: Path) -> None:
    written = msgspec.to_builtins(ranked(*records(), by="operator"))
    for name in ("quantity", "cache", "without"):
        del written[name]
    for group in (*written["summary"], *written["groups"]):
        del group["quantity"], group["cache"]
    (tmp_path / "best.json").write_bytes(msgspec.json.encode(written))
    best = read(tmp_path / "best.json").choose("exp", {"shape": [4]})
    assert best is not None
    assert best.backend == "torch-cpu"


def test_the_shape_of_the_file_is_kept() -> None:
    """Programs read it: a key may be added, but none may go while `schema` is 1."""
    seen = json.loads(msgspec.json.encode(ranked(*records(), by="operator")))
    assert seen["schema"] == 1
    assert {"made", "opmark", "runs", "chips", "environments", "operators", "cases", "summary", "groups"} <= set(seen)
    assert seen["environments"] == {"here": CPU}, "of where each number was measured, and of nothing else"
    case = seen["cases"][0]
    assert {
        "op", "params", "dtype", "phase", "wrt", "threads", "device", "chip", "quantity", "cache", "case", "best",
        "order", "left_out",
    } <= set(case)  # fmt: skip
    assert set(case["best"]) == {"backend", "implementation", "variant", "python", "median", "decided"}
    assert {
        "backend", "implementation", "variant", "python", "median", "interval", "processes", "ratio", "behind",
        "checked", "numerics", "compile_cold", "compile_cached", "run", "environment",
    } <= set(case["order"][0])  # fmt: skip
    assert {"max_abs", "max_rel", "max_ulp"} <= set(case["order"][0]["numerics"])
    assert {"quantity", "cache", "without"} <= set(seen)
    assert {"quantity", "cache"} <= set(seen["groups"][0]) & set(seen["summary"][0])


@pytest.mark.parametrize(("text", "said"), [
    ("{", "is no ranking"), ("[]", "no ranking of version 1"), ('{"schema": 2}', "no ranking of version 1"),
    ('{"schema": 1}', "is no ranking"), (None, "cannot be read"),
])  # fmt: skip
def test_another_file_is_no_ranking(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "best.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=said):
        read(path)
