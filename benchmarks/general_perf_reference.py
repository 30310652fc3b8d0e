"""Measures the reference results that `opmark general-perf` shows beside a vendor's own.

    python -m benchmarks.general_perf_reference --hardware_type CPU
    python -m benchmarks.general_perf_reference --hardware_type GPU --precision fp32,fp16 --batch_sizes 1,8,32

The runs are added to the store that ships inside the package; what failed or was disturbed there is left out. Run it on
a quiet machine: a figure of a busy one keeps its caution, which every report repeats.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from opmark import run
from opmark.api.result import open_store, store_all
from opmark.interop.general_perf import resolution, tasks
from opmark.schema import Environment, Record, Run, Workload
from opmark.schema.record import COUNTED

STORE = Path(resolution.__file__).with_name("reference.sqlite")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hardware_type", default="CPU")
    parser.add_argument("--models", default=",".join(tasks.MODELS))
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--batch_sizes", default="1")
    parser.add_argument("--clients", default="1", help="as in 1,3")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--store", type=Path, default=STORE)
    options = parser.parse_args()
    sizes = tuple(int(size) for size in options.batch_sizes.split(","))
    for model in options.models.split(","):
        for precision in options.precision.split(","):
            name = f"{model}-{tasks.MODELS[model].tasks[-1].partition('-')[0]}-{precision}".replace("ixrt", "torch")
            _measure(name, sizes, options)
    # One file that can be read where nothing can be written: no journal beside it.
    with closing(sqlite3.connect(options.store)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("VACUUM")


def _measure(name: str, sizes: tuple[int, ...], options: argparse.Namespace) -> None:
    folders = resolution.TaskFolders()
    workload, _ = resolution.read_workload(name, folders)
    task = resolution.resolve_task(name, replace(workload, batch_sizes=sizes), folders)
    backend = resolution.choose_backend(options.hardware_type, task).backend
    with tempfile.TemporaryDirectory() as folder:
        whole = run(
            workload=Workload(1, name, task.entries()), backend=backend, processes=1, effort="quick", label=name,
            clients=[int(count) for count in options.clients.split(",")], requests=options.iterations,
            request_timeout=options.timeout, timeout=options.timeout, retries=0, db=Path(folder) / "runs.db",
        )  # fmt: skip
        kept = [record for record in whole.records if record.status in COUNTED]
        for record in whole.records:
            print(name, record.task.case.params["batch"], record.status, record.reason, flush=True)
        if kept:
            with closing(open_store(Path(folder) / "runs.db")) as source:
                found = source.environments(sorted({record.environment for record in kept}))
            keep(options.store, whole.run, kept, found)


def keep(place: Path, run: Run, records: Sequence[Record], environments: Mapping[str, Environment]) -> None:
    """Add records to the store, without what says where on a machine something lies."""
    public = {
        key: Environment.of({name: value for name, value in one.facts.items() if name not in _PRIVATE})
        for key, one in environments.items()
    }
    named = [replace(record, environment=public[record.environment].id) for record in records]
    with closing(open_store(place, create=True)) as store:
        store_all(store, replace(run, command="", revision=""), public.values(), named)


_PRIVATE = ("gpu_uuid", "interpreter", "machine", "system", "variables")
"""Facts of an environment that stay on the machine."""


if __name__ == "__main__":
    main()
