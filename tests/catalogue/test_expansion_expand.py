"""Expansion of axes to cases: lists multiply, dotted keys zip, errors name their place."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replace_fields

from opmark.catalogue.expansion import expand
from opmark.catalogue.workload_file import suites
from opmark.errors import InvalidFile, UnknownName
from opmark.plugin import Operator, Param, ParamRule
from opmark.plugin.operator import resize_to_elements
from opmark.plugin.param import dtype, flag, real, shape, size
from opmark.plugin.registry import catalogue, operators_like
from opmark.plugin.registry import operator as find_shipped
from opmark.schema import Case, Cost, Entry, Workload
from opmark.schema.arguments import tensors

TOY = Operator(
    name="toy",
    summary="for tests",
    category="test",
    params=(
        size("a", "first"),
        size("b", "second", 2),
        size("c", "third", 3),
        shape("shape", "shape of x", [1]),
        real("eps", "small", 1e-5),
        flag("on", "or off"),
        dtype("float32", "float16"),
    ),
    inputs=lambda p: {},
    cost=lambda p: Cost(0, 0, 0),
    reference=lambda p: None,
    presets={"small": {"a": 1, "b": 1}, "large": {"a": 100, "shape": [9, 9]}},
    implementations=(),
    rules=(ParamRule("a", "not be 13 (got {a})", lambda p: p["a"] != 13),),
    aliases=("plaything",),
)
DEFAULTS = {"b": 2, "c": 3, "shape": [1], "eps": 1e-5, "on": False, "dtype": "float32"}


def find(name: str) -> Operator:
    if name in ("toy", "plaything"):
        return TOY
    raise UnknownName("operator", name, ["toy"], "opmark list ops")


def cases_of(*entries: Entry) -> list[Case]:
    return expand(Workload(1, "w", list(entries)), find, "w.yaml")


def points(entry: Entry, *names: str) -> list[tuple]:
    return [tuple(case.params[name] for name in names) for case in cases_of(entry)]


def complaint(*entries: Entry, where: str | None = "w.yaml") -> InvalidFile:
    with pytest.raises(InvalidFile) as caught:
        expand(Workload(1, "w", list(entries)), find, where)
    return caught.value


# Cases


def test_a_case_is_complete():
    (case,) = cases_of(Entry("toy", {"a": 7}, tags=["x", "y"]))
    assert case == Case.of("toy", {"a": 7, **DEFAULTS}, "forward", ("x", "y"))


def test_lists_multiply_with_the_last_axis_fastest():
    assert points(Entry("toy", {"a": [1, 2], "b": [5, 4]}), "a", "b") == [(1, 5), (1, 4), (2, 5), (2, 4)]


def test_dotted_keys_zip():
    assert points(Entry("toy", {"a.b": [[1, 2], [3, 4]]}), "a", "b") == [(1, 2), (3, 4)]


def test_three_names_zip_in_the_order_they_are_written():
    assert points(Entry("toy", {"c.a.b": [[1, 2, 3]]}), "a", "b", "c") == [(2, 3, 1)]


def test_a_zipped_axis_multiplies_with_the_others():
    found = points(Entry("toy", {"a.b": [[1, 2], [3, 4]], "c": [8, 9]}), "a", "b", "c")
    assert found == [(1, 2, 8), (1, 2, 9), (3, 4, 8), (3, 4, 9)]


def test_a_single_value_is_an_axis_of_one():
    assert points(Entry("toy", {"a": 4, "dtype": "float16", "on": True}), "a", "dtype", "on") == [(4, "float16", True)]


def test_a_list_of_sizes_is_one_shape_and_a_list_of_lists_an_axis():
    assert points(Entry("toy", {"a": 1, "shape": [4, 5]}), "shape") == [([4, 5],)]
    assert points(Entry("toy", {"a": 1, "shape": [[4, 5], [6]]}), "shape") == [([4, 5],), ([6],)]


def test_a_shape_may_be_zipped():
    found = points(Entry("toy", {"shape.a": [[[4, 5], 1], [[6], 2]]}), "shape", "a")
    assert found == [([4, 5], 1), ([6], 2)]


def test_a_preset_supplies_what_is_not_given_and_params_go_on_top():
    assert points(Entry("toy", sizes=["small", "large"]), "a", "b", "shape") == [(1, 1, [1]), (100, 2, [9, 9])]
    assert points(Entry("toy", {"a": [7, 8]}, ["small", "large"]), "a", "b") == [(7, 1), (8, 1), (7, 2), (8, 2)]


def test_phases_multiply_and_come_last():
    found = cases_of(Entry("toy", {"a": [1, 2]}, phases=["forward", "backward"]))
    assert [(case.params["a"], case.phase) for case in found] == [
        (1, "forward"), (1, "backward"), (2, "forward"), (2, "backward"),
    ]  # fmt: skip


def test_a_case_comes_once_with_the_tags_of_all_places_where_it_stands():
    found = cases_of(Entry("toy", {"a": [1, 2, 1]}, tags=["first"]), Entry("toy", {"a": [3, 2]}, tags=["second"]))
    assert [(case.params["a"], case.tags) for case in found] == [
        (1, ("first",)), (2, ("first", "second")), (3, ("second",)),
    ]  # fmt: skip


def test_the_same_value_written_in_two_ways_is_one_case():
    assert len(cases_of(Entry("toy", {"a": 1, "eps": [1, 1.0]}))) == 1


def test_presets_that_params_make_equal_are_one_case():
    assert len(cases_of(Entry("toy", {"a": 7, "b": 1, "shape": [1]}, ["small", "large"]))) == 1


def test_an_alias_is_the_operator_itself():
    assert cases_of(Entry("plaything", {"a": 1})) == cases_of(Entry("toy", {"a": 1}))


# Errors


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"a": [1, 0]}, "$.cases[1].params.a[1]: parameter `a`: expected a whole number of at least 1, got `0`"),
        ({"a": -1}, "$.cases[1].params.a: parameter `a`: expected a whole number of at least 1, got `-1`"),
        ({"a": [1, [2]]}, "$.cases[1].params.a[1]: parameter `a`: expected a whole number of at least 1, got `[2]`"),
        (
            {"a.b": [[1, 2], [3, 0]]},
            "$.cases[1].params.a.b[1]: parameter `b`: expected a whole number of at least 1, got `0`",
        ),
        ({"a.b": [[1, 2], [3]]}, "$.cases[1].params.a.b[1]: expected [a, b], got `[3]`"),
        ({"a.b": [[1, 2], 3]}, "$.cases[1].params.a.b[1]: expected [a, b], got `3`"),
        ({"a.b": 3}, "$.cases[1].params.a.b: expected a list of [a, b] rows, got `3`"),
        ({"z": 3}, "$.cases[1].params.z: operator `toy` has no parameter `z`"),
        ({"a.z": [[1, 1]]}, "$.cases[1].params.a.z: operator `toy` has no parameter `z`"),
        ({"a": []}, "$.cases[1].params.a: an empty list expands to no case"),
        ({"a.b": []}, "$.cases[1].params.a.b: an empty list expands to no case"),
        ({"a": 1, "a.b": [[1, 2]]}, "$.cases[1].params: parameter `a` is on two axes"),
        ({"b": 1}, "$.cases[1].params: operator `toy` needs `a`"),
        ({"a": [1, 13]}, "$.cases[1].params: operator `toy`: parameter `a` must not be 13 (got 13)"),
    ],
)
def test_a_mistake_is_named_with_file_and_place(params, message):
    assert complaint(Entry("toy", {"a": 1}), Entry("toy", params)).message == f"w.yaml: {message}"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ([], "shape"),
        ([4, 0], "shape"),
        ([[4], [0]], "shape[1]"),
        ([[4], 4], "shape[1]"),
        ([[]], "shape[0]"),
        (4, "shape"),
    ],
)
def test_a_wrong_shape_is_named_whether_single_or_on_an_axis(value, place):
    message = complaint(Entry("toy", {"a": 1, "shape": value})).message
    assert message.startswith(f"w.yaml: $.cases[0].params.{place}: parameter `shape`: expected a list of sizes")


def test_a_name_twice_in_one_dotted_key_is_a_mistake():
    # The second would silently win, and the first column of the user's table would never be measured.
    message = complaint(Entry("toy", {"a.a": [[1, 2]]})).message
    assert message == "w.yaml: $.cases[0].params.a.a: names one parameter twice"


def test_an_unknown_operator_is_named_with_its_place_and_the_nearest():
    error = complaint(Entry("toi"))
    assert error.message == "w.yaml: $.cases[0].op: no operator named `toi`"
    assert error.hint == "did you mean `toy`? `opmark list ops` lists them all"


def test_an_unknown_size_is_named_with_its_place_and_the_nearest():
    error = complaint(Entry("toy", sizes=["small", "larg"]))
    assert error.message == "w.yaml: $.cases[0].sizes: no size of `toy` named `larg`"
    assert "did you mean `large`?" in error.hint


def test_the_hint_of_a_parameter_is_kept():
    assert complaint(Entry("toy", {"a": 1, "dtype": "float23"})).hint == "did you mean `float32`?"


def test_no_phase_is_no_case():
    assert complaint(Entry("toy", {"a": 1}, phases=[])).message == "w.yaml: $.cases[0].phases: expands to no case"


def test_a_workload_without_entries_expands_to_no_case():
    error = complaint()
    assert error.message == "w.yaml: expands to no case"
    assert "at least one entry" in error.hint


def test_where_no_file_is_there_is_no_place_to_name():
    assert complaint(Entry("toy", {"z": 1}), where=None).message == "operator `toy` has no parameter `z`"


# Laws

values = st.lists(st.integers(1, 6), min_size=1, max_size=5)
rows = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)).map(list), min_size=1, max_size=5)
shapes = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3)
axes = st.one_of(
    st.fixed_dictionaries({"a": values}, optional={"b": values, "c": values, "shape": shapes}),
    st.fixed_dictionaries({"a.c": rows}, optional={"b": values, "shape": shapes}),
)
phases = st.sampled_from([["forward"], ["backward"], ["forward", "backward"]])


def distinct(axis: list) -> int:
    return len({str(value) for value in axis})


@given(axes, phases)
@settings(deadline=None)
def test_there_are_as_many_cases_as_the_product_of_the_axes(params, phases):
    found = cases_of(Entry("toy", params, phases=phases))
    assert len(found) == prod(distinct(axis) for axis in params.values()) * len(phases)


@given(axes, phases)
@settings(deadline=None)
def test_every_point_of_the_axes_is_there(params, phases):
    found = {
        tuple(str(case.params[name]) for name in ("a", "b", "c", "shape")) for case in cases_of(Entry("toy", params))
    }
    for point in product(*params.values()):
        given = dict(DEFAULTS)
        for key, value in zip(params, point, strict=True):
            given.update(zip(key.split("."), value, strict=True) if "." in key else [(key, value)])
        assert tuple(str(given[name]) for name in ("a", "b", "c", "shape")) in found


@given(axes, phases)
@settings(deadline=None)
def test_every_case_is_complete_and_its_id_is_its_own(params, phases):
    found = cases_of(Entry("toy", params, phases=phases))
    assert all(list(case.params) == [param.name for param in TOY.params] for case in found)
    assert all(case.id == Case.of("toy", case.params, case.phase).id for case in found)
    assert len({case.id for case in found}) == len(found)


@given(axes, phases)
@settings(deadline=None)
def test_expansion_is_deterministic(params, phases):
    entry = Entry("toy", params, phases=phases)
    assert cases_of(entry) == cases_of(entry)


@given(axes, phases)
@settings(deadline=None)
def test_saying_it_twice_changes_only_the_count(params, phases):
    entry = Entry("toy", params, phases=phases)
    once = cases_of(entry)
    assert cases_of(entry, entry) == [replace_fields(case, count=2 * case.count) for case in once]


def test_counts_of_two_mentions_add_up_and_are_no_part_of_the_id():
    one, other = Entry("toy", {"a": 1, "b": 2}, count=3), Entry("toy", {"a": 1, "b": 2}, count=4)
    (case,) = cases_of(one, other)
    assert case.count == 7
    assert case.id == cases_of(Entry("toy", {"a": 1, "b": 2}))[0].id


def test_the_duration_of_two_mentions_is_that_of_all_calls_that_have_one():
    params = {"a": 1, "b": 2}
    one, other = Entry("toy", params, count=3, duration=1e-3), Entry("toy", params, count=1, duration=5e-3)
    assert cases_of(one, other)[0].duration == pytest.approx(2e-3)
    assert cases_of(one, Entry("toy", params, count=7))[0].duration == pytest.approx(1e-3)
    assert cases_of(Entry("toy", params), Entry("toy", params))[0].duration is None


@pytest.mark.serial
def test_a_hundred_thousand_cases_take_little_more_than_making_them():
    numbers = list(range(1, 101))
    entry = Entry("toy", {"b": numbers, "c": numbers, "a": list(range(20, 30))})
    start = process_time()
    found = cases_of(entry)
    expanding = process_time() - start
    start = process_time()
    made = [Case.of("toy", dict(case.params), "forward") for case in found]
    making = process_time() - start
    assert len(made) == len(found) == 100_000
    assert expanding < 3 * making


# Suites


def without_database() -> list[Workload]:
    """Leave out entries of torch's operator database, which other tests read."""
    return [workload for workload in suites() if not any(entry.op.startswith("opinfo:") for entry in workload.cases)]


