from opmark.frameworks import TORCH_DTYPES
from opmark.plugin import BackendInfo

TENSORFLOW_CPU = BackendInfo(
    name="tensorflow-cpu",
    framework="tensorflow",
    device="cpu",
    summary="TensorFlow, tf.function, on the CPU",
    dtypes=TORCH_DTYPES,
    loads="opmark.frameworks.tensorflow.backend:TensorFlowBackend",
    differentiates=True,
    requires="tensorflow",
    install="opmark env create tensorflow",
    environ={"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "KERAS_BACKEND": "tensorflow"},
    compiles=True,
    views=False,
    guest="tensorflow",
    variants=("function", "eager", "xla"),
)
