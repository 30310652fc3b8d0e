"""A case of ours in the words of ByteMicroPerf, for those who write its files."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from opmark.importers.bytemicroperf.form import Form
from opmark.importers.bytemicroperf.tasks import FORMS
from opmark.schema import Case


class Foreign(NamedTuple):
    op: str
    """`gemm`"""
    arguments: dict[str, Any]
    """One point: `{"arg_type": "default", "M": 8, "K": 64, "N": 64, "dtype": "float16"}`."""


@cache
def _forms(op: str) -> tuple[Form, ...]:
    """Those first that a case only has when it was asked for so."""
    found = [form for forms in FORMS.values() for form in forms if form.op == op and (form.back or form.asked)]
    return tuple(sorted(found, key=lambda form: form.back))


def foreign(case: Case) -> Foreign | None:
    """The operator and the arguments that its third generation has for a case; None where it cannot say it.

    An operator that only an earlier generation has goes by its name there, with arguments in the style of the third.
    What was imported from it comes back in the form that it had, and imported again as the same case.
    """
    if case.phase != "forward" or case.wrt:
        return None
    for form in _forms(case.op):
        if form.asked and form.tag not in case.tags:
            continue
        arguments = form.arguments(case.params)
        if arguments is not None:
            return Foreign(form.task, arguments)
    return None
