"""Templates escape their values, and write invisible characters as escapes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from made_up import HOSTILE
from markupsafe import Markup

from opmark.report.html.templates import templates

TURNING = "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C, 0xFEFF]))
CONTROL = "".join(map(chr, [*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0)]))
UNSEEN = re.compile(f"[{re.escape(TURNING + CONTROL)}]")


def written(template: str, **values: object) -> str:
    return templates().from_string(template).render(**values)


def test_nothing_that_cannot_be_seen_is_written_as_it_is() -> None:
    text = written(
        '<p title="{{ evil }}">{{ evil }}{{ "a " ~ evil }}{{ evil | upper }}', evil=HOSTILE + TURNING + CONTROL
    )
    assert not UNSEEN.search(text)
    assert "<b>" not in text
    assert "\\u202e" in text
    assert "\\x1b[31m" in text


def test_lines_stay_lines_and_letters_letters() -> None:
    assert written("{{ text }}", text="été\n\tΩ ×1 日本") == "été\n\tΩ ×1 日本"


def test_markup_is_not_written_twice() -> None:
    assert written("{{ made }}", made=Markup("<b>&amp;</b>")) == "<b>&amp;</b>"
    assert (
        written("{% macro m(x) %}<i>{{ x }}</i>{% endmacro %}{{ m(evil) }}", evil="<\u202e>")
        == "<i>&lt;\\u202e&gt;</i>"
    )


def test_numbers_and_other_values_are_written_as_ever() -> None:
    found: Iterable[str] = (written("{{ x }}", x=value) for value in (1, 2.5, None, True))
    assert list(found) == ["1", "2.5", "None", "True"]
