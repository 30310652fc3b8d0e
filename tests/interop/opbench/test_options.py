"""Options of `opmark opbench`, its models by their names, its targets, and the choice of key operators."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from opmark.errors import UnknownName, UserError
from opmark.interop.opbench.command import main
from opmark.interop.opbench.models import LOCAL, NAMES, SIMPLE, TRANSFORMERS, choose_model, fetch_onnx
from opmark.interop.opbench.operators import KeyOperator, key_operators, with_shares
from opmark.interop.opbench.options import read_options
from opmark.interop.opbench.targets import choose_target
from opmark.models.zoo import find

README = ["--modelsource=local", "--modelname=resnet-18"]


def test_the_defaults_are_those_of_the_readme() -> None:
    found = read_options(README)
    assert (found.target, found.batchsize, found.tuner, found.trials) == ("llvm", 1, "xgb", 3000)
    assert (found.iftune, found.ifcompare, found.ifpartial) == (False, False, False)
    assert found.modelnames == ("resnet-18",)


@pytest.mark.parametrize("flag", ["iftune", "ifcompare", "iftime", "download"])
@pytest.mark.parametrize(
    ("written", "meant"),
    [("=true", True), ("=false", False), (" true", True), (" False", False), ("=1", True), ("=no", False), ("", True)],
)
def test_true_and_false_mean_what_they_say(flag: str, written: str, meant: bool) -> None:
    assert getattr(read_options([*README, *f"--{flag}{written}".split()]), flag) is meant


def test_both_forms_of_an_option() -> None:
    one = read_options(["--modelsource", "local", "--modelname", "resnet-18", "--batchsize", "4", "--top", "0.9"])
    two = read_options([*README, "--batchsize=4", "--top=90%"])
    assert one == two
    assert (one.batchsize, one.top) == (4, 0.9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--modelsource: no source is named"),
        (["--modelsource", "local"], "--modelname: no model is named"),
        ([*README, "--iftune=maybe"], "expected true or false, got `maybe`"),
        ([*README, "--batchsize=0"], "expected a whole number from 1"),
        ([*README, "--batchsize=two"], "expected a whole number from 1"),
        ([*README, "--top=0%"], "expected a share above 0 and up to 100%"),
        ([*README, "--top=190%"], "expected a share above 0 and up to 100%"),
        ([*README, "--port=9090"], "--host and --port belong together"),
        ([*README, "--ifpartial=true"], "needs --iftune true"),
        ([*README, "--ifpartial", "--iftune", "--iftime=false"], "needs the time of the model"),
        (["--modelsource", "local", "--modelname=,"], "--modelname: no model is named"),
        ([*README, "--trails=3"], "unrecognized arguments: --trails=3"),
        ([*README, "--executor=aot"], "invalid choice: 'aot'"),
    ],
)
def test_mistakes_have_messages(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        main(arguments)
    assert message in caught.value.message


def test_an_unknown_tuner_is_named_with_the_list() -> None:
    with pytest.raises(UserError, match="no tuner is called `grid`") as caught:
        main([*README, "--tuner=grid"])
    for name in ("xgb", "xgb-rank", "xgb_knob", "xgb_itervar", "xgb_curve", "ga", "random", "gridsearch"):
        assert name in (caught.value.hint or "").replace(",", " ").split()


def test_an_unknown_model_is_named_with_its_source() -> None:
    with pytest.raises(UnknownName, match="model of the source local"):
        main(["--modelsource=local", "--modelname=resnet-19"])
    with pytest.raises(UserError, match="`bert` is a model of the source transformers, not of local"):
        main(["--modelsource=local", "--modelname=bert"])
    with pytest.raises(UnknownName, match="model source"):
        main(["--modelsource=mxnet", "--modelname=bert"])


# Models.


def test_all_names_of_opbench_are_there() -> None:
    depths = (18, 34, 50, 101, 152)
    resnets = {f"{kind}-{depth}" for kind in ("resnet", "resnet3d") for depth in depths}
    assert set(LOCAL) == resnets | {"mobilenet", "squeezenet_v1.1", "inception_v3", "yolov5n", "yolov3"}
    assert set(TRANSFORMERS) == {"bert", "gpt2", "roberta", "nasnetalarge", "dpn68", "lstm", "rnn", "gru"}
    assert set(SIMPLE) == {"matmul", "matmul_matmul_add"}


@pytest.mark.parametrize("name", ["resnet3d-18", "yolov3", "bert", "lstm", "matmul", "dpn68"])
def test_the_batch_size_is_that_of_the_case(name: str, tmp_path: Path) -> None:
    source = next(source for source, known in NAMES.items() if name in known)
    chosen = choose_model(source, name, 3, size="full", folder=tmp_path, download=False)
    assert chosen.case.params["batch"] == 3


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("resnet-18", 11.69), ("resnet-50", 25.56), ("mobilenet", 4.23), ("squeezenet_v1.1", 1.24),
        ("inception_v3", 23.8), ("yolov5n", 1.87), ("yolov3", 8.85), ("bert", 108.9), ("gpt2", 124.4),
        ("roberta", 124.1), ("nasnetalarge", 88.75), ("dpn68", 12.6), ("lstm", 67.2),
    ],
)  # fmt: skip
def test_models_have_the_published_number_of_parameters(name: str, published: float) -> None:
    """In millions. That the networks have these numbers is tested with the zoo."""
    model = find(next(known[name].model for known in NAMES.values() if name in known))
    assert model is not None
    assert model.parameters / 1e6 == pytest.approx(published, rel=0.005)


def test_texts_have_the_length_that_opbench_gives_them(tmp_path: Path) -> None:
    chosen = choose_model("transformers", "gpt2", 1, size="full", folder=tmp_path, download=False)
    assert chosen.case.params["seq"] == 128


def test_an_input_that_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    choose = partial(choose_model, "local", "resnet-18", 1, size="full", folder=tmp_path, download=False)
    assert choose(inputname="image") == choose(inputname="data") == choose()
    with pytest.raises(UserError, match="has no input `input0`"):
        choose(inputname="input0")


# Files of `remoteonnx`.


def _archive(path: Path, **files: bytes) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_dot_", "."))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_an_archive_gives_its_graph_and_what_lies_beside_it(tmp_path: Path) -> None:
    path = _archive(tmp_path / "net.tar.gz", net__model_dot_onnx=b"graph", net__weights_dot_bin=b"w", other__x=b"x")
    found = fetch_onnx(str(path), tmp_path / "models", download=False)
    assert found == tmp_path / "models" / "net" / "model.onnx"
    assert {file.name: file.read_bytes() for file in found.parent.iterdir()} == {
        "model.onnx": b"graph", "weights.bin": b"w",
    }  # fmt: skip


def test_nothing_of_an_archive_is_written_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "net.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("../../evil.onnx")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    found = fetch_onnx(str(path), tmp_path / "a" / "models", download=False)
    assert found == tmp_path / "a" / "models" / "net" / "evil.onnx"
    assert not list(tmp_path.rglob("../evil.onnx"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("two.tar.gz", {"a_dot_onnx": b"", "b_dot_onnx": b""}, "expected one .onnx file in .*, got a.onnx, b.onnx"),
        ("none.tar.gz", {"a_dot_txt": b""}, "expected one .onnx file in .*, got none"),
    ],
)
def test_an_archive_with_another_number_of_graphs_is_refused(
    tmp_path: Path, name: str, content: dict[str, bytes], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        fetch_onnx(str(_archive(tmp_path / name, **content)), tmp_path, download=False)


def test_other_files_are_refused(tmp_path: Path) -> None:
    for name, content, message in (
        ("broken.tar.gz", b"no archive", "cannot be unpacked"), ("model.pt", b"", "expected an .onnx or .tar.gz file"),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=message):
            fetch_onnx(str(tmp_path / name), tmp_path, download=False)
    with pytest.raises(UserError, match="there is no file"):
        fetch_onnx(str(tmp_path / "missing.onnx"), tmp_path, download=False)
    with pytest.raises(UserError, match="is no http address"):
        fetch_onnx("ftp://example.org/model.onnx", tmp_path, download=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"graph")
    running = HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()
    thread.join()


def test_nothing_is_downloaded_unless_it_is_asked_for(server: str, tmp_path: Path) -> None:
    address = f"{server}/model.onnx"
    with pytest.raises(UserError, match="nothing is downloaded unless it is asked for") as caught:
        fetch_onnx(address, tmp_path / "models", download=False)
    assert "--download true" in (caught.value.hint or "")
    assert not (tmp_path / "models").exists()
    found = fetch_onnx(address, tmp_path / "models", download=True)
    assert found.read_bytes() == b"graph"
    with pytest.raises(UserError, match="cannot be fetched"):
        fetch_onnx(f"{server}/other.onnx", tmp_path / "models", download=True)


# Targets.


@pytest.mark.parametrize("target", ["pynq", "vta", "ext_dev -device=vta", "fpga"])
def test_fpgas_are_refused_with_the_reason_and_the_way_around(target: str) -> None:
    with pytest.raises(UserError, match="it removed VTA in February 2025") as caught:
        main([*README, f"--target={target}"])
    assert "docs/add-a-backend.md" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "backend", "name"),
    [
        ("llvm -mtriple=aarch64-linux-gnu", "tvm-cpu", "llvm_mtriple-aarch64-linux-gnu"),
        ("opencl -device=mali", "tvm-cuda", "opencl_device-mali"),
        ("vulkan", "tvm-cuda", "vulkan"),
        ("rocm", "tvm-cuda", "rocm"),
    ],
)
def test_other_machines_are_not_timed_here(text: str, backend: str, name: str) -> None:
    found = choose_target(text, board=False)
    assert (found.backend, found.timed, found.name) == (backend, False, name)
    with pytest.raises(UserError, match="is not here"):
        main([*README, f"--target={text}", "--iftune=true"])


@pytest.mark.parametrize(
    ("target", "message"), [("nonsense", "no kind `nonsense`"), ("vulkan", "generator for vulkan")]
)
def test_a_target_that_tvm_does_not_have_is_refused_before_anything_is_written(
    target: str, message: str, tmp_path: Path
) -> None:
    pytest.importorskip("tvm")
    with pytest.raises(UserError, match=message):
        main([*README, f"--target={target}", f"--output={tmp_path / 'none'}"])
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("text", ["llvm", "llvm -mtriple=aarch64-linux-gnu", "opencl -device=mali"])
def test_a_board_has_a_backend_of_its_own(text: str) -> None:
    found = choose_target(text, board=True)
    assert (found.backend, found.timed) == ("tvm-board", True)
    options = read_options([*README, f"--target={text}", "--host=10.0.0.7", "--port=9190", "--key=box"])
    assert options.board == {"OPMARK_BOARD": "10.0.0.7:9190/box", "OPMARK_BOARD_TARGET": text}
    assert read_options([*README]).board == {}


# Key operators.


def _operator(name: str, seconds: float | None, count: int = 1) -> KeyOperator:
    return KeyOperator(name, "", name, {"net": count}, {}, {}, seconds=seconds)


def test_key_operators_are_the_first_that_make_up_the_share() -> None:
    found = with_shares([_operator("c", 0.05), _operator("a", 0.3, 2), _operator("b", 0.35), _operator("d", None)])
    assert [(one.operator, one.share) for one in found] == [
        ("a", pytest.approx(0.6)), ("b", pytest.approx(0.35)), ("c", pytest.approx(0.05)), ("d", None),
    ]  # fmt: skip
    assert [one.operator for one in key_operators(found, 0.6)] == ["a"]
    assert [one.operator for one in key_operators(found, 0.61)] == ["a", "b"]
    assert [one.operator for one in key_operators(found, 1.0)] == ["a", "b", "c", "d"]
    assert len(key_operators([_operator("a", None)], 0.5)) == 1


def test_the_list_names_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    assert "local\tyolov3\tmodel:yolov3-tiny" in out
    assert "transformers\tlstm\tmodel:lstm-8x1024\tseq=128" in out
