"""A night as lines, Markdown and plain data."""

from __future__ import annotations

from opmark.report.formats.night import night_lines, night_markdown, night_view
from opmark.schema.nightly import BisectNews, CaseNews, LevelNews, Night, NightRun

SLOWER = CaseNews("exp", "8x8 float32", "backward", "torch-cpu ×2", "latency", "slower", 1.5, 1.4, 1.6)
FAILED = CaseNews("sin", "8 float32", "forward", "torch-cpu ×2", "latency", "failed", why="error: new <b>")


def night(**keys: object) -> Night:
    run = NightRun(
        "small", "nightly", "2/7", caught_up=True, run="20300102-000000-bbbb", statuses={"ok": 2}, seconds=3.0,
        baseline="20300101-000000-aaaa", verdict="failed", counts={"slower": 1, "failed": 1}, news=[SLOWER, FAILED],
        history=[LevelNews("exp", "8", "null ×2", "latency", 0.8, "20300101-000000-aaaa", {"torch": ["1", "2"]})],
        bisected=[BisectNews("exp", "8", "torch", "2.11", "2.13", ["2.12"]), BisectNews("a", "", "", "x", "y", why="z"),
                  BisectNews("b", "1", "", "x", "y", ["c1 one", "c2 two"])],
    )  # fmt: skip
    return Night("2030-01-02", "2030-01-02T00:00:00", "nightly", [run], **keys)  # type: ignore[arg-type]


def test_lines_say_what_changed_and_where_it_came_from() -> None:
    assert list(night_lines(night(missed=["2030-01-01"], problems=["hook: no answer"]))) == [
        "night of 2030-01-02: FAILED",
        "missed before: 2030-01-01",
        "problem: hook: no answer",
        "nightly part 2/7 (of a missed night): run 20300102-000000-bbbb, 2 ok in 3.0 s; failed against "
        "20300101-000000-aaaa: 1 slower, 1 failed",
        "  slower: exp 8x8 float32 backward on torch-cpu ×2: 1.500x (1.400x to 1.600x)",
        "  failed: sin 8 float32 on torch-cpu ×2: error: new <b>",
        "  history: exp 8 on null ×2 is faster (0.8000x) since 20300101-000000-aaaa; changed there: torch 1 -> 2",
        "  bisect: exp 8: slower since torch 2.12",
        "  bisect: a: nothing found: z",
        "  bisect: b 1: slower since one of 2 candidates: c1 one, c2 two",
    ]


def test_many_cases_are_counted_and_not_all_named() -> None:
    many = night()
    many.runs[0].news = [SLOWER] * 25
    assert "  and 5 more" in list(night_lines(many))


def test_markdown_is_harmless_and_says_the_verdict_first() -> None:
    text = night_markdown(night())
    assert text.startswith("### ❌ nightly: night of 2030-01-02: FAILED\n")
    assert "<b>" not in text
    calm = Night("2030-01-02", "", "nightly")
    assert night_markdown(calm).startswith("### ✅ nightly: night of 2030-01-02: passed")


def test_plain_data_has_the_verdict_and_every_number() -> None:
    found = night_view(night())
    assert (found["verdict"], found["changed"], found["label"]) == ("failed", True, "nightly")
    assert found["runs"][0]["news"][0]["ratio"] == 1.5
    assert night_view(Night("2030-01-02", "", "nightly"))["verdict"] == "passed"
