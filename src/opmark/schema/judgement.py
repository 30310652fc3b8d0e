"""What the judge of a candidate is asked, what it answers, and the judgement that is made of it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from opmark.schema.case import Case
from opmark.schema.comparison import Verdict

NEGLIGIBLE = 0.1
"""The slowdown that has to be ruled out before a candidate is accepted whose verdict is undecided."""

Refusal = Literal["", "wrong", "imprecise", "failed", "tampered", "timeout"]
"""
wrong      an output is not what the reference says, or was not written in time
imprecise  within the tolerance, but with errors that the element type does not explain
failed     it could not be loaded, raised an error, or died
tampered   it did what only a cheat does: it ran on while it was stopped, started processes, changed its inputs
timeout    a call did not return in time
"""


class JudgeOrder(Struct, frozen=True):
    """What the process of the judge is told at its start."""

    case: Case
    backend: str
    threads: int
    candidate: str
    baseline: str
    """The label of an implementation of the catalogue, or a function as the candidate is one."""
    folder: str
    turn_time: float
    """Seconds of one turn, checks left out."""
    least_trials: int
    load_timeout: float
    timeout: float


class TrialTurn(Struct, frozen=True):
    """One process, called many times; every call has inputs of its own."""

    seconds: float
    """Median from the word to begin until the process was stopped with its outputs written."""
    error: float
    """Standard error of that median."""
    trials: int
    checked: int = 0
    """Calls whose outputs were compared with the reference, of those that were timed."""
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    excess: float = 0.0
    """Root mean square of the errors, divided by that which rounding explains; at most 1 is accepted."""
    recorded: bool = False
    """Whether its launches were recorded once and then replayed (a CUDA graph), so that the time has none of them."""


class JudgeHello(Struct, frozen=True, tag=True):
    facts: dict[str, Any]


class PairJudged(Struct, frozen=True, tag=True):
    """The candidate and its baseline, one after the other, in processes of their own."""

    baseline: TrialTurn
    protocol: TrialTurn
    """The same without a call: what starting, stopping and copying take by themselves."""
    candidate: TrialTurn
    guards: tuple[str, ...]
    """What held the candidate in its place."""


class CandidateRefused(Struct, frozen=True, tag=True):
    refusal: Refusal
    reason: str
    guards: tuple[str, ...]
    checked: int = 0
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    seeds: dict[str, int] = {}
    """Seeds of the inputs of the call that it was refused for."""


class JudgeFailed(Struct, frozen=True, tag=True):
    """Nothing can be said about the candidate: the baseline is not what it should be."""

    reason: str


JudgeReply = JudgeHello | PairJudged | CandidateRefused | JudgeFailed
decode_judge_reply = msgspec.json.Decoder(JudgeReply).decode


class Judgement(Struct, frozen=True, kw_only=True):
    """The answer of `opmark judge`."""

    candidate: str
    op: str
    params: dict[str, Any]
    backend: str
    baseline: str
    threads: int
    accepted: bool
    """Correct, and not slower than the baseline: faster, the same, or at most `NEGLIGIBLE` slower."""
    correct: bool
    refusal: Refusal = ""
    reason: str = ""
    seeds: dict[str, int] = {}
    """Seed of each input of the call that the candidate was refused for, to draw it again."""
    checked: int = 0
    """Timed calls whose outputs were compared with the reference, element by element."""
    trials: int = 0
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    precision: float | None = None
    """Errors divided by those that rounding explains: 1 is the most that is accepted."""
    verdict: Verdict | None = None
    """B is the candidate, A the baseline; None for a candidate that was refused."""
    ratio: float | None = None
    """Time of the candidate over that of the baseline."""
    low: float | None = None
    high: float | None = None
    seconds: float | None = None
    """Median of one call, without what the protocol takes by itself."""
    baseline_seconds: float | None = None
    protocol_seconds: float | None = None
    pairs: int = 0
    """Pairs of processes that were measured in turns."""
    share: float | None = None
    """Share of the roofline that was measured by `opmark calibrate`, or of the datasheet's."""
    bound: str = ""
    share_of: str = ""
    """Where the roofline comes from."""
    guards: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    started: str = ""
    facts: dict[str, Any] = {}

    @property
    def exit_code(self) -> int:
        return 0 if self.accepted else 1
