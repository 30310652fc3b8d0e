"""Put a kernel on trial: `opmark judge`."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from opmark.analysis.metrics import peak_share
from opmark.api.keywords import keywords_of
from opmark.api.requests import JudgeRequest
from opmark.api.result import machine_facts, open_store
from opmark.errors import UnknownName, UserError
from opmark.hardware.host import why_no_device
from opmark.plugin import BackendInfo, Operator
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import backends, implementations
from opmark.plugin.registry import operator as find_operator
from opmark.runner.guests.placement import why_missing
from opmark.runner.judge import JudgeLimits, judge_candidate
from opmark.runner.plan import default_threads
from opmark.runner.selection import default_backends, select_cases
from opmark.schema import Case
from opmark.schema.judgement import Judgement, JudgeOrder
from opmark.schema.options import Selection, names_function
from opmark.schema.tensor import STORED_AS, storage
from opmark.stats.verdict import STAGES
from opmark.store import memory
from opmark.store.location import store_exists

TURNS = {"quick": (0.1, 10), "standard": (0.5, 20), "thorough": (2.0, 50)}
"""Seconds of a turn and least number of calls in it, by effort."""


@keywords_of(JudgeRequest)
def judge(request: JudgeRequest) -> Judgement:
    """Judge a function that nobody trusts: is it correct, and is it faster than a baseline?

    `candidate` is `FILE.py:FUNCTION` or `MODULE:FUNCTION`, `like` the operator that it computes. It runs in a process
    of its own, without a way to the clock, the inputs of later calls, the reference or the verdict.
    """
    return judge_request(request)


def judge_request(request: JudgeRequest) -> Judgement:
    if sys.platform != "linux":
        raise UserError(f"candidates are judged on Linux only, this is {sys.platform}", "the kernel has to hold them")
    if not names_function(request.candidate):
        raise UserError(
            f"candidate: expected FILE.py:FUNCTION or MODULE:FUNCTION, got `{request.candidate}`",
            "as in `opmark judge kernels.py:softmax --like softmax`",
        )
    if not request.like:
        raise UserError("--like: expected the operator that the candidate computes", "as in --like softmax")
    info, operator = find_backend(request.backend or default_backends()[0]), find_operator(request.like)
    _refuse_backend(info)
    _refuse_operator(operator, info)
    case = _one_case(request)
    if (computed := case.params.get("dtype")) in STORED_AS:
        raise UserError(
            f"a candidate cannot be judged in {computed}: its result is held to the rounding of its tensors",
            f"-p dtype={storage(computed)} judges it with the same tensors",
        )
    turn_time, least_trials = TURNS[request.effort]
    order = JudgeOrder(
        case=case,
        backend=info.name,
        threads=request.threads or default_threads(),
        candidate=_absolute(request.candidate),
        baseline=_baseline(request.baseline, operator, info),
        folder=str(Path.cwd()),
        turn_time=turn_time,
        least_trials=least_trials,
        load_timeout=request.compile_timeout,
        timeout=request.timeout,
    )
    limits = JudgeLimits(request.processes or STAGES[-1], request.budget, request.margin, request.on_pair)
    found = replace(judge_candidate(order, limits), candidate=request.candidate)
    return _with_share(found, operator, request)


def _one_case(request: JudgeRequest) -> Case:
    cases = select_cases(Selection(request.like, params=request.params, size=request.size)).cases
    if len(cases) != 1:
        raise UserError(
            f"a candidate is judged on one case, got {len(cases)}", "give one value per parameter: -p shape=4096x4096"
        )
    return cases[0]


def _refuse_backend(info: BackendInfo) -> None:
    if not info.shares or info.python:
        known = ", ".join(name for name, one in backends().items() if one.shares)
        raise UserError(f"candidates cannot be judged on {info.name}", f"they can on {known}")
    reason = why_missing(info) or why_no_device(info.device)
    if reason:
        raise UserError(f"{info.name} cannot run here: {reason}", "`opmark list backends` says what can")


def _refuse_operator(operator: Operator, info: BackendInfo) -> None:
    if operator.foreign or operator.ranks or operator.result == "random" or operator.device_only:
        why = (
            "has no reference" if operator.foreign else
            "takes several processes" if operator.ranks else
            "draws random numbers, so that it has no single right answer" if operator.result == "random" else
            "moves data between host and device"
        )  # fmt: skip
        raise UserError(
            f"`{operator.name}` {why}: a candidate for it cannot be judged",
            "`opmark run OP --impl FILE.py:FUNCTION` measures it like any other implementation",
        )
    if not implementations(operator, info):
        raise UserError(f"`{operator.name}` has no implementation on {info.name} to compare with", "choose a --backend")


def _baseline(name: str, operator: Operator, info: BackendInfo) -> str:
    labels = [one.label for one in implementations(operator, info)]
    if not name:
        return labels[0]
    if names_function(name):
        return _absolute(name)
    if name not in labels:
        raise UnknownName(f"implementation of {operator.name} on {info.name}", name, labels)
    return name


def _absolute(name: str) -> str:
    """Return the name with the whole path of its file: the candidate's process is in another folder."""
    place, _, function = name.rpartition(":")
    if not place.endswith(".py"):
        return name
    path = Path(place).absolute()
    if not os.path.isfile(path):  # noqa: PTH113 - any text
        raise UserError(f"there is no file {place}", "as in `opmark judge kernels.py:softmax --like softmax`")
    return f"{path}:{function}"


def _with_share(found: Judgement, operator: Operator, request: JudgeRequest) -> Judgement:
    """Add the share of the measured roofline, or of the datasheet's where nothing was measured."""
    if found.seconds is None:
        return found
    with closing(open_store(request.db if store_exists(request.db) else memory.NAME)) as store:
        machine = machine_facts(store, found.facts)
    peaks = machine.measured or machine.datasheet
    cost = operator.phase_cost(found.params, "forward")
    dtype = str(found.params.get("dtype", ""))
    share = peak_share(cost, found.seconds, dtype, peaks, cold=False) if peaks else None
    if share is None or peaks is None:
        return found
    return replace(found, share=share.share, bound=share.bound, share_of=peaks.source)
