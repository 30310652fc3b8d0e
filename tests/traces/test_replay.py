"""Replay of traces: captured training steps, tensors and their values, gaps, streams, and several ranks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from opmark.errors import OutOfMemory
from opmark.traces import replay as replaying
from opmark.traces.reading import read_trace
from opmark.traces.replay import Replay, compile_replay
from opmark.traces.replay_collectives import ReplayGroups
from opmark.traces.replay_functions import kernel_arguments
from opmark.traces.replay_streams import StreamPlan
from opmark.traces.trace import (
    OpaqueValue,
    ProgramTrace,
    TensorRef,
    TraceCollective,
    TraceGroup,
    TraceNode,
    Value,
)

ADD_ = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
RELU = "aten::relu(Tensor self) -> Tensor"
EMBEDDING = (
    "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, "
    "bool sparse=False) -> Tensor"
)


def ref(storage: int, *shape: int, dtype: str = "float32", **more: Any) -> TensorRef:
    return TensorRef(shape, dtype, more.pop("device", "cpu"), more.pop("tensor", storage), storage, **more)


def call(schema: str, inputs: list[Value], outputs: list[Value], **more: Any) -> TraceNode:
    name = schema.partition("(")[0].partition(".")[0]
    return TraceNode(0, name, more.pop("kind", "operator"), schema, None, inputs, outputs, duration=1e-3, **more)


def trace_of(*nodes: TraceNode, **more: Any) -> ProgramTrace:
    for number, node in enumerate(nodes, 1):
        node.id = number
        node.start = number * 1.0
    return ProgramTrace("hand.json", "by hand", list(nodes), **more)


def reasons(replay: Replay) -> list[str]:
    return [one.reason for one in replay.left_out]


def capture(step: Callable[[], Any], path: Path, *, before: int = 2) -> ProgramTrace:
    """The trace of one step, as torch writes it."""
    for _ in range(before):
        step()
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(path))
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], execution_trace_observer=observer
    ) as found:
        step()
    observer.unregister_callback()
    found.export_chrome_trace(str(path.with_suffix(".kineto.json")))
    return read_trace(path)


def convolutions() -> Callable[[], None]:
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1), nn.Flatten(),
        nn.Linear(8 * 7 * 7, 10),
    )  # fmt: skip
    images, classes = torch.randn(6, 3, 16, 16), torch.randint(0, 10, (6,))
    optimizer = torch.optim.Adam(network.parameters(), foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), classes).backward()
        optimizer.step()

    return step


class Lookups(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(50, 16)
        self.bags = nn.EmbeddingBag(60, 16, mode="sum")
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, tokens: Any, items: Any, offsets: Any) -> Any:
        return self.layer(self.rows(tokens)).mean(1) + self.bags(items, offsets)


def lookups() -> Callable[[], None]:
    network = Lookups()
    tokens, items, offsets = torch.randint(0, 50, (5, 7)), torch.randint(0, 60, (20,)), torch.arange(0, 20, 4)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        network(tokens, items, offsets).square().mean().backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    return step


@pytest.mark.parametrize("program", [convolutions, lookups])
def test_every_call_of_a_training_step_is_replayed_with_results_as_recorded(
    program: Callable[[], Callable[[], None]], tmp_path: Path
) -> None:
    replay = compile_replay(capture(program(), tmp_path / "step.json"))
    report = replay.report(timed=True)
    assert not report.gaps
    assert report.replayed == report.calls > 50
    assert report.share == 1.0
    assert report.differences == []
    assert report.compared > 30
    assert sum(one.recorded or 0.0 for one in report.operators) > 0
    for _ in range(3):
        assert replay() == ()
    kept = [one for one in replay.tensors.values() if one.is_floating_point()]
    assert all(bool(torch.isfinite(one).all()) for one in kept), "what a step changes stays finite"


def most_allocated(step: Callable[[], Any]) -> int:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    events = [one for one in found.profiler.kineto_results.events() if one.name() == "[memory]"]
    live = peak = 0
    for one in sorted(events, key=lambda event: event.start_ns()):
        live += one.nbytes()
        peak = max(peak, live)
    return peak


def test_temporaries_are_freed_as_early_as_in_the_program(tmp_path: Path) -> None:
    layers = [nn.Linear(256, 256) for _ in range(6)]
    data = torch.randn(512, 256)

    def step() -> None:
        value = data
        with torch.no_grad():
            for layer in layers:
                value = layer(value).relu()

    replay = compile_replay(capture(step, tmp_path / "step.json"))
    replay()
    assert most_allocated(replay) <= 1.2 * most_allocated(step)
    weights = sum(one.nbytes for layer in layers for one in layer.parameters()) + data.nbytes
    assert replay.made_bytes <= 1.05 * weights


def test_a_backward_pass_gets_the_mask_of_its_dropout(tmp_path: Path) -> None:
    data = torch.randn(64, 64, requires_grad=True)

    def step() -> None:
        data.grad = None
        nn.functional.dropout(data, 0.3).sum().backward()

    replay = compile_replay(capture(step, tmp_path / "step.json"))
    assert {tuple(one.shape) for one in replay.tensors.values()} <= {(64, 64), ()}
    masks = [one for one in replay.reads if one.shape == (64, 64)]
    assert len(masks) == 1, "the mask is made by the replayed call; only the data exists before"


def test_views_share_memory_and_keep_their_strides() -> None:
    base, row = ref(1, 4, 6), ref(1, 6, tensor=2, offset=6)
    column = ref(1, 4, tensor=3, offset=2, strides=(6,))
    replay = compile_replay(trace_of(call(ADD_, [row, ref(9, 6), 1], [row]), call(RELU, [column], [ref(7, 4)]),
                                     call(RELU, [base], [ref(8, 4, 6)])))  # fmt: skip
    tensors = {tuple(one.shape): one for one in replay.reads if one.untyped_storage().nbytes() >= 96}
    assert tensors[(4,)].stride() == (6,)
    assert tensors[(6,)].data_ptr() == tensors[(4, 6)].data_ptr() + 6 * 4
    before = tensors[(4, 6)][1].clone()
    replay()
    assert not torch.equal(tensors[(4, 6)][1], before)


def test_results_are_the_arguments_of_later_calls() -> None:
    first, second = ref(2, 3), ref(3, 3)
    replay = compile_replay(trace_of(call(ADD, [ref(1, 3), ref(1, 3), 1], [first]), call(RELU, [first], [second])))
    assert len(replay.reads) == 1


def test_indices_lie_inside_also_where_a_call_computed_them() -> None:
    weight, indices, wrong = ref(1, 7, 4), ref(2, 5, dtype="int64"), ref(4, 5, dtype="int64")
    multiply = "aten::mul.Scalar(Tensor self, Scalar other) -> Tensor"
    replay = compile_replay(
        trace_of(
            call(EMBEDDING, [weight, indices, -1, False, False], [ref(3, 5, 4)]),
            call(multiply, [ref(6, 5, dtype="int64"), 1000], [wrong]),
            call(EMBEDDING, [weight, wrong, -1, False, False], [ref(5, 5, 4)]),
        )
    )
    assert not replay.left_out
    drawn = next(one for one in replay.reads if one.dtype == torch.int64 and one.unique().numel() > 1)
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < 7
    assert any("drawn anew" in note for note in replay.notes)


def test_recorded_ranges_of_integers_are_kept() -> None:
    indices = ref(2, 500, dtype="int64", low=3, high=5)
    replay = compile_replay(trace_of(call(EMBEDDING, [ref(1, 90, 4), indices, -1, False, False], [ref(3, 500, 4)])))
    drawn = next(one for one in replay.reads if one.dtype == torch.int64)
    assert (int(drawn.min()), int(drawn.max())) == (3, 5)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (call("aten::no_such_thing(Tensor self) -> Tensor", [ref(1, 2)], [ref(2, 2)]), "has no operator aten::no_such"),
        (call("other::thing(Tensor self) -> Tensor", [ref(1, 2)], [ref(2, 2)]), "the library `other`"),
        (call("aten::relu.other(Tensor self) -> Tensor", [ref(1, 2)], [ref(2, 2)]), "no variant `other`"),
        (call("aten::relu(", [ref(1, 2)], [ref(2, 2)]), "schema cannot be read"),
        (call(RELU, [ref(1, 1 << 40)], [ref(2, 1 << 40)]), "does not fit"),
        (call(RELU, [ref(1, -3)], [ref(2, -3)]), "negative size"),
        (call(RELU, [ref(1, 3, dtype="float3")], [ref(2, 3)]), "no element type `float3`"),
        (call(RELU, [OpaqueValue("Object", "a tensor of shape [-1]")], [ref(2, 3)]), "a tensor of shape [-1]"),
        (call("aten::mm(Tensor self, Tensor mat2) -> Tensor", [ref(1, 2, 3), ref(3, 2, 3)], [ref(2, 2, 3)]), "Runtime"),
        (call("aten::from_file(str filename, bool? shared=None, int? size=0, *, ScalarType? dtype=None, Layout? "
              "layout=None, Device? device=None, bool? pin_memory=None) -> Tensor", ["/tmp/x", True, 1], [ref(2, 1)]),
         "reads or writes a file"),
        (call("aten::record_stream(Tensor(a!) self, Stream s) -> ()", [ref(1, 2), OpaqueValue("Stream")], []),
         "moves no data"),
        (TraceNode(0, "triton_poi_fused_add_0", "kernel", inputs=[ref(1, 4)],
                   attributes={"kernel_backend": "triton", "kernel_file": "/somewhere/else/kernel.py"}),
         "kernel.py, does not lie beside the trace"),
        (TraceNode(0, "fused", "kernel", attributes={"kernel_backend": "cpp"}), "a kernel of cpp"),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_is_named_and_the_rest_runs(node: TraceNode, reason: str) -> None:
    replay = compile_replay(trace_of(node, call(RELU, [ref(50, 4)], [ref(51, 4)])))
    (found,) = reasons(replay)
    assert reason in found
    assert len(replay.steps) == 1
    replay()
    report = replay.report()
    assert (report.calls, report.replayed) == (2, 1)
    assert "1 left out" in report.headline


def test_a_call_that_fails_leaves_its_result_to_those_that_need_it() -> None:
    product = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
    replay = compile_replay(
        trace_of(
            call(product, [ref(1, 2, 3), ref(2, 2, 3)], [ref(3, 2, 3)]), call(RELU, [ref(3, 2, 3)], [ref(4, 2, 3)])
        )
    )
    assert [step.node.name for step in replay.steps] == ["aten::relu"]
    replay()


def test_devices_and_operators_of_a_gpu_run_on_the_host() -> None:
    data, weight, out = (ref(i, *shape, device="cuda:0") for i, shape in
                         ((1, (2, 3, 8, 8)), (2, (4, 3, 3, 3)), (3, (2, 4, 6, 6))))  # fmt: skip
    schema = (
        "aten::cudnn_convolution(Tensor self, Tensor weight, SymInt[] padding, SymInt[] stride, SymInt[] dilation, "
        "SymInt groups, bool benchmark, bool deterministic, bool allow_tf32) -> Tensor"
    )
    empty = (
        "aten::empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
        "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor"
    )
    replay = compile_replay(
        trace_of(
            call(schema, [data, weight, [0, 0], [1, 1], [1, 1], 1, False, False, True], [out]),
            call(empty, [[4], 6, 0, OpaqueValue("Device", "cuda:0"), False, None], [ref(4, 4, device="cuda:0")]),
        )
    )
    assert not replay.left_out
    assert not replay.differences
    assert replay.notes == ["aten::cudnn_convolution is replayed by what computes the same on the host"]


def test_the_backward_pass_of_a_gpu_has_substitutes_too() -> None:
    data, grad, scale = (
        ref(i, *shape, device="cuda:0") for i, shape in ((1, (4, 3, 5, 5)), (2, (4, 3, 5, 5)), (3, (3,)))
    )
    norm = (
        "aten::cudnn_batch_norm_backward(Tensor input, Tensor grad_output, Tensor weight, Tensor? running_mean, "
        "Tensor? running_var, Tensor? save_mean, Tensor? save_var, float epsilon, Tensor reserveSpace) -> "
        "(Tensor, Tensor, Tensor)"
    )
    outputs = [ref(11, 4, 3, 5, 5, device="cuda:0"), ref(12, 3, device="cuda:0"), ref(13, 3, device="cuda:0")]
    inputs = [data, grad, scale, None, None, ref(4, 3, device="cuda:0"), ref(5, 3, device="cuda:0"), 1e-5,
              ref(6, 64, dtype="uint8", device="cuda:0")]  # fmt: skip
    replay = compile_replay(trace_of(call(norm, inputs, outputs)))
    assert not replay.left_out
    assert not replay.differences
    assert replay.compared == 3


def test_what_only_a_device_knows_is_left_out_or_set() -> None:
    """Memory is not pinned, an optimizer's step is not skipped, and an operator without a counterpart is named."""
    empty = (
        "aten::empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
        "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor"
    )
    pinned = call(empty, [[4], 6, 0, OpaqueValue("Device", "cpu"), True, None], [ref(4, 4)])
    adam = str(torch.ops.aten._fused_adamw_.default._schema)
    parts = [[ref(10 + i, 8, device="cuda:0")] for i in range(4)]
    step = [ref(20, device="cuda:0")]
    numbers = [0.1, 0.9, 0.999, 0.0, 1e-8, False, False]
    stepped = call(adam, [*parts, [], step, *numbers, None, ref(21, 1, device="cuda:0")], [])
    flatten = call(str(torch.ops.aten._cudnn_rnn_flatten_weight.default._schema), [[ref(30, 8, device="cuda:0")]], [])
    only = call(str(torch.ops.aten._philox_uniform_.default._schema), [ref(31, 8, device="cuda:0")], [])
    replay = compile_replay(trace_of(pinned, stepped, flatten, only))
    assert len(replay.steps) == 2
    assert any("on accelerators only" in reason for reason in reasons(replay))
    weights = replay.tensors[next(one.name for one in replay.steps[1].variables() if one.ref.storage == 10)]
    before = weights.clone()
    replay()
    assert not torch.equal(weights, before)


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        ([ref(1, 4), 4, "grid(4,)", 0], (2, "grid(4,)")),
        ([ref(1, 4), 4, "(1, 2, 1)", 123], (2, "(1, 2, 1)")),
        ([ref(1, 4), 4, 0], (2, "")),  # torch from 2.7 on
        ([], (0, "")),
    ],
)
def test_grid_and_stream_are_no_arguments_of_a_kernel(inputs: list[Value], found: tuple[int, str]) -> None:
    given, grid = kernel_arguments(inputs)
    assert (len(given), grid) == found


