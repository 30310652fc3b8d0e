"""opmark capture"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opmark.traces.reading import read_ranks, read_trace

pytest.importorskip("torch")

pytestmark = pytest.mark.traces

Command = Callable[..., Any]

TRAIN = """
import sys

assert "torch" not in sys.modules, "the program decides when torch is imported"
print("arguments", sys.argv[1:], __name__, sys.path[0])
import torch

model = torch.nn.Linear(8, 8)
first, second = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
for number in range(int(sys.argv[1])):
    model(torch.ones(4, 8)).sum().backward()
    first.step()
    second.step()
    print("step", number)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def step_labels(path: Path) -> list[str]:
    nodes = json.loads(path.read_bytes())["nodes"]
    return [node["name"] for node in nodes if node["name"].startswith("ProfilerStep#")]


def test_a_script_runs_as_python_would_and_its_steps_are_captured(opmark: Command, folder: Path) -> None:
    done = opmark("capture", "-o", "out/step.json", "--skip", "1", "train.py", "6", "3", "--lr", "1")
    assert done.code == 3, done.err
    assert done.out.splitlines()[0] == f"arguments ['6', '3', '--lr', '1'] __main__ {folder}"
    assert done.out.splitlines()[-1] == "step 5"
    assert "captured steps 2 to 3: " in done.err
    trace = read_trace(folder / "out" / "step.json")
    labels = {node.id: node.name for node in trace.nodes if node.name.startswith(("ProfilerStep#", "Optimizer.step#"))}
    assert sorted(labels.values()) == ["Optimizer.step#SGD.step"] * 4 + ["ProfilerStep#2", "ProfilerStep#3"]
    assert not any(node.parent in labels for node in trace.nodes if node.name.startswith("ProfilerStep#"))
    assert trace.problems == []
    assert (folder / "out" / "step.kineto.json").exists()
    again = opmark("capture", "-o", "out/step.json", "train.py", "6", "0")
    assert again.code == 2
    assert "out/step.json: exists already" in again.err
    assert again.out == ""


def test_a_module_ends_once_its_steps_are_captured(opmark: Command, folder: Path) -> None:
    done = opmark("capture", "--skip", "0", "--warmup", "0", "--steps", "1", "--stop", "-m", "train", "6", "0")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1].startswith("arguments ['6', '0']")  # it ends when the optimizer has stepped
    assert step_labels(folder / "train.trace.json") == ["ProfilerStep#0"]


def test_what_ends_without_a_capture_says_why(opmark: Command, folder: Path) -> None:
    done = opmark("capture", "train.py", "3", "0")
    assert done.code == 1
    assert "the program ended after 3 steps: nothing was captured" in done.err
    (folder / "plain.py").write_text("print('hello')")
    done = opmark("capture", "plain.py")
    assert (done.code, done.out) == (1, "hello\n")
    assert "never imported torch" in done.err
    assert not list(folder.glob("*.json"))
    assert "there is no file nothing.py" in opmark("capture", "nothing.py").err


def test_a_program_without_an_optimizer_is_captured_whole_even_if_it_fails(opmark: Command, folder: Path) -> None:
    (folder / "infer.py").write_text("import torch\nprint(torch.ones(3).cumsum(0))\nraise ValueError('no more')\n")
    done = opmark("capture", "infer.py")
    assert done.code == 1
    assert done.err.splitlines()[:4] == [
        "Traceback (most recent call last):",
        '  File "infer.py", line 3, in <module>',
        "    raise ValueError('no more')",
        "ValueError: no more",
    ]
    assert "captured the whole program, because no optimizer stepped in it" in done.err
    assert '"aten::cumsum"' in (folder / "infer.trace.json").read_text()


MODEL = """
import torch

weights = torch.nn.Linear(64, 96)
x = torch.ones(32, 64)


def step():
    weights(x).relu().sum().backward()


def wrong(x):
    pass
"""


def test_one_command_shows_operators_by_share_of_time(opmark: Command, folder: Path) -> None:
    (folder / "model.py").write_text(MODEL)
    done = opmark("capture", "--top", "model.py:step")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("one step on ")
    assert lines[1].split()[:3] == ["operator", "tensors", "calls"]
    (linear,) = (line for line in lines if line.startswith("linear "))
    assert "32x64, 96x64, 96 float32" in linear
    assert "393 k" in linear  # 2 * 32 * 64 * 96 operations
    assert any(line.startswith("mm (backward) ") for line in lines)
    assert "`opmark import model.trace.json -o ops.yaml`" in lines[-1]
    found = opmark("capture", "--top", "--json", "-o", "again.json", "model.py:step")
    (profile,) = found.objects
    assert sum(row["share"] for row in profile["rows"]) + profile["between"] == pytest.approx(1, abs=0.05)
    assert profile["steps"] == 2
    shares = [row["share"] for row in profile["rows"]]
    assert shares == sorted(shares, reverse=True)
    (folder / "fails.py").write_text("import sys\nassert len(sys.argv) > 1, sys.argv\n")
    failed = opmark("capture", "--top", "fails.py:step")
    assert failed.code == 1
    assert failed.err.splitlines()[1].endswith('fails.py", line 2, in <module>')
    assert failed.err.splitlines()[-1] == "AssertionError: ['fails.py:step']"
    wrong = opmark("capture", "model.py:wrong")
    assert wrong.code == 2
    assert "`model.py:wrong` cannot be called without arguments" in wrong.err


RANKS = """
import torch
import torch.distributed as distributed

distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
distributed.destroy_process_group()
"""


@pytest.mark.ranks
def test_every_rank_writes_its_own_files(folder: Path) -> None:
    (folder / "ranks.py").write_text(RANKS)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = ["-m", "opmark", "capture", "-o", "step.json", "--skip", "1", "--steps", "1", "ranks.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, *program], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert sorted(path.name for path in folder.glob("step*")) == [
        "step.rank-0.json", "step.rank-0.kineto.json", "step.rank-1.json", "step.rank-1.kineto.json",
    ], done.stderr  # fmt: skip
    traces = read_ranks(folder / "step.json")
    assert [trace.rank for trace in traces] == [0, 1]
    assert all(trace.world_size == 2 and trace.groups for trace in traces)
    assert all(any(node.kind == "collective" for node in trace.nodes) for trace in traces)
