"""Cases too large to check: made smaller, and still the same thing."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from each_case import each_case
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opmark.plugin import Operator, ParamRule
from opmark.plugin.operator import rules_allow
from opmark.plugin.param import dtype, flag, integer, real, shape, size
from opmark.plugin.registry import catalogue
from opmark.plugin.registry import operator as find
from opmark.schema import Cost, TensorSpec
from opmark.worker.verify.outputs import MAX_FLOPS, MAX_VERIFIED_ELEMENTS, scale_down, too_large

TOY = Operator(
    name="toy",
    summary="for tests",
    category="test",
    params=(
        size("n", "elements"),
        shape("rows", "others", [1]),
        integer("axis", "no size", 1 << 30),
        integer("count", "no size either", 1 << 30, kind="count"),
        real("eps", "small", 1e9),
        flag("on", "or off", default=True),
        dtype("float32", "float16"),
    ),
    inputs=lambda p: {"x": TensorSpec((p["n"], *p["rows"]), p["dtype"])},
    cost=lambda p: Cost(p["n"], 0, 0),
    reference=lambda p, x: x,
    presets={},
    implementations=(),
)


def scaled(operator: Operator, **given) -> dict:
    return scale_down(operator, operator.complete(given))


def test_a_small_case_is_left_alone():
    params = TOY.complete({"n": MAX_VERIFIED_ELEMENTS})
    assert not too_large(TOY, params)
    assert scale_down(TOY, params) == params


def test_sizes_are_halved_until_it_is_small_enough_and_no_further():
    assert scaled(TOY, n=MAX_VERIFIED_ELEMENTS + 1)["n"] == MAX_VERIFIED_ELEMENTS // 2
    assert scaled(TOY, n=8 * MAX_VERIFIED_ELEMENTS)["n"] == MAX_VERIFIED_ELEMENTS


def test_the_largest_size_is_halved_first():
    found = scaled(TOY, n=8 * MAX_VERIFIED_ELEMENTS // 64, rows=[4, 16])
    assert (found["n"], found["rows"]) == (MAX_VERIFIED_ELEMENTS // 64, [4, 16])


def test_every_size_of_a_shape_counts():
    assert scaled(TOY, n=1, rows=[2, 4 * MAX_VERIFIED_ELEMENTS, 3])["rows"] == [2, MAX_VERIFIED_ELEMENTS // 8, 3]


def test_everything_but_sizes_is_kept():
    before = TOY.complete({"n": 1 << 40, "dtype": "float16"})
    after = scale_down(TOY, before)
    for name in ("axis", "count", "eps", "on", "dtype", "rows"):
        assert after[name] == before[name]
    assert list(after) == list(before)


def test_what_was_given_is_not_changed():
    before = TOY.complete({"n": 4, "rows": [1 << 30, 2]})
    scale_down(TOY, before)
    assert before["rows"] == [1 << 30, 2]


@pytest.mark.parametrize(
    ("flops", "written", "large"),
    [
        (MAX_FLOPS, 0, False),
        (MAX_FLOPS + 1, 0, True),
        (0, 4 * MAX_VERIFIED_ELEMENTS - 4, False),
        (0, 4 * MAX_VERIFIED_ELEMENTS, True),
    ],
)
def test_work_and_output_count_like_input(flops, written, large):
    operator = replace(TOY, cost=lambda p: Cost(flops, 0, written))
    assert too_large(operator, operator.complete({"n": 1})) is large


def test_all_inputs_count_together():
    two = replace(TOY, inputs=lambda p: {name: TensorSpec((p["n"],), "float32") for name in "xy"})
    assert not too_large(two, two.complete({"n": MAX_VERIFIED_ELEMENTS // 2}))
    assert too_large(two, two.complete({"n": MAX_VERIFIED_ELEMENTS // 2 + 1}))


def test_a_size_that_a_rule_holds_is_left_and_another_one_goes():
    held = replace(TOY, rules=(ParamRule("n", "be that", lambda p: p["n"] == MAX_VERIFIED_ELEMENTS),))
    found = scaled(held, n=MAX_VERIFIED_ELEMENTS, rows=[64])
    assert (found["n"], found["rows"]) == (MAX_VERIFIED_ELEMENTS, [1])


def test_what_makes_the_work_no_less_is_left():
    """As the stride of a convolution: half of it would be more to compute."""
    strided = replace(TOY, inputs=lambda p: {"x": TensorSpec((p["n"] // p["rows"][0],), "float32")})
    found = scaled(strided, n=64 * MAX_VERIFIED_ELEMENTS, rows=[16])
    assert (found["n"], found["rows"]) == (16 * MAX_VERIFIED_ELEMENTS, [16])


def test_a_case_that_cannot_shrink_ends_as_it_is():
    held = replace(TOY, rules=(ParamRule("n", "be that", lambda p: p["n"] == 1 << 40),))
    assert scaled(held, n=1 << 40)["n"] == 1 << 40


def test_sizes_that_a_rule_ties_together_shrink_together():
    # A causal attention over 64k tokens: neither length may be halved alone, and in full it takes 30 GB to check.
    attention = find("scaled_dot_product_attention")
    found = scaled(attention, batch=1, heads=32, q_len=65536, kv_len=65536, head_dim=128, causal=True)
    assert not too_large(attention, found)
    assert found["q_len"] == found["kv_len"]
    assert found["causal"] is True


def test_a_shrunken_attention_keeps_heads_worth_the_name():
    # Shrinking everything but the length would check one head of two elements.
    attention = find("scaled_dot_product_attention")
    found = scaled(attention, batch=1, heads=32, q_len=8192, kv_len=8192, head_dim=128, causal=True)
    assert found["head_dim"] >= 16


def test_grouped_heads_stay_grouped():
    attention = find("scaled_dot_product_attention")
    found = scaled(attention, batch=8, heads=32, kv_heads=8, q_len=2048, kv_len=2048, head_dim=128)
    assert not too_large(attention, found)
    assert found["kv_heads"] == 8
    assert found["heads"] % 8 == 0


def test_a_depthwise_convolution_stays_one():
    # The same options: frameworks have kernels of their own for as many groups as channels.
    convolution = find("conv2d")
    found = scaled(convolution, batch=32, in_channels=512, out_channels=512, groups=512, image=[56, 56])
    assert not too_large(convolution, found)
    assert found["groups"] == found["in_channels"] == found["out_channels"]


def test_steps_of_a_convolution_are_kept():
    convolution = find("conv2d")
    given = {"kernel": [7, 5], "stride": 3, "dilation": 2, "padding": 4}
    found = scaled(convolution, batch=64, in_channels=3, out_channels=64, image=[512, 512], **given)
    assert not too_large(convolution, found)
    assert {name: found[name] for name in given} == given


SHIPPED = [op for op in catalogue().values() if op.cost.__module__.startswith("opmark.catalogue.operators.")]
DTYPES = ("float64", "float32", "float16", "bfloat16", "int8")


def test_the_large_preset_of_every_operator_becomes_small_enough():
    with each_case() as case:
        for operator, name in product(SHIPPED, DTYPES):
            with case(operator.name, name):
                check_large_preset_becomes_small_enough(operator, name)


def check_large_preset_becomes_small_enough(operator, name):
    if "dtype" not in operator.by_name or name not in operator.by_name["dtype"].choices:
        return
    before = operator.complete({**operator.preset("large"), "dtype": name})
    if not rules_allow(operator, before):
        return  # not every size goes with every element type
    after = scale_down(operator, before)
    assert not too_large(operator, after)
    operator.check_rules(after)
    assert operator.complete({key: operator.param(key).check(value) for key, value in after.items()}) == after
    unchanged = [p.name for p in operator.params if p.kind not in ("size", "bytes", "shape", "count", "counts")]
    assert all(after.get(key) == before.get(key) for key in unchanged)


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_whatever_is_allowed_stays_allowed_and_becomes_small_enough(data):
    operator = data.draw(st.sampled_from(SHIPPED))
    preset = dict(operator.preset("large"))
    for name, value in preset.items():
        if operator.param(name).kind == "size":
            preset[name] = value * data.draw(st.sampled_from([1, 2, 3, 16]))
        elif operator.param(name).is_shape:
            preset[name] = [n * data.draw(st.sampled_from([1, 2, 3, 16])) for n in value]
    params = operator.complete(preset)
    assume(rules_allow(operator, params))
    found = scale_down(operator, params)
    operator.check_rules(found)
    assert not too_large(operator, found)
    assert all(isinstance(found[name], type(value)) for name, value in params.items())
