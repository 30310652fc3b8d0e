"""The checks of one call, without any process."""

from __future__ import annotations

import numpy as np
import pytest

from opmark.errors import Unsupported, WrongResult
from opmark.plugin import ArrayPlace, draw_values
from opmark.plugin.registry import operator
from opmark.schema import TensorSpec
from opmark.worker.judge.checks import check_call, compute_excess, refuse_imprecise
from opmark.worker.judge.host_arena import HostArena
from opmark.worker.judge.process import Refused

SUM = operator("matmul")
PARAMS = SUM.complete({"M": 8, "N": 8, "K": 512, "dtype": "float16"})


@pytest.fixture
def product() -> tuple[dict[str, np.ndarray], np.ndarray]:
    generator = np.random.default_rng(1)
    inputs = {name: generator.uniform(-1, 1, spec.shape) for name, spec in SUM.inputs(PARAMS).items()}
    return inputs, SUM.reference(PARAMS, **inputs)


def test_one_rounding_is_a_small_part_of_what_is_accepted(product: tuple[dict[str, np.ndarray], np.ndarray]) -> None:
    inputs, expected = product
    found = check_call(SUM, PARAMS, inputs, [expected.astype(np.float16).astype(np.float64)], ["float16"])
    assert 0 < compute_excess(found, found.errors) < 0.2
    refuse_imprecise(compute_excess(found, found.errors))


def test_errors_within_the_tolerance_may_still_be_too_many(product: tuple[dict[str, np.ndarray], np.ndarray]) -> None:
    """The tolerance allows for cancellation, element by element; all of them together show that digits are missing."""
    inputs, expected = product
    found = check_call(SUM, PARAMS, inputs, [expected * 1.002], ["float16"])
    far = check_call(SUM, PARAMS, inputs, [expected * 1.004], ["float16"])
    assert compute_excess(found, (0.0,)) < compute_excess(far, (0.0,))
    with pytest.raises(Refused) as refused:
        refuse_imprecise(compute_excess(far, (0.0,)))
    assert refused.value.refusal == "imprecise"
    assert compute_excess(far, far.errors) == pytest.approx(1 / 8), "the baseline is as imprecise"


def test_what_was_not_written_is_said_to_be_so(product: tuple[dict[str, np.ndarray], np.ndarray]) -> None:
    inputs, expected = product
    expected[3, 4:] = np.nan
    with pytest.raises(WrongResult, match=r"output 0: 4 of 64 elements were not written .* first at \[3, 4\]"):
        check_call(SUM, PARAMS, inputs, [expected], ["float16"])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32", "bool"])
def test_an_arena_keeps_what_it_has_drawn(dtype: str) -> None:
    spec = TensorSpec((3, 5), dtype, 0, 2)
    place = ArrayPlace("x", 4096, spec.shape, dtype, spec.nbytes)
    arena = HostArena(3 * 4096)
    copy = arena.draw(place, spec, 1)
    whole = arena.read(place, {})
    assert whole.shape == spec.shape
    assert (whole == arena.widen(copy, {})).all()
    part = {0: np.array([2, 0]), 1: np.array([1, 3, 4])}
    assert (arena.read(place, part) == whole[np.ix_(part[0], part[1])]).all()
    assert (arena.widen(copy, part) == whole[np.ix_(part[0], part[1])]).all()
    assert arena.holds(place, copy)
    if dtype == "bfloat16":
        assert (np.asarray(whole, np.float32).view(np.uint32) & 0xFFFF == 0).all()
    arena.poison(place)
    assert not arena.holds(place, copy)
    values = arena.read(place, {})
    assert np.isnan(values).all() if values.dtype.kind == "f" else (values != whole).all()
    arena.close()


def test_every_element_is_drawn() -> None:
    """A tensor that repeats itself could be computed in part."""
    spec = TensorSpec((5_000_000,), "float32")
    place = ArrayPlace("x", 0, spec.shape, spec.dtype, spec.nbytes)
    arena = HostArena(spec.nbytes)
    values, _ = arena.draw(place, spec, 1)
    assert len(np.unique(values[:1000])) > 990
    assert not np.isin(values[4_194_301:], values[: 5_000_000 - 4_194_301]).all()
    arena.close()


def test_a_type_that_numpy_lacks() -> None:
    arena = HostArena(4096)
    with pytest.raises(Unsupported, match="float8_e4m3fn cannot be judged on a CPU"):
        arena.draw(ArrayPlace("x", 0, (4,), "float8_e4m3fn", 4), TensorSpec((4,), "float8_e4m3fn"), 1)
    arena.close()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_other_ways_to_compute_the_same_are_precise_enough(dtype: str) -> None:
    """Partial sums that are rounded to the element type, and formulas with several roundings."""
    torch = pytest.importorskip("torch")
    forms = {
        "matmul": (
            {"M": 16, "N": 16, "K": 1024},
            lambda a, b: a @ b,
            lambda a, b: sum(a[:, k : k + 128] @ b[k : k + 128] for k in range(0, 1024, 128)),
        ),
        "softmax": (
            {"shape": [8, 1024]},
            lambda x: torch.softmax(x, -1),
            lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
        ),
        "silu": ({"shape": [64, 64]}, torch.nn.functional.silu, lambda x: x / (1 + torch.exp(-x))),
    }
    for name, (given, baseline, candidate) in forms.items():
        op = operator(name)
        params = op.complete({**given, "dtype": dtype})
        tensors = {
            key: torch.from_numpy(draw_values(spec, seed)).to(getattr(torch, dtype))
            for seed, (key, spec) in enumerate(op.inputs(params).items())
        }
        arrays = {key: tensor.double().numpy() for key, tensor in tensors.items()}
        base, found = (
            check_call(op, params, arrays, [form(*tensors.values()).double().numpy()], [dtype])
            for form in (baseline, candidate)
        )
        assert compute_excess(found, base.errors) < 0.5, name
