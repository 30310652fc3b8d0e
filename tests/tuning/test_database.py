"""The database of what was tuned: the newest counts, the nearest is found, what is stale is said to be."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path
from time import perf_counter

import pytest
from made_up import made_run, record
from msgspec.structs import replace

from opmark.api.tuned import import_tuned
from opmark.dashboard.endpoint import RequestRefused
from opmark.dashboard.uploads.reader import read_upload
from opmark.errors import UserError
from opmark.plugin.registry import backend
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case, Run, Task
from opmark.schema.tuned import TunedEntry
from opmark.store.limits import LIMITS
from opmark.store.memory import MemoryStore
from opmark.store.merge import merge
from opmark.store.sql import open_sql
from opmark.store.transfer import parts, payload, store_upload
from opmark.tuning.database import (
    FoundEntry,
    choose_entry,
    file_text,
    find_entries,
    newest,
    shape_distance,
    why_stale,
    with_losses,
)
from opmark.tuning.spaces import find_tunables, source_of
from opmark.tuning.target import read_target

pytestmark = pytest.mark.usefixtures("knobs")


def entry_for(width: int, made: str = "2026-01-01", **changed: object) -> TunedEntry:
    info = backend("knobs-cpu")
    case = case_of(width)
    (tunable,) = find_tunables(case, info)
    entry = TunedEntry(
        "exp", case.params, case.id, "knobs-cpu", "knobs",
        {"tile": (width // 16, 16), "unroll": 4, "order": "ij", "fast": True}, read_target(info, 1),
        source_of(tunable.implementation, info), made=made, verdict="faster",
    )  # fmt: skip
    return replace(entry, **changed)


def case_of(width: int) -> Case:
    return Case.of("exp", find_operator("exp").complete({"shape": [64, width]}), "forward")


def test_of_several_the_newest_counts() -> None:
    old, new = entry_for(256), entry_for(256, "2026-02-01", configuration={}, implementation="")
    assert newest([new, old]) == [new]
    store = MemoryStore()
    store.add_tuned([new, old])
    found = choose_entry(store, case_of(256), backend("knobs-cpu"), 1)
    assert found is not None
    assert found.entry.default_stays


def test_the_nearest_shape_is_found_and_its_configuration_fits() -> None:
    store = MemoryStore()
    store.add_tuned([entry_for(64), entry_for(256), entry_for(1024)])
    found = choose_entry(store, case_of(512), backend("knobs-cpu"), 1)
    assert found is not None
    assert found.distance == 1.0
    assert found.entry.configuration["tile"] == (32, 16)
    assert choose_entry(store, case_of(8192), backend("knobs-cpu"), 1) is None
    listed = find_entries(store, "exp", backend("knobs-cpu"), near={"shape": [64, 300]}, threads=1)
    assert [one.entry.params["shape"][1] for one in listed] == [256, 1024, 64]


def test_entries_of_an_older_opmark_that_have_fewer_parameters_have_losses_too() -> None:
    """The space of a product on TVM asks for the element type."""
    store, found = MemoryStore(), []
    for rows, tile in ((128, 4), (256, 8)):
        case = Case.of("matmul", {"M": rows, "N": 256, "K": 256}, "forward")
        found.append(
            entry_for(
                256, op="matmul", params=case.params, case=case.id, backend="tvm-cpu", implementation="schedule",
                configuration={"tile": tile},
            )
        )  # fmt: skip
        run = made_run(rows % 100)
        found[-1] = replace(found[-1], run=run.id)
        store.begin(run)
        for other in (4, 8):
            made = record(samples=[1.0 if other == tile else 1.5])
            settings = replace(made.task.settings, configuration=(("tile", other),))
            store.extend(run.id, [replace(made, task=Task(case, "tvm-cpu", "schedule", settings))])
    (here, _) = with_losses(store, [FoundEntry(one, 1.0) for one in found])
    assert (here.loss, here.pairs) == (0.5, 2)


def test_shapes_differ_by_the_logarithms_of_their_sizes_and_nothing_else_may_differ() -> None:
    one = case_of(256).params
    assert shape_distance("exp", one, {**one, "shape": [128, 512]}) == pytest.approx(2**0.5)
    assert shape_distance("exp", one, {**one, "dtype": "float64"}) is None
    assert shape_distance("exp", one, {**one, "shape": [256]}) is None


def test_another_target_or_source_makes_it_stale() -> None:
    info, target = backend("knobs-cpu"), read_target(backend("knobs-cpu"), 1)
    assert why_stale(entry_for(256), info, target) == ()
    other = replace(target, versions={"numpy": "1.0"}, threads=2)
    (versions, threads) = sorted(why_stale(entry_for(256, target=other), info, target))
    assert versions.startswith("numpy 1.0, now")
    assert threads == "threads 2, now 1"
    assert "source 01234567" in why_stale(entry_for(256, source="0123456789abcdef"), info, target)[0]
    assert "not there" in why_stale(entry_for(256, implementation="gone"), info, target)[0]
    store = MemoryStore()
    store.add_tuned([entry_for(256, source="0123456789abcdef")])
    assert choose_entry(store, case_of(256), info, 1) is None


def test_another_board_makes_it_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    info = backend("tvm-board")
    targets = []
    for address, target in (("10.0.0.7:1", "llvm"), ("10.0.0.8:1", "opencl -device=mali")):
        monkeypatch.setenv("OPMARK_BOARD", address)
        monkeypatch.setenv("OPMARK_BOARD_TARGET", target)
        targets.append(read_target(info, 2))
    assert (targets[0].device, targets[0].threads) == ("board", 0)
    assert targets[0].differences(targets[1]) == [
        "chip 10.0.0.7:1, now 10.0.0.8:1", "target llvm, now opencl -device=mali",
    ]  # fmt: skip


def test_what_was_tuned_for_another_number_of_threads_is_listed_as_sound_and_not_applied() -> None:
    info, store = backend("knobs-cpu"), MemoryStore()
    store.add_tuned([entry_for(256, target=read_target(info, 3))])
    (listed,) = find_entries(store, "exp")
    assert listed.stale == ()
    assert choose_entry(store, case_of(256), info, 1) is None
    assert choose_entry(store, case_of(256), info, 3) is not None


def test_a_warm_lookup_takes_a_small_part_of_the_time_that_a_worker_takes_to_start(tmp_path: Path) -> None:
    with closing(open_sql(tmp_path / "store.db", create=True)) as store:
        store.add_tuned([entry_for(16 * n, f"2026-01-01T{n}") for n in range(1, 60)])
        info, case = backend("knobs-cpu"), case_of(256)
        times = []
        for _ in range(9):
            since = perf_counter()
            assert choose_entry(store, case, info, 1) is not None
            times.append(perf_counter() - since)
    assert min(times) < 0.5


def test_two_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    entries = [[entry_for(16 * n, f"{who}") for n in range(1, 21)] for who in range(4)]

    def write(some: list[TunedEntry]) -> None:
        with closing(open_sql(path, create=True)) as store:
            for one in some:
                store.add_tuned([one])

    threads = [threading.Thread(target=write, args=(some,)) for some in entries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(open_sql(path)) as store:
        assert {one.id for one in store.tuned()} == {one.id for some in entries for one in some}


def test_stores_are_merged_entry_by_entry(tmp_path: Path) -> None:
    with (
        closing(open_sql(tmp_path / "a.db", create=True)) as a,
        closing(open_sql(tmp_path / "b.db", create=True)) as b,
    ):
        a.add_tuned([entry_for(256)])
        b.add_tuned([entry_for(256), entry_for(512)])
        assert merge(a, b).tuned == 1
        assert merge(a, b).tuned == 0
        assert a.tuned() == [entry_for(256), entry_for(512)]


def test_a_push_takes_what_the_run_has_tuned_along(tmp_path: Path) -> None:
    run = Run("20260101-000000-abcd", "2026-01-01T00:00:00.000+00:00", "0123456789abcdef", 0)
    own = entry_for(256, "2026-01-01T00:00:00.000+00:00", run=run.id)
    with (
        closing(open_sql(tmp_path / "a.db", create=True)) as a,
        closing(open_sql(tmp_path / "b.db", create=True)) as b,
    ):
        a.begin(run)
        a.add_tuned([own, entry_for(512)])
        (part,) = parts(a, run.id, 100, 1 << 20)
        sent = b"".join(payload(a, part))
        store_upload(b, read_upload(sent, LIMITS))
        assert b.tuned() == [own]
        forged = sent.replace(b'"run":"20260101-000000-abcd","compared"', b'"run":"20260101-000000-0000","compared"')
        assert forged != sent
        with pytest.raises(RequestRefused, match="tuned by run"):
            read_upload(forged, LIMITS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no JSON", "expected the JSON"),
        (b'{"format": "other", "version": 1}', "expected the format opmark-tuned"),
        (b'{"format": "opmark-tuned", "version": 99, "entries": []}', "is of version 99"),
        (b'{"format": "opmark-tuned", "version": 1, "entries": [{"op": 1}]}', "an entry is damaged"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_and_nothing_is_stored(
    tmp_path: Path, content: bytes, message: str
) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_bytes(file_text([entry_for(256)]))
    bad.write_bytes(content)
    assert json.loads(good.read_text())["format"] == "opmark-tuned"
    with pytest.raises(UserError, match=message):
        import_tuned(good, bad, db=tmp_path / "store.db")
    assert not (tmp_path / "store.db").exists()


def test_an_entry_that_cannot_be_true_is_named_and_the_others_are_imported(tmp_path: Path) -> None:
    wrong = {"tile": (3, 5), "unroll": 4, "order": "ij", "fast": True}
    entries = [entry_for(256), entry_for(512, configuration=wrong), entry_for(1024, verdict="splendid")]
    path = tmp_path / "tuned.json"
    path.write_bytes(file_text(entries))
    read = import_tuned(path, db=tmp_path / "store.db")
    assert (read.entries, read.new) == (1, 1)
    knob, verdict = read.problems
    assert "entry 2 (exp" in knob
    assert "knob `tile` cannot be" in knob
    assert "entry 3 (exp" in verdict
    assert "got `splendid`" in verdict
