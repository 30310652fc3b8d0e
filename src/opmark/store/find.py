"""What is looked for in a store: a run by its name, the noise of a machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import convert

from opmark.errors import UnknownName, UserError
from opmark.interfaces import Store
from opmark.schema import Run
from opmark.schema.noise import NoiseFloor
from opmark.schema.peaks import kept_under

_NTH = re.compile(r"(?P<label>.+)~(?P<back>\d+)")


def find_run(store: Store, name: str | None) -> Run:
    """By its id, the beginning of it, or its label; without a name the last one.

    A label may be of several runs: `LABEL~0` is the newest of them, `LABEL~1` the one before.
    """
    if name is not None and not name.strip():
        raise UserError("a run is named by an empty text", "give its id, the beginning of that, or its label")
    return find_among(store.runs(), name)


def find_among(known: Sequence[Run], name: str | None) -> Run:
    """The same where the runs were read already: those begun last first."""
    if not known:
        raise UserError("the store holds no run yet", "`opmark run --suite quick` makes one")
    if name is None:
        return known[0]
    if found := next((run for run in known if run.id == name), None) or _labelled(known, name):
        return found
    starting = [run for run in known if run.id.startswith(name)]
    if len(starting) == 1:
        return starting[0]
    if starting:
        listed = ", ".join(run.id for run in starting[:5])
        raise UserError(f"`{name}` begins {len(starting)} runs: {listed}", "give more of the id, or a label")
    raise UnknownName("run", name, [run.label for run in known if run.label] + [run.id for run in known])


def _labelled(known: Sequence[Run], name: str) -> Run | None:
    """The one run of that label; a label that says which of several is one of these."""
    found = [run for run in known if run.label == name]
    if len(found) > 1:
        listed = ", ".join(run.id for run in found[:5]) + (", ..." if len(found) > 5 else "")
        raise UserError(
            f"the label `{name}` is of {len(found)} runs: {listed}",
            f"give an id; or `{name}~0` for the newest of them, `{name}~1` for the one before",
        )
    if found:
        return found[0]
    counted = _NTH.fullmatch(name)
    if not counted:
        return None
    found, back = [run for run in known if run.label == counted["label"]], int(counted["back"])
    if found and back >= len(found):
        raise UserError(
            f"`{name}`: the label `{counted['label']}` is of {len(found)} run{'s' * (len(found) > 1)}",
            f"`{counted['label']}~{len(found) - 1}` is the oldest",
        )
    return found[back] if found else None


def noise_under(backend: Any, facts: dict[str, Any]) -> str:
    """The name under which the noise of a backend is kept."""
    return f"{backend} on {kept_under(facts)}"


def noise_of(store: Store, facts: dict[str, Any]) -> NoiseFloor | None:
    """The noise of the backend of an environment, if `doctor --aa` has measured it there."""
    kept = store.kept("noise", noise_under(facts.get("backend"), facts))
    return convert(kept, NoiseFloor) if kept else None
