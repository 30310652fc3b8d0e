"""The state of nights between two starts: a lock, what was measured when, and which parts are due."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import msgspec

from opmark.api.nightly_file import NightlyJob, NightlyPlan
from opmark.errors import InvalidFile, InvalidParameter, UserError
from opmark.schema.nightly import Night, NightlyState, NightRun
from opmark.schema.record import utc_now

_STATE, _LOCK = "state.json", "lock"
_KEPT = 400
"""Number of nights that the state remembers."""
_RESUMED_WITHIN = timedelta(hours=20)
"""An unfinished night that began within this time is continued, even after midnight; an older one was missed."""
_LISTED = 31
"""Number of missed nights that are named."""


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of nights; raise UserError with the holder's name if somebody else has it.

    The kernel gives the lock back when its process ends, however it ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ".gitignore").exists():  # else the files of a night would make its commit a changed one
        (folder / ".gitignore").write_text("*\n")
    with (folder / _LOCK).open("a+") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            held.seek(0)
            raise UserError(
                f"{folder}: a night is running already: {_describe_holder(held.read())}",
                "it needs no second one; wait for it, or stop that process, and start again: nothing is lost",
            ) from None
        held.seek(0)
        held.truncate()
        json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": utc_now()}, held)
        held.flush()
        yield


def _describe_holder(text: str) -> str:
    try:
        known = json.loads(text)
        return f"process {known['pid']} on {known['host']}, since {known['since'][:19]} UTC"
    except (ValueError, KeyError, TypeError):  # it was read while it was written
        return "another process, which has only just begun"


def read_state(folder: Path) -> NightlyState:
    path = folder / _STATE
    try:
        return msgspec.json.decode(path.read_bytes(), type=NightlyState)
    except FileNotFoundError:
        return NightlyState()
    except msgspec.MsgspecError as error:
        raise InvalidFile(
            f"{path}: is damaged: {error}", "move it away: nights begin anew, and the store still has their runs"
        ) from None


def write_state(folder: Path, state: NightlyState) -> None:
    """Write the state at once or not at all, so that a kill leaves the old one or the new one."""
    state.nights = state.nights[-_KEPT:]
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".state-", delete=False) as file:
        file.write(msgspec.json.format(msgspec.json.encode(state)))
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(folder / _STATE)


def parse_date(text: str) -> date:
    """Return the date of a night: the given one, or today in UTC."""
    if not text:
        return datetime.now(timezone.utc).date()
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidParameter(f"night: expected a date, got `{text}`", "as in --night 2030-12-31") from None


def choose_night(plan: NightlyPlan, state: NightlyState, given: str, *, again: bool) -> tuple[Night, bool]:
    """Return the night to work on, and whether it had begun before.

    This is the unfinished night if it began a short time ago, or that of today (of `given`), begun if need be.
    """
    unfinished = [night for night in state.nights if not night.finished and (not given or night.date == given)]
    if unfinished and not again and _is_recent(unfinished[-1]):
        return unfinished[-1], True
    day = parse_date(given)
    same = [night for night in state.nights if night.date == day.isoformat()]
    if same and same[-1].finished and not again:
        return same[-1], True
    missed = [] if same else _missed_nights(state, day)
    runs = [
        NightRun(job.name, job.label, part, caught_up=at > 0)
        for job in plan.jobs for at, part in enumerate(parts_due(job, day, state, plan.file.catch_up))
    ]  # fmt: skip
    return Night(day.isoformat(), utc_now(), plan.file.label, runs, missed), False


def _is_recent(night: Night) -> bool:
    return datetime.now(timezone.utc) - datetime.fromisoformat(night.started) < _RESUMED_WITHIN


def _missed_nights(state: NightlyState, day: date) -> list[str]:
    """Return the days since the last finished night on which none was finished."""
    done = [date.fromisoformat(night.date) for night in state.nights if night.finished]
    last = max((one for one in done if one < day), default=None)
    if last is None:
        return []
    days = [last + timedelta(days=number) for number in range(1, (day - last).days)]
    return [one.isoformat() for one in days[-_LISTED:]]


def parts_due(job: NightlyJob, day: date, state: NightlyState, catch_up: int) -> list[str]:
    """Return the parts of a job to measure on a day: that of the day, then those of missed nights, the oldest first,
    but no more than `catch_up`. A job that is not spread has one part without a name."""
    if job.spread == 1:
        return [""]
    begun = min((date.fromisoformat(night.date) for night in state.nights), default=day)
    missed = []
    for back in range(1, job.spread):
        earlier = day - timedelta(days=back)
        if earlier >= begun and not _measured_since(job, _part_of(job, earlier), earlier, state):
            missed.append(_part_of(job, earlier))
    return [_part_of(job, day), *missed[::-1][:catch_up]]


def _part_of(job: NightlyJob, day: date) -> str:
    return f"{day.toordinal() % job.spread + 1}/{job.spread}"


def _measured_since(job: NightlyJob, part: str, day: date, state: NightlyState) -> bool:
    return any(
        run.job == job.name and run.part == part and run.run
        for night in state.nights if night.date >= day.isoformat() for run in night.runs
    )  # fmt: skip
