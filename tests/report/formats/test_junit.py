"""JUnit XML and the summary for a pull request."""

from __future__ import annotations

from io import StringIO
from xml.etree import ElementTree

import pytest
from checks import checked, finding, pairing
from rich.console import Console

from opmark.report.console.comparison import checked_view, news, print_checked, verdict
from opmark.report.formats.junit import clean, junit_xml
from opmark.report.formats.markdown import summary_markdown
from opmark.schema.comparison import CheckResult


def suite(found: CheckResult) -> ElementTree.Element:
    root = ElementTree.fromstring(junit_xml(found))
    (one,) = root
    assert one.attrib == root.attrib
    return one


def test_a_case_is_a_test_with_what_became_of_it() -> None:
    again = pairing(ratio=1.09)
    found = checked(
        finding("slower", "a", again=again, why="measured again"), finding("failed", "b"), finding("same", "c"),
        finding("undecided", "d"), finding("cleared", "e", again=pairing(ratio=1.0, verdict="same")),
        finding("faster", "f"), finding("broken", "g"), missing=("h 4x8 float32 (torch-cpu ×2)",),
    )  # fmt: skip
    tests = suite(found)
    assert {name: tests.attrib[name] for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "8", "failures": "1", "errors": "1", "skipped": "3",
    }  # fmt: skip
    kinds = {case.attrib["classname"]: [child.tag for child in case] for case in tests.iter("testcase")}
    assert kinds == {
        "a": ["failure"], "b": ["error"], "c": [], "d": ["skipped"], "e": ["system-out"], "f": ["system-out"],
        "g": ["skipped"], "h": ["skipped"],
    }  # fmt: skip
    failure = tests.find("testcase/failure")
    assert failure is not None
    assert failure.attrib["type"] == "slower"
    assert failure.attrib["message"].startswith("slower: 1.100x (1.090–1.110), 1.00 ms -> 1.10 ms")
    assert (failure.text or "").splitlines()[1:] == [
        "again: 1.090x (1.080–1.100), 1.00 ms -> 1.09 ms",
        "measured again",
    ]
    first = next(tests.iter("testcase"))
    assert first.attrib["name"] == "a 4x8 float32 forward torch-cpu ×2 latency warm"
    assert float(first.attrib["time"]) == pytest.approx(1.1e-3)
    properties = {one.attrib["name"]: one.attrib["value"] for one in tests.iter("property")}
    assert properties["baseline"] == "main (20300101-000000-aaaa)"


@pytest.mark.parametrize(
    ("outcome", "fail_on", "kind"),
    [("undecided", ("undecided",), "failure"), ("missing", ("missing",), "failure"), ("slower", (), ""),
     ("failed", (), "skipped"), ("failed", ("failed",), "error")],
)  # fmt: skip
def test_what_fails_the_build_is_what_was_asked_for(outcome: str, fail_on: tuple[str, ...], kind: str) -> None:
    found = checked(finding(outcome, "a"), fail_on=fail_on)  # type: ignore[arg-type]
    (case,) = suite(found).iter("testcase")
    assert [child.tag for child in case] == ([kind] if kind else ["system-out"])
    assert found.exit_code == (1 if fail_on else 0)


def test_missing_cases_fail_where_they_are_to() -> None:
    found = checked(finding("same"), missing=("x",), fail_on=("missing",))
    assert found.exit_code == 1
    assert suite(found).attrib["failures"] == "1"


HOSTILE = "a<b>&\"'\x00\x1b]]>\ud800\ufffe\n\t"


def test_names_that_xml_cannot_hold_are_still_read_back() -> None:
    found = checked(finding("slower", HOSTILE, why=HOSTILE), missing=(HOSTILE,), notes=(HOSTILE,))
    text = junit_xml(found)
    text.encode()
    tests = ElementTree.fromstring(text.encode())
    names = [case.attrib["classname"] for case in tests.iter("testcase")]
    assert names[0] == "a<b>&\"'\\u0000\\u001b]]>\\ud800\\ufffe\n\t"
    assert clean("plain ×2 – 日本 😀") == "plain ×2 – 日本 😀"


def test_an_improvement_never_fails() -> None:
    found = checked(finding("faster"), finding("mended"), finding("cleared"),
                    fail_on=("slower", "failed", "missing", "undecided"))  # fmt: skip
    assert found.exit_code == 0
    assert verdict(found).startswith("passed: 1 cleared, 1 faster, 1 mended")


def test_the_verdict_is_one_line() -> None:
    assert verdict(checked(finding("slower"), finding("same"))) == (
        "FAILED: 1 slower, 1 same; geometric mean 1.050x over 2 cases (fails on slower, failed; margin 3.0 %)"
    )
    assert verdict(checked(finding("slower"), fail_on=())).startswith("passed: 1 slower")
    assert "(fails on nothing;" in verdict(checked(finding("slower"), fail_on=()))


def test_news_are_in_the_order_of_their_gravity() -> None:
    found = checked(*(finding(one, one) for one in ("same", "faster", "cleared", "failed", "broken", "slower")))  # type: ignore[arg-type]
    assert [one.outcome for one in news(found)] == ["slower", "failed", "cleared", "faster"]


def printed(found: CheckResult) -> list[str]:
    out = Console(file=StringIO(), width=1000, highlight=False)
    print_checked(found, out)
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_the_table_shows_both_looks() -> None:
    again = pairing(ratio=1.09)
    text = printed(
        checked(finding("slower", "a", again=again), finding("same", "b"), notes=("in turns",), missing=("x",))
    )
    assert text[3].split("  ")[-1] == "again 1.090x (1.080–1.100): slower"
    assert text[4:6] == ["in turns", "1 case of the baseline not measured now: x"]
    assert text[-1].startswith("FAILED: 1 slower, 1 missing, 1 same")
    assert not any(line.startswith("b ") for line in text)


def test_plain_data_says_how_it_ends() -> None:
    plain = checked_view(checked(finding("slower")))
    assert (plain["counts"], plain["failing"], plain["exit"]) == ({"slower": 1}, 1, 1)


def test_the_summary_is_short_and_the_rest_is_folded_away() -> None:
    text = summary_markdown(
        checked(finding("slower", "a"), finding("undecided", "b"), finding("same", "c"), notes=("n",))
    )
    shown, _, folded = text.partition("<details>")
    assert shown.startswith("### ❌ opmark: FAILED: 1 slower, 1 undecided, 1 same;")
    assert "| a |" in shown
    assert "| b |" not in shown
    assert "- n" in shown
    assert "| b |" in folded
    assert "| c |" not in text
    assert folded.endswith("</details>\n")
    assert "B/A above 1 is slower" in folded
    assert "measure in turns" not in text, "the check has done that where it matters"
    passed = summary_markdown(checked(finding("same")))
    assert passed.startswith("### ✅ opmark: passed: 1 same;")
    assert "B/A above 1" not in passed, "nothing is shown that it would explain"


def test_a_hostile_name_is_text_in_the_summary() -> None:
    text = summary_markdown(checked(finding("slower", "<img src=x>|`a`\n# b"), notes=("</details><b>",)))
    assert "<img" not in text
    assert "- &lt;/details&gt;&lt;b&gt;" in text
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 3


def test_a_table_of_a_pull_request_ends_somewhere() -> None:
    text = summary_markdown(
        checked(*(finding("slower", f"op{n}") for n in range(60)), *(finding("undecided") for _ in range(70)))
    )
    assert "and 10 more" in text
    assert "and 20 more" in text
