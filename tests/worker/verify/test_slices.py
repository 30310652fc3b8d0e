"""Along which sizes a case can be checked in part, and that parts of the catalogue's cases are what they should be."""

from __future__ import annotations

import dataclasses
from itertools import count
from typing import Any

import numpy as np
import pytest
from each_case import each_case

from opmark.catalogue.operators._builders import numpy
from opmark.errors import WrongResult
from opmark.plugin import Implementation, Operator
from opmark.plugin.operator import rules_allow, shrink
from opmark.plugin.param import shape, size
from opmark.plugin.registry import catalogue, operator
from opmark.schema import EFFORTS, Case, Cost, Settings, Task, TensorSpec
from opmark.worker.verify.outputs import verify
from opmark.worker.verify.slices import Part, add_up, as_tuple, compute_outputs, partial_sizes, take

SETTINGS = Settings(1, "quick", EFFORTS["quick"])
MIDDLE = 60_000
"""Elements of the cases that the laws are tried with here; they are found with far smaller ones."""
_TOYS = count()
"""Numbers for names: what is found of an operator is kept by its name, and Python gives an `id` twice."""


def _sizes(name: str, **given: Any) -> dict[str, str]:
    """How each size of a case can be cut, by its parameters."""
    op = operator(name)
    found = partial_sizes(op, op.complete({**op.preset("typical"), **given}))
    return {
        "+".join(place if index is None else f"{place}[{index}]" for place, index in size.places): (
            size.adds or ("linear" if size.linear else "independent")
        )
        for size in found
    }


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("matmul", {}, {"M": "linear", "N": "linear", "K": "sum"}),
        ("batched_matmul", {}, {"B": "independent", "M": "linear", "N": "linear", "K": "sum"}),
        ("linear", {}, {"M": "independent", "N": "linear"}),
        ("relu", {"shape": [512, 300]}, {"shape[0]": "independent", "shape[1]": "independent"}),
        ("softmax", {"shape": [512, 300]}, {"shape[0]": "independent"}),
        ("softmax", {"shape": [512, 300], "axis": 0}, {"shape[1]": "independent"}),
        ("mse_loss", {"shape": [512, 300], "reduction": "mean"}, {"shape[0]": "mean"}),
        ("mse_loss", {"shape": [512, 300], "reduction": "sum"}, {"shape[0]": "sum"}),
        ("conv2d", {}, {"out_channels": "linear", "batch": "linear", "in_channels": "sum"}),
        ("tril", {"shape": [512, 512]}, {"shape[0]+shape[1]": "independent"}),
    ],
)
def test_sizes_that_can_be_cut_are_found(name: str, given: dict[str, Any], expected: dict[str, str]) -> None:
    found = _sizes(name, **given)
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_heads_that_share_keys_are_cut_together(dtype: str) -> None:
    found = _sizes("flash_attention", q_heads=8, kv_heads=2, dtype=dtype)
    assert found["kv_heads+q_heads"] == "independent"
    assert "q_heads" not in found


def test_what_shares_one_scale_is_not_cut_apart() -> None:
    """The largest number of a row is rarely in the one head of eight that a part leaves out."""
    found = _sizes("head_rms_norm_dynamic_quant", num_tokens=512, heads=128, head_dim=64, dtype="float32")
    assert found == {"num_tokens": "independent"}


def test_queries_of_a_causal_attention_are_cut_by_the_operator_itself() -> None:
    assert _sizes("scaled_dot_product_attention", causal=True)["q_len"] == "independent"


@pytest.mark.parametrize(
    ("name", "place"), [("sort", "shape[1]"), ("cumsum", "shape[1]"), ("softmax", "shape[1]"), ("cholesky", "n")]
)
def test_a_size_whose_elements_belong_together_is_not_cut(name: str, place: str) -> None:
    assert place not in _sizes(name, **({"shape": [512, 300]} if place.startswith("shape") else {}))


def _toy(reference: Any, rows: Any = lambda p: p["n"]) -> Operator:
    return Operator(
        name=f"toy {next(_TOYS)}",
        summary="for tests",
        category="test",
        params=(size("n", "rows"), shape("columns", "others", [64])),
        inputs=lambda p: {"x": TensorSpec((rows(p), *p["columns"]), "float64")},
        cost=lambda p: Cost(0, 0, 8 * rows(p) * p["columns"][0]),
        reference=reference,
        result_dtype=lambda p: "float64",
        presets={},
        implementations=(),
    )


def test_a_sum_over_the_only_window_of_a_tiny_convolution_is_none_over_many() -> None:
    op = operator("conv2d")
    given = {"batch": 1, "in_channels": 3, "image": [224, 224], "out_channels": 768, "kernel": [16, 16]}
    params = op.complete({**given, "stride": 16, "padding": 0})
    assert not {place for size in partial_sizes(op, params) for place in size.places} & {("kernel", 0), ("image", 0)}


def test_elements_of_a_size_may_lie_side_by_side_or_in_rounds() -> None:
    side_by_side = _toy(lambda p, x: x.reshape(p["n"], 3, -1).sum(1), lambda p: 3 * p["n"])
    in_rounds = _toy(lambda p, x: x.reshape(3, p["n"], -1).sum(0), lambda p: 3 * p["n"])
    for op, layout in ((side_by_side, "inner"), (in_rounds, "outer")):
        first = partial_sizes(op, op.complete({"n": 512}))[0]
        assert [axis.layout for axis in first.axes if axis.tensor == "x"] == [layout]


