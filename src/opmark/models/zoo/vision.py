"""Models that look at pictures, videos and lines of text."""

from __future__ import annotations

from math import ceil
from typing import Any

from opmark.models.zoo.entry import Config, ZooModel
from opmark.plugin import Params
from opmark.schema import TensorSpec

_FRAMES = 16


def _image(params: Params, config: Config) -> dict[str, TensorSpec]:
    return {"image": TensorSpec((params["batch"], 3, params["image"], params["image"]), params["dtype"])}


def _video(params: Params, config: Config) -> dict[str, TensorSpec]:
    return {"video": TensorSpec((params["batch"], 3, _FRAMES, params["image"], params["image"]), params["dtype"])}


def _text_line(params: Params, config: Config) -> dict[str, TensorSpec]:
    batch, seq = params["batch"], params["seq"]

    def make_mask(generator: Any) -> list[list[bool]]:
        lengths = generator.integers(seq // 2, seq + 1, batch)
        return [[step >= length for step in range(seq)] for length in lengths]

    return {
        "src": TensorSpec((batch, 3, config["height"], 4 * seq), params["dtype"]),
        "src_pad_mask": TensorSpec((batch, seq), "bool", 0, 1, make=make_mask),
    }


def _image_sizes(full: int, small: int) -> dict[str, dict[str, int]]:
    return {"full": {"image": full}, "small": {"image": small}}


def _classifier(**facts: Any) -> ZooModel:
    """Return a model of OpBench that classifies pictures, except for what `facts` say."""
    usual: dict[str, Any] = {
        "domain": "cv",
        "purpose": "opbench",
        "inputs": _image,
        "sizes": _image_sizes(224, 64),
        "frameworks": (),
        "outputs": ("logits",),
    }
    return ZooModel(**{**usual, **facts})


def _quarter(blocks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(ceil(count / 4) for count in blocks)


def _resnet(depth: int, blocks: tuple[int, ...], parameters: int, **facts: Any) -> ZooModel:
    full = {"blocks": blocks, "bottleneck": depth >= 50}
    usual: dict[str, Any] = {
        "name": f"resnet-{depth}",
        "summary": f"ResNet-{depth} v1.5 for pictures",
        "build": "resnet:resnet",
        "full": full,
        "small": {**full, "blocks": _quarter(blocks), "width": 16, "classes": 250},
    }
    return _classifier(parameters=parameters, **{**usual, **facts})


def _resnet3d(depth: int, blocks: tuple[int, ...], parameters: int) -> ZooModel:
    origin = "that of the published r3d_18" if depth == 18 else "computed for the design of r3d_18"
    full = {"blocks": blocks, "bottleneck": depth >= 50, "dimensions": 3, "classes": 400}
    return _resnet(
        depth,
        blocks,
        parameters,
        name=f"resnet3d-{depth}",
        summary=f"ResNet-{depth} with 3-D convolutions for videos of {_FRAMES} frames",
        full=full,
        small={**full, "blocks": _quarter(blocks), "width": 16, "classes": 100},
        inputs=_video,
        sizes=_image_sizes(112, 64),
        note=f"The number of parameters is {origin}: 400 classes, a 3x7x7 stem, no pooling behind the stem. OpBench's "
        "model of this name is a 2-D ResNet.",
    )


def _detector(**facts: Any) -> ZooModel:
    usual: dict[str, Any] = {
        "domain": "cv",
        "purpose": "opbench",
        "build": "yolo:yolov5",
        "inputs": lambda params, config: {"images": _image(params, config)["image"]},
        "sizes": _image_sizes(640, 128),
        "frameworks": (),
        "outputs": ("output", "scale8", "scale16", "scale32"),
    }
    return ZooModel(**{**usual, **facts})


MODELS: tuple[ZooModel, ...] = (
    _resnet(
        50,
        (3, 4, 6, 3),
        25_557_032,
        name="resnet50",
        aliases=("resnet50-v1.5", "resnet-50"),
        purpose="regular",
        dataset="imagenet2012",
        keras="resnet:resnet",
        frameworks=("tensorflow", "pytorch"),
        note="Returns logits; ByteMLPerf's network ends with a softmax.",
    ),
    _resnet(18, (2, 2, 2, 2), 11_689_512),
    _resnet(34, (3, 4, 6, 3), 21_797_672),
    _resnet(101, (3, 4, 23, 3), 44_549_160),
    _resnet(152, (3, 8, 36, 3), 60_192_808),
    _resnet3d(18, (2, 2, 2, 2), 33_371_472),
    _resnet3d(34, (3, 4, 6, 3), 63_681_104),
    _resnet3d(50, (3, 4, 6, 3), 46_980_944),
    _resnet3d(101, (3, 4, 23, 3), 86_027_088),
    _resnet3d(152, (3, 8, 36, 3), 118_185_808),
    _classifier(
        name="mobilenet",
        summary="MobileNet v1 for pictures",
        build="mobile:mobilenet_v1",
        parameters=4_231_976,
        full={
            "layers": (
                (64, 1),
                (128, 2),
                (128, 1),
                (256, 2),
                (256, 1),
                (512, 2),
                (512, 1),
                (512, 1),
                (512, 1),
                (512, 1),
                (512, 1),
                (1024, 2),
                (1024, 1),
            ),
        },
        small={"layers": ((16, 1), (32, 2), (64, 2), (64, 1), (128, 2), (128, 1)), "stem": 8, "classes": 250},
    ),
    _classifier(
        name="mobilenet-v2",
        summary="MobileNet v2 for pictures",
        purpose="popular",
        build="mobile:mobilenet_v2",
        parameters=3_504_872,
        full={
            "stages": (
                (1, 16, 1, 1),
                (6, 24, 2, 2),
                (6, 32, 3, 2),
                (6, 64, 4, 2),
                (6, 96, 3, 1),
                (6, 160, 3, 2),
                (6, 320, 1, 1),
            ),
        },
        small={
            "stages": ((1, 8, 1, 1), (6, 8, 2, 2), (6, 16, 2, 2), (6, 24, 2, 2), (6, 40, 1, 1)),
            "stem": 8,
            "last": 320,
            "classes": 250,
        },
        note="Neither ByteMLPerf nor OpBench has it.",
    ),
    _classifier(
        name="squeezenet_v1.1",
        summary="SqueezeNet 1.1 for pictures",
        build="mobile:squeezenet",
        parameters=1_235_496,
        full={
            "groups": (
                ((16, 64), (16, 64)),
                ((32, 128), (32, 128)),
                ((48, 192), (48, 192), (64, 256), (64, 256)),
            ),
        },
        small={"groups": (((4, 16),), ((8, 32),), ((12, 48), (16, 64))), "stem": 16, "classes": 250},
    ),
    _classifier(
        name="inception_v3",
        summary="Inception v3 for pictures, without the auxiliary head",
        build="inception:inception_v3",
        parameters=23_834_568,
        full={},
        small={"scale": 4, "sevens": (128, 192), "blocks": 2, "classes": 250},
        sizes=_image_sizes(299, 128),
        aliases=("inception",),
    ),
    _classifier(
        name="nasnetalarge",
        summary="NASNet-A large for pictures",
        build="nasnet:nasnet",
        parameters=88_753_150,
        full={"width": 168, "stem": 96, "repeats": 6},
        small={"width": 40, "stem": 24, "repeats": 2, "classes": 250},
        sizes=_image_sizes(331, 96),
        note="Every padding is symmetric; TensorFlow's network pads pictures of even size on one side only.",
    ),
    _classifier(
        name="dpn68",
        summary="Dual path network 68 for pictures",
        build="dpn:dpn",
        parameters=12_611_602,
        full={
            "blocks": (3, 4, 12, 3),
            "appended": (16, 32, 32, 64),
            "stem": 10,
            "inner": 128,
            "width": 64,
            "groups": 32,
        },
        small={
            "blocks": (1, 2, 2, 1),
            "appended": (4, 8, 8, 16),
            "stem": 10,
            "inner": 32,
            "width": 16,
            "groups": 8,
            "classes": 250,
        },
    ),
    _detector(
        name="yolov5",
        aliases=("yolov5s",),
        summary="YOLOv5s (release 6), detection in pictures",
        purpose="popular",
        parameters=7_235_389,
        full={"width": 32},
        small={"width": 8},
        frameworks=("onnx",),
    ),
    _detector(
        name="yolov5n",
        summary="YOLOv5n (release 6), detection in pictures",
        parameters=1_872_157,
        full={"width": 16},
        small={"width": 4},
    ),
    _detector(
        name="yolov3",
        summary="YOLOv3 on Darknet-53, detection in pictures",
        build="yolo:yolov3",
        parameters=61_949_149,
        full={},
        small={"width": 8, "blocks": (1, 1, 1, 1, 1)},
        sizes=_image_sizes(416, 128),
        note="Boxes are decoded as in YOLOv5: the e^x of the original leaves the range of float16. OpBench's model of "
        "this name is the smaller yolov3-tiny.",
    ),
    _detector(
        name="yolov3-tiny",
        summary="YOLOv3-tiny, detection in pictures at two scales",
        build="yolo:yolov3_tiny",
        parameters=8_852_366,
        full={},
        small={"width": 4},
        sizes=_image_sizes(416, 128),
        outputs=("output", "scale16", "scale32"),
        note="OpBench calls it yolov3. Boxes are decoded as in YOLOv5.",
    ),
    _classifier(
        name="swin-transformer",
        summary="Swin-L with patches of 4, windows of 12 and 384x384 pixels",
        purpose="popular",
        build="hugging_face:swin",
        inputs=lambda params, config: {"pixel_values": _image(params, config)["image"]},
        parameters=196_735_516,
        full={
            "image_size": 384,
            "patch_size": 4,
            "embed_dim": 192,
            "depths": [2, 2, 18, 2],
            "num_heads": [6, 12, 24, 48],
            "window_size": 12,
            "num_labels": 1000,
        },
        small={
            "image_size": 64,
            "patch_size": 4,
            "embed_dim": 48,
            "depths": [2, 2],
            "num_heads": [3, 6],
            "window_size": 4,
            "num_labels": 250,
        },
        sizes=_image_sizes(384, 64),
        dataset="imagenet2012",
        frameworks=("pytorch",),
        needs="transformers",
    ),
    ZooModel(
        name="conformer",
        domain="nlp",
        purpose="popular",
        summary="Conformer, the encoder of a picture of a line of text",
        build="conformer:conformer",
        inputs=_text_line,
        parameters=18_576_448,
        full={"height": 64},
        small={"stem": 16, "height": 32, "width": 64, "heads": 4, "hidden": 256, "kernel": 15, "blocks": 2},
        sizes={"full": {"seq": 128}, "small": {"seq": 32}},
        frameworks=("onnx",),
        outputs=("memory",),
        note="ByteMLPerf's network is not public: inputs and output are the same, the layers inside are opmark's "
        "choice, without an encoding of positions. A picture has 4 columns per step of `seq`.",
    ),
)
