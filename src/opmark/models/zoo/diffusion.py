"""The networks of Stable Diffusion 1 that work on pictures, each by itself, as ByteMLPerf runs them."""

from __future__ import annotations

from typing import Any

from opmark.models.zoo.entry import Config, ZooModel
from opmark.plugin import Params
from opmark.schema import TensorSpec

_TOKENS = 77
_STEPS = 1000
_LATENT = 4


def _square(params: Params, channels: int, halvings: int = 0) -> TensorSpec:
    size = params["image"] >> halvings
    return TensorSpec((params["batch"], channels, size, size), params["dtype"])


def _noisy(params: Params, config: Config) -> dict[str, TensorSpec]:
    return {
        "sample": _square(params, _LATENT, 3),
        "timestep": TensorSpec((params["batch"],), "int64", 0, _STEPS),
        "encoder_hidden_states": TensorSpec((params["batch"], _TOKENS, config["context"]), params["dtype"]),
    }


def _network(**facts: Any) -> ZooModel:
    usual: dict[str, Any] = {
        "domain": "cv",
        "purpose": "sota",
        "sizes": {"full": {"image": 256}, "small": {"image": 64}},
        "frameworks": ("onnx",),
    }
    return ZooModel(**{**usual, **facts})


_VAE = {"widths": (128, 256, 512, 512), "layers": 2, "groups": 32}
_SMALL_VAE = {"widths": (32, 64, 64), "layers": 1, "groups": 8}

MODELS: tuple[ZooModel, ...] = (
    _network(
        name="stable-diffusion-unet",
        aliases=("sd-unet",),
        summary="UNet of Stable Diffusion 1, one step of noise removal",
        build="diffusion:unet",
        inputs=_noisy,
        parameters=859_520_964,
        full={"widths": (320, 640, 1280, 1280), "layers": 2, "heads": 8, "context": 768, "groups": 32},
        small={"widths": (80, 160), "layers": 1, "heads": 2, "context": 192, "groups": 8},
        outputs=("out_sample",),
        note="`image` is the size of the picture; the latent picture has an eighth of it.",
    ),
    _network(
        name="stable-diffusion-vae-encoder",
        aliases=("sd-vae-encoder",),
        summary="From a picture to the latent picture of Stable Diffusion 1",
        build="diffusion:vae_encoder",
        inputs=lambda params, config: {"sample": _square(params, 3)},
        parameters=34_163_664,
        full=_VAE,
        small=_SMALL_VAE,
        outputs=("latent_mean", "latent_log_variance"),
        note="Returns mean and logarithm of the variance; ByteMLPerf's network draws a sample from them.",
    ),
    _network(
        name="stable-diffusion-vae-decoder",
        aliases=("sd-vae-decoder",),
        summary="From the latent picture of Stable Diffusion 1 to a picture",
        build="diffusion:vae_decoder",
        inputs=lambda params, config: {"latent_sample": _square(params, _LATENT, len(config["widths"]) - 1)},
        parameters=49_490_199,
        full=_VAE,
        small=_SMALL_VAE,
        outputs=("image",),
        note="`image` is the size of the picture that comes out.",
    ),
)
