"""Green contexts of torch, on a made-up device."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from opmark.errors import TimerFailed
from opmark.frameworks.torch import green_contexts
from opmark.frameworks.torch.device_clock import CudaClock
from opmark.plugin.registry import backend

of_torch = pytest.importorskip("torch.cuda.green_contexts")
DEFAULT = SimpleNamespace(cuda_stream=0)


class Device:
    """Gives multiples of 8, as Hopper does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current: Any = DEFAULT
        self.refuses = ""
        self.streams = True
        monkeypatch.setattr(of_torch, "SUPPORTED", True)
        monkeypatch.setattr(of_torch, "GreenContext", SimpleNamespace(create=self.create))
        monkeypatch.setattr(ctypes, "CDLL", lambda _: self)
        for name, function in {
            "synchronize": lambda: None,
            "current_device": lambda: 0,
            "current_stream": lambda: self.current,
            "set_stream": lambda stream: setattr(self, "current", stream),
        }.items():
            monkeypatch.setattr(torch.cuda, name, function)

    def create(self, *, num_sms: int, device_id: int) -> Any:
        assert device_id == 0
        if self.refuses:
            raise RuntimeError(self.refuses)
        given = -(-num_sms // 8) * 8
        stream = SimpleNamespace(cuda_stream=given)  # which tells the driver below
        return SimpleNamespace(Stream=lambda: stream) if self.streams else SimpleNamespace()

    def cuStreamGetGreenCtx(self, stream: Any, context: Any) -> int:
        context._obj.value = stream.value
        return 0 if stream.value else 400

    def cuGreenCtxGetDevResource(self, context: Any, resource: Any, kind: int) -> int:
        assert kind == 1
        resource[24] = context.value
        return 0


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def test_calls_go_to_a_stream_that_has_so_many(device: Device) -> None:
    assert green_contexts.enter(32) is None
    assert device.current.cuda_stream == 32


def test_what_is_not_given_as_it_was_asked_for_is_refused(device: Device) -> None:
    assert green_contexts.enter(33) == "the driver gives 40 multiprocessors where 33 are asked for"
    assert device.current is DEFAULT


def test_the_reason_is_named(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device.refuses = "CUDA driver error: invalid resource configuration\nmore"
    assert green_contexts.enter(200) == (
        "there is no green context of 200 multiprocessors: CUDA driver error: invalid resource configuration"
    )
    device.refuses, device.streams = "", False
    assert "have no streams" in str(green_contexts.enter(32))
    monkeypatch.setattr(of_torch, "SUPPORTED", False)
    assert "built without green contexts" in str(green_contexts.enter(32))


def test_a_backend_of_the_host_has_none(torch_cpu: Any) -> None:
    assert torch_cpu.limit_multiprocessors(32) == "torch-cpu cannot keep to a part of the multiprocessors"
    assert "cannot keep" in str(backend("null").load(1).limit_multiprocessors(32))


def test_a_graph_would_have_all_multiprocessors() -> None:
    clock = CudaClock()
    clock.partial = True
    with pytest.raises(TimerFailed, match="all multiprocessors"):
        clock.capture([lambda: None])
