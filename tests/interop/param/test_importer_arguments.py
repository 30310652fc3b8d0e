"""Arguments of a PARAM config: every type, every element type, drawn values, gradients."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from param_runs import GENERATOR, number, op

from opmark.catalogue.expansion import expand
from opmark.interop.param import run_config
from opmark.interop.param.importer import PARAM
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Entry, Imported, Workload
from opmark.schema.arguments import canonical
from opmark.schema.tensor import DTYPES


def read(args: list[Any], seed: int = 0, op: str = "torch.f", **more: Any) -> Imported:
    data = {
        op: {"input_data_generator": "PyTorch:DefaultDataGenerator", "config": [{"input": [{"args": args}], **more}]}
    }
    return PARAM.read(Path("c.json"), data, seed)


def entry_of(args: list[Any], **more: Any) -> Entry:
    found = read(args, **more)
    assert found.problems == ()
    return found.entries[0]


def tensor(*shape: int, dtype: str = "float", **more: Any) -> dict[str, Any]:
    return {"type": "tensor", "dtype": dtype, "shape": list(shape), **more}


@pytest.mark.parametrize(
    ("written", "node"),
    [
        ({"type": "int", "value": -3}, -3),
        ({"type": "long", "value": 8328}, 8328),
        ({"type": "int", "value": 2.5}, 2.5),  # as PARAM's own test of torch.mul has it
        ({"type": "float", "value": 1.5}, 1.5),
        ({"type": "float", "value": 1}, 1.0),
        ({"type": "double", "value": 3.4}, 3.4),
        ({"type": "bool", "value": False}, False),
        ({"type": "none"}, None),
        ({"type": "str", "value": "mean"}, "mean"),
        ({"type": "str"}, ""),
        ({"type": "str", "value": "8x64 float32"}, {"value": "8x64 float32"}),
        ({"type": "str", "value": "8x64 flaot32"}, {"value": "8x64 flaot32"}),
        ({"type": "device", "value": "cuda:0"}, "cuda:0"),
        ({"type": "genericlist", "value": []}, []),
        ({"type": "list", "value": [{"type": "int", "value": 1}]}, [1]),
        ({"type": "tuple", "value": [{"type": "int", "value": 1}, tensor(2)]}, {"tuple": [1, "2 float32 0..1"]}),
        (
            {"type": "genericlist", "value": [{"type": "tuple", "value": [{"type": "none"}]}, tensor(2, 3)]},
            [{"tuple": [None]}, "2x3 float32 0..1"],
        ),
        (tensor(), "() float32 -10..10"),
        (tensor(dtype="long"), "() int64 -10..10"),
        (tensor(dtype="uint8"), "() uint8 0..10"),
        (tensor(0, 4), "0x4 float32 0..1"),
        (tensor(4, dtype="long"), "4 int64 0..10"),
        (tensor(4, dtype="bool"), "4 bool 0..2"),
        (tensor(4, dtype="long", low=0, high=50), "4 int64 0..50"),
        (tensor(4, low=-1.5, high=2), "4 float32 -1.5..2"),
        (tensor(4, dtype="complex64"), "4 complex64 0..1"),
    ],
)
def test_every_type(written: dict[str, Any], node: Any) -> None:
    assert entry_of([written]).args == [node]
    canonical(node)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("uint8", "uint8"), ("int8", "int8"), ("int16", "int16"), ("int", "int32"), ("long", "int64"),
        ("float", "float32"), ("double", "float64"), ("float16", "float16"), ("bfloat16", "bfloat16"),
        ("bool", "bool"), ("int32", "int32"), ("int64", "int64"), ("float32", "float32"), ("half", "float16"),
        ("long int", "int64"), ("torch.float64", "float64"), ("c10::Half", "float16"), ("complex128", "complex128"),
        ("float8_e5m2", "float8_e5m2"),
    ],
)  # fmt: skip
def test_every_element_type(name: str, dtype: str) -> None:
    (node,) = entry_of([tensor(4, dtype=name)]).args or []
    assert node.split()[1] == dtype


def test_every_element_type_of_ours_goes_by_its_own_name() -> None:
    for dtype in DTYPES:
        assert str((entry_of([tensor(4, dtype=dtype)]).args or [""])[0]).split()[1] == dtype


def test_tensors_of_whole_numbers_are_noted() -> None:
    assert "0 to 9" in " ".join(read([tensor(4, dtype="long")]).notes)
    assert read([tensor(4, dtype="long", low=0, high=3), tensor(4), tensor(4, dtype="bool")]).notes == ()


def long(*shape: int, **more: Any) -> dict[str, Any]:
    return tensor(*shape, dtype="long", requires_grad=False, **more)


@pytest.mark.parametrize(
    ("name", "build", "args"),
    [
        ("torch.nn.EmbeddingBag", {"args": [number(1000), number(8)]}, [long(64), long(4)]),
        ("torch.nn.EmbeddingBag", {"args": [], "kwargs": {"num_embeddings": number(1000), "embedding_dim": number(8)}},
         [long(64), long(4)]),
        ("torch.nn.functional.embedding_bag", None, [long(64), tensor(1000, 8), long(4)]),
    ],
)  # fmt: skip
def test_embedding_of_plain_whole_numbers_says_how_to_make_indices_and_offsets(
    name: str, build: dict[str, Any] | None, args: list[dict[str, Any]]
) -> None:
    """The README's `embedding(input, offset)`; what the note says to write works."""
    config = op(args, list(args), build_data_generator=GENERATOR)
    config["config"][0] |= {"build": [build]} if build else {}
    (note,) = [note for note in PARAM.read(Path("c.json"), {name: config}, 0).notes if "offsets" in note]
    assert note.startswith(f"`{name}`: ")
    indices, offsets = (json.loads(f"{{{text}}}") for text in re.findall(r'`("low".*?)`', note))
    assert (indices, offsets) == ({"low": 0, "high": 1000}, {"low": 0, "high": 64, "values": "offsets"})
    first, *between, last = args
    config["config"][0]["input"] = [{"args": [first | indices, *between, last | offsets]}]
    found = PARAM.read(Path("c.json"), {name: config}, 0)
    assert not [note for note in found.notes if "offsets" in note]
    (result,) = run_config({name: config}, say=lambda line: None)
    assert result.error is None, result.error


