"""Cost of a large catalogue: expanding workloads, and measuring every operator of the framework."""

from __future__ import annotations

import json
import time
from collections import Counter

from benchmarks.common import OPMARK, Row, Shell
from opmark.catalogue.expansion import expand
from opmark.plugin.registry import operator
from opmark.schema import Entry, Workload

EXPAND_TARGET = 2.0
ALL_TARGET = 600.0
AXES = {
    "matmul": {"M": list(range(1, 251)), "K": list(range(1, 101)), "N": 64,
               "dtype": ["float64", "float32", "float16", "bfloat16"]},
    "scaled_dot_product_attention": {"batch": list(range(1, 101)), "q_len": list(range(1, 1001)), "kv_len": 64,
                                     "heads": 8, "head_dim": 64},
}  # fmt: skip


def rows(shell: Shell) -> list[Row]:
    return [*(_expansion_row(name) for name in AXES), *_every_operator(shell)]


def _expansion_row(name: str) -> Row:
    workload = Workload(1, "axes", [Entry(name, AXES[name])])
    operator(name)
    started = time.perf_counter()
    cases = expand(workload, operator)
    took = time.perf_counter() - started
    what = f"expanding {len(cases):,} cases of {name}"
    return Row(what, f"at most {EXPAND_TARGET:g} s", f"{took:.2f} s", took <= EXPAND_TARGET)


def _every_operator(shell: Shell) -> list[Row]:
    run = (OPMARK, "run", "--suite", "torch-all", "--effort", "quick", "--json", "--db", str(shell.db))
    started = time.perf_counter()
    output = shell.run(*run, codes=(0, 1))
    took = time.perf_counter() - started
    records = [json.loads(line) for line in output.splitlines()]
    counts = Counter((record["phase"], record["status"]) for record in records)
    listed = ", ".join(f"{phase} {status} {count}" for (phase, status), count in sorted(counts.items()))
    bound = sum(_overhead_bound(record) for record in records)
    return [
        Row("`--suite torch-all --effort quick`, from the shell", f"at most {ALL_TARGET:g} s", f"{took:.0f} s",
            took <= ALL_TARGET),
        Row("its records", "one for every operator and phase", f"{len(records)}: {listed}; {bound} overhead-bound",
            len(records) == 2 * len({record["op"] for record in records})),
    ]  # fmt: skip


def _overhead_bound(record: dict[str, object]) -> bool:
    return '"overhead-bound"' in json.dumps(record)
