"""torch-hpu: the device that Habana's package adds to torch. A fake package adds one that computes on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from opmark.frameworks.torch import TORCH_HPU

FAKE = '''
"""Adds the device `hpu` to torch, and counts how often somebody waits for it."""
import types
import torch
from torch.overrides import TorchFunctionMode

class OnTheHost(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        def host(value):
            named = str(value).startswith("hpu") and isinstance(value, (str, torch.device))
            return torch.device("cpu") if named else value
        if func is torch.device:  # the name itself
            return func(*args, **(kwargs or {}))
        return func(*map(host, args), **{name: host(value) for name, value in (kwargs or {}).items()})

hpu = types.ModuleType("torch.hpu")
hpu.waits = 0
def synchronize():
    hpu.waits += 1
hpu.synchronize = synchronize
hpu.is_available = lambda: True
hpu.device_count = lambda: 1
hpu.current_device = lambda: 0
hpu.memory_allocated = hpu.max_memory_allocated = lambda: 4096
hpu.reset_peak_memory_stats = lambda: None
torch._register_device_module("hpu", hpu)
Generator = torch.Generator
torch.Generator = lambda device="cpu": Generator("cpu" if str(device) == "hpu" else device)
OnTheHost().__enter__()
'''
RUN = """
import json, sys
from opmark.frameworks.torch import TORCH_HPU
from opmark.runner.selection import select_cases
from opmark.schema import EFFORTS, Settings, Task
from opmark.schema.options import Selection
from opmark.worker.task_runner import TaskRunner

assert TORCH_HPU.why_missing() is None, TORCH_HPU.why_missing()
live = TORCH_HPU.load(threads=1)
case = select_cases(Selection("softmax", size="small", params={"dtype": "float32"})).cases[0]
settings = Settings(1, "quick", EFFORTS["quick"], compile_only=True)
record = TaskRunner(TORCH_HPU, live).run(Task(case, TORCH_HPU.name, "torch", settings))
import torch
print(json.dumps([record.status, record.reason, live.why_unavailable(), live.environment()["device"], torch.hpu.waits]))
"""


def test_without_its_package_it_says_which_chip_and_package_it_needs() -> None:
    assert TORCH_HPU.why_missing() == (
        "habana_frameworks.torch is not installed (an Intel Gaudi needs its driver and pip install habana-torch-plugin)"
    )


def test_it_computes_on_the_device_that_the_package_adds(tmp_path: Path) -> None:
    package = tmp_path / "habana_frameworks" / "torch"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text(FAKE)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    status, reason, unavailable, device, waits = json.loads(done.stdout.splitlines()[-1])
    assert (status, reason, unavailable, device) == ("ok", "", None, "hpu")
    assert waits > 0


def test_its_worker_computes_call_by_call() -> None:
    assert TORCH_HPU.variables["PT_HPU_LAZY_MODE"] == "0"
