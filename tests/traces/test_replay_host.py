"""Operators that only accelerators have: each computes on the host what PyTorch's own modules do there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opmark.traces.replay_host import HOST_FUNCTIONS

aten = torch.ops.aten


def on_host(name: str, *args: Any, **named: Any) -> Any:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(aten, packet), overload or "default")
    found = HOST_FUNCTIONS[name].bind(operator._schema)(*args, **named)
    several = found if isinstance(found, tuple | list) else (found,)
    assert len(several) == HOST_FUNCTIONS[name].results
    return found


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def gradients(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Return the result of a function, a gradient of it, and the gradients of its inputs."""
    leaves = [one.detach().requires_grad_() for one in inputs]
    out = function(*leaves)
    grad = torch.randn_like(out)
    return out.detach(), grad, torch.autograd.grad(out, leaves, grad)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


HEADS = pytest.mark.parametrize("heads", [4, 2], ids=["as many heads", "shared heads"])


@HEADS
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_devices_forward_and_backward(heads: int, causal: bool) -> None:
    query, key, value = torch.randn(2, 4, 6, 8), torch.randn(2, heads, 6, 8), torch.randn(2, heads, 6, 8)

    def attend(*tensors: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal, scale=0.3, enable_gqa=True)

    out, grad, wanted = gradients(attend, query, key, value)
    tensors, empty, seed = (query, key, value), torch.empty(0), torch.zeros(2, dtype=torch.int64)
    _, sums = found = on_host("_scaled_dot_product_flash_attention", *tensors, 0.1, causal, False, scale=0.3)
    close(found[0], out)
    padded = nn.functional.pad(sums, (0, 26))  # as the other kernels of a device have it
    for name in ("efficient", "cudnn"):
        options = (None, True, 0.1, causal) + ((False,) if name == "cudnn" else ())
        close(on_host(f"_scaled_dot_product_{name}_attention", *tensors, *options, scale=0.3)[0], out)
    calls = {
        "flash": (grad, *tensors, out, sums, empty, empty, 6, 6, 0.1, causal, seed, seed),
        "efficient": (grad, *tensors, empty, out, padded, seed, seed, 0.1, [True, True, True, False], causal),
        "cudnn": (grad, *tensors, out, sums, seed, seed, empty, empty, empty, 6, 6, 0.1, causal),
    }
    for name, args in calls.items():
        close(on_host(f"_scaled_dot_product_{name}_attention_backward", *args, scale=0.3), wanted)


def test_attention_with_a_mask() -> None:
    tensors = [torch.randn(2, 3, 5, 8) for _ in range(3)]
    bias = torch.randn(2, 3, 5, 5)
    wanted = nn.functional.scaled_dot_product_attention(*tensors, attn_mask=bias)
    close(on_host("_scaled_dot_product_efficient_attention", *tensors, bias, True)[0], wanted)


def test_flash_attention_with_positions_before_heads_and_with_packed_sequences() -> None:
    batch = [torch.randn(3, 4, 7, 8) for _ in range(3)]  # heads before positions
    out, grad, wanted = gradients(nn.functional.scaled_dot_product_attention, *batch)
    turned = [one.transpose(1, 2) for one in batch]
    found, sums = on_host("_flash_attention_forward", *turned, None, None, 7, 7, 0.0, False, False)
    close(found.transpose(1, 2), out)
    close(on_host("_efficient_attention_forward", *turned, None, None, None, None, None, 0.0, 0)[0], found)
    empty = torch.empty(0)
    backward = on_host(
        "_flash_attention_backward", grad.transpose(1, 2), *turned, found, sums, empty, empty, 7, 7, 0.0, False, empty,
        empty,
    )  # fmt: skip
    close([one.transpose(1, 2) for one in backward], list(wanted))

    packed = [one.flatten(0, 1) for one in turned]
    offsets = torch.ones(4, dtype=torch.int32)  # a replay knows how many sequences there are, not where they begin
    out_packed, sums = on_host("_flash_attention_forward", *packed, offsets, offsets, 7, 7, 0.0, False, False)
    close(out_packed, found.flatten(0, 1))
    gradient = grad.transpose(1, 2).flatten(0, 1)
    backward = on_host(
        "_flash_attention_backward", gradient, *packed, out_packed, sums, offsets, offsets, 7, 7, 0.0, False, empty,
        empty,
    )  # fmt: skip
    close(list(backward), [one.transpose(1, 2).flatten(0, 1) for one in wanted])


def test_convolutions_of_cudnn_and_miopen() -> None:
    data, weight, bias, other = (
        torch.randn(2, 4, 9, 9),
        torch.randn(6, 2, 3, 3),
        torch.randn(6),
        torch.randn(2, 6, 5, 5),
    )
    plain = nn.functional.conv2d(data, weight, None, 2, 1, 1, 2)
    places = ([1, 1], [2, 2], [1, 1], 2)  # padding before stride
    turned = ([2, 2], [1, 1], [1, 1], 2)
    close(on_host("cudnn_convolution", data, weight, *places, False, False, True), plain)
    with_bias = nn.functional.conv2d(data, weight, bias, 2, 1, 1, 2)
    close(on_host("miopen_convolution", data, weight, bias, *places, False, False), with_bias)
    close(on_host("cudnn_convolution_relu", data, weight, bias, *turned), with_bias.relu())
    added = on_host("cudnn_convolution_add_relu", data, weight, other, 0.5, bias, *turned)
    close(added, (with_bias + 0.5 * other).relu())
    up = torch.randn(4, 3, 3, 3)
    transposed = on_host("cudnn_convolution_transpose", data, up, [1, 1], [1, 1], [2, 2], [1, 1], 1, False, False, True)
    close(transposed, nn.functional.conv_transpose2d(data, up, None, 2, 1, 1))
    own = torch.randn(4, 1, 3, 3)
    depthwise = on_host("_conv_depthwise2d", data, own, [3, 3], None, [1, 1], [1, 1], [1, 1])
    close(depthwise, nn.functional.conv2d(data, own, None, 1, 1, 1, 4))


