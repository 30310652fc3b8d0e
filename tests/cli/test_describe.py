"""opmark describe"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Command = Callable[..., Any]


def test_an_operator_is_described(main: Command) -> None:
    done = main("describe", "conv2d")
    assert (done.code, done.err) == (0, "")
    for part in ("conv2d (", "parameter", "default", "small", "typical", "large", "flops", "numpy-cpu", "torch-cpu"):
        assert part in done.out


def test_the_description_is_also_data(main: Command) -> None:
    (described,) = main("describe", "matmul", "--json").objects
    assert described["op"] == "matmul"
    assert [param["name"] for param in described["params"]] == ["M", "N", "K", "dtype"]


def test_an_alias_describes_its_operator(main: Command) -> None:
    assert main("describe", "mm").out == main("describe", "matmul").out


def test_the_order_of_overrides_is_told(main: Command) -> None:
    done = main("describe", "softmax")
    assert "looked for in" in done.out
    (line,) = (line for line in done.out.splitlines() if line.startswith("torch-cpu "))
    assert "torch-cpu, then torch" in line
    (described,) = main("describe", "softmax", "--json").objects
    order = described["override_order"]["torch-cpu"]
    assert [(step["framework"], step["taken"]) for step in order] == [("torch-cpu", False), ("torch", True)]
