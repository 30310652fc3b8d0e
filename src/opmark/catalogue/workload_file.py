"""Read and write workload files, and read the suites that ship with opmark."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from opmark.errors import InvalidFile, UnknownName
from opmark.schema import Entry, Workload
from opmark.schema.codec import convert, why_too_many_aliases
from opmark.schema.workload import VERSION

_SYNTAX = "look at brackets, quotes, commas and indentation there"
_SUITE_ENDINGS = (".yaml", ".json")
_TOO_DEEP = "lists and mappings are nested too deeply"
_LOOKS = "docs/write-a-workload.md shows what a workload looks like"


class PlainData(NamedTuple):
    data: Any
    """The content of a file; a row of CSV is a mapping of texts."""
    relaxed: InvalidFile | None = None
    """The error that stands in the way of reading the file as JSON, though it could be read without comments and
    trailing commas, as files of other systems have them."""


def load(path: Path) -> Workload:
    """Read a workload file: JSON if it ends in .json, else YAML."""
    found = read_plain(path)
    if found.relaxed:
        raise found.relaxed
    return workload_of(found.data, str(path))


def read(path: Path) -> Any:
    return read_plain(path).data


def read_plain(path: Path) -> PlainData:
    """Return the content of a file: JSON or CSV by its ending, else YAML."""
    text, where = _read(path), str(path)
    if path.suffix == ".csv":
        return PlainData(_rows(text, where))
    if path.suffix != ".json":
        return PlainData(read_yaml(text, where))
    try:
        return PlainData(_plain_json(text, where))
    except InvalidFile as error:
        plain = _blank_comments(text)
        if plain == text:
            raise
        return PlainData(_plain_json(plain, where), error)


_STRING = r'"(?:\\.|[^"\\\n])*"'


def _blank_comments(text: str) -> str:
    """Replace `// ...` and commas before a closing bracket by spaces, so that places in the text stay the same."""
    plain = re.sub(rf"{_STRING}|//[^\n]*", lambda found: found[0] if found[0][0] == '"' else " " * len(found[0]), text)
    return re.sub(rf"{_STRING}|,(?=\s*[\]}}])", lambda found: " " if found[0] == "," else found[0], plain)


def suite(name: str) -> Workload:
    """Return a workload that ships with opmark."""
    known = _suite_files()
    if name not in known:
        raise UnknownName("suite", name, known, "opmark list suites")
    where, text = f"suite {name}", known[name].read_text()
    data = _plain_json(text, where) if known[name].name.endswith(".json") else read_yaml(text, where)
    return workload_of(data, where)


def suites() -> list[Workload]:
    return [suite(name) for name in _suite_files()]


def _suite_files() -> dict[str, Any]:
    """Return the files of the suites by name. A large one that a program wrote is JSON, which is read in no time."""
    found = (item for item in (files("opmark.catalogue") / "suites").iterdir() if item.name.endswith(_SUITE_ENDINGS))
    return dict(sorted((item.name.rpartition(".")[0], item) for item in found))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidFile(
            f"{path}: cannot be read: {error.strerror}",
            "check the path; use --suite for a suite that ships with opmark",
        ) from None
    except UnicodeDecodeError as error:
        raise InvalidFile(
            f"{path}: is not text: byte {error.start} is not UTF-8", "a workload is a YAML or JSON file"
        ) from None
    except ValueError as error:  # a path with NUL in it
        raise InvalidFile(f"{str(path)!a}: cannot be read: {error}", "check the path") from None


def _rows(text: str, where: str) -> list[dict[str, str]]:
    rows = list(csv.reader(text.splitlines()))
    if not rows or len(set(rows[0])) < len(rows[0]):
        raise InvalidFile(f"{where}: the first line of a CSV file names its columns, each once", _LOOKS)
    for number, row in enumerate(rows[1:], 2):
        if row and len(row) != len(rows[0]):
            raise InvalidFile(
                f"{where}:{number}: expected {len(rows[0])} values, got {len(row)}",
                "give one value per column",
            )
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:] if row]


def workload_of(data: Any, where: str) -> Workload:
    """Convert plain data into a workload; error messages name `where`, the file."""
    if not isinstance(data, dict):
        got = "nothing" if data is None else f"a {type(data).__name__}"
        raise InvalidFile(f"{where}: expected a mapping with `schema`, `name` and `cases`, got {got}", _LOOKS)
    version = data.get("schema")
    if isinstance(version, int) and version > VERSION:
        raise InvalidFile(
            f"{where}: the file has format version {version}; this opmark reads up to {VERSION}", "upgrade opmark"
        )
    workload = convert(data, Workload, where)
    if workload.schema != VERSION:
        raise InvalidFile(f"{where}: there is no format version {version}, at `$.schema`", f"write schema: {VERSION}")
    return workload


def _plain_json(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _refuse_repeated_keys(pairs, where))
    except json.JSONDecodeError as error:
        if not text.strip():
            raise InvalidFile(
                f"{where}:1:1: the file is empty", "a workload has `schema`, `name` and `cases`"
            ) from None
        raise InvalidFile(f"{where}:{error.lineno}:{error.colno}: {error.msg}", _SYNTAX) from None
    except ValueError:
        raise InvalidFile(f"{where}: a whole number has more digits than can be read", _LOOKS) from None
    except RecursionError:
        raise InvalidFile(f"{where}: {_TOO_DEEP}", _LOOKS) from None


def _refuse_repeated_keys(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise InvalidFile(f"{where}: key `{twice}` appears twice in one object", "leave one of them out")
    return found


def read_yaml(text: str, where: str) -> Any:
    """Parse YAML; errors name `where` with line and column."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # a safe loader, made stricter
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        raise InvalidFile(f"{place}: {error.problem}", _SYNTAX) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        raise InvalidFile(f"{where}:{line}:{column}: {error.reason}: #x{error.character:04x}", _SYNTAX) from None
    except RecursionError:
        raise InvalidFile(f"{where}: {_TOO_DEEP}", _LOOKS) from None


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses repeated keys, reads 1e-5 as a number, and says where a malformed value is."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and (problem := why_too_many_aliases(node)):
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key `{key}` appears twice in one mapping", problem_mark=key_node.start_mark
                )
            seen.add(key if isinstance(key, str) else id(key))
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, AttributeError) as error:  # raised by PyYAML's constructors on a malformed scalar
            raise yaml.MarkedYAMLError(problem=str(error), problem_mark=node.start_mark) from None


