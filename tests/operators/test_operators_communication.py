"""Names of communication operators are answered, not unknown."""

from __future__ import annotations

import pytest

from opmark.errors import UnknownName, UserError
from opmark.operators.communication import NAMES
from opmark.registry import aliases, catalogue
from opmark.registry import operator as find_operator


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_communication_operator_says_that_it_takes_several_processes(name: str) -> None:
    with pytest.raises(UserError, match="between processes or devices") as found:
        find_operator(name)
    assert not isinstance(found.value, UnknownName)


def test_no_operator_of_the_catalogue_is_hidden_by_these_names() -> None:
    assert not NAMES & {*catalogue(), *aliases()}
