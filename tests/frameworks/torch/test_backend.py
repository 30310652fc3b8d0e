"""PyTorch, eager, on the CPU."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.errors import Unsupported
from opmark.frameworks.torch import backend as torch_eager
from opmark.plugin import BLOCK, CallCost
from opmark.plugin.registry import backend
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import DTYPES, FLOATS, INTS, is_float

INFO = backend("torch-cpu")
OTHERS = ("torch-cuda", "torch-xpu", "torch-mps", "torch-accelerator")


def _spec(dtype: str, shape: tuple[int, ...] = (200, 3)) -> TensorSpec:
    return TensorSpec(shape, dtype, *((-1.0, 1.0) if is_float(dtype) else (0, 2)))


@pytest.mark.parametrize("dtype", sorted(INFO.dtypes))
def test_a_tensor_of_every_claimed_element_type_can_be_made(dtype: str, torch_cpu: Any) -> None:
    tensor = torch_cpu.tensor(_spec(dtype), 0)
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.element_size() == DTYPES[dtype].size
    assert tuple(tensor.shape) == (200, 3)
    assert tensor.device.type == "cpu"
    seen = torch_cpu.to_numpy(tensor)
    assert len(np.unique(seen)) > 1
    assert np.isfinite(seen).all()


@pytest.mark.parametrize("dtype", [*FLOATS, "int64", "uint8"])
def test_a_seed_gives_the_same_data_again_and_another_seed_other_data(dtype: str, torch_cpu: Any) -> None:
    first, again, other = (torch_cpu.tensor(_spec(dtype), seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_global_generator_is_left_alone(torch_cpu: Any) -> None:
    before = torch.get_rng_state()
    torch_cpu.tensor(_spec("float32"), 5)
    torch_cpu.tensor(_spec("int64"), 5)
    assert torch.equal(before, torch.get_rng_state())


def test_a_large_tensor_repeats_one_random_block(torch_cpu: Any) -> None:
    """Drawing a billion random numbers takes longer than what is measured with them."""
    flat = torch_cpu.tensor(TensorSpec((3, BLOCK - 1), "uint8", 3, 200), 7).reshape(-1)
    block = torch_cpu.tensor(TensorSpec((BLOCK,), "uint8", 3, 200), 7)
    parts = flat.split(BLOCK)
    assert [len(part) for part in parts] == [BLOCK, BLOCK, BLOCK - 3]
    assert all(torch.equal(part, block[: len(part)]) for part in parts)
    assert (block.min().item(), block.max().item()) == (3, 199)


def test_up_to_a_block_every_element_is_drawn(torch_cpu: Any) -> None:
    values = torch_cpu.tensor(TensorSpec((BLOCK,), "int64", 0, 1 << 60), 0)
    assert values.sort().values.diff().all()


@pytest.mark.parametrize("dtype", sorted(INFO.dtypes))
def test_a_tensor_of_blocks_is_like_any_other(dtype: str, torch_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_eager, "BLOCK", 97)
    first, again, other = (torch_cpu.tensor(_spec(dtype), seed) for seed in (1, 1, 2))
    assert first.dtype == getattr(torch, dtype)
    assert tuple(first.shape) == (200, 3)
    assert first.is_contiguous()
    assert first.untyped_storage().nbytes() == 600 * DTYPES[dtype].size
    seen, same, different = (torch_cpu.to_numpy(tensor) for tensor in (first, again, other))
    np.testing.assert_array_equal(seen, same)
    assert not np.array_equal(seen, different)
    assert len(np.unique(seen)) > 1


@settings(deadline=None, max_examples=60)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    block=st.integers(1, 60),
    dtype=st.sampled_from([*FLOATS, "int32"]),
    low=st.integers(-100, 100),
    width=st.integers(1, 100),
)
def test_blocks_repeat_in_order_and_stay_in_their_domain(
    shape: list[int], block: int, dtype: str, low: int, width: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_eager, "BLOCK", block)
        tensor = INFO.load(threads=1).tensor(TensorSpec(tuple(shape), dtype, low, low + width), 3)
    assert list(tensor.shape) == shape
    values = tensor.double().reshape(-1)
    assert torch.equal(values[block:], values[:-block] if len(values) > block else values[:0])
    rounding = torch.finfo(tensor.dtype).eps * 200 if tensor.is_floating_point() else 0
    assert (values >= low - rounding).all()
    assert (values <= low + width + rounding).all()


@settings(deadline=None, max_examples=60)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    dtype=st.sampled_from(FLOATS),
    low=st.integers(-100, 100),
    width=st.integers(1, 100),
    seed=st.integers(0, 2**32),
)
def test_floats_lie_in_their_domain(shape: list[int], dtype: str, low: int, width: int, seed: int) -> None:
    tensor = INFO.load(threads=1).tensor(TensorSpec(tuple(shape), dtype, low, low + width), seed).double()
    assert list(tensor.shape) == shape
    rounding = torch.finfo(getattr(torch, dtype)).eps * 200
    assert (tensor >= low - rounding).all()
    assert (tensor <= low + width + rounding).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_fill_their_domain_evenly(dtype: str, torch_cpu: Any) -> None:
    values = torch_cpu.to_numpy(torch_cpu.tensor(TensorSpec((10000,), dtype, -3.0, 5.0), 0))
    counts, _ = np.histogram(values, bins=4, range=(-3, 5))
    assert counts.sum() == 10000
    assert counts.min() > 2200


@pytest.mark.parametrize("dtype", INTS)
def test_integers_take_every_value_of_their_range_and_no_other(dtype: str, torch_cpu: Any) -> None:
    assert set(torch_cpu.tensor(TensorSpec((2000,), dtype, 3, 9), 0).tolist()) == {3, 4, 5, 6, 7, 8}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers_reach_both_ends_of_their_type(dtype: str, torch_cpu: Any) -> None:
    limits = torch.iinfo(getattr(torch, dtype))
    tensor = torch_cpu.tensor(TensorSpec((20000,), dtype, limits.min, limits.max + 1), 0)
    assert (tensor.min().item(), tensor.max().item()) == (limits.min, limits.max)


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_looked_at_in_float64(dtype: str, torch_cpu: Any) -> None:
    tensor = torch.tensor([0.1, -2.5, 3e4], dtype=getattr(torch, dtype))
    seen = torch_cpu.to_numpy(tensor)
    assert seen.dtype == np.float64
    assert seen.tolist() == tensor.tolist()


@pytest.mark.parametrize("dtype", sorted(INFO.dtypes))
def test_an_element_type_is_named_as_opmark_spells_it(dtype: str, torch_cpu: Any) -> None:
    assert torch_cpu.dtype(torch.ones(3).to(getattr(torch, dtype))) == dtype


@pytest.mark.parametrize("dtype", [*INTS, "bool", "complex64"])
def test_other_types_are_looked_at_as_they_are(dtype: str, torch_cpu: Any) -> None:
    assert torch_cpu.to_numpy(torch.ones(3, dtype=getattr(torch, dtype))).dtype == np.dtype(dtype)


def test_a_tensor_with_a_graph_can_be_looked_at(torch_cpu: Any) -> None:
    with torch.enable_grad():
        value = torch.ones(3, dtype=torch.float64, requires_grad=True) * 2
        assert torch_cpu.to_numpy(value).tolist() == [2, 2, 2]


def test_a_forward_pass_keeps_no_graph() -> None:
    torch.set_grad_enabled(True)
    live = INFO.load(threads=1)
    x = live.tensor(_spec("float32"), 0)
    assert not x.requires_grad
    y = torch.exp(x.requires_grad_(True))
    assert not y.requires_grad
    assert y.grad_fn is None


def test_a_backward_phase_leaves_the_forward_ones_without_a_graph(torch_cpu: Any) -> None:
    x = torch_cpu.tensor(_spec("float32"), 0)
    torch_cpu.backward(lambda: torch.exp(x), [x], 1)
    assert not torch.is_grad_enabled()
    assert torch.exp(x).grad_fn is None


def test_the_number_of_threads_is_set() -> None:
    for threads in (1, 2):
        assert INFO.load(threads).environment()["threads"] == threads
        assert torch.get_num_threads() == threads


def test_float32_means_float32() -> None:
    """TF32 keeps 10 bits of 23; a product in it would be measured under the wrong name."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    INFO.load(threads=1)
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.fixture
def ampere(torch_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch_cpu, "_device", "cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    return torch_cpu


def test_products_are_in_tf32_for_its_own_cases_only(ampere: Any) -> None:
    for dtype in ("tfloat32", "float32", "tfloat32", "float16"):
        ampere.compute_in(dtype)
        assert torch.backends.cuda.matmul.allow_tf32 == (dtype == "tfloat32")
        assert not torch.backends.cudnn.allow_tf32


def test_a_device_without_tf32_says_so(ampere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a device would compute in float32 without a word, and be measured under the wrong name."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    with pytest.raises(Unsupported, match="NVIDIA_TF32_OVERRIDE=0"):
        ampere.compute_in("tfloat32")
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    with pytest.raises(Unsupported, match=r"compute capability 7\.5, and tfloat32 came with 8\.0"):
        ampere.compute_in("tfloat32")
    monkeypatch.setattr(ampere, "_device", "cpu")
    with pytest.raises(Unsupported, match="no products in tfloat32 on cpu"):
        ampere.compute_in("tfloat32")
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.fixture
def product(torch_cpu: Any) -> Any:
    a, b = (torch_cpu.tensor(TensorSpec(shape, "float32"), i) for i, shape in enumerate([(5, 7), (7, 3)]))
    launch, seeds = torch_cpu.backward(lambda: torch.mm(a, b), [a, b], 9)
    return a, b, launch, seeds


def test_backward_returns_a_gradient_an_input(product: Any) -> None:
    a, b, launch, (seed,) = product
    for found, expected in zip(launch(), (seed @ b.T, a.T @ seed), strict=True):
        torch.testing.assert_close(found, expected)


def test_the_gradient_of_the_output_is_neither_constant_nor_always_the_same(product: Any) -> None:
    a, b, _, (seed,) = product
    assert seed.shape == (5, 3)
    assert seed.dtype == torch.float32
    assert seed.unique().numel() == seed.numel()
    live = INFO.load(threads=1)
    (again,), (other,) = (live.backward(lambda: torch.mm(a, b), [a, b], number)[1] for number in (9, 10))
    assert torch.equal(seed, again)
    assert not torch.equal(seed, other)


def test_backward_can_be_repeated_and_nothing_adds_up(product: Any) -> None:
    a, b, launch, _ = product
    first = [gradient.clone() for gradient in launch()]
    for _ in range(10):
        assert all(torch.equal(*pair) for pair in zip(first, launch(), strict=True))
    assert a.grad is None
    assert b.grad is None


def test_each_backward_launch_gives_new_gradients(product: Any) -> None:
    *_, launch, _ = product
    first, second = launch(), launch()
    assert {g.data_ptr() for g in first}.isdisjoint(g.data_ptr() for g in second)


def test_backward_does_not_run_the_forward_pass_again(torch_cpu: Any) -> None:
    x, calls = torch_cpu.tensor(_spec("float32"), 0), []

    def forward() -> Any:
        calls.append(1)
        return torch.exp(x)

    launch, _ = torch_cpu.backward(forward, [x], 0)
    launch()
    launch()
    assert len(calls) == 1


def test_memory_does_not_grow_over_backward_launches(torch_cpu: Any) -> None:
    """50 gradients of 4 MiB each: if they were kept, 200 MiB."""
    x = torch_cpu.tensor(TensorSpec((1 << 20,), "float32"), 0)
    launch, _ = torch_cpu.backward(lambda: torch.exp(x), [x], 0)
    process = psutil.Process()
    launch()
    gc.collect()
    before = process.memory_info().rss
    for _ in range(50):
        launch()
    assert process.memory_info().rss - before < 60 << 20


def test_the_graph_goes_with_the_launch(torch_cpu: Any) -> None:
    x, outputs = torch_cpu.tensor(_spec("float32"), 0), []

    def forward() -> Any:
        y = torch.exp(x)
        outputs.append(weakref.ref(y))
        return y

    launch, _ = torch_cpu.backward(forward, [x], 0)
    launch()
    assert outputs[0]() is not None
    del launch
    gc.collect()
    assert outputs[0]() is None


def test_an_output_without_a_gradient_has_no_seed(torch_cpu: Any) -> None:
    x = torch_cpu.tensor(_spec("float32"), 0)
    launch, seeds = torch_cpu.backward(lambda: tuple(torch.topk(x, 2)), [x], 0)
    assert seeds[0].shape == (200, 2)
    assert seeds[1] is None
    assert launch()[0].shape == x.shape


def test_nothing_to_differentiate_is_not_supported(torch_cpu: Any) -> None:
    x = torch_cpu.tensor(_spec("float32"), 0)
    with pytest.raises(Unsupported, match="no output"):
        torch_cpu.backward(lambda: x.argmax(-1), [x], 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_seed_has_the_element_type_of_the_output(dtype: str, torch_cpu: Any) -> None:
    x = torch_cpu.tensor(_spec("float32"), 0)
    _, (seed,) = torch_cpu.backward(lambda: x.to(getattr(torch, dtype)), [x], 0)
    assert seed.dtype == getattr(torch, dtype)


@pytest.fixture
def step(torch_cpu: Any) -> Any:
    a, b = (torch_cpu.tensor(TensorSpec(shape, "float32"), i) for i, shape in enumerate([(5, 7), (7, 3)]))
    calls: list[int] = []

    def forward() -> Any:
        calls.append(1)
        return torch.mm(a, b)

    launch, seeds = torch_cpu.backward(forward, [a, b], 9, forward=True)
    calls.clear()
    return a, b, launch, seeds, calls


def test_a_step_returns_a_gradient_an_input(step: Any) -> None:
    a, b, launch, (seed,), _ = step
    for found, expected in zip(launch(), (seed @ b.T, a.T @ seed), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_step_computes_the_forward_pass_anew_each_time(step: Any) -> None:
    _, b, launch, (seed,), calls = step
    for made in (1, 2, 3):
        launch()
        assert len(calls) == made
    b.data.mul_(2)
    torch.testing.assert_close(launch()[0], seed @ b.T)


def test_a_step_adds_nothing_up_and_switches_the_graph_off_again(step: Any) -> None:
    a, b, launch, *_ = step
    first = [gradient.clone() for gradient in launch()]
    assert all(torch.equal(*pair) for pair in zip(first, launch(), strict=True))
    assert a.grad is None
    assert b.grad is None
    assert not torch.is_grad_enabled()


def test_a_step_with_an_output_without_a_gradient_goes_back_through_the_other(torch_cpu: Any) -> None:
    x = torch_cpu.tensor(_spec("float32"), 0)
    launch, seeds = torch_cpu.backward(lambda: tuple(torch.topk(x, 2)), [x], 0, forward=True)
    assert seeds[1] is None
    torch.testing.assert_close(launch()[0].sum(), seeds[0].sum())


def test_a_step_keeps_no_graph_between_two_launches(torch_cpu: Any) -> None:
    x, outputs = torch_cpu.tensor(_spec("float32"), 0), []

    def forward() -> Any:
        y = torch.exp(x)
        outputs.append(weakref.ref(y))
        return y

    launch, _ = torch_cpu.backward(forward, [x], 0, forward=True)
    launch()
    launch()
    gc.collect()
    assert len(outputs) == 3
    assert all(output() is None for output in outputs)


def test_other_seeds_at_the_same_address_give_other_gradients(product: Any, torch_cpu: Any) -> None:
    _, b, launch, (seed,) = product
    torch_cpu.copy_into(seed, torch.ones(5, 3))
    torch.testing.assert_close(launch()[0], torch.ones(5, 3) @ b.T)


@pytest.mark.parametrize("dtype", sorted(INFO.dtypes))
def test_other_values_go_to_the_same_address(dtype: str, torch_cpu: Any) -> None:
    target, source = (torch_cpu.tensor(_spec(dtype), seed) for seed in (1, 2))
    address = target.data_ptr()
    torch_cpu.copy_into(target, source)
    assert target.data_ptr() == address != source.data_ptr()
    np.testing.assert_array_equal(torch_cpu.to_numpy(target), torch_cpu.to_numpy(source))


def test_other_values_may_go_into_an_input_that_has_a_gradient(torch_cpu: Any) -> None:
    with torch.enable_grad():
        target = torch.zeros(3, requires_grad=True)
        torch_cpu.copy_into(target, torch.ones(3))
    assert target.tolist() == [1, 1, 1]
    assert target.is_leaf


def test_an_ordinary_tensor_has_been_computed(torch_cpu: Any) -> None:
    assert torch_cpu.deferred(torch.ones(3)) is None
    assert torch_cpu.deferred(torch.nn.Parameter(torch.ones(3))) is None
    assert torch_cpu.deferred(torch.ones(3).expand(4, 3)) is None


def test_a_subclass_of_a_tensor_may_be_computed_later(torch_cpu: Any) -> None:
    class Lazy(torch.Tensor):
        pass

    assert "Lazy" in torch_cpu.deferred(torch.ones(3).as_subclass(Lazy))


def test_what_is_no_tensor_may_be_computed_later(torch_cpu: Any) -> None:
    assert "function" in torch_cpu.deferred(lambda: torch.ones(3))


@settings(deadline=None, max_examples=100)
@given(shape=st.lists(st.integers(0, 9), max_size=3), most=st.integers(1, 200))
def test_a_thinned_tensor_has_as_many_elements_as_allowed_spread_evenly(shape: list[int], most: int) -> None:
    value = torch.arange(int(np.prod(shape))).reshape(shape)
    thinned = INFO.load(threads=1).sample(value, most).tolist()
    assert len(thinned) <= most
    assert 3 * len(thinned) > min(most, value.numel()) or not value.numel()
    stride = thinned[1] if len(thinned) > 1 else max(1, value.numel())
    assert thinned == list(range(0, value.numel(), stride))
    assert stride % 2 or len(thinned) < 2


def test_a_tensor_is_thinned_whatever_its_strides_and_its_graph(torch_cpu: Any) -> None:
    with torch.enable_grad():
        value = torch.arange(6.0, requires_grad=True).reshape(2, 3).T
        thinned = torch_cpu.sample(value, 3)
    assert thinned.tolist() == [0, 4]  # of 0, 3, 1, 4, 2, 5


def test_a_poisoned_output_is_not_a_number(torch_cpu: Any) -> None:
    value = torch.ones(3)
    torch_cpu.poison(value)
    assert value.isnan().all()


def test_a_real_lack_of_memory_is_recognised(torch_cpu: Any) -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50, dtype=torch.uint8)
    assert torch_cpu.classify(caught.value) == "oom"


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")]
)
def test_a_lack_of_memory_by_its_type_is_recognised(error: Exception, torch_cpu: Any) -> None:
    assert torch_cpu.classify(error) == "oom"


# Things that torch refuses on a CPU, each with a wording of its own.
LACKING = {
    "gelu of integers": lambda: torch.nn.functional.gelu(torch.ones(3, dtype=torch.int64)),
    "exp of float8": lambda: torch.exp(torch.ones(3).to(torch.float8_e4m3fn)),
    "softmax of integers": lambda: torch.softmax(torch.ones(3, dtype=torch.int32), 0),
    "topk of a sparse tensor": lambda: torch.topk(torch.ones(3).to_sparse(), 1),
    "inverse in float16": lambda: torch.linalg.inv(torch.eye(3).half()),
    "topk of complex numbers": lambda: torch.topk(torch.ones(3, dtype=torch.complex64), 1),
}


@pytest.mark.parametrize("what", LACKING)
def test_what_torch_lacks_is_recognised(what: str, torch_cpu: Any) -> None:
    with pytest.raises(RuntimeError) as caught:
        LACKING[what]()
    assert torch_cpu.classify(caught.value) == "skipped"


def test_what_is_not_implemented_is_recognised_whatever_it_says(torch_cpu: Any) -> None:
    assert torch_cpu.classify(NotImplementedError("later")) == "skipped"


ORDINARY = {
    "shapes that do not fit": lambda: torch.ones(2, 3) @ torch.ones(2, 3),
    "an index beyond the end": lambda: torch.ones(3)[torch.tensor([5])],
    "a value that is refused": lambda: torch.ones(3).softmax(4),
}


@pytest.mark.parametrize("what", ORDINARY)
def test_an_ordinary_error_is_not_taken_for_anything_else(what: str, torch_cpu: Any) -> None:
    with pytest.raises((RuntimeError, IndexError)) as caught:
        ORDINARY[what]()
    assert torch_cpu.classify(caught.value) is None


def test_the_cpu_is_always_there(torch_cpu: Any) -> None:
    assert torch_cpu.why_unavailable() is None
    assert not torch_cpu.asynchronous
    assert torch_cpu.timers() is None
    assert torch_cpu.device_clock() is None
    assert torch_cpu.sensors() is None
    assert torch_cpu.cache_bytes() is None
    assert torch_cpu.memory() is None
    assert torch_cpu.synchronize() is None
    assert 0 < torch_cpu.available_bytes() <= psutil.virtual_memory().total


def test_a_device_that_answers_nothing_but_errors_is_of_no_more_use(
    torch_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a fault of the device, every later call of the same process fails."""

    def fails() -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    assert torch_cpu.usable()
    monkeypatch.setattr(torch_cpu, "synchronize", fails)
    assert not torch_cpu.usable()


def test_a_failed_capture_ends_the_use_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device itself still answers."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    live = backend("torch-cuda").load(threads=1)
    assert live.usable()
    live.device_clock().spoiled = True
    assert not live.usable()


def test_a_device_has_one_clock_for_its_whole_life() -> None:
    """What a capture has spoiled stays spoiled, whoever asks for the clock again."""
    live = backend("torch-cuda").load(threads=1)
    assert live.device_clock() is live.device_clock()


@pytest.mark.parametrize("name", OTHERS)
def test_a_device_that_is_not_there_is_named_with_the_reason(name: str) -> None:
    if torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    live = backend(name).load(threads=1)
    reason = live.why_unavailable()
    assert reason
    assert torch.__version__ in reason
    assert name.removeprefix("torch-") in reason.lower()
    assert live.asynchronous


def test_a_build_without_cuda_says_so() -> None:
    if torch.version.cuda or torch.version.hip:
        pytest.skip("this build of torch has CUDA")
    assert backend("torch-cuda").load(threads=1).why_unavailable().endswith("is a build without CUDA")


def test_its_environment_says_what_may_explain_a_number(torch_cpu: Any) -> None:
    facts = torch_cpu.environment()
    assert facts["torch"] == str(torch.__version__)
    assert facts["device"] == "cpu"
    assert {"capability", "mkldnn", "deterministic"} <= set(facts)
    assert json.loads(json.dumps(facts)) == facts


# What a call costs that no operator describes.


def test_flops_and_bytes_of_a_product_are_counted(torch_cpu: Any) -> None:
    a, b = torch.rand(4, 8), torch.rand(8, 2)
    assert torch_cpu.count(lambda: a @ b, [a, b]).cost == Cost(2 * 4 * 8 * 2, 4 * (32 + 16), 4 * 8)


def test_what_the_counter_does_not_know_is_empty(torch_cpu: Any) -> None:
    x = torch.rand(4)
    assert torch_cpu.count(lambda: torch.exp(x), [x]).cost == Cost(None, 16, 16)


def test_a_tensor_that_goes_in_twice_is_read_once(torch_cpu: Any) -> None:
    x = torch.rand(4)
    assert torch_cpu.count(lambda: x + x, [x, x]).cost == Cost(None, 16, 16)


def test_outputs_are_counted_however_deep_they_are_nested(torch_cpu: Any) -> None:
    x = torch.rand(4)
    assert torch_cpu.count(lambda: {"a": [x + 1, (x + 2, None)], "b": 3}, [x]).cost == Cost(None, 16, 32)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T, lambda x: x[:1], lambda x: x.split(1)])
def test_a_view_costs_nothing_that_could_be_stated(view: Any, torch_cpu: Any) -> None:
    x = torch.rand(4, 4)
    assert torch_cpu.count(lambda: view(x), [x]) == CallCost(None, view=True)


def test_what_is_written_in_place_is_written(torch_cpu: Any) -> None:
    x, out = torch.rand(4), torch.empty(4)
    assert torch_cpu.count(lambda: x.add_(1), [x]).cost == Cost(None, 16, 16)
    assert torch_cpu.count(lambda: torch.neg(x, out=out), [x, out]).cost == Cost(None, 32, 16)


def test_a_call_that_returns_nothing_is_no_view(torch_cpu: Any) -> None:
    x = torch.rand(4)
    assert torch_cpu.count(lambda: None, [x]) == CallCost(None)
    assert torch_cpu.count(lambda: torch.empty(0) + torch.empty(0), [x]) == CallCost(None)


# Gradients of some, values of one's own, and where things are made.


def test_inputs_that_do_not_matter_are_left_out_if_that_is_wanted(torch_cpu: Any) -> None:
    x, y = torch.rand(4), torch.rand(3)
    backward, (seed,) = torch_cpu.backward(lambda: 2 * x, [x, y], 0, some=True)
    (gradient,) = backward()
    torch.testing.assert_close(gradient, 2 * seed)
    both, (seed,) = torch_cpu.backward(lambda: 2 * x, [x, y], 0, forward=True, some=True)
    torch.testing.assert_close(list(both()), [2 * seed])


def test_a_tensor_may_make_its_own_values(torch_cpu: Any) -> None:
    spec = TensorSpec((5,), "int64", 0, 10, make=lambda generator: np.sort(generator.integers(0, 10, 5)))
    found = torch_cpu.tensor(spec, 3)
    assert found.dtype == torch.int64
    np.testing.assert_array_equal(found.numpy(), np.sort(np.random.default_rng(3).integers(0, 10, 5)))
    with pytest.raises(ValueError, match=r"shape \(4,\), its operator says \(5,\)"):
        torch_cpu.tensor(TensorSpec((5,), "int64", make=lambda generator: np.zeros(4)), 0)


def test_a_complex_tensor_has_both_parts_in_its_domain(torch_cpu: Any) -> None:
    found = torch.view_as_real(torch_cpu.tensor(TensorSpec((100, 3), "complex64", 2, 3), 0))
    assert found.shape == (100, 3, 2)
    assert bool(((found >= 2) & (found <= 3)).all())
    assert len(found.unique()) > 500


def test_what_an_implementation_makes_is_made_on_the_device(torch_cpu: Any) -> None:
    before = torch.get_default_device()
    with torch_cpu.placing():
        assert torch.zeros(1).device.type == "cpu"
        assert torch.get_default_device().type == "cpu"
    assert torch.get_default_device() == before


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling cublasLtMatmul with transpose_mat1 1",
        "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or ROCm MI300+",
        "\"addmm_cuda\" not implemented for 'Float8_e4m3fn'",
    ],
)
def test_what_a_gpu_does_not_multiply_is_unsupported_and_no_failure(message: str, torch_cpu: Any) -> None:
    assert torch_cpu.classify(RuntimeError(message)) == "skipped"


# A GPU that the build has no code for: each is made up.

CUDA_13 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


@pytest.fixture
def on_gpu(torch_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str | None]:
    """Why torch-cuda cannot run on a GPU of this name and compute capability, with torch built for these."""

    def reason(
        name: str,
        capability: tuple[int, int],
        built_for: list[str] = CUDA_13,
        called: str = "torch-cuda",
    ) -> str | None:
        monkeypatch.setattr(torch_cpu, "_device", "cuda")
        monkeypatch.setattr(torch_cpu, "info", backend(called))
        monkeypatch.setattr(torch, "__version__", "2.13.0+cu130")
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: built_for)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)
        monkeypatch.setattr(torch_eager.platform, "machine", lambda: "x86_64")
        found: str | None = torch_cpu.why_unavailable()
        return found

    return reason


@pytest.mark.parametrize(
    ("name", "capability"),
    [("Tesla T4", (7, 5)), ("NVIDIA L40S", (8, 9)), ("NVIDIA H200", (9, 0)), ("NVIDIA GeForce RTX 5090", (12, 0))],
)
def test_a_gpu_that_the_build_has_code_for_can_be_used(on_gpu: Any, name: str, capability: tuple[int, int]) -> None:
    assert on_gpu(name, capability) is None


@pytest.mark.parametrize(
    ("name", "capability", "version"),
    [
        ("Tesla V100-SXM2-16GB", (7, 0), "2.10.0"),
        ("NVIDIA GeForce GTX 1080", (6, 1), "2.7.1"),
        ("Tesla P100-PCIE-16GB", (6, 0), "2.7.1"),
        ("NVIDIA GeForce GTX TITAN X", (5, 2), "2.7.1"),
    ],
)
def test_an_older_gpu_is_refused_by_name_with_the_guest_that_drives_it(
    on_gpu: Any, name: str, capability: tuple[int, int], version: str
) -> None:
    number = ".".join(map(str, capability))
    assert on_gpu(name, capability) == (
        f"torch 2.13.0+cu130 has no code for {name} (compute capability {number}), but for 7.5, 8.0, 8.6, 9.0, 10.0, "
        f"12.0; after `opmark env create torch=={version}`, torch-cuda@torch-{version} has"
    )


def test_the_guest_is_one_of_the_backend_that_was_asked_for(on_gpu: Any) -> None:
    reason = on_gpu("Tesla V100", (7, 0), called="triton-cuda@/opt/env/bin/python")
    assert reason.endswith("`opmark env create torch==2.10.0`, triton-cuda@torch-2.10.0 has")


def test_kepler_is_refused_because_no_torch_that_opmark_runs_on_has_code_for_it(on_gpu: Any) -> None:
    for name, capability in (("Tesla K80", (3, 7)), ("NVIDIA GeForce GT 710", (3, 5))):
        reason = on_gpu(name, capability)
        assert f"no code for {name} (compute capability 3." in reason
        assert reason.endswith("the last torch with code for Kepler, 2.0.1, is too old for opmark")


def test_a_gpu_that_is_newer_than_an_old_torch_gets_the_release_that_has_code(on_gpu: Any) -> None:
    reason = on_gpu("NVIDIA B200", (10, 0), ["sm_50", "sm_80", "sm_86", "sm_90"])
    assert reason.endswith("after `opmark env create torch==2.13.0`, torch-cuda@torch-2.13.0 has")
    assert on_gpu("NVIDIA of the future", (17, 0)).endswith("10.0, 12.0"), "no release is known that has any"
    assert on_gpu("NVIDIA of the future", (17, 0), [*CUDA_13, "compute_120"]) is None


def test_releases_are_those_for_common_machines_only(on_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu("Tesla V100", (7, 0))
    monkeypatch.setattr(torch_eager.platform, "machine", lambda: "aarch64")
    assert "env create" not in torch_eager._why_no_code("torch-cuda")


def test_where_nobody_tells_what_a_build_is_for_it_may_run(on_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch for AMD's GPUs names other things, and a build of one's own may name nothing."""
    assert on_gpu("Tesla V100", (7, 0), []) is None
    assert on_gpu("Tesla V100", (7, 0)) is not None
    monkeypatch.setattr(torch.version, "cuda", None)
    assert torch_eager.why_too_old_for_triton() is None


def test_triton_compiles_for_volta_and_newer(on_gpu: Any) -> None:
    on_gpu("NVIDIA GeForce GTX 1080", (6, 1))
    expected = "Triton needs compute capability 7.0, and NVIDIA GeForce GTX 1080 has 6.1"
    assert torch_eager.why_too_old_for_triton() == expected
    on_gpu("Tesla V100", (7, 0))
    assert torch_eager.why_too_old_for_triton() is None
