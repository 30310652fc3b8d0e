"""Every operator of ByteMicroPerf: what it is here."""

from __future__ import annotations

from opmark.errors import nearest
from opmark.importers.bytemicroperf import basic, communication, llm
from opmark.importers.bytemicroperf.form import Form
from opmark.importers.bytemicroperf.values import Refused

FORMS: dict[str, tuple[Form, ...]] = {}
for _form in (*basic.FORMS, *llm.FORMS, *communication.FORMS):
    FORMS[_form.task] = (*FORMS.get(_form.task, ()), _form)

BETWEEN_DEVICES = tuple(dict.fromkeys(form.task for form in communication.FORMS))
"""What these are measured on is several processes, or two kinds of memory."""

ARGUMENTS = frozenset(name for forms in FORMS.values() for form in forms for name in form.names)
"""Whatever the operator."""

NAMES = (*FORMS, *basic.OTHER_NAMES)


def forms_of(task: str) -> tuple[Form, ...]:
    """How it can be asked for, in order; raises Refused with the reason why it cannot be had."""
    task = basic.OTHER_NAMES.get(task, task)
    if task in FORMS:
        return FORMS[task]
    near = nearest(task, NAMES)
    raise Refused(f"ByteMicroPerf has no operator `{task}`", hint=f"did you mean `{near}`?" if near else "")


def task_of(stem: str) -> str:
    """The operator that a file is named after: the longest name that its own name is, or ends in after a `_`."""
    found = [name for name in NAMES if stem == name or stem.endswith(f"_{name}")]
    return max(found, key=len, default=stem)
