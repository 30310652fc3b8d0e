"""Operators for a target that is neither this machine's nor that of a board: a process with TVM compiles them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Timer
from typing import Any

from msgspec.structs import replace

from opmark.errors import UserError
from opmark.interop.opbench.operators import KeyOperator
from opmark.interop.opbench.options import OpbenchOptions
from opmark.schema import Case
from opmark.units import count_bytes, count_noun

_PROCESS = (sys.executable, "-m", "opmark.frameworks.tvm.target_process")


def check_target(target: str) -> None:
    """Raise UserError for a target that TVM does not have. Without TVM this cannot be known: compiling says so."""
    question = json.dumps({"target": target, "cases": []})
    done = subprocess.run(_PROCESS, input=question, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout or "{}")
    if "error" in answer:
        raise UserError(f"--target: {answer['error']}", answer["hint"])


def compile_operators(
    operators: Sequence[KeyOperator], cases: Mapping[str, Case], options: OpbenchOptions, say: Callable[[str], None]
) -> tuple[list[KeyOperator], bool]:
    """Return the operators with the code that was generated for the target, and whether one failed."""
    found: list[KeyOperator] = []
    known = {one.case: one for one in operators}
    hint = ""
    for answer in _ask(list(known), cases, options):
        one = known[answer["id"]]
        if "error" in answer:
            found.append(replace(one, status="error", reason=answer["error"]))
            hint = hint or answer["hint"]
            say(f"{one.operator} {one.parameters}: {answer['error']}")
            continue
        code = {name: answer[name] for name in ("kind", "bytes", "linked")}
        found.append(replace(one, status="compiled", code=code))
        say(f"{one.operator} {one.parameters}: {count_bytes(code['bytes'])} of code for {code['kind']}")
    broken = [one for one in found if one.status == "error"]
    if len(broken) == len(found):
        raise UserError(
            f"no operator could be compiled for `{options.target}`: {broken[0].reason}",
            hint or "docs/opbench.md says which targets there are",
        )
    say(f"{count_noun(len(found) - len(broken), 'operator')} of {len(found)} compiled for {options.target}")
    return found, bool(broken)


def _ask(ids: list[str], cases: Mapping[str, Case], options: OpbenchOptions) -> Iterator[dict[str, Any]]:
    """Yield an answer for each operator. Where the process dies or hangs, that operator failed, and another process
    goes on with the next."""
    left = list(ids)
    while left:
        asked = [{"id": one, "op": cases[one].op, "params": cases[one].params} for one in left]
        question = {"target": options.target, "cases": asked}
        process = subprocess.Popen(
            _PROCESS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(question))
            process.stdin.close()
            while left:
                clock = Timer(options.timeout, process.kill)
                clock.start()
                line = process.stdout.readline()
                clock.cancel()
                if not line:
                    break
                answer = json.loads(line)
                left.remove(answer["id"])
                yield answer
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        if left:
            ended = f"its process was killed or took longer than {options.timeout:g} s"
            yield {"id": left.pop(0), "error": ended, "hint": ""}
