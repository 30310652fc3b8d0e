"""Configs from Python, and results as objects."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from param_runs import ADD, IDS, THREE, op, tensor

from opmark.errors import UnknownName, UserError
from opmark.interop import param as library
from opmark.interop.param.library import create_bench_config, create_op_args, create_type, run_config
from opmark.interop.param.results import CaseResult
from opmark.schema import Workload


def test_the_stable_names() -> None:
    assert {name: callable(getattr(library, name)) for name in library.__all__} == dict.fromkeys(library.__all__, True)
    with pytest.raises(AttributeError):
        library.nothing  # noqa: B018


def test_the_names_are_found_before_they_are_loaded() -> None:
    assert set(library.__all__) <= set(dir(library))


def test_a_result_is_short_to_look_at() -> None:
    (result,) = run_config(ADD, device="null", iteration=3)
    assert re.fullmatch(r"<torch\.add\|0\|0\|0: ok, forward [\d.]+ µs>", repr(result))
    (listed,) = run_config(ADD, device="null", warmup=0, iteration=0)
    assert repr(listed) == "<torch.add|0|0|0: not run>"


def test_results_come_in_the_order_of_the_config_and_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[CaseResult] = []
    results = run_config(THREE, device="null", warmup=2, iteration=5, on_result=told.append)
    assert [result.op_run_id for result in results] == IDS
    assert told == results
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    first = results[0]
    assert (first.op_name, first.id, first.status, first.error) == ("torch.add", "0|0|0", "ok", None)
    assert len(first.metric["forward"]["measure.time"]) == 5
    assert first.forward_ms == sorted(first.metric["forward"]["measure.time"])[2]
    assert first.backward_ms is None
    assert first.records[0].task.case.op == "torch.add"
    assert first.line["op_name"] == "torch.add"


def test_a_config_with_param_s_own_helpers() -> None:
    config = create_bench_config("torch.mm")
    left, right = create_type("tensor"), create_type("tensor")
    left["shape"], right["shape"] = [4, 8], [8, 2]
    config["torch.mm"]["config"][0]["input"].append(create_op_args([left, right], {}))
    (result,) = run_config(config, device="null")
    assert result.config["input"]["args"] == [tensor(4, 8), tensor(8, 2)]
    assert create_type("tensor") is not create_type("tensor")
    assert create_type("int_range") == {"type": "int", "value_range": None}
    with pytest.raises(UnknownName, match="tensr"):
        create_type("tensr")


def test_a_part_of_it_can_be_run() -> None:
    (result,) = run_config(THREE, device="null", resume_id=IDS[1], stop_id=IDS[2])
    assert result.op_run_id == IDS[1]


def test_a_problem_is_reported_or_with_strict_an_error() -> None:
    said: list[str] = []
    config = {**ADD, "torch.mm": {"config": [{"input": [{"args": [{"type": "tensr"}]}]}]}}
    assert len(run_config(config, device="null", say=said.append)) == 1
    assert any("tensr" in line for line in said)
    with pytest.raises(UserError):
        run_config(config, device="null", strict=True)


def test_nothing_but_mistakes_is_an_error() -> None:
    with pytest.raises(UserError):
        run_config({"torch.mm": op([{"type": "tensr"}])}, device="null")


@pytest.mark.parametrize("config", [None, 5, Workload])
def test_something_else_than_a_config_or_a_path_is_the_users_mistake(config: Any) -> None:
    with pytest.raises(UserError):
        run_config(config, device="null")
