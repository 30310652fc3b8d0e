"""A/A: identical code against itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.api.doctor import noise_floor
from opmark.api.result import open_store
from opmark.api.show import show
from opmark.errors import StoreError, UnknownName, UserError
from opmark.plugin import BackendInfo
from opmark.runner import doctor as module
from opmark.runner.doctor import _floor, _labelings, self_test
from opmark.runner.plan import Plan
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Case, Measurement, Record
from opmark.schema.machine import NoiseFloor
from opmark.stats import relative_deviation

pytestmark = pytest.mark.machine

Plugin = Callable[..., BackendInfo]
CASE = Case.of("add", {"shape": [4], "dtype": "float32"}, "forward")
TWO = (("add", {"shape": [4]}), ("matmul", {"M": 8, "N": 8, "K": 8}))


def silent(message: str) -> None:
    assert message.startswith("stored as run"), message


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer cases than there are."""
    monkeypatch.setattr(module, "_CASES", TWO)


def measurement(samples: list[float]) -> Measurement:
    return Measurement("latency", "warm", "virtual", samples, 1, 0.0, 2, 0.1, "precise")


def processes(seed: int, count: int = 10, between: float = 0.01, within: float = 0.002) -> list[Measurement]:
    """Each off by a little that stays as long as it lives, its samples by less."""
    draw = random.Random(seed)
    levels = [1e-5 * (1 + draw.gauss(0, between)) for _ in range(count)]
    return [measurement([level * (1 + draw.gauss(0, within)) for _ in range(100)]) for level in levels]


# Labels.


@given(st.integers(1, 8))
def test_every_way_to_name_the_pairs_is_there_once_whichever_of_both_is_called_a(pairs: int) -> None:
    found = _labelings(pairs)
    swapped = [tuple(not flip for flip in flips) for flips in found]
    assert len({*found, *swapped}) == 2**pairs
    assert len(found) == 2 ** (pairs - 1)
    assert {len(flips) for flips in found} == {pairs}


def test_many_processes_do_not_make_more_ways_than_can_be_looked_at() -> None:
    """Each is a test of thousands of samples, in each case."""
    assert len(_labelings(17)) <= 4096


# The floor of a case.


def test_a_floor_is_the_spread_between_and_within_processes() -> None:
    found = processes(seed=1)
    floor = _floor(CASE, found, _labelings(5))
    assert floor is not None
    medians = [median(m.samples) for m in found]
    assert (floor.op, floor.params) == ("add", "4 float32")
    assert floor.seconds == median(medians)
    assert floor.between == relative_deviation(medians)
    assert floor.within == pytest.approx(0.002, rel=0.3)


def test_processes_that_do_not_differ_are_never_called_different() -> None:
    floor = _floor(CASE, [measurement([1e-6, 1.1e-6, 1.2e-6])] * 10, _labelings(5))
    assert floor is not None
    assert (floor.verdicts, floor.naive, floor.between) == (0, 0, 0)


def test_the_naive_test_cries_wolf_where_the_verdict_does_not() -> None:
    verdicts = naive = 0
    for seed in range(20):
        floor = _floor(CASE, processes(seed), _labelings(5))
        assert floor is not None
        verdicts, naive = verdicts + floor.verdicts, naive + floor.naive
    assert verdicts <= 0.02 * 20 * 16
    assert naive >= 0.5 * 20 * 16


def test_a_real_difference_inside_the_pairs_would_be_called_in_one_way_only() -> None:
    """The second of each pair is 10 % slower: seen where all pairs are named alike."""
    pair = [measurement([1e-5] * 10), measurement([1.1e-5] * 10)]
    floor = _floor(CASE, pair * 5, _labelings(5))
    assert floor is not None
    assert floor.verdicts == 1


