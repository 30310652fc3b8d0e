"""Find the commit that made a case slower: `opmark bisect`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from dataclasses import replace as replace_option
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from opmark.api.ab import measure_sides, refuse_ranks_of_others
from opmark.api.env import create_env
from opmark.api.keywords import keywords_of
from opmark.api.requests import BisectRequest
from opmark.errors import StoreError, UserError
from opmark.plugin.registry import backend as find_backend
from opmark.runner.ab.origin import confirm_origin
from opmark.runner.ab.revisions import Bisection, checkout_revision, run_make
from opmark.runner.ab.sides import SideOptions, one_side, side_at, side_in
from opmark.runner.ab.versions import VersionSearch, describe_version, environment_request, versions_between
from opmark.runner.git import Commit, commit_of, repository
from opmark.runner.guests.environments import Guest, find_environment, recipe_for
from opmark.runner.selection import select_cases
from opmark.schema import Case
from opmark.schema.comparison import BisectResult, Candidate, Compared, Pairing, Word
from opmark.schema.messages import Side
from opmark.schema.options import StoreOptions, as_list, options_of, split_names


@keywords_of(BisectRequest)
def bisect(request: BisectRequest) -> BisectResult:
    """Find the first commit that is slower than `good`, on the way to `bad`, with `git bisect`.

    First these two are compared in turns; they have to show a slowdown. Then every candidate is compared with the good
    commit. The margin is the square root of the slowdown, so that smaller changes on the way do not count. Commits that
    cannot be built, imported or decided are skipped. With `package`, `good` and `bad` are versions of it, and each one
    that is measured is installed in an environment of its own. The other options are those of `ab`.
    """
    return bisect_request(request)


def bisect_request(request: BisectRequest) -> BisectResult:
    _refuse_mixture(request)
    selected = select_cases(request, request.seed)
    refuse_ranks_of_others(selected)
    return bisect_cases(request, selected.cases)


def _refuse_mixture(request: BisectRequest) -> None:
    if request.versions and not request.package:
        raise UserError("--versions goes with --package", "as in --package torch --versions 2.11.0,2.12.0,2.13.0")
    if request.package and (not request.good or request.bad == options_of(BisectRequest)["bad"].default):
        option, what = (
            ("--bad", "a later version that is slow") if request.good else ("--good", "a version that was fast")
        )
        raise UserError(f"{option} is needed: {what}", "as in --package torch --good 2.12.0 --bad 2.13.0")
    if not request.good:
        raise UserError("--good names a revision that was fast", "as in --good v1.0 --bad main")
    for option, given in (("--repo", request.repo), ("--make", request.make)):
        if request.package and given:
            raise UserError(f"{option} is about commits, --package about versions", "leave one of them out")
    if request.package and request.python:
        raise UserError("--package makes an interpreter for each version", "leave --python out")


def bisect_cases(request: BisectRequest, cases: Sequence[Case]) -> BisectResult:
    """Bisect with cases that are selected already, whatever the request says of them."""
    difference = SideOptions(
        backend=split_names(request.backend), impl=split_names(request.impl), python=split_names(request.python),
        threads=as_list(request.threads),
    )  # fmt: skip
    plain = one_side(difference, cases)
    if request.package:
        return _bisect_versions(request, plain, cases)
    root = repository(request.repo)
    ends = commit_of(root, request.good), commit_of(root, request.bad)
    if ends[0] == ends[1]:
        raise UserError(f"--good and --bad are both commit {ends[0].short}: nothing lies between them")
    ops = [case.op for case in cases]
    with ExitStack() as stack:
        first = side_at(root, ends[0], plain, ops, stack, shown=request.good, command=request.make)
        tree = stack.enter_context(checkout_revision(root, ends[1].hash))
        work = _BisectWork(request, root, tree, plain, first)
        return _bisect(work, ends, cases, request.on_step or (lambda step: None))


def _bisect_versions(request: BisectRequest, plain: Side, cases: Sequence[Case]) -> BisectResult:
    versions = versions_between(request.package, request.good, request.bad, split_names(request.versions))
    work = _VersionWork(request, plain, versions)
    ends = describe_version(request.package, versions[0]), describe_version(request.package, versions[-1])
    found = _bisect(work, ends, cases, request.on_step or (lambda step: None))
    return replace(found, package=request.package)


class _Search(Protocol):
    """A search for the first bad candidate."""

    @property
    def left(self) -> list[Commit]: ...
    @property
    def over(self) -> bool: ...
    def candidate(self) -> Commit: ...
    def say(self, word: Word) -> None: ...
    def log(self) -> str: ...


class _Work(Protocol):
    """Candidates that can be compared with the good one."""

    def compare(self, commit: Commit, cases: Sequence[Case], margin: float | None = None) -> Compared: ...
    def search(self, good: str, bad: str) -> _Search: ...


@dataclass(frozen=True)
class _VersionWork:
    request: BisectRequest
    plain: Side
    versions: list[str]

    def compare(self, commit: Commit, cases: Sequence[Case], margin: float | None = None) -> Compared:
        """Compare a version with the good one, each in its guest."""
        good, side = self._side(self.versions[0]), self._side(commit.hash)
        return _measure_in_turns(self.request, good, side, commit, cases, margin)

    def search(self, good: str, bad: str) -> VersionSearch:
        return VersionSearch(self.request.package, self.versions)

    def _side(self, version: str) -> Side:
        package, backend = self.request.package, self.plain.backend.partition("@")[0]
        guest = guest_of_version(package, version, self.request.say)
        name = find_backend(f"{backend}@{guest.name}").name
        return replace(self.plain, name=f"{package} {version}", backend=name)


def guest_of_version(package: str, version: str, say: Callable[[str], None]) -> Guest:
    """Return the environment of a version of a package. It is made if need be, and stays for the next time."""
    name, install = environment_request(package, version)
    there = find_environment(recipe_for(name, install)[0])
    if there is None:
        say(f"installing {package} {version} in an environment of its own, once")
    return there or create_env(name, install=install, say=lambda line: None)


@dataclass(frozen=True)
class _BisectWork:
    request: BisectRequest
    root: Path
    tree: Path
    """A worktree that is moved from commit to commit."""
    plain: Side
    good: Side

    def compare(self, commit: Commit, cases: Sequence[Case], margin: float | None = None) -> Compared:
        """Compare the commit that is checked out with the good one."""
        request, ops = self.request, [case.op for case in cases]
        if request.make:
            run_make(request.make, self.tree)
        side = side_in(self.root, self.tree, commit, self.plain, ops)
        confirm_origin(side, ops)
        return _measure_in_turns(request, self.good, side, commit, cases, margin)

    def search(self, good: str, bad: str) -> Bisection:
        return Bisection(self.tree, good, bad)


def _measure_in_turns(
    request: BisectRequest, good: Side, side: Side, commit: Commit, cases: Sequence[Case], margin: float | None
) -> Compared:
    options = request if margin is None else replace_option(request, margin=margin)
    keep = StoreOptions(label=f"{request.label or 'bisect'} {commit.short}", db=request.db)
    return measure_sides(good, side, cases, options, keep, on_turn=request.on_turn, say=request.say)


def _bisect(
    work: _Work, ends: tuple[Commit, Commit], cases: Sequence[Case], on_step: Callable[[Candidate], None]
) -> BisectResult:
    whole = work.compare(ends[1], cases)
    found = BisectResult(ends[0].hash, ends[1].hash, whole)
    slower = [pair for pair in whole.pairs if pair.verdict == "slower" and pair.ratio]
    if not slower:
        return found
    target = max(slower, key=lambda pair: pair.ratio or 0.0)
    margin = math.sqrt(target.ratio or 1.0) - 1
    followed = [case for case in cases if case.id == target.case]
    bisection = work.search(ends[0].hash, ends[1].hash)
    known = {ends[1].hash: _candidate(ends[1], "bad", target, whole)}
    while not bisection.over:
        step = _judge_commit(work, bisection.candidate(), followed, target, margin)
        known[step.commit] = step
        on_step(step)
        bisection.say(step.word)
    return replace(
        found,
        case=target.case, op=target.op, params=target.params, margin=margin,
        steps=tuple(known.values())[1:],
        first=tuple(known.get(commit.hash) or _candidate(commit, "skip") for commit in bisection.left),
        log=bisection.log(),
    )  # fmt: skip


def _judge_commit(work: _Work, commit: Commit, cases: Sequence[Case], target: Pairing, margin: float) -> Candidate:
    try:
        compared = work.compare(commit, cases, margin)
    except StoreError:
        raise
    except UserError as error:  # it cannot be built, or none of its cases can be measured
        return _candidate(commit, "skip", why=error.message)
    # The name of a guest is a part of where a version is measured; there is one way on each side.
    alike = [one for one in compared.pairs if one.case == target.case]
    pair = next((one for one in alike if one.where == target.where), alike[0] if len(alike) == 1 else None)
    if pair is None or pair.ratio is None:
        return _candidate(commit, "skip", why=pair.note if pair else "it has no such case", compared=compared)
    words: dict[str, Word] = {"slower": "bad", "faster": "good", "same": "good", "undecided": "skip"}
    why = "" if pair.verdict != "undecided" else "undecided: neither as fast as the good one nor clearly slower"
    return _candidate(commit, words[pair.verdict], pair, compared, why)


def _candidate(
    commit: Commit, word: Word, pair: Pairing | None = None, compared: Compared | None = None, why: str = ""
) -> Candidate:
    numbers = (pair.ratio, pair.low, pair.high) if pair else (None, None, None)
    return Candidate(*commit, word, *numbers, why=why, runs=compared.runs if compared else None)
