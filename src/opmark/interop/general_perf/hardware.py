"""The hardware names of ByteMLPerf: which chip a name means, what the chip needs, and which backend stands for it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from opmark.errors import UnknownName, UserError


class NamedHardware(msgspec.Struct, frozen=True, kw_only=True):
    """One value of ByteMLPerf's `--hardware_type`."""

    name: str
    vendor: str
    chip: str
    package: str
    """Software that programs for the chip need, by its name in a package registry where it has one."""
    backends: Mapping[str, str] = {}
    """Backends of opmark by the framework that a model is in; empty where opmark ships none for the chip."""

    def why_missing(self) -> str:
        """Return the sentence that says what has to be there before a model can run on it."""
        return f"{self.name} is {self.vendor}'s {self.chip}, which needs {self.package}"

    def backend(self, framework: str) -> str:
        """Return the name of the backend that runs models of a framework (`torch`, `tensorflow`, `onnx`, `jax`)."""
        if framework in self.backends:
            return self.backends[framework]
        if not self.backends:
            raise UserError(
                f"opmark ships no backend for {self.name}: {self.why_missing()}",
                "a backend is a class with four methods (docs/add-a-backend.md); give its name as the hardware type",
            )
        raise UserError(
            f"{self.name} has no backend for models of {framework}; it has {', '.join(self.backends)}",
            "choose a model of one of these frameworks, or give the name of a backend as the hardware type",
        )


_TABLE = (
    NamedHardware(
        name="CPU",
        vendor="any vendor",
        chip="processor",
        package="the framework that the model is in (pip install 'opmark[torch,onnxruntime,jax]')",
        backends={
            "torch": "torch-cpu",
            "onnx": "onnxruntime-cpu",
            "tensorflow": "tensorflow-cpu",
            "jax": "jax-cpu",
        },
    ),
    NamedHardware(
        name="GPU",
        vendor="NVIDIA",
        chip="GPU",
        package="a build of the model's framework for CUDA",
        backends={"torch": "torch-cuda", "onnx": "onnxruntime-cuda", "jax": "jax-cuda"},
    ),
    NamedHardware(
        name="GOYA",
        vendor="Habana",
        chip="Goya HL-1000",
        package="Habana's SynapseAI for Goya, which the vendor gives to its customers",
    ),
    NamedHardware(
        name="HPU",
        vendor="Intel Habana",
        chip="Gaudi 2",
        package="the driver and habana-torch-plugin, which holds the module habana_frameworks.torch",
        backends={"torch": "torch-hpu"},
    ),
    NamedHardware(
        name="IPU",
        vendor="Graphcore",
        chip="C600",
        package="Graphcore's Poplar SDK with PopRT (poprt)",
    ),
    NamedHardware(
        name="SPU",
        vendor="Moffett AI",
        chip="S30",
        package="Moffett's compiler and runtime for sparse models, which the vendor gives to its customers",
    ),
    NamedHardware(
        name="STC",
        vendor="Stream Computing",
        chip="STCP920",
        package="Stream Computing's HPE, TensorTurbo and STC_DDK (stc_ddk), which the vendor gives to its customers",
    ),
)
HARDWARE: Mapping[str, NamedHardware] = {one.name: one for one in _TABLE}
"""Every name of `--hardware_type` that ByteMLPerf has or had."""


def find_hardware(name: str) -> NamedHardware:
    """Return the hardware of a name in capital or small letters."""
    if found := HARDWARE.get(name.upper()):
        return found
    raise UnknownName("hardware type", name.upper(), HARDWARE, "opmark general-perf --show_hardware_list")
