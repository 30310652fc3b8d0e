"""The forms of every operator of ByteMicroPerf."""

from __future__ import annotations

from opmark.errors import nearest
from opmark.importers.bytemicroperf import basic, communication, llm
from opmark.importers.bytemicroperf.form import Form
from opmark.importers.bytemicroperf.values import Refused

FORMS: dict[str, tuple[Form, ...]] = {}
for _form in (*basic.FORMS, *llm.FORMS, *communication.FORMS):
    FORMS[_form.task] = (*FORMS.get(_form.task, ()), _form)

BETWEEN_DEVICES = tuple(dict.fromkeys(form.task for form in communication.FORMS))
"""Operators that are measured on several processes, or between two kinds of memory."""

ARGUMENTS = frozenset(name for forms in FORMS.values() for form in forms for name in form.names)
"""All arguments of all operators."""

NAMES = (*FORMS, *basic.OTHER_NAMES)


def forms_of(task: str) -> tuple[Form, ...]:
    """Return the forms of an operator in the order in which they are tried; raise Refused for an unknown one."""
    task = basic.OTHER_NAMES.get(task, task)
    if task in FORMS:
        return FORMS[task]
    near = nearest(task, NAMES)
    raise Refused(f"ByteMicroPerf has no operator `{task}`", hint=f"did you mean `{near}`?" if near else "")


def task_from_name(stem: str) -> str:
    """Return the operator that a file is named after: the longest one that its name is, or ends in after a `_`."""
    found = [name for name in NAMES if stem == name or stem.endswith(f"_{name}")]
    return max(found, key=len, default=stem)