def test_a_limit_that_sums_exceed_is_not_linear() -> None:
    op = _toy(lambda p, x: np.minimum(x, 100.0))
    assert not any(size.linear for size in partial_sizes(op, op.complete({"n": 512})))


def test_a_reference_that_refuses_every_part_has_no_size_to_cut() -> None:
    def whole_only(p: Any, x: Any) -> Any:
        raise ValueError("no")

    op = _toy(whole_only)
    assert partial_sizes(op, op.complete({"n": 512})) == ()


def _case_of_middle_size(op: Operator) -> dict[str, Any] | None:
    """Parameters between a tiny case and a typical one."""
    params = op.complete(op.preset("typical"))
    middle = shrink(op, params, lambda p: sum(spec.elements for spec in op.inputs(p).values()) > MIDDLE, 3)
    return middle if rules_allow(op, middle) and (op.cost(middle).flops or 0) < 1e8 else None


def _inputs(op: Operator, params: dict[str, Any]) -> dict[str, Any]:
    from opmark.plugin.backend import cast, draw_values, widen

    specs = enumerate(op.inputs(params).items())
    return {name: widen(cast(draw_values(spec, 7 + i), spec.dtype)) for i, (name, spec) in specs}


def test_parts_of_every_operator_are_parts_of_its_reference() -> None:
    """The sizes are found with tiny cases: the same holds for larger ones."""
    generator, tried = np.random.default_rng(3), 0
    with each_case() as case:
        for op in catalogue().values():
            if op.ranks or op.observe or op.result == "random" or "typical" not in op.presets:
                continue
            params = _case_of_middle_size(op)
            sizes = partial_sizes(op, params) if params else ()
            cut = tuple(size for size in sizes if not size.adds and size.value(params) > 1)
            if params is None or not cut:
                continue
            with case(op.name):
                part = Part(cut, tuple(_choose(generator, size.value(params)) for size in cut))
                smaller = part.params(op, params)
                if not rules_allow(op, smaller):
                    continue
                inputs = _inputs(op, params)
                outputs = compute_outputs(op, params, inputs)
                taken = {name: take(a, part.positions(params, name, a.shape)) for name, a in inputs.items()}
                found = as_tuple(op.reference(smaller, **taken))
                for i, (whole, of_part) in enumerate(zip(outputs, found, strict=True)):
                    due = take(whole, part.positions(params, i, whole.shape))
                    np.testing.assert_allclose(of_part, due, rtol=1e-7, atol=1e-9 * (1 + np.abs(due).max(initial=0)))
                tried += 1
    assert tried > 250


def _choose(generator: np.random.Generator, n: int) -> Any:
    return np.sort(generator.choice(n, max(1, n // 2), replace=False))


def test_losses_are_made_of_their_pieces() -> None:
    tried = 0
    with each_case() as case:
        for op in catalogue().values():
            params = None if op.ranks or "typical" not in op.presets else _case_of_middle_size(op)
            sizes = partial_sizes(op, params) if params else ()
            adding = next((size for size in sizes if size.adds), None)
            if params is None or adding is None or not op.name.endswith("loss"):
                continue
            with case(op.name):
                n, inputs = adding.value(params), _inputs(op, params)
                pieces = [Part((adding,), (np.arange(n)[at],)) for at in (np.s_[: n // 3], np.s_[n // 3 :])]
                taken = [
                    {name: take(a, piece.positions(params, name, a.shape)) for name, a in inputs.items()}
                    for piece in pieces
                ]
                found = add_up(op, params, zip(pieces, taken, strict=True))
                np.testing.assert_allclose(found[0], as_tuple(op.reference(params, **inputs))[0], rtol=1e-9)
                tried += 1
    assert tried > 10


# A tiny case may be a special one.


def _windows(p: Any, x: Any) -> Any:
    """The largest of each window along the first axis; windows of tiny cases have one element."""
    width = max(1, p["n"] // 600)
    return x[: p["n"] // width * width].reshape(p["n"] // width, width, -1).max(1)


def test_a_size_that_only_a_tiny_case_can_be_cut_along_is_forgotten(numpy_cpu: Any) -> None:
    op = dataclasses.replace(_toy(_windows), implementations=(numpy(lambda p, x: lambda: _windows(p, x)),))
    params = op.complete({"n": 1300, "columns": [4000]})
    assert [size.linear for size in partial_sizes(op, params)] == [True, True]
    task = Task(Case.of(op.name, params, "forward"), "", "", SETTINGS)
    assert verify(task, op, op.implementations[0], numpy_cpu).checked == "sampled"
    assert [(size.places, size.linear) for size in partial_sizes(op, params)] == [((("columns", 0),), False)]


def test_a_wrong_result_is_no_reason_to_forget_a_size(numpy_cpu: Any) -> None:
    op = operator("matmul")
    params = op.complete({"M": 1000, "N": 900, "K": 300})
    before = partial_sizes(op, params)
    task = Task(Case.of(op.name, params, "forward"), "", "", SETTINGS)
    with pytest.raises(WrongResult):
        verify(task, op, Implementation("numpy", lambda p, a, b: lambda: 2 * (a @ b)), numpy_cpu)
    assert partial_sizes(op, params) == before
