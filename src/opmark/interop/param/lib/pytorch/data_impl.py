"""PARAM's lib.pytorch.data_impl: the default data generator."""

from __future__ import annotations

from typing import Any

from opmark.interop.param.arguments import Draw, call_of


class DefaultDataGenerator:
    """Describes the arguments of a call in opmark's notation, as in `128x128 float32 0..1`; a worker makes the tensors.

    A generator of a user may return tensors of torch instead.
    """

    def __init__(self, cache: bool = False) -> None:
        self.cache = cache

    def get_data(self, config: Any, device: str, seed: int = 0) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and named arguments of a spec; numbers of `value_range` are drawn with a seed."""
        return call_of(config, Draw(f"{seed}|{config}"))