def test_a_step_that_does_not_fit_is_refused_before_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "_free_bytes", lambda device: 10_000)
    results = [ref(10 + i, 1000) for i in range(3)]
    add = call(ADD, [results[0], results[1], 1], [results[2]])
    nodes = [call(RELU, [ref(1, 1000)], [one]) for one in results[:2]]
    with pytest.raises(OutOfMemory, match="exist before it"):
        compile_replay(trace_of(*nodes, add))
    compile_replay(trace_of(nodes[0]))


def test_calls_without_identities_and_schemas_are_replayed_by_their_arguments() -> None:
    """As a Chrome trace has them."""
    anonymous = TensorRef((4, 4), "float32")
    nodes = [TraceNode(0, "aten::mm", "operator", "", None, [anonymous, anonymous], []) for _ in range(5)]
    replay = compile_replay(trace_of(*nodes))
    assert not replay.left_out
    assert len(replay.reads) == 2, "equal tensors of different calls share memory"


def test_arguments_that_a_profiler_does_not_record_have_their_defaults_or_are_named() -> None:
    four = TensorRef((4,), "float32")
    added = TraceNode(0, "aten::add", "operator", ADD, None, [four, four, OpaqueValue("Scalar")], [])
    index = "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"
    picked = TraceNode(0, "aten::index", "operator", index, None, [four, None], [])
    moved = "aten::to.device(Tensor(a) self, Device device, ScalarType dtype) -> Tensor(a)"
    placed = TraceNode(0, "aten::to", "operator", moved, None, [four, None, 6], [])
    some = TraceNode(0, "aten::index", "operator", index, None, [ref(1, 3, 4), [None, ref(2, 2, dtype="int64")]], [])
    replay = compile_replay(trace_of(added, picked, placed, some))
    assert reasons(replay) == ["its argument `indices` was not recorded"]
    replay()


