"""Versions of a package: which ones there are, and the search for the first that is slower."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from opmark.errors import UnknownName, UserError
from opmark.runner.ab import versions
from opmark.runner.ab.versions import VersionSearch, environment_request, versions_between

KNOWN = ["1.0", "1.1", "1.2", "1.3", "1.4", "2.0"]


def test_versions_from_the_good_one_to_the_bad_one() -> None:
    assert versions_between("fast", "1.1", "1.4", KNOWN) == ["1.1", "1.2", "1.3", "1.4"]
    with pytest.raises(UnknownName, match=r"no version of fast named `1.11`") as caught:
        versions_between("fast", "1.11", "2.0", KNOWN)
    assert "1.1" in str(caught.value.hint)
    with pytest.raises(UserError, match=r"fast: 2.0 is not older than 1.0"):
        versions_between("fast", "2.0", "1.0", KNOWN)
    with pytest.raises(UserError, match="expected the name of a package"):
        versions_between("--index-url=x", "1.0", "2.0", KNOWN)


def test_pip_says_which_versions_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = [0, "fast (2.0)\nAvailable versions: 2.0, 1.4, 1.0\n", ""]

    def run(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        assert command[-3:] == ["index", "versions", "fast"]
        return subprocess.CompletedProcess(command, *answer)

    monkeypatch.setattr(versions.subprocess, "run", run)
    assert versions_between("fast", "1.0", "2.0") == ["1.0", "1.4", "2.0"]
    answer[:] = [1, "", "ERROR: No matching distribution found for fast\n"]
    with pytest.raises(UserError, match="No matching distribution") as caught:
        versions_between("fast", "1.0", "2.0")
    assert "--versions" in str(caught.value.hint)


@pytest.mark.parametrize("first_bad", range(1, 6))
@pytest.mark.parametrize("skipped", [set(), {2}, {3, 4}])
def test_the_search_ends_with_the_first_bad_version_or_all_that_it_may_be(first_bad: int, skipped: set[int]) -> None:
    search = VersionSearch("fast", KNOWN)
    asked = []
    while not search.over:
        at = KNOWN.index(search.candidate().hash)
        asked.append(at)
        search.say("skip" if at in skipped else "bad" if at >= first_bad else "good")
    assert len(asked) == len(set(asked)) <= 3 + len(skipped)
    left = [KNOWN.index(one.hash) for one in search.left]
    assert first_bad in left
    assert set(left) - skipped == {left[-1]}
    assert search.log().splitlines()[:2] == ["good: 1.0", "bad: 2.0"]


def test_a_known_framework_is_installed_by_its_recipe_and_any_other_package_by_itself() -> None:
    assert environment_request("torch", "2.12.0") == ("torch==2.12.0", ())
    assert environment_request("fast", "1.1") == ("fast-1.1", ("fast==1.1",))
