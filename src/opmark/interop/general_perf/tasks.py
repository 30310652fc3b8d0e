"""The tasks of ByteMLPerf's general_perf: what a name `model-framework-precision` stands for.

A task is a workload (how to test) over a model (what to test). Every task that ByteMLPerf has had is in the table
below; a user's own files replace the entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from msgspec import Struct

from opmark.errors import UnknownName, UserError, nearest
from opmark.interop.general_perf.files import ModelFile, TaskFile
from opmark.plugin.registry import operator as find_operator
from opmark.plugin.registry import operators_like
from opmark.schema.case import MODEL_PREFIX

LISTING = "opmark general-perf --show_task_list"

FRAMEWORKS = {
    "torch": "torch", "pytorch": "torch",
    "tf": "tensorflow", "tensorflow": "tensorflow",
    "onnx": "onnx",
    "mhlo": "mhlo",
    "ixrt": "torch",
}  # fmt: skip
"""opmark's frameworks by the word in the name of a task, or in the field `framework` of a model. IXRT is Iluvatar's
engine for models of torch."""

FRAMEWORK_NAMES = {"torch": "Pytorch", "tensorflow": "Tensorflow", "onnx": "Onnx", "mhlo": "Mhlo"}
"""What ByteMLPerf calls them."""

PRECISIONS = {
    "fp32": "float32", "float32": "float32",
    "fp16": "float16", "float16": "float16",
    "bf16": "bfloat16", "bfloat16": "bfloat16",
    "tf32": "tfloat32",
}  # fmt: skip
"""Element types by the precision in the name of a task."""
PRECISION_LIST = "fp32, fp16, bf16, tf32"
FRAMEWORK_LIST = "torch, tf, onnx, mhlo"
"""How most names of tasks spell them, for hints."""
_QUANTIZED = ("int8", "int4", "fp8", "w8a8", "w4a16")

DATA_SETS = {
    "open_imagenet": "imagenet",
    "open_squad": "squad",
    "open_criteo_kaggle": "criteo",
    "open_cail2019": "cail2019",
    "open_cifar": "cifar100",
    "fake_dataset": "",
}
"""Kinds of data sets by ByteMLPerf's names."""


class KnownModel(Struct, frozen=True):
    """One model of ByteMLPerf's zoo."""

    zoo: str
    """Its name in opmark's zoo."""
    tasks: tuple[str, ...]
    """What follows the name of the model in ByteMLPerf's own tasks."""
    batch_sizes: tuple[int, ...]
    dataset: str | None = None
    compile_only: bool = False
    shapes: tuple[tuple[int, ...], ...] = ()
    """Shapes of its inputs in ByteMLPerf's file, where opmark's inputs hold the same in another way."""
    note: str = ""


_BERT, _CNN = (1, 4, 8, 16, 24), (4, 8, 16, 32, 64)
_SQUAD, _IMAGENET = "open_squad", "open_imagenet"
_DIFFUSION = (4, 8, 16, 24)

