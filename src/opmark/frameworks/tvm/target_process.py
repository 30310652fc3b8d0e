"""The process that compiles operators for any target of TVM: it reads one question as JSON and prints one line of JSON
per operator, or without operators one about the target. A parent that loads no framework starts it, and ends it when a
compiler hangs.

    {"target": "llvm -mtriple=aarch64-linux-gnu", "cases": [{"id": "...", "op": "matmul", "params": {...}}]}
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from opmark.errors import OpmarkError


def main() -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a compiler prints is no answer
    question = json.load(sys.stdin)
    if not question["cases"]:
        answers.write(json.dumps(_check(question["target"])) + "\n")
    for case in question["cases"]:
        answers.write(json.dumps({"id": case["id"], **_answer(question["target"], case)}) + "\n")
        answers.flush()
    return 0


def _check(target: str) -> dict[str, Any]:
    from opmark.frameworks.tvm.targets import read_target

    try:
        read_target(target)
    except OpmarkError as error:
        return {"error": error.message, "hint": error.hint or ""}
    return {}


def _answer(target: str, case: dict[str, Any]) -> dict[str, Any]:
    from opmark.frameworks.tvm.targets import build_for

    try:
        code = build_for(target, case["op"], case["params"])
    except OpmarkError as error:
        return {"error": error.message, "hint": error.hint or ""}
    except Exception as error:  # noqa: BLE001 - TVM raises anything; one operator is not the others
        return {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[-1:] or ['']}"[:400], "hint": ""}
    return {"kind": code.kind, "bytes": code.size, "linked": code.linked}


if __name__ == "__main__":
    sys.exit(main())
