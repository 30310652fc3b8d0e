"""Samples of torch's operator database: enlarged if possible, the same work in every run."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch

from opmark.catalogue.families import opinfo_samples as samples
from opmark.catalogue.families.opinfo import OpInfoEntry
from opmark.catalogue.families.opinfo_samples import SHAPE, Arguments, call, database
from opmark.errors import Unsupported

# One operator for each way to enlarge arguments.
UNARY, BINARY, REDUCING, SPECTRAL = "exp", "add", "sum", "fft.fft"
BY_SIZES, ITS_OWN = "addmm", "nn.functional.ctc_loss"


pytestmark = pytest.mark.usefixtures("frozen")


def elements(found: Any) -> int:
    return sum(tensor.numel() for tensor in found.reads)


def shapes(found: Any) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in found.reads]


# The database.


def test_an_entry_is_known_by_its_name_and_variant() -> None:
    known = database()
    assert known["exp"].name == "exp"
    reflect = known["nn.functional.pad/reflect"]
    assert (reflect.name, reflect.variant_test_name) == ("nn.functional.pad", "reflect")


def test_no_entry_hides_another() -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    assert len(database()) == len(op_db) > 500


def test_a_name_that_is_not_there_says_of_which_torch() -> None:
    with pytest.raises(Unsupported, match=rf"torch {torch.__version__} has no operator `no_such`".replace("+", r"\+")):
        call("no_such", "auto", enlarged=True)


def test_reading_the_database_leaves_the_settings_of_torch_alone(frozen: bool) -> None:
    """A worker reads it and goes on with other tasks, but importing it forbids changes of settings."""
    assert not frozen


# Larger.


@pytest.mark.parametrize(("name", "tensors"), [(UNARY, 1), (BINARY, 2), (REDUCING, 1), (SPECTRAL, 1)])
def test_what_takes_any_shape_is_given_a_large_one(name: str, tensors: int) -> None:
    assert shapes(call(name, "auto", enlarged=True)) == [SHAPE] * tensors


def test_a_reduction_is_along_the_last_axis() -> None:
    assert call(REDUCING, "auto", enlarged=True)().shape == SHAPE[:1]


@pytest.mark.parametrize("name", ["log", "acosh", "sqrt"])
def test_values_are_those_that_the_operator_is_defined_for(name: str) -> None:
    assert not bool(call(name, "auto", enlarged=True)().isnan().any())


@pytest.mark.parametrize("name", [BY_SIZES, "nn.functional.conv2d", "cumsum", "sort"])
def test_others_are_made_of_larger_sizes_or_more_of_them(name: str) -> None:
    larger, own = (call(name, "auto", enlarged=enlarged) for enlarged in (True, False))
    assert elements(larger) >= 10_000
    assert elements(larger) > 10 * elements(own)
    for found in larger.flat():
        assert found.numel() > 0


@pytest.mark.parametrize("name", [UNARY, BY_SIZES, "nn.functional.conv2d"])
def test_the_smallest_are_those_of_the_database(name: str) -> None:
    own = {tuple(sample.input.shape) for sample in database()[name].sample_inputs("cpu", torch.float32)}
    found: Any = call(name, "auto", enlarged=False)
    assert tuple(found.args[0].shape) in own


@pytest.mark.parametrize("name", [UNARY, BINARY, BY_SIZES, "nn.functional.conv2d", ITS_OWN, "einsum"])
def test_a_name_means_the_same_work_in_every_run(name: str) -> None:
    first, again = (call(name, "auto", enlarged=True) for _ in range(2))
    assert shapes(first) == shapes(again)
    assert first.described == again.described


@pytest.mark.parametrize("name", [UNARY, BINARY, REDUCING, SPECTRAL, BY_SIZES, "nn.functional.conv2d", "einsum"])
def test_what_was_made_can_be_called_again_and_again(name: str) -> None:
    launch = call(name, "auto", enlarged=True)
    first, second = launch.flat(), launch.flat()
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


def test_the_sizes_of_the_database_are_as_they_were() -> None:
    from torch.testing._internal import common_methods_invocations as module
    from torch.testing._internal.opinfo.definitions import linalg

    before = (module.S, module.M, module.L, module.make_tensor, linalg.make_tensor)
    call(BY_SIZES, "auto", enlarged=True)
    assert (module.S, module.M, module.L, module.make_tensor, linalg.make_tensor) == before
    with suppress(ZeroDivisionError), samples._set_sizes({"S": 77}):
        assert module.S == 77
        raise ZeroDivisionError
    assert (module.S, module.M, module.L, module.make_tensor, linalg.make_tensor) == before


def test_a_tensor_that_would_not_fit_is_not_made() -> None:
    with pytest.raises(ValueError, match="too large"):
        samples._make_bounded_tensor((1 << 12, 1 << 12, 1 << 12), device="cpu", dtype=torch.float32)
    with pytest.raises(ValueError, match="too large"):
        samples._make_bounded_tensor(1 << 12, 1 << 12, device="cpu", dtype=torch.float32)
    assert samples._make_bounded_tensor(3, 4, device="cpu", dtype=torch.float32).shape == (3, 4)
    assert samples._make_bounded_tensor((3, 4), device="cpu", dtype=torch.float32).shape == (3, 4)


@pytest.mark.parametrize("name", ["exp", "cat", "nn.functional.conv1d", "cross", "linalg.svd", "bernoulli"])
def test_what_was_found_once_is_made_again_the_same(name: str) -> None:
    """The second call of a process makes fewer samples, and does not run the operator."""
    first, second = call(name, "auto", enlarged=True), call(name, "auto", enlarged=True)
    assert first.described == second.described
    for one, other in zip(first.reads, second.reads, strict=True):
        assert one is not other
        assert torch.equal(one, other)


def test_seeding_does_not_note_the_stack_for_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.manual_seed does, before each of hundreds of samples."""
    from torch.testing._internal import common_utils

    def refuse(*_: Any) -> None:
        raise AssertionError("the stack is noted")

    before = common_utils.set_rng_seed
    monkeypatch.setattr(traceback, "format_stack", refuse)
    assert call("cat", "auto", enlarged=True).reads
    assert common_utils.set_rng_seed is before


