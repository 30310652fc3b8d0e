"""Environment: everything about a machine and its software that may explain a number."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from opmark.schema.case import content_id


class Environment(Struct, frozen=True):
    id: str
    facts: dict[str, Any]

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Environment:
        return cls(content_id(facts), facts)
