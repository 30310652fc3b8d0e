"""Select a part of a workload by size, name, category or tag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from msgspec.structs import replace

from opmark.errors import UserError
from opmark.schema import Case, Operator, Workload

_MOST_TAGS = 40


@dataclass(frozen=True)
class Selection:
    """Filters over a workload. An empty filter selects everything; several values of one kind are alternatives."""

    names: Sequence[str] = ()
    """Names of operators, or patterns with `*` and `?`."""
    categories: Sequence[str] = ()
    tags: Sequence[str] = ()
    sizes: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.names or self.categories or self.tags or self.sizes)

    def of_sizes(self, workload: Workload) -> Workload:
        """Return the workload without the entries that do not have these sizes."""
        if not self.sizes:
            return workload
        kept = [replace(entry, sizes=[s for s in entry.sizes if s in self.sizes]) for entry in workload.cases]
        return replace(workload, cases=[entry for entry in kept if entry.sizes])

    def of_cases(self, cases: Sequence[Case], find: Callable[[str], Operator]) -> list[Case]:
        return [case for case in cases if self._accepts(case, find)]

    def _accepts(self, case: Case, find: Callable[[str], Operator]) -> bool:
        return (
            (not self.names or any(self._matches_name(case.op, name, find) for name in self.names))
            and (not self.categories or find(case.op).category in self.categories)
            and (not self.tags or bool(set(self.tags) & set(case.tags)))
        )

    def _matches_name(self, op: str, name: str, find: Callable[[str], Operator]) -> bool:
        return any(fnmatchcase(known, name) for known in (op, *find(op).aliases))

    def nothing(self, of: str, cases: Sequence[Case] = ()) -> UserError:
        """Return the error for a selection that is empty; `cases` is what it selected from."""
        asked = (("op", self.names), ("category", self.categories), ("tag", self.tags), ("size", self.sizes))
        listed = ", ".join(f"--{kind} {','.join(values)}" for kind, values in asked if values)
        tags = sorted({tag for case in cases for tag in case.tags})
        hint = "`--dry-run` without these options lists all cases"
        if self.sizes and not cases:
            hint = "--size selects entries that have `sizes`; the entries of this workload set parameters instead"
        elif self.tags and tags:
            hint = f"its tags are {', '.join(tags[:_MOST_TAGS])}" + (", ..." if len(tags) > _MOST_TAGS else "")
        return UserError(f"{of} has no case for {listed}", hint)
