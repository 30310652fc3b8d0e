"""What decides the time, read from records whose law is known."""

from __future__ import annotations

import random

import pytest
from factor_laws import RUN, placed, record, saturating, study_records
from msgspec.structs import replace

from opmark.analysis.factors import is_study, study, values_of
from opmark.errors import UserError
from opmark.schema.factors import FactorEffect, FactorOutcome


def outcome_of(records, name="time") -> FactorOutcome:
    return next(one for one in study(values_of(records), "r").outcomes if one.outcome == name)


def effect(found: FactorOutcome, name: str) -> FactorEffect:
    return next(one for one in found.effects if one.name == name)


@pytest.fixture(scope="module")
def found() -> FactorOutcome:
    return outcome_of(study_records(saturating))


def test_sizes_that_grow_together_are_one_factor(found):
    assert {one.name for one in found.effects} == {"size (M, N, K)", "threads", "dtype"}
    assert found.effects[0].name == "size (M, N, K)"
    assert found.quantity == "latency warm"


def test_the_knee_of_threads_is_told_in_a_sentence(found):
    threads = effect(found, "threads")
    (knee,) = threads.knees
    assert knee.low <= 6 <= knee.high
    assert 4 < knee.low < knee.high < 9
    assert (threads.base, threads.trend) == ("4", "falling")
    assert any(sentence.startswith("adding threads stops paying at ") for sentence in threads.sentences)
    assert threads.spearman is not None
    assert threads.spearman[0] < 0


def test_a_law_without_a_bend_has_no_knee(found):
    size = effect(found, "size (M, N, K)")
    assert size.knees == ()
    assert size.trend == "rising"
    assert size.best == ("16",)
    assert size.ratio == pytest.approx((2048 / 16) ** 2, rel=0.1)
    assert [level.nbytes for level in size.levels] == sorted(level.nbytes for level in size.levels)


def test_a_known_interaction_is_found_and_an_absent_one_is_not(found):
    by_pair = {(one.first, one.second): one for one in found.interactions}
    assert by_pair["size (M, N, K)", "dtype"].p < 0.05
    assert by_pair["size (M, N, K)", "dtype"].sentence
    assert by_pair["dtype", "threads"].p > 0.05
    assert not by_pair["dtype", "threads"].sentence


def test_what_does_nothing_has_no_effect():
    chance, alarms = random.Random(1), 0
    for seed in range(20):
        records = [
            replace(one, measurements=(replace(one.measurements[0], samples=[chance.lognormvariate(-9, 0.05)] * 7),))
            for one in study_records(saturating, seed=seed)
        ]
        told = outcome_of(records)
        alarms += any(one.matters for one in told.effects)
        if not any(one.matters for one in told.effects):
            assert all(one.share is None and one.knees == () for one in told.effects)
            assert all("no effect that can be told from noise" in one.sentences[0] for one in told.effects)
    assert alarms <= 4


def test_energy_and_energy_times_delay_are_outcomes_where_energy_was_measured():
    records = list(study_records(saturating, watts=50.0))
    assert [one.outcome for one in study(values_of(records)).outcomes] == ["time", "energy", "energy_delay"]
    threads = effect(outcome_of(records, "energy_delay"), "threads")
    assert threads.ratio == pytest.approx(36, rel=0.15)


def test_placements_are_levels():
    chance = random.Random(2)
    records = [
        placed(process, name, seconds * chance.lognormvariate(0, 0.005))
        for process in range(5) for name, seconds in (("free", 1.0), ("scatter", 1.0), ("compact", 1.4))
    ]  # fmt: skip
    affinity = effect(outcome_of(records), "affinity")
    assert affinity.matters
    assert set(affinity.best) == {"free", "scatter"}
    assert affinity.knees == ()
    assert [level.value for level in affinity.levels] == [None, None, None]


def test_failed_and_disturbed_points_count_nowhere():
    records = list(study_records(saturating))
    lost = [one.task.settings.threads == 16 for one in records]
    spoilt = [replace(one, status="disturbed") if bad else one for one, bad in zip(records, lost, strict=True)]
    threads = effect(outcome_of(spoilt), "threads")
    assert [level.processes for level in threads.levels if level.name == "16"] == [0]
    assert study(values_of(spoilt)).failed == sum(lost)


def test_one_process_cannot_tell_noise_from_effect():
    with pytest.raises(UserError, match="1 process: noise cannot be told from effect") as error:
        study(values_of(study_records(saturating, processes=1)))
    assert "--processes 3" in str(error.value.hint)


def test_records_that_do_not_differ_have_no_factors():
    with pytest.raises(UserError, match="nothing differs between the 3 records of matmul"):
        study(values_of(record(64, 1, "float32", process, 1e-3) for process in range(3)))
    with pytest.raises(UserError, match="no records"):
        study([])


def test_a_study_is_known_by_its_session():
    assert is_study(RUN)
    assert not is_study(replace(RUN, session=""))
