"""The process that compiles operators for any target of TVM, and times them on a board: it reads one question as JSON
and prints one line of JSON per operator, or without operators one about the target and the board. A parent that loads
no framework starts it, and ends it when a compiler hangs.

    {"target": "llvm -mtriple=aarch64-linux-gnu", "host": "", "port": 0, "key": "", "timeout": 60,
     "cases": [{"id": "...", "op": "matmul", "params": {...}}]}
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from opmark.errors import OpmarkError

if TYPE_CHECKING:
    from opmark.frameworks.tvm.remote import Board


def main() -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a compiler prints is no answer
    question = json.load(sys.stdin)
    if not question["cases"]:
        answers.write(json.dumps(_check(question)) + "\n")
    for case in question["cases"]:
        answers.write(json.dumps({"id": case["id"], **_answer(question, case)}) + "\n")
        answers.flush()
    return 0


def _check(question: dict[str, Any]) -> dict[str, Any]:
    from opmark.frameworks.tvm.targets import read_target

    option = "target"
    try:
        read_target(question["target"])
        option = "host"
        if question["host"]:
            _board(question).connect()
    except OpmarkError as error:
        return {"option": option, "error": error.message, "hint": error.hint or ""}
    return {}


def _board(question: dict[str, Any]) -> Board:
    from opmark.frameworks.tvm.remote import Board

    return Board(question["host"], question["port"], question["key"], question["timeout"])


def _answer(question: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    from opmark.frameworks.tvm.remote import time_operator
    from opmark.frameworks.tvm.targets import build_for

    try:
        if not question["host"]:
            code = build_for(question["target"], case["op"], case["params"])
            return {"kind": code.kind, "bytes": code.size, "linked": code.linked}
        found = time_operator(_board(question), question["target"], case["op"], case["params"])
    except OpmarkError as error:
        return {"error": error.message, "hint": error.hint or ""}
    except Exception as error:  # noqa: BLE001 - TVM and a board raise anything; one operator is not the others
        return {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[-1:] or ['']}"[:400], "hint": ""}
    return {
        "kind": found.code.kind, "bytes": found.code.size, "linked": True, "seconds": list(found.seconds),
        "checked": found.checked,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
