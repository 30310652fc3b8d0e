"""opmark param driver: PARAM's older standalone, with its data sets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from opmark.api.show import show
from opmark.errors import UserError
from opmark.interop.param import driver
from opmark.interop.param.command import main
from opmark.schema import Record


def test_the_data_sets_are_those_of_param() -> None:
    assert {name: len(points) for name, points in driver.GEMM.items()} == {"A": 15, "B": 20, "C": 4}
    assert driver.GEMM["A"][:5] == [
        (128, 4096, 4096), (256, 4096, 4096), (512, 4096, 4096), (1024, 4096, 4096), (128, 1024, 1024),
    ]  # fmt: skip
    assert (driver.GEMM["A"][-1], driver.GEMM["B"][0]) == ((1024, 1024, 512), (128, 4096, 40928))
    assert (driver.GEMM["B"][12], driver.GEMM["B"][-1]) == ((1024, 2000, 128), (4096, 40928, 1024))
    assert {name: len(points) for name, points in driver.EMBEDDINGS.items()} == {"A": 16, "B": 6}
    assert driver.EMBEDDINGS["A"][8] == (26_000_000, 128, 30, 512)
    assert driver.EMBEDDINGS["B"][-1] == (4_800_000, 56, 34, 65536)
    assert (len(driver.LINEAR["A"]), driver.LINEAR["A"][-1]) == (12, (18, 4096, 4096, 4096, 4096))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(driver.GEMM, "C", [(16, 8, 4), (32, 8, 4)])
    monkeypatch.setitem(driver.EMBEDDINGS, "B", [(100, 8, 3, 16)])
    monkeypatch.setitem(driver.LINEAR, "A", [(2, 8, 16, 4, 32)])
    monkeypatch.setenv("OPMARK_DB", str(tmp_path / "x.db"))
    pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("kernel", "row"),
    [
        (["gemm", "--dataset", "C"], r" +16, +8, +4, +\d+\.\d{6} +\d+\.\d{3}"),
        (["gemm", "-d", "C", "-t", "bfloat16"], r" +32, +8, +4, +\d+\.\d{6} +\d+\.\d{3}"),
        (["emb", "-d", "B", "--alpha", "1.1"], r" +100, +8, +3, +16, +\d+\.\d{6}, +0\.0, +\d+\.\d{3}"),
        (["linear"], r" +4, +8, +16, +4, +32, +\d+\.\d{6}, +\d+\.\d, +\d+\.\d{3}"),
        (["linear", "--fw-only"], r" +4, +8, +16, +4, +32, +\d+\.\d{6}, +\d+\.\d, +\d+\.\d{3}"),
        (["linear", "--optimizer-type", "adagrad"], r" +4, .*"),
    ],
)
def test_a_kernel_prints_its_table(
    small: None, kernel: list[str], row: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["driver", "--warmups", "1", "--steps", "3", "--device", "cpu", "--threads", "1", *kernel]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert re.search(rf"^{row}$", out, re.MULTILINE), out
    assert f"Measuring the performance of {kernel[0]} on device = cpu" in out
    assert "Steps = 3  warmups = 1" in out


def test_a_run_that_waits_for_its_store_is_not_called_stored(
    small: None, waiting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["driver", "--warmups", "1", "--steps", "3", "--device", "cpu", "gemm", "-d", "C"]) == 1
    out = capsys.readouterr().out
    assert f"kept in the journal {waiting}" in out
    assert "stored as" not in out


def test_a_training_step_learns(small: None) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    step = driver.LinearTraining([8, 16, 4], "float32", "train", "sgd")
    data, target = torch.rand(64, 8), torch.randint(4, (64,))
    before = [one.detach().clone() for one in step.parameters()]
    step(data, target)
    assert any(not torch.equal(one, now) for one, now in zip(before, step.parameters(), strict=True))
    fixed = driver.LinearTraining([8, 16, 4], "float32", "train", "")
    before = [one.detach().clone() for one in fixed.parameters()]
    fixed(data, target)
    assert all(torch.equal(one, now) for one, now in zip(before, fixed.parameters(), strict=True))
    assert driver.LinearTraining([8, 4], "float32", "", "sgd")(data, target).shape == (64, 4)


def test_a_point_that_fails_is_a_line(
    small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(driver.EMBEDDINGS, "B", [(2_000_000_000, 4096, 3, 16), (100, 8, 3, 16)])
    assert main(["driver", "--warmups", "1", "--steps", "2", "--device", "cpu", "emb", "-d", "B"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^2000000000, 4096, 3, 16: oom: ", out, re.MULTILINE), out
    assert re.search(r"^ +100, ", out, re.MULTILINE)


def test_a_point_that_no_worker_was_there_to_try_is_called_so(
    small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = driver._DriverRows.add

    def add(self: driver._DriverRows, record: Record) -> None:
        usual(self, replace(record, status="killed", reason="no worker", untried=True, measurements=()))

    monkeypatch.setattr(driver._DriverRows, "add", add)
    assert main(["driver", "--warmups", "1", "--steps", "2", "--device", "cpu", "emb", "-d", "B"]) == 1
    assert "\n100, 8, 3, 16: not tried: no worker\n" in capsys.readouterr().out


def test_each_row_is_printed_as_it_is_measured(
    small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    usual = driver._DriverRows.add

    def add(self: driver._DriverRows, record: Record) -> None:
        usual(self, record)
        seen.append(capsys.readouterr().out)

    monkeypatch.setattr(driver._DriverRows, "add", add)
    assert main(["driver", "--warmups", "1", "--steps", "3", "--device", "cpu", "gemm", "-d", "C"]) == 0
    assert re.search(r"^ +(16|32), +8, +4, .*$", seen[0], re.MULTILINE), seen
    assert re.fullmatch(r" +(16|32), +8, +4, .*\n", seen[1]), seen


@pytest.mark.parametrize("records", [0, 1])
def test_an_interruption_says_what_is_stored(
    records: int, small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = driver._DriverRows.add

    def add(self: driver._DriverRows, record: Record) -> None:
        usual(self, record)
        raise KeyboardInterrupt

    def start(self: driver._DriverRows, *_: object) -> None:
        raise KeyboardInterrupt

    name, stop = ("add", add) if records else ("start", start)
    monkeypatch.setattr(driver._DriverRows, name, stop)
    assert main(["driver", "--warmups", "1", "--steps", "3", "--device", "cpu", "gemm", "-d", "C"]) == 130
    err = capsys.readouterr().err
    if records:
        assert re.search(rf"^interrupted\nstored as run {show().run.id} in ", err, re.MULTILINE), err
        assert len(show().records) == 1
    else:
        assert "interrupted before the first record: nothing was stored" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--device", "tpu", "gemm"], "tpu"), (["--device", "cpu", "--steps", "0", "gemm"], "steps")],
)
def test_what_it_cannot_do_is_said(arguments: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        main(["driver", *arguments])