@pytest.mark.parametrize("workload", without_database(), ids=lambda workload: workload.name)
def test_every_suite_expands_and_says_what_it_is_for(workload):
    found = {case.op for case in expand(workload, find_shipped, workload.name, operators_like)}
    plain = {find_shipped(entry.op).name for entry in workload.cases if not set(entry.op) & set("*?[")}
    matched = {find_shipped(name).name for entry in workload.cases for name in operators_like(entry.op)}
    assert plain <= found <= matched
    assert workload.description


def test_the_quick_suite_is_short_and_touches_every_basic_kind():
    (quick,) = (workload for workload in suites() if workload.name == "quick")
    found = {case.op for case in expand(quick, find_shipped)}
    assert {"copy", "add", "matmul", "softmax", "layer_norm", "reduce_sum", "embedding", "conv2d"} <= found
    assert len(found) < 40
    assert "fault" not in found


# Callables: free parameters, used in the arguments.

PARTS = tuple(Param(name, "arguments", "of a call", None) for name in ("args", "kwargs", "build"))
CALLED = replace(TOY, name="torch.toy", params=PARTS, rules=(), presets={}, foreign=True, inputs=lambda p: {
    **dict(tensors(p["args"], "args")), **dict(tensors(p["kwargs"], "kwargs")),
})  # fmt: skip


