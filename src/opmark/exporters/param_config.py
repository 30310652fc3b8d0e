"""Cases as a config of PARAM: `{operator: {"config": [{"build": [...], "input": [...]}]}}`, every point written out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from opmark.exporters.param_specs import Unsaid, Written, written
from opmark.schema import Case

# What PARAM has under its own names; it calls whatever else is registered with it.
_REGISTERED = frozenset(
    {
        "torch.add_", "torch.clamp_", "torch.add", "torch.baddbmm", "torch.bmm", "torch.cat", "torch.matmul",
        "torch.mean", "torch.mm", "torch.mul", "torch.reshape", "torch.nn.functional.relu",
        "torch.nn.AdaptiveAvgPool2d", "torch.nn.Conv2d", "torch.nn.Dropout", "torch.nn.MaxPool2d", "torch.nn.ReLU",
        "torch.nn.Linear", "pytorch.model.alex_net", "pytorch.model.resnet", "SplitTableBatchedEmbeddingBagsCodegen",
    }
)  # fmt: skip


class _Config:
    name = "param"
    summary = "a config of PARAM, with a spec for each case"

    def files(self, name: str, cases: Sequence[Case]) -> tuple[Mapping[str, str], Sequence[str]]:
        said: dict[str, list[Written]] = {}
        lines: dict[str, None] = {}
        for case in _with_gradients(cases):
            try:
                found = written(case)
            except Unsaid as reason:
                lines[f"{case.op}: {reason}"] = None
                continue
            said.setdefault(found.op, []).append(found)
            lines.update(dict.fromkeys(found.lost))
        config = {op: {**points[0].tools, "config": list(_configs(points))} for op, points in said.items()}
        foreign = [op for op in said if op not in _REGISTERED]
        if foreign:
            lines[f"PARAM itself has no operator named {', '.join(foreign)}: register what is called there"] = None
        if any(case.phase != "forward" for case in cases):
            lines["phases: a backward pass is asked for with -b, and not in the file"] = None
        return {f"{name}.json": json.dumps(config, indent=2) + "\n"}, list(lines)


def _with_gradients(cases: Sequence[Case]) -> Iterable[Case]:
    """One for each choice of gradients, in the order of the file: only a backward case says which they are."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(_call(case), []).append(case)
    for group in groups.values():
        yield from _choices(group)


def _choices(group: Sequence[Case]) -> Iterable[Case]:
    """Of the same call. A forward case stands for what has no backward case: for those of its sources."""
    backwards = {case.wrt: case for case in reversed(group) if case.phase != "forward"}
    told = {source for case in backwards.values() for source in case.sources}
    order = {source: rank for rank, source in enumerate(dict.fromkeys(s for case in group for s in case.sources))}
    found = []
    for case in group:
        if case.phase != "forward":
            found += [case] if backwards[case.wrt] is case else []
        elif not backwards or set(case.sources) - told:
            found.append(replace(case, sources=tuple(source for source in case.sources if source not in told)))
    return sorted(found, key=lambda case: order[case.sources[0]] if case.sources else 0)


def _call(case: Case) -> str:
    return json.dumps([case.op, case.params], sort_keys=True)


def _configs(points: Iterable[Written]) -> Iterable[dict[str, Any]]:
    """Neighbours that are built alike share a config. The same input twice is what another phase was."""
    for build, group in groupby(points, key=lambda point: point.build):
        inputs = {json.dumps(point.input, sort_keys=True): point.input for point in group}
        yield {**({} if build is None else {"build": [build]}), "input": list(inputs.values())}


PARAM = _Config()
