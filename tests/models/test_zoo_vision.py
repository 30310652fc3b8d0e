"""Models for pictures, videos and lines of text."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import zoo_checks as checks  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from opmark.models.zoo import diffusion, vision  # noqa: E402
from opmark.models.zoo.entry import ZooModel  # noqa: E402

MODELS = (*vision.MODELS, *diffusion.MODELS)

each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)


@pytest.fixture(autouse=True)
def require_package(request: pytest.FixtureRequest) -> None:
    model = request.node.callspec.params.get("model") if hasattr(request.node, "callspec") else None
    if isinstance(model, ZooModel) and model.needs:
        pytest.importorskip(model.needs)


@each_model
def test_a_model_has_the_published_number_of_parameters(model: ZooModel) -> None:
    assert checks.count_parameters(model) == model.parameters


@each_model
def test_outputs_follow_the_inputs(model: ZooModel) -> None:
    checks.check_outputs_follow_inputs(model, checks.small_params(model))
    checks.check_every_input_matters(model, checks.small_params(model))


@each_model
def test_precisions_differ(model: ZooModel) -> None:
    checks.check_precisions_differ(model, checks.small_params(model))


@each_model
def test_a_model_can_be_exported(model: ZooModel) -> None:
    checks.check_exports(model, checks.small_params(model))


@each_model
def test_rows_of_a_batch_are_independent(model: ZooModel) -> None:
    checks.check_rows_are_independent(model, checks.small_params(model))


@each_model
def test_a_model_survives_the_meta_device(model: ZooModel) -> None:
    checks.check_survives_meta(model, checks.small_params(model))


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("resnet50", 8.18),
        ("resnet-18", 3.63),
        ("resnet-34", 7.33),
        ("resnet-101", 15.6),
        ("resnet-152", 23.0),
        ("resnet3d-18", 81.4),
        ("mobilenet", 1.14),
        ("mobilenet-v2", 0.60),
        ("squeezenet_v1.1", 0.70),
        ("inception_v3", 11.4),
        ("nasnetalarge", 47.6),
        ("dpn68", 4.70),
        ("yolov5", 16.4),
        ("yolov5n", 4.5),
        ("yolov3", 65.9),
        ("yolov3-tiny", 5.56),
        ("stable-diffusion-unet", 180.1),
        ("stable-diffusion-vae-encoder", 272.7),
        ("stable-diffusion-vae-decoder", 622.2),
    ],
)
def test_a_model_does_the_published_number_of_operations(name: str, published: float) -> None:
    """Strides, paddings and wiring show in the number of operations (10^9) at full size, not in that of parameters."""
    model = next(one for one in MODELS if one.name == name)
    params = {"size": "full", "batch": 1, "dtype": "float32", **model.sizes["full"]}
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        network = checks.construct(model, model.full).eval()
        network(
            *(torch.zeros(s.shape, dtype=getattr(torch, s.dtype)) for s in model.inputs(params, model.full).values())
        )
    assert counter.get_total_flops() / 1e9 == pytest.approx(published, rel=0.02)


@each_model
def test_torch_compile_captures_a_model_whole(model: ZooModel) -> None:
    checks.check_compiles(model, checks.small_params(model))


@pytest.mark.parametrize("name", ["yolov5", "yolov3"])
def test_boxes_lie_where_the_raw_predictions_say(name: str) -> None:
    model = next(one for one in MODELS if one.name == name)
    params = checks.small_params(model)
    boxes, *raw = (
        one.numpy() for one in checks.outputs_of(checks.built(model, params), checks.make_inputs(model, params, 1))
    )
    anchors = {8: (33, 23), 16: (59, 119), 32: (373, 326)}
    start = 0
    for values, (stride, anchor) in zip(raw, anchors.items(), strict=True):
        _, kinds, rows, columns, _ = values.shape
        row, column = rows - 1, columns - 2
        place = start + (2 * rows + row) * columns + column
        x, y, width, height, *scores = (1 / (1 + np.exp(-values[:, 2, row, column].astype(float)))).T
        expected = [
            (2 * x - 0.5 + column) * stride, (2 * y - 0.5 + row) * stride,
            4 * width**2 * anchor[0], 4 * height**2 * anchor[1], *scores,
        ]  # fmt: skip
        np.testing.assert_allclose(boxes[:, place], np.stack(expected, 1), rtol=1e-4, atol=1e-4)
        start += kinds * rows * columns
    assert start == boxes.shape[1]


def test_padding_of_a_text_line_does_not_matter() -> None:
    model = next(one for one in MODELS if one.name == "conformer")
    params = checks.small_params(model)
    network, inputs = checks.built(model, params), checks.make_inputs(model, params, 1)
    length = params["seq"] // 2
    inputs["src_pad_mask"] = torch.arange(params["seq"]).expand(2, -1) >= length
    before = checks.outputs_of(network, inputs)[0]
    other = inputs["src"].clone()
    other[..., 4 * (length + 1) :] = 3.0
    after = checks.outputs_of(network, {**inputs, "src": other})[0]
    torch.testing.assert_close(before[:, :length], after[:, :length])
    assert not torch.allclose(before[:, length + 1 :], after[:, length + 1 :])


def test_resnet_computes_what_transformers_does() -> None:
    transformers = pytest.importorskip("transformers")
    model = next(one for one in MODELS if one.name == "resnet50")
    params = checks.small_params(model)
    network = checks.built(model, params)
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[64, 128, 256, 512], depths=list(model.small["blocks"]), num_labels=250
    )
    other = transformers.ResNetForImageClassification(config).eval()

    def layers_of(root: torch.nn.Module) -> list[torch.nn.Module]:
        """Convolutions, normalisations and the last layer; shortcuts come at the end."""
        kinds = (torch.nn.Conv2d, torch.nn.BatchNorm2d, torch.nn.Linear)
        named = [(name, one) for name, one in root.named_modules() if isinstance(one, kinds)]
        return [one for _, one in sorted(named, key=lambda pair: "shortcut" in pair[0])]

    for mine, theirs in zip(layers_of(network), layers_of(other), strict=True):
        theirs.load_state_dict(mine.state_dict())
    inputs = checks.make_inputs(model, params, 1)
    with torch.no_grad():
        expected = other(inputs["image"]).logits
    torch.testing.assert_close(checks.outputs_of(network, inputs)[0], expected, rtol=1e-4, atol=1e-4)


def test_swin_knows_which_pixels_of_a_window_are_how_far_apart() -> None:
    pytest.importorskip("transformers")
    model = next(one for one in MODELS if one.name == "swin-transformer")
    network = checks.construct(model, model.small)
    before = {name: table.clone() for name, table in network.named_buffers()}
    network.write_tables()
    assert before
    for name, table in network.named_buffers():
        assert torch.equal(table, before[name]), name