def find_called(name: str) -> Operator:
    return {"toy": TOY, "torch.toy": CALLED}[name]


def called(**fields: Any) -> list[Case]:
    return expand(Workload(1, "w", [Entry("torch.toy", **fields)]), find_called, "my.yaml")


def test_the_arguments_of_a_callable_are_its_parameters_in_one_spelling():
    (case,) = called(args=["8x64  float32", {"shape": [2], "dtype": "int8"}, 3], kwargs={"dim": -1})
    assert case.params == {"args": ["8x64 float32", "2 int8", 3], "kwargs": {"dim": -1}, "build": None}
    assert case == called(args=["8x64 float32 -1..1", "2 int8", 3], kwargs={"dim": -1})[0]


def test_names_in_the_arguments_multiply_as_axes_do():
    cases = called(params={"n": [8, 16], "dt": ["float32", "int8"]}, args=["{n}x4 {dt}", "{n}"])
    assert [case.params["args"] for case in cases] == [
        ["8x4 float32", 8], ["8x4 int8", 8], ["16x4 float32", 16], ["16x4 int8", 16],
    ]  # fmt: skip


def test_names_that_change_together_are_joined_by_a_dot():
    cases = called(params={"m.n": [[1, 2], [3, 4]]}, args=["{m}x{n} float32"])
    assert [case.params["args"] for case in cases] == [["1x2 float32"], ["3x4 float32"]]


