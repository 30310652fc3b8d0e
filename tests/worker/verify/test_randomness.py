"""Draws that repeat are found; independent ones pass, whatever their distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from each_case import each_case

from opmark.errors import WrongResult
from opmark.plugin import Backend, Implementation
from opmark.plugin.registry import catalogue, operator
from opmark.schema import EFFORTS, Case, Phase, Settings, Task
from opmark.worker.verify.outputs import verify
from opmark.worker.verify.randomness import refuse_dependent_draws

SETTINGS = Settings(1, "quick", EFFORTS["quick"])
N = 4096


def three_calls(draw: Callable[[np.random.Generator], Any], seed: int = 0) -> list[Any]:
    generator = np.random.default_rng(seed)
    return [draw(generator) for _ in range(3)]


HONEST: dict[str, Callable[[np.random.Generator], Any]] = {
    "uniform": lambda g: g.random(N),
    "uniform float16": lambda g: g.random(N, np.float32).astype(np.float16),
    "marks": lambda g: g.random(N) < 0.5,
    "rare marks": lambda g: g.random(N) < 0.01,
    "few": lambda g: g.random(64) < 0.1,
    "no marks": lambda g: np.zeros(N, bool),
    "counts": lambda g: g.poisson(4.0, N) / 20,
    "a permutation": lambda g: g.permutation(N) / N,
}


@pytest.mark.parametrize("what", HONEST)
def test_independent_draws_pass(what: str) -> None:
    for seed in range(200):
        refuse_dependent_draws(three_calls(HONEST[what], seed))


def repeat_half(g: np.random.Generator) -> Any:
    return np.tile(g.random(N // 2), 2)


def repeat_half_somewhere(g: np.random.Generator) -> Any:
    return g.permutation(repeat_half(g))


def repeat_a_fifth(g: np.random.Generator) -> Any:
    drawn = g.random(N)
    drawn[-(N // 5) :] = drawn[: N // 5]
    return drawn


DEPENDENT: dict[str, tuple[Callable[[np.random.Generator], Any], str]] = {
    "half repeated": (repeat_half, "call 1 drew is not independent: draws that are 2048 elements apart"),
    "a part repeated": (repeat_a_fifth, "call 1 drew is not independent"),
    "half repeated somewhere": (repeat_half_somewhere, "pairs of the 4096 values that a call drew are equal"),
    "neighbours": (lambda g: np.repeat(g.random(N // 2), 2), " 1 elements apart"),
}


@pytest.mark.parametrize("what", DEPENDENT)
def test_draws_that_repeat_within_a_call_are_wrong(what: str) -> None:
    draw, message = DEPENDENT[what]
    with pytest.raises(WrongResult, match=message):
        refuse_dependent_draws(three_calls(draw))


def test_draws_that_repeat_those_of_another_call_are_wrong() -> None:
    first, second, third = three_calls(HONEST["uniform"])
    for calls, message in (
        ([first, first, third], "calls 1 and 2"),
        ([first, second, first], "calls 1 and 3"),
        ([first, np.roll(first, 100), third], "100 elements apart"),
        ([first, second, 1 - second], "correlation of -1"),
        ([first < 0.1, first < 0.1, third < 0.1], "calls 1 and 2"),
    ):
        with pytest.raises(WrongResult, match=message):
            refuse_dependent_draws(calls)


# Implementations with a right distribution.


def _one_mask(p: Any, x: Any) -> Any:
    mask = (torch.rand_like(x) >= p["p"]) / (1 - p["p"])
    return lambda: x * mask


def _two_masks(p: Any, x: Any) -> Any:
    masks = [(torch.rand_like(x) >= p["p"]) / (1 - p["p"]) for _ in range(2)]

    def launch() -> Any:
        masks.reverse()
        return x * masks[0]

    return launch


def _half_a_mask(p: Any, x: Any) -> Any:
    kept = torch.rand_like(x) >= p["p"]

    def launch() -> Any:
        mask = torch.rand_like(x) >= p["p"]
        mask[::2] = kept[::2]
        return x * mask / (1 - p["p"])

    return launch


def _half_the_numbers(p: Any) -> Any:
    rows, columns = p["shape"]
    return lambda: torch.randn(rows // 2, columns).repeat(2, 1)


def _half_the_numbers_shuffled(p: Any) -> Any:
    def launch() -> Any:
        half = torch.randn(p["shape"][0] * p["shape"][1] // 2)
        return torch.cat((half, half[torch.randperm(half.numel())])).reshape(*p["shape"])

    return launch


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("dropout", _one_mask),
        ("dropout", _two_masks),
        ("dropout", _half_a_mask),
        ("random_normal", _half_the_numbers),
        ("random_normal", _half_the_numbers_shuffled),
    ],
)
def test_an_implementation_that_draws_too_little_is_wrong(name: str, build: Any, torch_cpu: Backend) -> None:
    torch.manual_seed(0)
    with pytest.raises(WrongResult, match=r"not independent|are equal"):
        check(name, Implementation("torch", build), torch_cpu)


def test_a_step_that_keeps_its_mask_is_wrong(torch_cpu: Backend) -> None:
    torch.manual_seed(0)
    with pytest.raises(WrongResult, match="calls 1 and 2 drew is not independent"):
        check("dropout", Implementation("torch", _one_mask), torch_cpu, "both")


def check(name: str, implementation: Implementation, live: Backend, phase: Phase = "forward") -> None:
    op = operator(name)
    task = Task(Case.of(name, op.complete(op.preset("small")), phase), "", "", SETTINGS)
    verify(task, op, implementation, live)


def test_every_random_operator_says_what_it_draws_and_passes(torch_cpu: Backend, numpy_cpu: Backend) -> None:
    with each_case() as case:
        for op in catalogue().values():
            if op.result == "random":
                with case(op.name):
                    assert op.draws is not None
                    check(op.name, op.implementations_for("numpy")[0], numpy_cpu)
                    check(op.name, op.implementations_for("torch")[0], torch_cpu)
