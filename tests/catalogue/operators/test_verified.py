"""Verification finds right implementations right and wrong ones wrong, for every element type that they claim.

An operator that was verified with the same sources, frameworks and processor before is skipped, unless
OPMARK_TEST_VERDICTS is `all`. What torch.compile compiles is left to test_verified_compiled.py.
"""

from __future__ import annotations

from inspect import getsourcefile
from pathlib import Path

import pytest
import verifier as verifier_module
from each_case import each_case
from right_ones import OPERATORS, check_found_right, right_ones
from verifier import Unchanged, Verdict, sources_of

from opmark.plugin import Operator
from opmark.plugin.registry import catalogue
from opmark.worker.verify.accuracy import compare_arrays
from opmark.worker.verify.outputs import verify


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_right_results_are_found_right_and_wrong_ones_wrong(
    op: Operator, unchanged: Unchanged, request: pytest.FixtureRequest
) -> None:
    unchanged.skip_known(op)
    verdicts = request.getfixturevalue("verifier").verdicts(op.name, compiled=False)
    with each_case() as case:
        for right in right_ones(op, compiled=False):
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


def wrong_ones(op: Operator) -> list[tuple[str, ...]]:
    """(element type, what is spoiled)."""
    gradients = [f"gradient of {name}" for name in op.gradients if "*" not in name]
    dtypes = [dtype for dtype in ("float32", "bfloat16") if dtype in op.param("dtype").choices]
    return [(dtype, where) for dtype in dtypes for where in ("forward", *gradients)]


def check_found_wrong(verdicts: list[Verdict]) -> None:
    """Spoiled in ways that change it at all."""
    changed = [found for found in verdicts if found["outcome"] != "Unchanged"]
    assert changed, "nothing was spoiled"
    missed = [v for v in changed if not v["outcome"].startswith("WrongResult:")]
    assert not missed, "\n".join(f"{v['key'][2]} at {v['params']}: {v['outcome']}" for v in missed)
