"""Nsight Compute: its command line, and what its CSV says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opmark.plugin import Watched
from opmark.runner.profilers.ncu import METRICS, NCU

RANGES = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
TALK = "==PROF== Connected to process 543 (/usr/bin/python3.12)\n"
HEADER = f'"ID","{RANGES}","Kernel Name","Grid Size","device__attribute_x","dram__bytes.sum","gpu__time_duration.sum"\n'
UNITS = '"","","","","","byte","ns"\n'
OPENED = '"543  ""<default domain>:{}:none:none:none:none:none:none"" "'


def line(number: int, opened: str, kernel: str = "work<int, 3>", nbytes: str = "1,069,056", ns: str = "2,688") -> str:
    return f'"{number}",{OPENED.format(opened)},"{kernel}","(8, 8, 4)","9","{nbytes}","{ns}"\n'


def write(tmp_path: Path, text: str) -> Path:
    stem = tmp_path / "x.ncu"
    NCU.file(stem).write_text(text)
    return stem


def watched(binary: str, *args: str, ranges: tuple[str, ...] = ("opmark_0", "opmark_1")) -> Watched:
    return Watched(["python", "program"], ranges, Path("/tmp/x.ncu"), binary, args)


# Reading.


def test_metrics_are_numbers_with_their_unit_by_range_in_the_order_launched(tmp_path: Path) -> None:
    text = TALK + HEADER + UNITS + line(1, "opmark_1") + line(2, "opmark_0", "first") + line(3, "opmark_0", "second")
    found = NCU.read(write(tmp_path, text), ["opmark_0", "opmark_1"])
    assert [kernel.name for kernel in found["opmark_0"]] == ["first", "second"]
    (kernel,) = found["opmark_1"]
    assert kernel.name == "work<int, 3>"
    assert kernel.metrics == {
        "grid size": "(8, 8, 4)",
        "dram__bytes.sum [byte]": 1069056.0,
        "gpu__time_duration.sum [ns]": 2688.0,
    }


def test_a_range_is_not_taken_for_another_whose_name_it_begins(tmp_path: Path) -> None:
    text = HEADER + UNITS + line(1, "opmark_12") + line(2, "opmark_1")
    found = NCU.read(write(tmp_path, text), [f"opmark_{i}" for i in range(20)])
    assert {name: len(kernels) for name, kernels in found.items()} == {"opmark_12": 1, "opmark_1": 1}


def test_what_ran_outside_of_the_ranges_is_left_out(tmp_path: Path) -> None:
    text = HEADER + UNITS + line(1, "somebody_else") + '"2","","fill","","9","1","1"\n'
    assert NCU.read(write(tmp_path, text), ["opmark_0"]) == {}


def test_a_range_of_a_nested_stack_is_found(tmp_path: Path) -> None:
    opened = '"543  ""<default domain>:outer:none:none:none:none:none:none"" ""<default domain>:opmark_0:none:none"" "'
    text = HEADER + UNITS + f'"1",{opened},"work","","9","1","0.25"\n'
    (kernel,) = NCU.read(write(tmp_path, text), ["opmark_0"])["opmark_0"]
    assert kernel.metrics["gpu__time_duration.sum [ns]"] == 0.25


def test_words_and_missing_values_stay_what_they_are(tmp_path: Path) -> None:
    text = HEADER + UNITS + line(1, "opmark_0", nbytes="n/a", ns="")
    (kernel,) = NCU.read(write(tmp_path, text), ["opmark_0"])["opmark_0"]
    assert kernel.metrics == {"grid size": "(8, 8, 4)", "dram__bytes.sum [byte]": "n/a"}


def test_a_page_with_a_line_for_each_metric_says_the_same(tmp_path: Path) -> None:
    header = f'"ID","Process ID","{RANGES}","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    start = f'"0","5",{OPENED.format("opmark_0")},"work","Speed"'
    text = header + f'{start},"Duration","us","2.69"\n' + f'{start},"SM Busy","%","12.5"\n' + f'{start},"Note","","x"\n'
    (kernel,) = NCU.read(write(tmp_path, text), ["opmark_0"])["opmark_0"]
    assert kernel.metrics == {"Duration [us]": 2.69, "SM Busy [%]": 12.5, "Note": "x"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no table of kernels"),
        ("==WARNING== No kernels were profiled.\n", "it says: ==WARNING== No kernels were profiled."),
        ("==ERROR== ERR_NVGPUCTRPERM - no permission\n", "ERR_NVGPUCTRPERM"),
        (HEADER + UNITS + line(1, "opmark_0") + '"2","', "breaks off"),
        ('"ID","Kernel Name"\n"",""\n', "no column of NVTX ranges"),
        (HEADER + line(1, "opmark_0"), "line of units"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        NCU.read(write(tmp_path, text), ["opmark_0"])


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        NCU.read(tmp_path / "nothing", ["opmark_0"])


# Its command line.


def test_only_the_ranges_are_replayed_and_the_csv_goes_to_its_file(fake: Callable[[str], str]) -> None:
    binary = fake("ncu")
    command = NCU.command(watched(binary))
    assert command[0] == binary
    assert command[-2:] == ["python", "program"]
    assert [command[i + 1] for i, word in enumerate(command) if word == "--nvtx-include"] == ["opmark_0/", "opmark_1/"]
    assert command[command.index("--log-file") + 1] == "/tmp/x.ncu.csv"
    assert command[command.index("--metrics") + 1] == ",".join(METRICS)
    assert {"--csv", "--nvtx"} <= set(command)


@pytest.mark.parametrize("args", [("--set", "full"), ("--metrics=dram__bytes.sum",), ("--section", "SpeedOfLight")])
def test_metrics_of_the_user_take_the_place_of_ours(fake: Callable[[str], str], args: tuple[str, ...]) -> None:
    command = NCU.command(watched(fake("ncu"), *args))
    assert ",".join(METRICS) not in command
    assert command[-2 - len(args) : -2] == list(args)


def test_no_option_is_given_twice(fake: Callable[[str], str]) -> None:
    args = ("--page", "details", "--print-units=auto", "--nvtx-include", "mine/", "--nvtx")
    words = [word.partition("=")[0] for word in NCU.command(watched(fake("ncu"), *args))]
    assert [words.count(option) for option in ("--page", "--print-units", "--nvtx-include", "--nvtx")] == [1, 1, 1, 1]


def test_it_is_found_on_the_path(fake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    binary = Path(fake("ncu"))
    monkeypatch.setenv("PATH", str(binary.parent))
    assert NCU.command(watched(""))[0] == str(binary)


def test_where_it_is_not_installed_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("opmark.runner.profilers.ncu.FOLDERS", (str(tmp_path),))
    with pytest.raises(FileNotFoundError, match="ncu is neither on PATH nor in"):
        NCU.command(watched(""))
    with pytest.raises(FileNotFoundError, match="no program /no/ncu can be run"):
        NCU.command(watched("/no/ncu"))
