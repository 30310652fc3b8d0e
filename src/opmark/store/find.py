"""What is looked for in a store: a run by its name, the noise of a machine."""

from __future__ import annotations

from typing import Any

from msgspec import convert

from opmark.errors import UnknownName, UserError
from opmark.interfaces import Store
from opmark.schema import Run
from opmark.schema.noise import NoiseFloor
from opmark.schema.peaks import kept_under


def find_run(store: Store, name: str | None) -> Run:
    """By its id, the beginning of it, or its label; without a name the last one."""
    known = store.runs()
    if not known:
        raise UserError("the store holds no run yet", "`opmark run --suite quick` makes one")
    if name is None:
        return known[0]
    for run in known:
        if name in (run.id, run.label):
            return run
    starting = [run for run in known if run.id.startswith(name)]
    if len(starting) == 1:
        return starting[0]
    if starting:
        listed = ", ".join(run.id for run in starting[:5])
        raise UserError(f"`{name}` begins {len(starting)} runs: {listed}", "give more of the id, or a label")
    raise UnknownName("run", name, [run.label for run in known if run.label] + [run.id for run in known])


def noise_under(backend: Any, facts: dict[str, Any]) -> str:
    """The name under which the noise of a backend is kept."""
    return f"{backend} on {kept_under(facts)}"


def noise_of(store: Store, facts: dict[str, Any]) -> NoiseFloor | None:
    """That of the backend of an environment, if `doctor --aa` has measured it there."""
    kept = store.kept("noise", noise_under(facts.get("backend"), facts))
    return convert(kept, NoiseFloor) if kept else None
