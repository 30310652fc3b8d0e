"""What is measured again, and what is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import checked, compared, finding, pairing
from compared import keep
from gates import BASE, FAILS, Gate, Turns, outcomes, rows

import opmark
from opmark.analysis.pairs import Rules, Values, judge
from opmark.api import confirm
from opmark.api.baseline import BaselineLost
from opmark.api.check import check
from opmark.api.requests import TurnOptions
from opmark.errors import UserError
from opmark.report.console.comparison import remarks
from opmark.report.formats.junit import junit_xml
from opmark.report.formats.markdown import summary_markdown
from opmark.runner.plan import settings_for
from opmark.schema.comparison import Pairing
from opmark.schema.messages import Checkout, Side
from opmark.stats.verdict import STAGES

pytestmark = pytest.mark.verdicts


class TestSecondLook:
    def test_an_interval_that_reaches_into_the_margin_confirms_nothing(self, gate: Gate) -> None:
        assert outcomes(gate(rows(exp=1.0), rows(exp=1.2), Turns("slower", 1.05, low=1.02))) == {"exp": "undecided"}

    def test_a_stored_case_calls_only_what_a_file_may_call(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        """A store may come from anybody."""
        monkeypatch.delenv("OPMARK_ALLOW", raising=False)
        turns, op = Turns(), "os:system"
        before, now = rows(**{op: 1.0, "torch.add": 1.0}), rows(**{op: 1.2, "torch.add": 1.2})
        with pytest.raises(
            UserError, match="now: `os:system` is not a function that a workload file may call"
        ) as found:
            gate(before, now, turns)
        assert not turns.asked
        assert "--allow os " in (found.value.hint or "")

    def test_a_stored_case_calls_what_the_user_allows_and_what_lies_here(
        self, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "kernels_here.py").touch()
        monkeypatch.chdir(tmp_path)
        ops = {"elsewhere:add": 1.0, "kernels_here:add": 1.0, "torch.add": 1.0}
        turns = Turns()
        gate(rows(**ops), rows(**dict.fromkeys(ops, 1.2)), turns, allow="elsewhere")
        assert sorted(op for asked in turns.asked for op in asked["ops"]) == sorted(ops)

    def test_pairs_go_on_until_the_interval_lies_beyond_the_margin(self, gate: Gate) -> None:
        turns = Turns()
        gate(rows(exp=1.0), rows(exp=1.2), turns)
        settled = turns.asked[0]["settled"]
        assert not settled(pairing(ratio=1.05, low=1.02))
        assert settled(pairing(ratio=1.05, low=1.04))
        assert settled(pairing(ratio=1.0, verdict="same"))
        assert not settled(pairing(ratio=1.0, verdict="undecided"))

    @pytest.mark.parametrize(("factor", "asked"), [(1.015, True), (1.005, False)])
    def test_what_a_drift_may_hide_is_a_candidate(self, gate: Gate, factor: float, asked: bool) -> None:
        turns = Turns("slower")
        found = gate(rows(exp=1.0), rows(exp=factor), turns, margin=0.03, drift=0.02)
        assert bool(turns.asked) == asked
        assert (outcomes(found)["exp"] == "slower") == asked

    def test_what_the_scheduler_spoilt_is_a_candidate(self) -> None:
        spoilt = pairing(ratio=None, verdict="undecided", note="preempted in now")
        skipped = pairing("tanh", None, statuses=("ok", "skipped"), verdict="undecided")
        assert confirm.doubtful_pairs(compared(spoilt, skipped), 0.03) == [spoilt]
        disturbed = pairing(ratio=None, verdict="undecided", note="preempted in now", statuses=("ok", "disturbed"))
        unchecked = pairing("sin", 1.5, statuses=("unchecked", "unchecked"))
        assert confirm.doubtful_pairs(compared(disturbed, unchecked), 0.03) == [disturbed, unchecked]

    def test_a_failure_that_does_not_come_again_is_none(self, gate: Gate) -> None:
        found = gate(rows(exp=1.0), rows(exp="out of memory"), Turns("same", 1.0))
        assert (outcomes(found), found.exit_code) == ({"exp": "cleared"}, 0)
        assert outcomes(found) == {"exp": "cleared"}

    def test_what_failed_once_may_be_slower(self, gate: Gate, tmp_path: Path) -> None:
        assert outcomes(gate(rows(exp=1.0), rows(exp="out of memory"), Turns("slower"))) == {"exp": "slower"}

    def test_a_slow_case_that_fails_in_the_second_look_only_is_undecided(self, gate: Gate) -> None:
        assert outcomes(gate(rows(exp=1.0), rows(exp=1.2), Turns("undecided", **FAILS))) == {"exp": "undecided"}

    def test_fewer_pairs_than_a_stage_decide_nothing(self, gate: Gate) -> None:
        found = gate(rows(exp=1.0), rows(exp=1.2), Turns("slower", processes=(3, 3)), budget=7.0)
        assert outcomes(found) == {"exp": "undecided"}
        assert found.notes[-1].endswith(
            "but only 3 pairs of the 5 that are needed were measured: the budget was too small (--budget 7)"
        )

    @pytest.mark.parametrize(
        ("turns", "outcome", "why"),
        [
            (Turns("same", 1.0, a=1.2e-3), "unconfirmed", "measured again, it takes 1.20x of what is stored"),
            (Turns("undecided", 1.0, a=1.2e-3), "unconfirmed", "measured again, it takes 1.20x of what is stored"),
            (Turns("slower", 1.1, a=0.8e-3), "slower", ""),
            (Turns("same", 1.0, a=0.8e-3), "cleared", ""),
            (Turns("slower", 1.1, a=1.2e-3), "slower", ""),
            (Turns("same", 1.0, a=1.04e-3), "cleared", ""),
            (Turns("undecided", None, a=None, statuses=("error", "ok"), note="no module `built`"), "unconfirmed",
             "its revision does not run here: no module `built`"),
        ],
    )  # fmt: skip
    def test_a_baseline_that_is_not_what_was_measured_clears_nothing(
        self, gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, turns: Turns, outcome: str, why: str
    ) -> None:
        monkeypatch.setattr(
            confirm.SlowdownConfirmation,
            "_measure_candidate",
            lambda *args: keep(tmp_path / "store.db", "later", "", rows(exp=1.2)),
        )
        found = gate(rows(exp=1.0), rows(exp=1.2), turns)
        assert outcomes(found) == {"exp": outcome}
        assert why in found.notes[-1]

    def test_the_same_files_may_call_what_has_changed(self, gate: Gate, sides: dict[str, Any]) -> None:
        turns = Turns("same", 1.0)
        sides["main"] = sides["now"] = Side("x", "torch-cpu", 2, checkout=Checkout("/r", "c", "/r"))
        assert outcomes(gate(rows(exp=1.0), rows(exp=1.2), turns)) == {"exp": "cleared"}
        assert len(turns.asked) == 1

    def test_the_same_code_that_fails_is_not_cleared(self, gate: Gate, sides: dict[str, Any]) -> None:
        sides["main"] = sides["now"] = Side("x", "torch-cpu", 2)
        assert outcomes(gate(rows(exp=1.0), rows(exp="new"), Turns("undecided", **FAILS))) == {"exp": "failed"}

    def test_a_failure_in_all_processes_of_a_run_that_is_gone_counts(self, gate: Gate, sides: dict[str, Any]) -> None:
        sides["now"] = BaselineLost("gone")
        assert outcomes(gate(rows(exp=1.0), rows(exp="new"))) == {"exp": "failed"}

    def test_a_mistake_while_measuring_again_ends_nothing(self, gate: Gate, sides: Any, monkeypatch: Any) -> None:
        def broken(*args: Any) -> Any:
            raise UserError("no such device")

        sides["main"] = BaselineLost("gone")
        monkeypatch.setattr(confirm.SlowdownConfirmation, "_measure_candidate", broken)
        found = gate(rows(exp=1.0), rows(exp=1.2))
        assert outcomes(found) == {"exp": "undecided"}
        assert found.notes == ("not measured again: no such device (gone)",)

    def test_a_stored_run_is_measured_as_it_was(self, tmp_path: Path, sides: Any) -> None:
        db, turns = tmp_path / "store.db", Turns()
        run = opmark.run("exp", size="small", backend="null", processes=2, seed=3, warmup=7, verify=False, db=db)
        case = run.records[0].task.case
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("compared.case_of", lambda op: case)
            keep(db, BASE, "main", {("null", "exp"): [1e-9, 1.01e-9]}, facts={"cpu": None, "cores": None})
        check(baseline="main", current=run.run.id, db=db, unlike=True, say=lambda text: None, in_turns=turns)
        (asked,) = turns.asked
        assert (asked["seed"], asked["warmup"], asked["verify"]) == (3, 7, False)

    def test_modules_are_looked_at_apart(self, tmp_path: Path, gate: Gate, sides: dict[str, Any]) -> None:
        """So that one that cannot be had again does not take the others with it."""
        turns = Turns()
        ops = ("exp", "one:f", "two:f")
        gate(rows(**dict.fromkeys(ops, 1.0)), rows(**dict.fromkeys(ops, 1.2)), turns, allow=["one", "two"])
        assert sorted(one["ops"] for one in turns.asked) == [["exp"], ["one:f"], ["two:f"]]


def _fails(draw: np.random.Generator, effect: float, spread: float, margin: float = 0.03) -> bool:
    """Whether a case fails the build whose second look is like this."""
    logs = draw.normal(0, spread, (2, STAGES[-1]))
    a, b = np.exp(logs[0]), np.exp(logs[1]) * (1 + effect)
    for pairs in STAGES:
        values = Values(dict(enumerate(a[:pairs])), dict(enumerate(b[:pairs])), [], [])
        found = judge(values, 0.0, Rules(margin, 0.0, paired=True, looked=True)).found
        pair: Pairing = pairing(ratio=found.ratio, low=found.low, verdict=found.verdict)
        if confirm.clearly_slower(pair, margin) or pair.verdict in ("same", "faster"):
            return confirm.clearly_slower(pair, margin)
    return False


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.02])
def test_a_slowdown_within_the_margin_fails_in_one_case_of_a_hundred_at_most(spread: float) -> None:
    draw = np.random.default_rng(8)
    assert sum(_fails(draw, 0.025, spread) for _ in range(500)) <= 5
    assert sum(_fails(draw, 0.10, spread) for _ in range(100)) == 100


def test_what_is_unconfirmed_is_said_loudly_and_skipped_in_junit() -> None:
    found = checked(finding("unconfirmed", why="the baseline could not be measured again"), finding("same", "tanh"))
    assert found.exit_code == 0
    assert summary_markdown(found).startswith("### ⚠️ opmark: passed: 1 unconfirmed, 1 same")
    assert next(remarks(found)).startswith("WARNING: 1 case was slower twice than the stored numbers")
    xml = junit_xml(found)
    assert 'failures="0" errors="0" skipped="1"' in xml
    assert '<skipped message="unconfirmed: 1.100x' in xml
    strict = checked(finding("unconfirmed"), fail_on=("unconfirmed",))
    assert strict.exit_code == 1
    assert 'failures="1"' in junit_xml(strict)


@pytest.mark.parametrize(
    ("load", "arrival", "rate"), [("2 clients", "closed", ()), ("2 clients, poisson 50/s", "poisson", 50.0)]
)
def test_a_case_under_load_is_measured_again_under_the_same_load(load: str, arrival: str, rate: Any) -> None:
    nobody: Any = None
    look = confirm.SlowdownConfirmation(
        nobody, nobody, nobody, TurnOptions(requests=300, effort="quick"), 0.0, None, nobody, nobody, live=True
    )
    side = ("null", 1)
    options = look._options_for(confirm._RemeasureGroup(side, side, "request_latency", "warm", "", False, load))
    assert (options.clients, options.arrival, options.rate, options.requests) == (2, arrival, rate, 300)
    (settings, *_) = settings_for(options)
    assert settings.load is not None
    assert settings.load.text == load
