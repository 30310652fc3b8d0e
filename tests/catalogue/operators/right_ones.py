"""What has to be verified of each operator, and which verdicts on it are good."""

from __future__ import annotations

from verifier import BACKENDS, Verdict, is_compiled

from opmark.plugin import Operator
from opmark.plugin.registry import backend, catalogue
from opmark.schema import PHASES

OPERATORS = [op for op in catalogue().values() if not (op.ranks or op.device_only)]


def right_ones(op: Operator, *, compiled: bool) -> list[tuple[str, ...]]:
    """(implementation, backend, element type, phase) of all that has to be verified: what is compiled, or all else."""
    return [
        (implementation.label, name, dtype, phase)
        for name in BACKENDS
        for implementation in op.implementations_for(backend(name).framework)
        if is_compiled(implementation) == compiled
        for dtype in op.param("dtype").choices
        if dtype in backend(name).dtypes
        for phase in phases(op, name, dtype)
    ]


def phases(op: Operator, backend_name: str, dtype: str) -> list[str]:
    if not backend(backend_name).differentiates:
        return ["forward"]
    params = op.complete({**op.preset("small"), "dtype": dtype})
    return [phase for phase in PHASES if op.why_no_phase(params, phase) is None]


def check_found_right(verdicts: list[Verdict]) -> None:
    assert verdicts, "nothing was verified"
    if {found["outcome"] for found in verdicts} == {"Unsupported"}:
        return  # not on this machine
    for_inference = [v for v in verdicts if v["key"][0] == "folded" and v["params"].get("training")]
    assert all(found["outcome"] == "Unsupported" for found in for_inference)
    others = [found for found in verdicts if found not in for_inference]
    wrong = [f"{v['params']}, seed {v['seed']}: {v['outcome']}" for v in others if v["outcome"] != "ok"]
    assert not wrong, "\n".join(wrong)
