"""Knobs of engines that run ONNX models: options of a session of ONNX Runtime, and properties of OpenVINO. They are the
same for every operator."""

from __future__ import annotations

from opmark.plugin import Knob, Operator, Params, Space, SpaceRule
from opmark.plugin.space import threads_knob


def onnxruntime(operator: Operator, params: Params) -> Space:
    return Space(
        (
            threads_knob(),
            Knob("inter_op_threads", (1, 2), "choice", 1, "threads that run nodes side by side"),
            Knob(
                "graph_level", ("disabled", "basic", "extended", "all"), "choice", "all", "optimizations of the graph"
            ),
            Knob("execution_mode", ("sequential", "parallel"), "choice", "sequential", "order of the nodes"),
            Knob("spinning", (True, False), "flag", True, "idle threads look for work instead of sleeping"),
            Knob("memory_pattern", (True, False), "flag", True, "allocate the memory of a call as one block"),
            Knob("memory_arena", (True, False), "flag", True, "keep memory that was freed"),
            Knob("flush_denormals", (False, True), "flag", False, "take numbers close to zero for zero"),
        ),
        (
            SpaceRule(
                "have several inter-op threads only in parallel execution, which needs them",
                lambda c: (c["inter_op_threads"] == 1) == (c["execution_mode"] == "sequential"),
            ),
        ),
    )


def openvino(operator: Operator, params: Params) -> Space:
    """The number of streams counts where requests run side by side, as in `openvino-cpu/throughput`."""
    return Space(
        (
            threads_knob(),
            Knob("performance_hint", ("own", "LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT"), "choice", "own",
                 "what OpenVINO chooses its settings for; own: that of the variant"),
            Knob("precision_hint", ("own", "f32"), "choice", "own", "type that float32 is computed in; own: that of "
                 "the variant, which in openvino-cpu/default-precision may be bfloat16"),
            Knob("streams", (0, 1, 2, 4), "choice", 0, "requests side by side; 0: OpenVINO decides"),
            Knob("pinning", ("own", "yes", "no"), "choice", "own", "keep threads on their cores"),
            Knob("hyper_threading", ("own", "yes", "no"), "choice", "own", "use both threads of a core"),
            Knob("execution_mode", ("own", "PERFORMANCE", "ACCURACY"), "choice", "own", "what OpenVINO may give up"),
        ),
        (SpaceRule("have no more streams than threads", lambda c: int(str(c["streams"])) <= int(str(c["threads"]))),),
    )  # fmt: skip