MODELS: dict[str, KnownModel] = {
    "resnet50": KnownModel(
        "resnet50", ("tf-fp32", "tf-fp16", "torch-fp32", "torch-fp16", "mhlo-fp32", "ixrt-fp16"), _CNN, _IMAGENET
    ),
    "bert": KnownModel(
        "bert-base", ("tf-fp32", "tf-fp16", "torch-fp32", "torch-fp16", "mhlo-fp32", "ixrt-fp16"), _BERT, _SQUAD
    ),
    "widedeep": KnownModel(
        "wide-and-deep", ("tf-fp32", "tf-fp16", "ixrt-fp16"), (1024, 4096, 16384), "open_criteo_kaggle",
        shapes=((26, 2), (1, 13)),
        note="ByteMLPerf gives 26 pairs (column, bucket) per sample, opmark the 26 buckets in the order of the columns",
    ),
    "videobert": KnownModel("videobert", ("onnx-fp32", "onnx-fp16"), _DIFFUSION, "open_cifar"),
    "albert": KnownModel("albert", ("torch-fp32", "torch-fp16"), _BERT, _SQUAD),
    "roberta": KnownModel("roberta", ("torch-fp32", "torch-fp16"), _BERT, _SQUAD),
    "deberta": KnownModel("deberta", ("torch-fp32", "torch-fp16"), _BERT, _SQUAD),
    "conformer-encoder": KnownModel("conformer", ("onnx-fp32", "onnx-fp16"), _CNN),
    "roformer": KnownModel("roformer", ("tf-fp32", "tf-fp16"), (2, 4, 8, 16, 32, 64), "open_cail2019"),
    "yolov5": KnownModel("yolov5", ("onnx-fp32", "onnx-fp16", "ixrt-fp16"), (4, 8, 16, 32)),
    "swin-large": KnownModel("swin-transformer", ("torch-fp32", "torch-fp16"), (2, 4, 8, 16, 24), _IMAGENET),
    "gpt2": KnownModel("gpt2", ("torch-fp32",), (4, 8, 16, 32)),
    "clip": KnownModel(
        "stable-diffusion-text-encoder", ("onnx-fp32",), _DIFFUSION,
        note="ByteMLPerf's clip is the text encoder of Stable Diffusion; its videobert is CLIP with both towers",
    ),
    "unet": KnownModel("stable-diffusion-unet", ("onnx-fp32",), _DIFFUSION),
    "vae-encoder": KnownModel("stable-diffusion-vae-encoder", ("onnx-fp32",), _DIFFUSION),
    "vae-decoder": KnownModel("stable-diffusion-vae-decoder", ("onnx-fp32",), _DIFFUSION),
    "llama2-7b": KnownModel("llama2-7b", ("torch-fp16",), _BERT, compile_only=True),
    "chatglm2-6b": KnownModel("chatglm2-6b", ("torch-fp16",), _BERT, compile_only=True),
}  # fmt: skip
"""ByteMLPerf's models by the first part of their tasks."""

_OTHER_NAMES = {
    "bert-base": "bert", "wide-and-deep": "widedeep", "wide&deep": "widedeep", "robert": "roberta", "conformer":
    "conformer-encoder", "swin": "swin-large", "swin-transformer": "swin-large", "llama2": "llama2-7b", "chatglm2":
    "chatglm2-6b", "resnet50-v1.5": "resnet50", "open_resnet50": "resnet50", "open_bert": "bert",
}  # fmt: skip


_SEVERAL_TASKS = {"stable-diffusion": ("clip", "unet", "vae-encoder", "vae-decoder")}
"""Models of ByteMLPerf's README that are several tasks."""
_LIKE = 0.85
"""How much of a name has to be that of a task for it to be suggested: any two that end in -torch-fp32 share 0.75."""


class TaskName(Struct, frozen=True):
    """A name of a task, taken apart."""

    text: str
    model: str
    """Its first part, as MODELS has it; or a model of opmark's zoo that ByteMLPerf lacks."""
    framework: str
    """opmark's name of the framework that it says; empty where it says none."""
    precision: str
    """`fp32`, `fp16`, as written."""


def known_tasks() -> Iterator[str]:
    """Yield the names of ByteMLPerf's own tasks."""
    for model, known in MODELS.items():
        yield from (f"{model}-{rest}" for rest in known.tasks)


def take_apart(text: str) -> TaskName:
    """Return the parts of a task's name; UnknownName with the nearest tasks where it is none."""
    rest = text.strip().lower().removesuffix(".json").removeprefix("workload_")
    precision, framework = "fp32", ""
    head, _, last = rest.rpartition("-")
    if head and (last in PRECISIONS or last in _QUANTIZED):
        rest, precision = head, last
    head, _, last = rest.rpartition("-")
    if head and last in FRAMEWORKS:
        rest, framework = head, FRAMEWORKS[last]
    model = _OTHER_NAMES.get(rest, rest)
    if not _is_model(model):
        raise _unknown_task(text, rest, framework)
    return TaskName(text, model, framework, precision)


