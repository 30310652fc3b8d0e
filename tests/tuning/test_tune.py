"""Whole tunings on a backend whose best configuration is known: found, verified, judged, stored, continued."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from handmade import sound
from msgspec.structs import replace
from typer.testing import CliRunner

from opmark.api.ab import ab, measure_sides
from opmark.api.items import view_stored_run
from opmark.api.report import make_report
from opmark.api.result import open_store
from opmark.api.run import run
from opmark.api.space import space
from opmark.api.tune import Trial, Tuning, tune
from opmark.api.tuned import export_tuned, import_tuned, tuned
from opmark.cli.app import make_app
from opmark.errors import UserError
from opmark.report.charts.tuning import tuned_bars, tuning
from opmark.schema import Run
from opmark.store.sql import open_sql
from opmark.tuning.search import run_folder

pytestmark = pytest.mark.usefixtures("knobs")
SHAPE = {"shape": [[64, 256]]}
BEST = {"tile": (16, 16), "unroll": 4, "order": "ij", "fast": True}


def tune_exp(db: Path, **options: Any) -> Tuning:
    settings: dict[str, Any] = {"trials": 40, "library": "none", "threads": 1, "say": lambda text: None, **options}
    return tune(["exp"], params=SHAPE, backend="knobs-cpu", db=db, **settings)


@pytest.fixture(scope="module")
def tuned_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one tuning."""
    folder = tmp_path_factory.mktemp("tuned")
    with pytest.MonkeyPatch.context() as patch:
        from worker_fixtures import add_to_path

        add_to_path(Path(__file__).parents[1] / "helpers" / "knobs", patch)
        (one,) = tune_exp(folder / "store.db").cases
        assert one.entry.configuration == BEST
        assert one.entry.verdict == "faster"
        assert one.search is not None
        assert one.search.stopped
    return folder / "store.db"


def test_all_that_was_tried_is_in_the_store_with_its_configuration(tuned_once: Path) -> None:
    with closing(open_sql(tuned_once)) as store:
        (entry,) = store.tuned()
        records = store.records(entry.run)
    tried = {record.task.settings.configuration for record in records if record.task.settings.configuration}
    assert len(tried) == entry.trials <= 40
    assert {record.status for record in records} == {"ok"}
    assert all(record.verification and record.verification.checked == "full" for record in records)


def test_the_variant_tuned_applies_it_and_says_so(tuned_once: Path) -> None:
    said: list[str] = []
    options: dict[str, Any] = {"effort": "quick", "threads": 1, "processes": 1, "db": tuned_once, "say": said.append}
    found = run(["exp"], params=SHAPE, backend="knobs-cpu,knobs-cpu/tuned", **options)
    default, applied = (record.measurements[0].samples[0] for record in found.records)
    assert applied == pytest.approx(default / 2.56, rel=0.1)
    assert any("2.5" in line and "tile=16x16" in line for line in said)
    near = run(["exp"], params={"shape": [[64, 512]]}, backend="knobs-cpu/tuned", **options)
    assert dict(near.records[0].task.settings.configuration)["tile"] == (32, 16)
    assert "the nearest shape" in said[-1] or any("the nearest shape" in line for line in said)
    far = run(["exp"], params={"shape": [[64, 4096]]}, backend="knobs-cpu/tuned", **options)
    assert far.records[0].task.settings.configuration == ()
    assert any("nothing is tuned" in line for line in said)


def test_every_command_that_measures_says_what_it_applies(tuned_once: Path, tmp_path: Path) -> None:
    shutil.copy(tuned_once, tmp_path / "store.db")
    said: list[str] = []
    options: dict[str, Any] = {"threads": 1, "processes": 4, "db": tmp_path / "store.db", "say": said.append}
    compared = ab(["exp"], params=SHAPE, backend="knobs-cpu,knobs-cpu/tuned", **options)
    assert [pair.verdict for pair in compared.pairs] == ["faster"]
    assert any("knobs-cpu/tuned: exp" in line and "tile=16x16" in line for line in said)


def test_what_is_tuned_is_listed_and_carried_to_another_store(tuned_once: Path, tmp_path: Path) -> None:
    (here,) = tuned("exp", near={"shape": [64, 300]}, db=tuned_once)
    assert 0 < here.distance < 1
    assert here.loss is None
    assert not here.stale  # another number of threads than the default one does not make it stale
    assert export_tuned(tmp_path / "tuned.json", db=tuned_once) == (1, [])
    assert import_tuned(tmp_path / "tuned.json", db=tmp_path / "other.db")[:2] == (1, 1)
    assert import_tuned(tmp_path / "tuned.json", db=tmp_path / "other.db")[:2] == (1, 0)
    assert [one.entry for one in tuned(db=tmp_path / "other.db")] == [here.entry]


