"""Odd sizes and unusual options of recurrent networks."""

from __future__ import annotations

from typing import Any

_CELL = {"batch": 3, "input_size": 5, "hidden_size": 7}
_LAYER: dict[str, Any] = {"seq_len": 4, "batch": 3, "input_size": 5, "hidden_size": 6}
_DEEP = {**_LAYER, "layers": 2, "bidirectional": True}

ODD: dict[str, list[dict[str, Any]]] = {
    "rnn_cell": [_CELL, {**_CELL, "nonlinearity": "relu"}, {"batch": 1, "input_size": 1, "hidden_size": 1}],
    "lstm_cell": [_CELL, {"batch": 5, "input_size": 33, "hidden_size": 3}],
    "gru_cell": [_CELL, {"batch": 5, "input_size": 33, "hidden_size": 3}],
    "rnn": [_LAYER, {**_LAYER, "nonlinearity": "relu"}, {**_DEEP, "nonlinearity": "relu"}, _DEEP],
    "lstm": [_LAYER, _DEEP, {**_LAYER, "layers": 3}],
    "gru": [_LAYER, _DEEP, {"seq_len": 1, "batch": 1, "input_size": 1, "hidden_size": 5}],
}