class FakeStream:
    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def wait_event(self, event: Any) -> None:
        self.log.append(f"{self.name} waits for {event.after}")

    def wait_stream(self, other: FakeStream) -> None:
        self.log.append(f"{self.name} waits for stream {other.name}")


class FakeEvent:
    after = ""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def record(self, stream: FakeStream) -> None:
        self.after = f"an event on {stream.name}"
        self.log.append(f"event on {stream.name}")


def test_calls_run_on_the_recorded_streams_and_wait_for_each_other() -> None:
    first = call(RELU, [ref(1, 4)], [ref(2, 4)], stream=7)
    second = call(RELU, [ref(2, 4)], [ref(3, 4)], stream=20)
    third = call(ADD, [ref(3, 4), ref(1, 4), 1], [ref(4, 4)], stream=7)
    replay = compile_replay(trace_of(first, second, third))
    log: list[str] = []
    names = iter("abc")
    module = SimpleNamespace(
        set_stream=lambda stream: log.append(f"on {stream.name}"), current_stream=lambda: FakeStream(log, "usual"),
        Stream=lambda: FakeStream(log, next(names)), Event=lambda: FakeEvent(log),
    )  # fmt: skip
    values: dict[str, Any] = {}
    plan = StreamPlan(replay.steps, torch.device("cpu"), values, module)
    for number, step in enumerate(replay.steps):
        log.append(f"call {number}")
        before = [line for line in plan.before(number) if "record_stream" not in line]
        assert any("record_stream" in line for line in plan.before(number)) == (number > 0)
        mark = log.pop()
        exec("\n".join(before) or "pass", values)
        log.append(mark)
        exec("\n".join(plan.after(number)) or "pass", values)
        assert step.node.stream in (7, 20)
    exec("\n".join(plan.finish()), values)
    assert log == [
        "a waits for stream usual", "call 0", "event on usual",
        "on a", "a waits for an event on usual", "call 1", "event on a",
        "on usual", "usual waits for an event on a", "call 2", "event on usual",
        "on usual", "usual waits for stream a",
    ]  # fmt: skip


