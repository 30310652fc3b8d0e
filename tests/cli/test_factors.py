"""opmark factors"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.tuning

Command = Callable[..., Any]
KNEE = (1e5 / 12) ** 0.5
"""The null backend takes a microsecond, and one more for each 100,000 bytes; a sum of n x n elements has 12 n^2."""


def test_a_known_law_is_found_and_read_again(main: Command) -> None:
    done = main(
        "factors", "add", "-p", "shape=64x64", "--backend", "null", "--factor", "size=4:4096", "--factor", "seed",
        "--factor", "dtype=float32,float64", "--trials", "26", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    (found,) = done.objects
    (time,) = found["outcomes"]
    effects = {effect["name"]: effect for effect in time["effects"]}
    size = effects["size (shape)"]
    assert time["effects"][0] is size
    assert size["trend"] == "rising"
    assert size["knees"][0]["low"] < KNEE < size["knees"][-1]["high"]
    assert abs(size["knees"][0]["before"]) < 0.3
    assert size["knees"][-1]["after"] == pytest.approx(2, abs=0.2)
    assert not effects["seed"]["matters"]
    assert effects["dtype"]["best"] == ["float32"]
    # more points were taken where the time bends than elsewhere
    values = [level["value"] for level in size["levels"]]
    assert sum(KNEE / 8 <= value <= KNEE * 8 for value in values) > len(values) / 2
    again = main("factors", "--run", found["run"], "--json")
    assert again.objects[0]["outcomes"] == found["outcomes"]
    assert main("show", found["run"]).code == 0
    shown = main("factors", "--run", found["run"])
    assert "What decides the time" in shown.out
    assert "seed has no effect" in shown.out or "seed does not matter" in shown.out


def test_an_interrupted_study_goes_on(main: Command) -> None:
    command = ("factors", "add", "-p", "shape=64x64", "--backend", "null", "--factor", "size=4:256", "--trials", "8")
    first = main(*command, "--json").objects[0]
    done = main(*command, "--resume", "--json")
    assert done.code == 0, done.err
    assert "measured already" in done.err
    assert done.objects[0]["run"] == first["run"]
    assert done.objects[0]["points"] == first["points"]


def test_threads_are_workers_of_their_own(main: Command) -> None:
    done = main(
        "factors", "add", "-p", "shape=64x64", "--backend", "null", "--factor", "threads", "--factor", "size=16,64",
        "--json",
    )  # fmt: skip
    if "has one level here" in done.err:
        pytest.skip("one core")
    (found,) = done.objects
    effects = {effect["name"]: effect for effect in found["outcomes"][0]["effects"]}
    assert not effects["threads"]["matters"]
    assert effects["size (shape)"]["matters"]


def test_what_can_be_varied_is_listed(main: Command) -> None:
    listed = main("factors", "--list", "conv2d", "--size", "small", "--backend", "numpy-cpu")
    assert listed.code == 0
    assert "1 to 4096" in listed.out
    settings = {one["name"]: one for one in main("factors", "--list", "--backend", "null", "--json").objects}
    assert settings["threads"]["default"]
    assert settings["l3_ways"]["control"]
    assert "NVIDIA" in settings["sm_percent"]["why_not"]
    assert "corun" in settings["processes"]["why_not"]


def test_a_case_that_fails_is_said(main: Command) -> None:
    done = main(
        "factors", "add", "-p", "shape=64x64", "--backend", "null", "--factor", "size=4:64", "--timeout", "0.000001"
    )
    assert done.code == 2
    assert "the base of the factors cannot be measured" in done.err
    assert "hint: `opmark run add`" in done.err


def test_a_cut_budget_is_said(main: Command) -> None:
    done = main(
        "factors", "add", "-p", "shape=64x64", "--backend", "null", "--factor", "size=4:64", "--budget", "0.001s",
        "--json",
    )  # fmt: skip
    found = json.loads(done.out) if done.out else {}
    assert "budget" in (" ".join(found.get("notes", ())) or done.err)
