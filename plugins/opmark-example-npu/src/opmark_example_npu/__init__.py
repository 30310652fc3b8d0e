"""The Example NPU as a backend of opmark. Described here; nothing else is imported before a worker starts."""

from opmark.interfaces import BackendInfo

NPU_SIM = BackendInfo(
    name="npu-sim",
    framework="npu",
    device="npu",
    summary="the Example NPU, simulated: a queue, a memory and a clock of its own",
    dtypes=frozenset({"float32", "float16", "int64", "int32", "int8", "uint8", "bool"}),
    loads="opmark_example_npu.backend:NpuBackend",
    requires="numpy",
    differentiates=False,
    also=("numpy",),
    environ=dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "{threads}"),
)
