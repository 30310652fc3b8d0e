"""A call of a framework's own function: a launch, and the tensors that go in and come out."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from opmark.catalogue.families.callables import FrameworkCall, find_tensors


def test_a_call_is_a_partial_with_nothing_around_it() -> None:
    """What is timed is the function: a layer of Python would be part of every number."""
    call = FrameworkCall(divmod, 7, 2)
    assert isinstance(call, partial)
    assert FrameworkCall.__call__ is partial.__call__
    assert (call.func, call.args, call.keywords) == (divmod, (7, 2), {})
    assert call() == (3, 1)


def test_arguments_by_name_are_passed_on() -> None:
    assert FrameworkCall(sorted, [1, 3, 2], reverse=True)() == [3, 2, 1]


def test_a_call_knows_nothing_but_what_it_is_told() -> None:
    one, other = FrameworkCall(abs, 1), FrameworkCall(abs, 2)
    one.reads, one.leaves, one.described = [1], [2], "1"
    assert (other.reads, other.leaves, other.described) == ((), (), "")


def test_what_comes_out_is_flat() -> None:
    a, b, c = (torch.zeros(n) for n in (1, 2, 3))
    found = FrameworkCall(lambda: {"x": [a, (b, 3, None)], "y": {"z": c, "w": "text"}}).flat()
    assert isinstance(found, tuple)
    assert [id(tensor) for tensor in found] == [id(a), id(b), id(c)]


def test_what_has_no_gradient_that_makes_sense_is_left_out() -> None:
    a, b = torch.zeros(1), torch.zeros(2)
    call = FrameworkCall(lambda: (a, b))
    call.outputs = lambda found: found[1]
    assert [id(tensor) for tensor in call.flat()] == [id(b)]
    assert call() == (a, b), "the launch itself is as it was"


def test_tensors_of_any_framework_are_found_and_nothing_else() -> None:
    found: list[Any] = [np.float32(1), np.zeros(2), torch.zeros(3)]
    others: list[Any] = [1, 2.0, None, "text", True, torch.float32, np.float32, {1}, range(3)]
    assert [id(value) for value in find_tensors([others, found, others])] == [id(value) for value in found]


def test_a_tensor_alone_is_found() -> None:
    x = torch.zeros(2, 2)
    assert [id(value) for value in find_tensors(x)] == [id(x)]
