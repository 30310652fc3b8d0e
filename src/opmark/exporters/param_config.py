"""Cases as a config of PARAM: `{operator: {"config": [{"build": [...], "input": [...]}]}}`, without ranges."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from opmark.exporters.param_specs import NotExpressible, ParamSpecs, write_case
from opmark.schema import Case

# Operators that PARAM itself registers; others have to be registered with it.
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
    summary = "a config of PARAM, with one spec per case"

    def files(self, name: str, cases: Sequence[Case]) -> tuple[Mapping[str, str], Sequence[str]]:
        by_operator: dict[str, list[ParamSpecs]] = {}
        lines: dict[str, None] = {}
        for case in _with_gradients(cases):
            try:
                found = write_case(case)
            except NotExpressible as reason:
                lines[f"{case.op}: {reason}"] = None
                continue
            by_operator.setdefault(found.op, []).append(found)
            lines.update(dict.fromkeys(found.lost))
        config = {op: {**points[0].tools, "config": list(_configs(points))} for op, points in by_operator.items()}
        unknown = [op for op in by_operator if op not in _REGISTERED]
        if unknown:
            lines[f"PARAM itself has no operator named {', '.join(unknown)}: register it there"] = None
        if any(case.phase != "forward" for case in cases):
            lines["phases: PARAM runs a backward pass with -b, and not by the file"] = None
        return {f"{name}.json": json.dumps(config, indent=2) + "\n"}, list(lines)


def _with_gradients(cases: Sequence[Case]) -> Iterable[Case]:
    """Yield one case for each choice of gradients, which only a backward case has, in the order of the file."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(json.dumps([case.op, case.params], sort_keys=True), []).append(case)
    for group in groups.values():
        yield from _choose_gradients(group)


def _choose_gradients(group: Sequence[Case]) -> Iterable[Case]:
    """Select cases of one call; a forward case stays for its sources that have no backward case."""
    backwards = {case.wrt: case for case in reversed(group) if case.phase != "forward"}
    covered = {source for case in backwards.values() for source in case.sources}
    order = {source: rank for rank, source in enumerate(dict.fromkeys(s for case in group for s in case.sources))}
    found = []
    for case in group:
        if case.phase != "forward":
            found += [case] if backwards[case.wrt] is case else []
        elif not backwards or set(case.sources) - covered:
            found.append(replace(case, sources=tuple(source for source in case.sources if source not in covered)))
    return sorted(found, key=lambda case: order[case.sources[0]] if case.sources else 0)


def _configs(points: Iterable[ParamSpecs]) -> Iterable[dict[str, Any]]:
    """Yield configs: neighbours with the same build share one, and the same input of two phases is written once."""
    for build, group in groupby(points, key=lambda point: point.build):
        inputs = {json.dumps(point.input, sort_keys=True): point.input for point in group}
        yield {**({} if build is None else {"build": [build]}), "input": list(inputs.values())}


PARAM = _Config()
