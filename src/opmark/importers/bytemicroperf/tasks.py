"""Every operator of ByteMicroPerf: what it is here, or why it is not."""

from __future__ import annotations

from opmark.errors import UserError, nearest
from opmark.importers.bytemicroperf import basic, llm
from opmark.importers.bytemicroperf.form import Form
from opmark.importers.bytemicroperf.values import Refused
from opmark.registry import operator

FORMS: dict[str, tuple[Form, ...]] = {}
for _form in (*basic.FORMS, *llm.FORMS):
    FORMS[_form.task] = (*FORMS.get(_form.task, ()), _form)

BETWEEN_DEVICES = (
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "p2p", "all_reduce_h2d", "host2device",
    "device2host", "moe_dispatch_tokens",
)  # fmt: skip
"""What these are measured on is several processes, or two kinds of memory."""

ARGUMENTS = frozenset(name for forms in FORMS.values() for form in forms for name in form.names)
"""Whatever the operator."""

NAMES = (*FORMS, *BETWEEN_DEVICES, *basic.OTHER_NAMES)


def forms_of(task: str) -> tuple[Form, ...]:
    """How it can be asked for, in order; raises Refused with the reason why it cannot be had."""
    task = basic.OTHER_NAMES.get(task, task)
    if task in FORMS:
        return FORMS[task]
    if task in BETWEEN_DEVICES:
        raise Refused(*_reason(task))
    near = nearest(task, NAMES)
    raise Refused(f"ByteMicroPerf has no operator `{task}`", hint=f"did you mean `{near}`?" if near else "")


def _reason(task: str) -> tuple[str, str, str]:
    """In the words of whoever else is asked for it."""
    try:
        operator(task)
    except UserError as error:
        return error.message, "", error.hint or ""
    return f"`{task}` has no form here yet", "", ""


def task_of(stem: str) -> str:
    """The operator that a file is named after: the longest name that its own name is, or ends in after a `_`."""
    found = [name for name in NAMES if stem == name or stem.endswith(f"_{name}")]
    return max(found, key=len, default=stem)