def test_the_loss_to_expect_is_learnt_from_shapes_that_tried_each_others_configurations(
    tuned_once: Path, tmp_path: Path
) -> None:
    db = tmp_path / "two.db"
    shutil.copy(tuned_once, db)
    settings: dict[str, Any] = {"library": "none", "threads": 1, "say": lambda text: None}
    tune(["exp"], params={"shape": [[64, 512]]}, backend="knobs-cpu", db=db, trials=6, **settings)
    near = tuned("exp", near={"shape": [64, 128]}, db=db)
    assert [one.distance for one in near] == [1, 2]
    assert all(one.pairs and one.loss is not None and 0 <= one.loss < 0.1 for one in near)


def test_the_report_shows_the_search_and_what_was_gained(tuned_once: Path) -> None:
    with closing(open_sql(tuned_once)) as store:
        (entry,) = store.tuned()
        shown = view_stored_run(store, next(one for one in store.runs() if one.id == entry.run), whole=True)
    charts = [*tuning(shown), *tuned_bars([entry])]
    sound(charts)
    links = {mark.link for chart in charts for _, mark in chart.marks() if mark.link}
    assert links
    assert links <= {row.key for row in shown.rows}
    page = make_report(entry.run, db=tuned_once)
    assert isinstance(page, str)
    for title in ("Best so far", "Knobs against time", "What each knob matters", "Default, tuned and library"):
        assert title in page


def test_a_tuning_that_decides_nothing_forgets_nothing(tuned_once: Path, tmp_path: Path) -> None:
    db = tmp_path / "store.db"
    shutil.copy(tuned_once, db)
    said: list[str] = []
    (one,) = tune_exp(db, budget="0.001s", say=said.append).cases
    assert one.entry.default_stays
    assert one.standing is not None
    assert one.standing.configuration == BEST
    assert any("nothing was decided" in line for line in said)
    (known,) = tuned("exp", db=db)
    assert known.entry.configuration == BEST


def test_what_another_tuner_found_in_a_space_of_its_own_stays_where_nothing_is_faster(tmp_path: Path) -> None:
    """As what MetaSchedule has found: the newest entry counts, so that a later search begins with it."""
    db = tmp_path / "store.db"
    (first,) = tune_exp(db, tuner="quick").cases
    (second,) = tune_exp(db).cases
    assert first.entry.configuration == second.entry.configuration == {"quick": True}
    assert first.entry.source == second.entry.source != ""
    assert second.entry.trials > 1
    assert export_tuned(tmp_path / "tuned.json", db=db) == (1, [])
    assert import_tuned(tmp_path / "tuned.json", db=tmp_path / "other.db")[:2] == (1, 1)
    for entry in (first.entry, second.entry):
        assert make_report(entry.run, db=db)


def test_a_tuner_of_the_backend_does_not_make_it_slower(tuned_once: Path, tmp_path: Path, monkeypatch: Any) -> None:
    shutil.copy(tuned_once, tmp_path / "store.db")
    monkeypatch.setenv("OPMARK_KNOBS", "slow")
    (one,) = tune_exp(tmp_path / "store.db", tuner="quick").cases
    assert one.entry.configuration == BEST


def test_a_tuning_that_tries_nothing_stores_nothing(tmp_path: Path) -> None:
    tune_exp(tmp_path / "store.db", budget="0.001s")
    assert tuned(db=tmp_path / "store.db") == []


