"""opmark param comms: PARAM's comms.py, measured by opmark."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opmark.compat.param_comms.options import Asked, make_request, parse_options, remarks
from opmark.compat.param_comms.parser import LEVELS
from opmark.compat.visible import set_variables

if TYPE_CHECKING:
    from opmark.compat.param_comms.rows import Row
    from opmark.runner.ranks.launcher import Place

DEFAULT_RANKS = 2


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 0 for success, 1 if a size failed, 130 after Ctrl-C."""
    given = parse_options(arguments)
    # Imported here, because neither -h nor a wrong option needs these modules.
    from opmark.compat.param_comms.json_rows import JsonFile
    from opmark.compat.param_comms.rows import rows_of
    from opmark.compat.param_comms.session import Session, Talk
    from opmark.runner.ranks.launcher import outside

    rendezvous = _rendezvous(given)
    place = outside({**os.environ, **rendezvous})
    talk = Talk(LEVELS.index(given.log), first=place is None or place.rank == 0)
    request = make_request(given, _rank_count(given, place))
    rows = rows_of(request) if not given.init_only else []
    lines = [
        *remarks(given),
        *_rank_remarks(given, place),
        *_group_remarks(request),
        *_blocking_remarks(given, rows),
    ]
    for line in lines:
        talk.warning(line)
    with set_variables(rendezvous if place else {}), JsonFile(given.json if talk.first else None, request) as file:
        return Session(given, request, file, talk).run(rows)


def _rank_count(given: argparse.Namespace, place: Place | None) -> int:
    """Return the number of ranks; under a launcher it is the number that it started."""
    if place:
        return place.size
    return DEFAULT_RANKS if given.ranks is None else int(given.ranks)


def _rank_remarks(given: argparse.Namespace, place: Place | None) -> list[str]:
    if place:
        same = given.ranks in (None, place.size)
        return [] if same else [f"--ranks {given.ranks} is ignored: {place.launcher} started {place.size} ranks"]
    lines = [
        f"{option} is ignored: ranks on this machine find each other without it"
        for option, value in (("--master-ip", given.master_ip), ("--master-port", given.master_port))
        if value is not None
    ]
    if given.ranks is None:
        lines.append(f"without a launcher and --ranks, {DEFAULT_RANKS} ranks are started on this machine")
    return lines


def _group_remarks(request: Asked) -> list[str]:
    if not request.group:
        return []
    return [f"--multi-comms: a group has {request.group} neighbouring ranks; PARAM assigns ranks to groups in turn"]


def _blocking_remarks(given: argparse.Namespace, rows: Sequence[Row]) -> list[str]:
    """Return a remark if --z 0 was given; it is also the default, which needs no remark."""
    if given.z != 0:
        return []
    without = {row.collective for row in rows if not any("asynchronous" in case.params for case in row.cases)}
    return [f"--z 0 has no effect on {', '.join(sorted(without))}, which always block"] if without else []


def _rendezvous(given: argparse.Namespace) -> dict[str, str]:
    """Return variables for the options, which take precedence over the environment as in PARAM."""
    both = (("MASTER_ADDR", given.master_ip), ("MASTER_PORT", given.master_port))
    return {name: value for name, value in both if value is not None}
