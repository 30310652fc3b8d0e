"""A device each, or a reason why not."""

from __future__ import annotations

from opmark.plugin.registry import backend
from opmark.runner.ranks.group import shared_device


def test_ranks_of_a_cpu_share_it() -> None:
    assert shared_device(backend("torch-cpu"), [{"machine": "a"}] * 4) is None


def test_each_its_own_is_fine_also_where_every_process_sees_one_device_only() -> None:
    facts = [{"machine": "a", "gpu_uuid": "GPU-1"}, {"machine": "a", "gpu_uuid": "GPU-2"}]
    assert shared_device(backend("torch-cuda"), facts) is None


def test_the_same_name_on_another_host_is_another_device() -> None:
    facts = [{"machine": "a", "gpu_uuid": "GPU-1"}, {"machine": "b", "gpu_uuid": "GPU-1"}]
    assert shared_device(backend("torch-cuda"), facts) is None


def test_more_ranks_than_devices_says_how_many_and_who() -> None:
    facts = [{"machine": "a", "gpu_uuid": "GPU-1"}, {"machine": "a", "gpu_uuid": "GPU-2"}] * 2
    reason = shared_device(backend("torch-cuda"), facts)
    assert reason is not None
    assert "4 ranks need a device each, 2 devices are there" in reason
    assert "ranks 0 and 2 would share GPU-1" in reason
