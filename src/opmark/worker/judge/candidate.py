"""The program in a candidate's process. Nothing in here counts: clock, inputs, reference and verdict are elsewhere.

It locks itself in, takes its tensors from the shared memory, loads the candidate, and then makes the calls of a trial
for every byte `CALL` that arrives. The catalogue's implementation, against which a candidate is judged, runs in the
same program.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any

import msgspec

from opmark.errors import UserError
from opmark.plugin import ArrayPlace, SharedTensors
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import implementations
from opmark.plugin.registry import operator as find_operator
from opmark.schema.options import names_function
from opmark.worker.functions import implementation_of
from opmark.worker.judge.sandbox import lock_in

CALL, NOTHING, DONE, RECORDED, FAILED = b"c", b"n", b"d", b"r", b"f"
"""Bytes of a trial: call it; do everything but call it; the outputs are written; they are, and later trials are a
recording of this one; a line follows that says why not."""
_LONGEST_REASON = 1000
_OPMARK = Path(__file__).parents[2]


class CandidateOrder(msgspec.Struct, frozen=True):
    """What the process is told at its start. There is no seed in it, no expected output and no way to the judge."""

    op: str
    params: dict[str, Any]
    mutates: tuple[str, ...]
    backend: str
    framework: str
    shares: str
    """`module:Class` that makes tensors of the shared memory."""
    threads: int
    cores: list[int]
    implementation: str
    """A label of the catalogue, `FILE.py:FUNCTION` or `MODULE:FUNCTION`."""
    memory: dict[str, Any]
    inputs: list[list[ArrayPlace]]
    """The inputs of each call of a trial."""
    folder: str
    """The folder that modules of the user are imported from."""


def main(descriptor: int) -> None:
    line = socket.socket(fileno=descriptor)
    stream = line.makefile("rb", buffering=0)
    order = msgspec.json.decode(stream.readline(), type=CandidateOrder)
    if order.cores:
        os.sched_setaffinity(0, order.cores)
    locked = lock_in([str(Path.cwd()), "/dev", f"/proc/{os.getpid()}"])  # the driver of a GPU names its threads there
    listener = [] if locked.listener is None else [locked.listener]
    socket.send_fds(line, [json.dumps(locked.guards).encode() + b"\n"], listener)
    for one in listener:
        os.close(one)
    try:
        _serve(order, stream, line)
    except Exception as error:  # noqa: BLE001 - a candidate may raise anything, and all of it is an answer
        line.sendall(FAILED + _reason(error))


def _serve(order: CandidateOrder, stream: Any, line: socket.socket) -> None:
    module, _, name = order.shares.partition(":")
    shared: SharedTensors = getattr(import_module(module), name)(order.memory, order.threads)
    inputs = [{place.name: shared.view(place) for place in places} for places in order.inputs]
    line.sendall(DONE)
    stream.readline()  # the word to load it
    if names_function(order.implementation):
        sys.path.insert(0, order.folder)
        chosen = implementation_of(order.implementation, order.framework)
    else:
        known = implementations(find_operator(order.op), find_backend(order.backend))
        chosen = next(one for one in known if one.label == order.implementation)
    launches = [shared.bind(partial(chosen.build, order.params), views) for views in inputs]

    def call(index: int) -> list[Any]:
        found = launches[index]()
        if found is None:  # it works in place
            found = [inputs[index][name] for name in order.mutates]
        return list(found) if isinstance(found, tuple | list) else [found]

    described = [shared.describe(output) for output in call(0)]
    shared.synchronize()
    line.sendall(DONE + json.dumps(described).encode() + b"\n")
    places = msgspec.json.decode(stream.readline(), type=list[list[ArrayPlace]])
    outputs = [[shared.view(place) for place in of_call] for of_call in places]
    blanks = [shared.blank(place) for place in places[0]]
    kinds = [(place.shape, place.dtype) for place in places[0]]

    def run_trial(make: Callable[[int], list[Any]]) -> None:
        for i, views in enumerate(outputs):
            found = make(i)
            described = [shared.describe(output) for output in found]
            if described != kinds:
                raise TypeError(_describe_mismatch(described, kinds))
            for output, view in zip(found, views, strict=True):
                shared.copy(output, view)

    trials: dict[bytes, Callable[[], None]] = {
        CALL: partial(run_trial, call),
        NOTHING: partial(run_trial, lambda i: blanks),
    }
    answer = b""
    while byte := stream.read(1):
        try:
            trials[byte]()
            shared.synchronize()
            if not answer:  # the first trial, whose time does not count
                recorded = {byte: shared.record(trial) for byte, trial in trials.items()}
                answer = RECORDED if all(recorded.values()) else DONE
                if answer == RECORDED:  # both or neither, since one is subtracted from the other
                    trials = {byte: recording for byte, recording in recorded.items() if recording}
        except Exception as error:  # noqa: BLE001 - as above
            line.sendall(FAILED + _reason(error))
        else:
            line.sendall(answer)


def _describe_mismatch(found: Sequence[Any], due: Sequence[Any]) -> str:
    if len(found) != len(due):
        return f"{len(found)} outputs, expected {len(due)}"
    i, (one, other) = next((i, pair) for i, pair in enumerate(zip(found, due, strict=True)) if pair[0] != pair[1])
    return f"output {i} is {list(one[0])} {one[1]}, expected {list(other[0])} {other[1]}"


def _reason(error: Exception) -> bytes:
    if isinstance(error, UserError):
        return json.dumps(f"{error.message}; {error.hint}").encode() + b"\n"
    text = " ".join(str(error).split())[:_LONGEST_REASON]
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return json.dumps(what + _place_of(error)).encode() + b"\n"


def _place_of(error: Exception) -> str:
    """Return the last line of the candidate's own file that an exception came through."""
    frames = [frame for frame in extract_tb(error.__traceback__) if not Path(frame.filename).is_relative_to(_OPMARK)]
    own = next((frame.filename for frame in frames if not frame.filename.startswith("<")), "")
    lines = [frame.lineno for frame in frames if frame.filename == own]
    return f" ({Path(own).name}, line {lines[-1]})" if own else ""
