"""The parameters of a case as people read them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.plugin import Param
from opmark.plugin.param import (
    choice,
    dtype,
    flag,
    format_params,
    integer,
    nbytes,
    parse_bytes,
    real,
    shape,
    short_bytes,
    size,
)
from opmark.plugin.registry import catalogue
from opmark.schema import Case

KNOWN: dict[str, Param] = {
    param.name: param
    for param in (
        size("n", "a size"),
        size("m", "a size with a default", 2),
        shape("shape", "a shape"),
        shape("image", "another", [4, 4]),
        real("eps", "a number", 1e-5),
        flag("causal", "or not"),
        choice("mode", "how", ("sum", "mean"), "sum"),
        dtype("float32", "float16"),
        dtype("float32", "bfloat16", name="to", doc="into which"),
    )
}


def text(called: str = "", **params: Any) -> str:
    return format_params(Case.of("toy", params, "forward"), KNOWN, called)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"n": 256}, "n=256"),
        ({"shape": [32, 64]}, "32x64"),
        ({"shape": [7]}, "7"),
        ({"shape": []}, ""),
        ({"image": [8, 4]}, "image=8x4"),
        ({"eps": 1e-3}, "eps=0.001"),
        ({"eps": 1e-12}, "eps=1e-12"),
        ({"causal": True}, "causal=true"),
        ({"mode": "mean"}, "mode=mean"),
        ({"dtype": "float32"}, "float32"),
        ({"to": "bfloat16"}, "to=bfloat16"),
        ({"n": 1, "shape": [2, 3], "dtype": "float16", "causal": True}, "n=1 2x3 float16 causal=true"),
    ],
)
def test_every_kind_of_parameter_is_written_in_its_own_way(params: dict[str, Any], said: str) -> None:
    assert text(**params) == said


def test_a_default_is_left_out_but_an_element_type_never_is() -> None:
    assert text(n=1, m=2, image=[4, 4], eps=1e-5, causal=False, mode="sum", dtype="float32", to="float32") == (
        "n=1 float32 to=float32"
    )


def test_what_is_required_is_said_whatever_it_is() -> None:
    assert KNOWN["n"].required
    assert text(n=2) == "n=2"


def test_a_parameter_that_nobody_knows_is_said_as_it_is() -> None:
    """A stored run may contain an operator that is no longer installed."""
    case = Case.of("gone", {"n": 4, "shape": [2, 3], "dtype": "float32", "on": False, "eps": 0.5}, "forward")
    assert format_params(case, {}) == "n=4 2x3 dtype=float32 on=false eps=0.5"


def test_without_parameters_there_is_nothing_to_say() -> None:
    assert text() == ""


def test_what_a_foreign_call_was_called_with_comes_first() -> None:
    assert text("64x64 float32, dim=1", mode="mean") == "64x64 float32, dim=1 mode=mean"
    assert text("64x64 float32") == "64x64 float32"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"args": ["4x8 float32", 2], "kwargs": {}}, "4x8 float32, 2"),
        ({"args": [], "kwargs": {}}, ""),
        ({"args": [], "kwargs": {"dim": 1, "keepdim": True}}, "dim=1, keepdim=true"),
        ({"args": ["4 float32"], "kwargs": {"alpha": 0.5}}, "4 float32, alpha=0.5"),
        ({"args": [["4 float32", "4 int64"], None], "kwargs": {}}, '["4 float32","4 int64"], null'),
        ({"args": ["2x4 float32"], "kwargs": {}, "build": None}, "2x4 float32"),
        ({"args": ["2x4 float32"], "kwargs": {}, "build": [4, 3]}, "(4, 3)(2x4 float32)"),
        ({"args": ["2x4 float32"], "kwargs": {}, "build": []}, "()(2x4 float32)"),
        (
            {"args": ["2x4 float32"], "kwargs": {}, "build": {"args": [4], "kwargs": {"bias": False}}},
            "(4, bias=false)(2x4 float32)",
        ),
        ({"args": ["2x4 float32"], "kwargs": {}, "build": {"kwargs": {"dim": -1}}}, "(dim=-1)(2x4 float32)"),
        ({"args": [], "kwargs": {}, "build": {}}, "()()"),
    ],
)
def test_a_call_is_written_as_a_call(params: dict[str, Any], said: str) -> None:
    assert format_params(Case.of("torch.toy", params, "forward"), {}) == said


def test_two_sizes_of_an_operator_do_not_look_alike() -> None:
    for name, op in catalogue().items():
        cases = {(case := Case.of(name, op.complete(preset), "forward")).id: case for preset in op.presets.values()}
        said = [format_params(case, op.by_name) for case in cases.values()]
        assert len(set(said)) == len(said), name
        assert all(text == " ".join(text.split()) for text in said), name


@given(st.fixed_dictionaries({}, optional={
    "n": st.integers(1, 10**9), "m": st.integers(1, 99), "shape": st.lists(st.integers(1, 99), min_size=1),
    "causal": st.booleans(), "mode": st.sampled_from(["sum", "mean"]), "dtype": st.sampled_from(["float32", "float16"]),
}))  # fmt: skip
@settings(deadline=None)
def test_there_is_one_word_for_each_parameter_that_is_not_its_default(params: dict[str, Any]) -> None:
    said = [
        name for name, value in params.items()
        if KNOWN[name].required or KNOWN[name].kind == "dtype" or value != KNOWN[name].default
    ]  # fmt: skip
    assert len(text(**params).split()) == len(said)


# Communication

SENT: dict[str, Param] = {
    param.name: param
    for param in (
        nbytes("size", "bytes"),
        nbytes("chunk", "bytes with a default", 1 << 16),
        *(integer(name, "a rank", default, kind="rank") for name, default in (("ranks", 2), ("group", 0), ("root", 0))),
        *(integer(name, "a rank", default, kind="rank") for name, default in (("src", 0), ("dst", 1))),
    )
}


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"size": 8}, "size=8"),
        ({"size": 1024}, "size=1K"),
        ({"size": 1025}, "size=1025"),
        ({"size": 1536}, "size=1536"),
        ({"size": 65_536}, "size=64K"),
        ({"size": 3 << 20}, "size=3M"),
        ({"size": 1 << 30}, "size=1G"),
        ({"size": 5000 << 40}, "size=5000T"),
        ({"chunk": 1 << 16}, ""),
        ({"chunk": 1 << 17}, "chunk=128K"),
        ({"size": 8, "ranks": 2, "group": 0, "root": 0}, "size=8 ranks=2"),
        ({"size": 8, "ranks": 4, "group": 2, "root": 1}, "size=8 ranks=4 group=2 root=1"),
        ({"size": 8, "ranks": 2, "src": 0, "dst": 1}, "size=8 ranks=2 src=0 dst=1"),
    ],
)
def test_bytes_are_said_as_they_are_given_and_who_takes_part_is_always_said(params: dict[str, Any], said: str) -> None:
    assert format_params(Case.of("send", params, "forward"), SENT) == said


def test_a_parameter_of_another_kind_is_left_out_whatever_its_name() -> None:
    known = {"src": choice("src", "from where", ("left", "right"), "left")}
    assert format_params(Case.of("toy", {"src": "left"}, "forward"), known) == ""


@given(st.integers(1, 1 << 60))
def test_bytes_that_were_written_are_read_again(value: int) -> None:
    assert parse_bytes(short_bytes(value)) == value
