"""Verification finds right implementations right and wrong ones wrong, for every element type that they claim.

An operator that was verified with the same sources, frameworks and processor before is skipped, unless
OPMARK_TEST_VERDICTS is `all`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from inspect import getsourcefile
from pathlib import Path

import pytest
import verifier as verifier_module
from each_case import each_case
from verifier import BACKENDS, Unchanged, Verdict, Verifier, sources_of

from opmark.plugin import Operator
from opmark.plugin.registry import backend, catalogue
from opmark.schema import PHASES
from opmark.worker.verify.accuracy import compare_arrays
from opmark.worker.verify.outputs import verify

OPERATORS = [op for op in catalogue().values() if not (op.ranks or op.device_only)]


@pytest.fixture(scope="session")
def verifier() -> Iterator[Verifier]:
    with closing(Verifier()) as started:
        yield started


@pytest.fixture(scope="session")
def unchanged(pytestconfig: pytest.Config) -> Unchanged:
    cached = getattr(pytestconfig, "cache", None)  # there is none with `-p no:cacheprovider`
    return Unchanged(cached.mkdir("verdicts") if cached else None)


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_right_results_are_found_right_and_wrong_ones_wrong(
    op: Operator, unchanged: Unchanged, request: pytest.FixtureRequest
) -> None:
    if os.environ.get("OPMARK_TEST_VERDICTS") != "all" and unchanged.knows(op):
        pytest.skip("unchanged since it was verified")
    verdicts = request.getfixturevalue("verifier").verdicts(op.name)
    with each_case() as case:
        for right in right_ones(op):
            with case(*right):
                check_found_right([found for found in verdicts if tuple(found["key"]) == right])
        for wrong in wrong_ones(op):
            with case(*wrong):
                check_found_wrong([found for found in verdicts if tuple(found["key"][:2]) == wrong])
    unchanged.remember(op)


def test_a_verdict_depends_on_the_operator_and_on_verification_but_not_on_other_operators() -> None:
    sources = sources_of("matmul")
    used = (catalogue()["matmul"].cost, verify, compare_arrays)
    assert {Path(getsourcefile(function) or "") for function in used} <= sources
    assert Path(getsourcefile(catalogue()["conv2d"].cost) or "") not in sources


def test_an_operator_is_known_until_something_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unchanged, op = Unchanged(tmp_path), catalogue()["matmul"]
    assert not unchanged.knows(op)
    unchanged.remember(op)
    assert unchanged.knows(op)
    monkeypatch.setattr(verifier_module, "_fingerprint", lambda name: f"another one of {name}")
    assert not unchanged.knows(op)


def right_ones(op: Operator) -> list[tuple[str, ...]]:
    """(implementation, backend, element type, phase) of everything that has to be verified."""
    return [
        (implementation.label, name, dtype, phase)
        for name in BACKENDS
        for implementation in op.implementations_for(backend(name).framework)
        for dtype in op.param("dtype").choices
        if dtype in backend(name).dtypes
        for phase in phases(op, name, dtype)
    ]


def phases(op: Operator, backend_name: str, dtype: str) -> list[str]:
    if not backend(backend_name).differentiates:
        return ["forward"]
    params = op.complete({**op.preset("small"), "dtype": dtype})
    return [phase for phase in PHASES if op.why_no_phase(params, phase) is None]


def wrong_ones(op: Operator) -> list[tuple[str, ...]]:
    """(element type, what is spoiled)."""
    gradients = [f"gradient of {name}" for name in op.gradients if "*" not in name]
    dtypes = [dtype for dtype in ("float32", "bfloat16") if dtype in op.param("dtype").choices]
    return [(dtype, where) for dtype in dtypes for where in ("forward", *gradients)]


def check_found_right(verdicts: list[Verdict]) -> None:
    assert verdicts, "nothing was verified"
    if {found["outcome"] for found in verdicts} == {"Unsupported"}:
        return  # not on this machine
    for_inference = [v for v in verdicts if v["key"][0] == "folded" and v["params"].get("training")]
    assert all(found["outcome"] == "Unsupported" for found in for_inference)
    others = [found for found in verdicts if found not in for_inference]
    wrong = [f"{v['params']}, seed {v['seed']}: {v['outcome']}" for v in others if v["outcome"] != "ok"]
    assert not wrong, "\n".join(wrong)


def check_found_wrong(verdicts: list[Verdict]) -> None:
    """Spoiled in ways that change it at all."""
    changed = [found for found in verdicts if found["outcome"] != "Unchanged"]
    assert changed, "nothing was spoiled"
    missed = [v for v in changed if not v["outcome"].startswith("WrongResult:")]
    assert not missed, "\n".join(f"{v['key'][2]} at {v['params']}: {v['outcome']}" for v in missed)