_MERGE = "tag:yaml.org,2002:merge"
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


# Write a workload as a file: name and description first, then one line per entry.


def yaml_text(workload: Workload) -> str:
    """Format a workload with each entry on one line, in the subset of YAML that is JSON: fast to write, read and
    search."""
    head = {"schema": workload.schema, "name": workload.name, "description": workload.description}
    lines = [f"{key}: {_line(value)}" for key, value in head.items() if value]
    return "\n".join([*lines, "cases:", *(f"  - {_line(_brief(entry))}" for entry in workload.cases)]) + "\n"


def json_text(workload: Workload) -> str:
    head = msgspec.to_builtins(msgspec.structs.replace(workload, cases=[]))
    del head["cases"]  # which come last
    return _line({**head, "cases": [_brief(entry) for entry in workload.cases]}) + "\n"


def compact(entries: Sequence[Entry]) -> list[Entry]:
    """Join neighbouring entries that differ only in the values of their parameters into one entry with rows. The cases
    and their order stay the same; how a foreign file writes each of them is left out."""
    found: list[Entry] = []
    own = (msgspec.structs.replace(entry, written_as="") if entry.written_as else entry for entry in entries)
    for _, group in groupby(own, key=_group_key):
        found += _join(list(group))
    return found


def _line(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _brief(entry: Entry) -> dict[str, Any]:
    """Return the fields that differ from the defaults."""
    usual = msgspec.to_builtins(Entry(entry.op))
    return {key: value for key, value in msgspec.to_builtins(entry).items() if key == "op" or value != usual[key]}


def _group_key(entry: Entry) -> bytes:
    rest = msgspec.structs.replace(entry, params=dict.fromkeys(entry.params))
    return msgspec.json.encode(rest)


def _join(group: list[Entry]) -> Iterator[Entry]:
    first = group[0]
    constant = {k: v for k, v in first.params.items() if all(entry.params[k] == v for entry in group)}
    changing = [name for name in first.params if name not in constant]
    if len(group) == 1 or not changing:
        yield from group
        return
    rows = [[_value(entry.params[name]) for name in changing] for entry in group]
    axis: list[Any] = [row[0] for row in rows] if len(changing) == 1 else rows
    yield msgspec.structs.replace(first, params={**constant, ".".join(changing): axis})


def _value(written: Any) -> Any:
    """Unwrap a list value, which an entry writes as an axis of one value."""
    return written[0] if isinstance(written, list) and len(written) == 1 and isinstance(written[0], list) else written
