"""OpBench's models by their names: each is a model of opmark with the sizes that OpBench gives it."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.error import URLError
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

from opmark.api.extract import model_case
from opmark.errors import UnknownName, UserError
from opmark.models.family import source_of
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case
from opmark.schema.case import MODEL_PREFIX

_TOKENS = 128
"""Length of OpBench's texts and sequences."""
_DEFAULT_INPUT = "data"
"""OpBench's name for the input of any model."""
_SECONDS = 60.0
"""Time-out of a download, for every piece that is waited for."""
_MOST_BYTES = 8 << 30


@dataclass(frozen=True)
class NamedModel:
    """A model of OpBench."""

    model: str
    """Its name in opmark's zoo."""
    params: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    """How it differs from OpBench's."""


def _depths(name: str, depths: tuple[int, ...], note: str = "") -> dict[str, NamedModel]:
    return {f"{name}-{depth}": NamedModel(f"{name}-{depth}", note=note) for depth in depths}


_DEPTHS = (18, 34, 50, 101, 152)
_TEXT = {"seq": _TOKENS}
LOCAL: Mapping[str, NamedModel] = {
    **_depths("resnet", _DEPTHS),
    **_depths("resnet3d", _DEPTHS, "3-D convolutions over videos; OpBench's model of this name is its 2-D ResNet"),
    "mobilenet": NamedModel("mobilenet"),
    "squeezenet_v1.1": NamedModel("squeezenet_v1.1"),
    "inception_v3": NamedModel("inception_v3"),
    "yolov5n": NamedModel("yolov5n"),
    "yolov3": NamedModel("yolov3-tiny"),
}
TRANSFORMERS: Mapping[str, NamedModel] = {
    "bert": NamedModel("bert-base", _TEXT, "with the head that finds answers in a text; OpBench's has none"),
    "gpt2": NamedModel("gpt2", _TEXT),
    "roberta": NamedModel("roberta", _TEXT, "with the head that finds answers in a text; OpBench's has none"),
    "nasnetalarge": NamedModel("nasnetalarge"),
    "dpn68": NamedModel("dpn68"),
    **{kind: NamedModel(f"{kind}-8x1024", _TEXT) for kind in ("lstm", "rnn", "gru")},
}
SIMPLE: Mapping[str, NamedModel] = {
    "matmul": NamedModel("matmul"),
    "matmul_matmul_add": NamedModel("matmul_matmul_add"),
}
NAMES: Mapping[str, Mapping[str, NamedModel]] = {"local": LOCAL, "transformers": TRANSFORMERS, "simple": SIMPLE}
REMOTE_ONNX = "remoteonnx"
SOURCES = (*NAMES, REMOTE_ONNX)


@dataclass(frozen=True)
class ChosenModel:
    """A model that was asked for, as a case of opmark."""

    name: str
    """As it was asked for; names of files contain it."""
    case: Case
    note: str = ""


def choose_model(
    source: str, name: str, batch: int, *, size: str, folder: Path, download: bool, inputname: str = ""
) -> ChosenModel:
    """Return the case of a model. UserError names the sources, the names or the inputs that there are. A file of
    `remoteonnx` that is packed or elsewhere is put into `folder`."""
    if source not in SOURCES:
        raise UnknownName("model source", source, SOURCES)
    if source == REMOTE_ONNX:
        path = fetch_onnx(name, folder, download=download)
        chosen = ChosenModel(path.stem, model_case(f"{MODEL_PREFIX}{path}", {"batch": batch}, ""))
    else:
        known = NAMES[source]
        if name not in known:
            elsewhere = [other for other, names in NAMES.items() if name in names]
            if elsewhere:
                raise UserError(
                    f"--modelname: `{name}` is a model of the source {elsewhere[0]}, not of {source}",
                    f"--modelsource {elsewhere[0]}",
                )
            raise UnknownName(f"model of the source {source}", name, known)
        found = known[name]
        model = f"{MODEL_PREFIX}{found.model}"
        params = {**({} if size == "small" else found.params), "batch": batch}
        chosen = ChosenModel(name, model_case(model, params, "small" if size == "small" else "typical"), found.note)
    _refuse_unknown_input(chosen.case, inputname)
    return chosen