# A longer first axis, with made-up entries, because those of the database may change with torch.


class Made:
    supports_autograd = True

    def __init__(self, op: Any, *args: Any, **kwargs: Any) -> None:
        self.op, self._args, self._kwargs = op, args, kwargs

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Any]:
        from torch.testing._internal.opinfo.core import SampleInput

        yield SampleInput(self._args[0], args=self._args[1:], kwargs=self._kwargs)


def repeated(op: Any, *args: Any, **kwargs: Any) -> Arguments | None:
    """The arguments that were found; they can be made again."""
    entry = Made(op, *args, **kwargs)
    found = samples._by_repeating(entry, "cpu", torch.float32)
    if found is None:
        return None
    arguments, make = found
    again = make(entry, "cpu", torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(arguments.tensors(), again.tensors(), strict=True))
    return arguments


def test_the_batch_is_made_longer_until_it_is_work() -> None:
    weight = torch.rand(8, 8)
    found = repeated(lambda x, w: x @ w, torch.rand(2, 8), weight)
    assert found is not None
    assert found.args[0].shape[1] == 8
    assert 10_000 < found.args[0].numel() <= 1 << 18
    assert found.args[1] is weight


def test_tensors_of_the_same_length_are_made_longer_together() -> None:
    found = repeated(torch.mul, torch.rand(3, 5), torch.rand(3, 5))
    assert found is not None
    assert found.args[0].shape == found.args[1].shape
    assert len(found.args[0]) > 3


def test_what_grows_with_the_square_of_a_length_stays_bounded() -> None:
    found = repeated(lambda x: x @ x.T, torch.rand(4, 4))
    assert found is not None
    assert len(found.args[0]) ** 2 <= 1 << 24


def test_a_longer_axis_that_is_not_worked_on_does_not_count() -> None:
    assert repeated(lambda x: x[0].sum(), torch.rand(4, 4)) is None


