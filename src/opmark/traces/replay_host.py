"""What operators that only accelerators have compute, on the host: attention of devices, cuDNN, fused cells of RNNs.

Each function takes the recorded arguments by their names in the operator's schema, and returns the results that a
program uses; states of random numbers and workspaces are left out. Dropout in attention and in RNNs is 0 here. Only
workers import this.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace as Arguments
from typing import Any, NamedTuple

import torch
from torch import Tensor

aten = torch.ops.aten
Tensors = tuple[Any, ...]


class HostFunction(NamedTuple):
    call: Callable[[Arguments], Any]
    results: int = 1
    """How many of the recorded results it returns, from the first on."""

    def bind(self, schema: Any) -> Callable[..., Any]:
        """Return the function as it is called with the arguments of a schema, by position and by name."""
        names = [argument.name for argument in schema.arguments]
        usual = {one.name: one.default_value for one in schema.arguments if one.has_default_value()}
        call = self.call
        return lambda *args, **named: call(Arguments(**{**usual, **dict(zip(names, args, strict=False)), **named}))


# Attention. Heads stand before positions: (batch, heads, positions, size of a head).


def _as_many(heads: int, part: Tensor) -> Tensor:
    """Return keys or values with as many heads as the queries have."""
    times = heads // max(1, part.shape[1])
    return part.repeat_interleave(times, 1) if times > 1 else part


def _attend(tensors: Tensors, causal: bool, scale: float | None, mask: Any = None) -> Tensors:
    """Return the result and the logarithms of its sums; `tensors` are query, key and value."""
    query, key, value = (_as_many(tensors[0].shape[1], one) for one in tensors)
    found: Tensors = aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, attn_mask=mask, scale=scale
    )
    return found


def _attend_backward(tensors: Tensors, sums: Tensor, causal: bool, scale: float | None, mask: Any = None) -> Tensors:
    """Return the gradients; `tensors` are the gradient of the result, query, key, value, and the result."""
    grad, query, key, value, out = tensors
    wide = [_as_many(query.shape[1], one) for one in (key, value)]
    shape = query.shape[:3]
    sums = sums[..., : shape[2]].contiguous() if sums.shape[:2] == shape[:2] else torch.zeros(shape)
    grads = aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, query, *wide, out, sums, 0.0, causal, attn_mask=mask, scale=scale
    )
    shared = [one.unflatten(1, (key.shape[1], -1)).sum(2) if one.shape[1] != key.shape[1] else one for one in grads[1:]]
    return grads[0], *shared


def _attention(a: Arguments) -> Tensors:
    return _attend((a.query, a.key, a.value), a.is_causal, a.scale, getattr(a, "attn_bias", None))


def _attention_backward(a: Arguments) -> Tensors:
    grad = a.grad_out if hasattr(a, "grad_out") else a.grad_out_
    bias = getattr(a, "attn_bias", None)
    mask = bias if bias is not None and bias.numel() else None
    return _attend_backward((grad, a.query, a.key, a.value, a.out), a.logsumexp, a.is_causal, a.scale, mask)


def _turned(tensors: Tensors) -> Tensors:
    return tuple(one.transpose(1, 2) for one in tensors)


def _sequences(packed: Tensor, count: int) -> Tensor:
    """Return sequences that lie one after the other as a batch. Where each one begins is not recorded, so they are
    taken for equally long."""
    each = packed.shape[0] // max(1, count)
    return packed[: count * each].unflatten(0, (count, each)).transpose(1, 2)


def _packed(batch: Tensor, like: Tensor) -> Tensor:
    found = torch.zeros_like(like)
    flat = batch.transpose(1, 2).flatten(0, 1)
    found[: flat.shape[0]] = flat
    return found


def _flash(a: Arguments) -> Tensors:
    """Compute attention of tensors with positions before heads, also of sequences that lie one after the other."""
    if getattr(a, "block_table", None) is not None:
        raise NotImplementedError("its keys lie in pages, which attention of the host does not read")
    tensors = (a.query, a.key, a.value)
    if a.cum_seq_q is None:
        out, sums = _attend(_turned(tensors), a.is_causal, a.scale)
        return out.transpose(1, 2), sums
    count = a.cum_seq_q.numel() - 1
    out, sums = _attend(tuple(_sequences(one, count) for one in tensors), a.is_causal, a.scale)
    return _packed(out, a.query), sums


def _flash_backward(a: Arguments) -> Tensors:
    tensors = (a.grad_out, a.query, a.key, a.value, a.out)
    if a.query.dim() == 4:
        grads = _attend_backward(_turned(tensors), a.logsumexp, a.is_causal, a.scale)
        return _turned(grads)
    batch = tuple(_sequences(one, a.cum_seq_q.numel() - 1) for one in tensors)
    grads = _attend_backward(batch, a.logsumexp, a.is_causal, a.scale)
    return tuple(_packed(one, like) for one, like in zip(grads, tensors[1:4], strict=True))


def _efficient(a: Arguments) -> Tensors:
    if a.cu_seqlens_q is not None:
        raise NotImplementedError("sequences of several lengths in one tensor")
    out, sums = _attend(_turned((a.query, a.key, a.value)), a.custom_mask_type != 0, a.scale, a.bias)
    return out.transpose(1, 2), sums


# Products and convolutions.


def _wider(a: Arguments) -> Tensor:
    """Compute a product whose result has another element type than its factors."""
    if hasattr(a, "mat1"):
        product = aten.addmm.default(a.self, a.mat1, a.mat2, beta=a.beta, alpha=a.alpha)
    elif hasattr(a, "batch1"):
        product = aten.baddbmm.default(a.self, a.batch1, a.batch2, beta=a.beta, alpha=a.alpha)
    else:
        product = torch.matmul(a.self, a.mat2)
    found: Tensor = aten._to_copy.default(product, dtype=a.out_dtype)
    return found


def _convolution(a: Arguments) -> Tensor:
    turned = hasattr(a, "output_padding")
    bias, groups = getattr(a, "bias", None), a.groups if hasattr(a, "groups") else a.self.shape[1]
    padding = a.output_padding if turned else [0] * len(a.stride)
    found: Tensor = aten.convolution.default(
        a.self, a.weight, bias, a.stride, a.padding, a.dilation, turned, padding, groups
    )
    return found


def _convolution_add_relu(a: Arguments) -> Tensor:
    return _convolution(a).add_(a.z, alpha=1 if a.alpha is None else a.alpha).relu_()


# Dropout and normalization.


def _dropout(a: Arguments) -> Tensors:
    out, mask = aten.native_dropout.default(a.self, 1 - a.p, True)
    return out, mask.to(torch.uint8)


def _batch_norm(a: Arguments) -> Any:
    return aten.native_batch_norm.default(
        a.input, a.weight, a.bias, a.running_mean, a.running_var, a.training, a.exponential_average_factor, a.epsilon
    )


def _batch_norm_backward(a: Arguments) -> Any:
    return aten.native_batch_norm_backward.default(
        a.grad_output, a.input, a.weight, a.running_mean, a.running_var, a.save_mean, a.save_var, True, a.epsilon,
        [True, True, True],
    )  # fmt: skip


def _other_axes(data: Tensor) -> list[int]:
    return [axis for axis in range(data.dim()) if axis != 1]


def _per_channel(value: Tensor, like: Tensor) -> Tensor:
    return value.view([1, -1] + [1] * (like.dim() - 2))


def _norm_stats(a: Arguments) -> Tensors:
    variance, mean = torch.var_mean(a.input.float(), _other_axes(a.input), correction=0)
    return mean, (variance + a.eps).rsqrt()


def _norm_elements(a: Arguments) -> Tensor:
    factor = a.invstd if a.weight is None else a.invstd * a.weight
    found = (a.input - _per_channel(a.mean, a.input)) * _per_channel(factor, a.input)
    return (found if a.bias is None else found + _per_channel(a.bias, a.input)).to(a.input.dtype)


def _norm_gather(a: Arguments) -> Tensors:
    share = a.counts.view(-1, 1) / a.counts.sum() if hasattr(a, "counts") else 1 / a.mean.shape[0]
    mean = (a.mean * share).sum(0)
    variance = ((a.invstd.square().reciprocal() - a.eps + a.mean.square()) * share).sum(0) - mean.square()
    for running, fresh in ((a.running_mean, mean), (a.running_var, variance)):
        if running is not None:
            running.lerp_(fresh.to(running.dtype), a.momentum)
    return mean, (variance.clamp_(min=0) + a.eps).rsqrt()


def _norm_reduce(a: Arguments) -> Tensors:
    axes = _other_axes(a.input)
    total = a.grad_out.float().sum(axes)
    products = (a.grad_out * (a.input - _per_channel(a.mean, a.input))).float().sum(axes)
    return total, products, products * a.invstd, total.clone()


def _norm_backward_elements(a: Arguments) -> Tensor:
    total = a.count.sum()
    centred = (a.input - _per_channel(a.mean, a.input)) * _per_channel(
        a.invstd.square() * a.sum_dy_xmu / total, a.input
    )
    factor = a.invstd if a.weight is None else a.invstd * a.weight
    inner = a.grad_out - _per_channel(a.sum_dy / total, a.input) - centred
    return (inner * _per_channel(factor, a.input)).to(a.input.dtype)


# Recurrent networks.


def _gates(a: Arguments, parts: int) -> tuple[Tensors, Tensors]:
    given, hidden = a.input_gates, a.hidden_gates
    if a.input_bias is not None:
        given, hidden = given + a.input_bias, hidden + a.hidden_bias
    return given.chunk(parts, 1), hidden.chunk(parts, 1)


def _lstm_cell(a: Arguments) -> Tensors:
    given, hidden = _gates(a, 4)
    enter, forget, leave = (torch.sigmoid(given[i] + hidden[i]) for i in (0, 1, 3))
    fresh = torch.tanh(given[2] + hidden[2])
    cell = forget * a.cx + enter * fresh
    return leave * torch.tanh(cell), cell, torch.cat([enter, forget, fresh, leave], 1)


def _lstm_cell_backward(a: Arguments) -> Tensors:
    enter, forget, fresh, leave = a.workspace.chunk(4, 1)
    bent = torch.tanh(a.cy)
    outer = torch.zeros_like(bent) if a.grad_hy is None else a.grad_hy
    inner = outer * leave * (1 - bent * bent)
    inner = inner if a.grad_cy is None else inner + a.grad_cy
    gates = torch.cat(
        [
            inner * fresh * enter * (1 - enter), inner * a.cx * forget * (1 - forget), inner * enter * (1 - fresh**2),
            outer * bent * leave * (1 - leave),
        ],
        1,
    )  # fmt: skip
    return gates, inner * forget, gates.sum(0) if a.has_bias else None


def _gru_cell(a: Arguments) -> Tensors:
    given, hidden = _gates(a, 3)
    reset, update = (torch.sigmoid(given[i] + hidden[i]) for i in (0, 1))
    fresh = torch.tanh(given[2] + reset * hidden[2])
    return fresh + update * (a.hx - fresh), torch.cat([reset, update, fresh, a.hx, hidden[2]], 1)


def _gru_cell_backward(a: Arguments) -> Tensors:
    reset, update, fresh, before, hidden = a.workspace.chunk(5, 1)
    to_fresh = a.grad_hy * (1 - update) * (1 - fresh * fresh)
    to_update = a.grad_hy * (before - fresh) * update * (1 - update)
    to_reset = to_fresh * hidden * reset * (1 - reset)
    given = torch.cat([to_reset, to_update, to_fresh], 1)
    recurrent = torch.cat([to_reset, to_update, to_fresh * reset], 1)
    biases = (given.sum(0), recurrent.sum(0)) if a.has_bias else (None, None)
    return given, recurrent, a.grad_hy * update, *biases


_RNNS = {0: aten.rnn_relu.input, 1: aten.rnn_tanh.input, 2: aten.lstm.input, 3: aten.gru.input}
"""By cuDNN's numbers of modes."""
_LSTM = 2
_WITHOUT_BIAS = 2
"""Weights of a layer without biases and projection."""


