"""`opmark param comms` as a command: its request, its output, its exit code."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from param_comms_runs import COLLECTIVES, FakeRun, record

from opmark.errors import UserError
from opmark.interop.param.command import main as param
from opmark.interop.param.comms.command import main
from opmark.schema import Case, Record

pytestmark = pytest.mark.ranks

_RANKS = [f"{of}{name}" for of in ("", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_", "PMI_") for name in ("RANK", "SIZE")]
LAUNCHED = [*_RANKS, "WORLD_SIZE", "SLURM_STEP_ID", "MASTER_ADDR", "MASTER_PORT"]


@pytest.fixture(autouse=True)
def without_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)


def make_record(case: Case) -> Record:
    return record(case, [[float(i) for i in range(1, 6)]] * int(case.params["ranks"]))


def broken(case: Case) -> Record:
    return record(case, [[1.0]], "error", "it broke") if case.params.get("size") == 16 else make_record(case)


def fake(monkeypatch: pytest.MonkeyPatch, **more: Any) -> FakeRun:
    made = FakeRun(**({"of": make_record} | more))
    monkeypatch.setattr("opmark.interop.param.comms.command.run", made)
    return made


def command(*options: str) -> int:
    return main(["--device", "cpu", "--ranks", "2", *options])


def names(said: str) -> list[str]:
    return [line.split()[0] for line in said.splitlines() if line.strip()]


def test_opmark_is_asked_for_one_sample_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fake(monkeypatch)
    assert command("--w", "3", "--n", "7", "--num-coll", "2", "--timeout", "9", "--db", "here") == 0
    asked = dict(run.asked)
    assert asked.pop("say")
    assert asked == {
        "backend": "torch-cpu", "quantity": "latency", "effort": "quick", "processes": 1, "warmup": 6, "samples": 14,
        "verify": True, "timeout": 9.0, "db": "here",
    }  # fmt: skip
    assert [case.params["size"] for case in run.cases] == [8, 16, 32, 64]
    assert {case.params["ranks"] for case in run.cases} == {2}


def test_results_are_checked_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fake(monkeypatch)
    for options, verify in ((["--c", "0"], True), (["--c", "1"], True), (["--no-verify"], False)):
        command(*options)
        assert run.asked["verify"] is verify


def test_a_table_for_each_collective_and_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch)
    assert command("--collective", "all_reduce,broadcast", "--data-types", "float32,int8", "--ss", "8,16") == 0
    said, told = capsys.readouterr()
    assert names(said) == [
        word
        for dtype in ("float32", "int8")
        for name in ("all_reduce", "broadcast")
        for word in ("COMMS-RES", f"COMMS-RES-{name}-{dtype}", f"COMMS-RES-{name}-{dtype}")
    ]
    assert told == ""


def test_rows_stand_in_their_order_whenever_they_come(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, backwards=True)
    command()
    sizes = [line.split()[1] for line in capsys.readouterr().out.splitlines() if "COMMS-RES-" in line]
    assert sizes == ["8", "16", "32", "64"]


def test_a_case_with_several_names_has_a_row_for_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A collective with equal parts is the same case as the plain collective."""
    run = fake(monkeypatch)
    assert command("--collective", "all_gather,all_gather_v", "--ss", "64") == 0
    assert len(run.cases) == 1
    found = [name for name in names(capsys.readouterr().out) if name != "COMMS-RES"]
    assert found == ["COMMS-RES-all_gather-float32", "COMMS-RES-all_gather_v-float32"]


def test_a_failed_size_is_reported_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fake(monkeypatch, of=broken)
    assert command("--json", str(tmp_path / "rows.jsonl")) == 1
    said, told = capsys.readouterr()
    assert [line.split()[1] for line in said.splitlines() if "COMMS-RES-" in line] == ["8", "32", "64"]
    assert told == "COMMS-RES-all_reduce-float32 16: error: it broke\n"
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["total_size"], row["status"]) for row in rows] == [(8, "ok"), (16, "error"), (32, "ok"), (64, "ok")]
    assert rows[0]["run"] == "20260101-000000-abcd"


def test_a_skipped_size_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake(monkeypatch, skipped=["broadcast"])
    assert command("--collective", "all_reduce,broadcast", "--ss", "8") == 1
    assert capsys.readouterr().err == "COMMS-RES-broadcast-float32 8: skipped: not here\n"


def test_the_failure_of_a_pair_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake(monkeypatch, of=broken)
    assert command("--pt2pt", "one2one", "--ss", "16") == 1
    assert capsys.readouterr().err == "COMMS-RES-pt2pt-float32 16: one_way error: it broke\n"


def test_log_filters_messages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake(monkeypatch, of=broken)
    for level, count in (("INFO", 3), ("WARNING", 2), ("ERROR", 1), ("CRITICAL", 0)):
        assert command("--eager-init", "--log", level) == 1
        assert len(capsys.readouterr().err.splitlines()) == count


def test_differences_from_param_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch)
    main(["--device", "cpu"])
    assert "without a launcher and --ranks, 2 ranks are started on this machine" in capsys.readouterr().err
    command("--master-ip", "10.0.0.1", "--master-port", "29500")
    assert len(capsys.readouterr().err.splitlines()) == 2
    main(["--device", "cpu", "--ranks", "4", "--multi-comms", "2"])
    assert "a group has 2 neighbouring ranks" in capsys.readouterr().err
    command("--collective", "incast,all_reduce", "--z", "0")
    assert capsys.readouterr().err == "--z 0 has no effect on incast, which always block\n"


