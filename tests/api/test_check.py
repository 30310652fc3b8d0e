"""The gate: what fails a build, and what is measured again before it does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from compared import QUIET, case_of, keep
from gates import BASE, FAILS, NOISY, NOW, Gate, Turns, outcomes, rows, times

import opmark
from opmark.api import baseline, confirm
from opmark.api.baseline import BaselineLost
from opmark.api.check import check
from opmark.api.requests import RunRequest
from opmark.errors import StoreError, UnknownName, UserError
from opmark.schema.comparison import Verdict
from opmark.schema.messages import Side

pytestmark = pytest.mark.verdicts


def test_nothing_slower_passes_and_nothing_is_measured_again(gate: Gate) -> None:
    turns = Turns()
    found = gate(rows(exp=1.0, tanh=1.0), rows(exp=1.0, tanh=0.8), turns)
    assert outcomes(found) == {"exp": "same", "tanh": "faster"}
    assert found.exit_code == 0
    assert turns.asked == []


def test_a_slowdown_that_is_confirmed_fails(gate: Gate) -> None:
    turns = Turns("slower")
    found = gate(rows(exp=1.0, tanh=1.0), rows(exp=1.2, tanh=1.0), turns, budget=60.0)
    assert outcomes(found) == {"exp": "slower", "tanh": "same"}
    assert found.exit_code == 1
    (asked,) = turns.asked
    assert (asked["ops"], asked["a"].name, asked["b"].name) == (["exp"], "main", "now")
    assert (asked["margin"], asked["budget"], asked["quantity"], asked["cache"]) == (0.03, 60.0, "latency", "warm")
    assert found.again == (("again-a", "again-b"),)
    assert found.notes == ("measured again in turns: main on torch-cpu, now on torch-cpu",)
    first = found.findings[0]
    assert first.again is not None
    assert first.again.ratio == 1.1


@pytest.mark.parametrize(
    ("verdict", "outcome"), [("same", "cleared"), ("faster", "cleared"), ("undecided", "undecided")]
)
def test_a_slowdown_that_is_not_confirmed_passes(gate: Gate, verdict: Verdict, outcome: str) -> None:
    found = gate(rows(exp=1.0), rows(exp=1.2), Turns(verdict))
    assert outcomes(found) == {"exp": outcome}
    assert found.exit_code == 0


def test_a_slowdown_that_gave_no_result_again_is_not_confirmed(gate: Gate) -> None:
    assert outcomes(gate(rows(exp=1.0), rows(exp=1.2), Turns(None))) == {"exp": "undecided"}


def test_what_is_undecided_beyond_the_margin_is_a_candidate(gate: Gate) -> None:
    turns = Turns("slower")
    found = gate(rows(exp=1.0, tanh=1.0), rows(exp=NOISY, tanh=1.0), turns)
    assert found.compared.pairs[0].verdict == "undecided"
    assert turns.asked[0]["ops"] == ["exp"]
    assert outcomes(found)["exp"] == "slower"


def test_what_is_undecided_within_the_margin_is_none(gate: Gate) -> None:
    turns = Turns()
    found = gate(rows(exp=1.0), rows(exp=NOISY), turns, margin=0.15)
    assert (outcomes(found), turns.asked) == ({"exp": "undecided"}, [])


def test_the_margin_decides_what_is_slower(gate: Gate) -> None:
    turns = Turns()
    assert outcomes(gate(rows(exp=1.0), rows(exp=1.1), turns, margin=0.2)) == {"exp": "same"}
    assert turns.asked == []


def test_the_same_code_cannot_be_slower(gate: Gate, sides: dict[str, Any]) -> None:
    turns = Turns()
    sides["main"] = sides["now"] = Side("x", "torch-cpu", 2)
    found = gate(rows(exp=1.0), rows(exp=1.2), turns)
    assert outcomes(found) == {"exp": "cleared"}
    assert turns.asked == []
    assert "it is the machine that changed" in found.notes[0]
    assert found.exit_code == 0


def test_what_is_now_and_cannot_be_had_again_is_not_confirmed(gate: Gate, sides: dict[str, Any]) -> None:
    sides["now"] = BaselineLost("its software is no longer here: torch 2 -> 3")
    found = gate(rows(exp=1.0), rows(exp=1.2))
    assert outcomes(found) == {"exp": "undecided"}
    assert found.notes[0].startswith("not measured again: now cannot be had any more: its software is no longer")


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [(1.2, 1.2, "unconfirmed"), (1.2, 1.0, "cleared"), (NOISY, 1.2, "undecided"), (1.2, NOISY, "undecided")],
)
def test_a_baseline_that_cannot_be_had_again_is_compared_as_stored_twice(
    gate: Gate,
    sides: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    first: Any,
    second: Any,
    outcome: str,
) -> None:
    sides["main"] = BaselineLost("its software is no longer here")
    turns, later = Turns(), "20300103-000000-cccc"

    def fresh(self: Any, store: Any, group: Any, now: Side, cases: Any) -> Any:
        assert now.name == "now"
        return keep(tmp_path / "store.db", later, "check", rows(exp=second))

    monkeypatch.setattr(confirm.SlowdownConfirmation, "_measure_candidate", fresh)
    found = gate(rows(exp=1.0), rows(exp=first), turns)
    assert outcomes(found) == {"exp": outcome}
    assert turns.asked == []
    assert found.exit_code == 0
    assert found.notes[0].startswith("the baseline itself could not be measured again (its software is no longer here)")
    assert found.again == ((BASE, later),)


def test_fresh_processes_measure_what_is_now_again(
    tmp_path: Path, sides: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the null backend, whose clock is virtual, and a baseline that was twice as fast."""
    db = tmp_path / "store.db"
    run = opmark.run("exp", size="small", backend="null", effort="quick", processes=5, threads=2, db=db)
    seconds = [row["quantities"]["latency"]["warm"]["median"] for row in run.rows()]
    case = run.records[0].task.case
    monkeypatch.setattr("compared.case_of", lambda op: case)
    keep(
        db, BASE, "main", {("null", "exp"): [seconds[0] / 2 * one for one in QUIET]}, facts={"cpu": None, "cores": None}
    )
    sides["main"] = BaselineLost("gone")
    found = check(baseline="main", current=run.run.id, db=db, unlike=True, say=lambda text: None)
    assert outcomes(found) == {"exp": "unconfirmed"}
    (runs,) = found.again
    again = opmark.show(runs[1], db=db)
    assert again.run.label == "check"
    assert again.run.session
    assert [record.task.settings.process for record in again.records] == [0, 1, 2, 3, 4]


