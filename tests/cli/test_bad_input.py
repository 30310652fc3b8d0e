"""Bad input: a message with a hint, exit code 2, nothing half-written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]


def refused(done: Any, db: Path, *parts: str) -> None:
    """One `error:` line and perhaps one `hint:` on stderr, nothing else, nothing stored."""
    code, out, err = done
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    begins = [line.split(":")[0] for line in err.splitlines()]
    assert begins in (["error"], ["error", "hint"]), err
    for part in parts:
        assert part in err
    assert not db.exists()


NULL = ["--backend", "null"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        # Names, with the nearest one.
        (["run", "matmull"], ["no operator named `matmull`", "`matmul`"]),
        (["run", "exp", "--backend", "nul"], ["no backend named `nul`", "`null`"]),
        (["run", "--suite", "quik"], ["no suite named `quik`", "`quick`"]),
        (["run", "exp", "--phase", "bakward", *NULL], ["no phase named `bakward`", "`backward`"]),
        (["run", "exp", "--size", "huge", *NULL], ["`huge`"]),
        (["run", "exp", "--effort", "quik", *NULL], ["no effort named `quik`", "`quick`"]),
        (["describe", "layer_nrm"], ["no operator named `layer_nrm`", "`layer_norm`"]),
        (["list", "op"], ["no listing named `op`", "`ops`"]),
        # Options of a fleet, without one.
        (["run", "exp", "--address", "head:6379", *NULL], ["--address is about the nodes", "add --executor ray"]),
        (["run", "exp", "--nodes", "a,b", *NULL], ["--nodes is about the nodes", "add --executor ray"]),
        (["run", "exp", "--chip", "H100", *NULL], ["--chip is about the nodes", "add --executor ray"]),
        (["run", "exp", "--unfit", *NULL], ["--unfit is about the nodes", "add --executor ray"]),
        (["ab", "exp", "--same", "--wait", "0", *NULL], ["--wait is about the nodes", "add --executor ray"]),
        (["fleet", "agree", "--wait", "-1"], ["--wait: expected seconds from 0", "--wait 90s"]),
        (["fleet", "agree", "--wait", "0", "--margin", "wide"], ["margin", "wide"]),
        # Durations.
        (["run", "exp", "--timeout", "soon", *NULL], ["timeout: expected a duration, got `soon`", "as in --timeout"]),
        # Versions of packages.
        (["bisect", "exp", "--package", "torch", "--good", "2.12.0", *NULL], ["--bad is needed", "--bad 2.13.0"]),
        (
            ["bisect", "exp", "--package", "torch", *NULL],
            ["--good is needed: a version", "--package torch --good 2.12.0"],
        ),
        (["bisect", "exp", "--versions", "1,2", *NULL], ["--versions goes with --package"]),
        # Parameters.
        (["run", "exp", "-p", "shap=4", *NULL], ["`exp` has no parameter `shap`", "`shape`"]),
        (["run", "matmul", "-p", "M=4", *NULL], ["`matmul` needs `N`, `K`", "-p N="]),
        (["run", "matmul", "-p", "M=abc", *NULL], ["`M`: expected a whole number", "abc"]),
        (["run", "matmul", "-p", "M=1.5", *NULL], ["`M`: expected a whole number", "1.5"]),
        (["run", "matmul", "-p", "M=-1", *NULL], ["`M`: expected a whole number of at least 1", "-1"]),
        (["run", "matmul", "-p", "M=0", *NULL], ["`M`: expected a whole number of at least 1", "`0`"]),
        (["run", "exp", "-p", "shape=4x0", *NULL], ["`shape`: expected a list of sizes of at least 1"]),
        (["run", "exp", "-p", "dtype=flaot32", *NULL], ["`dtype`", "flaot32", "`float32`"]),
        (["run", "exp", "-p", "dtype=bool", *NULL], ["`dtype`", "bool"]),
        (["run", "exp", "-p", "dtype=tf32", *NULL], ["`dtype`", "`tfloat32`", "matmul"]),
        (["run", "matmul", "-p", "dtype=float8_e4m3fn", *NULL], ["`dtype`", "quant_matmul"]),
        (["run", "exp", "--dtype", "float16", *NULL], ["no option --dtype", "-p dtype="]),
        (["run", "exp", "-p", "shape", *NULL], ["NAME=VALUE"]),
        (["run", "exp", "-p", "shape=4", "-p", "shape=8", *NULL], ["`shape` is given twice"]),
        (["run", "topk", "-p", "shape=4", "-p", "k=5", *NULL], ["`k` must"]),
        # What the backend lacks.
        (["run", "exp", "-p", "dtype=bfloat16", "--backend", "numpy-cpu"], ["numpy-cpu has no bfloat16"]),
        (["run", "exp", "--phase", "backward", "--backend", "numpy-cpu"], ["numpy-cpu has no automatic"]),
        # Settings.
        (["run", "exp", "--threads", "0", *NULL], ["threads: expected a whole number from 1 to"]),
        (["run", "exp", "--threads", "two", *NULL], ["--threads: expected whole numbers", "`two`"]),
        (["run", "exp", "--threads", "-1", *NULL], ["threads"]),
        (["run", "exp", "--timeout", "0", *NULL], ["timeout: expected seconds above 0"]),
        (["run", "exp", "--timeout", "inf", *NULL], ["timeout: expected seconds above 0"]),
        (["run", "exp", "--processes", "0", *NULL], ["processes: expected a whole number from 1 to", "--processes 5"]),
        (["run", "exp", "--samples", "0", *NULL], ["samples: expected a whole number from 1 to", "--samples 100"]),
        (["run", "exp", "--warmup", "-1", *NULL], ["warmup: expected a whole number from 0 to"]),
        (["run", "exp", "--seed", "-1", *NULL], ["seed: expected a whole number from 0 to 9223372036854775807"]),
        (
            ["run", "exp", "--min-samples", "-3", *NULL],
            ["min_samples: expected a whole number from 1 to", "--min-samples 30"],
        ),
        (
            ["check", "exp", "--baseline", "x", "--ranks", "0"],
            ["ranks: expected a whole number from 1 to 65536, got 0"],
        ),
        (
            ["run", "exp", "--rel-ci", "0", *NULL],
            ["rel_ci: expected a fraction of the median above 0 and up to 1", "--rel-ci 0.005"],
        ),
        (
            ["run", "exp", "--rel-ci", "nan", *NULL],
            ["rel_ci: expected a fraction of the median above 0 and up to 1, got nan"],
        ),
        (["run", "exp", "--min-time", "-1", *NULL], ["min_time: expected seconds above 0 and up to 1e+06, got -1"]),
        (["run", "exp", "--max-time", "inf", *NULL], ["max_time: expected seconds above 0 and up to 1e+06, got inf"]),
        (["run", "exp", "--min-time", "2", "--max-time", "1", *NULL], ["min_time 2 s is longer than max_time 1 s"]),
        (
            ["run", "exp", "--quantity", "latency,devicetime", *NULL],
            ["no quantity named `devicetime`", "`device_time`"],
        ),
        (["run", "exp", "--cache", "clod", *NULL], ["no cache named `clod`", "`cold`"]),
        (["run", "exp", "--mode", "continous", *NULL], ["no mode named `continous`", "`continuous`"]),
        (["run", "exp", "--timer", "cupty", *NULL], ["no timer named `cupty`", "`cupti`"]),
        (["run", "exp", "--cuda-l2-cache", "maybe", *NULL], ["--cuda-l2-cache: expected on or off, got `maybe`"]),
        (["run", "exp", "--mode", "discrete", "--quantity", "latency", *NULL], ["a mode measures one quantity"]),
        (["run", "exp", "--wrt", "y", *NULL], ["`exp` has no gradient for `y`", "for x"]),
        (
            ["run", "fault", "-p", "kind=none", "--wrt", "x", *NULL],
            ["`fault` has no gradient for `x`", "no gradients at all"],
        ),
        (["run", "--suite", "quick", "--wrt", "x", *NULL], ["a workload brings its own"]),
        # What to run.
        (["run"], ["got nothing", "as in matmul", "--suite quick"]),
        (["run", "exp", "--suite", "quick"], ["got operators and a suite"]),
        (["run", "--suite", "quick", "-p", "M=4"], ["-p goes with operators"]),
        # The store.
        (["show"], ["there is no store yet", "opmark run"]),
        (["run", "exp", "--resume", *NULL], ["there is no store yet"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and "--backend" in value else None,
)
def test_a_mistake_on_the_command_line(main: Command, db: Path, arguments: list[str], parts: list[str]) -> None:
    refused(main(*arguments), db, *parts)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["runn"], ["error: opmark: no such command 'runn'", "did you mean run?"]),
        (["no-such-command"], ["error: opmark: no such command", "`opmark --help`"]),
        (["--no-such-option"], ["error: opmark: no option --no-such-option", "`opmark --help`"]),
        (["list", "--dtype", "float16"], ["error: opmark list: no option --dtype", "hint: `opmark list --help`"]),
        (["run", "--efort", "quick"], ["error: opmark run: no option --efort", "hint: did you mean --effort?"]),
        (["run", "exp", "--seed", "x"], ["error: opmark run: invalid value for '--seed'", "`opmark run --help`"]),
        (["runs", "label"], ["error: opmark runs label: missing argument", "`opmark runs label --help`"]),
        (["describe"], ["error: opmark describe: missing argument"]),
    ],
    ids=lambda value: " ".join(value[:2]),
)
def test_a_mistake_in_the_use_of_a_command(main: Command, db: Path, arguments: list[str], parts: list[str]) -> None:
    """What the parser of the command line finds is told as every other mistake is."""
    code, out, err = main(*arguments)
    assert (code, out) == (2, "")
    assert [line.partition(":")[0] for line in err.splitlines()] == ["error", "hint"]
    for part in parts:
        assert part in err
    assert not db.exists()


def test_a_group_of_commands_alone_prints_its_help(main: Command) -> None:
    _, out, err = main("env")
    assert "error:" not in err
    assert "Make a virtual environment" in out + err


HEAD = "schema: 1\nname: mine\n"


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("w.yaml", "cases: [\n  {op: exp", ["w.yaml:2:"]),
        ("w.yaml", "schema: 1\nname: 'x\n", ["w.yaml:3:1"]),
        ("w.yaml", "\tname: x", ["w.yaml:1:1"]),
        ("w.json", '{\n "schema": 1,\n "name" "x"}', ["w.json:3:9"]),
        ("w.yaml", HEAD + "cases: []\n", ["expands to no case"]),
        ("w.yaml", HEAD + "cases: [{op: exp, params: {shape: []}}]\n", ["w.yaml", "$.cases[0].params.shape"]),
        ("w.yaml", HEAD + "cases: [{op: exp, params: {dtype: []}}]\n", ["$.cases[0].params.dtype", "no case"]),
        ("w.yaml", HEAD + "cases: [{op: exp, phases: []}]\n", ["$.cases[0].phases", "no case"]),
        ("w.yaml", HEAD + "cases: [{op: exp, parms: {}}]\n", ["w.yaml", "`parms`", "$.cases[0]", "`params`"]),
        ("w.yaml", HEAD + "case: []\n", ["w.yaml", "`case`", "`$`", "`cases`"]),
        ("w.yaml", HEAD + "cases: [{op: expp}]\n", ["w.yaml", "$.cases[0].op", "`expp`", "`exp`"]),
        ("w.yaml", HEAD + "cases: [{op: matmul, params: {M: 4, N: -4, K: 4}}]\n", ["$.cases[0].params.N", "-4"]),
        ("w.yaml", HEAD + "cases: [{op: matmul, params: {M: 4, N: '4', K: 4}}]\n", ["$.cases[0].params.N", "text"]),
        ("w.yaml", HEAD + "cases: [{op: matmul, params: {M: 4, K.N: [[4, 4], [4]]}}]\n", ["K.N[1]"]),
        ("w.yaml", HEAD + "cases: [{op: exp, sizes: [huge]}]\n", ["$.cases[0].sizes", "`huge`"]),
        ("w.yaml", HEAD + "cases: 5\n", ["w.yaml", "$.cases"]),
        ("w.yaml", "schema: 99\nname: x\ncases: []\n", ["version 99", "upgrade"]),
        ("w.yaml", "name: x\ncases: []\n", ["w.yaml", "schema"]),
        ("w.yaml", "", ["w.yaml", "nothing"]),
        ("w.yaml", "- 1", ["w.yaml", "list"]),
    ],
)
def test_a_mistake_in_a_workload(
    main: Command, db: Path, tmp_path: Path, name: str, text: str, parts: list[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    refused(main("run", "-w", str(path), *NULL), db, *parts)


@pytest.mark.parametrize("kind", ["missing", "folder", "binary"])
def test_a_workload_that_cannot_be_read(main: Command, db: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "w.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    refused(main("run", "-w", str(path), *NULL), db, str(path))


def test_a_mistake_is_the_exit_code_of_the_process(opmark: Command, db: Path) -> None:
    refused(opmark("run", "matmull"), db, "`matmul`")


def _text(path: Path) -> None:
    path.write_text("a letter of some length\n" * 100)


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE photo (name)")
        raw.commit()


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("CREATE TABLE opmark_meta (key, value)")
        raw.execute("INSERT INTO opmark_meta VALUES ('version', '99')")
        raw.commit()


@pytest.mark.parametrize("command", [["run", "exp", *NULL], ["show"]], ids=["run", "show"])
@pytest.mark.parametrize(
    ("make", "part"),
    [(_text, "is a text file, not a store"), (_foreign, "photo"), (_newer, "version 99")],
    ids=lambda v: None,
)
def test_a_store_that_is_none(
    main: Command, db: Path, tmp_path: Path, command: list[str], make: Callable[[Path], None], part: str
) -> None:
    path = tmp_path / "other.db"
    make(path)
    before = path.read_bytes()
    refused(main(*command, "--db", str(path)), db, str(path), part, "hint:")
    assert path.read_bytes() == before


def test_a_place_that_cannot_be_written(main: Command, db: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(main("run", "exp", *NULL, "--db", str(tmp_path / "file" / "store.db")), db, "hint:")


def test_an_argument_that_is_no_text(main: Command, db: Path) -> None:
    refused(main("run", "exp", *NULL, "--label", "\udcff"), db, "label")


def test_an_unknown_run_is_named_with_the_nearest(main: Command, db: Path) -> None:
    assert main("run", "add", "--size", "small", *NULL, "--label", "nightly").code == 0
    code, out, err = main("show", "nightley")
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == "error: no run named `nightley`"
    assert "`nightly`" in err


def test_there_is_nothing_to_resume(main: Command, db: Path) -> None:
    assert main("run", "add", "--size", "small", *NULL).code == 0
    code, out, err = main("run", "add", "--size", "large", *NULL, "--resume")
    assert (code, out) == (2, "")
    assert "error: no stored run has this plan" in err
    assert "hint: --resume needs the same" in err


AWAY = """
from opmark.frameworks.null.backend import NullBackend
from opmark.plugin import BackendInfo

INFO = BackendInfo(name="away", framework="null", device="none", loads="away:Backend", computes=False)


class Backend(NullBackend):
    def why_unavailable(self):
        return "no such device"
"""


def test_a_backend_that_cannot_run_here(opmark: Command, db: Path, install: Callable[[str, str], None]) -> None:
    install("away", AWAY)
    refused(opmark("run", "add", "--size", "small", "--backend", "away"), db, "`away` cannot run here: no such device")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("raise RuntimeError('built for another version')", "built for another version"),
        ("INFO = 5", "BackendInfo"),
    ],
    ids=["raises", "of another kind"],
)
def test_a_broken_plug_in_is_named_and_the_rest_works(
    opmark: Command, db: Path, install: Callable[[str, str], None], source: str, why: str
) -> None:
    install("broken_npu", source)
    code, out, err = opmark("run", "add", "--size", "small", *NULL)
    assert code == 0
    assert "ok" in out
    (warning,) = (line for line in err.splitlines() if line.startswith("warning:"))
    assert "broken_npu" in warning
    assert why in warning