def test_a_shape_is_a_value_where_it_stands_in_a_list_of_them():
    cases = called(params={"shape": [[2, 3], [4]]}, args=["{shape} float32"])
    assert [case.params["args"] for case in cases] == [["2x3 float32"], ["4 float32"]]


def test_names_are_filled_into_what_a_class_is_built_with():
    (case,) = called(params={"n": 4}, args=["2x{n} float32"], build={"args": ["{n}", 3]})
    assert case.params["build"] == {"args": [4, 3]}


def test_a_callable_may_take_arguments_by_name_only_or_be_built_only():
    assert called(kwargs={"x": "4 float32"})[0].params["args"] == []
    assert called(build=[3])[0].params["kwargs"] == {}


def test_phases_tags_and_gradients_of_a_callable_arrive():
    forward, backward = called(args=["4 float32"], phases=["forward", "backward"], tags=["t"], wrt=["args.0"])
    assert (forward.phase, forward.wrt, forward.tags) == ("forward", (), ("t",))
    assert (backward.phase, backward.wrt, backward.tags) == ("backward", ("args.0",), ("t",))


@pytest.mark.parametrize(
    ("fields", "message", "place"),
    [
        ({}, "is a callable and needs arguments", "$.cases[0]"),
        ({"args": ["4 float32"], "sizes": ["small"]}, "has no sizes", "$.cases[0].sizes"),
        ({"args": ["4 float31"]}, "expected an element type, got `float31`", "$.cases[0]"),
        ({"args": ["{n} float32"]}, "`{n}` stands for a parameter that has no value", "$.cases[0]"),
        ({"args": ["{n} float32"], "params": {"n": []}}, "an empty list expands to no case", "$.cases[0].params.n"),
        ({"args": ["4 float32"], "params": {"a.b": [[1]]}}, "", "$.cases[0].params.a.b"),
        ({"args": ["4 float32"], "params": {"a": 1, "a.b": [[1, 2]]}}, "", "$.cases[0].params"),
        (
            {"args": ["{a}x{b} float32"], "params": {"a": [1] * 1001, "b": [1] * 1000}},
            "expands to 1001000 cases",
            "$.cases[0]",
        ),
        ({"args": ["4 float32"], "params": {"a": 1}}, "parameter `a` is used in no argument", "$.cases[0].params"),
        ({"args": ["4 float32"], "phases": []}, "expands to no case", "$.cases[0].phases"),
        ({"args": ["4 float32"], "phases": ["backward"], "wrt": ["args.1"]}, "args.1", "$.cases[0]"),
        ({"args": ["4 float32"], "build": {"features": 3}}, "features", "$.cases[0].build"),
    ],
)
def test_a_mistake_in_a_call_is_named_with_its_place(fields, message, place):
    with pytest.raises(InvalidFile) as caught:
        called(**fields)
    assert message in caught.value.message
    assert place in caught.value.message
    assert "my.yaml" in caught.value.message


