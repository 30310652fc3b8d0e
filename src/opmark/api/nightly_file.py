"""Read the file of `opmark nightly`, and refuse whatever is wrong with it before anything runs."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from opmark.api.history import parse_time
from opmark.api.requests import BisectRequest, CheckRequest, HistoryRequest, RunRequest
from opmark.catalogue.workload_file import read
from opmark.errors import InvalidFile, UnknownName, UserError, nearest
from opmark.plugin.registry import backend as find_backend
from opmark.runner.executors.cluster import parse_address
from opmark.runner.guests.environments import find_environment, recipe_for
from opmark.runner.guests.placement import why_missing
from opmark.runner.selection import ALL, default_backends, select_cases
from opmark.schema import Case
from opmark.schema.codec import convert
from opmark.schema.nightly import VERSION, WHEN, NightlyFile
from opmark.schema.options import options_of, split_names
from opmark.store.location import is_server
from opmark.store.runs import check_name, names_one_of_several

_JOB_KEYS = ("name", "label", "spread", "baseline")
_SET_BY_NIGHT = ("label", "db", "resume", "part")
"""Options of a run that a night gives by itself."""
_GATE_KEYS = (
    "margin", "drift", "fail_on", "budget", "make", "against_rev", "against_python", "against_backend", "unlike",
    "allow", "timeout", "compile_timeout", "clocks",
)  # fmt: skip
_HISTORY_KEYS = ("since", "last", "margin", "quantity", "sessions")
_BISECT_KEYS = ("package", "versions", "repo", "make", "budget", "processes", "most")
_MOST_SPREAD = 366
_SHIPPED = "nightly.yaml"


@dataclass(frozen=True)
class NightlyJob:
    name: str
    label: str
    spread: int
    """Number of nights over which the cases are spread."""
    baseline: str
    """Name of a run; empty: the newest earlier run of the same label."""
    request: RunRequest
    cases: tuple[Case, ...]
    """All cases, whatever the part."""


@dataclass(frozen=True)
class NightlyPlan:
    """A file that was read, with paths that lead from everywhere."""

    path: Path
    file: NightlyFile
    folder: Path
    db: str | None
    jobs: tuple[NightlyJob, ...]
    gate: Mapping[str, Any]
    history: Mapping[str, Any]
    bisect: Mapping[str, Any]
    bisect_most: int
    """Number of cases of a run that are bisected, the slowest first."""
    url: str
    headers: Mapping[str, str]


def shipped_file() -> str:
    """Return the text of the file that ships with opmark."""
    return (files("opmark.catalogue") / _SHIPPED).read_text()


def read_nightly(path: Path, db: str | None = None) -> NightlyPlan:
    """Read a file and check all of it. `db` is a store that replaces the one of the file."""
    where = str(path)
    if not path.exists():
        raise InvalidFile(f"{where}: cannot be read: there is no such file", _EXAMPLE)
    data = read(path)
    if not isinstance(data, dict):
        got = "nothing" if data is None else f"a {type(data).__name__}"
        raise InvalidFile(f"{where}: expected a mapping with `schema` and `jobs`, got {got}", _EXAMPLE)
    if data.get("schema") != VERSION:
        raise InvalidFile(f"{where}: expected `schema: {VERSION}`, got {data.get('schema')!r}, at `$.schema`", _EXAMPLE)
    file = convert(data, NightlyFile, where)
    home = path.absolute().parent
    store = db or _expand(file.db, f"{where}: db") or None
    if store is not None and db is None and not is_server(store):
        store = str(home / Path(store).expanduser())
    _check_scalars(file, where)
    return NightlyPlan(
        path=path.absolute(),
        file=file,
        folder=home / Path(_expand(file.folder, f"{where}: folder") or f"{path.stem}-nights").expanduser(),
        db=store,
        jobs=_read_jobs(file, where, home, store),
        gate=_options(file.gate, CheckRequest, _GATE_KEYS, f"{where}: gate"),
        history=_options(file.history, HistoryRequest, _HISTORY_KEYS, f"{where}: history"),
        bisect=_options(_without_most(file.bisect), BisectRequest, _BISECT_KEYS, f"{where}: bisect"),
        bisect_most=_whole_number(file.bisect, "most", 1, f"{where}: bisect"),
        url=_expand(file.hook.url, f"{where}: hook.url"),
        headers={name: _expand(text, f"{where}: hook.headers.{name}") for name, text in file.hook.headers.items()},
    )


_EXAMPLE = "`opmark nightly --template` prints a file to begin with"


def _check_scalars(file: NightlyFile, where: str) -> None:
    if not file.label.strip() or not file.label.isprintable():
        raise InvalidFile(f"{where}: label: expected printable text, got {file.label!a}")
    _check_label(file.label, where)
    if file.catch_up < 0 or file.report.keep < 1:
        key, least = ("catch_up", 0) if file.catch_up < 0 else ("report.keep", 1)
        raise InvalidFile(f"{where}: {key}: expected a whole number of at least {least}")
    if file.hook.when not in WHEN:
        unknown = UnknownName("time for a hook", file.hook.when, WHEN)
        raise InvalidFile(f"{where}: hook.when: {unknown.message}", unknown.hint)
    if file.hook.url and not re.match(r"https?://[^/]|\$", file.hook.url):
        raise InvalidFile(
            f"{where}: hook.url: expected an address that begins with https:// or http://", "or a variable, as in $HOOK"
        )
    for name, one in file.environments.items():
        _recipe_name(name, one.install, f"{where}: environments")


def _check_label(label: str, where: str) -> None:
    """Refuse what would name one of several nights, or could not be told from that."""
    if "@" in label or names_one_of_several(label):
        raise InvalidFile(
            f"{where}: label: `{label}` reads as one of several runs",
            "choose one without @ and ~NUMBER: `LABEL@{-1}` is the night before",
        )


def _recipe_name(name: str, install: list[str], where: str) -> str:
    try:
        return recipe_for(name, install)[0]
    except UserError as error:
        raise InvalidFile(f"{where}: {error.message}", error.hint) from None


def environment_names(file: NightlyFile) -> dict[str, str]:
    """Return the names of the environments by the keys of the file: `torch==2.12.0` is `torch-2.12.0`."""
    return {key: recipe_for(key, one.install)[0] for key, one in file.environments.items()}


_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def _expand(text: str, where: str) -> str:
    """Replace `$NAME` and `${NAME}` by variables of the environment, so that no secret has to stand in the file."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in os.environ:
            raise InvalidFile(f"{where}: the variable ${name} is not set", "set it where the night is started")
        return os.environ[name]

    return _VARIABLE.sub(value, text)


