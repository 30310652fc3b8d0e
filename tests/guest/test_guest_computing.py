"""The lists of what a workload file may call, against the packages in the environments of guests."""

from __future__ import annotations

import pytest
from listed_names import missing_names

from opmark.catalogue.families.computing import CLASSES, FUNCTIONS, NOT_COMPUTING
from opmark.runner.guests import environments

# Asked while this file is imported: a test has data directories of its own.
PYTHONS = {
    name: str(found.python) for name in ("tensorflow", "mxnet") if (found := environments.find_environment(name))
}


@pytest.mark.parametrize(
    ("guest", "package"), [("tensorflow", "tensorflow"), ("mxnet", "mxnet"), ("mxnet", "numpy")]
)  # the numpy there is an old one, with functions that NumPy 2 no longer has
def test_every_name_in_the_lists_of_what_computes_exists(guest: str, package: str) -> None:
    if guest not in PYTHONS:
        pytest.skip(f"no environment `{guest}` (opmark env create {guest})")
    listed = FUNCTIONS | CLASSES | {*NOT_COMPUTING}
    names = sorted(name for name in listed if name.partition(".")[0] == package)
    assert names
    assert missing_names(PYTHONS[guest], names) == []
