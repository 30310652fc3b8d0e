"""Clients share one loaded model: nothing is loaded twice, and each computes its own inputs at the same time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from opmark.errors import Unsupported
from opmark.plugin import Launch
from opmark.plugin.registry import backend, implementations, operator
from opmark.runner.plan import settings_for
from opmark.schema import Case, Task
from opmark.schema.options import MeasureOptions
from opmark.worker.preparation import bind, make_inputs, prepare

pytestmark = pytest.mark.frameworks

SHAPE = {"M": 32, "N": 16, "K": 8}
SHARING = ["numpy-cpu", "torch-cpu", "onnxruntime-cpu", "openvino-cpu", "openvino-cpu/throughput", "jax-cpu",
           "tvm-cpu"]  # fmt: skip


class Loaded:
    """A product on a backend with three clients, and how often something was compiled for them."""

    def __init__(self, name: str) -> None:
        info, op = backend(name), operator("matmul")
        if reason := info.why_missing():
            pytest.skip(reason)
        self.live: Any = info.load(1)
        implementation = implementations(op, info)[0]
        (settings,) = settings_for(MeasureOptions(threads=[1], effort="quick", clients=3))
        params = op.complete(SHAPE)
        task = Task(Case.of("matmul", params, "forward"), name, implementation.label, settings)
        first = prepare(params, task, op, implementation, self.live)
        others = [make_inputs(params, task, op, self.live, variant) for variant in (1, 2)]
        self.inputs = [first.inputs, *others]
        self.rebuilt = 0

        def rebuild(inputs: Mapping[str, Any]) -> Launch:
            self.rebuilt += 1
            return bind(params, task, op, implementation, self.live, dict(inputs)).launch

        self.launches = self.live.clients(first.launch, others, rebuild)


@pytest.mark.parametrize("name", SHARING)
def test_each_client_computes_its_own_inputs_from_its_own_thread(name: str) -> None:
    loaded = Loaded(name)
    together = threading.Barrier(3, timeout=30)
    outputs: dict[int, Any] = {}

    def work(client: int) -> None:
        together.wait()
        for _ in range(5):
            found = loaded.launches[client]()
        outputs[client] = found[0] if isinstance(found, tuple) else found

    threads = [threading.Thread(target=work, args=(client,)) for client in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [loaded.live.to_numpy(outputs[client]) for client in range(3)]
    for result, inputs in zip(found, loaded.inputs, strict=True):
        a, b = (loaded.live.to_numpy(tensor) for tensor in inputs.values())
        np.testing.assert_allclose(result, a @ b, rtol=1e-4, atol=1e-5)
    assert not np.allclose(found[0], found[1])


@pytest.mark.parametrize("name", ["onnxruntime-cpu", "openvino-cpu", "openvino-cpu/throughput", "tvm-cpu"])
def test_an_engine_loads_its_model_once(name: str) -> None:
    loaded = Loaded(name)
    assert loaded.rebuilt == 0
    names = ("session", "compiled", "executable")
    models = {id(getattr(launch, name)) for launch in loaded.launches for name in names if hasattr(launch, name)}
    assert len(models) == 1


def test_jax_compiles_its_program_once() -> None:
    loaded = Loaded("jax-cpu")
    assert len({id(launch.run) for launch in loaded.launches}) == 1


def test_clients_of_torch_keep_no_graph_for_gradients() -> None:
    """Whether gradients are kept belongs to a thread, and a new one keeps them."""
    import torch

    live: Any = backend("torch-cpu").load(1)
    layer = torch.nn.Linear(4, 4)
    (call,) = live.clients(lambda: layer(torch.ones(1, 4)), [], lambda inputs: None)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    assert not found[0].requires_grad


def test_clients_of_a_model_share_its_module() -> None:
    from opmark.models.execution import ModelCall

    live: Any = backend("torch-cpu").load(1)
    info, op = backend("torch-cpu"), operator("model:resnet50")
    params = op.complete({**op.preset("small"), "batch": 1})
    (settings,) = settings_for(MeasureOptions(threads=[1], effort="quick", clients=2))
    (implementation,) = implementations(op, info)
    task = Task(Case.of(op.name, params, "forward"), info.name, implementation.label, settings)
    first = prepare(params, task, op, implementation, live)
    other = bind(params, task, op, implementation, live, make_inputs(params, task, op, live, 1))
    assert isinstance(first.launch, ModelCall)
    assert isinstance(other.launch, ModelCall)
    assert first.launch.func is other.launch.func
    assert first.inputs.keys() == other.inputs.keys()


def test_a_model_that_keeps_one_sequence_has_one_client() -> None:
    live: Any = backend("torch-cpu").load(1)

    def launch() -> None:
        pass

    launch.keeps_state = True  # type: ignore[attr-defined]
    assert len(live.clients(launch, [], lambda inputs: launch)) == 1
    with pytest.raises(Unsupported, match="clients would overwrite them"):
        live.clients(launch, [{}], lambda inputs: launch)


def test_clients_on_a_device_have_streams_of_their_own_and_wait_for_these_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device that is not there, of which only the streams are told."""
    told: list[str] = []
    numbers = iter(range(10))

    class Stream:
        def __init__(self) -> None:
            self.number = next(numbers)

        def synchronize(self) -> None:
            told.append(f"wait {self.number}")

    class Module:
        @staticmethod
        def set_stream(stream: Stream) -> None:
            told.append(f"use {stream.number}")

    Module.Stream = Stream  # type: ignore[attr-defined]
    live: Any = backend("torch-cpu").load(1)
    monkeypatch.setattr(live, "asynchronous", True)
    monkeypatch.setattr("opmark.frameworks.torch.backend._module", lambda device: Module)
    monkeypatch.setattr(live, "synchronize", lambda: told.append("wait for the device"))
    calls = live.clients(lambda: told.append("run"), [{}], lambda inputs: lambda: told.append("run other"))
    for call in calls:
        call()
    calls[0]()
    assert told == ["use 0", "run", "wait 0", "use 1", "run other", "wait 1", "run", "wait 0"]


def test_tvm_serves_one_client_on_a_gpu_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = Loaded("tvm-cpu")
    monkeypatch.setattr(loaded.live, "asynchronous", True)
    with pytest.raises(Unsupported, match="one stream of the GPU"):
        loaded.live.clients(loaded.launches[0], [loaded.inputs[1]], lambda inputs: None)
