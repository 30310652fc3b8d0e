"""What errors say, and what was probably meant."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark import errors
from opmark.errors import (
    InvalidFile,
    InvalidParameter,
    OpmarkError,
    OutOfMemory,
    StoreError,
    TaskError,
    TimerFailed,
    UnknownName,
    Unsupported,
    UserError,
    WrongResult,
    nearest,
)

KNOWN = ["matmul", "batched_matmul", "softmax", "layer_norm", "Convolution"]


def test_an_error_is_its_message_and_then_its_hint():
    error = OpmarkError("it is broken", "mend it")
    assert (error.message, error.hint, str(error)) == ("it is broken", "mend it", "it is broken\nhint: mend it")


def test_an_error_without_a_hint_is_its_message():
    assert str(OpmarkError("it is broken")) == "it is broken"


@pytest.mark.parametrize("kind", [UnknownName, InvalidFile, InvalidParameter, StoreError])
def test_mistakes_of_a_user_are_apart_from_failures_of_a_task(kind):
    assert issubclass(kind, UserError)
    assert not issubclass(kind, TaskError)


@pytest.mark.parametrize("kind", [OutOfMemory, TimerFailed, Unsupported, WrongResult])
def test_failures_of_a_task_are_apart_from_mistakes_of_a_user(kind):
    assert issubclass(kind, TaskError)
    assert not issubclass(kind, UserError)


def test_the_tree_in_the_description_has_every_error():
    classes = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, OpmarkError)]
    missing = [item.__name__ for item in classes if item.__name__ not in (errors.__doc__ or "")]
    assert len(classes) >= 9
    assert missing == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("matmull", "matmul"),
        ("MATMUL", "matmul"),
        ("sofmax", "softmax"),
        ("layernorm", "layer_norm"),
        ("convolution", "Convolution"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_the_one_that_was_probably_meant(name, expected):
    assert nearest(name, KNOWN) == expected


def test_nothing_is_near_where_nothing_is_known():
    assert nearest("matmul", []) is None


@given(st.lists(st.text(string.ascii_lowercase, min_size=1), min_size=1, unique=True), st.data())
@settings(deadline=None)
def test_a_known_name_in_other_letters_is_always_found(known, data):
    name = data.draw(st.sampled_from(known))
    assert nearest(name.upper(), known) == name


def test_an_unknown_name_says_what_was_looked_for_and_what_was_meant():
    error = UnknownName("operator", "matmull", KNOWN, "opmark list ops")
    assert error.message == "no operator named `matmull`"
    assert error.hint == "did you mean `matmul`? `opmark list ops` lists them all"


def test_a_name_like_none_known_is_pointed_to_the_list():
    assert UnknownName("operator", "zzz", KNOWN, "opmark list ops").hint == "`opmark list ops` lists them all"


def test_a_few_names_are_simply_listed():
    assert UnknownName("phase", "zzz", iter(["forward", "backward"])).hint == "known: forward, backward"


def test_a_few_names_are_not_listed_where_one_is_near():
    assert UnknownName("phase", "forwrd", ["forward", "backward"]).hint == "did you mean `forward`?"


def test_many_names_are_not_listed():
    assert UnknownName("run", "zzz", [f"name{i}" for i in range(50)]).hint is None


def test_nothing_known_has_no_hint():
    assert UnknownName("run", "zzz", []).hint is None
