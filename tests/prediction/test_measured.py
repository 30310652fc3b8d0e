"""What is measured to learn from: sizes that an operator accepts, and the cases that would teach most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from opmark.errors import UserError
from opmark.plugin.registry import operator as find_operator
from opmark.prediction.features import features
from opmark.prediction.measured import FAMILIES, choose_entries, entry_of, random_calls, samples_of_figures
from opmark.prediction.samples import ChipFigures, Samples, class_of, samples_of, sizes_of_case
from opmark.schema import Case, Entry
from opmark.schema.call_sizes import CallSizes
from opmark.schema.machine import Level, Peaks
from opmark.schema.record import Figure

CHIP = ChipFigures("a", 5e12, 2e11, 20, 4e6, 200.0, 1.4e9, 12.0)


def rows(names: list[str], sizes: list[float], seconds: list[float]) -> Samples:
    calls = [CallSizes(name, 1, size, 64, 1, size, 8 * size, written=4 * size)
             for name, size in zip(names, sizes, strict=True)]  # fmt: skip
    return samples_of(calls, ["a"] * len(calls), seconds, {"a": CHIP})


def test_every_family_gets_sizes_that_it_accepts_and_that_can_be_measured_quickly() -> None:
    found = random_calls(3 * len(FAMILIES), np.random.default_rng(5))
    assert {entry.op for entry, _ in found} == set(FAMILIES)
    assert len({class_of(name) for name in FAMILIES}) >= 10
    for entry, sizes in found:
        operator = find_operator(entry.op)
        operator.check_rules(operator.complete(entry.params))
        assert sizes.flops <= 2e9
        assert sizes.nbytes <= 6.4e7


def sizes_of_conv2d(params: Mapping[str, Any]) -> CallSizes:
    conv2d = find_operator("conv2d")
    found = sizes_of_case(conv2d, Case.of("conv2d", conv2d.complete(params), "forward"))
    assert found
    return found


def test_a_convolution_that_is_asked_for_again_has_the_same_sizes() -> None:
    drawn = [sizes for _, sizes in random_calls(60, np.random.default_rng(8), ["conv2d"])]
    samples = samples_of(drawn, ["a"] * 60, [np.nan] * 60, {"a": CHIP})
    assert {(one.stride, one.k / one.channels) for one in drawn} >= {(1, 1), (2, 1), (1, 9), (2, 9), (1, 25)}
    for row, sizes in enumerate(drawn):
        again = sizes_of_conv2d(entry_of(samples, row).params)
        # A stride of 2 may leave out a last line of the image that is read.
        assert again.nbytes == sizes.nbytes or (again.nbytes < sizes.nbytes and sizes.stride == 2)
        assert replace(again, nbytes=sizes.nbytes) == sizes


def test_features_tell_which_code_computes_a_convolution() -> None:
    small = {"batch": 4, "in_channels": 12, "out_channels": 20, "image": [9, 9], "kernel": [1, 1], "padding": 0}
    changes: list[dict[str, Any]] = [{}, {"stride": 2}, {"batch": 16}, {"kernel": [3, 3], "padding": 1}]
    calls = [sizes_of_conv2d({**small, **change}) for change in changes]
    samples = samples_of(calls, ["a"] * 4, [np.nan] * 4, {"a": CHIP})
    matrix, names = features("conv", samples, np.zeros(4))
    column = dict(zip(names, matrix.T, strict=True))
    assert column["pointwise_of_few_images"].tolist() == [1, 0, 0, 0]
    assert column["stride"].tolist() == [1, 2, 1, 1]
    # Of 16 channels that are read, 12 are there, and of 32 that are written 20.
    assert column["blocks_of_16"] == pytest.approx(12 / 16 * 20 / 32)


def test_the_same_seed_draws_the_same_shapes() -> None:
    first, second = (random_calls(20, np.random.default_rng(6), ["softmax", "topk"]) for _ in range(2))
    assert first == second


def test_an_operator_without_sizes_is_refused() -> None:
    with pytest.raises(UserError, match="no sizes"):
        random_calls(1, np.random.default_rng(0), ["reshape"])


def test_what_was_never_measured_comes_first_and_then_what_is_far() -> None:
    known = rows(["relu"] * 3, [64, 128, 256], [1e-5] * 3)
    names, sizes = ["relu", "relu", "gelu"], [128.0, 65536.0, 128.0]
    candidates = [Entry(name, {"shape": [int(size), 64]}) for name, size in zip(names, sizes, strict=True)]
    chosen = choose_entries(candidates, rows(names, sizes, [np.nan] * 3), known, 3)
    assert [(entry.op, entry.params["shape"][0]) for entry in chosen] == [("gelu", 128), ("relu", 65536), ("relu", 128)]


def test_an_operator_that_its_neighbours_do_not_tell_is_measured_more() -> None:
    generator = np.random.default_rng(7)
    sizes = np.repeat(2.0 ** np.arange(4, 14, 0.5), 4).tolist()
    times = [1e-5 * np.exp(generator.normal(0, 0.01)) for _ in sizes]
    wild = [1e-5 * np.exp(generator.normal(0, 1.0)) for _ in sizes]
    known = rows(["relu"] * len(sizes) + ["gelu"] * len(sizes), [*sizes, *sizes], [*times, *wild])
    candidates = [Entry(name, {"shape": [3000, 64]}) for name in ("relu", "gelu")]
    chosen = choose_entries(candidates, rows(["relu", "gelu"], [3000.0, 3000.0], [np.nan] * 2), known, 1)
    assert chosen[0].op == "gelu"


def test_measured_peaks_are_at_least_what_was_reached() -> None:
    """Another backend, or a busy machine, may have measured less than a backend reaches: that bounds nothing."""
    matmul = find_operator("matmul")
    case = Case.of("matmul", matmul.complete({"M": 1024, "N": 1024, "K": 1024}), "forward")
    figure = Figure("run", case.id, "matmul", "b", "b", 2, 0, "ok", "here", "now", "latency", "warm", 0.01)
    for backend, expected in (("slow", 2 * 1024**3 / 0.01), ("", 1e9)):  # the peaks of a datasheet stay
        peaks = Peaks("cpu", "made up", {"float32": 1e9}, [Level("memory", 1e10)], backend=backend)
        samples, _ = samples_of_figures([figure], {case.id: case}, {"here": ("cpu", peaks)}, "b")
        assert samples.chips["cpu"].flops == pytest.approx(expected)