@pytest.mark.parametrize("x", [torch.rand(4), torch.rand(0, 4), 3.0])
def test_without_a_batch_there_is_nothing_to_make_longer(x: Any) -> None:
    assert repeated(lambda x: x, x) is None


def test_what_refuses_a_longer_axis_is_left_alone() -> None:
    assert repeated(lambda x: x.reshape(2, 8), torch.rand(2, 8)) is None


def test_a_tensor_made_longer_has_a_gradient_if_it_had_one() -> None:
    for wanted in (True, False):
        x = torch.rand(2, 8, requires_grad=wanted)
        found = repeated(torch.exp, x)
        assert found is not None
        assert found.args[0].requires_grad == wanted
        assert found.args[0].is_leaf


def test_too_much_work_is_stopped_while_it_is_done() -> None:
    done: list[int] = []

    def greedy(x: torch.Tensor) -> None:
        for step in range(100):
            x = x + 1
            done.append(step)

    with pytest.raises(ValueError, match="too much work"):
        samples._work(Made(greedy, None), Arguments((torch.zeros(1 << 22),), {}))
    assert 0 < len(done) < 10


# Element types.


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(UNARY, torch.float32), ("bitwise_and", torch.int64), ("view_as_real", torch.complex64), (BINARY, torch.float32)],
)
def test_without_a_wish_it_is_float32_or_the_next_best(name: str, dtype: torch.dtype) -> None:
    assert call(name, "auto", enlarged=True).reads[0].dtype == dtype


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int32"])
def test_an_element_type_that_was_asked_for_is_taken(dtype: str) -> None:
    assert {tensor.dtype for tensor in call(BINARY, dtype, enlarged=True).reads} == {getattr(torch, dtype)}


def test_an_element_type_that_the_operator_lacks_is_unsupported() -> None:
    """It is not the error that the operator happens to raise."""
    with pytest.raises(Unsupported, match="float32"):
        call("bitwise_and", "float32", enlarged=True)


# Gradients and words.


def test_what_can_be_differentiated_is_known() -> None:
    assert len(call(BINARY, "auto", enlarged=True).leaves) == 2
    assert list(call(BINARY, "int64", enlarged=True).leaves) == []
    assert list(call("argmax", "auto", enlarged=True).leaves) == []
    for leaf in call(BY_SIZES, "auto", enlarged=True).leaves:
        assert leaf.requires_grad
        assert leaf.is_leaf


def test_arguments_are_told_as_they_would_be_written() -> None:
    assert call(UNARY, "auto", enlarged=True).described == "1024x1024 float32"
    assert call(BINARY, "int64", enlarged=True).described == "1024x1024 int64, 1024x1024 int64"
    assert call(REDUCING, "auto", enlarged=True).described.startswith("1024x1024 float32, dim=-1")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.zeros(2, 3), "2x3 float32"),
        (torch.zeros((), dtype=torch.int8), "() int8"),
        (("dim", -1), "dim=-1"),
        (("weight", torch.zeros(2)), "weight=2 float32"),
        ((1, 2), "[1, 2]"),
        ([torch.zeros(2), None], "[2 float32, None]"),
        ("mean", "mean"),
        (True, "True"),
    ],
)
def test_an_argument_is_told_in_short(value: Any, text: str) -> None:
    assert samples._describe(value) == text


def test_nothing_that_is_told_is_longer_than_a_line() -> None:
    """It has to fit into a table."""
    assert "\n" not in call("where", "auto", enlarged=True).described
    assert "tensor(" not in call("einsum", "auto", enlarged=True).described


# The list of entries.


def test_every_entry_is_told_with_its_function_types_and_gradient() -> None:
    listed = {entry.name: entry for entry in (OpInfoEntry(*fields) for fields in samples._list_entries())}
    assert listed.keys() == database().keys()
    pad = listed["nn.functional.pad/reflect"]
    assert (pad.function, pad.differentiable) == ("nn.functional.pad", True)
    assert {"float32", "float64"} <= set(pad.dtypes)
    assert pad.dtypes == sorted(pad.dtypes)
    assert not listed["argmax"].differentiable
