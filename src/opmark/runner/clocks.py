"""The clocks that a run has locked: asks the guard for each GPU that a worker reports, and checks whether they held."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from opmark.hardware.clock_guard import LockedClocks, LockRequest
from opmark.schema import Caution, Environment, Measurement, Record
from opmark.schema.messages import Hello
from opmark.units import percent

FACT = "clocks"
"""Name of the fact of an environment that says what was locked; without `--clocks` there is none."""
CLOCK_NOT_HELD = "clock-not-held"
_HELD = 0.01
"""How far a reading may be from the locked clock."""
_OVERDUE = "NVML does not answer in time"
_DIED = "the process that locks clocks has died"
_LONGEST_ANSWER = 20.0
_LONGEST_RELEASE = 10.0
"""Seconds that the guard may take to lock a clock, and to set all of them back."""


def _ignore(_: str) -> None:
    pass


class ClockLocks:
    """Locks the clocks of each GPU of a run once, and sets them back on `close`. Where the process of the run ends
    without that, the guard does it."""

    def __init__(self, clocks: str = "", say: Callable[[str], None] = _ignore) -> None:
        """`clocks`: the option as it was given; empty: nothing is locked."""
        _, _, mhz = clocks.partition("=")
        self._wanted = bool(clocks)
        self._mhz = int(mhz) if mhz else None
        self._say = say
        self._guard: subprocess.Popen[bytes] | None = None
        self._found: dict[str, LockedClocks] = {}
        """By UUID, or by the name of what is no NVIDIA GPU."""
        self._silent = False
        """Whether an answer of the guard is overdue: it would be taken for the next one."""

    def lock(self, hello: Hello) -> Hello:
        """Lock the clocks of the GPU of a worker; return its hello with what was locked as a fact of its environment.
        A worker that cannot run, and one whose clocks another process has taken care of, is left as it is."""
        facts = hello.environment.facts
        if not self._wanted or hello.unavailable or FACT in facts:
            return hello
        return Hello(None, Environment.of({**facts, FACT: self._state(facts)}))

    def check(self, record: Record, hello: Hello) -> Record:
        """Return the record with a caution for each measurement during which the locked clock did not hold."""
        locked = self._found.get(hello.environment.facts.get("gpu_uuid", ""))
        if locked is None or not locked.mhz:
            return record
        return replace(record, measurements=tuple(_check_clock(one, locked.mhz) for one in record.measurements))

    def close(self) -> None:
        """Set back what was locked."""
        if self._guard:
            assert self._guard.stdin
            assert self._guard.stdout
            with suppress(BrokenPipeError):
                self._guard.stdin.close()
            with suppress(subprocess.TimeoutExpired):  # it goes on by itself
                self._guard.wait(_LONGEST_RELEASE)
            self._guard.stdout.close()
        self._guard = None
        self._found.clear()

    def _state(self, facts: dict[str, Any]) -> str:
        """Lock the clocks of the GPU with these facts, and return what became of it. It is said once."""
        uuid, name = facts.get("gpu_uuid"), str(facts.get("gpu") or facts.get("backend"))
        key = uuid or name
        if key not in self._found:
            asked = self._ask(LockRequest(uuid, self._mhz)) if uuid else LockedClocks(reason="it is no NVIDIA GPU")
            self._found[key] = asked
            self._say(f"--clocks: {name} is {_text(asked)}{_consequence(asked)}")
        return _text(self._found[key])

    def _ask(self, request: LockRequest) -> LockedClocks:
        if self._silent:
            return LockedClocks(reason=_OVERDUE)
        if self._guard is None:
            self._guard = subprocess.Popen(
                [sys.executable, "-m", "opmark.hardware.clock_guard"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # what ends this process and its group must not end the guard
            )
        assert self._guard.stdin
        assert self._guard.stdout
        try:
            self._guard.stdin.write(msgspec.json.encode(request) + b"\n")
            self._guard.stdin.flush()
        except BrokenPipeError:
            return LockedClocks(reason=_DIED)
        if not select.select([self._guard.stdout], [], [], _LONGEST_ANSWER)[0]:
            self._silent = True
            return LockedClocks(reason=_OVERDUE)
        line = self._guard.stdout.readline()
        return msgspec.json.decode(line, type=LockedClocks) if line else LockedClocks(reason=_DIED)


def _text(found: LockedClocks) -> str:
    if found.reason:
        return f"not locked: {found.reason}"
    memory = f", memory at {found.memory_mhz} MHz" if found.memory_mhz else ""
    return f"locked at {found.mhz or 'an unknown number of'} MHz{memory}{' by another run' if found.others else ''}"


def _consequence(found: LockedClocks) -> str:
    return "; comparisons show cycles beside times where its clock moved" if found.reason else ""


def _check_clock(measurement: Measurement, mhz: int) -> Measurement:
    conditions = measurement.conditions
    off = [clock for clock in conditions.clocks if abs(clock / (mhz * 1e6) - 1) > _HELD]
    if not off:
        return measurement
    reasons = sorted({reason for reading in conditions.readings for reason in reading.throttle})
    why = f", held down by {' and '.join(reasons)}" if reasons else ""
    hint = "something else sets the clocks of this device, or its driver ignores the lock: `opmark doctor`"
    if min(off) < mhz * 1e6:
        hint = f"lock a clock that the device sustains: --clocks lock={min(off) / 1e6:.0f}"
    caution = Caution(
        CLOCK_NOT_HELD,
        f"the clock was locked at {mhz} MHz, and {len(off)} of {len(conditions.clocks)} readings are more than "
        f"{percent(_HELD)} away from that, at {min(off) / 1e6:.0f} MHz{why}",
        hint,
    )
    # It says more than that the clock moved.
    kept = [one for one in measurement.cautions if one.code != "clocks-moved"]
    return replace(measurement, cautions=(*kept, caution))
