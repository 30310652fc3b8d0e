"""A quantity, described: what it is and when to look at it."""

from __future__ import annotations

from rich.text import Text

from opmark.schema import Quantity

_WHERE = {
    "device": "on a device with a clock of its own, cold and warm",
    "host": "where a call returns before its work is done, warm; cold by --cache cold",
    "any": "on every backend, warm; cold by --cache cold",
}


def quantity_text(quantity: Quantity) -> Text:
    unit = {"s": "seconds", "J": "joules"}[quantity.unit]
    return Text.assemble(
        (quantity.name, "bold"), f" ({unit} a call): {quantity.meaning}\n",
        f"look at it for: {quantity.use}\n",
        f"measured: {_WHERE[quantity.on]}",
    )  # fmt: skip
