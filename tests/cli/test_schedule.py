"""`opmark schedule` without a framework: tables of devices, saved schedules, and messages for what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import opmark
from opmark.api.schedule import read_saved
from opmark.errors import InvalidFile, UserError
from opmark.prediction.optimum import why_no_solver

Command = Callable[..., Any]
TABLE: dict[str, Any] = {
    "program": "model:made-up",
    "operators": [
        {"name": "embed", "seconds": {"cpu": 1e-3, "npu": 4e-3}, "nbytes": 1_000_000},
        {"name": "tower a", "seconds": {"cpu": 6e-3, "npu": 1e-3}, "needs": [0], "nbytes": 4000},
        {"name": "tower b", "seconds": {"cpu": 5e-3, "npu": 2e-3}, "needs": [0], "nbytes": 4000},
        {"name": "join", "seconds": {"cpu": 1e-3, "npu": 1e-3}, "needs": [1, 2]},
    ],
    "transfers": {"cpu>npu": {"seconds": 1e-5, "bandwidth": 1e10}, "npu>cpu": {"seconds": 1e-5, "bandwidth": 1e10}},
}


def write(path: Path, document: Any) -> Path:
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def test_a_table_of_devices_is_scheduled_without_them(main: Command, tmp_path: Path) -> None:
    done = main("schedule", str(write(tmp_path / "times.yaml", TABLE)))
    assert done.code == 0
    assert "equilibrium" in done.out
    assert "predicted, not run" in done.err
    found = opmark.schedule(str(tmp_path / "times.yaml"))
    # Everything on the npu takes 8 ms. The embedding belongs on the cpu, and both towers on the npu.
    assert found.sequential is not None
    assert found.sequential.seconds == pytest.approx(8e-3)
    assert found.chosen.method == "equilibrium"
    assert found.chosen.seconds == pytest.approx(1e-3 + 1.1e-4 + 3e-3 + 1e-3, rel=0.01)
    assert found.measured is None


@pytest.mark.skipif(bool(why_no_solver()), reason="there is no solver")
def test_the_price_of_anarchy_is_printed_beside_the_optimum(main: Command, tmp_path: Path) -> None:
    table = {"operators": [{"name": "a", "seconds": {"quick": 1e-3, "slow": 1.9e-3}},
                           {"name": "b", "seconds": {"quick": 2e-3, "slow": 4.5e-3}}]}  # fmt: skip
    (found,) = main("schedule", str(write(tmp_path / "t.yaml", table)), "--json").objects
    assert found["anarchy"] == pytest.approx(1.5, rel=0.01)
    assert found["predictions"][-1]["method"] == "optimum"
    assert "price of anarchy: 1.5" in main("schedule", str(tmp_path / "t.yaml")).out


@pytest.mark.skipif(bool(why_no_solver()), reason="there is no solver")
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e5])
def test_a_chain_goes_to_the_device_that_is_fastest_for_each_operator(tmp_path: Path, scale: float) -> None:
    quick, slow = {"cpu": scale, "npu": 10 * scale}, {"cpu": 10 * scale, "npu": scale}
    table = {"operators": [{"name": "a", "seconds": quick}, {"name": "b", "seconds": slow, "needs": [0]},
                           {"name": "c", "seconds": quick, "needs": [1]}]}  # fmt: skip
    found = opmark.schedule(str(write(tmp_path / "t.yaml", table)))
    seconds = {one.method: one.seconds for one in found.predictions}
    assert seconds == pytest.approx({"sequential": 12 * scale, "equilibrium": 3 * scale, "optimum": 3 * scale})


def test_operators_that_are_joined_because_there_are_many_are_said(tmp_path: Path) -> None:
    chain = [{"name": f"o{i}", "seconds": {"a": 1.0, "b": 2.0}, "needs": [i - 1] if i else []} for i in range(61)]
    found = opmark.schedule(str(write(tmp_path / "t.yaml", {"operators": chain})))
    assert "61 operators are joined into 1 unit, which no schedule takes apart" in " ".join(found.notes)


def test_tables_of_two_machines_are_joined(tmp_path: Path) -> None:
    files = []
    for device in ("cpu", "npu"):
        operators = [{**one, "seconds": {device: one["seconds"][device]}} for one in TABLE["operators"]]
        files.append(str(write(tmp_path / f"{device}.yaml", {**TABLE, "operators": operators})))
    found = opmark.schedule(files)
    assert found.lanes == ("cpu", "npu")
    assert found.chosen.seconds == pytest.approx(opmark.schedule(
        str(write(tmp_path / "both.yaml", TABLE))).chosen.seconds)  # fmt: skip
    alone = opmark.schedule(files, on="npu")
    assert alone.chosen.seconds == pytest.approx(8e-3)
    write(tmp_path / "npu.yaml", {**TABLE, "operators": TABLE["operators"][:3]})
    with pytest.raises(UserError, match="its operators are not those"):
        opmark.schedule(files)
    with pytest.raises(UserError, match="cpu is in"):
        opmark.schedule([files[0], files[0]])


def changed(**more: Any) -> dict[str, Any]:
    return {**TABLE, **more}


CYCLE = [{"name": "a", "seconds": {"cpu": 1e-3}, "needs": [1]}, {"name": "b", "seconds": {"cpu": 1e-3}, "needs": [0]}]


@pytest.mark.parametrize(
    ("document", "on", "message", "hint"),
    [
        (TABLE, "gpu", "no times of gpu: the table has cpu, npu", "--times FILE"),
        (changed(operators=CYCLE), "", "the graph has a cycle: 0 (a), 1 (b) wait for each other", ""),
        (changed(operators=[]), "", "the table has no operators", "--times FILE"),
        (changed(operators=[{"name": "a", "seconds": {"cpu": -1.0}}]), "", "a time is above 0", ""),
        (changed(operators=[{"name": "a", "seconds": {}}]), "", "no time on", ""),
        (changed(operators=[{"name": "a", "seconds": {"cpu": 1.0}, "needs": [3]}]), "", "which does not exist", ""),
        (changed(operators=[{"name": "a", "secs": {"cpu": 1.0}}]), "", "this is no table of times", "docs/schedule.md"),
        (changed(transfers={"cpu-npu": {"seconds": 1.0}}), "", "expected FROM>TO", ""),
        (changed(transfers={"cpu>npu": {"seconds": float("nan")}}), "", "expected FROM>TO", ""),
        (changed(transfers={"cpu>npu": {"seconds": float("inf")}}), "", "expected FROM>TO", ""),
        (changed(transfers={"cpu>npu": {"bandwidth": float("nan")}}), "", "expected FROM>TO", ""),
        (changed(operators=[{"name": "a", "seconds": {"cpu": 1.0}, "nbytes": -5}]), "", "-5 bytes", ""),
        (
            changed(transfers={"cpu>nqu": {"seconds": 1.0}}),
            "",
            "transfer `cpu>nqu`: no operator has a time on nqu",
            "cpu",
        ),
        ("text", "", "this is no table of times", "docs/schedule.md"),
    ],
)
def test_a_bad_table_is_refused_by_name(
    main: Command, tmp_path: Path, document: Any, on: str, message: str, hint: str
) -> None:
    done = main("schedule", str(write(tmp_path / "t.yaml", document)), *(("--on", on) if on else ()))
    assert done.code == 2
    assert message in done.err
    assert hint in done.err


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ((), "expected a program", "opmark schedule model:inception_v3"),
        (("model:two-towers", "--method", "magic"), "--method: expected best, sequential", ""),
        (("nothing.yaml",), "there is no file nothing.yaml", "--times FILE"),
        (("nothing.json",), "there is no file nothing.json", "--save FILE"),
        (("nothing.json", "-p", "batch=3"), "-p goes with a model or a trace", "leave -p out"),
        (("model:two-towers", "model:dlrm"), "expected one program, got 2", ""),
        (("model:two-towerz",), "two-towers", ""),
        (("trace:nothing.json",), "nothing.json: there is no such file", ""),
        (("model:two-towers", "--on", "cpu:1,cuda"), "`cuda` is no share of the cores", "--times FILE"),
        (("model:two-towers", "--on", "cpu:1,cpu:99", "--threads", "2"), "100 cores, and there are 2", ""),
        (("model:two-towers", "--on", "cuda"), "torch-cuda cannot run here", "--times FILE"),
        (("model:two-towers", "--search", "soon"), "search: expected a duration", "as in --search 90s"),
    ],
)
def test_a_mistake_is_answered_with_what_to_type(
    main: Command, arguments: tuple[str, ...], message: str, hint: str
) -> None:
    if "cuda" in arguments and pytest.importorskip("torch").cuda.is_available():
        pytest.skip("there is a GPU")
    done = main("schedule", *arguments)
    assert done.code == 2
    assert message in done.err
    assert hint in done.err


@pytest.mark.parametrize("text", ["", "[]", '{"opmark": "schedule"}', '{"schema": "1.1.1-chakra"}'])
def test_what_is_no_saved_schedule_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "saved.json"
    file.write_text(text)
    with pytest.raises(InvalidFile, match="no saved schedule") as refused:
        read_saved(file)
    assert "trace:" in str(refused.value.hint)


def test_a_schedule_over_devices_of_a_table_is_neither_saved_nor_compiled(tmp_path: Path) -> None:
    found = opmark.schedule(str(write(tmp_path / "t.yaml", TABLE)))
    with pytest.raises(UserError, match="cannot be run or saved"):
        found.save(tmp_path / "out.json")
    with pytest.raises(UserError, match="cannot be run or saved"):
        found.compile()


@pytest.mark.parametrize(
    "option",
    ["--size small", "--threads 2", "--save out", "--times out", "--predict here", "--slowdowns", "--search 5s",
     "--effort standard"],
)  # fmt: skip
def test_an_option_that_a_table_cannot_use_is_refused(main: Command, tmp_path: Path, option: str) -> None:
    table = str(write(tmp_path / "t.yaml", TABLE))
    done = main("schedule", table, *option.split())
    assert done.code == 2
    assert f"{option.split()[0]}: a table has times of its own" in done.err
    assert "`opmark schedule model:NAME" in done.err
    assert main("schedule", table, "--no-run", "--on", "npu", "--method", "sequential").code == 0


def test_a_table_has_no_schedule_in_stages(main: Command, tmp_path: Path) -> None:
    done = main("schedule", str(write(tmp_path / "t.yaml", TABLE)), "--method", "stages")
    assert done.code == 2
    assert "no stages: they share resources" in done.err


def test_a_table_in_json_objects_is_yaml_too(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(json.dumps(TABLE))
    assert opmark.schedule(str(file)).chosen.method == "equilibrium"
