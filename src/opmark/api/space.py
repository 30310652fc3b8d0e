"""The knobs of operators, without tuning them: `opmark space`."""

from __future__ import annotations

from typing import Any

from opmark.api.keywords import keywords_of
from opmark.api.requests import SpaceRequest
from opmark.errors import UserError
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import backends
from opmark.runner.selection import ALL, select_cases
from opmark.schema.options import split_names
from opmark.tuning.spaces import export_space, find_tunables


@keywords_of(SpaceRequest)
def space(request: SpaceRequest) -> list[dict[str, Any]]:
    """Return the spaces of cases as plain data: knobs, rules, sizes, and how a number becomes a configuration."""
    return space_request(request)


def space_request(request: SpaceRequest) -> list[dict[str, Any]]:
    """Return everything with knobs among the selected cases, on the named backends or on all."""
    selected = select_cases(request)
    named = split_names(request.backend)
    infos = [find_backend(name) for name in named if name != ALL]
    if not infos:
        infos = [info for info in backends().values() if info.computes and not info.outdated]
    found = [one for case in selected.cases for info in infos for one in find_tunables(case, info, request.impl)]
    if not found:
        ops = ", ".join(dict.fromkeys(case.op for case in selected.cases))
        where = ", ".join(info.name for info in infos) if named else "any backend"
        raise UserError(f"{ops} has no knobs on {where}", "`opmark describe OP` lists implementations")
    return [export_space(one) for one in found]
