"""Where a model begins to differ from its reference, from a case whose outputs are those of its layers."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from opmark.schema import Record


class LayerDifference(Struct, frozen=True):
    """The first layer of a model on a backend that is further off than rounding explains; else the one that is nearest
    to its bound."""

    model: str
    backend: str
    status: str
    layer: str
    """Empty if no layer could be compared; `reason` says why."""
    number: int = 0
    """Its place among the layers, from 1."""
    layers: int = 0
    differs: bool = False
    error: float | None = None
    """Largest error, relative to the root mean square of the layer's output. None if it is not finite."""
    bound: float | None = None
    """What rounding explains, relative to the same."""
    reason: str = ""


def find_layer_differences(records: Iterable[Record]) -> list[LayerDifference]:
    """Return a line per record of a case with `outputs=layers`, in their order."""
    return [_find_difference(record) for record in records if record.task.case.params.get("outputs") == "layers"]


def _find_difference(record: Record) -> LayerDifference:
    known, case = record.verification, record.task.case
    shares: list[tuple[float, int]] = []
    worst = LayerDifference(case.op, record.task.backend, record.status_text, "", reason=record.reason)
    if known is None or not known.numerics:
        return worst
    for i, (name, found, bound) in enumerate(zip(known.outputs, known.numerics, known.bounds, strict=False)):
        spoilt = found.compared < found.elements
        error = None if found.max_abs is None or not found.rms else found.max_abs / found.rms
        share = float("inf") if spoilt or error is None else error / bound if bound else 0.0
        if not shares or share > max(shares)[0] or share > 1:
            worst = LayerDifference(
                case.op,
                record.task.backend,
                record.status_text,
                name,
                i + 1,
                len(known.numerics),
                share > 1,
                error,
                bound,
            )
        shares.append((share, i))
        if share > 1:
            break
    return worst
