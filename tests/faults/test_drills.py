"""The drills of `make test-faults` notice what they are for."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from made_up import made_run, record, store
from tests.faults.drills import DRILLS, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, random.Random(0))


def test_a_record_that_is_gone_or_another_one_is_lost(site: Site) -> None:
    db = site.folder / "store.db"
    store(db, made_run(1), [record(1), record(2), record(3)])
    lines, _ = site.finish(site.start("show", "--json", "--db", str(db)))
    site.check_stored(str(db), lines)
    assert site.outcome.survived
    with closing(sqlite3.connect(db)) as raw, raw:
        raw.execute("DELETE FROM record WHERE number = 2")
    another = json.dumps({**json.loads(lines[0]), "status": "wrong"})
    site.check_stored(str(db), [*lines[1:], another])
    assert len(site.outcome.lost) == 2
    assert not site.outcome.survived


def test_a_traceback_and_a_strange_exit_code_are_problems(site: Site) -> None:
    site.finish(site.start("show", "--no-such-option"), (0,))
    assert "exit code 2" in site.outcome.problems[0]


def test_damage_is_survived(site: Site) -> None:
    DRILLS["damaged file"](site)
    assert site.outcome.survived, site.outcome
    assert site.outcome.confirmed == 59
