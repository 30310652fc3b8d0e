"""The checks for a machine with two GPUs: on gloo, and on GPUs that are in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from benchmarks import two_gpus as script
from nvml_fixtures import OTHER, UUID, Driver

from opmark.plugin.registry import catalogue

pytestmark = pytest.mark.ranks
Check = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """Run the script; return its exit code and what it printed, without the last line."""

    def run(*arguments: str) -> tuple[int, list[str]]:
        code = script.main(arguments)
        *lines, last = capsys.readouterr().out.splitlines()
        failed = sum(line.startswith("fail: ") for line in lines)
        assert last == ("no check failed" if not failed else f"{failed} check{'s' if failed > 1 else ''} failed")
        assert code == (1 if failed else 0)
        return code, lines

    return run


@pytest.mark.parametrize("gpus", [[], [UUID]])
def test_without_two_gpus_it_says_so(
    gpus: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "list_gpus", lambda: gpus)
    assert script.main([]) == 2
    assert f"torch sees {len(gpus)} GPU" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [("--ranks", "3"), ("--ranks", "1"), ("everything",)])
def test_what_cannot_be_checked_is_refused(wrong: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "list_gpus", lambda: [UUID, OTHER])
    with pytest.raises(SystemExit) as ended:
        script.main(wrong)
    assert ended.value.code == 2


def test_a_check_that_breaks_has_failed_and_the_others_run(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(machine: script.Machine) -> script.Outcomes:
        yield script.CheckOutcome("pass", "the first half", "well")
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(script, "CHECKS", (breaks, script.own_devices))
    code, lines = check("--backend", "torch-cpu")
    assert code == 1
    assert lines == [
        "pass: the first half: well",
        "fail: breaks: ZeroDivisionError: on purpose",
        "skipped: each rank has a GPU of its own: torch-cpu has no GPUs to tell apart",
    ]


# On gloo.


def test_collectives_pairs_and_faults_pass_on_gloo(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    some = {name: catalogue()[name] for name in ("all_reduce", "all_reduce_h2d", "moe_dispatch")}
    monkeypatch.setattr(script, "catalogue", lambda: some)
    monkeypatch.setattr(script, "SIZES", ["8", "4K"])
    monkeypatch.setattr(script, "_FAULTS", {"kill": "killed"})
    code, lines = check("--backend", "torch-cpu", "--ranks", "2", "collectives", "pairs", "faults", "groups")
    assert code == 0
    found = {line.split(": ")[1]: line.split(": ")[0] for line in lines}
    assert found == {
        "all_reduce": "pass",
        "all_reduce_h2d": "skipped",
        "moe_dispatch": "pass",
        "p2p between all pairs, and each rank's copy to itself": "pass",
        "two groups at once": "skipped",
        "a rank that fails by `kill` becomes a record": "pass",
    }
    assert "8 cases verified on 2 ranks over gloo" in lines[0]


def test_a_wrong_result_fails(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that is wrong stands for a collective that is."""
    monkeypatch.setattr(script, "_FAULTS", {"wrong": "ok"})
    code, (line,) = check("--backend", "torch-cpu", "faults")
    assert code == 1
    assert line.startswith("fail: a rank that fails by `wrong` becomes a record: wrong: rank 1: output 0")


def test_the_same_command_under_torchrun_passes(check: Check) -> None:
    code, lines = check("--backend", "torch-cpu", "launched")
    assert (code, lines) == (0, ["pass: under torchrun: 2 ranks, ok"])


# On GPUs that are in a file.


@pytest.fixture
def faked(two_gpus: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.setattr(script, "list_gpus", lambda: [UUID, OTHER])
    return two_gpus


def test_what_concerns_gpus_passes_on_two_of_them(faked: Driver, check: Check) -> None:
    names = ("own_devices", "other_order", "too_many_ranks", "sensors", "at_once", "clocks")
    code, lines = check("--backend", "two-gpus", *names)
    assert code == 0
    assert lines == [
        f"pass: each rank has a GPU of its own: ranks took {UUID}, {OTHER}, expected {UUID}, {OTHER}",
        f"pass: CUDA_VISIBLE_DEVICES in another order gives the ranks other GPUs: ranks took {OTHER}, {UUID}",
        lines[2],
        f"pass: GPU 0 alone, with its own sensors: {UUID}, read",
        f"pass: GPU 1 alone, with its own sensors: {OTHER}, read",
        f"pass: two runs at once, each on a GPU of its own: they took {UUID}, {OTHER}",
        "pass: --clocks lock locks the clock of every rank's GPU, and sets it back: locked at 1500 MHz, memory at 3201 "
        "MHz; locked at 1300 MHz, memory at 3201 MHz",
    ]
    assert lines[2].startswith("pass: more ranks than GPUs are refused: ")
    assert faked.gpu()["locked"] is faked.gpu(OTHER)["locked"] is None


def test_ranks_on_other_gpus_than_expected_fail(faked: Driver, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "list_gpus", lambda: [OTHER, UUID])
    code, (line,) = check("--backend", "two-gpus", "own_devices")
    assert code == 1
    assert line.startswith(f"fail: each rank has a GPU of its own: ranks took {UUID}, {OTHER}")


def test_collectives_that_do_not_go_over_nccl_fail(
    faked: Driver, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "catalogue", lambda: {"all_reduce": catalogue()["all_reduce"]})
    monkeypatch.setattr(script, "SIZES", ["64"])
    monkeypatch.setattr(script, "DTYPES", ["float32"])
    code, (line,) = check("--backend", "two-gpus", "collectives")
    assert (code, line) == (1, "fail: all_reduce: went over lines instead of NCCL")


def test_a_clock_that_may_not_be_locked_is_skipped_and_one_that_stays_locked_fails(faked: Driver, check: Check) -> None:
    faked.fail("nvmlDeviceResetGpuLockedClocks", 15)
    code, (line,) = check("--backend", "two-gpus", "clocks")
    assert code == 1
    assert line.endswith(f"still locked: {UUID}, {OTHER}")
    faked.fail("nvmlDeviceSetGpuLockedClocks", 4)
    code, (line,) = check("--backend", "two-gpus", "clocks")
    assert line.startswith("skipped: --clocks lock")
    assert "Insufficient Permissions" in line


@pytest.mark.parametrize(("share", "word"), [(0.8, "pass"), (1.2, "fail"), (0.05, "fail"), (None, "skipped")])
def test_a_bandwidth_that_no_link_can_have_fails(
    faked: Driver, check: Check, monkeypatch: pytest.MonkeyPatch, share: float | None, word: str
) -> None:
    link = None if share is None else {"share": share, "link": "NVLink"}

    class Measured:
        def rows(self) -> list[dict[str, object]]:
            return [{"metrics": {"bus_bandwidth": 4e11, "of_link": link}}]

    monkeypatch.setattr(script.Machine, "run", lambda *asked, **options: Measured())
    _, (line,) = check("--backend", "two-gpus", "bandwidth")
    assert line.startswith(f"{word}: bus bandwidth of an all_reduce of 256M against the link: 400 GB/s")
