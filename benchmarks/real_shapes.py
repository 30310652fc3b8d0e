"""Makes the suite `real-shapes` out of a folder of operator inputs: `python -m benchmarks.real_shapes FOLDER`.

The rule is in DESCRIPTION, which the suite has as its description.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from msgspec.structs import replace

from opmark.api.import_ import read_workload
from opmark.catalogue.expansion import cases_of
from opmark.catalogue.workload_file import json_text
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Entry, Workload
from opmark.schema.workload import VERSION

FREQUENT, LARGEST = 10, 1 << 27
DESCRIPTION = (
    "Calls of torch's operators in training steps of 117 models (HuggingFace, timm, TorchBench; mixed precision), with "
    "their counts summed over all models. Of each operator: the {frequent} cases that are called most often, and the "
    "smallest and the largest one; none with more than {largest} elements or with empty tensors. Tags name the "
    "collection. Calls that are operators of the catalogue are written as these. Source: meta-pytorch/tritonbench, "
    "data/input_configs, BSD-3-Clause, Copyright (c) Meta Platforms, Inc. and affiliates; made by "
    "benchmarks/real_shapes.py."
)
SUITE = Path(__file__).parents[1] / "src" / "opmark" / "catalogue" / "suites" / "real-shapes.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    entries = choose(read_workload(given.folder).workload.cases)
    description = DESCRIPTION.format(frequent=FREQUENT, largest=f"{LARGEST:,}")
    text = json_text(Workload(VERSION, "real-shapes", entries, description))
    SUITE.write_text(text.replace('{"op":', '\n{"op":'))
    print(f"{len(entries)} cases in {SUITE}")


def choose(entries: list[Entry]) -> list[Entry]:
    """Return the cases of the suite, by operator."""
    whole: dict[str, Entry] = {}
    sizes: dict[str, int] = {}
    empty: dict[str, bool] = {}
    for entry in entries:
        (case,) = cases_of(entry, find_operator)
        key, specs = case.id, find_operator(case.op).inputs(case.params).values()
        sizes[key] = sum(spec.elements for spec in specs)
        empty[key] = any(not spec.elements for spec in specs)
        known = whole.get(key)
        tags = sorted({*(known.tags if known else ()), entry.source.partition("_")[0]})
        operator = known.source if known else _operator(entry)
        whole[key] = replace(entry, count=entry.count + (known.count if known else 0), tags=tags, source=operator)
    by_operator: defaultdict[str, list[str]] = defaultdict(list)
    for key, entry in whole.items():
        if 0 < sizes[key] <= LARGEST and not empty[key]:
            by_operator[entry.source].append(key)
    found = []
    for operator in sorted(by_operator):
        keys = sorted(by_operator[operator], key=lambda key: (-whole[key].count, sizes[key], key))
        ends = (min(keys, key=lambda key: (sizes[key], key)), max(keys, key=lambda key: (sizes[key], key)))
        chosen = dict.fromkeys((*keys[:FREQUENT], *ends))
        found += [replace(whole[key], source="") for key in chosen]
    return found


def _operator(entry: Entry) -> str:
    return entry.source.partition("#")[2] or entry.op


if __name__ == "__main__":
    main()
