"""Turns of candidates before a judge that runs in this process."""

from __future__ import annotations

from pathlib import Path

from opmark.plugin.registry import operator
from opmark.schema import Case
from opmark.schema.judgement import JudgeOrder
from opmark.worker.judge.main import TrialBench, TurnRunner

FOLDER = Path(__file__).parents[1] / "judge"


def order_for(op: str, backend: str, baseline: str, candidate: str = "", **params: object) -> JudgeOrder:
    case = Case.of(op, operator(op).complete(params), "forward")
    return JudgeOrder(case, backend, 1, candidate, baseline, str(FOLDER), 0.1, 10, 60.0, 2.0)


def bench_for(op: str, backend: str, baseline: str, **params: object) -> TrialBench:
    """Make a bench whose baseline has had its turn."""
    found = TrialBench(order_for(op, backend, baseline, **params))
    run_turn(found, baseline, trusted=True)
    return found


def run_turn(bench: TrialBench, implementation: str, *, trusted: bool = False) -> TurnRunner:
    """Give a process one turn. Raise Refused if it is not accepted."""
    process = bench.start(implementation)
    try:
        process.open()
        turn = TurnRunner(bench, process, trusted=trusted)
        turn.run()
        return turn
    finally:
        process.close()
