"""Reading of workload files, and errors that name the file and the place."""

from __future__ import annotations

import json
import string

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opmark.catalogue.workload_file import load, suite, suites
from opmark.errors import InvalidFile, UnknownName
from opmark.schema import Entry, Workload

HEAD = "schema: 1\nname: mine\ncases:\n"
GOOD = Workload(1, "mine", [Entry("matmul", {"M": [1, 2], "K.N": [[3, 4]]}, tags=["llm"])])


@pytest.fixture
def read(tmp_path):
    def read(text: str | bytes, name: str = "w.yaml") -> Workload:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return load(path)

    return read


@pytest.fixture
def complaint(read, tmp_path):
    """Return the error of a file, without its folder."""

    def complaint(text: str | bytes, name: str = "w.yaml") -> InvalidFile:
        with pytest.raises(InvalidFile) as caught:
            read(text, name)
        error = caught.value
        return InvalidFile(error.message.replace(f"{tmp_path}/", ""), error.hint)

    return complaint


def test_a_yaml_file_is_read(read):
    text = HEAD + "  - op: matmul\n    params: {M: [1, 2], K.N: [[3, 4]]}\n    tags: [llm]\n"
    assert read(text) == read(text, "w.yml") == GOOD


def test_a_json_file_is_read_by_its_ending(read):
    entry = '{"op": "matmul", "params": {"M": [1, 2], "K.N": [[3, 4]]}, "tags": ["llm"]}'
    assert read(f'{{"schema": 1, "name": "mine", "cases": [{entry}]}}', "w.json") == GOOD


def test_everything_that_a_file_may_say_arrives(read):
    text = HEAD + (
        "  - {op: exp, params: {shape: [4]}, sizes: [small], elements: [100], phases: [backward, forward],\n"
        "     tags: [a, b], wrt: [x], args: [8x64 float32], kwargs: {dim: 1}, build: [2], source: a paper}\n"
        "description: what it is for\n"
    )
    entry = Entry(
        "exp", {"shape": [4]}, sizes=["small"], elements=[100], phases=["backward", "forward"], tags=["a", "b"],
        wrt=["x"], args=["8x64 float32"], kwargs={"dim": 1}, build=[2], source="a paper",
    )  # fmt: skip
    assert read(text) == Workload(1, "mine", [entry], "what it is for")


letters = st.text(string.ascii_letters, min_size=3, max_size=8).filter(
    lambda word: word.lower() not in ("yes", "off", "true", "false", "null")
)
values = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | letters
workloads = st.fixed_dictionaries(
    {
        "schema": st.just(1),
        "name": letters,
        "cases": st.lists(
            st.fixed_dictionaries(
                {"op": letters, "params": st.dictionaries(letters, values | st.lists(values, max_size=3), max_size=3)},
                optional={"tags": st.lists(letters, max_size=2), "phases": st.just(["backward"])},
            ),
            max_size=3,
        ),
    }
)


@given(workloads)
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_formats_read_as_the_same(read, data):
    from_json, from_yaml = read(json.dumps(data), "w.json"), read(yaml.safe_dump(data), "w.yaml")
    assert from_json == from_yaml
    assert [entry.params for entry in from_json.cases] == [entry["params"] for entry in data["cases"]]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-5", 1e-5),
        ("1E-5", 1e-5),
        ("-2e3", -2000.0),
        ("+2e+3", 2000.0),
        (".5e1", 5.0),
        ("1.e2", 100.0),
        ("1.5", 1.5),
        ("12", 12),
        ('"1e-5"', "1e-5"),
        ("1e", "1e"),
        ("e5", "e5"),
        ("1e5x", "1e5x"),
    ],
)
def test_a_number_is_a_number_and_nothing_else_is(read, written, value):
    found = read(HEAD + f"  - {{op: layer_norm, params: {{eps: {written}}}}}\n").cases[0].params["eps"]
    assert (found, type(found)) == (value, type(value))


def test_parts_may_be_shared_by_anchors_and_merged(read):
    text = HEAD + "  - &base {op: exp, params: {shape: [4]}}\n  - {<<: *base, phases: [backward]}\n"
    assert read(text).cases == [Entry("exp", {"shape": [4]}), Entry("exp", {"shape": [4]}, phases=["backward"])]


def test_a_key_beside_a_merged_one_is_above_it(read):
    text = HEAD + "  - &base {op: exp, tags: [a]}\n  - {<<: *base, tags: [b]}\n"
    assert [entry.tags for entry in read(text).cases] == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("schema: 1\nname: [mine\ncases: []\n", "w.yaml:3:6: "),
        ("schema: 1\n\tname: mine\n", "w.yaml:2:1: "),
        (HEAD + "  - {op: add\n", "w.yaml:5:1: "),
        (HEAD + "  - op: add\n   tags: []\n", "w.yaml:5:4: "),
        (HEAD + "  - {op: *nobody}\n", "w.yaml:4:10: "),
        (HEAD + "  - !!python/object/apply:os.getcwd {}\n", "w.yaml:4:5: "),
        (HEAD + "  - {op: add}\n---\nmore: 1\n", "w.yaml:5:1: "),
        ('name: "never closed\n', "w.yaml:2:1: "),
    ],
)
def test_a_malformed_yaml_file_is_named_with_line_and_column(complaint, text, place):
    error = complaint(text)
    assert error.message.startswith(place)
    assert len(error.message) > len(place)