def _rnn(a: Arguments) -> Tensors:
    if a.batch_sizes:
        raise NotImplementedError("sequences of several lengths, packed for cuDNN")
    hidden = [a.hx, a.cx] if a.mode == _LSTM else a.hx
    biases = a.weight_stride0 > _WITHOUT_BIAS + (a.proj_size > 0)
    found = _RNNS[a.mode](
        a.input, hidden, list(a.weight), biases, a.num_layers, 0.0, a.train, a.bidirectional, a.batch_first
    )
    return found if a.mode == _LSTM else (*found, None)


_CONVOLUTION = HostFunction(_convolution)
_CONVOLUTION_RELU = HostFunction(lambda a: _convolution(a).relu_())
_CONVOLUTION_ADD_RELU = HostFunction(_convolution_add_relu)
_WIDER = HostFunction(_wider)
_PIN = HostFunction(lambda a: aten.alias.default(a.self))
HOST_FUNCTIONS = {
    "pin_memory": _PIN,
    "_pin_memory": _PIN,
    "mm.dtype": _WIDER,
    "bmm.dtype": _WIDER,
    "addmm.dtype": _WIDER,
    "baddbmm.dtype": _WIDER,
    "_scaled_dot_product_flash_attention": HostFunction(_attention, 2),
    "_scaled_dot_product_flash_attention_backward": HostFunction(_attention_backward, 3),
    "_scaled_dot_product_efficient_attention": HostFunction(_attention, 2),
    "_scaled_dot_product_efficient_attention_backward": HostFunction(_attention_backward, 3),
    "_scaled_dot_product_cudnn_attention": HostFunction(_attention, 2),
    "_scaled_dot_product_cudnn_attention_backward": HostFunction(_attention_backward, 3),
    "_flash_attention_forward": HostFunction(_flash, 2),
    "_flash_attention_backward": HostFunction(_flash_backward, 3),
    "_efficient_attention_forward": HostFunction(_efficient, 2),
    "cudnn_convolution": _CONVOLUTION,
    "cudnn_convolution_transpose": _CONVOLUTION,
    "cudnn_convolution_relu": _CONVOLUTION_RELU,
    "cudnn_convolution_add_relu": _CONVOLUTION_ADD_RELU,
    "miopen_convolution": _CONVOLUTION,
    "miopen_convolution_transpose": _CONVOLUTION,
    "miopen_depthwise_convolution": _CONVOLUTION,
    "miopen_convolution_relu": _CONVOLUTION_RELU,
    "miopen_convolution_add_relu": _CONVOLUTION_ADD_RELU,
    "_conv_depthwise2d": _CONVOLUTION,
    "conv_depthwise3d": _CONVOLUTION,
    "cudnn_grid_sampler": HostFunction(lambda a: aten.grid_sampler_2d.default(a.self, a.grid, 0, 0, True)),
    "cudnn_grid_sampler_backward": HostFunction(
        lambda a: aten.grid_sampler_2d_backward.default(a.grad_output, a.self, a.grid, 0, 0, True, [True, True]), 2
    ),
    "_fused_dropout": HostFunction(_dropout, 2),
    "_masked_scale": HostFunction(lambda a: a.self * a.mask * a.scale),
    "cudnn_batch_norm": HostFunction(_batch_norm, 3),
    "cudnn_batch_norm_backward": HostFunction(_batch_norm_backward, 3),
    "miopen_batch_norm": HostFunction(_batch_norm, 3),
    "miopen_batch_norm_backward": HostFunction(_batch_norm_backward, 3),
    "batch_norm_stats": HostFunction(_norm_stats, 2),
    "batch_norm_elemt": HostFunction(_norm_elements),
    "batch_norm_gather_stats": HostFunction(_norm_gather, 2),
    "batch_norm_gather_stats_with_counts": HostFunction(_norm_gather, 2),
    "batch_norm_backward_reduce": HostFunction(_norm_reduce, 4),
    "batch_norm_backward_elemt": HostFunction(_norm_backward_elements),
    "_thnn_fused_lstm_cell": HostFunction(_lstm_cell, 3),
    "_thnn_fused_lstm_cell_backward_impl": HostFunction(_lstm_cell_backward, 3),
    "_thnn_fused_gru_cell": HostFunction(_gru_cell, 2),
    "_thnn_fused_gru_cell_backward": HostFunction(_gru_cell_backward, 5),
    "_cudnn_rnn": HostFunction(_rnn, 3),
}
"""By name, with the overload behind a point where it has one."""