def test_what_is_surely_faster_is_kept_where_other_work_disturbed_some_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict is that of the processes that were not disturbed: a list that says faster and keeps the default has it
    both ways."""

    def disturbed(*arguments: Any, **options: Any) -> Any:
        found = measure_sides(*arguments, **options)
        pairs = [replace(pair, statuses=("ok", "disturbed")) for pair in found.pairs]
        return replace(found, pairs=pairs)

    monkeypatch.setattr("opmark.api.tune.measure_sides", disturbed)
    (one,) = tune_exp(tmp_path / "store.db").cases
    assert (one.entry.verdict, one.entry.configuration) == ("faster", BEST)


def test_where_no_knob_matters_nothing_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPMARK_KNOBS", "flat")
    (one,) = tune_exp(tmp_path / "store.db", trials=10).cases
    assert one.entry.default_stays
    assert one.entry.verdict in ("same", "undecided")


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("crash", "error", "SIGABRT"),
        ("hang", "timeout", ""),
        ("oom", "oom", "unrolling"),
        ("refuse", "skipped", "refuses"),
    ],
)
def test_candidates_that_fail_are_records_with_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, status: str, reason: str
) -> None:
    monkeypatch.setenv("OPMARK_KNOBS", fault)
    tuner = "gridsearch"  # its first candidates include the knob that fails
    (one,) = tune_exp(tmp_path / "store.db", trials=30, timeout=2.0, tuner=tuner).cases
    with closing(open_sql(tmp_path / "store.db")) as store:
        failed = [record for record in store.records(one.entry.run) if record.status != "ok"]
    assert failed
    assert {record.status for record in failed} == {status}
    assert all(dict(record.task.settings.configuration)["unroll"] == 8 for record in failed)
    assert all(reason in record.reason for record in failed)


def test_a_wrong_result_never_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPMARK_KNOBS", "wrong")  # where unroll is 4, as the fastest has it
    (one,) = tune_exp(tmp_path / "store.db").cases
    assert one.entry.configuration == {**BEST, "unroll": one.entry.configuration["unroll"]}
    assert one.entry.configuration["unroll"] in (2, 8)
    with closing(open_sql(tmp_path / "store.db")) as store:
        wrong = [r for r in store.records(one.entry.run) if dict(r.task.settings.configuration).get("unroll") == 4]
    assert {record.status for record in wrong} == {"wrong"}


PROGRAM = """
import sys
from opmark.api.tune import tune
tune(["exp"], params={"shape": [[64, 256]]}, backend="knobs-cpu", db=sys.argv[1], trials=40, library="none", threads=1)
"""


def test_after_kill_9_it_goes_on_where_it_was(tmp_path: Path) -> None:
    db = tmp_path / "store.db"
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(db)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    stored = 0
    while time.monotonic() < deadline and stored < 6:
        time.sleep(0.05)
        if db.exists() and child.poll() is None:
            try:
                with closing(open_store(db)) as store:
                    stored = sum(len(store.records(one.id)) for one in store.runs())
            except UserError:
                continue
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert stored >= 6
    with closing(open_store(db)) as store:
        (first,) = store.runs()
        before = {record.task.id: record.started for record in store.records(first.id)}
    (one,) = tune_exp(db, resume=True).cases
    with closing(open_store(db)) as store:
        after = {record.task.id: record.started for record in store.records(one.entry.run)}
    assert one.entry.run == first.id
    assert before.items() <= after.items()  # nothing was measured twice
    assert one.entry.configuration == BEST


def test_files_of_a_tuner_stay_until_its_tuning_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []

    def ask(tuner: Any, most: int) -> list[dict[str, bool]]:
        kept = tuner.problem.folder / "kept"
        found.append(kept.exists())
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.touch()
        return [] if tuner.own_trials else [{"quick": True}]

    def interrupt(trial: Trial) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("opmark_knobs.QuickTuner.ask", ask)
    place = tmp_path / "cache" / "opmark" / "tuning"
    db = tmp_path / "store.db"
    with pytest.raises(KeyboardInterrupt):
        tune_exp(db, tuner="quick", on_trial=interrupt)
    (interrupted,) = place.iterdir()
    (one,) = tune_exp(db, tuner="quick", resume=True).cases
    assert one.entry.run == interrupted.name
    assert found == [False, True, True]
    assert list(place.iterdir()) == []
    tune_exp(db, tuner="quick")  # a new run begins with nothing
    assert found[3:] == [False, True]


def test_files_of_tunings_that_nobody_resumes_are_removed(tmp_path: Path) -> None:
    place = tmp_path / "cache" / "opmark" / "tuning"
    for run_id, days in (("young", 1), ("old", 40), ("resumed", 40)):
        (place / run_id / "case").mkdir(parents=True)
        then = time.time() - days * 86400
        os.utime(place / run_id, (then, then))
    assert run_folder("resumed") == place / "resumed"
    assert {one.name for one in place.iterdir()} == {"young", "resumed"}


def test_the_hint_of_the_command_names_the_store_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = "20300101-000000-0001"
    found = Tuning("knobs-cpu", "", Run(run_id, "2030-01-01T00:00:00.000+00:00", "plan", 1), [], (run_id,))
    monkeypatch.setattr("opmark.api.tune.tune_request", lambda request: found)
    monkeypatch.setattr("opmark.api.result.storage_line", lambda runs, db: "stored")
    done = CliRunner().invoke(make_app(), ["tune", "exp", "--db", "postgresql://me:hunter2@h.invalid/db"])
    assert f"`opmark report {run_id} --db postgresql://me@h.invalid/db` draws the search" in done.stderr
    assert "hunter2" not in done.output


def test_bad_input_is_refused_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = tmp_path / "store.db"
    with pytest.raises(UserError, match="has no knobs"):
        tune(["abs"], backend="numpy-cpu", db=db)
    with pytest.raises(UserError, match="applies what was tuned"):
        tune(["exp"], backend="knobs-cpu/tuned", db=db)
    with pytest.raises(UserError, match="one number of threads"):
        tune_exp(db, threads=[1, 2])
    with pytest.raises(UserError, match="expected a duration"):
        tune_exp(db, budget="soon")
    with pytest.raises(UserError, match="tuner"):
        tune_exp(db, tuner="best")
    monkeypatch.setenv("OPMARK_KNOBS", "contradict")
    with pytest.raises(UserError, match="contradict each other"):
        tune_exp(db)
    with pytest.raises(UserError, match="implementation"):
        space(["exp"], backend="knobs-cpu", impl="other")
