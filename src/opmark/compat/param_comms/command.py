"""opmark param comms: PARAM's comms.py, measured by opmark."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opmark.compat.param_comms.options import Asked, asked_of, parsed, remarks
from opmark.compat.param_comms.parser import LEVELS
from opmark.compat.visible import set_variables

if TYPE_CHECKING:
    from opmark.compat.param_comms.rows import Row
    from opmark.runner.ranks.launcher import Place

DEFAULT_RANKS = 2


def main(arguments: Sequence[str]) -> int:
    """0: all well. 1: a size failed. 130: interrupted."""
    return _run(parsed(arguments))


def _run(given: argparse.Namespace) -> int:
    """What a look at the options does not need is imported here."""
    from opmark.compat.param_comms.json_rows import JsonFile
    from opmark.compat.param_comms.rows import rows_of
    from opmark.compat.param_comms.session import Session, Talk
    from opmark.runner.ranks.launcher import outside

    met = _meeting_place(given)
    place = outside({**os.environ, **met})
    talk = Talk(LEVELS.index(given.log), first=place is None or place.rank == 0)
    asked = asked_of(given, _how_many(given, place))
    rows = rows_of(asked) if not given.init_only else []
    for text in [*remarks(given), *_of_ranks(given, place), *_of_groups(asked), *_of_blocking(given, rows)]:
        talk.warning(text)
    with set_variables(met if place else {}), JsonFile(given.json if talk.first else None, asked) as file:
        return Session(given, asked, file, talk).run(rows)


def _how_many(given: argparse.Namespace, place: Place | None) -> int:
    """Who was started by a launcher takes part, and nobody else."""
    if place:
        return place.size
    return DEFAULT_RANKS if given.ranks is None else int(given.ranks)


def _of_ranks(given: argparse.Namespace, place: Place | None) -> list[str]:
    if place:
        same = given.ranks in (None, place.size)
        return [] if same else [f"--ranks {given.ranks}: {place.launcher} started {place.size}, and these take part"]
    said = [
        f"{option}: ranks that are started here find each other without it"
        for option, value in (("--master-ip", given.master_ip), ("--master-port", given.master_port))
        if value is not None
    ]
    if given.ranks is None:
        said.append(f"no launcher and no --ranks: {DEFAULT_RANKS} ranks are started here")
    return said


def _of_groups(asked: Asked) -> list[str]:
    if not asked.group:
        return []
    return [f"--multi-comms: groups of {asked.group} neighbouring ranks; PARAM deals ranks out to groups in turn"]


def _of_blocking(given: argparse.Namespace, rows: Sequence[Row]) -> list[str]:
    """Said where it was asked for, and not where it is only usual."""
    if given.z != 0:
        return []
    without = {row.collective for row in rows if not any("asynchronous" in case.params for case in row.cases)}
    return [f"--z 0: waited for at once all the same: {', '.join(sorted(without))}"] if without else []


def _meeting_place(given: argparse.Namespace) -> dict[str, str]:
    """What is written goes before what the environment says, as in PARAM."""
    both = (("MASTER_ADDR", given.master_ip), ("MASTER_PORT", given.master_port))
    return {name: value for name, value in both if value is not None}