def _options(given: Mapping[str, Any], request: Any, allowed: Collection[str], where: str) -> dict[str, Any]:
    """Return the options of a command that a part of the file gives. They are named and checked as they are there."""
    for key in given:
        if key not in allowed:
            raise _unknown_key(key, allowed, where)
    try:
        made = request(**given)
        if isinstance(made, HistoryRequest):
            parse_time(made.since)
    except UserError as error:
        raise InvalidFile(f"{where}: {error.message}", error.hint) from None
    return dict(given)


def _unknown_key(key: str, allowed: Collection[str], where: str) -> InvalidFile:
    near = nearest(key, allowed)
    hint = f"did you mean `{near}`?" if near else f"known keys are {', '.join(allowed)}"
    return InvalidFile(f"{where}: unknown key `{key}`", hint)


def _without_most(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key != "most"}


def _whole_number(given: Mapping[str, Any], key: str, default: int, where: str, most: int = 1000) -> int:
    value = given.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InvalidFile(f"{where}: {key}: expected a whole number from 1 to {most}, got {value!r}")
    return value


def _read_jobs(file: NightlyFile, where: str, home: Path, db: str | None) -> tuple[NightlyJob, ...]:
    if not file.jobs:
        raise InvalidFile(f"{where}: no jobs", _EXAMPLE)
    jobs = tuple(_read_job(file, job, f"{where}: jobs[{at}]", home, db) for at, job in enumerate(file.jobs))
    for what in ("name", "label"):
        named = [getattr(job, what) for job in jobs]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise InvalidFile(f"{where}: two jobs with the {what} `{twice}`", f"give each a {what} of its own")
    return jobs


def _read_job(file: NightlyFile, job: Mapping[str, Any], where: str, home: Path, db: str | None) -> NightlyJob:
    run_options = [name for name in options_of(RunRequest) if name not in _SET_BY_NIGHT]
    for key in job:
        if key not in (*_JOB_KEYS, *run_options):
            raise _unknown_key(key, (*_JOB_KEYS, *run_options), where)
    name = job.get("name", job.get("suite", ""))
    if not isinstance(name, str) or not re.fullmatch(r"[\w.+-]+", name):
        raise InvalidFile(
            f"{where}: name: expected letters, digits and - . _ +, got {name!r}",
            "every job but that of a suite needs one",
        )
    # One label per night: the label of the file alone, where the file has one job.
    label = job.get("label", file.label if len(file.jobs) == 1 else f"{file.label}/{name}")
    baseline = job.get("baseline", "")
    for key, text in (("label", label), ("baseline", baseline)):
        if not isinstance(text, str) or not text.isprintable():
            raise InvalidFile(f"{where}: {key}: expected printable text, got {text!r}")
    _check_label(label, where)
    options = {key: value for key, value in job.items() if key not in _JOB_KEYS}
    if isinstance(options.get("workload"), str):
        options["workload"] = home / Path(options["workload"]).expanduser()
    spread = _whole_number(job, "spread", 1, where, _MOST_SPREAD)
    try:
        check_name(baseline)
        request = RunRequest(**options, label=label, db=db)
        if request.executor != "local":
            parse_address(request.address)
        cases = select_cases(request, request.seed).cases
        _check_backends(file, request, cases)
    except UserError as error:
        raise InvalidFile(f"{where} ({name}): {error.message}", error.hint) from None
    return NightlyJob(name, label, spread, baseline, request, tuple(cases))


def _check_backends(file: NightlyFile, request: RunRequest, cases: list[Case]) -> None:
    """Raise UserError for a backend that is unknown, or that nothing in the file installs."""
    installed = set(environment_names(file).values())
    for name in split_names(request.backend) or default_backends(cases):
        base, _, python = name.partition("@")
        if base == ALL or set(base) & set("*?["):
            continue
        info = find_backend(base)
        if request.executor != "local":
            continue  # its nodes say what they have
        for interpreter in filter(None, (python, *split_names(request.python))):
            if interpreter not in installed and find_environment(interpreter) is None and not _is_file(interpreter):
                near = nearest(interpreter, installed)
                raise UserError(
                    f"backend `{base}`: there is no interpreter and no environment `{interpreter}`",
                    f"did you mean `{near}`?" if near else "name it under `environments`, or create it",
                )
        if not python and not request.python and info.guest not in installed and (missing := why_missing(info)):
            key = info.guest or info.framework
            raise UserError(
                f"backend `{name}` cannot run here: {missing}", f"`environments: {{{key}: {{}}}}` would install it"
            )


def _is_file(text: str) -> bool:
    return os.path.exists(os.path.expanduser(text))  # noqa: PTH110, PTH111 - any text


def request_of(job: NightlyJob, part: str) -> RunRequest:
    """Return the request of one part of a job."""
    return replace(job.request, part=part)
