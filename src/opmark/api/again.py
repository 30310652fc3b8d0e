"""What was measured once, as a side that can be measured again: its software, and its revision."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.analysis.alike import Facts, differing, software
from opmark.api.common import DEFAULT_TIMEOUT
from opmark.errors import UserError
from opmark.guests.place import why_missing
from opmark.registry import backend as find_backend
from opmark.runner.git import commit_of, repository
from opmark.runner.origin import confirm_origin
from opmark.runner.process import WorkerDied
from opmark.runner.revision_now import CHANGED, revision_now
from opmark.runner.revisions import as_it_is, import_folders
from opmark.runner.sides import Side
from opmark.runner.supervisor import Supervisor
from opmark.runner.two_sides import side_at
from opmark.schema.differing import told
from opmark.version import VERSION


class Lost(NamedTuple):
    """It cannot be measured again."""

    why: str


class Then(NamedTuple):
    """What was measured, as it is stored."""

    name: str
    backend: str
    threads: int
    revision: str
    facts: Facts
    """Of its environment."""


@dataclass(frozen=True)
class Against:
    """What stands for the baseline, where that was said."""

    rev: str = ""
    python: str = ""
    backend: str = ""

    @property
    def said(self) -> bool:
        return bool(self.rev or self.python or self.backend)


def side_again(then: Then, ops: Sequence[str], stack: ExitStack, *, here: bool = False) -> Side | Lost:
    """`here`: the files as they are now are taken for those of its revision where both had been changed."""
    plain = _with_its_software(then)
    if isinstance(plain, Lost):
        return plain
    root = _root()
    if root is None:
        return _without_repository(then, plain, ops)
    now = replace(plain, name=then.name, folders=import_folders(root, ops), checkout=as_it_is(root))
    if not _comes_from_here(now, ops):
        return _by_this_opmark(then, plain)
    if not then.revision:
        return Lost("no git revision was stored with it")
    if then.revision == revision_now() and (here or not then.revision.endswith(CHANGED)):
        return now
    if then.revision.endswith(CHANGED):
        commit = then.revision.removesuffix(CHANGED)[:10]
        return Lost(f"files had been changed since commit {commit} when it was measured")
    try:
        return side_at(root, commit_of(root, then.revision), plain, ops, stack, shown=then.name)
    except UserError as error:
        return Lost(error.message)


def side_as_told(then: Then, against: Against, ops: Sequence[str], stack: ExitStack) -> Side:
    """The baseline, as whoever asks says that it is to be had; UserError where that is not so."""
    backend = find_backend(against.backend or then.backend).name
    if against.python:
        backend = f"{backend.partition('@')[0]}@{against.python}"
    plain = Side(then.name, backend, then.threads)
    missing = why_missing(find_backend(backend))
    if missing:
        raise UserError(
            f"{then.name} cannot be measured on {backend}: {missing}", "`opmark list backends` says what can"
        )
    if not against.rev:
        return plain
    root = repository()
    return side_at(root, commit_of(root, against.rev), plain, ops, stack, shown=against.rev)


def same_code(a: Side, b: Side) -> bool:
    """Whether both would run the very same."""
    return (a.backend, a.threads, a.environ, _commit(a)) == (b.backend, b.threads, b.environ, _commit(b))


def _commit(side: Side) -> str:
    return side.checkout.commit if side.checkout else ""


def _root() -> Path | None:
    try:
        return repository()
    except UserError:
        return None


def _comes_from_here(now: Side, ops: Sequence[str]) -> bool:
    """Whether anything that is measured is a file of this repository; else its revision says nothing."""
    try:
        confirm_origin(now, ops)
    except UserError:
        return False
    return True


def _without_repository(then: Then, plain: Side, ops: Sequence[str]) -> Side | Lost:
    """Software that is installed has a version; a file of somebody's own has none."""
    own = [op for op in ops if ":" in op and not op.startswith("opinfo:")]
    if own and not then.revision:
        return Lost(f"`{own[0]}` is no part of a git repository, so that it may have been changed since")
    if own:
        return Lost("this is not the git repository that it was measured in")
    return _by_this_opmark(then, plain)


def _by_this_opmark(then: Then, plain: Side) -> Side | Lost:
    """How an operator of the catalogue calls its framework is a part of opmark."""
    version = str(then.facts.get("opmark") or VERSION)
    return plain if version == VERSION else Lost(f"it was measured by opmark {version}, and this is {VERSION}")


def _with_its_software(then: Then) -> Side | Lost:
    """In the interpreter that its backend has now, or in the one that it had then."""
    differ = _differing(then, then.backend)
    if differ == []:
        return Side(then.name, then.backend, then.threads)
    old = str(then.facts.get("interpreter") or "")
    if old and Path(old).exists():
        named = f"{then.backend.partition('@')[0]}@{old}"
        if named != then.backend and _differing(then, named) == []:
            return Side(then.name, named, then.threads)
    return Lost(f"its software is no longer here: {'; '.join(differ)}")


def _differing(then: Then, backend: str) -> list[str]:
    """What of its software is another now; why it cannot be told, where it cannot run."""
    facts = _facts_now(backend, then.threads)
    if isinstance(facts, str):
        return [facts]
    found = differing([(then.facts, facts)])
    return [f"{fact} {text}" for fact, text in told(found, software(found))]


def _facts_now(backend: str, threads: int) -> dict[str, Any] | str:
    """Its environment, asked in a process as a worker's; or why there is none."""
    try:
        info = find_backend(backend)
        missing = why_missing(info)
    except UserError as error:
        return error.message
    if missing:
        return missing
    with closing(Supervisor(info, threads, DEFAULT_TIMEOUT, _quiet, _quiet)) as worker:
        try:
            hello = worker.start()
        except WorkerDied as death:
            return death.reason
    return hello.unavailable or hello.environment.facts


def _quiet(anything: object) -> None:
    return None
