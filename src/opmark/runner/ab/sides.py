"""Makes the two sides of a comparison from its options. They differ in exactly one thing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from opmark.errors import InvalidParameter, UserError
from opmark.plugin.registry import backend as find_backend
from opmark.runner.ab.origin import confirm_origin
from opmark.runner.ab.revisions import (
    checkout_revision,
    current_checkout,
    import_folders,
    make_checkout,
    map_folders,
    run_make,
)
from opmark.runner.git import Commit, commit_of, repository
from opmark.runner.plan import default_threads
from opmark.runner.selection import default_backends, select_backends
from opmark.schema import Case
from opmark.schema.messages import Side
from opmark.schema.run import short_revision

_WAYS = (
    "as in --backend torch-cpu,numpy-cpu; --impl torch,kernels.py:softmax; --python A,B; --threads 1,2; --env VAR=1; "
    "--rev HEAD~1; or --same, a thing with itself"
)


@dataclass(frozen=True)
class SideOptions:
    """The options of a comparison. Exactly one of them makes two sides."""

    backend: Sequence[str] = ()
    impl: Sequence[str] = ()
    python: Sequence[str] = ()
    threads: Sequence[int] = ()
    env: Sequence[str] = ()
    rev: Sequence[str] = ()
    same: bool = False
    repo: str | os.PathLike[str] | None = None
    make: str = ""
    """A command that is run in a revision's files before they are used."""


@contextmanager
def make_sides(options: SideOptions, cases: Sequence[Case]) -> Iterator[tuple[Side, Side]]:
    """Sides A and B. Revisions that had to be checked out for them are removed afterwards."""
    backends, pythons, threads = _choose(options, cases)
    several = {"--backend": backends, "--impl": options.impl, "--python": pythons, "--threads": threads}
    what = _find_difference(options, several)
    plain = _plain_sides(backends, pythons, threads, options.impl)
    if what == "--impl":
        plain = [replace(side, name=side.implementation) for side in plain]
    if what == "--threads":
        plain = [replace(side, name=f"{side.backend} ×{side.threads}") for side in plain]
    if len(plain) == 2:
        yield plain[0], plain[1]
    elif what == "--env":
        yield _make_environment_sides(options.env, plain[0])
    elif what == "--rev":
        with ExitStack() as stack:
            yield _make_revision_sides(options, plain[0], [case.op for case in cases], stack)
    else:
        yield replace(plain[0], name=f"{plain[0].name} a"), replace(plain[0], name=f"{plain[0].name} b")


def one_side(options: SideOptions, cases: Sequence[Case]) -> Side:
    """The only side, where no option may have two values."""
    backends, pythons, threads = _choose(options, cases)
    named = (("--backend", backends), ("--impl", options.impl), ("--python", pythons), ("--threads", threads))
    for option, several in named:
        if len(several) > 1:
            raise UserError(f"{option}: expected one, got {len(several)}: {', '.join(map(str, several))}")
    (side,) = _plain_sides(backends, pythons, threads, options.impl)
    return side


def _choose(options: SideOptions, cases: Sequence[Case]) -> tuple[list[str], list[str], list[int]]:
    backends, _ = select_backends(options.backend or default_backends(cases))
    if not options.backend and len(backends) > 1:
        raise UserError(f"these cases run on several backends: {', '.join(backends)}", "--backend names one, or two")
    return backends, list(dict.fromkeys(options.python)), list(dict.fromkeys(options.threads)) or [default_threads()]


def _plain_sides(
    backends: Sequence[str], pythons: Sequence[str], threads: Sequence[int], impl: Sequence[str]
) -> list[Side]:
    names, _ = select_backends(backends, pythons)
    return [
        Side(name, name, count, implementation=one) for name in names for one in impl or ("",) for count in threads
    ]  # fmt: skip


