"""Find the software and the revision of a stored baseline, so that it can be measured again."""

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
from opmark.runner.ab.revisions import current_checkout, import_folders, is_own_file
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


class BaselineLost(NamedTuple):
    """The reason why a baseline cannot be measured again."""

    why: str


class Baseline(NamedTuple):
    """A side of a comparison, as it is stored."""

    name: str
    backend: str
    threads: int
    revision: str
    facts: Facts
    """Facts of its environment."""


@dataclass(frozen=True)
class BaselineSide:
    """What the user names in place of the baseline (`--against-...`); an empty field leaves it as it was."""

    rev: str = ""
    python: str = ""
    backend: str = ""

    @property
    def named(self) -> bool:
        return bool(self.rev or self.python or self.backend)

    def check(self) -> None:
        """Raise UserError before anything is measured if the backend or the revision does not exist."""
        if self.backend:
            find_backend(self.backend)
        if self.rev:
            commit_of(repository(), self.rev)


def baseline_side(
    then: Baseline, ops: Sequence[str], stack: ExitStack, *, here: bool = False, command: str = ""
) -> Side | BaselineLost:
    """Return a side that runs the same software and files as the baseline, or why there is none.

    `here`: it was measured a moment ago, so software and files have not changed since. `command` is run in the files of
    a revision that is checked out.
    """
    plain = Side(then.name, then.backend, then.threads) if here else _with_its_software(then)
    if isinstance(plain, BaselineLost):
        return plain
    root = _find_repository()
    now = plain
    if root is not None:
        now = replace(plain, folders=import_folders(root, ops), checkout=current_checkout(root))
    try:
        known = origins(now, ops)
    except UserError as error:
        return BaselineLost(error.message)
    # A module that cannot be imported now may exist in the revision of the baseline.
    somewhere: list[Origin] = ["repository" if root else "elsewhere"]
    known = {op: somewhere for op in ops if _is_callable(op)} | known
    ours = any("repository" in origin for origin in known.values())
    if here:
        return now if ours else plain
    stranger = next((op for op in ops if _of_unknown_version(op, known.get(op, ()), then.facts)), None)
    if stranger is not None:
        return _why_unknown(then, stranger, root)
    return _at_its_revision(then, now, plain, ops, stack, command) if ours else _by_this_opmark(then, plain, root)


def _is_callable(op: str) -> bool:
    """Return whether an operator is named by the path of a callable, not by the catalogue."""
    return ":" in op and not op.startswith("opinfo:")


def _of_unknown_version(op: str, origin: Sequence[Origin], facts: Facts) -> bool:
    """Return whether neither a revision nor a stored version tells what the operator was: it is installed, found by
    PYTHONPATH, or part of another repository. A framework's own function has the version of the framework."""
    package = op.partition(":")[0].partition(".")[0]
    return "elsewhere" in origin and not (_is_callable(op) and facts.get(package) and kind(package) == "software")


def _why_unknown(then: Baseline, op: str, root: Path | None) -> BaselineLost:
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


def _is_clean_checkout(revision: str) -> bool:
    return bool(revision) and not revision.endswith(CHANGED) and revision == revision_now()


def named_side(
    then: Baseline, against: BaselineSide, ops: Sequence[str], stack: ExitStack, *, command: str = ""
) -> Side:
    """Return the side that the user named for the baseline; UserError if it cannot be measured."""
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
    """Return whether both sides would run the same code in the same way."""
    return (a.backend, a.threads, a.environ, _commit(a)) == (b.backend, b.threads, b.environ, _commit(b))


def _commit(side: Side) -> str:
    return side.checkout.commit if side.checkout else ""


def _find_repository() -> Path | None:
    try:
        return repository()
    except UserError:
        return None


def _by_this_opmark(then: Baseline, plain: Side, root: Path | None) -> Side | BaselineLost:
    """Return the plain side if this opmark is the one of the baseline: the catalogue decides how a framework is
    called."""
    version = str(then.facts.get("opmark") or VERSION)
    if version != VERSION:
        return BaselineLost(f"it was measured by opmark {version}, and this is {VERSION}")
    if root is not None and is_own_file(Path(__file__), root) and not _is_clean_checkout(then.revision):
        return BaselineLost("opmark itself is a part of this repository, and is not measured as another revision")
    return plain


def _with_its_software(then: Baseline) -> Side | BaselineLost:
    """Return the side in the current interpreter of its backend, or in its former one, if the software is the same."""
    differ = _software_changes(then, then.backend)
    if differ == []:
        return Side(then.name, then.backend, then.threads)
    old = str(then.facts.get("interpreter") or "")
    if old and Path(old).exists():
        named = f"{then.backend.partition('@')[0]}@{old}"
        if named != then.backend and _software_changes(then, named) == []:
            return Side(then.name, named, then.threads)
    return BaselineLost(f"its software is no longer here: {'; '.join(differ)}")


def _software_changes(then: Baseline, backend: str) -> list[str]:
    """List the software that has changed since, or the reason why that is not known."""
    facts = _facts_now(backend, then.threads)
    if isinstance(facts, str):
        return [facts]
    found = differing([(then.facts, facts)])
    return [f"{fact} {text}" for fact, text in difference_lines(found, software(found))]


def _facts_now(backend: str, threads: int) -> dict[str, Any] | str:
    """Return the environment that a worker of the backend reports, or the reason why none can be started."""
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
