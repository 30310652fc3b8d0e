"""Schedules over the processor and a GPU, on a machine that has one: `python -m pytest tests/device`."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import opmark  # noqa: E402
from opmark.models.execution import original  # noqa: E402
from opmark.models.family import source_of  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
PARAMS = {"size": "small", "batch": 8}


@pytest.mark.parametrize("method", ["sequential", "equilibrium"])
def test_a_program_over_processor_and_gpu_is_verified_and_compared_in_turns(method: str, tmp_path: Path) -> None:
    found = opmark.schedule(
        "model:two-towers", params=PARAMS, on="cpu,cuda", method=method, search="5s", processes=2, budget="30s",
        db=tmp_path / "runs.db", save=tmp_path / "two.json",
    )  # fmt: skip
    again = opmark.schedule(str(tmp_path / "two.json"), measure=False)
    assert again.threads == found.threads
    assert found.lanes == ("cpu", "cuda")
    assert found.compared is not None
    assert set(found.compared.statuses) <= {"ok", "disturbed"}
    source = source_of("two-towers")
    assert source is not None
    params = {**PARAMS, "dtype": "float32"}
    module = original(source, params)
    inputs = [torch.rand(spec.shape) for spec in source.inputs(params).values()]
    with found.compile() as compiled, torch.no_grad():
        outputs = compiled(*(one.cuda() for one in inputs))
        torch.testing.assert_close(outputs.cpu(), module(*inputs), rtol=1e-4, atol=1e-5)


def test_streams_of_a_gpu_run_a_schedule_in_stages(tmp_path: Path) -> None:
    found = opmark.schedule(
        "model:two-towers", params=PARAMS, on="cuda", method="stages", search="5s", processes=2, budget="30s",
        db=tmp_path / "runs.db",
    )  # fmt: skip
    assert found.compared is not None
    assert set(found.compared.statuses) <= {"ok", "disturbed"}