def _find_difference(options: SideOptions, values: dict[str, Sequence[object]]) -> str:
    for option, several in values.items():
        if len(several) > 2:
            raise UserError(f"{option}: two sides are compared, got {len(several)}: {', '.join(map(str, several))}")
    found = [option for option, several in values.items() if len(several) == 2]
    found += [
        option for option, value in (("--env", options.env), ("--rev", options.rev), ("--same", options.same)) if value
    ]
    if len(found) != 1:
        listed = " and ".join(found) if found else "nothing that has two values"
        raise UserError(f"two sides differ in exactly one thing, got {listed}", _WAYS)
    for name, value in (("--repo", options.repo), ("--make", options.make)):
        if value and found != ["--rev"]:
            raise UserError(f"{name} goes with --rev", "--rev REV names a revision")
    return found[0]


def _make_environment_sides(settings: Sequence[str], plain: Side) -> tuple[Side, Side]:
    pairs = [_parse_variable(text) for text in settings]
    if len(pairs) > 2 or len({name for name, _ in pairs}) > 1:
        raise UserError(
            f"--env: one variable makes two sides, got {', '.join(settings)}", "once for B; or for A, then B"
        )
    name = pairs[0][0]
    if "{threads}" in find_backend(plain.backend).variables.get(name, ""):
        raise UserError(f"--env: {name} is what {plain.backend} is told its threads by", "--threads 1,2 compares those")
    values = [value for _, value in pairs] if len(pairs) == 2 else [os.environ.get(name), pairs[0][1]]
    if values[0] == values[1]:
        raise UserError(f"--env: on both sides it would be {_format_variable(name, values[0])}: nothing differs", _WAYS)
    a, b = (replace(plain, name=_format_variable(name, value), environ={name: value}) for value in values)
    return a, b


def _parse_variable(text: str) -> tuple[str, str | None]:
    """Parse `VAR=VALUE`, `VAR=` for an empty value, `VAR` for no variable."""
    name, equals, value = text.partition("=")
    if not name or not name.isprintable() or " " in name or "\0" in value:
        raise InvalidParameter(f"--env {text!a}: expected VAR=VALUE, VAR= or VAR", "as in --env KMP_BLOCKTIME=0")
    return name, value if equals else None


def _format_variable(name: str, value: str | None) -> str:
    if value is None:
        return f"without {name}"
    return f"{name}={value if value.isprintable() else ascii(value)}"


def _make_revision_sides(options: SideOptions, plain: Side, ops: Sequence[str], stack: ExitStack) -> tuple[Side, Side]:
    if len(options.rev) > 2:
        raise UserError(f"--rev: two sides are compared, got {len(options.rev)}", "once: against the files as they are")
    root = repository(options.repo)
    commits = [commit_of(root, name) for name in options.rev]
    if len(commits) == 2 and commits[0] == commits[1]:
        raise UserError(f"--rev: both are commit {commits[0].short}: nothing differs", _WAYS)
    if len(commits) == 1:
        now = current_checkout(root)
        if now.commit == commits[0].hash:
            raise UserError(f"--rev {options.rev[0]}: the files are those of that commit: nothing differs", _WAYS)
        last = replace(
            plain, name=f"as it is ({short_revision(now.commit)})", folders=import_folders(root, ops), checkout=now
        )  # fmt: skip
        confirm_origin(last, ops)
    sides = [
        side_at(root, commit, plain, ops, stack, shown=name, command=options.make)
        for name, commit in zip(options.rev, commits, strict=True)
    ]
    return (sides[0], sides[1]) if len(sides) == 2 else (sides[0], last)


def side_at(
    root: Path, commit: Commit, plain: Side, ops: Sequence[str], stack: ExitStack, *, shown: str = "", command: str = ""
) -> Side:
    """The side of a revision, which is checked out until the stack is closed, and made."""
    place = stack.enter_context(checkout_revision(root, commit.hash))
    side = side_in(root, place, commit, plain, ops, shown=shown)
    if command:
        run_make(command, place)
    confirm_origin(side, ops)
    return side


def side_in(root: Path, place: Path, commit: Commit, plain: Side, ops: Sequence[str], *, shown: str = "") -> Side:
    """The side of a revision whose files are checked out already."""
    name = f"{shown} ({commit.short})" if shown and not commit.hash.startswith(shown) else commit.short
    folders = map_folders(import_folders(root, ops), str(root), str(place))
    return replace(plain, name=name, folders=folders, checkout=make_checkout(root, place, commit.hash))
