"""Operators for a target that is not this machine's: compiled here by a process with TVM, timed on a board by RPC."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from threading import Timer
from typing import Any

from msgspec.structs import replace

from opmark.errors import UserError
from opmark.interop.opbench.operators import KeyOperator, with_shares
from opmark.interop.opbench.options import OpbenchOptions
from opmark.schema import Case
from opmark.units import count_bytes, count_noun, seconds

_PROCESS = (sys.executable, "-m", "opmark.frameworks.tvm.target_process")
_START_SECONDS = 30.0
"""Time for a board to answer at least: TVM takes some of it to start."""


def check_target(options: OpbenchOptions) -> None:
    """Raise UserError for a target that TVM does not have, and for a board that does not answer. Without TVM this
    cannot be known: compiling says so."""
    question = json.dumps({**_where(options), "cases": []})
    limit = max(options.timeout, _START_SECONDS) if options.host else None
    try:
        done = subprocess.run(_PROCESS, input=question, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"--host: {options.host}:{options.port} does not answer as TVM's RPC does within {limit:g} s",
            "a tracker waits for a device of the name --key: `python -m tvm.exec.query_rpc_tracker` lists those it has",
        ) from None
    answer = json.loads(done.stdout or "{}")
    if "error" in answer:
        raise UserError(f"--{answer['option']}: {answer['error']}", answer["hint"])


def _where(options: OpbenchOptions) -> dict[str, Any]:
    return {
        "target": options.target, "host": options.host, "port": options.port, "key": options.key,
        "timeout": options.timeout,
    }  # fmt: skip


def compile_operators(
    operators: Sequence[KeyOperator], cases: Mapping[str, Case], options: OpbenchOptions, say: Callable[[str], None]
) -> tuple[list[KeyOperator], bool]:
    """Return the operators with the code that was generated for the target and, from a board, with times; and whether
    one failed."""
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
        times = answer.get("seconds")
        status = "compiled" if times is None else "ok" if answer["checked"] else "unchecked"
        found.append(replace(one, status=status, code=code, seconds=median(times) if times else None))
        shown = f", {seconds(median(times))} on the board" if times else ""
        say(f"{one.operator} {one.parameters}: {count_bytes(code['bytes'])} of code for {code['kind']}{shown}")
    broken = [one for one in found if one.status == "error"]
    if len(broken) == len(found):
        what = f"timed at {options.host}:{options.port}" if options.host else f"compiled for `{options.target}`"
        raise UserError(
            f"no operator could be {what}: {broken[0].reason}", hint or "docs/opbench.md says which targets there are"
        )
    say(f"{count_noun(len(found) - len(broken), 'operator')} of {len(found)} compiled for {options.target}")
    return with_shares(found), bool(broken)


def _ask(ids: list[str], cases: Mapping[str, Case], options: OpbenchOptions) -> Iterator[dict[str, Any]]:
    """Yield an answer for each operator. Where the process dies or hangs, that operator failed, and another process
    goes on with the next."""
    left = list(ids)
    while left:
        asked = [{"id": one, "op": cases[one].op, "params": cases[one].params} for one in left]
        question = {**_where(options), "cases": asked}
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
