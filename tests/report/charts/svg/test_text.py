"""Words in a picture: short, and still apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opmark.report.charts.svg.text import clean, shorten, shorten_apart, width

NAMES = [f"scaled_dot_product_attention B=4 S={size} H=32 D=128 causal=true bfloat16" for size in (1024, 2048, 4096)]


def test_names_that_would_read_the_same_keep_what_differs() -> None:
    assert len({shorten(name, 250) for name in NAMES}) == 1
    found = shorten_apart([*NAMES, "add 4"], 250)
    assert [size in name for size, name in zip(("1024", "2048", "4096"), found, strict=False)] == [True] * 3
    assert all(name.startswith("scaled") for name in found[:3])
    assert found[3] == "add 4"


def test_the_same_name_twice_stays_the_same() -> None:
    assert shorten_apart(NAMES[:1] * 2, 250) == [shorten(NAMES[0], 250)] * 2


@given(st.lists(st.text(st.sampled_from("ab =1…\u202e"), max_size=60), max_size=6))
def test_nothing_is_much_wider_than_its_room(names: list[str]) -> None:
    found = shorten_apart(names, 100)
    assert len(found) == len(names)
    assert all(width(short) <= 160 for short in found)
    assert all(short.isprintable() for short in found)
    assert all(short == clean(name) for short, name in zip(found, names, strict=True) if width(clean(name)) <= 100)
