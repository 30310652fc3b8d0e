"""Ranks that have a GPU each: a stranger's backend whose GPUs are in a file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from nvml_fixtures import OTHER, UUID, Driver

import opmark
from opmark.api.result import Result, open_store
from opmark.errors import UserError
from opmark.runner.clocks import FACT

pytestmark = pytest.mark.ranks
Launch = Callable[..., Any]


def measure(tmp_path: Path, ranks: int = 2, **options: Any) -> Result:
    given = {"backend": "two-gpus", "effort": "quick", "retries": 0, "say": lambda text: None, **options}
    return opmark.run("all_reduce", params={"size": 64}, ranks=ranks, db=tmp_path / "store.db", **given)


def facts_of(result: Result) -> dict[str, Any]:
    (record,) = result.records
    assert record.status == "ok", record.reason
    return result.environments[record.environment]


def test_each_rank_has_its_own_gpu_and_the_run_says_which(two_gpus: Driver, tmp_path: Path) -> None:
    result = measure(tmp_path)
    facts = facts_of(result)
    assert (facts["gpu_uuid"], facts["gpu_uuids"]) == (UUID, [UUID, OTHER])
    assert FACT not in facts
    assert two_gpus.calls == []


def test_variables_choose_the_gpus_and_their_order(
    two_gpus: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-{OTHER},GPU-{UUID}")
    assert facts_of(measure(tmp_path))["gpu_uuids"] == [OTHER, UUID]


def test_sensors_are_those_of_the_gpu_of_rank_zero(
    two_gpus: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_gpus.set(OTHER, GetClockInfo={"1": 1111, "2": 3201})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-{OTHER},GPU-{UUID}")
    (record,) = measure(tmp_path).records
    assert {reading.clock for m in record.measurements for reading in m.conditions.readings} == {1.111e9}


def test_more_ranks_than_gpus_are_refused_by_name(two_gpus: Driver, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"3 ranks need a device each, 2 devices are there: ranks 0 and 2 .* {UUID}"):
        measure(tmp_path, ranks=3)


def test_one_gpu_for_each_process_is_refused_where_it_is_the_same(
    two_gpus: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-{OTHER}")
    with pytest.raises(UserError, match=f"2 ranks need a device each, 1 device is there: ranks 0 and 1 .* {OTHER}"):
        measure(tmp_path)


def test_the_clocks_of_all_gpus_are_locked_and_set_back(two_gpus: Driver, tmp_path: Path) -> None:
    facts = facts_of(measure(tmp_path, clocks="lock"))
    assert facts[FACT] == ["locked at 1500 MHz, memory at 3201 MHz", "locked at 1300 MHz, memory at 3201 MHz"]
    assert sorted(call[:2] for call in two_gpus.calls if "GpuLocked" in call[0]) == sorted(
        [name, uuid] for name in ("SetGpuLockedClocks", "ResetGpuLockedClocks") for uuid in (UUID, OTHER)
    )
    assert two_gpus.gpu()["locked"] is two_gpus.gpu(OTHER)["locked"] is None


def test_one_that_cannot_be_locked_is_told_for_its_rank(
    two_gpus: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-{UUID},GPU-gone")
    facts = facts_of(measure(tmp_path, clocks="lock=1200"))
    assert facts[FACT] == ["locked at 1200 MHz, memory at 3201 MHz", "not locked: NVML: Not Found"]


def test_under_a_launcher_each_process_locks_the_clock_of_its_own_rank(
    two_gpus: Driver, launch: Launch, free_port: int, tmp_path: Path
) -> None:
    command = ("run", "all_reduce", "--backend", "two-gpus", "--effort", "quick", "--json", "-p", "size=64")
    variables = [
        {
            "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port), "TORCHELASTIC_RUN_ID": "none",
        }
        for rank in range(2)
    ]  # fmt: skip
    first, second = (launch(own, *command, "--clocks", "lock") for own in variables)
    assert (first.code(), second.code()) == (0, 0), (first.err, second.err)
    assert "locked at 1500 MHz" in first.err
    assert "locked at 1300 MHz" in second.err
    with closing(open_store(tmp_path / "process0" / "store.db")) as store:
        (record,) = store.records(store.runs()[0].id)
        (environment,) = store.environments([record.environment]).values()
    assert [text.split(",")[0] for text in environment.facts[FACT]] == ["locked at 1500 MHz", "locked at 1300 MHz"]
    assert two_gpus.gpu()["locked"] is two_gpus.gpu(OTHER)["locked"] is None