RANGES = [
    {"type": "int", "value_range": [1, 10**9]},
    {"type": "float", "value_range": [0.0, 2.0]},
    {
        "type": "genericlist",
        "value": [{"type": "long", "value_range": [5, 5]}, {"type": "double", "value_range": [0, 1]}],
    },
]


def test_drawn_values_are_kept_and_noted() -> None:
    found = read(RANGES, seed=3)
    whole, real, (five, one) = found.entries[0].args or []
    assert 1 <= whole <= 10**9
    assert 0 <= real <= 2
    assert five == 5
    assert 0 <= one <= 1
    assert found.notes == ("values were drawn with seed 3; each entry holds the drawn values",)
    assert read(RANGES, seed=3) == found
    assert read(RANGES, seed=4).entries[0].args != found.entries[0].args


def test_drawn_values_do_not_depend_on_the_rest_of_the_file() -> None:
    config = {"input": [{"args": RANGES}, {"args": RANGES}]}
    alone = {"torch.f": {"config": [config]}}
    among = {"torch.e": {"config": [config]}, "torch.f": {"config": [config, config]}}
    one, many = (PARAM.read(Path("c.json"), data, 0).entries for data in (alone, among))
    assert [entry for entry in many if entry.source.startswith("c.json#torch.f|0")] == list(one)
    assert len({str(entry.args) for entry in many}) == 6


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_a_drawn_number_lies_in_its_range(a: int, b: int) -> None:
    low, high = sorted((a, b))
    (value,) = entry_of([{"type": "long", "value_range": [low, high]}]).args or []
    assert low <= value <= high


def test_gradients_are_of_the_tensors_that_want_one() -> None:
    fixed = tensor(2, requires_grad=False)
    nested = {"type": "tuple", "value": [tensor(2), fixed]}
    assert entry_of([tensor(2), fixed, nested, tensor(2, dtype="long")]).wrt == ["args.0", "args.2.0"]
    assert entry_of([tensor(2), tensor(2, requires_grad=True)]).wrt == []
    assert entry_of([tensor(2), tensor(2, dtype="long", requires_grad=False)]).wrt == []


def test_ignored_gradients_are_noted() -> None:
    found = read([tensor(2, requires_grad=False)])
    assert found.entries[0].wrt == []
    assert "requires_grad" in found.notes[0]


def test_the_gradients_are_names_that_a_case_takes() -> None:
    entry = entry_of([tensor(2), tensor(2, requires_grad=False)], op="torch.add")
    workload = Workload(1, "x", [Entry(entry.op, phases=["backward"], args=entry.args, wrt=entry.wrt)])
    assert expand(workload, find_operator)[0].wrt == ("args.0",)


def test_a_text_in_braces_is_kept() -> None:
    entry = entry_of([{"type": "str", "value": "{M}"}, {"type": "str", "value": "a {N} b"}], op="torch.add")
    (case,) = expand(Workload(1, "x", [entry]), find_operator)
    assert case.params["args"] == ["{M}", {"value": "a {N} b"}]
