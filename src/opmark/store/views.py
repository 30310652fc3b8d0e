"""The views: what `opmark query` is asked about. Their columns are a promise (docs/store.md); the tables are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, text

from opmark.errors import StoreError

# How each database looks into JSON: (an item of a list, a fact by its name, the rows of the list of figures).
_WORDS = {
    "sqlite": {
        "each": "LEFT JOIN json_each(r.figures) AS m",
        "text": "json_extract(m.value, '$[{0}]')",
        "number": "json_extract(m.value, '$[{0}]')",
        "whole": "json_extract(m.value, '$[{0}]')",
        "fact": "json_extract(e.facts, '$.{0}')",
    },
    "postgresql": {
        "each": "LEFT JOIN LATERAL json_array_elements(r.figures::json) AS m(value) ON true",
        "text": "(m.value ->> {0})",
        "number": "(m.value ->> {0})::double precision",
        "whole": "(m.value ->> {0})::bigint",
        "fact": "(e.facts::json ->> '{0}')",
    },
}

# The columns of `figures`, in their order, and how each is read.
_FIGURE = (("quantity", "text"), ("cache", "text"), ("timer", "text"), ("calls", "whole"), ("samples", "whole"),
           ("median", "number"), ("low", "number"), ("high", "number"), ("cycles", "number"),
           ("cautions", "text"))  # fmt: skip
_FACTS = ("machine", "cpu", "gpu", "device", "backend", "python", "torch", "opmark", "system")
_RECORD = ("run_id", "case_id", "op", "phase", "backend", "implementation", "threads", "process", "status", "reason",
           "environment_id", "started", "duration")  # fmt: skip

NAMES = ("runs", "records", "results", "cases", "environments", "findings")


def _noted(kind: str) -> str:
    """The newest of what was said of a run."""
    newest = f"FROM run_note n WHERE n.run_id = u.id AND n.kind = '{kind}' ORDER BY n.number DESC LIMIT 1"
    return f"(SELECT n.text {newest})"


def create_views(dialect: str) -> Iterator[str]:
    """The statements that make them, anew where they are there."""
    words = _WORDS[dialect]
    label = f"coalesce({_noted('label')}, u.label)"
    record = ", ".join(f"r.{name}" for name in _RECORD)
    joined = "record r JOIN run u ON u.id = r.run_id LEFT JOIN bench_case c ON c.id = r.case_id"
    figure = ", ".join(f"{words[kind].format(place)} AS {name}" for place, (name, kind) in enumerate(_FIGURE))
    facts = ", ".join(f"{words['fact'].format(name)} AS {name}" for name in _FACTS)
    bodies = {
        "runs": f"SELECT u.number, u.id, u.started, {label} AS label, "
        f"coalesce({_noted('description')}, '') AS description, u.tasks, "
        "(SELECT count(*) FROM record r WHERE r.run_id = u.id) AS records, "
        "u.command, u.version, u.revision, u.session, u.plan FROM run u",
        "records": f"SELECT r.number, {record}, c.params, {label} AS label, u.started AS run_started FROM {joined}",
        "results": f"SELECT r.number, {record}, c.params, {label} AS label, u.started AS run_started, {figure} "
        f"FROM {joined} {words['each']}",
        "cases": "SELECT id, op, phase, params, wrt FROM bench_case",
        "environments": f"SELECT e.id, {facts}, e.facts FROM environment e",
        "findings": "SELECT number, kind, chip, started, body FROM finding",
    }
    if dialect == "postgresql":  # who may read them, and what others made of them, stays
        yield from (f"CREATE OR REPLACE VIEW {name} AS {bodies[name]}" for name in NAMES)
        return
    for name in reversed(NAMES):
        yield f"DROP VIEW IF EXISTS {name}"
    for name in NAMES:
        yield f"CREATE VIEW {name} AS {bodies[name]}"


def refuse_taken(connection: Connection, where: str, names: Iterable[str]) -> None:
    """Before the first table is made among those of others: nothing of theirs is taken for ours, or replaced."""
    wanted = sorted({*names, *NAMES})
    query = "SELECT relname FROM pg_class WHERE relname = ANY(:names) AND pg_table_is_visible(oid) ORDER BY relname"
    if taken := connection.execute(text(query), {"names": wanted}).scalars().all():
        raise StoreError(
            f"{where}: has something else called {', '.join(taken)}; nothing was made",
            "give opmark a database of its own, or a schema: CREATE SCHEMA opmark, and behind the address "
            "?options=-csearch_path%3Dopmark",
        )
