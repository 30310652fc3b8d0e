"""What if a size were another one: shapes are those that the program would have had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.traces.test_replay import RELU, call, capture, ref, trace_of
from torch import nn

from opmark.errors import UserError
from opmark.traces.replay import Replay, compile_replay
from opmark.traces.replay_part import parse_sizes
from opmark.traces.replay_scale import SizeChange
from opmark.traces.trace import ProgramTrace


class Attention(nn.Module):
    """Views, sizes among arguments, and a mask that is made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.mix, self.out = nn.Embedding(40, 32), nn.Linear(32, 96), nn.Linear(32, 40)

    def forward(self, tokens: Any) -> Any:
        batch, length = tokens.shape
        query, key, value = self.mix(self.rows(tokens)).view(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        mask = torch.zeros(batch, 1, length, length)
        scores = (query @ key.transpose(-1, -2) + mask).softmax(-1)
        return self.out((scores @ value).transpose(1, 2).reshape(batch, length, 32))


def captured(batch: int, path: Path) -> ProgramTrace:
    network, tokens = Attention(), torch.randint(0, 40, (batch, 9))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(tokens).view(-1, 40), tokens.view(-1)).backward()
        optimizer.step()

    return capture(step, path)


def shapes(replay: Replay) -> list[Any]:
    recorded = [step for step in replay.steps if step.node.id >= 0]
    return [(step.node.name, [one.ref.shape for one in step.variables()]) for step in recorded]


def test_a_trace_with_another_batch_is_that_of_a_program_with_this_batch(tmp_path: Path) -> None:
    small, large = captured(7, tmp_path / "7.json"), captured(14, tmp_path / "14.json")
    replay = compile_replay(small, rewrite=SizeChange({7: 14}).rewrite)
    assert not replay.left_out
    assert not replay.differences
    assert shapes(replay) == shapes(compile_replay(large))
    replay()


def test_a_call_without_sizes_is_a_gap_and_the_others_run() -> None:
    product = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
    view = "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"
    nodes = [
        call(RELU, [ref(1, 6, 4)], [ref(2, 6, 4)]),
        call(view, [ref(2, 6, 4), [24]], [ref(2, 24, tensor=3)]),
        call(product, [ref(5, 4, 6), ref(6, 6, 2)], [ref(7, 4, 2)]),
        call(product, [ref(8, 3, 5), ref(9, 6, 2)], [ref(10, 3, 2)]),
    ]
    replay = compile_replay(trace_of(*nodes), rewrite=SizeChange({6: 9}).rewrite)
    (lost,) = replay.left_out
    assert lost.node.id == 4
    assert lost.reason.startswith("--scale: no sizes were found for it")
    assert [step.node.outputs[0].shape for step in replay.steps] == [(9, 4), (36,), (4, 2)]
    replay()


@pytest.mark.parametrize("text", ["6", "6=", "a=b", "6=0", "1=2", "6:12"])
def test_what_is_no_pair_of_sizes_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="expected OLD=NEW"):
        parse_sizes(text)


def test_a_size_that_no_tensor_has_is_refused() -> None:
    with pytest.raises(UserError, match="no tensor of the chosen part has a dimension of 99") as error:
        compile_replay(trace_of(call(RELU, [ref(1, 6)], [ref(2, 6)])), rewrite=SizeChange({99: 2}).rewrite)
    assert error.value.hint == "some recorded sizes: 6"
