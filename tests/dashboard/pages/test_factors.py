"""The page of a study of factors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from factor_laws import RUN, saturating, study_records
from msgspec.structs import replace
from rendered_pages import ask

from opmark.dashboard.pages import factors, run
from opmark.dashboard.reader import Reader
from opmark.errors import UserError
from opmark.schema import Run
from opmark.store.sql import open_sql

OTHER = Run("20300101-000000-00000002", "2030-01-01T00:00:00.000+00:00", "q", 1, "other")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    path: Path = tmp_path_factory.mktemp("factors") / "store.db"
    records = list(study_records(saturating))
    with closing(open_sql(path, create=True)) as store:
        for one in (RUN, OTHER):
            store.begin(replace(one, tasks=len(records)))
            for record in records:
                store.append(one.id, record)
    reader = Reader(path)
    yield reader
    reader.close()


def test_sentences_and_figures_are_on_the_page(reader: Reader) -> None:
    shown = ask(reader, factors.FACTORS_ENDPOINT, {"run": "study"})
    assert shown.answer.study.outcomes[0].effects[0].name == "size (M, N, K)"
    assert "adding threads stops paying at" in shown.html
    assert shown.html.count("<svg") == len(shown.answer.charts) > 3


def test_a_run_leads_to_its_study_if_it_is_one(reader: Reader) -> None:
    assert f"/runs/{RUN.id}/factors" in ask(reader, run.RUN_ENDPOINT, {"run": "study"}).html
    assert "/factors" not in ask(reader, run.RUN_ENDPOINT, {"run": "other"}).html


def test_another_run_is_no_study(reader: Reader) -> None:
    with pytest.raises(UserError, match="is no study of factors"):
        ask(reader, factors.FACTORS_ENDPOINT, {"run": "other"})
