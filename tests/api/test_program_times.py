"""Programs as a whole: what is not predicted, and why."""

from __future__ import annotations

import pytest

from opmark.api.program_times import predict_whole
from opmark.errors import Unsupported
from opmark.plugin.registry import backend
from opmark.prediction.predictor import shipped
from opmark.schema import Case


def test_which_calls_another_framework_makes_is_not_known() -> None:
    case = Case.of("model:two-towers", {"size": "small", "batch": 1}, "forward")
    with pytest.raises(Unsupported, match="which calls onnxruntime-cpu makes of it is not known"):
        predict_whole(case, "T4", shipped(), backend("onnxruntime-cpu"))
