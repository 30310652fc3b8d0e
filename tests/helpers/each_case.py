"""Many cases in one test: every one of them runs, and the test fails with the names of those that failed."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

CaseScope = Callable[..., AbstractContextManager[None]]


@contextmanager
def each_case() -> Iterator[CaseScope]:
    """Yields `case(*names)`, a context for one case. An error inside is kept until all cases have run.

    The catalogue has thousands of cases that take microseconds. An item of pytest for each takes far longer.
    """
    failed: list[str] = []

    @contextmanager
    def case(*names: object) -> Iterator[None]:
        try:
            yield
        # What `pytest.raises` and `pytest.fail` raise is no Exception.
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - the test fails with it, after all cases
            told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            failed.append(f"{', '.join(map(str, names))}:\n{told}")

    yield case
    if failed:
        pytest.fail(f"{len(failed)} cases failed\n\n" + "\n".join(failed), pytrace=False)
