"""JAX, function by function as it is called, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil

from opmark.errors import Unsupported
from opmark.interfaces import BackendInfo, Counted, HostBackend, made
from opmark.schema import Cost, Launch, TensorSpec
from opmark.schema.dtype import is_float


class JaxBackend(HostBackend):
    """A call is waited for: JAX returns before its work is done, and has no other way to know when it is."""

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        # float64 and int64 mean what they say: without this they quietly become 32 bits.
        jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

    def why_unavailable(self) -> str | None:
        try:
            found = jax.devices(self._info.device)
        except (RuntimeError, AssertionError) as error:  # an assertion where its build has no such platform at all
            said = str(error).splitlines()
            return f"jax {jax.__version__} has no {self._info.device} device here" + (f": {said[0]}" if said else "")
        return None if found else f"jax {jax.__version__} has no {self._info.device} device here"

    def environment(self) -> dict[str, Any]:
        device = jax.devices(self._info.device)[0]
        return {
            "jax": jax.__version__,
            "jaxlib": version("jaxlib"),
            "device": self._info.device,
            "device_kind": device.device_kind,
            "threads": self._threads,
        }

    def tensor(self, spec: TensorSpec, seed: int) -> Any:
        return jax.device_put(jnp.asarray(_array(spec, seed), dtype=spec.dtype), jax.devices(self._info.device)[0])

    def dtype(self, value: Any) -> str:
        return str(value.dtype)

    def to_numpy(self, value: Any) -> Any:
        array = np.asarray(value)
        return array.astype(np.float64) if is_float(str(value.dtype)) else array

    def deferred(self, value: Any) -> str | None:
        return None if isinstance(value, jax.Array) else f"a {type(value).__name__}, which is no array of JAX"

    def thin(self, value: Any, most: int) -> Any:
        flat = value.reshape(-1)
        return flat[:: max(1, ceil(flat.size / most))]

    def overwrite(self, nbytes: int) -> Launch:
        scratch = self.tensor(TensorSpec((nbytes,), "uint8", 0, 100), 0)
        return lambda: (scratch + 1).block_until_ready()

    def count(self, launch: Launch, reads: Sequence[Any]) -> Counted:
        """Bytes only. An array of JAX is never a view of another, and never changed in place."""
        given = [leaf for leaf in jax.tree.leaves(launch()) if hasattr(leaf, "nbytes")]
        read = sum({id(array): array.nbytes for array in reads}.values())
        return Counted(Cost(None, int(read), int(sum(array.nbytes for array in given))))

    def backward(
        self, launch: Launch, inputs: Sequence[Any], seed: int, *, forward: bool = False, some: bool = False
    ) -> tuple[Launch, Sequence[Any]]:
        raise Unsupported("JAX differentiates functions, not calls: there is no backward phase here yet")

    def available_bytes(self) -> int | None:
        return int(psutil.virtual_memory().available) if self._info.device == "cpu" else None


def _array(spec: TensorSpec, seed: int) -> Any:
    """Drawn by NumPy: the same values on every device."""
    if spec.make:
        return made(spec, seed)
    generator = np.random.default_rng(seed)
    if not is_float(spec.dtype):
        return generator.integers(int(spec.low), int(spec.high), spec.shape, dtype=spec.dtype)
    return generator.uniform(spec.low, spec.high, spec.shape)
