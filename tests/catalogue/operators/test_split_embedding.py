"""Embedding tables of different sizes: their cost by hand, lookups from files, and fbgemm's kernel."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module, reload
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch

from opmark.catalogue.operators import embedding, split_embedding
from opmark.catalogue.operators._tensor_files import _read, read_tensor
from opmark.catalogue.operators.split_embedding import SPLIT
from opmark.errors import InvalidParameter, Unsupported
from opmark.plugin import Operator
from opmark.schema import Cost

SIZES: dict[str, Any] = {"rows": [10, 4], "dims": [4, 2], "bags": 3, "pooling": [5, 1]}


def test_cost_by_hand() -> None:
    """7.94 of 10 and 2.31 of 4 rows are different; 18 indices and 6 offsets come in, 3 rows of 6 floats go out."""
    params = SPLIT.complete(SIZES)
    assert SPLIT.phase_cost(params, "forward") == Cost(15 * 4 + 3 * 2 - 18, 8 * 16 + 2 * 8 + (18 + 6) * 8, 3 * 6 * 4)
    assert SPLIT.phase_cost(params, "backward") == Cost(66, (18 + 6) * 8 + 72, (40 + 8) * 4)


@pytest.mark.parametrize("distribution", ["uniform", "zipf"])
def test_one_table_is_an_embedding_bag(distribution: str) -> None:
    sizes = {"bags": 7, "mode": "mean", "distribution": distribution}
    split = SPLIT.complete({**sizes, "rows": [30], "dims": [8], "pooling": [4]})
    one = embedding.EMBEDDING_BAG.complete({**sizes, "rows": 30, "dim": 8, "pooling": 4})
    assert SPLIT.cost(split) == embedding.EMBEDDING_BAG.cost(one)
    weight, indices = np.random.default_rng(0).random((30, 8)), np.arange(28) % 30
    offsets = 4 * np.arange(7)
    expected = embedding.EMBEDDING_BAG.reference(one, weight, indices, offsets)
    np.testing.assert_allclose(SPLIT.reference(split, weight.ravel(), indices, offsets), expected)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dims": [4]}, "dims"),
        ({"pooling": [1, 2, 3]}, "pooling"),
        ({"mode": "mean", "weighted": True}, "weighted"),
        ({"indices_file": "a.pt"}, "offsets_file"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        SPLIT.check_rules(SPLIT.complete({**SIZES, **given}))


# Lookups from files.


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Three bags in each of two tables; the second bag of the first table is empty."""
    torch.save(torch.tensor([9, 0, 9, 3, 3, 3]), tmp_path / "indices.pt")
    torch.save(torch.tensor([0, 2, 2, 3, 4, 5, 6], dtype=torch.int32), tmp_path / "offsets.pt")
    return {"indices_file": str(tmp_path / "indices.pt"), "offsets_file": str(tmp_path / "offsets.pt")}


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_lookups_of_a_file_are_those_of_the_call(files: dict[str, str], mode: str, torch_cpu: Any) -> None:
    params = SPLIT.complete({**SIZES, **files, "mode": mode})
    inputs = {name: torch_cpu.tensor(spec, 0) for name, spec in SPLIT.inputs(params).items()}
    assert inputs["indices"].tolist() == [9, 0, 9, 3, 3, 3]
    assert inputs["offsets"].tolist() == [0, 2, 2, 3, 4, 5]
    (loop,) = (one for one in SPLIT.implementations if one.name == "loop")
    found = loop.build(params, **inputs)()
    first, second = inputs["weight"][:40].view(10, 4), inputs["weight"][40:].view(4, 2)
    pooled = (first[9] + first[0]) / (2 if mode == "mean" else 1)
    torch.testing.assert_close(found[:, :4], torch.stack([pooled, torch.zeros(4), first[9]]))
    torch.testing.assert_close(found[:, 4:], second[[3, 3, 3]])
    expected = SPLIT.reference(params, **{name: tensor.numpy() for name, tensor in inputs.items()})
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    assert SPLIT.cost(params).bytes_read == (2 * 4 + 1 * 2) * 4 + (6 + 6) * 8  # two rows and one row are different