def _unknown_task(text: str, rest: str, framework: str) -> UserError:
    """Return the error for a name whose part `rest`, all but a known framework and precision, is no model: the part of
    the name that is wrong where the others are right, else the tasks whose models have the nearest names."""
    head, _, last = rest.rpartition("-")
    if not framework and _is_model(head) and not nearest(last, FRAMEWORKS):
        hint = f"frameworks are {FRAMEWORK_LIST}; precisions are {PRECISION_LIST}"
        return UserError(f"no task named `{text}`: `{last}` is no framework", hint)
    model, _, word = head.rpartition("-")
    if word in FRAMEWORKS and _is_model(model):
        return UserError(f"no task named `{text}`: `{last}` is no precision", f"precisions are {PRECISION_LIST}")
    named = next((one for one in _SEVERAL_TASKS if rest.startswith(one)), "")
    near = [] if named else get_close_matches(text.lower(), list(known_tasks()), n=3, cutoff=_LIKE)
    models = _SEVERAL_TASKS.get(named) or get_close_matches(rest, MODELS)
    near = near or [f"{model}-{MODELS[model].tasks[0]}" for model in models]
    return UnknownName("task", text, (), LISTING, near)


def _is_model(name: str) -> bool:
    name = _OTHER_NAMES.get(name, name)
    return name in MODELS or _in_zoo(name)


def _in_zoo(name: str) -> bool:
    return f"{MODEL_PREFIX}{name}" in operators_like(f"{MODEL_PREFIX}*")


def zoo_operator(name: TaskName) -> str:
    """Return the operator of opmark's zoo that has the model of a task."""
    found = MODELS.get(name.model)
    return MODEL_PREFIX + (found.zoo if found else name.model)


def element_type(precision: str, task: str) -> str:
    """Return the element type of a precision; UserError with the reason where opmark has no such weights."""
    found = PRECISIONS.get(precision.lower())
    if found is not None:
        return found
    if precision.lower() in _QUANTIZED:
        raise UserError(
            f"{task}: the precision {precision} needs quantized weights, and the zoo has none",
            "give a quantized model of your own: a model-zoo file with its model_path (--model_zoo DIR) runs as it is",
        )
    raise UnknownName("precision", precision, [*PRECISIONS, *_QUANTIZED])


def usual_workload(name: TaskName) -> TaskFile:
    """Return the workload that ByteMLPerf ships for a task; for models and precisions that it lacks, one like it."""
    known = MODELS.get(name.model)
    if known is None:
        return TaskFile(model=name.text, test_accuracy=False, batch_sizes=(1, 4, 8, 16))
    sizes = _DIFFUSION if (name.model, name.framework) == ("bert", "tensorflow") else known.batch_sizes
    return TaskFile(
        model=name.text, test_accuracy=known.dataset is not None, batch_sizes=sizes, compile_only=known.compile_only
    )


def usual_model(name: TaskName) -> ModelFile:
    """Return what the model-zoo file of a task says that decides how it runs."""
    known = MODELS.get(name.model)
    framework = FRAMEWORK_NAMES[name.framework] if name.framework else None
    dataset = known.dataset if known else None
    return ModelFile(name.text, framework=framework, model_precision=name.precision.upper(), dataset_name=dataset)


def fit_zoo_sizes(name: TaskName, shapes: tuple[tuple[int, ...], ...]) -> tuple[dict[str, int], str]:
    """Return the parameters with which the zoo's model has the input shapes that a file states for one sample, and a
    note where none do: the model then runs at its own shapes."""
    operator, known = find_operator(zoo_operator(name)), MODELS.get(name.model)
    if not shapes:
        return {}, ""
    if known and known.shapes == shapes:
        return {}, known.note
    usual = {**operator.presets["typical"], "dtype": "float32"}
    for param in ("seq", "image"):
        if param in usual:
            for value in (usual[param], *dict.fromkeys(size for shape in shapes for size in shape)):
                own = [sorted(spec.shape) for spec in operator.inputs({**usual, param: value}).values()]
                if all(shape in map(sorted, shapes) for shape in own):
                    return ({param: value} if value != usual[param] else {}), ""
    whole = [tuple(spec.shape) for spec in operator.inputs(usual).values()]
    if sorted(map(sorted, whole)) == sorted(map(sorted, shapes)):
        return {}, ""
    written = ", ".join("x".join(map(str, shape)) for shape in shapes)
    actual = ", ".join("x".join(map(str, shape)) for shape in whole)
    return {}, f"input_shape: the file says {written}; the zoo's model takes {actual}, and runs so"