def _refuse_unknown_input(case: Case, name: str) -> None:
    known = find_operator(case.op).inputs(case.params)
    if name and name != _DEFAULT_INPUT and name not in known:
        raise UserError(
            f"--inputname: {case.op} has no input `{name}`", f"its inputs are {', '.join(known)}; all of them get data"
        )


# Files of `remoteonnx`.


def fetch_onnx(name: str, folder: Path, *, download: bool) -> Path:
    """Return the path of an .onnx file that a path or a URL names, unpacked where it is a tar.gz."""
    parts = urlsplit(name)
    if parts.scheme in ("http", "https"):
        file = PurePosixPath(unquote(parts.path)).name
        if not download:
            raise UserError(
                f"--modelname: {name} is not on this machine, and nothing is downloaded unless it is asked for",
                "--download true fetches it; or give the path of a file",
            )
        target = folder / file
        if not target.exists():
            _write(target, _download(name))
        return _unpacked(target, folder)
    if parts.scheme and len(parts.scheme) > 1:
        raise UserError(f"--modelname: {name} is no http address and no file", "give the path of an .onnx or .tar.gz")
    path = Path(name)
    if not path.is_file():
        raise UserError(f"--modelname: there is no file {name}", "give the path or the URL of an .onnx or .tar.gz file")
    return _unpacked(path, folder)


def _download(address: str) -> bytes:
    try:
        with urlopen(address, timeout=_SECONDS) as answer:
            content: bytes = answer.read(_MOST_BYTES)
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(f"--modelname: {address} cannot be fetched: {reason}", "give the path of a file") from None
    return content


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: an interrupted download leaves nothing that looks like a model."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        raise UserError(f"--output: {path} cannot be written: {error.strerror}", "name another folder") from None


def _unpacked(path: Path, folder: Path) -> Path:
    if path.suffix == ".onnx":
        return path
    if not path.name.endswith((".tar.gz", ".tgz", ".tar")):
        raise UserError(
            f"--modelname: expected an .onnx or .tar.gz file, got {path.name}", "other models: `model:FILE`"
        )
    try:
        with tarfile.open(path) as archive:
            return _extract(archive, path, folder / path.name.partition(".tar")[0].removesuffix(".tgz"))
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UserError(f"--modelname: {path} cannot be unpacked: {error}", "is it complete?") from None


def _extract(archive: tarfile.TarFile, path: Path, folder: Path) -> Path:
    """Write the one .onnx file of an archive, and what lies beside it, which may be its weights. Only the last part of
    a name counts, so that nothing is written elsewhere."""
    members = [member for member in archive.getmembers() if member.isfile()]
    graphs = [member for member in members if member.name.endswith(".onnx")]
    if len(graphs) != 1:
        names = ", ".join(member.name for member in graphs) or "none"
        raise UserError(f"--modelname: expected one .onnx file in {path}, got {names}", "unpack it and give its path")
    beside = PurePosixPath(graphs[0].name).parent
    for member in members:
        place = PurePosixPath(member.name)
        if place.parent == beside and member.size <= _MOST_BYTES:
            content = archive.extractfile(member) or BytesIO()
            _write(folder / place.name, content.read())
    return folder / PurePosixPath(graphs[0].name).name


def describe_names(write: Callable[[str], None]) -> None:
    """Write every name, with its model of opmark and how that differs."""
    for source, known in NAMES.items():
        for name, found in known.items():
            params = ", ".join(f"{key}={value}" for key, value in found.params.items())
            write(
                f"{source}\t{name}\tmodel:{found.model}"
                + f"\t{params}" * bool(params)
                + f"\t{found.note}" * bool(found.note)
            )
    write(f"{REMOTE_ONNX}\tPATH or URL\tan .onnx file, or a tar.gz with one")


def model_inputs(case: Case) -> Mapping[str, Any]:
    """Return the inputs of a model by name: shape and element type."""
    source = source_of(case.op.removeprefix(MODEL_PREFIX))
    assert source is not None
    return {name: [list(spec.shape), spec.dtype] for name, spec in source.inputs(case.params).items()}