def test_what_fails_now_fails_the_build_and_what_failed_before_does_not(gate: Gate) -> None:
    turns = Turns("undecided", **FAILS)
    found = gate(rows(exp=1.0, tanh="old", sin="old"), rows(exp="new", tanh="old", sin=1.0), turns)
    assert [one["ops"] for one in turns.asked] == [["exp"]]
    assert outcomes(found) == {"exp": "failed", "tanh": "broken", "sin": "mended"}
    assert (found.exit_code, found.failing) == (1, 1)
    assert found.findings[0].pair.note == "failed in now: error: new"


@pytest.mark.parametrize(
    ("fail_on", "code"), [((), 0), (("slower",), 0), (("missing",), 1), (("undecided",), 1), (("failed",), 1)]
)
def test_what_fails_the_build_can_be_chosen(gate: Gate, fail_on: tuple[str, ...], code: int) -> None:
    base, now = rows(exp=1.0, tanh=1.0, sin=1.0, cos=1.0), rows(exp="broke", tanh=NOISY, sin=1.0)
    found = gate(base, now, Turns("undecided", **FAILS), fail_on=fail_on)
    assert outcomes(found) == {"exp": "failed", "tanh": "undecided", "sin": "same"}
    assert found.missing == ("cos 4 float32 (torch-cpu ×2)",)
    assert found.exit_code == code


def test_ways_are_measured_again_apart_and_share_the_budget(gate: Gate) -> None:
    turns = Turns("slower")
    base, now = ({**rows(exp=factor, tanh=factor), ("numpy-cpu", "exp"): times(factor)} for factor in (1.0, 1.5))
    found = gate(base, now, turns, budget=90.0)
    assert [(one["a"].backend, one["ops"], one["budget"]) for one in turns.asked] == [
        ("torch-cpu", ["exp", "tanh"], 60.0), ("numpy-cpu", ["exp"], 30.0),
    ]  # fmt: skip
    assert found.failing == 3


