from opmark.frameworks import TORCH_DTYPES
from opmark.plugin import BackendInfo

NULL = BackendInfo(
    name="null",
    framework="null",
    device="none",
    summary="no hardware and a virtual clock: everything but the numbers is real",
    dtypes=TORCH_DTYPES,
    loads="opmark.frameworks.null.backend:NullBackend",
    differentiates=True,
    computes=False,
)

NULL_DEVICE = BackendInfo(
    name="null-device",
    framework="null",
    device="none",
    summary="a device that is not there, with made-up clock, sensors and failures",
    dtypes=TORCH_DTYPES,
    loads="opmark.frameworks.null.backend:NullDevice",
    streams=True,
    differentiates=True,
    computes=False,
)