@pytest.mark.parametrize("fields", [{"args": []}, {"kwargs": {}}, {"build": []}])
def test_an_operator_of_the_catalogue_is_not_called(fields):
    with pytest.raises(InvalidFile) as caught:
        expand(Workload(1, "w", [Entry("toy", {"a": 1}, **fields)]), find_called, "my.yaml")
    assert "`toy` takes parameters, not args, kwargs or build" in caught.value.message
    assert "opmark describe toy" in str(caught.value.hint)


# Patterns.


def test_a_pattern_is_one_entry_for_each_that_it_matches_each_once():
    asked: list[str] = []

    def match(name: str) -> list[str]:
        asked.append(name)
        return ["toy", "plaything", "toy"]

    workload = Workload(1, "w", [Entry("t*", {"a": [1, 2]})])
    cases = expand(workload, lambda name: TOY, match=match)
    assert asked == ["t*"]
    assert [(case.op, case.params["a"]) for case in cases] == [("toy", 1), ("toy", 2)]


def test_a_pattern_that_matches_nothing_is_named_with_its_place():
    def match(name: str) -> list[str]:
        raise UnknownName("operator like", name, ["toy"])

    with pytest.raises(InvalidFile, match=r"my\.yaml.*tyo\*.*\$\.cases\[1\]\.op|\$\.cases\[1\]\.op.*tyo\*"):
        expand(Workload(1, "w", [Entry("toy", {"a": 1}), Entry("tyo*")]), find_called, "my.yaml",
               lambda name: [name] if name == "toy" else match(name))  # fmt: skip


