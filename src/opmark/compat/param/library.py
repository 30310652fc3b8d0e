"""Runs a config of PARAM from Python and returns its results as objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from opmark.api import talk
from opmark.compat.param.execute import read, run
from opmark.compat.param.options import Options
from opmark.compat.param.result import CaseResult
from opmark.compat.visible import set_variables
from opmark.errors import InvalidFile
from opmark.runner.intake import complaints


def run_config(
    config: Mapping[str, Any] | str | os.PathLike[str],
    *,
    on_result: Callable[[CaseResult], None] | None = None,
    say: Callable[[str], None] = talk,
    **options: Any,
) -> list[CaseResult]:
    """Return the results of all cases in the order of the config, failed ones included.

    `options` are those of `Options`, as in warmup=5, iteration=50, backward=True, device="cuda:1". Runs are not stored
    unless `db` names a store. Problems of the config are reported through `say`; with strict=True, and if no case is
    left, they are an error.
    """
    settings = Options(**{"db": ":memory:", **options})
    target, whole = settings.target(), read(config, settings)
    for line in [*complaints(whole.problems, whole.notes), *settings.notes(target)]:
        say(line)
    if not whole.spots:
        raise InvalidFile("the config has no case", "as in {'torch.add': {'config': [{'input': [...]}], ...}}")
    found: list[CaseResult] = []

    def add(result: CaseResult) -> None:
        found.append(result)
        if on_result:
            on_result(result)

    with set_variables(target.environ):
        run(whole, settings, target, add, say=say)
    return found