def test_a_character_that_yaml_forbids_is_named_with_line_and_column(complaint):
    message = complaint(HEAD + "  - {op: add\x07}\n").message
    assert message.startswith("w.yaml:4:13: ")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"schema": 1,\n "name": }', "w.json:2:10: "),
        ('{"schema": 1', "w.json:1:13: "),
        ("", "w.json:1:1: "),
        ('{"schema": 1} {}', "w.json:1:15: "),
        ("{'schema': 1}", "w.json:1:2: "),
    ],
)
def test_a_malformed_json_file_is_named_with_line_and_column(complaint, text, place):
    error = complaint(text, "w.json")
    assert error.message.startswith(place)
    assert len(error.message) > len(place)


def test_a_key_that_stands_twice_is_named_with_its_second_place(complaint):
    message = complaint(HEAD + "  - {op: add}\nname: again\n").message
    assert message == "w.yaml:5:1: key `name` appears twice in one mapping"


def test_a_key_that_stands_twice_further_down_is_found(complaint):
    message = complaint(HEAD + "  - {op: add, params: {M: 1, N: 2, M: 3}}\n").message
    assert message == "w.yaml:4:36: key `M` appears twice in one mapping"


def test_the_same_key_in_two_mappings_is_no_mistake(read):
    assert len(read(HEAD + "  - {op: add}\n  - {op: exp}\n").cases) == 2


@pytest.mark.parametrize("text", ['{"schema": 1, "name": "a", "name": "b"}', '{"cases": [{"name": 1, "name": 1}]}'])
def test_a_json_key_that_stands_twice_is_named(complaint, text):
    assert complaint(text, "w.json").message == "w.json: key `name` appears twice in one object"


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "nothing"),
        ("# only words\n", "nothing"),
        ("- op: add\n", "a list"),
        ("matmul\n", "a str"),
        ("7\n", "a int"),
    ],
)
def test_a_file_that_is_no_mapping_says_what_it_needs(complaint, text, got):
    assert complaint(text).message == f"w.yaml: expected a mapping with `schema`, `name` and `cases`, got {got}"


def test_a_newer_format_is_named_before_its_unknown_keys(complaint):
    error = complaint("schema: 7\nname: mine\naxes: {}\n")
    assert error.message == "w.yaml: the file has format version 7; this opmark reads up to 1"
    assert error.hint == "upgrade opmark"


@pytest.mark.parametrize("version", [0, -1])
def test_a_format_that_never_was_is_named(complaint, version):
    error = complaint(f"schema: {version}\nname: mine\ncases: []\n")
    assert error.message == f"w.yaml: there is no format version {version}, at `$.schema`"
    assert error.hint == "write schema: 1"


def test_a_file_without_a_version_is_asked_for_one(complaint):
    assert complaint("name: mine\ncases: []\n").message == "w.yaml: object missing required field `schema`, at `$`"


@pytest.mark.parametrize(
    ("version", "got"), [("true", "true or false"), ('"1"', "text"), ("1.0", "a number"), ("", "nothing")]
)
def test_a_version_is_a_whole_number(complaint, version, got):
    message = complaint(f"schema: {version}\nname: mine\ncases: []\n").message
    assert message == f"w.yaml: expected a whole number, got {got}, at `$.schema`"


def test_an_unknown_key_names_file_place_and_the_nearest(complaint):
    error = complaint(HEAD + "  - {op: add}\n  - {op: exp, parmas: {}}\n")
    assert error.message == "w.yaml: unknown key `parmas`, at `$.cases[1]`"
    assert error.hint.startswith("did you mean `params`? ")


def test_a_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(InvalidFile) as caught:
        load(tmp_path / "none.yaml")
    assert caught.value.message == f"{tmp_path}/none.yaml: cannot be read: No such file or directory"


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(InvalidFile, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    # A fake error, because root can read every file.
    def refuse(self, encoding):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.read_text", refuse)
    with pytest.raises(InvalidFile) as caught:
        load(tmp_path / "w.yaml")
    assert caught.value.message == f"{tmp_path}/w.yaml: cannot be read: Permission denied"


@pytest.mark.parametrize("name", ["w.yaml", "w.json"])
def test_a_file_that_is_not_utf8_says_where(complaint, name):
    assert complaint(b"name: \xff\xfe", name).message == f"{name}: is not text: byte 6 is not UTF-8"


def test_text_beyond_ascii_is_read(read):
    assert read("schema: 1\nname: grüße\ncases: []\n").name == "grüße"


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "  - {op: add, source: 2024-13-45}\n",
        HEAD + "  - {op: add, source: !!int abc}\n",
        HEAD + "  - {op: add, source: !!timestamp abc}\n",
    ],
)
def test_a_value_that_is_not_what_it_looks_like_is_a_complaint_with_its_place(complaint, text):
    assert complaint(text).message.startswith("w.yaml:4:")


@pytest.mark.parametrize(("name", "depth"), [("w.yaml", 3000), ("w.json", 100_000)])
def test_nesting_without_end_is_a_complaint(complaint, name, depth):
    assert complaint("[" * depth, name).message == f"{name}: lists and mappings are nested too deeply"


@pytest.mark.parametrize("name", ["w.yaml", "w.json"])
def test_a_number_of_thousands_of_digits_is_a_complaint(complaint, name):
    assert complaint('{"schema": ' + "1" * 5000 + "}", name).message.startswith(name)


def test_a_suite_is_found_by_name():
    assert suite("quick").name == "quick"


def test_an_unknown_suite_is_named_with_the_nearest():
    with pytest.raises(UnknownName) as caught:
        suite("quik")
    assert caught.value.message == "no suite named `quik`"
    assert caught.value.hint == "did you mean `quick`? `opmark list suites` lists them all"


def test_suites_are_all_listed_once_in_alphabetical_order():
    names = [workload.name for workload in suites()]
    assert names == sorted(set(names))
    assert {"quick", "faults"} <= set(names)