def test_what_cannot_be_measured_in_turns_is_compared_as_stored_twice(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ranks(*sides: Any, **how: Any) -> Any:
        raise UserError("not with ranks")

    monkeypatch.setattr(
        confirm.SlowdownConfirmation,
        "_measure_candidate",
        lambda *args: keep(tmp_path / "store.db", "later", "check", rows(exp=1.2)),
    )
    found = gate(rows(exp=1.0), rows(exp=1.2), ranks)
    assert outcomes(found) == {"exp": "unconfirmed"}
    assert "(not with ranks)" in found.notes[0]


def test_a_store_that_is_gone_is_no_reason_to_go_on(gate: Gate) -> None:
    def full(*sides: Any, **how: Any) -> Any:
        raise StoreError("disk full")

    with pytest.raises(StoreError, match="disk full"):
        gate(rows(exp=1.0), rows(exp=1.2), full)


def test_a_launcher_of_several_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path / "store.db", BASE, "main", rows(exp=1.0))
    told = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    for name, value in {**told, "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "x"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="has started several processes of this check"):
        check("exp", baseline="main", size="small", backend="null", db=tmp_path / "store.db")


def test_what_stands_for_the_baseline_is_taken_as_it_is_said(
    gate: Gate, sides: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    monkeypatch.setattr(baseline, "commit_of", lambda root, name: None)

    def told(then: Any, against: Any, ops: Any, stack: Any, command: str) -> Side:
        said.append(against)
        assert command == "make"
        return Side("told", "numpy-cpu", 1)

    monkeypatch.setattr(confirm, "named_side", told)
    turns = Turns()
    gate(rows(exp=1.0), rows(exp=1.2), turns, against_rev="HEAD~1", against_python="p", against_backend="null",
         make="make")  # fmt: skip
    assert turns.asked[0]["a"].name == "told"
    assert (said[0].rev, said[0].python, said[0].backend) == ("HEAD~1", "p", "null")


def test_unlike_machines_are_refused_unless_told(gate: Gate, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="machines that are alike: cpu: a processor -> another"):
        gate(rows(exp=1.0), rows(exp=1.0), facts={"cpu": "another"})
    found = check(baseline="main", current="now", db=tmp_path / "store.db", unlike=True)
    assert found.compared.differing == {"cpu": ("a processor", "another")}


def test_live_code_is_measured_with_what_was_asked(tmp_path: Path, sides: Any) -> None:
    db, asked, turns = tmp_path / "store.db", {}, Turns()
    keep(db, BASE, "main", rows(exp=1.0))

    def measure(request: RunRequest) -> Any:
        asked.update(vars(request))
        return SimpleNamespace(run=keep(db, NOW, "", rows(exp=1.2)))

    found = check(
        "exp", baseline="main", params={"shape": [4]}, backend="torch-cpu", db=db, measure=measure, in_turns=turns,
        label="", compile_timeout=9.0, say=lambda text: None,
    )  # fmt: skip
    assert (found.exit_code, found.compared.b) == (1, "now")
    assert (asked["ops"], asked["backend"], asked["db"], asked["compile_timeout"]) == ("exp", "torch-cpu", db, 9.0)
    assert asked["session"]
    assert turns.asked[0]["compile_timeout"] == 9.0


def test_nothing_is_measured_that_the_baseline_does_not_have(tmp_path: Path) -> None:
    db = tmp_path / "store.db"
    keep(db, BASE, "main", rows(exp=1.0))

    def must_not(*args: Any, **how: Any) -> Any:
        raise AssertionError

    with pytest.raises(UserError) as told:
        check("tanh", baseline="main", size="small", backend="null", db=db, measure=must_not)
    assert told.value.message == (
        "no case in common: asked for 1 case (tanh 256x256 float32 forward), the baseline `main` has 1 case (exp 4 "
        "float32 forward)"
    )


def test_a_baseline_without_a_number_is_none(gate: Gate) -> None:
    with pytest.raises(UserError, match=r"the baseline `main` \(run .*\) measured nothing that counts: 2 rec"):
        gate(rows(exp="broke", tanh="broke"), rows(exp=1.0))


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"baseline": "nosuch"}, UnknownName, "no run named `nosuch`"),
        ({"current": "nosuch"}, UnknownName, "no run named `nosuch`"),
        ({"margin": -1.0}, UserError, "margin: expected a share from 0 to below 1, got -1"),
        ({"margin": 5}, UserError, "margin: expected a share from 0 to below 1, got 5"),
        ({"fail_on": ("slow",)}, UnknownName, "no reason to fail named `slow`"),
        ({"budget": -1.0}, UserError, "budget: expected seconds above 0"),
    ],
)
def test_a_mistake_is_the_users(tmp_path: Path, options: Any, kind: Any, said: str) -> None:
    keep(tmp_path / "store.db", BASE, "main", rows(exp=1.0))
    with pytest.raises(kind, match=said):
        check(**{"baseline": "main", "current": "main", "db": tmp_path / "store.db", **options})


def test_cases_are_named_in_the_second_look_by_what_they_are(gate: Gate) -> None:
    turns = Turns()
    gate(rows(exp=1.0), rows(exp=1.2), turns)
    assert turns.asked[0]["ops"] == [case_of("exp").op]


def test_a_label_means_the_newest_other_run_that_has_the_cases(gate: Gate, tmp_path: Path) -> None:
    """Nights that measure different parts share a label, and the run that is checked has it too."""
    db = tmp_path / "store.db"
    keep(db, "20300101-000000-0001", "nightly", rows(exp=1.0))
    keep(db, "20300102-000000-0002", "nightly", rows(exp=1.0))
    keep(db, "20300103-000000-0003", "nightly", rows(tanh=1.0))
    keep(db, "20300104-000000-0004", "nightly", rows(exp=1.0))
    given: dict[str, Any] = {"db": db, "say": lambda text: None, "in_turns": Turns()}
    found = check(baseline="nightly", current="nightly", **given)
    assert found.compared.runs == ("20300102-000000-0002", "20300104-000000-0004")
    assert found.notes == (
        "`nightly` is the label of 4 runs: the baseline is 20300102-000000-0002; the 1 newer one measured none of "
        "these cases",
    )
    found = check(baseline="nightly@{-3}", current="nightly", **given)
    assert (found.compared.runs[0], found.notes) == ("20300101-000000-0001", ())
    keep(db, "20300105-000000-0005", "alone", rows(exp=1.0))
    with pytest.raises(UserError, match="`alone` is the label of the run that is checked and of no other"):
        check(baseline="alone", current="alone", **given)
