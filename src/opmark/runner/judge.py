"""Has a candidate judged: starts the process of the judge, asks for pair after pair, and decides from their times."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import geometric_mean
from typing import IO, Any, NamedTuple

import msgspec

from opmark.errors import UserError
from opmark.plugin.registry import backend as find_backend
from opmark.runner.ab.turns import stages
from opmark.runner.guests.placement import worker_command
from opmark.runner.worker_process import environ_for
from opmark.schema.comparison import Verdict
from opmark.schema.judgement import (
    NEGLIGIBLE,
    CandidateRefused,
    JudgeFailed,
    JudgeHello,
    Judgement,
    JudgeOrder,
    JudgeReply,
    PairJudged,
    decode_judge_reply,
)
from opmark.schema.record import utc_now
from opmark.stats.verdict import Comparison, compare_pairs
from opmark.worker.judge.sandbox import GUARDS

_LONGEST_PAIR = 3600.0
_LOG_TAIL = 2000
_TICK = 1e-7
TOO_SHORT = "a call is too short to be told from starting and stopping its process"
NOT_RECORDED = (
    "the launches of {} could not be recorded as a graph, since it waits for the device: its time has them in it"
)


@dataclass(frozen=True)
class JudgeLimits:
    """When to stop: as soon as it is decided, after so many pairs, or after so many seconds."""

    most_pairs: int
    budget: float
    margin: float
    on_pair: Callable[[int, int], None] = lambda pair, until: None
    """Called with the number of the pair that begins, from 1, and the number after which there may be a verdict."""


def judge_candidate(order: JudgeOrder, limits: JudgeLimits) -> Judgement:
    """Return the judgement, without its share of the roofline."""
    started, began = utc_now(), time.monotonic()
    judge = _JudgeProcess(order)
    pairs: list[PairJudged] = []
    refused: CandidateRefused | None = None
    try:
        hello = judge.ask(None)
        assert isinstance(hello, JudgeHello)
        longest = 0.0
        looks = stages(limits.most_pairs)
        found = None
        for until in looks:
            while len(pairs) < until and refused is None:
                since = time.monotonic()
                if pairs and since - began + longest > limits.budget:
                    break
                limits.on_pair(len(pairs) + 1, until)
                reply = judge.ask("pair")
                longest = max(longest, time.monotonic() - since)
                if isinstance(reply, CandidateRefused):
                    refused = reply
                else:
                    assert isinstance(reply, PairJudged)
                    pairs.append(reply)
            if refused or len(pairs) < until:
                break
            found = _compare(pairs, limits.margin, len(looks))
            if found.verdict != "undecided":
                break
    finally:
        judge.close()
    guards = (refused or pairs[-1]).guards
    common: dict[str, Any] = {
        "candidate": order.candidate, "op": order.case.op, "params": order.case.params, "backend": order.backend,
        "baseline": order.baseline, "threads": order.threads, "started": started, "facts": hello.facts,
        "guards": guards, "missing": tuple(guard for guard in GUARDS if guard not in guards), "pairs": len(pairs),
    }  # fmt: skip
    checked = sum(pair.candidate.checked for pair in pairs)
    trials = sum(pair.candidate.trials for pair in pairs)
    worst_abs = max((pair.candidate.max_abs_error for pair in pairs), default=0.0)
    worst_rel = max((pair.candidate.max_rel_error for pair in pairs), default=0.0)
    if refused:
        return Judgement(
            **common, accepted=False, correct=False, refusal=refused.refusal, reason=refused.reason,
            seeds=refused.seeds, checked=checked + refused.checked, trials=trials,
            max_abs_error=max(worst_abs, refused.max_abs_error), max_rel_error=max(worst_rel, refused.max_rel_error),
        )  # fmt: skip
    found = found or _compare(pairs, limits.margin, len(looks))
    times = _mean_times(pairs)
    cautions = [TOO_SHORT] if times.too_short else []
    if hello.facts["device"] != "cpu":
        sides = {order.baseline: pairs[0].baseline, order.candidate: pairs[0].candidate}
        cautions += [NOT_RECORDED.format(name) for name, turn in sides.items() if not turn.recorded]
    return Judgement(
        **common, accepted=_is_accepted(found.verdict, times.net_ratio(found.high)), correct=True,
        checked=checked, trials=trials,
        max_abs_error=worst_abs, max_rel_error=worst_rel, precision=max(pair.candidate.excess for pair in pairs),
        verdict=found.verdict, ratio=times.net_ratio(found.ratio), low=times.net_ratio(found.low),
        high=times.net_ratio(found.high), seconds=times.net(times.candidate),
        baseline_seconds=times.net(times.baseline), protocol_seconds=times.protocol,
        cautions=tuple(cautions),
    )  # fmt: skip


def _is_accepted(verdict: Verdict, high: float) -> bool:
    """Return whether it is not slower: what is undecided is accepted if a slowdown worth talking about is ruled out."""
    return verdict in ("faster", "same") or (verdict == "undecided" and high <= 1 + NEGLIGIBLE)


class _MeanTimes(NamedTuple):
    """Geometric means over the pairs, in seconds, with what the protocol takes by itself."""

    baseline: float
    candidate: float
    protocol: float
    resolution: float
    """The least time that can be told from nothing."""

    def net(self, seconds: float) -> float:
        return max(seconds - self.protocol, self.resolution)

    def net_ratio(self, gross: float) -> float:
        """Return the ratio of calls without the protocol from that with it."""
        return max(gross * self.baseline - self.protocol, 0.0) / self.net(self.baseline)

    @property
    def too_short(self) -> bool:
        return min(self.baseline, self.candidate) - self.protocol <= self.resolution


def _mean_times(pairs: Sequence[PairJudged]) -> _MeanTimes:
    return _MeanTimes(
        geometric_mean([pair.baseline.seconds for pair in pairs]),
        geometric_mean([pair.candidate.seconds for pair in pairs]),
        geometric_mean([pair.protocol.seconds for pair in pairs]),
        max(2 * geometric_mean([max(pair.protocol.error, _TICK) for pair in pairs]), _TICK),
    )


def _compare(pairs: Sequence[PairJudged], margin: float, looks: int) -> Comparison:
    """Compare the times with what the protocol takes, which both sides have alike: so its error decides nothing. The
    margin is one of calls without it."""
    times = _mean_times(pairs)
    share = times.net(times.baseline) / times.baseline
    baseline, candidate = [pair.baseline.seconds for pair in pairs], [pair.candidate.seconds for pair in pairs]
    return compare_pairs(baseline, candidate, margin=margin * min(1.0, share), looks=looks)


class _JudgeProcess:
    """The process of the judge. It is asked one thing at a time."""

    def __init__(self, order: JudgeOrder) -> None:
        info = find_backend(order.backend)
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        reading, writing = os.pipe()
        self._process = subprocess.Popen(
            [*worker_command(info, "opmark.worker.judge.main"), str(writing)],
            stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, pass_fds=(writing,),
            env={**environ_for(info, order.threads), "PYTHONSAFEPATH": "1"}, start_new_session=True,
            cwd="/",  # no module of the candidate's folder may be taken for one of the judge's
        )  # fmt: skip
        os.close(writing)
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()
        self._send(msgspec.json.encode(order))

    def ask(self, word: str | None) -> JudgeReply:
        """Return the next answer; with None, the one that it gives by itself."""
        if word is not None:
            self._send(word.encode())
        line = self._lines.get(timeout=_LONGEST_PAIR)
        if line is None:
            raise self._death()
        reply: JudgeReply = decode_judge_reply(line)
        if isinstance(reply, JudgeFailed):
            raise UserError(reply.reason, "`opmark judge` compares with --baseline, as in `opmark describe OP`")
        return reply

    def close(self) -> None:
        """Let the judge end its processes, then end it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(timeout=1.0)
        self._log.close()

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the answer says that it has died, and how
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _read(self, pipe: int) -> None:
        with os.fdopen(pipe, "rb") as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def _death(self) -> RuntimeError:
        code = self._process.wait()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_TAIL))
        return RuntimeError(f"the judge ended with code {code}:\n{self._log.read().decode(errors='replace')}")
