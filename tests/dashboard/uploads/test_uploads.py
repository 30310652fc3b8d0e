"""Uploads of runs are stored completely and once, or refused with a reason."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from made_up import BOX, HOSTILE, made_run, record
from msgspec.structs import replace
from push_parts import everything, fill, line, lines_of, packed, sealed

from opmark.api.push import MAX_BYTES, MAX_RECORDS
from opmark.dashboard.endpoint import RequestRefused
from opmark.dashboard.uploads.store import receive
from opmark.store import sqlite
from opmark.store.limits import LIMITS, Limits
from opmark.store.sql import open_sql
from opmark.store.sqlite import Sqlite

RUN = made_run(1).id


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The store of a machine that sends."""
    place = tmp_path / "here.db"
    fill(place)
    return place


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The store of a dashboard; it is not made yet."""
    return tmp_path / "there.db"


def test_everything_comes_over_as_it_was(here: Path, there: Path) -> None:
    with closing(open_sql(here, create=True)) as store:
        store.note(RUN, "label", "renamed")
        store.note(RUN, "description", "said")
    received = receive(there, packed(here, RUN))
    assert (received.run, received.begun, received.records, received.new) == (RUN, True, 3, 3)
    assert (received.findings, received.stored) == (1, 3)
    assert everything(there) == everything(here)
    with closing(open_sql(here)) as ours, closing(open_sql(there)) as theirs:
        assert (theirs.runs()[0].label, theirs.runs()[0].description) == ("renamed", "said")
        assert theirs.environments([BOX.id]) == {BOX.id: BOX}
        assert repr(theirs.figures()) == repr(ours.figures())
        cases = {figure.case for figure in ours.figures()}
        assert theirs.cases(cases) == ours.cases(cases)
        assert [one.task.id for one in theirs.records(RUN)] == [one.task.id for one in ours.records(RUN)]
        assert theirs.records(RUN)[0].measurements[0].samples[2] == float("inf")


def test_what_nothing_computes_comes_over_too(tmp_path: Path, there: Path) -> None:
    skipped = record(4, status="skipped", reason="jax-cuda has no implementation", implementation="", environment="")
    fill(tmp_path / "skips.db", made_run(1, "skips"), [skipped])
    assert receive(there, packed(tmp_path / "skips.db", RUN)).new == 1
    assert everything(there)[:-1] == everything(tmp_path / "skips.db")[:-1]  # no environment: no findings to send


def test_twice_is_once(here: Path, there: Path) -> None:
    receive(there, packed(here, RUN))
    before = everything(there)
    for body in (packed(here, RUN), b"".join(lines_of(here, RUN))):
        again = receive(there, body)
        assert (again.begun, again.new, again.findings, again.records, again.stored) == (False, 0, 0, 3, 3)
        assert everything(there) == before


def test_a_run_that_went_on_is_completed(here: Path, there: Path) -> None:
    receive(there, packed(here, RUN))
    with closing(open_sql(here, create=True)) as store:
        store.extend(RUN, [record(4), record(5)])
        store.note(RUN, "label", "later")
    received = receive(there, packed(here, RUN))
    assert (received.begun, received.new, received.stored) == (False, 2, 5)
    assert everything(there) == everything(here)


def test_a_run_without_records_is_one(tmp_path: Path, there: Path) -> None:
    fill(tmp_path / "empty.db", records=[])
    received = receive(there, packed(tmp_path / "empty.db", RUN))
    assert (received.begun, received.records, received.stored) == (True, 0, 0)


@pytest.mark.parametrize("field", ["started", "command", "plan", "revision", "session"])
def test_another_run_of_the_same_id_is_refused(tmp_path: Path, here: Path, there: Path, field: str) -> None:
    receive(there, packed(here, RUN))
    before = everything(there)
    other = {"started": "2031-01-01T00:00:00.000+00:00"}.get(field, "other")
    run = replace(made_run(1, "one", tasks=3, command="opmark run x"), **{field: other})
    fill(tmp_path / "other.db", run, [record(9)])
    with pytest.raises(RequestRefused, match=f"differs in {field}") as refused:
        receive(there, packed(tmp_path / "other.db", RUN))
    assert refused.value.status == 409
    assert everything(there) == before


def test_another_record_of_the_same_task_is_refused(tmp_path: Path, here: Path, there: Path) -> None:
    receive(there, packed(here, RUN))
    before = everything(there)
    fill(tmp_path / "other.db", records=[record(9), record(2, samples=[1.0])])
    with pytest.raises(RequestRefused, match="another record") as refused:
        receive(there, packed(tmp_path / "other.db", RUN))
    assert refused.value.status == 409
    assert everything(there) == before


def test_the_last_word_on_a_run_counts_wherever_it_was_said(here: Path, there: Path) -> None:
    receive(there, packed(here, RUN))
    with closing(open_sql(there, create=True)) as store:
        store.note(RUN, "label", "said there")
    receive(there, packed(here, RUN))
    with closing(open_sql(there)) as store:
        assert store.runs()[0].label == "said there"


def test_hostile_texts_are_kept_as_they_are(tmp_path: Path, there: Path) -> None:
    place = tmp_path / "hostile.db"
    fill(place, made_run(1, HOSTILE), [record(1, op=HOSTILE, backend=HOSTILE, reason=HOSTILE)])
    receive(there, packed(place, RUN))
    assert everything(there) == everything(place)


Change = Callable[[list[Any]], None]


def _put(*path: Any, value: Any) -> Change:
    def change(lines: list[Any]) -> None:
        inner = lines
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value

    return change


def _deep(levels: int) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = [made]
    return made


REFUSED: dict[str, tuple[Change, str]] = {
    "another format": (_put(0, "opmark_push", value=2), "line 1: format 2"),
    "an unknown field of the header": (_put(0, "zz", value=1), "line 1: .*unknown field `zz`"),
    "an unknown field of the run": (_put(0, "run", "zz", value=1), "line 1: .*unknown field `zz`"),
    "an unknown field deep in a record": (
        _put(2, "record", "task", "settings", "sampling", "zz", value=1), "line 3: .*unknown field `zz`"),
    "a changed parameter": (
        _put(2, "record", "task", "case", "params", "dtype", value="x"), "line 3: case .* has the id"),
    "a renamed operator": (_put(2, "record", "task", "case", "op", value="exp"), "line 3: case .* has the id"),
    "another backend": (_put(2, "record", "task", "backend", value="x"), "line 3: task .* has the id"),
    "another seed": (_put(2, "record", "task", "settings", "seed", value=7), "line 3: task .* has the id"),
    "an invented task": (_put(2, "task", value="0" * 16), "line 3: task .* has the id"),
    "a record of another run": (_put(3, "run", value="other"), "line 4: a record of run `other`"),
    "changed facts": (_put(1, "environment", "facts", "cpu", value="x"), "line 2: environment .* has the id"),
    "an environment that is not there": (_put(2, "record", "environment", value="0" * 16), "line 3: the environment"),
    "samples of too few measurements": (_put(2, "samples", value=[]), "line 3: 1 measurements, and samples of 0"),
    "half a sample": (_put(2, "samples", value=["AAAA"]), "line 3: 3 bytes"),
    "samples in the record": (
        _put(2, "record", "measurements", 0, "samples", value=[1.0]), "line 3: samples inside of the record"),
    "no status": (_put(2, "record", "status", value="fine"), "line 3: Invalid enum value"),
    "a date that is none": (_put(0, "run", "started", value="now"), "line 1: started: expected a date"),
    "a finding of another machine": (_put(5, "finding", "chip", value="x"), "line 6: peaks of `x`"),
    "a finding of another kind": (_put(5, "finding", "kind", value="x"), "line 6: a finding of the kind"),
    "peaks with an unknown field": (_put(5, "finding", "body", "zz", value=1), "line 6: .*unknown field"),
    "too many tasks": (_put(0, "run", "tasks", value=2**31), "line 1: tasks"),
    "a number beyond all databases": (
        _put(2, "record", "measurements", 0, "calls", value=10**30), "line 3: expected whole numbers of 64 bits"),
    "a text without end": (_put(0, "run", "command", value="x" * 100_001), "line 1: expected texts of at most 100000"),
    "a long label": (_put(0, "run", "label", value="x" * 1001), "line 1: label: expected at most 1000"),
    "deep parameters": (_put(2, "record", "task", "case", "params", "deep", value=_deep(40)), "line 3: .*too deep"),
    "deep samples of a finding": (_put(5, "finding", "body", value={"samples": _deep(40)}), "line 6: .*too deep"),
    "fewer records than told": (_put(0, "records", value=4), "line 6: Object contains unknown field `finding`"),
    "more records than told": (_put(0, "records", value=2), "line 5: .*"),
    "a negative count": (_put(0, "findings", value=-1), "line 1: expected 0 to"),
    "the same record twice": (
        lambda lines: (lines.insert(3, lines[2]), lines[0].update(records=4))[0], "is there twice"),
    "the same environment twice": (
        lambda lines: (lines.insert(2, lines[1]), lines[0].update(environments=2))[0], "line 3: environment .* twice"),
    "the same line twice": (lambda lines: lines.insert(3, lines[2]), "line 4: task .* is there twice"),
    "an environment of nothing": (
        lambda lines: (lines.__delitem__(slice(2, 4)), lines[0].update(records=1))[0], "no record of this upload"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_invented_is_refused_with_its_line(here: Path, there: Path, name: str) -> None:
    """Whoever sends it has made a right sum over it."""
    fill(there, made_run(2, "mine"), [record(1)])
    before = everything(there)
    change, why = REFUSED[name]
    lines = [json.loads(one) for one in lines_of(here, RUN)[:-1]]
    change(lines)
    with pytest.raises(RequestRefused, match=why) as refused:
        receive(there, sealed([line(one) for one in lines]))
    assert refused.value.status in (413, 422)
    assert everything(there) == before


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "..", ".hidden", "", "a/b", "a\\b", "x" * 49, "\x1b[31m", "日本", "a%2fb"]
)
def test_an_id_that_leads_elsewhere_is_refused(here: Path, there: Path, name: str) -> None:
    lines = [json.loads(one) for one in lines_of(here, RUN)[:-1]]
    lines[0]["run"]["id"] = name
    for one in lines[2:5]:
        one["run"] = name
    with pytest.raises(RequestRefused, match="line 1: the id of the run") as refused:
        receive(there, sealed([line(one) for one in lines]))
    assert refused.value.status == 422
    assert not there.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n",
        b"{}\n",
        b"null\n",
        b"[]\n",
        b"[" * 200_000 + b"\n",
        b"\xff\xfe\n",
        b"GIF89a",
        b"\x1f\x8b",
        gzip.compress(b"", mtime=0),
        gzip.compress(b"x\n", mtime=0),
    ],
)
def test_what_is_no_upload_is_refused(there: Path, body: bytes) -> None:
    with pytest.raises(RequestRefused) as refused:
        receive(there, body)
    assert refused.value.status == 422
    assert not there.exists()


def test_a_bomb_is_given_up_at_the_limit(there: Path) -> None:
    bombs = [gzip.compress(b"\n" * (50 << 20)), gzip.compress(b"x" * (50 << 20))]
    assert all(len(bomb) < 100_000 for bomb in bombs)
    limits = Limits(unpacked=1 << 20, line=1 << 20)
    for bomb in bombs:
        with pytest.raises(RequestRefused) as refused:
            receive(there, bomb, limits)
        assert refused.value.status in (413, 422)
    with pytest.raises(RequestRefused, match="larger than") as refused:
        receive(there, gzip.compress(b" " * (50 << 20)), limits)
    assert refused.value.status == 413


@pytest.mark.parametrize(
    "limits",
    [
        Limits(wire=100),
        Limits(unpacked=1000),
        Limits(line=1000),
        Limits(records=2),
        Limits(environments=0),
        Limits(findings=0),
    ],
)
def test_what_is_too_much_is_refused_as_such(here: Path, there: Path, limits: Limits) -> None:
    for body in (packed(here, RUN), b"".join(lines_of(here, RUN))):
        with pytest.raises(RequestRefused) as refused:
            receive(there, body, limits)
        assert refused.value.status == 413
    assert not there.exists()


def test_many_values_are_refused(here: Path, there: Path) -> None:
    with pytest.raises(RequestRefused, match="at most 30 values"):
        receive(there, packed(here, RUN), Limits(values=30))


def test_what_a_client_sends_at_once_is_below_the_limits() -> None:
    assert LIMITS.records > MAX_RECORDS
    assert MAX_BYTES + LIMITS.line < LIMITS.unpacked


def test_behind_the_end_there_is_nothing(here: Path, there: Path) -> None:
    whole = b"".join(lines_of(here, RUN))
    for body in (whole + b"x", whole + b"\n", whole + whole, packed(here, RUN) + b"x", packed(here, RUN) * 2):
        with pytest.raises(RequestRefused) as refused:
            receive(there, body)
        assert refused.value.status == 422
    assert not there.exists()


def test_a_store_that_is_written_to_for_long_is_waited_for_and_then_it_is_503(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(there, made_run(2, "mine"), [record(1)])
    before = everything(there)
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.2)
    body = packed(here, RUN)
    with closing(Sqlite(there)) as other:
        writing = other.engine.execution_options(writes=True)
        with writing.begin(), pytest.raises(RequestRefused, match="just now") as refused:
            receive(there, body)
    assert refused.value.status == 503
    assert str(there) not in str(refused.value)
    assert everything(there) == before
    assert receive(there, packed(here, RUN)).new == 3


def test_what_is_no_store_is_500_and_left_as_it_is(here: Path, there: Path) -> None:
    import sqlite3

    with closing(sqlite3.connect(there)) as connection:
        connection.execute("create table theirs (x)")
    with pytest.raises(RequestRefused) as refused:
        receive(there, packed(here, RUN))
    assert refused.value.status == 500
    assert str(there) not in str(refused.value)


def test_a_failure_in_the_middle_leaves_nothing(here: Path, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(there, made_run(2, "mine"), [record(1)])
    before = everything(there)

    def failing(*_: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("opmark.store.transfer.add_findings", failing)
        with pytest.raises(KeyboardInterrupt):
            receive(there, packed(here, RUN))
    assert everything(there) == before
    assert receive(there, packed(here, RUN)).new == 3


def test_samples_are_little_endian_numbers(here: Path) -> None:
    import base64

    first = json.loads(lines_of(here, RUN)[2])
    assert struct.unpack("<5d", base64.b64decode(first["samples"][0]))[0] == 1e-3
