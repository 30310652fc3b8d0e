"""opmark param driver: PARAM's older standalone driver.py, with its data sets and its tables of rates."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from opmark.errors import UserError
from opmark.interop.param.arguments import element_type
from opmark.plugin.registry import resolve
from opmark.schema import Entry, Record, Run, Workload
from opmark.schema.workload import VERSION

if TYPE_CHECKING:
    from opmark.runner.plan import Plan

_M = (128, 256, 512, 1024)
GEMM: dict[str, list[tuple[int, int, int]]] = {
    "A": [
        *((m, n, n) for n in (4096, 1024) for m in _M),
        *((4096, 4096, k) for k in _M),
        *((1024, 1024, k) for k in _M[:3]),
    ],
    "B": [
        *((m, n, k) for n, k in ((4096, 40928), (40928, 4096), (1024, 2000)) for m in _M),
        *((m, n, k) for m, n in ((1024, 2000), (4096, 40928)) for k in _M),
    ],
    "C": [(1024, 1024, 64), (1024, 64, 1024), (1024, 4096, 1024), (1024, 1024, 4096)],
}
"""M, N and K of matrix products, by data set."""
EMBEDDINGS: dict[str, list[tuple[int, int, int, int]]] = {
    "A": [(rows, 128, 30, 2**n) for rows in (14_000_000, 26_000_000) for n in range(9, 17)],
    "B": [(4_800_000, 56, 34, 2**n) for n in range(11, 17)],
}
"""Rows, elements of a row, rows per bag, and bags."""
LINEAR: dict[str, list[tuple[int, int, int, int, int]]] = {
    "A": [(18, size, size, size, 2**n) for size in (1024, 4096) for n in range(7, 13)],
}
"""Hidden layers, and sizes of input, hidden layers, output and batch."""
_DATA_SETS: dict[str, dict[str, Any]] = {"gemm": GEMM, "emb": EMBEDDINGS, "linear": LINEAR}
_BACKENDS = {"cpu": "torch-cpu", "gpu": "torch-cuda"}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="opmark param driver",
        description="PARAM's older driver.py: kernels with fixed data sets.",
        epilog="`opmark param driver --device cpu gemm -h` lists the options of a kernel, as --dataset and --dtype.",
    )
    made.add_argument("--warmups", type=int, default=10, help="Calls before the measured ones. [10]")
    made.add_argument("--steps", type=int, default=100, help="Measured calls. [100]")
    made.add_argument("--device", required=True, choices=("cpu", "gpu", "tpu"), help="Device to measure.")
    made.add_argument("--set-to-none", action="store_true", help="Has no effect: gradients are always made anew.")
    made.add_argument("--explicit-cast", action="store_true", help="Has no effect: weights have the type of the data.")
    made.add_argument("--threads", type=int, help="Threads of the framework, an option of opmark. [all cores]")
    made.add_argument("--db", help="The store of runs, an option of opmark. [$OPMARK_DB or the data directory]")
    kernels = made.add_subparsers(title="kernels", dest="kernel", required=True)
    gemm = kernels.add_parser("gemm", help="matrix products: (m, k) x (k, n)")
    gemm.add_argument("-t", "--dtype", default="float32", help="Element type. [float32]")
    emb = kernels.add_parser("emb", help="embedding bags, summed")
    emb.add_argument("--randomseed", type=int, default=0, help="Seed of the indices. [0]")
    emb.add_argument("--alpha", type=float, default=0.0, help="Power of a Zipf distribution; 0: uniform. [0]")
    linear = kernels.add_parser("linear", help="training steps of a multi-layer perceptron")
    linear.add_argument("-t", "--dtype", default="float", choices=("float", "float16", "bfloat16"), help="[float]")
    linear.add_argument("--optimizer", action="store_true", help="Make the optimizer's step on a GPU too.")
    linear.add_argument("--optimizer-type", default="sgd", choices=("sgd", "adagrad"), help="[sgd]")
    linear.add_argument("--fw-only", action="store_true", help="Forward only.")
    for name, kernel in (("gemm", gemm), ("emb", emb), ("linear", linear)):
        kernel.add_argument("-d", "--dataset", choices=tuple(_DATA_SETS[name]), default="A", help="[A]")
    return made


def main(arguments: Sequence[str]) -> int:
    """Run a data set and print one row per point; return 1 if a point failed or the run is not in its store yet, 130
    after Ctrl-C."""
    given = parser().parse_args(list(arguments))
    if given.device == "tpu":
        raise UserError("--device tpu: opmark has no backend for torch_xla", f"use one of {', '.join(_BACKENDS)}")
    for name in ("warmups", "steps"):
        if getattr(given, name) < (name == "steps"):
            raise UserError(f"--{name}: expected a positive number, got {getattr(given, name)}", f"as in --{name} 10")
    table = _TABLES[given.kernel]
    points = {f"driver#{given.kernel}|{given.dataset}|{i}": point
              for i, point in enumerate(_DATA_SETS[given.kernel][given.dataset])}  # fmt: skip
    entries = [table.entry(point, given, source) for source, point in points.items()]
    from opmark.api.result import interruption_line
    from opmark.api.run import run

    print(f"Measuring the performance of {given.kernel} on device = {given.device}")
    print(f"Steps = {given.steps}  warmups = {given.warmups}")
    print(f"with data set {given.dataset}, data type: {getattr(given, 'dtype', 'float32')}")
    print(f"{table.rule}\n{table.title}\n{table.rule}", flush=True)
    rows = _DriverRows(table, given, points)
    try:
        result = run(
            workload=Workload(VERSION, f"driver-{given.kernel}-{given.dataset}", entries),
            backend=_BACKENDS[given.device], warmup=given.warmups, samples=given.steps, processes=1,
            seed=getattr(given, "randomseed", 0), timeout=600.0, db=given.db,
            threads=() if given.threads is None else given.threads, on_start=rows.start, on_record=rows.add,
        )  # fmt: skip
    except KeyboardInterrupt:
        print(interruption_line(rows.stored_runs, given.db), file=sys.stderr)
        return 130
    print(result.storage)
    return 1 if rows.failed or result.journals else 0


class _DriverRows:
    """Prints the row of each point as soon as it is measured: a point that is measured again comes last."""

    def __init__(self, table: _KernelTable, given: argparse.Namespace, points: dict[str, Any]) -> None:
        self._table, self._given, self._waiting = table, given, dict(points)
        self._run_id = ""
        self.stored_runs: list[str] = []
        self.failed = False

    def start(self, run: Run, plan: Plan, done: list[Record]) -> None:
        self._run_id = run.id

    def add(self, record: Record) -> None:
        self.stored_runs = self.stored_runs if record.untried else [self._run_id]
        for source in record.task.case.sources:
            point = self._waiting.pop(source, None)
            if point is None:
                continue
            if record.measurements:
                print(self._table.row(point, fmean(record.measurements[0].samples), self._given), flush=True)
            else:
                self.failed = True
                print(f"{', '.join(map(str, point))}: {record.status_text}: {record.reason}", flush=True)


class _KernelTable(NamedTuple):
    title: str
    entry: Any
    row: Any

    @property
    def rule(self) -> str:
        return "-" * len(self.title)


def _gemm_entry(point: tuple[int, int, int], given: argparse.Namespace, source: str) -> Entry:
    m, n, k = point
    params = {"M": m, "N": n, "K": k, "dtype": element_type(given.dtype, "--dtype")}
    return Entry("matmul", params, phases=["forward"], source=source)


def _gemm_row(point: tuple[int, int, int], seconds: float, given: argparse.Namespace) -> str:
    m, n, k = point
    return f"{m:10}, {n:10}, {k:10},     {seconds:10.6f}     {2 * m * n * k / seconds / 1e12:.3f}"


def _emb_entry(point: tuple[int, int, int, int], given: argparse.Namespace, source: str) -> Entry:
    rows, dim, pooling, bags = point
    params: dict[str, Any] = {"rows": rows, "dim": dim, "pooling": pooling, "bags": bags}
    if given.alpha:
        params |= {"distribution": "zipf", "alpha": given.alpha}
    return Entry("embedding_bag", params, phases=["forward"], source=source)


def _emb_row(point: tuple[int, int, int, int], seconds: float, given: argparse.Namespace) -> str:
    rows, dim, pooling, bags = point
    nbytes = bags * pooling * dim * 4
    return (
        f"{rows:10},  {dim:6},  {pooling:6},  {bags:8},     {seconds:10.6f},   {nbytes / 1e6:8.1f},   "
        f"{nbytes / seconds / 1e9:8.3f}"
    )


def _linear_entry(point: tuple[int, int, int, int, int], given: argparse.Namespace, source: str) -> Entry:
    hidden, first, middle, last, batch = point
    sizes = [first, *[middle] * hidden, last]
    dtype = element_type(given.dtype, "--dtype")
    # PARAM makes the step on a CPU always, and on a GPU only with --optimizer.
    optimizer = given.optimizer_type if given.optimizer or given.device == "cpu" else ""
    build = [{"value": sizes}, dtype, "" if given.fw_only else "train", optimizer]
    args = [f"{batch}x{first} {dtype}", f"{batch} int64 0..{last}"]
    name = "opmark.interop.param.driver:LinearTraining"
    return Entry(name, {}, phases=["forward"], args=args, build={"args": build}, source=source)


def _linear_row(point: tuple[int, int, int, int, int], seconds: float, given: argparse.Namespace) -> str:
    hidden, first, middle, last, batch = point
    sizes = [first, *[middle] * hidden, last]
    products = sum(a * b for a, b in pairwise(sizes))
    rate = (2 if given.fw_only else 6) * products * batch / seconds / 1e12
    return (
        f"{len(sizes):6},  {first:6},  {middle:6},  {last:6},  {batch:6},  {seconds:10.6f},  {batch / seconds:8.1f}, "
        f"{rate:10.3f}"
    )


_TABLES = {
    "gemm": _KernelTable("         M,          N,          K,        Time(s)      Rate(TF/s)", _gemm_entry, _gemm_row),
    "emb": _KernelTable("  Features,  embdim,     nnz,     batch,     Time(s)/step,   Data(MB),   BW(GB/s)", _emb_entry,
                        _emb_row),
    "linear": _KernelTable("#Layer,   Input,  Hidden,  Output,   Batch, Time(s)/step,      QPS, Rate(TF/s)",
                           _linear_entry, _linear_row),
}  # fmt: skip


class LinearTraining:
    """A training step of PARAM's perceptron: layers with ReLU, softmax, cross entropy, gradients and an update."""

    def __init__(self, sizes: Sequence[int], dtype: str, train: str, optimizer: str) -> None:
        torch = resolve("torch")
        layers: list[Any] = []
        for taken, given in pairwise(sizes):
            layers += [torch.nn.Linear(taken, given), torch.nn.ReLU()]
        self._model = torch.nn.Sequential(*layers, torch.nn.Softmax(1)).to(getattr(torch, dtype))
        self._loss, self._grad = torch.nn.CrossEntropyLoss(), torch.enable_grad
        kinds = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}
        self._trains = train == "train"
        self._optimizer = kinds[optimizer](self._model.parameters(), lr=0.01) if optimizer and self._trains else None

    def parameters(self) -> Any:
        return self._model.parameters()

    def __call__(self, data: Any, target: Any) -> Any:
        if not self._trains:
            return self._model(data)
        with self._grad():
            self._model.zero_grad()
            loss = self._loss(self._model(data).float(), target)
            loss.backward()
            if self._optimizer is not None:
                self._optimizer.step()
        return loss.detach()
