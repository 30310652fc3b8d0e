"""PARAM's op_run_id: `torch.add|0|0|1_2`, where a run begins again and where it stops."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.errors import UserError, nearest
from opmark.exporters.param_lines import Place


def between(places: Sequence[Place], resume_id: str | None, stop_id: str | None) -> slice:
    """What is to run: from `resume_id` on, and not `stop_id` any more."""
    known = _spellings(places)
    first = _found("--resume-id", resume_id, places, known) if resume_id else 0
    last = _found("--stop-id", stop_id, places, known) if stop_id else len(places)
    if first >= last:
        raise UserError(
            f"nothing is left to run: --resume-id {resume_id or places[0]} does not stand before --stop-id {stop_id}",
            "--resume-id runs, --stop-id does not run any more; `--dry-run` prints the ids in their order",
        )
    return slice(first, last)


def _spellings(places: Sequence[Place]) -> dict[str, int]:
    """PARAM writes an id with bars, its examples with colons; without the operator it must be the only one."""
    found: dict[str, int] = {}
    short: dict[str, list[int]] = {}
    for index, place in enumerate(places):
        short.setdefault(place.id, []).append(index)
        for text in (str(place), f"{place.op}:{place.id}", f"{place.op}:{place.id.replace('|', ':')}"):
            found.setdefault(text, index)
    for text, indices in short.items():
        if len(indices) == 1:
            found.setdefault(text, indices[0])
            found.setdefault(text.replace("|", ":"), indices[0])
    return found


def _found(option: str, wanted: str, places: Sequence[Place], known: dict[str, int]) -> int:
    if wanted in known:
        return known[wanted]
    alike = [str(place) for place in places if wanted.replace(":", "|") == place.id]
    if alike:
        raise UserError(f"{option}: `{wanted}` is an id of {len(alike)} operators", f"as in {option} '{alike[0]}'")
    near = nearest(wanted, map(str, places)) or str(places[0])
    raise UserError(
        f"{option}: no case of this config has the id `{wanted}`",
        f"did you mean '{near}'? `--dry-run` prints them all",
    )
