"""What was measured once, as a side that can be measured again: its software, and its revision."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.analysis.environment import Facts, differing, kind, software
from opmark.errors import UserError
from opmark.plugin.registry import backend as find_backend
from opmark.runner.ab.origin import Origin, origins
from opmark.runner.ab.revisions import current_checkout, import_folders
from opmark.runner.ab.sides import side_at
from opmark.runner.git import commit_of, repository, revision_now
from opmark.runner.guests.placement import why_missing
from opmark.runner.supervisor import Supervisor, WorkerOptions
from opmark.runner.worker_process import WorkerDied
from opmark.schema.comparison import difference_lines
from opmark.schema.messages import Side
from opmark.schema.options import DEFAULT_TIMEOUT
from opmark.schema.run import CHANGED
from opmark.version import VERSION
from opmark.worker.process_setup import belongs


class BaselineLost(NamedTuple):
    """It cannot be measured again."""

    why: str


class Baseline(NamedTuple):
    """What was measured, as it is stored."""

    name: str
    backend: str
    threads: int
    revision: str
    facts: Facts
    """Of its environment."""


@dataclass(frozen=True)
class BaselineSide:
    """What stands for the baseline, where that was said."""

    rev: str = ""
    python: str = ""
    backend: str = ""

    @property
    def said(self) -> bool:
        return bool(self.rev or self.python or self.backend)

    def check(self) -> None:
        """UserError where it names nothing, before anything is measured."""
        if self.backend:
            find_backend(self.backend)
        if self.rev:
            commit_of(repository(), self.rev)


def baseline_side(
    then: Baseline, ops: Sequence[str], stack: ExitStack, *, here: bool = False, command: str = ""
) -> Side | BaselineLost:
    """`here`: it was measured a moment ago, so that software and files are still its own. `command` is run in the files
    of a revision that is checked out."""
    plain = Side(then.name, then.backend, then.threads) if here else _with_its_software(then)
    if isinstance(plain, BaselineLost):
        return plain
    root = _root()
    now = plain
    if root is not None:
        now = replace(plain, folders=import_folders(root, ops), checkout=current_checkout(root))
    try:
        known = origins(now, ops)
    except UserError as error:
        return BaselineLost(error.message)
    # What cannot be imported now may have been a part of the repository: its revision will tell.
    somewhere: list[Origin] = ["repository" if root else "elsewhere"]
    known = {op: somewhere for op in ops if _own(op)} | known
    ours = any("repository" in origin for origin in known.values())
    if here:
        return now if ours else plain
    stranger = next((op for op in ops if _strange(op, known.get(op, ()), then.facts)), None)
    if stranger is not None:
        return _unknown(then, stranger, root)
    return _at_its_revision(then, now, plain, ops, stack, command) if ours else _by_this_opmark(then, plain, root)


def _own(op: str) -> bool:
    """Whether it is a callable of somebody's, and not of the catalogue."""
    return ":" in op and not op.startswith("opinfo:")


def _strange(op: str, origin: Sequence[Origin], facts: Facts) -> bool:
    """Whether it lies where neither a revision nor a version that is known says what it was: installed, found by
    PYTHONPATH, of another repository. A framework's own function goes with the version of the framework."""
    package = op.partition(":")[0].partition(".")[0]
    return "elsewhere" in origin and not (_own(op) and facts.get(package) and kind(package) == "software")


def _unknown(then: Baseline, op: str, root: Path | None) -> BaselineLost:
    if root is not None:
        return BaselineLost(f"`{op}` is no part of this git repository, so that it may have been changed since")
    if then.revision:
        return BaselineLost("this is not the git repository that it was measured in")
    return BaselineLost(f"`{op}` is no part of a git repository, so that it may have been changed since")


def _at_its_revision(
    then: Baseline, now: Side, plain: Side, ops: Sequence[str], stack: ExitStack, command: str
) -> Side | BaselineLost:
    assert now.checkout is not None
    if not then.revision:
        return BaselineLost("no git revision was stored with it")
    if then.revision.endswith(CHANGED):
        commit = then.revision.removesuffix(CHANGED)[:10]
        return BaselineLost(f"files had been changed since commit {commit} when it was measured")
    if then.revision == revision_now():
        return now
    root = Path(now.checkout.root)
    try:
        return side_at(root, commit_of(root, then.revision), plain, ops, stack, shown=then.name, command=command)
    except UserError as error:
        return BaselineLost(error.message)


def _clean_and_here(revision: str) -> bool:
    return bool(revision) and not revision.endswith(CHANGED) and revision == revision_now()


def side_as_told(
    then: Baseline, against: BaselineSide, ops: Sequence[str], stack: ExitStack, *, command: str = ""
) -> Side:
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
    return side_at(root, commit_of(root, against.rev), plain, ops, stack, shown=against.rev, command=command)


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


def _by_this_opmark(then: Baseline, plain: Side, root: Path | None) -> Side | BaselineLost:
    """How an operator of the catalogue calls its framework is a part of opmark."""
    version = str(then.facts.get("opmark") or VERSION)
    if version != VERSION:
        return BaselineLost(f"it was measured by opmark {version}, and this is {VERSION}")
    if root is not None and belongs(__file__, str(root)) and not _clean_and_here(then.revision):
        return BaselineLost("opmark itself is a part of this repository, and is not measured as another revision")
    return plain


def _with_its_software(then: Baseline) -> Side | BaselineLost:
    """In the interpreter that its backend has now, or in the one that it had then."""
    differ = _differing(then, then.backend)
    if differ == []:
        return Side(then.name, then.backend, then.threads)
    old = str(then.facts.get("interpreter") or "")
    if old and Path(old).exists():
        named = f"{then.backend.partition('@')[0]}@{old}"
        if named != then.backend and _differing(then, named) == []:
            return Side(then.name, named, then.threads)
    return BaselineLost(f"its software is no longer here: {'; '.join(differ)}")


def _differing(then: Baseline, backend: str) -> list[str]:
    """What of its software is another now; why it cannot be told, where it cannot run."""
    facts = _facts_now(backend, then.threads)
    if isinstance(facts, str):
        return [facts]
    found = differing([(then.facts, facts)])
    return [f"{fact} {text}" for fact, text in difference_lines(found, software(found))]


def _facts_now(backend: str, threads: int) -> dict[str, Any] | str:
    """Its environment, asked in a process as a worker's; or why there is none."""
    try:
        info = find_backend(backend)
        missing = why_missing(info)
    except UserError as error:
        return error.message
    if missing:
        return missing
    with closing(Supervisor(info, threads, WorkerOptions(DEFAULT_TIMEOUT))) as worker:
        try:
            hello = worker.start()
        except WorkerDied as death:
            return death.reason
    return hello.unavailable or hello.environment.facts
