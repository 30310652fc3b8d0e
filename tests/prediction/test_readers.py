"""Tables of measured operators become samples; what is wrong with one is said with file and line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from opmark.errors import InvalidFile, UserError
from opmark.prediction.readers import drift_of, find_chip, read_tables, tables_in, without_drift
from opmark.prediction.samples import CallSizes, ChipFigures, samples_of


def table(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_tables_of_all_kinds_are_read(tmp_path: Path) -> None:
    linear = table(tmp_path / "linear.csv.gz", "device,B,M,N,K,ms\nP4,1,128,64,32,0.05\n")
    batched = table(tmp_path / "bmm.csv", "device,B,M,N,K,ms\nT4,4,128,64,32,0.05\n")
    conv = table(
        tmp_path / "conv.csv",
        "device,B,in_channels,out_channels,kernel,image,stride,padding,ms\nP4,2,3,8,3,10,1,1,0.2\n",
    )
    rows = table(
        tmp_path / "rows.csv", "op,device,rows,columns,ms\nadd,P4,8,16,0.03\naddu,P4,8,16,0.03\nrelu,P4,8,16,0.03\n"
    )
    samples = read_tables([linear, batched, conv, rows])
    assert list(samples.operator) == ["linear", "batched_matmul", "conv2d", "add", "add y=scalar", "relu"]
    assert samples.flops[0] == 2 * 128 * 64 * 32
    assert samples.flops[2] == 2 * (2 * 10 * 10) * 8 * 27
    assert list(samples.nbytes[3:]) == [4 * 128 * 3, 4 * 128 * 2, 4 * 128 * 2]
    assert samples.device[0] == "Tesla P4"
    assert samples.seconds[0] == pytest.approx(5e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [("device,B,M,N,K,ms\nP4,1,128,64,x,0.05\n", r":2: .*'x'"), ("device,B,M,N,K,ms\nP4,1,1,1,1,-1\n", "time of -1"),
     ("a,b\n1,2\n", "has the columns a, b"), ("device,B,M,N,K,ms\nP4,1,128\n", ":2: .*''"),
     ("device,B,M,N,K,ms\nP4,1,128,64,32,0,05\n", ":2: more values than columns"),
     ("device,B,M,N,K,ms\nP4,1,-128,64,32,0.05\n", ":2: a size that is not above 0"),
     ("op,device,rows,columns,ms\nadd,P4,0,16,0.03\n", ":2: a size that is not above 0")],
)  # fmt: skip
def test_a_broken_table_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidFile, match=message):
        read_tables([table(tmp_path / "broken.csv", text)])


def test_a_table_whose_compression_is_broken_is_named(tmp_path: Path) -> None:
    rows = "".join(f"P4,1,{size},64,{7 * size},{size / 999}\n" for size in range(1, 999))
    path = table(tmp_path / "broken.csv.gz", f"device,B,M,N,K,ms\n{rows}")
    data = bytearray(path.read_bytes())
    data[600:700] = b"x" * 100
    path.write_bytes(data)
    with pytest.raises(InvalidFile, match="is not a table"):
        read_tables([path])


def test_a_table_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    path = table(tmp_path / "linear.csv", "\ufeffdevice,B,M,N,K,ms\nP4,1,128,64,32,0.05\n")
    assert list(read_tables([path]).m) == [128]


def test_an_unknown_device_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no datasheet for the device `Fast 9000`"):
        read_tables([table(tmp_path / "t.csv", "device,B,M,N,K,ms\nFast 9000,1,1,1,1,1\n")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"has no \.csv"):
        tables_in(tmp_path / "empty")


@pytest.mark.parametrize(
    ("name", "chip"),
    [("P4", "Tesla P4"), ("T4", "Tesla T4"), ("V100-PCIE-32GB", "Tesla V100-PCIE-32GB"), ("L4", "NVIDIA L4"),
     ("A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB"), ("H100", "NVIDIA H100 80GB HBM3"), ("RTX A6000", "NVIDIA RTX A6000")],
)  # fmt: skip
def test_chips_are_found_by_short_names(name: str, chip: str) -> None:
    found = find_chip(name)
    assert found is not None
    assert found.chip == chip
    assert found.multiprocessors
    assert found.process
    assert found.clock
    assert found.power


@pytest.mark.parametrize("name", ["Tesla", "NVIDIA", ""])
def test_the_name_of_a_maker_is_no_part_of_the_name_of_one_chip(name: str) -> None:
    assert find_chip(name) is None


def test_the_drift_of_a_session_is_found_and_removed(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    generator = np.random.default_rng(0)
    lines = ["op,device,rows,columns,ms"]
    for number in range(1500):
        rows, columns = (2 ** generator.uniform(5, 11, 2)).astype(int)
        lines.append(f"relu,P4,{rows},{columns},{0.03 + rows * columns * 8 / 150e6 + 0.4 * number / 1500}")
    path = table(tmp_path / "rows.csv", "\n".join(lines) + "\n")
    raw = read_tables([path], keep_drift=True)
    said: list[str] = []
    drift = drift_of(raw, said.append)
    assert len(said) == 1
    assert drift[0] == 0
    assert drift[-1] == pytest.approx(4e-4, rel=0.25)
    steady = read_tables([path], say=said.append)
    true = 3e-5 + steady.nbytes / 150e9
    assert np.median(np.abs(steady.seconds / true - 1)) < 0.15
    assert not drift_of(steady, said.append).any()


def test_calls_that_are_mostly_drift_are_left_out_and_said() -> None:
    calls = [CallSizes("relu", 1, 64, 64, 1, 4096.0, 32768.0)] * 3
    chips = {"a": ChipFigures("a", 1e13, 1e12, 80, 4e6, 250.0, 1.4e9, 12.0)}
    samples = samples_of(calls, ["a"] * 3, [1e-4, 2e-4, 3e-4], chips)
    said: list[str] = []
    steady = without_drift(samples, np.asarray([0.0, 5e-5, 2e-4]), said.append)
    assert list(steady.seconds) == pytest.approx([1e-4, 1.5e-4])
    assert said == ["left out, because they are mostly drift: 1 call"]


def test_a_convolution_that_is_faster_than_its_direct_operations_allow_stays_as_it_was_measured() -> None:
    """Winograd's way needs fewer operations: of the convolutions that NeuSight measured, up to 40 % of a GPU's."""
    calls = [CallSizes("conv2d", 1, 1024, 512, 9 * 512.0, 1e9, 1e6, 32, 512, stride=stride) for stride in (1, 2)]
    chips = {"a": ChipFigures("a", 1e13, 1e12, 80, 4e6, 250.0, 1.4e9, 12.0)}
    samples = samples_of(calls, ["a"] * 2, [5e-5, 1.2e-4], chips)
    assert list(samples.roofline) == pytest.approx([1e-4, 1e-4])
    assert list(samples.bound) == pytest.approx([2.5e-5, 1e-4])
    steady = without_drift(samples, np.asarray([1e-5, 1e-5]))
    assert list(steady.seconds) == pytest.approx([4e-5, 1.1e-4])