def test_what_changes_from_pair_to_pair_is_no_difference() -> None:
    """Neighbours are the pairs: a machine that slows down meanwhile slows both."""
    levels = [measurement([1e-5 * (1 + i // 2)] * 10) for i in range(10)]
    floor = _floor(CASE, levels, _labelings(5))
    assert floor is not None
    assert floor.verdicts == 0
    assert floor.between > 0.1


def test_a_case_that_could_not_be_measured_in_every_process_has_no_floor() -> None:
    assert _floor(CASE, processes(seed=1)[:9], _labelings(5)) is None


# Measured.


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[NoiseFloor, Path]:
    folder = tmp_path_factory.mktemp("noise")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setattr(module, "_CASES", TWO)
        floor = noise_floor("null", threads=1, processes=4, db=folder / "store.db", say=silent)
    return floor, folder / "store.db"


def test_every_case_is_measured_in_as_many_fresh_processes(kept: tuple[NoiseFloor, Path]) -> None:
    floor, path = kept
    assert (floor.backend, floor.threads, floor.processes, floor.labelings) == ("null", 1, 4, 2)
    assert [found.op for found in floor.floors] == ["add", "matmul"]
    assert [(r.task.settings.process, r.task.case.op) for r in show(db=path).records] == [
        (process, op) for process in range(4) for op in ("add", "matmul")
    ]


def test_a_clock_that_repeats_itself_has_no_noise_between_processes(kept: tuple[NoiseFloor, Path]) -> None:
    floor, _ = kept
    assert all(found.between == 0 < found.within for found in floor.floors)
    assert (floor.false_verdicts, floor.naive_verdicts) == (0, 0)


def test_the_run_is_stored_and_the_floor_is_kept(kept: tuple[NoiseFloor, Path]) -> None:
    floor, path = kept
    result = show(db=path)
    assert (result.run.label, result.run.tasks, len(result.records)) == ("noise", 8, 8)
    assert {record.environment for record in result.records} == result.environments.keys()
    with closing(open_store(path)) as store:
        assert msgspec.convert(store.kept("noise", f"null on {floor.chip} ×1"), NoiseFloor) == floor
    assert [row["processes"] for row in result.rows()] == [4, 4]


def test_on_a_device_every_quantity_has_a_floor_and_the_time_that_the_device_worked_is_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_CASES", TWO[:1])
    floor, _, records = self_test("null-device", 1, 4, 60.0, silent)
    keys = [(found.quantity, found.cache) for found in floor.floors]
    assert keys[0][0] == "device_time"
    assert {"device_span", "latency"} < {quantity for quantity, _ in keys}
    for found, key in zip(floor.floors, keys, strict=True):
        medians = [median(m.samples) for r in records if (m := r.measurement(*key))]
        assert (len(medians), found.seconds, found.between) == (4, median(medians), relative_deviation(medians))
    assert [[(m.quantity, m.cache) for m in record.measurements] for record in records] == [keys] * 4


def test_real_processes_have_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CASES", TWO[:1])
    floor, _, _ = self_test("numpy-cpu", 1, 4, 60.0, lambda message: None)
    (found,) = floor.floors
    assert found.between > 0
    assert found.seconds > 0


def test_the_cases_reach_over_two_orders_of_time() -> None:
    floor, _, _ = self_test("null", 1, 4, 60.0, silent)
    times = [found.seconds for found in floor.floors]
    assert len(times) == len(module._CASES)
    assert max(times) / min(times) > 100


# What cannot be measured.

UNAVAILABLE = """
class Backend(NullBackend):
    def why_unavailable(self):
        return "the power is off"
"""
BROKEN = """
class Backend(NullBackend):
    def tensor(self, spec, seed):
        raise RuntimeError("the magic smoke is out")
"""
WITHOUT_PRODUCTS = """
class Backend(NullBackend):
    def tensor(self, spec, seed):
        if spec.shape == (8, 8):
            raise Unsupported("no matrices here")
        return spec
"""


@pytest.mark.parametrize(("source", "reason"), [(UNAVAILABLE, "the power is off"), (BROKEN, "the magic smoke is out")])
def test_a_backend_on_which_nothing_runs_is_an_error_with_its_reason(
    plugin: Plugin, two: None, db: Path, source: str, reason: str
) -> None:
    plugin("dead", source)
    with pytest.raises(UserError, match=reason):
        noise_floor("dead", threads=1, processes=4, db=db, say=silent)
    assert not db.exists()


def test_a_case_that_does_not_run_is_left_out(plugin: Plugin, two: None) -> None:
    plugin("flat", WITHOUT_PRODUCTS)
    floor, _, records = self_test("flat", 1, 4, 60.0, silent)
    assert [found.op for found in floor.floors] == ["add"]
    assert {r.status for r in records if r.task.case.op == "matmul"} == {"skipped"}


# What cannot be asked for.


@pytest.mark.parametrize("count", [-2, 0, 1, 2, 3, 5, 11])
def test_a_number_of_processes_that_makes_no_pairs_is_refused(db: Path, count: int) -> None:
    with pytest.raises(UserError, match=f"even number of at least 4, got {count}") as caught:
        noise_floor("null", processes=count, db=db)
    assert "--processes" in (caught.value.hint or "")
    assert not db.exists()


@pytest.mark.parametrize("threads", [0, -1])
def test_a_number_of_threads_that_cannot_be_is_refused(two: None, db: Path, threads: int) -> None:
    with pytest.raises(UserError, match="threads"):
        noise_floor("null", threads=threads, processes=4, db=db, say=silent)
    assert not db.exists()


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_a_time_that_cannot_be_is_refused_as_for_a_run(two: None, db: Path, timeout: float) -> None:
    with pytest.raises(UserError, match="timeout"):
        noise_floor("null", threads=1, processes=4, timeout=timeout, db=db, say=silent)
    assert not db.exists()


def test_a_backend_that_nobody_knows_is_refused(db: Path) -> None:
    with pytest.raises(UnknownName, match="nope"):
        noise_floor("nope", db=db)
    assert not db.exists()


def test_a_store_that_cannot_be_written_is_an_error_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opmark.api.doctor.self_test", lambda *arguments: pytest.fail("measured"))
    with pytest.raises(StoreError):
        noise_floor("null", db=tmp_path)


def test_processes_count_in_their_order_and_disturbed_ones_not_at_all(
    two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process 0 was disturbed, and measured again after all others; one case stays disturbed in one process."""

    def run_plan(plan: Plan, options: WorkerOptions) -> list[Record]:
        late = sorted(plan.tasks, key=lambda task: task.settings.process == 0)
        return [
            Record(
                task,
                "disturbed" if (task.case.op, task.settings.process) == ("matmul", 3) else "ok",
                measurements=(measurement([1e-3 * (1 + task.settings.process)] * 20),),
            )
            for task in late
        ]

    monkeypatch.setattr(module, "run_plan", run_plan)
    floor, _, records = self_test("null", 1, 4, 60.0, lambda message: None)
    assert [one.op for one in floor.floors] == ["add"]
    assert [record.task.settings.process for record in records] == [0, 0, 1, 1, 2, 2, 3, 3]