# Over orders of magnitude


def swept(op: str, *targets: int, **fields: Any) -> list[Case]:
    return expand(Workload(1, "w", [Entry(op, elements=list(targets), **fields)]), find_shipped, "w.yaml")


def test_elements_are_the_typical_size_larger_and_smaller():
    targets = [10**3, 10**4, 10**5, 10**6, 10**7]
    cases = swept("exp", *targets)
    assert len(cases) == len(targets)
    for case, target in zip(cases, targets, strict=True):
        assert 0.25 <= target / (2 * prod(case.params["shape"])) <= 4
    assert [prod(case.params["shape"]) for case in cases] == sorted({prod(case.params["shape"]) for case in cases})


def test_a_swept_case_is_one_that_could_have_been_written_out():
    for case in swept("conv2d", 10**4, 10**6, phases=["forward", "backward"]):
        op = find_shipped("conv2d")
        op.check_rules(case.params)
        written = {key: value for key, value in case.params.items() if value != op.by_name[key].default}
        (again,) = expand(Workload(1, "w", [Entry("conv2d", written, phases=[case.phase])]), find_shipped)
        assert again.id == case.id


def test_every_operator_is_swept_to_the_sizes_that_scaling_finds():
    """This also holds for a size with a default that the presets do not mention."""
    for name, op in catalogue().items():
        if "typical" not in op.presets:
            continue
        found = resize_to_elements(op, op.complete(op.preset("typical")), 10**4)
        if found is not None:
            assert swept(name, 10**4)[0].params == found, name


def test_parameters_go_on_top_of_elements_and_phases_and_tags_arrive():
    cases = swept("exp", 10**4, params={"dtype": ["float32", "float16"]}, phases=["forward", "backward"], tags=["t"])
    assert [(case.params["dtype"], case.phase) for case in cases] == list(
        product(["float32", "float16"], ["forward", "backward"])
    )
    assert len({tuple(case.params["shape"]) for case in cases}) == 1
    assert {case.tags for case in cases} == {("t",)}


def test_two_numbers_that_are_met_by_one_size_are_one_case():
    assert len(swept("exp", 10**6, 10**6 + 1)) == 1


def test_a_number_that_an_operator_does_not_come_in_is_left_out():
    assert len(swept("matmul", 10**4, 10**14)) == 1


def test_where_it_comes_in_none_of_them_that_is_said():
    with pytest.raises(InvalidFile, match="expands to no case"):
        swept("matmul", 10**14)


def test_elements_do_not_stand_beside_sizes():
    with pytest.raises(InvalidFile, match=r"w\.yaml: \$\.cases\[0\]\.elements: cannot be combined with `sizes`"):
        swept("exp", 10**4, sizes=["small"])


def test_an_operator_without_a_typical_size_cannot_be_swept():
    with pytest.raises(InvalidFile, match=r"w\.yaml: \$\.cases\[0\]"):
        expand(Workload(1, "w", [Entry("toy", elements=[100])]), find, "w.yaml")


def test_a_callable_has_no_elements_to_sweep():
    with pytest.raises(InvalidFile, match=r"my\.yaml: \$\.cases\[0\]\.elements"):
        called(elements=[100], args=["4 float32"])


def test_a_number_of_elements_that_is_none_is_a_mistake():
    for target in (0, -5):
        with pytest.raises(InvalidFile, match=r"w\.yaml: \$\.cases\[0\]\.elements"):
            swept("exp", target)


def test_a_series_of_bytes_is_a_list_also_within_one() -> None:
    workload = Workload(1, "w", [Entry("all_reduce", {"size": ["8..32", 100, "1K..2K"]})])
    assert [case.params["size"] for case in expand(workload, find_shipped)] == [8, 16, 32, 100, 1024, 2048]
    with pytest.raises(InvalidFile, match="is empty or endless"):
        expand(Workload(1, "w", [Entry("all_reduce", {"size": ["64..8"]})]), find_shipped)
