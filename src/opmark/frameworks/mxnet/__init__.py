from opmark.plugin import BackendInfo

MXNET_CPU = BackendInfo(
    name="mxnet-cpu",
    framework="mxnet",
    device="cpu",
    summary="MXNet on the CPU",
    dtypes=frozenset({"float64", "float32", "float16", "uint8", "int8", "int32", "int64", "bool"}),
    loads="opmark.frameworks.mxnet.backend:MxnetBackend",
    differentiates=True,
    requires="mxnet",
    install="opmark env create mxnet",
    # Operators that run at once, not threads in one of them: with two, products hang and gradients come out wrong.
    environ={"MXNET_CPU_WORKER_NTHREADS": "1"},
    views=False,
    guest="mxnet",
)
