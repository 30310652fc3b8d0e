"""Replayed against original training steps: `python -m benchmarks.replay [--device cuda] [NAME ...]` prints the table
of README.md.

Each program is captured with torch's own observers in this process, and then the original step and its replay run in
turns, on one thread. Times are CPU times of the process, which other work on the machine changes least; memory is
counted from the allocations that torch's profiler sees. On a GPU the time is that of the kernels, copies and sets of a
step, as torch's profiler records them, and beside it the time that the host takes to launch them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import nn

from opmark.traces.reading import read_trace
from opmark.traces.replay import Replay, compile_replay
from opmark.traces.replay_collectives import ReplayGroups
from opmark.units import count_bytes, seconds

_ROUNDS = 9
_WARM_UP = 3
Step = Callable[[], Any]


class Program(NamedTuple):
    step: Step
    lives: Callable[[], list[torch.Tensor]]
    """Returns the tensors that exist between two steps."""
    buckets: Callable[[], int] = lambda: 0
    """Returns the bytes that DistributedDataParallel keeps between two steps and that no Python object holds."""


class ReplayRow(NamedTuple):
    program: str
    coverage: str
    ratio: float
    """Time of the replay over the original: of the CPU, or of a GPU's kernels."""
    wall_ratio: float
    """Time between two clock reads around a step; on a GPU nobody waits for it, so this is the host's part."""
    original: float
    memory_ratio: float
    peak: int
    gaps: str


def _train(module: Any, optimizer: Any, inputs: list[torch.Tensor], loss: Callable[..., Any]) -> Program:
    def step() -> None:
        optimizer.zero_grad()
        loss(*inputs).backward()
        optimizer.step()

    def lives() -> list[torch.Tensor]:
        state = [one for kept in optimizer.state.values() for one in kept.values() if isinstance(one, torch.Tensor)]
        own = [*module.parameters(), *module.buffers()]
        return [*own, *inputs, *state, *(one.grad for one in module.parameters() if one.grad is not None)]

    return Program(step, lives)


def transformer() -> Program:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    body = nn.Sequential(nn.Embedding(5000, 256), nn.TransformerEncoder(layer, 12), nn.Linear(256, 5000))
    tokens, classes = torch.randint(0, 5000, (4, 64)), torch.randint(0, 5000, (4, 64))
    optimizer = torch.optim.AdamW(body.parameters(), lr=1e-4)
    return _train(
        body, optimizer, [tokens, classes],
        lambda x, y: nn.functional.cross_entropy(body(x).view(-1, 5000), y.view(-1)),
    )  # fmt: skip


def resnet50() -> Program:
    from opmark.models.networks.resnet import resnet

    network = resnet(blocks=(3, 4, 6, 3), bottleneck=True).train()
    images, classes = torch.randn(4, 3, 64, 64), torch.randint(0, 1000, (4,))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    return _train(network, optimizer, [images, classes], lambda x, y: nn.functional.cross_entropy(network(x), y))


class _Dlrm(nn.Module):  # type: ignore[misc]
    """Embedding bags, an MLP for dense features, products of all pairs, an MLP."""

    def __init__(self, tables: int = 8, rows: int = 20000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width)
        )
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + width, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, dense: Any, offsets: Any, *indices: Any) -> Any:
        low = self.bottom(dense)
        found = torch.stack([low, *(table(one, offsets) for table, one in zip(self.tables, indices, strict=True))], 1)
        products = torch.bmm(found, found.transpose(1, 2))
        rows, columns = torch.tril_indices(found.shape[1], found.shape[1], -1)
        return self.top(torch.cat([low, products[:, rows, columns]], 1))


def dlrm() -> Program:
    network, batch, bag = _Dlrm(), 256, 10
    dense, clicks = torch.randn(batch, 13), torch.rand(batch, 1)
    offsets = torch.arange(0, batch * bag, bag)
    indices = [torch.randint(0, 20000, (batch * bag,)) for _ in network.tables]
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-2)
    return _train(
        network, optimizer, [dense, clicks, offsets, *indices],
        lambda x, y, o, *i: nn.functional.binary_cross_entropy_with_logits(network(x, o, *i), y),
    )  # fmt: skip


def gpt2() -> Program:
    from transformers import GPT2Config, GPT2LMHeadModel

    network = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=256, n_head=4, vocab_size=5000, n_positions=128))
    tokens = torch.randint(0, 5000, (4, 64))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    return _train(network, optimizer, [tokens], lambda x: network(input_ids=x, labels=x, use_cache=False).loss)


def ddp() -> Program:
    network = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 512))
    )
    data, target = torch.randn(64, 512), torch.randn(64, 512)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)

    def buckets() -> int:
        known = network._get_ddp_logging_data()
        sizes = known.get("rebuilt_bucket_sizes") or known["bucket_sizes"]
        return sum(int(size) for size in sizes.split(","))

    program = _train(network, optimizer, [data, target], lambda x, y: nn.functional.mse_loss(network(x), y))
    return program._replace(buckets=buckets)


PROGRAMS = {"transformer": transformer, "resnet50": resnet50, "dlrm": dlrm, "gpt2": gpt2}
TITLES = {
    "transformer": "12-layer transformer, AdamW", "resnet50": "ResNet-50, images of 64x64, SGD with momentum",
    "dlrm": "DLRM, 8 tables, SGD", "gpt2": "GPT-2 of transformers, 6 layers of 256, AdamW",
    "ddp": "DDP of an MLP, 2 ranks on gloo, SGD",
}  # fmt: skip