# Communication.

ALL_REDUCE = (
    "c10d::allreduce_(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup process_group, "
    "__torch__.torch.classes.c10d.ReduceOp reduce_op, Tensor? sparse_indices, bool async_op=True, int timeout=-1) -> "
    "(Tensor[], __torch__.torch.classes.c10d.Work)"
)


def communication(name: str, inputs: list[Value], *, size: int = 2, is_async: bool = True) -> TraceNode:
    schema = ALL_REDUCE if name == "all_reduce" else f"c10d::{name}"
    return call(
        schema, inputs, [], kind="collective",
        collective=TraceCollective(name, "0", size, "float32", is_async=is_async),
    )  # fmt: skip


GROUPS = {"0": TraceGroup("0", (0, 1), "gloo", 2)}


def test_alone_a_collective_is_a_copy_of_its_shape() -> None:
    gathered, own = ref(1, 8), ref(2, 4)
    trace = trace_of(
        communication("all_gather", [gathered, own]), communication("all_reduce", [[own]]), groups=GROUPS
    )  # fmt: skip
    replay = compile_replay(trace)
    replay()
    whole, part = (next(one for one in replay.reads if one.numel() == n) for n in (8, 4))
    assert torch.equal(whole, torch.cat([part, part]))
    assert all("simulated by shape" in note for note in replay.notes)
    assert len(replay.notes) == 2


