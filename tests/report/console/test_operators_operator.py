"""Descriptions of operators."""

from __future__ import annotations

import io
import json

import msgspec
import pytest
from each_case import each_case
from rich.console import Console

from opmark.plugin.registry import backends, catalogue, operator
from opmark.report.console.operators import operator_text, operator_view

OPERATORS = sorted(catalogue())


def text(name: str, width: int = 300) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(operator_text(operator(name)))
    return out.getvalue()


def test_every_operator_can_be_described_in_full_and_as_data() -> None:
    with each_case() as case:
        for name in OPERATORS:
            with case(name):
                check_description(name)
                check_data(name)


def check_description(name: str) -> None:
    found, described = operator(name), text(name)
    assert described.startswith(f"{name} ({found.category}): {found.summary}")
    for param in found.params:
        assert any(line.split()[:2] == [param.name, param.kind] for line in described.splitlines()), param.name
        assert param.doc in described
    for size in found.presets:
        assert any(line.startswith(size) for line in described.splitlines()), size
    for backend in backends():
        assert any(line.split()[:1] == [backend] for line in described.splitlines()), backend


def check_data(name: str) -> None:
    seen = json.loads(msgspec.json.encode(operator_view(operator(name))))
    assert seen["op"] == name
    assert [param["name"] for param in seen["params"]] == [param.name for param in operator(name).params]
    assert seen["presets"].keys() == operator(name).presets.keys()
    nothing = operator(name).view or name == "barrier"
    assert all(preset["cost"]["bytes_written"] > 0 or nothing for preset in seen["presets"].values())
    assert seen["implementations"].keys() == backends().keys()


def test_a_tolerance_that_depends_on_the_element_type_is_told_for_each() -> None:
    described = text("scaled_dot_product_attention", 2000)
    assert "float8_e4m3fn 0.26 x |expected|" in described
    assert "float8_e5m2 0.5 x |expected|" in described


def test_a_parameter_tells_its_default_or_that_it_is_required() -> None:
    params = {param["name"]: param for param in operator_view(operator("matmul"))["params"]}
    assert params["M"]["required"] is True
    assert "default" not in params["M"]
    assert (params["dtype"]["required"], params["dtype"]["default"]) == (False, "float32")
    assert "bfloat16" in params["dtype"]["choices"]
    lines = {line.split()[0]: line for line in text("matmul").splitlines() if line.strip()}
    assert "required" in lines["M"]
    assert '"float32"' in lines["dtype"]


def test_the_cost_of_a_product_is_two_flops_a_term() -> None:
    preset = operator_view(operator("matmul"))["presets"]["small"]
    assert preset["cost"]["flops"] == 2 * 128**3
    assert preset["backward_cost"]["flops"] == 4 * 128**3
    assert preset["inputs"] == {"a": "float32[128, 128]", "b": "float32[128, 128]"}


def test_an_operator_without_a_gradient_has_one_phase() -> None:
    assert operator_view(operator("fault"))["phases"] == ["forward"]
    assert operator_view(operator("matmul"))["phases"] == ["forward", "backward"]
    assert "backward" not in text("fault")


def test_an_alias_is_told() -> None:
    aliases = operator_view(operator("mm"))["aliases"]
    assert aliases == list(operator("matmul").aliases)
    assert {"gemm", "mm", "dot"} <= set(aliases)
    assert f"also called {', '.join(aliases)}" in " ".join(text("matmul").split())


@pytest.mark.parametrize("name", ["conv2d", "scaled_dot_product_attention"])
def test_a_narrow_terminal_cuts_nothing_off(name: str) -> None:
    narrow, wide = text(name, width=60), text(name)
    assert "…" not in narrow
    assert max(len(line) for line in narrow.splitlines()) <= 60
    assert sorted("".join(narrow.split())) == sorted("".join(wide.split()))


def test_what_communicates_tells_what_its_bandwidths_count() -> None:
    """1 KiB among 2 ranks: 2 x 1/2 of it crosses the busiest link."""
    described = text("all_reduce")
    assert "several processes compute it together" in described
    lines = [" ".join(line.split()) for line in described.splitlines()]
    assert "size phase parameters read written algbw counts busbw counts" in lines
    assert "small forward size=1024 1.00 KiB 1.00 KiB 1.00 KiB 1.00 KiB" in lines
    assert "flops/byte" not in described