def test_a_launcher_sets_the_number_of_ranks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    met: list[str | None] = []

    def remembered(case: Case) -> Record:
        met.append(os.environ.get("MASTER_ADDR"))
        return make_record(case)

    run = fake(monkeypatch, of=remembered)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("MASTER_ADDR", "elsewhere")
    monkeypatch.setenv("RANK", "0")
    assert command("--ss", "8", "--master-ip", "10.0.0.1") == 0
    assert capsys.readouterr().err == "--ranks 2 is ignored: RANK and WORLD_SIZE started 4 ranks\n"
    assert {case.params["ranks"] for case in run.cases} == {4}
    assert set(met) == {"10.0.0.1"}
    assert os.environ["MASTER_ADDR"] == "elsewhere"


@pytest.mark.parametrize("code", [0, 1])
def test_other_ranks_say_nothing_and_end_as_rank_0_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, code: int
) -> None:
    fake(monkeypatch).others = code
    for name, value in (("RANK", "3"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "elsewhere")):
        monkeypatch.setenv(name, value)
    for options in ([], ["--init-only"]):
        assert command("--eager-init", "--json", str(tmp_path / "rows.jsonl"), *options) == code
    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_run_that_waits_for_its_store_is_not_called_stored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch).journals = (Path("waiting.sqlite"),)
    assert command() == 1
    assert "kept in the journal waiting.sqlite" in capsys.readouterr().err


def test_init_only_connects_the_ranks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = fake(monkeypatch)
    assert command("--init-only") == 0
    assert [case.op for case in run.cases] == ["barrier"]
    assert capsys.readouterr().out == "2 ranks are connected through gloo\n"
    fake(monkeypatch, of=lambda case: record(case, [[1.0]], "timeout", "nobody came"))
    assert command("--init-only") == 1
    assert capsys.readouterr().out == "--init-only: timeout: nobody came\n"


@pytest.mark.parametrize(
    ("done", "told"), [(0, "interrupted before the first record: nothing was stored"), (1, "stored as run 20260101-")]
)
def test_an_interrupt_is_no_traceback_and_says_what_is_stored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], done: int, told: str
) -> None:
    fake(monkeypatch).stops_after = done
    assert command() == 130
    assert told in capsys.readouterr().err


def test_an_interrupted_run_that_waits_for_its_store_is_not_called_stored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], waiting: Path
) -> None:
    fake(monkeypatch).stops_after = 1
    assert command() == 130
    err = capsys.readouterr().err
    assert f"kept in the journal {waiting}, not yet in " in err
    assert "stored as run" not in err


def test_a_mistake_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = fake(monkeypatch)
    with pytest.raises(UserError, match="no collective named"):
        command("--collective", "nothing", "--json", str(tmp_path / "rows.jsonl"))
    assert not run.asked
    assert not (tmp_path / "rows.jsonl").exists()


def test_no_ranks_are_a_mistake_and_not_the_usual_number(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    with pytest.raises(UserError, match="--ranks: expected a whole number from 1 to 65536, got 0"):
        main(["--device", "cpu", "--ranks", "0"])


def test_it_is_a_command_of_opmark_param(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake(monkeypatch)
    assert param(["comms", "--device", "cpu", "--ranks", "2", "--ss", "8"]) == 0
    assert names(capsys.readouterr().out) == ["COMMS-RES", "COMMS-RES-all_reduce-float32"]


@pytest.mark.slow
def test_end_to_end_with_two_ranks_of_gloo(tmp_path: Path) -> None:
    """Every collective and a pair run in real processes."""
    for options, count in ((["--collective", ",".join(COLLECTIVES), "--z", "1"], 17), (["--pt2pt", "one2one"], 1)):
        path = tmp_path / "rows.jsonl"
        ended = subprocess.run(
            [
                sys.executable, "-m", "opmark", "param", "comms", "--device", "cpu", "--ranks", "2", "--ss", "1K",
                "--n", "3", "--w", "1", "--window", "4", "--json", str(path), "--db", str(tmp_path / "runs.db"),
                *options,
            ],
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert {row["collective"]: row["reason"] for row in rows if row.get("status", "ok") != "ok"} == {}
        assert (ended.returncode, ended.stderr) == (0, "")
        assert len(rows) == len([line for line in ended.stdout.splitlines() if "COMMS-RES-" in line]) == count
        for row in rows:
            for part in row.get("parts", {"all": row}).values():
                assert part["verified"] == "full"
                assert [len(own) for own in part["by_rank_us"]] == [3, 3]
                assert part["samples_us"] == [max(pair) for pair in zip(*part["by_rank_us"], strict=True)]


@pytest.mark.slow
def test_end_to_end_under_a_launcher(tmp_path: Path, start_process: Callable[..., Any]) -> None:
    """Two processes have a launcher's variables; rank 0 has the table, the file and the store."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    both = [
        start_process(
            sys.executable, "-m", "opmark", "param", "comms", "--device", "cpu", "--ss", "1K", "--z", "1", "--json",
            str(tmp_path / f"{rank}.jsonl"), "--db", str(tmp_path / f"{rank}.db"), "--master-port", port,
            env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"},
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert names(said[0][0]) == ["COMMS-RES", "COMMS-RES-all_reduce-float32"]
    assert said[1][0] == ""
    (row,) = (json.loads(line) for line in (tmp_path / "0.jsonl").read_text().splitlines())
    assert (row["ranks"], row["status"], len(row["by_rank_us"])) == (2, "ok", 2)
    assert {path.name for path in tmp_path.glob("[01].*")} >= {"0.jsonl", "0.db"}
    assert not list(tmp_path.glob("1.*"))
