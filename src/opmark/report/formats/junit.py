"""JUnit XML for CI systems, with a test for each case."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from opmark.report.comparison import interval, quantity, ratio, value
from opmark.report.console.comparison import verdict
from opmark.schema.comparison import CheckedCase, CheckResult

_SUITE = "opmark check"


def junit_xml(checked: CheckResult) -> str:
    """Return the XML. Confirmed slowdowns are failures, cases that fail now are errors, and unconfirmed, undecided and
    missing ones are skipped; other outcomes that fail the build are failures, too."""
    cases = [*map(_case, checked.findings, [checked] * len(checked.findings)), *_missing(checked)]
    kinds = [kind for kind, _ in cases]
    counts = (
        f'tests="{len(cases)}" failures="{kinds.count("failure")}" errors="{kinds.count("error")}" '
        f'skipped="{kinds.count("skipped")}"'
    )
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites name={_attribute(_SUITE)} {counts}>",
        f"<testsuite name={_attribute(_SUITE)} {counts}>",
        "<properties>",
        *_properties(checked),
        "</properties>",
        *(text for _, text in cases),
        "</testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def clean(text: str) -> str:
    """Replace characters that XML 1.0 does not allow, not even escaped, by their numbers."""
    return "".join(one if _is_allowed(ord(one)) else f"\\u{ord(one):04x}" for one in text)


def _is_allowed(code: int) -> bool:
    return code in (0x9, 0xA, 0xD) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


def _attribute(text: str) -> str:
    return quoteattr(clean(text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _properties(checked: CheckResult) -> Iterator[str]:
    first = checked.compared
    facts = {
        "baseline": f"{first.a} ({first.runs[0]})",
        "current": f"{first.b} ({first.runs[1]})",
        "margin": f"{first.margin:g}",
        "verdict": verdict(checked),
        **{f"note {i}": note for i, note in enumerate(checked.notes, 1)},
    }
    for name, text in facts.items():
        yield f"<property name={_attribute(name)} value={_attribute(text)}/>"


def _case(finding: CheckedCase, checked: CheckResult) -> tuple[str, str]:
    """Return the kind (failure, error, skipped or empty), and the element."""
    pair, outcome = finding.pair, finding.outcome
    name = " ".join(filter(None, (pair.op, pair.params, pair.phase, pair.where[1], quantity(pair))))
    seconds = f' time="{pair.b:.9f}"' if pair.b is not None and pair.quantity != "energy" else ""
    open_ = f"<testcase classname={_attribute(pair.op)} name={_attribute(name)}{seconds}"
    text = _describe(finding)
    if outcome in checked.fail_on:
        kind = "error" if outcome == "failed" else "failure"
    elif outcome in ("unconfirmed", "undecided", "missing", "broken", "failed"):
        kind = "skipped"
    else:
        return "", f"{open_}/>" if outcome == "same" else f"{open_}>{_output(text)}</testcase>"
    message = f"{outcome}: {text.splitlines()[0]}" if text else outcome
    kinds = f" type={_attribute(outcome)}" if kind != "skipped" else ""
    return kind, f"{open_}><{kind}{kinds} message={_attribute(message)}>{escape(clean(text))}</{kind}></testcase>"


def _output(text: str) -> str:
    return f"<system-out>{escape(clean(text))}</system-out>" if text else ""


def _describe(finding: CheckedCase) -> str:
    lines = []
    looks = (("", finding.pair), ("again: ", finding.again))
    for when, pair in looks:
        if pair is not None and pair.ratio is not None:
            known = f" ({interval(pair)})" if interval(pair) else ""
            cycles = f", in cycles {ratio(pair.cycles.ratio)}" if pair.cycles and pair.cycles.moved else ""
            times = f"{value(pair, pair.a)} -> {value(pair, pair.b)}"
            lines.append(f"{when}{ratio(pair.ratio)}{known}, {times}{cycles}")
        if pair is not None and pair.note:
            lines.append(f"{when}{pair.note}")
    return "\n".join([*lines, *filter(None, [finding.why])])


def _missing(checked: CheckResult) -> Iterator[tuple[str, str]]:
    for name in checked.missing:
        kind = "failure" if "missing" in checked.fail_on else "skipped"
        message = _attribute("missing: the baseline has it, and it was not measured now")
        classname = _attribute(name.partition(" ")[0])
        yield kind, f"<testcase classname={classname} name={_attribute(name)}><{kind} message={message}/></testcase>"
