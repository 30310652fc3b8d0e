"""The fixture `opmark`: measures, holds the result against a stored baseline, and passes, fails or warns."""

from __future__ import annotations

import fcntl
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from opmark.api.check import NoCommonCase, check_request
from opmark.api.requests import CheckRequest, PlanRequest, RunRequest
from opmark.api.result import open_store
from opmark.api.run import plan_request, run_request
from opmark.errors import UnknownName, UserError
from opmark.schema.comparison import CheckedCase, CheckResult
from opmark.schema.options import options_of
from opmark.schema.record import FAILED
from opmark.store.location import store_exists

PROPERTY = "opmark"
"""Name of the user property in which a test keeps its rows, so that they survive pytest-xdist."""
_DOUBTFUL = ("undecided", "unconfirmed", "missing")
_NO_OPTIONS = ("ops", "workload", "suite", "label", "db", "current", "args", "kwargs", "params")
"""Fields of a check that the plug-in fills in."""
_OPTIONS = [name for name in options_of(CheckRequest) if name not in _NO_OPTIONS]
_DEFAULTS: dict[str, Any] = {"effort": "quick", "processes": 5}
"""Quick processes, and enough of them for a verdict."""

_UNCONFIRMED = (
    "so the code or the machine may have become slower: commit the code to git and run --opmark-update there, so that "
    'the old code can be measured again; or let fail_on="slower,failed,unconfirmed" fail the test'
)


class OpmarkUndecided(UserWarning):
    """Nothing could be said of a case: there is no baseline, or the machine is too noisy."""


