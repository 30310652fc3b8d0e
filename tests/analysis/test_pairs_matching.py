"""What stands opposite what, case by case."""

from __future__ import annotations

import pytest
from compared import QUIET, both, case_of, figures

from opmark.analysis.pairs import Way, opposite
from opmark.errors import UserError

pytestmark = pytest.mark.verdicts

ONE, TWO = case_of(size=1), case_of(size=2)


def way(case: str, backend: str = "torch-cpu", implementation: str = "torch", threads: int = 2) -> Way:
    return Way(case, backend, implementation, threads)


def test_each_case_has_a_rule_of_its_own() -> None:
    """The first case is there by name on both sides; that is no reason to lose the second."""
    a = [way("one"), way("two")]
    b = [way("one"), way("two", "numpy-cpu", "numpy")]
    found = opposite(a, b)
    assert found is not None
    assert found.pairs == list(zip(a, b, strict=True))


def test_of_several_implementations_the_plain_one_is_meant() -> None:
    a = [way("one"), way("two"), way("two", implementation="triton")]
    b = [way("one", "numpy-cpu", "numpy"), way("two", "numpy-cpu", "numpy")]
    found = opposite(a, b)
    assert found is not None
    assert found.pairs == [(a[0], b[0]), (a[1], b[1])]
    assert found.ambiguous == set()


def test_what_leaves_a_choice_is_left_out_and_the_rest_is_compared() -> None:
    a = [way("one"), way("two"), way("two", "jax-cpu", "jax")]
    b = [way("one", "numpy-cpu", "numpy"), way("two", "numpy-cpu", "numpy")]
    found = opposite(a, b)
    assert found is not None
    assert (found.pairs, found.ambiguous) == ([(a[0], b[0])], {"two"})
    with pytest.raises(UserError, match="1 case in common, but no way to compute them"):
        opposite(a[1:], b)


def test_sides_without_a_case_in_common_have_nothing_opposite() -> None:
    assert opposite([way("one")], [way("two")]) is None


def test_a_comparison_names_what_it_left_out() -> None:
    a = figures(QUIET, ONE) + figures(QUIET, TWO) + figures(QUIET, TWO, backend="jax-cpu", implementation="jax")
    b = [f for case in (ONE, TWO) for f in figures(QUIET, case, backend="numpy-cpu", implementation="numpy")]
    found = both(a, b, ONE, TWO)
    assert [pair.case for pair in found.pairs] == [ONE.id]
    assert found.only[1] == ("exp 2 float32 (numpy-cpu ×2: several ways, and none opposite)",)
    assert len(found.only[0]) == 2
