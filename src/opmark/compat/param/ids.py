"""PARAM's op_run_id: `torch.add|0|0|1_2`, where a run begins again and where it stops."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.errors import UserError, nearest
from opmark.exporters.param_lines import Place


def between(places: Sequence[Place], resume_id: str | None, stop_id: str | None) -> slice:
    """What is to run: from `resume_id` on, and not `stop_id` any more."""
    if not resume_id and not stop_id:
        return slice(0, len(places))
    known = _spellings(places)
    first = _found("--resume-id", resume_id, places, known) if resume_id else 0
    last = _found("--stop-id", stop_id, places, known) if stop_id else len(places)
    if first >= last:
        raise UserError(
            f"nothing is left to run: --resume-id {resume_id or places[0]} does not stand before --stop-id {stop_id}",
            "--resume-id runs, --stop-id does not run any more; `--dry-run` prints the ids in their order",
        )
    return slice(first, last)


def _spellings(places: Sequence[Place]) -> dict[str, list[int]]:
    """PARAM writes an id with bars, its examples with colons; operator and file may be left out if it is clear then."""
    found: dict[str, list[int]] = {}
    for index, place in enumerate(places):
        names = [str(place), f"{place.op}:{place.id}", f"{place.op}:{place.id.replace('|', ':')}"]
        in_file = [f"{place.file}#{name}" for name in names] if place.file else []
        for text in {*names, *in_file, place.id, place.id.replace("|", ":")}:
            found.setdefault(text, []).append(index)
    return found


def _found(option: str, wanted: str, places: Sequence[Place], known: dict[str, list[int]]) -> int:
    indices = known.get(wanted, [])
    if len(indices) == 1:
        return indices[0]
    if indices:
        raise _ambiguous(option, wanted, [places[index] for index in indices])
    near = nearest(wanted, known)
    guess = f"did you mean '{places[known[near][0]]}'? " if near else ""
    raise UserError(f"{option}: no case of this config has the id `{wanted}`", f"{guess}`--dry-run` prints them all")


def _ambiguous(option: str, wanted: str, alike: list[Place]) -> UserError:
    files, operators = dict.fromkeys(place.file for place in alike), dict.fromkeys(place.op for place in alike)
    if len(files) > 1:
        listed = ", ".join(list(files)[:5]) + (", ..." if len(files) > 5 else "")
        return UserError(
            f"{option}: `{wanted}` stands in {len(files)} files: {listed}", f"as in {option} '{alike[0].source}'"
        )
    return UserError(f"{option}: `{wanted}` is an id of {len(operators)} operators", f"as in {option} '{alike[0]}'")
