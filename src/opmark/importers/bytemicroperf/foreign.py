"""Cases of opmark as operators and arguments of ByteMicroPerf, for the exporters."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from opmark.importers.bytemicroperf.form import Form
from opmark.importers.bytemicroperf.tasks import FORMS
from opmark.schema import Case


class ForeignCase(NamedTuple):
    op: str
    """ByteMicroPerf's operator, as in `gemm`."""
    arguments: dict[str, Any]
    """One point, as in `{"arg_type": "default", "M": 8, "K": 64, "N": 64, "dtype": "float16"}`."""


@cache
def _forms(op: str) -> tuple[Form, ...]:
    """Return the forms of an operator; the forms that only imported cases have come first."""
    found = [form for forms in FORMS.values() for form in forms if form.op == op and (form.exported or form.tagged)]
    return tuple(sorted(found, key=lambda form: form.exported))


def to_bytemicroperf(case: Case) -> ForeignCase | None:
    """Return the operator and the arguments of ByteMicroPerf's third generation for a case, or None if it has none.

    An operator of an earlier generation keeps its name there, with arguments in the style of the third generation.
    An imported case comes back in the form that it had, and is the same case when it is imported again.
    """
    if case.phase != "forward" or case.wrt:
        return None
    for form in _forms(case.op):
        if form.tagged and form.tag not in case.tags:
            continue
        arguments = form.arguments(case.params)
        if arguments is not None:
            return ForeignCase(form.task, arguments)
    return None