def test_an_asynchronous_collective_is_waited_for_before_its_tensor_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    class Work:
        def wait(self) -> None:
            log.append("wait")

    monkeypatch.setattr(replaying, "make_exchange", lambda *_: (lambda *_: log.append("start") or Work(), ""))
    bucket = ref(1, 4)
    trace = trace_of(
        communication("all_reduce", [[bucket]]), call(RELU, [ref(5, 4)], [ref(6, 4)]),
        call(RELU, [bucket], [ref(7, 4)]), communication("all_reduce", [[ref(6, 4)]]),
    )  # fmt: skip
    replay = compile_replay(trace)
    lines = [line.partition(" = ")[2] or line for step in replay.lines for line in step if not line.startswith("del")]
    assert [line.partition("(")[0].rpartition(".")[2][:4] for line in lines] == [
        lines[0].partition("(")[0], lines[1].partition("(")[0], "wait", lines[3].partition("(")[0],
        lines[4].partition("(")[0],
    ]  # fmt: skip
    log.clear()
    replay()
    assert log == ["start", "wait", "start", "wait"]


def run_rank(rank: int, folder: str, world: int) -> None:
    import torch.distributed as dist

    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting-{world}", rank=rank, world_size=world)
    bucket, gathered = ref(1, 4), ref(2, 16)
    trace = trace_of(
        communication("all_reduce", [[bucket]], size=4), communication("all_gather", [gathered, bucket], size=4),
        communication("barrier", [], size=4, is_async=False), groups={"0": TraceGroup("0", (0, 1, 2, 3), "gloo", 4)},
    )  # fmt: skip
    replay = compile_replay(trace, groups=ReplayGroups(rank, world, 4, trace.groups))
    assert not replay.left_out, replay.left_out
    own = next(one for one in replay.reads if one.numel() == 4)
    whole = next(one for one in replay.reads if one.numel() == 16)
    own.fill_(rank + 1.0)
    whole.fill_(-1.0)
    replay()
    assert own.tolist() == [3.0] * 4
    assert whole.tolist() == [3.0] * 8 + [-1.0] * 8, "two of four ranks are there"
    assert "all_reduce of 4 ranks, replayed by 2" in " ".join(replay.notes)
    dist.destroy_process_group()


