"""Several clients that upload at once, to a file and to a server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from made_up import made_run, record
from push_parts import everything, fill, packed

from opmark.dashboard.uploads.store import receive
from opmark.schema.upload import PushReply


@pytest.fixture(params=["sqlite", "postgresql"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "there.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def at_once(there: str, bodies: list[bytes]) -> list[PushReply]:
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda body: receive(there, body), bodies))


def test_the_same_run_from_several_is_there_once(tmp_path: Path, there: str) -> None:
    here = tmp_path / "here.db"
    run = fill(here, records=[record(n) for n in range(1, 40)])
    done = at_once(there, [packed(here, run.id)] * 6)
    assert sum(one.begun for one in done) == 1
    assert sum(one.new for one in done) == 39
    assert sum(one.findings for one in done) == 1
    assert {one.stored for one in done} == {39}
    assert everything(there) == everything(here)


def test_halves_of_a_run_in_different_order_become_the_whole(tmp_path: Path, there: str) -> None:
    """Two clients with opposite orders of records do not deadlock."""
    numbers = list(range(1, 41))
    bodies = []
    for name, some in {"a": numbers[:30], "b": numbers[:9:-1], "c": numbers}.items():
        run = fill(tmp_path / f"{name}.db", records=[record(n) for n in some])
        bodies.append(packed(tmp_path / f"{name}.db", run.id))
    receive(there, bodies[0])
    done = at_once(there, bodies * 2)
    assert max(one.stored for one in done) == 40
    (_, records), _ = everything(there)
    assert sorted(records) == sorted(everything(tmp_path / "c.db")[0][1])


def test_different_runs_do_not_hinder_each_other(tmp_path: Path, there: str) -> None:
    bodies = []
    for n in range(1, 7):
        fill(tmp_path / f"{n}.db", made_run(n, f"run {n}"), [record(m) for m in range(1, 20)])
        bodies.append(packed(tmp_path / f"{n}.db", made_run(n).id))
    done = at_once(there, bodies)
    assert all((one.begun, one.new) == (True, 19) for one in done)
    assert len(everything(there)) == 7