class OpmarkFixture:
    """Measures for one test. Keyword arguments that are options of `opmark check` are those; all others of `check` are
    parameters of the operator."""

    def __init__(self, node: pytest.Item, baseline: str, db: str | None, *, update: bool) -> None:
        self._node = node
        self._baseline = baseline
        self._db = db
        self._update = update

    def check(self, op: str, *, params: Mapping[str, Any] | None = None, **given: Any) -> CheckResult | None:
        """Fail the test if the operator is slower than its baseline beyond doubt, or fails; warn if that is undecided.

        `check("softmax", shape=[1024, 1024])`; parameters that have the name of an option go into `params`.
        """
        options = {name: value for name, value in given.items() if name in _OPTIONS}
        named = {**{name: value for name, value in given.items() if name not in _OPTIONS}, **(params or {})}
        return self._check({"ops": [op], "params": named or None, **options})

    def check_function(
        self, function: Callable[..., Any], *args: Any, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> CheckResult | None:
        """The same for a function of one's own, which has to be defined at the top of a module.

        Arguments are as opmark writes them (`"1024x1024 float32"`), or tensors and arrays, of which the shape and the
        element type are taken: opmark draws the data.
        """
        for name in options:
            if name not in _OPTIONS:
                raise TypeError(f"check_function() takes no `{name}`; arguments by name go into kwargs={{...}}")
        name, folder = _locate(function)
        call = {"args": [_described(arg) for arg in args]}
        if kwargs:
            call["kwargs"] = {key: _described(value) for key, value in kwargs.items()}  # type: ignore[assignment]
        with _importable(folder):
            return self._check({"ops": [name], **call, **options})

    def _check(self, given: dict[str, Any]) -> CheckResult | None:
        asked = {**_DEFAULTS, "baseline": self._baseline, **given}
        mistake = ""
        try:
            # Without a baseline nothing is measured, and what is wrong with the test has to show all the same.
            plan_request(
                PlanRequest(**{name: value for name, value in asked.items() if name in options_of(PlanRequest)})
            )
            with _alone():
                if self._update:
                    self._measure_baseline(asked)
                    return None
                checked = self._compare(asked)
        except UserError as error:
            mistake = str(error)
        if mistake:  # outside of `except`: pytest would show the error twice
            pytest.fail(f"opmark: {mistake}", pytrace=False)
        if checked is None:
            self._keep([_row_without(given["ops"][0], "no baseline")])
            message = f"{given['ops'][0]}: no baseline `{asked['baseline']}` has it; --opmark-update measures one"
            warnings.warn(OpmarkUndecided(message), stacklevel=3)
            return None
        self._keep([_row(finding) for finding in checked.findings])
        _judge(checked)
        return checked

    def _compare(self, asked: dict[str, Any]) -> CheckResult | None:
        """Return the verdict; None if there is no such baseline, or if it does not have the case."""
        if not _holds_runs(self._db):
            return None
        try:
            return check_request(CheckRequest(**asked, db=self._db, say=print))
        except NoCommonCase:
            return None
        except UnknownName as error:
            if error.message != f"no run named `{asked['baseline']}`":
                raise
            return None

    def _measure_baseline(self, asked: dict[str, Any]) -> None:
        """Measure and store what later sessions are held against."""
        wanted = {name: value for name, value in asked.items() if name in options_of(RunRequest)}
        result = run_request(RunRequest(**wanted, label=asked["baseline"], db=self._db, say=print))
        failed = [record for record in result.records if record.status in FAILED]
        self._keep([_row_without(asked["ops"][0], "failed" if failed else "baseline stored")])
        if failed:
            pytest.fail(f"opmark: {asked['ops'][0]} cannot be a baseline: {failed[0].reason}", pytrace=False)

    def _keep(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._node.user_properties += [(PROPERTY, dict(row)) for row in rows]


def _holds_runs(db: str | None) -> bool:
    if not store_exists(db):
        return False
    with closing(open_store(db)) as store:
        return bool(store.runs(limit=1))


def _judge(checked: CheckResult) -> None:
    lines = [_line(finding) for finding in checked.findings]
    if checked.exit_code:
        told = {finding.why for finding in checked.findings}
        notes = [note for note in checked.notes if note not in told]
        pytest.fail("opmark: " + "\n".join([*lines, *notes]), pytrace=False)
    doubtful = [_line(one) for one in checked.findings if one.outcome in _DOUBTFUL]
    if doubtful:
        warnings.warn(OpmarkUndecided("; ".join(doubtful)), stacklevel=4)


def _line(finding: CheckedCase) -> str:
    row = _row(finding)
    ratio = f": {row['ratio']:.3f} of the baseline's time" if row["ratio"] is not None else ""
    known = f" ({row['low']:.3f} to {row['high']:.3f})" if row["ratio"] is not None and row["low"] is not None else ""
    note = f" ({finding.pair.note})" if row["ratio"] is None and finding.pair.note else ""
    why = f"; {finding.why}" if finding.why else ""
    advice = f"; {_UNCONFIRMED}" if finding.outcome == "unconfirmed" else ""
    return f"{row['op']} {row['params']} on {row['where']}: {row['outcome']}{ratio}{known}{note}{why}{advice}"


def _row(finding: CheckedCase) -> dict[str, Any]:
    """Return a line of the table: plain data, since pytest-xdist sends it to another process."""
    again, pair = finding.again, finding.pair
    shown = again if again is not None and again.ratio is not None else pair
    return {
        "op": pair.op, "params": pair.params, "where": pair.where[1], "a": shown.a, "b": shown.b, "ratio": shown.ratio,
        "low": shown.low, "high": shown.high, "outcome": finding.outcome,
    }  # fmt: skip


def _row_without(op: str, outcome: str) -> dict[str, Any]:
    empty = dict.fromkeys(("a", "b", "ratio", "low", "high"))
    return {"op": op, "params": "", "where": "", **empty, "outcome": outcome}


def _locate(function: Callable[..., Any]) -> tuple[str, Path]:
    """Return the name by which workers import a function, and the folder that they find it in."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or not name or "<" in name or module == "__main__":
        raise TypeError(f"{function!r} has no name at the top of a module, so that no other process can import it")
    file = getattr(find_spec(module.partition(".")[0]), "origin", None)
    if file is None:
        raise TypeError(f"{function!r}: its module {module} lies in no file")
    top = Path(file).parent
    return f"{module}:{name}", top.parent if Path(file).name == "__init__.py" else top


def _described(value: Any) -> Any:
    """Return a tensor or an array as opmark writes it; anything else as it is."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return value
    element = str(dtype).rpartition(".")[2]  # torch.float32, or float32 of NumPy
    return f"{'x'.join(map(str, shape)) or '()'} {element}"


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let workers import from a folder, as pytest lets this process."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), before)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@contextmanager
def _alone() -> Iterator[None]:
    """Let one test of this user measure at a time, also where pytest-xdist runs several."""
    with (Path(tempfile.gettempdir()) / f"pytest-opmark-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
