"""The Example NPU as a backend of opmark. Described here; nothing else is imported before a worker starts."""

from opmark.plugin import BackendInfo

NPU_SIM = BackendInfo(
    name="npu-sim",
    framework="npu",
    device="npu",
    loads="opmark_example_npu.backend:NpuBackend",
    summary="the Example NPU, simulated: a queue, a memory and a clock of its own",
    dtypes=frozenset({"float32", "float16", "int64"}),
    models="onnx",
    requires="numpy",
)
