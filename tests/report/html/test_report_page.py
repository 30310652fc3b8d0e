"""The report as a page: whole, harmless, and small enough."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from handmade import GPU_FACTS, MEASURED, RUN, item, timing
from made_up import HOSTILE
from msgspec.structs import replace
from page_checks import checked
from showcase import CPU, GPU, Maker, fill, run, showcase

from opmark.analysis.rows import MachineFacts
from opmark.analysis.rows import RunView as LookedAt
from opmark.api import report
from opmark.api.report import charts_of, make_report
from opmark.errors import UserError
from opmark.report.charts.gallery import FIGURES
from opmark.report.html.items import strip, thin_out
from opmark.report.html.templates import compact
from opmark.schema import Record, Run
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "showcase.db"
    showcase(path)
    return path


def page(*names: str, db: Path, **options: object) -> str:
    made = make_report(names, db=db, **options)  # type: ignore[arg-type]
    assert isinstance(made, str)
    return made


def many(count: int) -> Iterator[Record]:
    maker = Maker(1)
    for i in range(count):
        params = {"shape": [1024 + i, 64], "dtype": ("float32", "float16")[i // 4 % 2]}
        yield maker.record(("add", "exp", "relu", "sum")[i % 4], params, "torch-cuda", GPU)


def test_what_failed_comes_before_any_number(db: Path) -> None:
    text = page("showcase", db=db)
    checked(text)
    places = [text.index(part) for part in ('id="failed-1"', 'id="numbers-1"', 'id="figures-1"', 'id="all-1"')]
    assert places == sorted(places)
    assert "RuntimeError: &lt;b&gt;broken&lt;/b&gt; &amp; gone" in text
    assert "<b>broken" not in text
    assert text.index("output 0 differs by 0.5") < text.index("not done after 60 s")
    assert re.search(r"<details class=.?skipped.?><summary>Skipped: 1 case", text)


def test_every_item_has_a_row_and_its_details(db: Path) -> None:
    text = page("showcase", db=db)
    rows = re.findall(r'<tr data-backend=[^>]*><th scope=row><a href="#(item-[0-9a-f]+)">', text)
    details = re.findall(r'<details class=item id="(item-[0-9a-f]+)">', text)
    assert sorted(rows) == sorted(details), "each quantity has a table"
    assert len(rows) == 90
    assert "device_time cold" in text
    assert "one sample took three times as long as the others" in text


def test_the_policy_lets_nothing_in_but_what_is_here(db: Path) -> None:
    text = page("one", db=db)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src &#39;none&#39;; style-src &#39;sha256-")
    assert "unsafe" not in policy
    outside = re.sub(r"http://www\.w3\.org/\S+", "", text)
    assert "http://" not in outside
    assert "https://" not in outside


def test_two_runs_begin_with_their_comparison(db: Path) -> None:
    text = page("base", "new", db=db)
    checked(text)
    assert text.index("Comparison: base → new") < text.index("Run base") < text.index("Run new")
    verdicts = re.findall(r"<tr data-verdict=(\w+)>", text)
    assert verdicts[:2] == ["slower"] * 2
    assert verdicts[-1] == "faster"
    assert "geometric mean B/A" in text
    (head,) = re.findall(r"<table id=versus-1 .*?</thead>", text)
    assert re.findall(r"<button type=button>([^<]*)", head)[:3] == ["operator", "parameters", "quantity"]
    linked = re.findall(r'<tr data-verdict=\w+><th scope=row><a href="(#item-[^"]*)">', text)
    assert len(linked) == 10


def test_with_several_runs_headings_go_deeper_and_regions_have_names_of_their_own(db: Path) -> None:
    text = page("base", "new", "showcase", db=db, unlike=True)
    assert "<figcaption><h4" in text
    for figures in re.findall(r'<h3 id="figures-\d">.*?<h3 id="all-', text, re.DOTALL):
        assert re.findall(r"<figcaption><(h\d)", figures) == ["h4"] * figures.count("<figure")
    regions = re.findall(r'role="?region"? aria-label="?([^">]*)', text)
    assert len(regions) == len(set(regions))
    assert "<th scope=row></th>" not in text
    assert not re.search(r"<th scope=row>(?=<t)", text)


def test_the_interval_of_a_mean_is_told_apart_from_how_cases_spread(db: Path) -> None:
    told = re.search(r"geometric mean B/A.*?</div>", page("base", "new", db=db), re.DOTALL)
    assert told is not None
    assert re.search(r"the interval is of the mean; single cases lie between 0\.9\d*x and 1\.\d+x", told[0])


def test_on_paper_numbers_of_small_figures_are_unfolded_and_of_large_ones_told(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr("opmark.report.html.page.print_pdf", lambda text, browser: sent.append(text) or b"%PDF-")
    make_report("showcase", db=db, format="pdf")
    printed = r"<details class=.?numbers.? open><summary>Numbers \((\d+) row", r"Its numbers are (\d+) rows: a report"
    counts, large = ([int(count) for count in re.findall(pattern, sent[0])] for pattern in printed)
    assert counts
    assert max(counts) <= 40 < min(large)
    assert not re.search("<details class=.?numbers.?>", sent[0])
    assert "<details class=numbers open" not in page("showcase", db=db)


def test_three_runs_are_held_against_the_first(db: Path) -> None:
    text = page("nightly~29", "nightly~28", "nightly~0", db=db)
    page_ = checked(text)
    assert {"comparison-1", "comparison-2", "run-1", "run-2", "run-3"} <= set(page_.ids)
    assert "nightly~29 → nightly~0" in text


def test_backends_of_one_run_are_compared_and_the_run_told_once(db: Path) -> None:
    text = page("torch-cpu", "jax-cpu", db=db, run="showcase")
    page_ = checked(text)
    assert "run-1" in page_.ids
    assert "run-2" not in page_.ids
    assert "Comparison: torch-cpu → jax-cpu" in text


def test_unlike_machines_are_refused_with_a_hint(tmp_path: Path) -> None:
    shape = {"shape": [1024]}
    runs = [run(1, "cpu", [Maker(1).record("add", shape, "torch-cpu", CPU)]),
            run(2, "gpu", [Maker(1).record("add", shape, "torch-cuda", GPU)])]  # fmt: skip
    fill(tmp_path / "two.db", runs)
    with pytest.raises(UserError) as refused:
        make_report(["cpu", "gpu"], db=tmp_path / "two.db")
    assert "--unlike" in str(refused.value.hint)


def test_environments_stand_side_by_side_and_what_differs_is_marked(db: Path) -> None:
    text = page("showcase", db=db)
    assert "torch-cuda (" in text
    assert re.search(r'<tr class="differs"><th scope="row">python <span class="muted">\(differs\)', text)
    assert re.search(r'<tr><th scope="row">opmark</th><td>0.8.0</td><td>0.8.0</td>', text)


@pytest.mark.parametrize("name", ["failures", "one"])
def test_a_run_with_little_in_it_has_a_page(db: Path, name: str) -> None:
    checked(page(name, db=db))


def test_a_run_without_records_says_so(tmp_path: Path) -> None:
    fill(tmp_path / "begun.db", [(Run("20300101-000000-00000001", "2030-01-01T00:00:00.000+00:00", "p", 7), [])])
    text = page(db=tmp_path / "begun.db")
    checked(text)
    assert "no records yet of 7 planned tasks" in text


def test_a_run_that_was_interrupted_says_how_far_it_came(tmp_path: Path) -> None:
    made, records = run(1, "half", many(2))
    fill(tmp_path / "half.db", [(replace(made, tasks=5), records)])
    assert "2 of 5 planned tasks have a record" in page(db=tmp_path / "half.db")


def test_an_empty_store_is_told_what_to_do(tmp_path: Path) -> None:
    fill(tmp_path / "empty.db", [])
    with pytest.raises(UserError, match="no run yet"):
        make_report(db=tmp_path / "empty.db")


def test_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    good, bad = list(many(2))
    broken = replace(bad, measurements=tuple(replace(m, samples=[float("nan")] * 40) for m in bad.measurements))
    fill(tmp_path / "nan.db", [run(1, "broken", [good, broken])])
    text = page(db=tmp_path / "nan.db")
    checked(text)
    assert "no number" in text
    assert not re.search(r">\s*-?(nan|inf)\b", text)


def test_nobody_gets_markup_in(tmp_path: Path) -> None:
    evil = HOSTILE + "</style></script><script>alert(1)</script>"
    record = Maker(1).failed("add", {"shape": [2]}, "torch-cpu", "error", evil)
    record = replace(record, task=replace(record.task, backend=evil, implementation=evil), notes=(evil,))
    made, records = run(1, evil, [record], command=evil, description=evil, revision=evil, version=evil)
    fill(tmp_path / "evil.db", [(made, records)])
    text = page(db=tmp_path / "evil.db", title=evil)
    page_ = checked(text)
    assert page_.tags["script"] == 2
    assert page_.tags["style"] == 1
    assert "<b>x" not in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert "alert(1)" in text


def test_two_thousand_cases_fit_into_six_megabytes(tmp_path: Path) -> None:
    fill(tmp_path / "large.db", [run(1, "large", many(2000))])
    text = page(db=tmp_path / "large.db")
    assert len(text.encode()) < 6_000_000
    assert text.count("<tr data-backend=") == 2000
    assert text.count("<svg class=strip") == 2000
    assert "left out, so that this file stays small" not in text


def test_figures_without_room_are_named(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "charts_of", lambda looked: charts_of(looked, 50))
    text = page("showcase", db=db)
    assert "left out, so that this file stays small" in text


def test_more_than_two_thousand_are_told_to_be_undrawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.report.html.page.DETAILED", 3)
    fill(tmp_path / "more.db", [run(1, "more", many(5))])
    text = page(db=tmp_path / "more.db")
    assert "Samples are drawn for the first 3 cases only; 2 more have numbers without a picture" in text
    assert text.count("<svg class=strip") == 3 * 4


def figures_of(**marks: tuple[int, ...]) -> dict[str, Any]:
    """Return the number of marks of each figure, by kind."""
    axis = Axis("", "", "linear")

    def made(kind: str, counts: tuple[int, ...]) -> list[Chart]:
        return [Chart(f"{kind}-{i}", f"{kind}-{i}", "", "plot", axis, axis, (ChartSeries("", (Mark(1, 1),) * count),))
                for i, count in enumerate(counts)]  # fmt: skip

    return {kind: lambda looked, kind=kind, counts=counts: made(kind, counts) for kind, counts in marks.items()}


def test_one_figure_of_each_kind_comes_before_a_second(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from opmark.api.items import view_run

    looked = view_run("one", db=db)
    monkeypatch.setattr(report, "FIGURES", figures_of(a=(5, 5, 5), b=(5,), c=(5, 1)))
    kept, left = charts_of(looked, 16)
    assert [chart.id for chart in kept] == ["a-0", "b-0", "c-0", "c-1"], "in the order of a page"
    assert left == ["a-1", "a-2"]
    assert charts_of(looked, 10**9)[1] == []


def test_a_large_run_on_a_device_has_a_figure_of_each_kind() -> None:
    """Each kind has a limit of its own, and the first figures of all kinds have room together."""
    sizes = [2**20 * 1.013**n for n in range(2500)]
    items = [
        item("add", n, timing(size / 1e12, "device_time", "cold"), timing(1e-6 + size / 3e12, "host_time"),
             params={"shape": [n + 1], "dtype": "float32"}, backend=backend, environment="gpu", bytes=int(size),
             flops=int(size * (1 + n % 50)), memory=int(2 * size))
        for n, size in enumerate(sizes) for backend in ("torch-cuda", "triton-cuda")
    ]  # fmt: skip
    found = LookedAt(RUN, tuple(items), {"gpu": GPU_FACTS}, {"gpu": MachineFacts(MEASURED)})
    kinds = {name: charts[0] for name, figure in FIGURES.items() if (charts := figure(found))}
    assert {"roofline", "frameworks", "overhead", "memory"} <= set(kinds)
    drawn = {chart.title for chart in charts_of(found)[0]}
    assert {chart.title for chart in kinds.values()} <= drawn


def test_what_can_be_left_out_is_and_nothing_else() -> None:
    text = '<tr><td class="n">a</td></tr><circle cx="1.5" r="2"/><a href="x y">class=&quot;n&quot;</a>'
    assert compact(text) == '<tr><td class=n>a<circle cx=1.5 r=2 /><a href="x y">class=&quot;n&quot;</a>'


def test_a_strip_keeps_its_extremes() -> None:
    values = [1.0] * 50 + [9.0] + [1.0] * 49
    assert 9.0 in thin_out(values, 10)
    assert len(thin_out(values, 10)) <= 10
    assert strip([1.0]) == ""
    assert strip([2.0, 2.0]) == ""
    assert strip([1.0, 2.0, 3.0]).count("h0") == 3


@pytest.mark.parametrize(("count", "unfolded"), [(3, True), (61, False)])
def test_on_paper_few_cases_are_unfolded_and_many_are_told_where_to_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, unfolded: bool
) -> None:
    """A list of what is folded would say again what the table says."""
    fill(tmp_path / "paper.db", [run(1, "paper", many(count))])
    sent: list[str] = []
    monkeypatch.setattr("opmark.report.html.page.print_pdf", lambda text, browser: sent.append(text) or b"%PDF-")
    make_report((), db=tmp_path / "paper.db", format="pdf")
    (text,) = sent
    checked(text)
    assert len(re.findall("<details[^>]*class=.?item", text)) == (count if unfolded else 0)
    assert len(re.findall("<details[^>]*class=.?item[^>]* open", text)) == (count if unfolded else 0)
    assert ("opmark report -o FILE.html" in text) is not unfolded
    assert text.count("<tr data-backend=") == count
