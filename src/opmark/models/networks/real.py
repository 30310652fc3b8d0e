"""Networks of models with trained weights that are not in transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_PADDING, _BEGIN, _END = 0, 2, 3
"""Tokens of g2p-en: what follows the end of a word, and what begins and ends a pronunciation."""


def digits_classifier(*, channels: int, classes: int) -> Any:
    """A convolution network for pictures of 8 x 8 points."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * channels * 16, classes),
    )  # fmt: skip


class SpellingToSound(nn.Module):  # type: ignore[misc]
    """The encoder and decoder of g2p-en: gated recurrent units over the letters of a word, then over its phonemes, each
    of which is the likeliest after those before it. Its parameters have the names of the package's file."""

    def __init__(self, *, letters: int, phonemes: int, width: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        for side, tokens in (("enc", letters), ("dec", phonemes)):
            for name, shape in (
                ("emb", (tokens, width)), ("w_ih", (3 * width, width)), ("w_hh", (3 * width, width)),
                ("b_ih", (3 * width,)), ("b_hh", (3 * width,)),
            ):  # fmt: skip
                self.register_parameter(f"{side}_{name}", nn.Parameter(torch.empty(shape)))
        self.fc_w = nn.Parameter(torch.empty(phonemes, width))
        self.fc_b = nn.Parameter(torch.empty(phonemes))

    def forward(self, letters: Any) -> Any:
        """Return the logits of `steps` phonemes per word, which are 0 behind its end. Loops are unrolled: the graph has
        none."""
        state = self.enc_emb.new_zeros(letters.shape[0], self.enc_emb.shape[1])
        for place in range(letters.shape[1]):
            token = letters[:, place]
            after = self._step("enc", self.enc_emb[token], state)
            state = torch.where((token == _PADDING)[:, None], state, after)
        token, found = torch.full_like(letters[:, 0], _BEGIN), []
        ended = token == _END
        for _ in range(self.steps):
            state = self._step("dec", self.dec_emb[token], state)
            logits = state @ self.fc_w.T + self.fc_b
            found.append(torch.where(ended[:, None], torch.zeros_like(logits), logits))
            token = logits.argmax(1)
            ended = ended | (token == _END)
        return torch.stack(found, 1)

    def _step(self, side: str, x: Any, state: Any) -> Any:
        """Return the state of a gated recurrent unit after one more token."""
        given = (x @ getattr(self, f"{side}_w_ih").T + getattr(self, f"{side}_b_ih")).chunk(3, 1)
        kept = (state @ getattr(self, f"{side}_w_hh").T + getattr(self, f"{side}_b_hh")).chunk(3, 1)
        reset, update = torch.sigmoid(given[0] + kept[0]), torch.sigmoid(given[1] + kept[1])
        return (1 - update) * torch.tanh(given[2] + reset * kept[2]) + update * state
