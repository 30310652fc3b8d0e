"""How much of a folder of operator inputs runs here, and why the rest does not: `python -m benchmarks.operator_inputs`.

Every distinct case of the folder with at most `--elements` elements is called on torch-cpu: two calls each, without
verification. Half precision is slow on a CPU, so larger cases are called with tensors that have no data, which shows
whether torch accepts the call; `--sample N` runs so many of these as well.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from math import prod
from pathlib import Path

import opmark
from opmark.api.import_ import read_workload
from opmark.catalogue.expansion import cases_of
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case, Entry, Workload
from opmark.schema.record import MEASURED
from opmark.units import count_noun

_ELEMENTS = 1 << 17


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--elements", type=int, default=_ELEMENTS, help="the most elements of all inputs of a case")
    parser.add_argument("--sample", type=int, default=0, help="run so many of the larger cases as well")
    parser.add_argument("--timeout", type=float, default=20.0)
    given = parser.parse_args()
    started = time.perf_counter()
    taken = read_workload(given.folder)
    reading = time.perf_counter() - started
    refused = Counter[str]()
    for problem in taken.problems:
        lines = re.search(r" \((\d+) lines\)$", problem.message)
        refused[re.sub(r" \(\d+ lines\)$", "", problem.message)] += int(lines[1]) if lines else 1
    distinct: dict[str, Entry] = {}
    for entry in taken.workload.cases:
        for case in cases_of(entry, find_operator):
            distinct.setdefault(case.id, entry)
    cases = {case.id: case for case in taken.distinct()}
    small = [key for key in distinct if _elements(cases[key]) <= given.elements]
    large = [key for key in distinct if _elements(cases[key]) > given.elements]
    sampled = random.Random(0).sample(large, min(given.sample, len(large)))
    chosen = [distinct[key] for key in (*small, *sampled)]
    print(f"{len(taken.cases)} calls, read in {reading:.1f} s: {count_noun(len(distinct), 'distinct case')}")
    print(f"{len(small)} with at most {given.elements} elements, {len(sampled)} of {len(large)} larger ones")
    recognised = sum("." not in entry.op for entry in distinct.values())
    print(f"{recognised} of the distinct cases are operators of the catalogue")
    with tempfile.TemporaryDirectory() as folder:
        result = opmark.run(
            workload=Workload(1, given.folder.name, chosen), backend="torch-cpu", samples=1, warmup=1, verify=False,
            quantity="latency", cache="warm", retries=0, timeout=given.timeout, db=f"{folder}/runs.db",
            processes=1, say=lambda line: print(line, file=sys.stderr),
        )  # fmt: skip
    accepted = Counter(_why_not_accepted(cases[key]) for key in large if "." in cases[key].op)
    known = sum("." not in cases[key].op for key in large)
    print(
        f"without data: {known} of the catalogue, {accepted.pop('', 0)} calls accepted, not accepted: {dict(accepted)}"
    )
    statuses = Counter(record.status for record in result.records)
    print("statuses:", dict(statuses))
    why = Counter[str]()
    example: dict[str, str] = {}
    for record in result.records:
        if record.status not in MEASURED:
            text = f"{record.status}: {_plain(record.reason)}"
            why[text] += 1
            example.setdefault(text, f"{record.task.case.op} {record.task.case.params}")
    for text, number in why.most_common():
        print(f"{number:6} {text}\n       as {example[text][:300]}")
    for text, number in refused.most_common():
        print(f"{number:6} lines refused on import: {text}")


def _why_not_accepted(case: Case) -> str:
    """Call a function of torch with tensors that have no data. Return why it does not accept them; empty if it does."""
    import torch
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

    with FakeTensorMode(), torch.no_grad():
        given = {
            name: torch.empty_strided(
                spec.shape, spec.strides or _contiguous(spec.shape), dtype=getattr(torch, spec.dtype)
            )
            for name, spec in find_operator(case.op).inputs(case.params).items()
        }
        call = find_operator(case.op).implementations_for("torch")[0].build(case.params, **given)
        try:
            call()
        except (DataDependentOutputException, DynamicOutputShapeException):
            return f"{case.op}: the shape of the result depends on the data"
        except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError) as error:
            return f"{case.op}: {_plain(str(error))}"
    return ""


def _contiguous(shape: Sequence[int]) -> list[int]:
    return [prod(shape[place + 1 :]) for place in range(len(shape))]


def _elements(case: Case) -> int:
    return sum(spec.elements for spec in find_operator(case.op).inputs(case.params).values())


def _plain(reason: str) -> str:
    """Return a reason without the numbers of one case."""
    return re.sub(r"\d+", "N", reason)[:160]


if __name__ == "__main__":
    main()
