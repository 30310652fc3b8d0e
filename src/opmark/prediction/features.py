"""Features of calls: sizes, work, roofline, tiles and waves, alignment, and figures of the chip."""

from __future__ import annotations

import numpy as np

from opmark.prediction.samples import BATCHED, CLASSES, CONVOLUTION, LINEAR, ROWS, Samples

_TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (32, 32))
_WAVES = ((128, 128), (128, 64), (64, 64), (32, 32))
CHIP_FEATURES = (
    "flops", "bandwidth", "multiprocessors", "watts_per_flop", "flops_per_unit", "bandwidth_per_unit", "cache",
    "clock", "power_demand",
)  # fmt: skip
"""Features that are the same for every call on a chip: a forest of one chip has no use for them."""


def features(kind: str, samples: Samples, codes: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return the matrix of features of a class, and their names; those of the chip come last. `codes` has a number for
    the operator of each sample."""
    columns: dict[str, np.ndarray] = {}
    units = samples.of_chip("multiprocessors")
    cache = samples.of_chip("cache")
    if kind not in (LINEAR, BATCHED, CONVOLUTION):
        elements = samples.m * samples.n
        columns |= {
            "rows": _log2(samples.m), "columns": _log2(samples.n), "elements": _log2(elements),
            "rows_per_unit": _log2(samples.m / units), "elements_per_unit": _log2(elements / units),
            "full_blocks": _filled(samples.n, 1024), "aligned_n": _alignment(samples.n),
            "written": _log2(samples.written + 1), "written_share": samples.written / samples.nbytes,
            **{f"number_{place}": column for place, column in enumerate(_log_numbers(samples).T)},
        }  # fmt: skip
    else:
        columns |= _product_features(samples, units)
        if kind == CONVOLUTION:
            columns |= {
                **_code_of_convolution(samples), "stride": samples.stride,
                "image": samples.image, "channels": _log2(samples.channels), "images": _log2(samples.batch),
                "tiles_2": (np.ceil(samples.image / 2) * 2 / samples.image) ** 2,
                "tiles_4": (np.ceil(samples.image / 4) * 4 / samples.image) ** 2,
                "aligned_channels": _alignment(samples.channels), "aligned_image": _alignment(samples.image),
                "aligned_images": _alignment(samples.batch),
            }  # fmt: skip
        else:
            columns |= {
                "aligned_m": _alignment(samples.m), "aligned_k": _alignment(samples.k), "batch": _log2(samples.batch),
                "left_per_cache": _log2(4 * samples.m * samples.k / cache),
                "right_per_cache": _log2(4 * samples.n * samples.k / cache),
                "result_per_cache": _log2(4 * samples.m * samples.n / cache),
            }  # fmt: skip
    flops, bandwidth = samples.of_chip("flops"), samples.of_chip("bandwidth")
    columns |= {
        "operator": codes, "nbytes": _log2(samples.nbytes), "flops_of_call": _log2(samples.flops + 1),
        "nbytes_per_cache": _log2(samples.nbytes / cache), "roofline": _log2(samples.roofline),
        "balance": balance(samples), "bytes_per_element": _log2(samples.nbytes / (samples.m * samples.n)),
        "flops": _log2(flops), "bandwidth": _log2(bandwidth), "multiprocessors": _log2(units),
        "watts_per_flop": _log2(samples.of_chip("power") / flops), "flops_per_unit": _log2(flops / units),
        "bandwidth_per_unit": _log2(bandwidth / units), "cache": _log2(cache), "clock": _log2(samples.of_chip("clock")),
        "power_demand": _log2(samples.of_chip("power_demand")),
    }  # fmt: skip
    return np.stack(list(columns.values()), 1).astype(np.float32), list(columns)


def balance(samples: Samples) -> np.ndarray:
    """Logarithm of computing time over moving time: above 0 where computing limits."""
    return np.asarray(np.clip(_log2((samples.computing + 1e-15) / (samples.moving + 1e-15)), -12, 12))


def size_axes(kind: str, samples: Samples) -> np.ndarray:
    """Return the sizes by which shapes are near or far, as logarithms."""
    if kind == ROWS:
        return np.stack([_log2(samples.m), _log2(samples.n)], 1)
    if kind not in CLASSES:
        intensity = np.clip(_log2(samples.flops / samples.nbytes + 1e-3), -2, None)
        sizes = [_log2(samples.m), _log2(samples.n), _log2(samples.nbytes), _log2(samples.written + 1), intensity]
        return np.stack(sizes, 1)
    if kind == CONVOLUTION:
        return np.stack([_log2(samples.m), _log2(samples.n), _log2(samples.k), _log2(samples.image)], 1)
    return np.stack([_log2(samples.m), _log2(samples.n), _log2(samples.k), _log2(samples.batch)], 1)


def _log_numbers(samples: Samples) -> np.ndarray:
    return np.asarray(np.sign(samples.numbers) * np.log2(1 + np.abs(samples.numbers)))


def _code_of_convolution(samples: Samples) -> dict[str, np.ndarray]:
    """Return what decides which code computes a convolution, and how full its blocks of channels are. On processors
    torch leaves to oneDNN, which begins with tens of microseconds of work of its own, all but pointwise convolutions of
    few images and small single images."""
    window = samples.k / samples.channels
    pointwise = (window < 1.5) & (samples.stride == 1)
    elements = samples.batch * samples.channels * (samples.image * samples.stride) ** 2
    columns = {
        "window": window, "pointwise_of_few_images": (pointwise & (samples.batch < 16)).astype(float),
        "small_image": ((samples.batch < 2) & (window < 16) & (elements <= 20480)).astype(float),
        "out_blocks_of_16": _filled(samples.n, 16),
    }  # fmt: skip
    for width in (8, 16):
        both = _filled(samples.n, width) * _filled(samples.channels, width)
        columns[f"blocks_of_{width}"] = both
    return columns


def _filled(sizes: np.ndarray, width: int) -> np.ndarray:
    """Return which share of whole blocks sizes fill."""
    return np.asarray(sizes / (np.ceil(sizes / width) * width))


def _product_features(samples: Samples, units: np.ndarray) -> dict[str, np.ndarray]:
    m, n, k = samples.m, samples.n, samples.k
    # A convolution's batch is already in m.
    batch = np.where(samples.image > 1, 1.0, samples.batch)
    columns = {
        "m": _log2(m), "n": _log2(n), "k": _log2(k), "smaller": _log2(np.minimum(m, n)),
        "larger": _log2(np.maximum(m, n)), "aspect": _log2(m / n), "depth": _log2(k / np.sqrt(m * n)),
        "aligned_n": _alignment(n), "rest_of_m": m % 128, "rest_of_n": n % 128, "rest_of_k": k % 32,
        "line_of_k": k % 256,
    }  # fmt: skip
    for height, width in _TILES:
        padded = np.ceil(m / height) * height * np.ceil(n / width) * width
        columns[f"filled_{height}x{width}"] = m * n / padded
        if (height, width) in _WAVES:
            waves = batch * np.ceil(m / height) * np.ceil(n / width) / units
            columns[f"waves_{height}x{width}"] = _log2(waves)
            columns[f"last_wave_{height}x{width}"] = waves / np.ceil(waves)
            columns[f"padding_{height}x{width}"] = _log2(np.ceil(waves) * units * height * width / (m * n * batch))
    return columns


def _log2(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.log2(np.maximum(values, 1e-30)))


def _alignment(sizes: np.ndarray) -> np.ndarray:
    """Return how often a size can be halved, at most 5 times: which vector instructions fit."""
    return np.asarray(sum((sizes % 2**power == 0).astype(float) for power in range(1, 6)))
