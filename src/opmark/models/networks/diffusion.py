"""The networks of Stable Diffusion 1 besides the text encoder: UNet, encoder and decoder of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class _Residual(nn.Module):  # type: ignore[misc]
    """Two convolutions, with the embedding of the time step added between them where `time` is its width."""

    def __init__(self, inputs: int, outputs: int, groups: int, eps: float, time: int = 0) -> None:
        super().__init__()
        self.norm_in = nn.GroupNorm(groups, inputs, eps=eps)
        self.conv_in = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs) if time else None
        self.norm_out = nn.GroupNorm(groups, outputs, eps=eps)
        self.conv_out = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        y = self.conv_in(F.silu(self.norm_in(x)))
        if self.time is not None:
            y = y + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv_out(F.silu(self.norm_out(y)))


class _DiffusionAttention(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, context: int, heads: int, bias: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(context, width, bias=bias)
        self.value = nn.Linear(context, width, bias=bias)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        def split(tensor: Tensor) -> Tensor:
            return tensor.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        attended = F.scaled_dot_product_attention(
            split(self.query(x)), split(self.key(context)), split(self.value(context))
        )
        return self.out(attended.transpose(1, 2).flatten(2))


class _PictureAttention(nn.Module):  # type: ignore[misc]
    """Attention of all pixels to all pixels, with one head."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=1e-6)
        self.attention = _DiffusionAttention(channels, channels, 1, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        return x + self.attention(pixels, pixels).transpose(1, 2).unflatten(2, x.shape[2:])


class _TextAttention(nn.Module):  # type: ignore[misc]
    """A transformer block over the pixels, which also attend to the text."""

    def __init__(self, channels: int, context: int, heads: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=1e-6)
        self.conv_in = nn.Conv2d(channels, channels, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.to_pixels = _DiffusionAttention(channels, channels, heads)
        self.to_text = _DiffusionAttention(channels, context, heads)
        self.gate = nn.Linear(channels, 8 * channels)
        self.out = nn.Linear(4 * channels, channels)
        self.conv_out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        pixels = self.conv_in(self.norm(x)).flatten(2).transpose(1, 2)
        normed = self.norms[0](pixels)
        pixels = pixels + self.to_pixels(normed, normed)
        pixels = pixels + self.to_text(self.norms[1](pixels), text)
        value, gate = self.gate(self.norms[2](pixels)).chunk(2, -1)
        pixels = pixels + self.out(value * F.gelu(gate))
        return x + self.conv_out(pixels.transpose(1, 2).unflatten(2, x.shape[2:]))


class _Downsample(nn.Module):  # type: ignore[misc]
    """Halve the picture; the encoder of pictures pads right and below only."""

    def __init__(self, channels: int, symmetric: bool) -> None:
        super().__init__()
        self.padding = (1, 1, 1, 1) if symmetric else (0, 1, 0, 1)
        self.conv = nn.Conv2d(channels, channels, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, self.padding))


class _Upsample(nn.Module):  # type: ignore[misc]
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


def _embed_steps(timestep: Tensor, width: int, dtype: Any) -> Tensor:
    """Return cosines and sines of the time steps, computed in float32 at least."""
    precise = torch.promote_types(dtype, torch.float32)
    exponents = torch.arange(width // 2, device=timestep.device).to(precise) * (-log(10_000) * 2 / width)
    angles = timestep[:, None].to(precise) * exponents.exp()
    return torch.cat([angles.cos(), angles.sin()], -1).to(dtype)


class _DiffusionStep(nn.Module):  # type: ignore[misc]
    """A residual block of the UNet with attention to the text where there is any."""

    def __init__(self, inputs: int, outputs: int, time: int, groups: int, text: tuple[int, int] | None) -> None:
        super().__init__()
        self.residual = _Residual(inputs, outputs, groups, 1e-5, time)
        self.attention = _TextAttention(outputs, *text, groups) if text else None

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        x = self.residual(x, time)
        return x if self.attention is None else self.attention(x, text)


class _UNet(nn.Module):  # type: ignore[misc]
    def __init__(self, widths: Sequence[int], layers: int, heads: int, context: int, groups: int, latent: int) -> None:
        super().__init__()
        first, last, time, text = widths[0], widths[-1], 4 * widths[0], (context, heads)
        self.embedding = nn.Sequential(nn.Linear(first, time), nn.SiLU(), nn.Linear(time, time))
        self.conv_in = nn.Conv2d(latent, first, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        channels, skipped = first, [first]
        for level, width in enumerate(widths):
            lowest = level == len(widths) - 1
            for _ in range(layers):
                self.down.append(_DiffusionStep(channels, width, time, groups, None if lowest else text))
                channels = width
                skipped.append(channels)
            if not lowest:
                self.down.append(_Downsample(channels, symmetric=True))
                skipped.append(channels)
        self.middle = nn.ModuleList(
            [_DiffusionStep(last, last, time, groups, text), _DiffusionStep(last, last, time, groups, None)]
        )
        for level, width in reversed(list(enumerate(widths))):
            for _ in range(layers + 1):
                attends = None if level == len(widths) - 1 else text
                self.up.append(_DiffusionStep(channels + skipped.pop(), width, time, groups, attends))
                channels = width
            if level:
                self.up.append(_Upsample(channels))
        self.norm = nn.GroupNorm(groups, first, eps=1e-5)
        self.conv_out = nn.Conv2d(first, latent, 3, padding=1)

    def forward(self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        time = self.embedding(_embed_steps(timestep, self.embedding[0].in_features, sample.dtype))
        x = self.conv_in(sample)
        skipped = [x]
        for layer in self.down:
            x = layer(x, time, encoder_hidden_states) if isinstance(layer, _DiffusionStep) else layer(x)
            skipped.append(x)
        for layer in self.middle:
            x = layer(x, time, encoder_hidden_states)
        for layer in self.up:
            if isinstance(layer, _DiffusionStep):
                x = layer(torch.cat([x, skipped.pop()], 1), time, encoder_hidden_states)
            else:
                x = layer(x)
        return self.conv_out(F.silu(self.norm(x)))


def unet(
    *,
    widths: Sequence[int] = (320, 640, 1280, 1280),
    layers: int = 2,
    heads: int = 8,
    context: int = 768,
    groups: int = 32,
    latent: int = 4,
) -> Any:
    """Return the UNet that predicts the noise of a latent picture; `context` is the width of the text's embeddings."""
    return _UNet(widths, layers, heads, context, groups, latent)


def _middle(channels: int, groups: int) -> list[Any]:
    ends = [_Residual(channels, channels, groups, 1e-6) for _ in range(2)]
    return [ends[0], _PictureAttention(channels, groups), ends[1]]


class _VaeEncoder(nn.Module):  # type: ignore[misc]
    def __init__(self, widths: Sequence[int], layers: int, groups: int, latent: int) -> None:
        super().__init__()
        channels = widths[0]
        modules = [nn.Conv2d(3, channels, 3, padding=1)]
        for level, width in enumerate(widths):
            for _ in range(layers):
                modules.append(_Residual(channels, width, groups, 1e-6))
                channels = width
            if level < len(widths) - 1:
                modules.append(_Downsample(channels, symmetric=False))
        modules += [*_middle(channels, groups), nn.GroupNorm(groups, channels, eps=1e-6), nn.SiLU()]
        modules += [nn.Conv2d(channels, 2 * latent, 3, padding=1), nn.Conv2d(2 * latent, 2 * latent, 1)]
        self.layers = nn.Sequential(*modules)

    def forward(self, sample: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.layers(sample).chunk(2, 1)
        return mean, log_variance


def vae_encoder(
    *, widths: Sequence[int] = (128, 256, 512, 512), layers: int = 2, groups: int = 32, latent: int = 4
) -> Any:
    """Return the encoder of pictures, which returns mean and logarithm of the variance of the latent picture."""
    return _VaeEncoder(widths, layers, groups, latent)


def vae_decoder(
    *, widths: Sequence[int] = (128, 256, 512, 512), layers: int = 2, groups: int = 32, latent: int = 4
) -> Any:
    """Return the decoder from a latent picture to a picture."""
    channels = widths[-1]
    modules = [nn.Conv2d(latent, latent, 1), nn.Conv2d(latent, channels, 3, padding=1), *_middle(channels, groups)]
    for level in reversed(range(len(widths))):
        for _ in range(layers + 1):
            modules.append(_Residual(channels, widths[level], groups, 1e-6))
            channels = widths[level]
        if level:
            modules.append(_Upsample(channels))
    modules += [nn.GroupNorm(groups, channels, eps=1e-6), nn.SiLU(), nn.Conv2d(channels, 3, 3, padding=1)]
    return nn.Sequential(*modules)
