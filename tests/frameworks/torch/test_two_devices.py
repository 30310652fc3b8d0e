"""torch on a machine with two GPUs, as far as a made-up device module shows it."""

from __future__ import annotations

from typing import Any

import pytest

from opmark.plugin import World
from opmark.plugin.registry import backend

torch = pytest.importorskip("torch")

UUIDS = ("8a6c2c0e-1111-2222-3333-444455556666", "1b2d3f40-aaaa-bbbb-cccc-ddddeeeeffff")


class Properties:
    """Of one GPU, as torch reports them."""

    name, total_memory, L2_cache_size, multi_processor_count = "NVIDIA Example", 80 << 30, 50 << 20, 132

    def __init__(self, number: int) -> None:
        self.uuid = UUIDS[number]


class Gpus:
    """The GPUs that a process sees, and the one that is current."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.current = 0


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    found = Gpus(2)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    changed: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: found.count,
        "current_device": lambda: found.current,
        "set_device": lambda number: setattr(found, "current", number),
        "get_device_properties": lambda device=None: Properties(found.current if device is None else device),
    }
    for name, function in changed.items():
        monkeypatch.setattr(torch.cuda, name, function)
    return found


@pytest.mark.parametrize(
    ("local_rank", "count", "taken"),
    [
        (None, 2, 0),
        ("0", 2, 0),
        ("1", 2, 1),
        ("1", 1, 0),  # a launcher that shows each process its own GPU alone
        ("3", 2, 1),  # more processes than GPUs: `shared_device` refuses them by name
        ("", 2, 0),
        ("one", 2, 0),
    ],
)
def test_each_process_takes_the_gpu_of_its_local_rank(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch, local_rank: str | None, count: int, taken: int
) -> None:
    gpus.count = count
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    live = backend("torch-cuda").load(threads=1)
    torch.set_grad_enabled(True)  # which a backend switches off for its process
    assert gpus.current == taken
    assert live.why_unavailable() is None
    assert live.environment()["gpu_uuid"] == UUIDS[taken]


def test_a_processor_takes_none(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    backend("torch-cpu").load(threads=1)
    torch.set_grad_enabled(True)
    assert gpus.current == 0


class Recorder:
    """Takes the place of torch.distributed's own functions."""

    def __init__(self) -> None:
        self.begun: dict[str, Any] = {}
        self.groups: list[tuple[Any, dict[str, Any]]] = []

    def init_process_group(self, engine: str, **options: Any) -> None:
        self.begun = {"engine": engine, **options}

    def new_group(self, ranks: Any = None, **options: Any) -> str:
        self.groups.append((ranks and list(ranks), options))
        return f"group {len(self.groups)}"


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_join_over_nccl_each_with_its_own_gpu_and_talk_over_gloo(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    from opmark.frameworks.torch import process_group as module

    recorder = Recorder()
    for name in ("init_process_group", "new_group"):
        monkeypatch.setattr(module.dist, name, getattr(recorder, name))
    monkeypatch.setattr(module, "make_store", lambda world: torch.distributed.HashStore())
    monkeypatch.setattr(torch.distributed.HashStore, "port", 29555, raising=False)
    gpus.current = rank
    announced: list[int] = []
    team = module.TorchTeam("cuda", World(rank, 4, "127.0.0.1", 0, 20.0), announced.append)
    assert team.engine == "nccl"
    assert (recorder.begun["engine"], recorder.begun["rank"], recorder.begun["world_size"]) == ("nccl", rank, 4)
    assert recorder.begun["device_id"] == torch.device("cuda", rank)
    assert announced == ([29555] if rank == 0 else [])
    ((everyone, options),) = recorder.groups
    assert everyone is None
    assert options["backend"] == "gloo"
    # Groups of two: every rank makes all of them, and they are not of gloo.
    peers = team.peers(2)
    assert (peers.rank, peers.size, peers.first, peers.group) == (rank, 2, 0, "group 2")
    assert [(ranks, "backend" in options) for ranks, options in recorder.groups[1:]] == [
        ([0, 1], False), ([2, 3], False),
    ]  # fmt: skip
    assert team.peers(2) is peers


def test_on_a_processor_no_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from opmark.frameworks.torch import process_group as module

    recorder = Recorder()
    for name in ("init_process_group", "new_group"):
        monkeypatch.setattr(module.dist, name, getattr(recorder, name))
    monkeypatch.setattr(module, "make_store", lambda world: torch.distributed.HashStore())
    module.TorchTeam("cpu", World(1, 2, "127.0.0.1", 0, 20.0), lambda port: None)
    assert (recorder.begun["engine"], recorder.begun["device_id"]) == ("gloo", None)
