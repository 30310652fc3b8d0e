"""Task: case x implementation x backend x settings. One thing to run."""

from __future__ import annotations

from msgspec import Struct, to_builtins

from opmark.schema.case import Case, content_id
from opmark.schema.sampling import Sampling


class Settings(Struct, frozen=True):
    threads: int
    effort: str
    sampling: Sampling
    seed: int = 0
    verify: bool = True


class Task(Struct, frozen=True):
    case: Case
    backend: str
    implementation: str
    settings: Settings

    @property
    def id(self) -> str:
        return content_id([self.case.id, self.backend, self.implementation, to_builtins(self.settings)])
