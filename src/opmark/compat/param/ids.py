"""Selects cases by PARAM's op_run_id, as in `torch.add|0|0|1_2`, of `--resume-id` and `--stop-id`."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.errors import UserError, nearest
from opmark.exporters.param_lines import Place


def select_range(places: Sequence[Place], resume_id: str | None, stop_id: str | None) -> slice:
    """Select the cases from `resume_id` to `stop_id`, which is excluded."""
    if not resume_id and not stop_id:
        return slice(0, len(places))
    known = _spellings(places)
    first = _find("--resume-id", resume_id, places, known) if resume_id else 0
    last = _find("--stop-id", stop_id, places, known) if stop_id else len(places)
    if first >= last:
        raise UserError(
            f"nothing is left to run: --resume-id {resume_id or places[0]} is not before --stop-id {stop_id}",
            "--resume-id is included, --stop-id is not; `--dry-run` prints the ids in their order",
        )
    return slice(first, last)


def _spellings(places: Sequence[Place]) -> dict[str, list[int]]:
    """Return indices by all spellings of an id: with bars or colons, and with or without operator and file."""
    found: dict[str, list[int]] = {}
    for index, place in enumerate(places):
        names = [str(place), f"{place.op}:{place.id}", f"{place.op}:{place.id.replace('|', ':')}"]
        in_file = [f"{place.file}#{name}" for name in names] if place.file else []
        for text in {*names, *in_file, place.id, place.id.replace("|", ":")}:
            found.setdefault(text, []).append(index)
    return found


def _find(option: str, run_id: str, places: Sequence[Place], known: dict[str, list[int]]) -> int:
    indices = known.get(run_id, [])
    if len(indices) == 1:
        return indices[0]
    if indices:
        raise _ambiguous(option, run_id, [places[index] for index in indices])
    near = nearest(run_id, known)
    guess = f"did you mean '{places[known[near][0]]}'? " if near else ""
    raise UserError(f"{option}: no case of this config has the id `{run_id}`", f"{guess}`--dry-run` prints them all")


def _ambiguous(option: str, run_id: str, alike: list[Place]) -> UserError:
    files, operators = dict.fromkeys(place.file for place in alike), dict.fromkeys(place.op for place in alike)
    if len(files) > 1:
        listed = ", ".join(list(files)[:5]) + (", ..." if len(files) > 5 else "")
        return UserError(
            f"{option}: {len(files)} files have the id `{run_id}`: {listed}", f"as in {option} '{alike[0].source}'"
        )
    return UserError(f"{option}: `{run_id}` is an id of {len(operators)} operators", f"as in {option} '{alike[0]}'")
