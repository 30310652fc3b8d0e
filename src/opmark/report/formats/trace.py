"""A judgement in the form of a trace of flashinfer-bench: definition, workload, solution, evaluation."""

from __future__ import annotations

from typing import Any

from opmark.schema.case import content_id
from opmark.schema.judgement import Judgement, Refusal
from opmark.schema.machine import chip

_STATUS: dict[Refusal, str] = {
    "": "PASSED",
    "wrong": "INCORRECT_NUMERICAL",
    "imprecise": "INCORRECT_NUMERICAL",
    "failed": "RUNTIME_ERROR",
    "tampered": "RUNTIME_ERROR",
    "timeout": "TIMEOUT",
}
_LIBRARIES = ("torch", "numpy", "jax", "cuda", "triton", "python")


def judgement_trace(found: Judgement) -> dict[str, Any]:
    """Return one line of a file of traces. A candidate that is correct has the status PASSED, slower or not; one that
    tampered has RUNTIME_ERROR, because the form has no word for it, and the log says why."""
    axes = {name: value for name, value in found.params.items() if isinstance(value, int)}
    scalars = {name: value for name, value in found.params.items() if name not in axes}
    evaluation: dict[str, Any] = {
        "status": _STATUS[found.refusal],
        "environment": {
            "hardware": chip(found.facts).replace(" ", "_"),
            "libs": {name: str(found.facts[name]) for name in _LIBRARIES if found.facts.get(name)},
        },
        "timestamp": found.started,
        "log": found.reason,
        "correctness": None,
        "performance": None,
    }
    if evaluation["status"] in ("PASSED", "INCORRECT_NUMERICAL"):
        evaluation["correctness"] = {
            "max_relative_error": found.max_rel_error,
            "max_absolute_error": found.max_abs_error,
            "extra": {"checked_calls": found.checked, "timed_calls": found.trials, "precision": found.precision},
        }
    if evaluation["status"] == "PASSED":
        assert found.seconds is not None
        assert found.baseline_seconds is not None
        evaluation["performance"] = {
            "latency_ms": 1e3 * found.seconds,
            "reference_latency_ms": 1e3 * found.baseline_seconds,
            "speedup_factor": found.baseline_seconds / found.seconds,
        }
    return {
        "definition": found.op,
        "workload": {
            "uuid": content_id({"op": found.op, "params": found.params}),
            "axes": axes,
            "inputs": {name: {"type": "scalar", "value": value} for name, value in scalars.items()},
        },
        "solution": found.candidate,
        "evaluation": evaluation,
    }