def run_coalesced(rank: int, folder: str, world: int) -> None:
    import torch.distributed as dist

    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting-{world}", rank=rank, world_size=world)
    wide, narrow = [ref(1, 8), ref(2, 4)], [ref(3, 4), ref(4, 2)]
    trace = trace_of(
        communication("all_gather", [wide, narrow]), communication("reduce_scatter", [narrow, wide]), groups=GROUPS
    )
    replay = compile_replay(trace, groups=ReplayGroups(rank, world, 2, trace.groups))
    assert not replay.left_out, replay.left_out
    (own,) = (one for one in replay.reads if one.numel() == 2)
    own.fill_(rank + 1.0)
    replay()
    (whole,) = (one for one in replay.reads if one.numel() == 4 and one[-1] == 2.0)
    assert whole.tolist() == [1.0, 1.0, 2.0, 2.0]
    assert own.tolist() == [2.0 * (rank + 1)] * 2, "each rank has its part of the sum"
    dist.destroy_process_group()


def test_several_collectives_that_were_recorded_as_one(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(run_coalesced, (str(tmp_path), 2), nprocs=2)


def test_ranks_that_are_there_communicate(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(run_rank, (str(tmp_path), 2), nprocs=2)


def test_memory_that_the_program_filled_itself_has_values(tmp_path: Path) -> None:
    """`torch.tensor(1.0)` writes into new memory without a call that anybody records."""
    total = torch.zeros(4)
    replay = compile_replay(capture(lambda: total.add_(torch.tensor([1.0, 2.0, 3.0, 4.0])), tmp_path / "step.json"))
    (kept,) = (one for one in replay.reads if one.numel() == 4)
    kept.zero_()
    replay()
    assert kept.tolist() == [1.0] * 4
