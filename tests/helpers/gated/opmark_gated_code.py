"""What a worker of `gated` runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

from opmark.frameworks.null.backend import NullBackend
from opmark.schema import TensorSpec


class Backend(NullBackend):
    def tensor(self, spec: TensorSpec, seed: int) -> TensorSpec:
        gate = Path(os.environ["OPMARK_GATE"])
        while spec.shape[0] > int(gate.read_text() or "0"):
            time.sleep(0.02)
        return super().tensor(spec, seed)