def test_files_that_do_not_fit_are_named(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"offsets\.pt: expected 8 offsets"):
        SPLIT.inputs(SPLIT.complete({**SIZES, **files, "bags": 4}))
    for offsets in ([0, 2, 2, 3, 4, 7], [0, 2, 2, 3, 4, 5, 7]):
        np.save(tmp_path / "far.npy", offsets)
        with pytest.raises(InvalidParameter, match=r"far\.npy: expected offsets of at most 6, got 7"):
            SPLIT.inputs(SPLIT.complete({**SIZES, **files, "offsets_file": str(tmp_path / "far.npy")}))
    spec = SPLIT.inputs(SPLIT.complete({**SIZES, **files, "rows": [5, 4]}))["indices"]
    assert spec.make is not None
    with pytest.raises(InvalidParameter, match=r"indices\.pt: expected 6 indices below"):
        spec.make(np.random.default_rng(0))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.float16])
def test_a_tensor_is_read_without_torch(dtype: Any, tmp_path: Path) -> None:
    torch.save(torch.arange(12).view(3, 4).to(dtype)[1:], tmp_path / "x.pt")
    found = read_tensor(str(tmp_path / "x.pt"))
    assert (found.tolist(), str(found.dtype)) == ([[4, 5, 6, 7], [8, 9, 10, 11]], str(dtype).removeprefix("torch."))


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    for size in (3, 5):
        np.save(path, np.arange(size))
        assert len(read_tensor(str(path))) == size


class Hostile:
    def __reduce__(self) -> Any:
        return (print, ("this must not run",))


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: torch.save(Hostile(), path), "it holds __builtin__.print"),
        (lambda path: torch.save({"a": 1}, path), "expected one saved tensor"),
        (lambda path: torch.save(torch.ones(3, 4).T, path), "strides"),
        (lambda path: path.write_bytes(b"PK nonsense"), "expected one saved tensor"),
        (lambda path: None, "cannot be read"),
    ],
)
def test_other_files_are_refused(write: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "x.pt")
    with pytest.raises(InvalidParameter, match=words):
        read_tensor(str(tmp_path / "x.pt"))
    assert "must not run" not in capsys.readouterr().out


@pytest.mark.parametrize("pickled", [b"\x80\x02\x8e" + b"\xff" * 8 + b".", b"\x80\x02K\x01p99999999999999999999\n."])
def test_a_damaged_pickle_is_refused(pickled: bytes, tmp_path: Path) -> None:
    with ZipFile(tmp_path / "x.pt", "w") as archive:
        archive.writestr("x/data.pkl", pickled)
    with pytest.raises(InvalidParameter, match="expected one saved tensor"):
        read_tensor(str(tmp_path / "x.pt"))


def test_every_damage_to_a_header_is_refused_or_harmless(tmp_path: Path) -> None:
    """A byte of an archive may say that it is encrypted, one of an array's header may open a bracket."""
    torch.save(torch.arange(3), tmp_path / "x.pt")
    np.save(tmp_path / "x.npy", np.arange(3))
    for path, window in ((tmp_path / "x.pt", range(-100, 0)), (tmp_path / "x.npy", range(70))):
        whole = path.read_bytes()
        for at in window:
            damaged = bytearray(whole)
            damaged[at] = ord("(")
            path.write_bytes(damaged)
            with suppress(InvalidParameter):
                read_tensor(str(path))
            _read.cache_clear()  # the time stamp may be the same


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"'a\\x00b\.pt': expected the path of a file"):
        read_tensor("a\0b.pt")


# fbgemm_gpu, by a stub with the same interface: the package needs a torch of its own.

STUB = {
    "split_embedding_configs": "import enum\nclass SparseType(enum.Enum):\n    FP32 = 1\n    FP16 = 2\n    BF16 = 3\n",
    "split_table_batched_embeddings_ops_common": """
import enum
class EmbeddingLocation(enum.Enum):
    DEVICE = 0
    HOST = 3
class PoolingMode(enum.IntEnum):
    SUM = 0
    MEAN = 1
""",
    "split_table_batched_embeddings_ops_training": """
import enum, torch
class ComputeDevice(enum.Enum):
    CPU = 0
    CUDA = 1
class SplitTableBatchedEmbeddingBagsCodegen(torch.nn.Module):
    def __init__(self, embedding_specs, pooling_mode, weights_precision, output_dtype, device):
        super().__init__()
        self.specs = [(rows, dim) for rows, dim, place, kind in embedding_specs]
        assert all((place.name, kind.name) == ("HOST", "CPU") for _, _, place, kind in embedding_specs)
        assert weights_precision is output_dtype
        self.mode = pooling_mode.name.lower()
        self.weights_host = torch.nn.Parameter(torch.zeros(sum(rows * dim for rows, dim in self.specs)))
    def forward(self, indices, offsets, per_sample_weights=None):
        bags, start, found = (len(offsets) - 1) // len(self.specs), 0, []
        assert offsets[-1] == len(indices)
        for t, (rows, dim) in enumerate(self.specs):
            table = self.weights_host[start : (start := start + rows * dim)].view(rows, dim)
            own = offsets[t * bags : (t + 1) * bags + 1]
            here = slice(own[0], own[-1])
            weights = None if per_sample_weights is None else per_sample_weights[here]
            found.append(torch.nn.functional.embedding_bag(indices[here], table, own[:-1] - own[0], mode=self.mode,
                                                           per_sample_weights=weights))
        return torch.cat(found, 1)
""",
}