def _activities() -> list[Any]:
    from torch.profiler import ProfilerActivity

    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if _on_gpu() else [])]


def _on_gpu() -> bool:
    return bool(torch.get_default_device().type == "cuda")


def _wait() -> None:
    if _on_gpu():
        torch.cuda.synchronize()


def capture(step: Step, path: Path) -> None:
    """Write the execution trace of one step, and the profiler's trace beside it."""
    from torch.profiler import ExecutionTraceObserver, profile

    for _ in range(_WARM_UP):
        step()
    _wait()
    observer = ExecutionTraceObserver().register_callback(str(path))
    with profile(activities=_activities(), execution_trace_observer=observer) as found:
        step()
        _wait()
    observer.unregister_callback()
    found.export_chrome_trace(str(path.with_suffix(".kineto.json")))


def measure(name: str, program: Program, replay: Replay) -> ReplayRow:
    """Run the original step and its replay in turns, and compare."""
    pairs, walls, originals = [], [], []
    for _ in range(_WARM_UP):
        program.step()
        replay()
    for number in range(_ROUNDS):
        order = (program.step, replay) if number % 2 else (replay, program.step)
        times = {step: _time(step) for step in order}
        pairs.append(times[replay][0] / times[program.step][0])
        walls.append(times[replay][1] / times[program.step][1])
        originals.append(times[program.step][0])
    before = _peak(program.step) + _bytes(program.lives()) + program.buckets()
    after = _peak(replay) + replay.made_bytes + _bytes(replay.kept)
    report = replay.report()
    gaps = "; ".join(f"{gap.calls} x {', '.join(gap.operators)}: {gap.reason}" for gap in report.gaps)
    return ReplayRow(
        name, report.headline, median(pairs), median(walls), median(originals), after / before, before, gaps or "none"
    )


def _time(step: Step) -> tuple[float, float]:
    _wait()
    wall, start = time.perf_counter(), time.process_time()
    step()
    cpu, wall = time.process_time() - start, time.perf_counter() - wall
    return (_kernel_time(step) if _on_gpu() else cpu), wall


def _kernel_time(step: Step) -> float:
    """Return the seconds of all kernels, copies and sets of a step, added up."""
    from torch.autograd import DeviceType
    from torch.profiler import profile

    with profile(activities=_activities()) as found:
        step()
        _wait()
    events = found.profiler.kineto_results.events()
    return (
        sum(
            float(one.duration_ns())
            for one in events
            if one.device_type() == DeviceType.CUDA and not one.is_user_annotation()
        )
        / 1e9
    )


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}.values())


def _peak(step: Step) -> int:
    """Return the most bytes that a step has allocated at once, beyond what was there before."""
    if _on_gpu():
        _wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        _wait()
        return int(torch.cuda.max_memory_allocated() - before)
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    events = [one for one in found.profiler.kineto_results.events() if one.name() == "[memory]"]
    live = peak = 0
    for one in sorted(events, key=lambda event: event.start_ns()):
        live += one.nbytes()
        peak = max(peak, live)
    return peak


def run_program(name: str, device: str) -> ReplayRow:
    torch.set_num_threads(1)
    torch.set_default_device(device)
    torch.manual_seed(0)
    program = PROGRAMS[name]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.json"
        capture(program.step, path)
        replay = compile_replay(read_trace(path), device=device)
    return measure(name, program, replay)


def run_ddp(rank: int, world: int, device: str, meeting: str, results: Any) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.set_default_device(device)
    torch.manual_seed(0)
    library = "gloo" if device == "cpu" else "nccl"
    dist.init_process_group(library, init_method=f"file://{meeting}", rank=rank, world_size=world)
    program = ddp()
    path = Path(meeting).parent / f"step.rank-{rank}.json"
    capture(program.step, path)
    trace = read_trace(path)
    replay = compile_replay(trace, device=device, groups=ReplayGroups(rank, world, world, trace.groups))
    found = measure("ddp", program, replay)
    if rank == 0:
        results.put(tuple(found))
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TITLES)} [default: all]")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in TITLES]:
        parser.error(f"no program is called {unknown[0]}; there are {', '.join(TITLES)}")
    device, world = options.device, 2 if options.device == "cpu" else torch.cuda.device_count()
    time_name, wall_name = ("CPU time", "wall time") if device == "cpu" else ("kernel time", "host time")
    print(f"| program, one training step | replayed | {time_name}, replay / original | {wall_name} | original, "
          f"{time_name} | peak memory | gaps |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for name in options.names or TITLES:
        if name == "ddp":
            import torch.multiprocessing as processes

            with tempfile.TemporaryDirectory() as folder:
                results = processes.get_context("spawn").Queue()
                processes.spawn(run_ddp, (world, device, str(Path(folder) / "meeting"), results), nprocs=world)
                row = ReplayRow(*results.get())
        else:
            row = run_program(name, device)
        title = TITLES[name] if device == "cpu" else TITLES[name].replace("2 ranks on gloo", f"NCCL, world of {world}")
        cells = [
            title, row.coverage, f"{row.ratio:.3f}", f"{row.wall_ratio:.3f}", seconds(row.original),
            f"{row.memory_ratio:.2f} x {count_bytes(row.peak)}", row.gaps,
        ]  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