def test_products_with_a_wider_result() -> None:
    a, b, c = torch.randn(3, 4).bfloat16(), torch.randn(4, 5).bfloat16(), torch.randn(3, 5).bfloat16()
    found = on_host("mm.dtype", a, b, 6)
    assert found.dtype == torch.float32
    close(found, (a @ b).float())
    close(on_host("addmm.dtype", c, a, b, 6, beta=2), torch.addmm(c, a, b, beta=2).float())
    close(on_host("bmm.dtype", a[None], b[None], 6), (a @ b).float()[None])


def test_batch_norm_over_several_processes() -> None:
    data, weight, bias = torch.randn(4, 3, 5, 5), torch.rand(3), torch.randn(3)
    running = torch.zeros(3), torch.ones(3)
    expected = torch.zeros(3), torch.ones(3)
    out, grad, wanted = gradients(
        lambda *given: nn.functional.batch_norm(given[0], *expected, *given[1:], training=True), data, weight, bias
    )
    mean, invstd = on_host("batch_norm_stats", data, 1e-5)
    count = torch.full((1, 1), 100.0)
    mean, invstd = on_host(
        "batch_norm_gather_stats_with_counts", data, mean[None], invstd[None], *running, 0.1, 1e-5, count.view(-1)
    )
    close(running[0], expected[0])
    close(on_host("batch_norm_elemt", data, weight, bias, mean, invstd, 1e-5), out)
    total, products, of_weight, of_bias = on_host(
        "batch_norm_backward_reduce", grad, data, mean, invstd, weight, True, True, True
    )
    close((of_weight, of_bias), wanted[1:])
    found = on_host("batch_norm_backward_elemt", grad, data, mean, invstd, weight, total, products, count)
    close(found, wanted[0])


def cell_inputs(module: nn.RNNCellBase) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return data, a state, and what a device's cell takes: the products with the weights, and the biases."""
    data, state = torch.randn(4, 6), torch.randn(4, 5)
    products = nn.functional.linear(data, module.weight_ih), nn.functional.linear(state, module.weight_hh)
    return data, state, tuple(one.detach() for one in products), (module.bias_ih.detach(), module.bias_hh.detach())  # type: ignore[return-value]


def test_the_cell_of_an_lstm() -> None:
    module = nn.LSTMCell(6, 5)
    data, state, (left, right), biases = cell_inputs(module)
    cell = torch.randn(4, 5)
    hidden, after, workspace = on_host("_thnn_fused_lstm_cell", left, right, cell, *biases)
    close((hidden, after), module(data, (state, cell)))
    _, grad, wanted = gradients(
        lambda gates, cells: on_host("_thnn_fused_lstm_cell", gates, right, cells, *biases)[0], left, cell
    )
    close(on_host("_thnn_fused_lstm_cell_backward_impl", grad, None, cell, after, workspace, True)[:2], wanted)


def test_the_cell_of_a_gru() -> None:
    module = nn.GRUCell(6, 5)
    data, state, (left, right), biases = cell_inputs(module)
    hidden, workspace = on_host("_thnn_fused_gru_cell", left, right, state, *biases)
    close(hidden, module(data, state))
    _, grad, wanted = gradients(
        lambda gates, before: on_host("_thnn_fused_gru_cell", left, gates, before, *biases)[0], right, state
    )
    close(on_host("_thnn_fused_gru_cell_backward", grad, workspace, True)[1:3], wanted)


@pytest.mark.parametrize(("module", "mode"), [(nn.LSTM, 2), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_networks_of_cudnn(module: Any, mode: int) -> None:
    network = module(6, 5, num_layers=2, bidirectional=True, batch_first=True)
    data, hidden, cell = torch.randn(3, 4, 6), torch.randn(4, 3, 5), torch.randn(4, 3, 5)
    first = (hidden, cell) if mode == 2 else hidden
    weights = [one.detach() for one in network.parameters()]
    found = on_host(
        "_cudnn_rnn", data, weights, 4, None, hidden, cell if mode == 2 else None, mode, 5, 0, 2, True, 0.0, True, True,
        [], None,
    )  # fmt: skip
    out, last = network(data, first)
    close(found[0], out)
    close(found[1], last[0] if mode == 2 else last)


def test_sampling_dropout_and_pinned_memory() -> None:
    image, grid = torch.randn(2, 3, 6, 6), torch.rand(2, 4, 4, 2) * 2 - 1
    out, grad, wanted = gradients(lambda x, g: nn.functional.grid_sample(x, g, align_corners=True), image, grid)
    close(on_host("cudnn_grid_sampler", image, grid), out)
    close(on_host("cudnn_grid_sampler_backward", image, grid, grad), wanted)
    dropped, mask = on_host("_fused_dropout", torch.ones(1000), 0.75)
    assert mask.dtype == torch.uint8
    close(dropped, mask / 0.75)
    close(on_host("_masked_scale", torch.ones(1000), mask, 1 / 0.75), dropped)
    assert on_host("_pin_memory", image).data_ptr() == image.data_ptr()