@pytest.fixture
def fbgemm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install the stub and return a function that writes one of its modules anew."""
    package = tmp_path / "fbgemm_gpu"
    package.mkdir()
    for name, text in {"__init__": "", **STUB}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda name, text: (package / f"{name}.py").write_text(text)
    for name in [name for name in sys.modules if name.partition(".")[0] == "fbgemm_gpu"]:
        del sys.modules[name]
    monkeypatch.undo()
    for module in (embedding, split_embedding):
        reload(module)


def operators() -> list[tuple[Operator, dict[str, Any]]]:
    """Return both operators as a process has them that starts now."""
    batched, split = reload(embedding).BATCHED, reload(split_embedding).SPLIT
    sizes = {"tables": 3, "rows": 9, "dim": 8, "bags": 4, "pooling": 2}
    ragged = {"rows": [9, 5], "dims": [8, 4], "bags": 4, "pooling": [2, 3]}
    return [(batched, sizes), (batched, {**sizes, "mode": "mean"}), (split, {**ragged, "weighted": True})]


def test_without_fbgemm_there_is_no_such_implementation() -> None:
    assert all(one.name != "fbgemm" for op, _ in operators() for one in op.implementations)


def test_fbgemm_computes_what_the_reference_does(fbgemm: Any, torch_cpu: Any) -> None:
    for op, sizes in operators():
        params = op.complete(sizes)
        (implementation,) = (one for one in op.implementations if one.name == "fbgemm")
        inputs = {name: torch_cpu.tensor(spec, 0) for name, spec in op.inputs(params).items()}
        launch = implementation.build(params, **inputs)
        for factor in (1, 2):  # data that is written into the same tensors is seen
            inputs["weight"].mul_(factor)
            expected = op.reference(params, **{name: tensor.numpy() for name, tensor in inputs.items()})
            np.testing.assert_allclose(launch().numpy(), expected, rtol=1e-5)
        with torch.enable_grad():
            assert not launch().requires_grad


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise OSError('undefined symbol: _ZN3c10')", "OSError: undefined symbol"),
        ("import a_package_that_is_not_there", "ModuleNotFoundError"),
        ("import torch\ntorch.ops.load_library('/nowhere.so')", "OSError"),
    ],
)
def test_an_import_failure_of_fbgemm_is_named_and_contained(fbgemm: Any, text: str, words: str, torch_cpu: Any) -> None:
    fbgemm("split_table_batched_embeddings_ops_training", text)
    op, sizes = operators()[0]
    params = op.complete(sizes)
    inputs = {name: torch_cpu.tensor(spec, 0) for name, spec in op.inputs(params).items()}
    builds = {one.label: one.build for one in op.implementations if one.framework == "torch"}
    with pytest.raises(Unsupported, match=f"fbgemm_gpu cannot be imported: {words}"):
        builds["fbgemm"](params, **inputs)
    assert builds["merged"](params, **inputs)().shape == (3, 4, 8)


@pytest.mark.parametrize(("given", "words"), [({"dtype": "float64"}, "float64"), ({"dim": 6}, "multiple of 4")])
def test_cases_that_fbgemm_lacks_are_refused(fbgemm: Any, given: Any, words: str, torch_cpu: Any) -> None:
    op, sizes = operators()[0]
    params = op.complete({**sizes, **given})
    inputs = {name: torch_cpu.tensor(spec, 0) for name, spec in op.inputs(params).items()}
    (implementation,) = (one for one in op.implementations if one.name == "fbgemm")
    with pytest.raises(Unsupported, match=words):
        implementation.build(params, **inputs)


def test_the_stub_is_gone_again() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("fbgemm_gpu")
