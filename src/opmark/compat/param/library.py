"""A config of PARAM's made in code: run, and its results as objects. No file is read or written."""

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
    """The results of every case, in the order of the config; those that failed are among them.

    `options`: those of `Options`, as in warmup=5, iteration=50, backward=True, device="cuda:1". Runs are kept nowhere
    unless `db` names a store. A part of the config that is not understood is said; with strict=True it is an error,
    as it is if nothing is left.
    """
    asked = Options(**{"db": ":memory:", **options})
    target, whole = asked.target(), read(config, asked)
    for line in [*complaints(whole.problems, whole.notes), *asked.notes(target)]:
        say(line)
    if not whole.spots:
        raise InvalidFile("the config has no case", "as in {'torch.add': {'config': [{'input': [...]}], ...}}")
    found: list[CaseResult] = []

    def add(result: CaseResult) -> None:
        found.append(result)
        if on_result:
            on_result(result)

    with set_variables(target.environ):
        run(whole, asked, target, add, say=say)
    return found
