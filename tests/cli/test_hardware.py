"""opmark list hardware, describe CHIP, import of hardware files"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opmark.hardware.datasheets import ENVIRONMENT, datasheets, read_sheet

Command = Callable[..., Any]

ZOO = {
    "SKU参数": {"厂商": "Fast", "型号": "F1"},
    "内存参数": {"内存": {"内存带宽(GB/s)": 1000}},
    "算力参数": {"张量参数": {"FP16张量算力(TFLOPS)": 100}},
}


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    path = tmp_path / "F1.json"
    path.write_text(json.dumps(ZOO))
    return path


def test_every_chip_is_listed_with_its_source(main: Command) -> None:
    head, *rows = main("list", "hardware").out.splitlines()
    assert head.split() == ["chip", "vendor", "memory", "float32", "16", "bits", "source"]
    assert len(rows) == len(datasheets()) >= 25
    (row,) = (row for row in rows if row.startswith("NVIDIA H200 "))
    assert " ".join(row.split()) == (
        "NVIDIA H200 NVIDIA 4.80 TB/s 67.0 TFLOP/s 990 TFLOP/s NVIDIA H200 Tensor Core GPU datasheet (SXM)"
    )


def test_as_data_a_chip_has_all_that_is_known(main: Command) -> None:
    chips = {chip["chip"]: chip for chip in main("list", "hardware", "--json").objects}
    assert chips["NVIDIA H200"]["flops"]["bfloat16"] == 989.5e12
    assert chips["NVIDIA H200"]["interconnect"] == [
        {"name": "NVLink 4", "bandwidth": 4.5e11, "links": 18},
        {"name": "PCIe Gen5 x16", "bandwidth": 6.3e10},
    ]


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA H200 SXM"])
def test_a_chip_is_described_by_each_of_its_names(main: Command, name: str) -> None:
    done = main("describe", name)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("NVIDIA H200 (NVIDIA)\n")
    (chip,) = main("describe", name, "--json").objects
    assert chip["chip"] == "NVIDIA H200"


@pytest.mark.parametrize("name", ["K80", "k80", "tesla k80"])
def test_words_that_only_one_chip_has_are_enough(main: Command, name: str) -> None:
    done = main("describe", name)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Tesla K80 (NVIDIA)\n")


def test_a_name_like_nothing_leads_to_the_chips_too(main: Command) -> None:
    assert "`opmark list chips`" in main("describe", "K8000").line("hint:")


def test_a_chip_that_is_nearly_named_is_a_hint(main: Command) -> None:
    done = main("describe", "NVIDIA H100 PCI")
    assert done.code == 2
    assert "did you mean `NVIDIA H100 PCIe`?" in done.err


def test_chips_that_hold_the_name_are_a_hint(main: Command) -> None:
    done = main("describe", "h100")
    assert done.code == 2
    chips = [peaks.chip for peaks in datasheets() if "H100" in peaks.chip]
    assert len(chips) > 1
    assert f"chips: {', '.join(chips)}" in done.err


def test_a_file_of_vendor_zoo_says_how_it_is_converted(
    main: Command, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(zoo))
    done = main("list", "hardware")
    assert done.code == 2
    assert "vendor_zoo" in done.line("error:")
    assert f"`opmark import {zoo} -o mine.yaml` converts it" in done.line("hint:")


def test_an_imported_file_is_printed_and_can_be_used(
    main: Command, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = main("import", str(zoo))
    assert done.code == 0
    assert "1 chip of vendor-zoo" in done.err
    assert [peaks.chip for peaks in read_sheet(done.out, "printed").chips] == ["Fast F1"]
    assert main("import", str(zoo), "-o", str(tmp_path / "out" / "f1.yaml")).code == 0
    assert (tmp_path / "out" / "f1.yaml").read_text() == done.out
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "out"))
    assert main("describe", "Fast F1").out.startswith("Fast F1 (Fast)")


def test_it_is_also_data(main: Command, zoo: Path) -> None:
    (whole,) = main("import", str(zoo), "--json").objects
    assert whole["chips"][0]["levels"] == [{"name": "memory", "bandwidth": 1e12}]


def test_a_field_that_cannot_be_read_is_a_problem_and_strict_stops(main: Command, zoo: Path) -> None:
    zoo.write_text(json.dumps({**ZOO, "硬件参数": {"功耗(W/TDP)": -1}}))
    done = main("import", str(zoo))
    assert done.code == 1
    assert "功耗(W/TDP): expected a number above 0, got -1" in done.err
    assert "1 part not imported" in done.err
    assert main("import", str(zoo), "--strict").code == 2


def test_running_it_is_a_mistake(main: Command, zoo: Path) -> None:
    done = main("run", "-w", str(zoo), "--dry-run")
    assert done.code == 2
    assert "a hardware file, no workload" in done.err


def test_workloads_and_hardware_go_into_different_files(main: Command, zoo: Path) -> None:
    (zoo.parent / "w.yaml").write_text("schema: 1\nname: w\ncases: [{op: exp, params: {shape: [[8]]}}]\n")
    done = main("import", str(zoo.parent))
    assert done.code == 2
    assert "holds both workloads and hardware" in done.err


def test_a_broken_file_of_ones_own_is_named_by_whatever_needs_it(
    main: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text("schema: 1\nchips: [{chip: Mine}]\n")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "mine.yaml"))
    done = main("list", "hardware")
    assert done.code == 2
    assert "mine.yaml: object missing required field `source`" in done.err
