"""Sampling of images between pixels, and the grids of points."""

from __future__ import annotations

from typing import Any

from opmark.implementations.jax._modules import jnp, row
from opmark.schema import Params


def _half(n: int, align_corners: bool) -> float:
    """Return the pixels per unit of the grid, which goes from -1 to 1 over the image."""
    return (n - 1) / 2 if align_corners else n / 2


def _pixel(grid: Any, n: int, align_corners: bool) -> Any:
    return grid * _half(n, align_corners) + (n - 1) / 2


def _sample(p: Params, x: Any, grid: Any) -> Any:
    """Sample each image and channel by map_coordinates, which interpolates linearly."""
    from jax import vmap
    from jax.scipy.ndimage import map_coordinates

    height, width = p["image"]
    across, down = (_pixel(grid[..., i], n, p["align_corners"]) for i, n in ((0, width), (1, height)))
    mode = {"zeros": "constant", "border": "nearest"}[p["padding_mode"]]

    def image(channels: Any, rows: Any, columns: Any) -> Any:
        return vmap(lambda one: map_coordinates(one, [rows, columns], order=1, mode=mode))(channels)

    return vmap(image)(x, down, across)


def _affine_grid(p: Params, theta: Any) -> Any:
    axes = [(jnp.arange(n) - (n - 1) / 2) / _half(n, p["align_corners"]) for n in p["out"]]
    down, across = jnp.meshgrid(*axes, indexing="ij")
    points = jnp.stack([across, down, jnp.ones_like(across)], axis=-1).astype(theta.dtype)
    return jnp.einsum("hwk,nck->nhwc", points, theta)


def _warp_grid(p: Params, flow: Any) -> Any:
    height, width = p["image"]
    scale = jnp.array([2 / (width - 1), 2 / (height - 1)]).reshape(1, 2, 1, 1)
    down, across = jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij")
    base = jnp.stack([across, down])[None] * scale - 1
    return flow * scale.astype(flow.dtype) + base.astype(flow.dtype)


def _transformer(p: Params, x: Any, theta: Any) -> Any:
    return _sample(p, x, _affine_grid(p, theta))


IMPLEMENTATIONS = {
    "grid_sample": row(_sample, "jax.scipy.ndimage.map_coordinates"),
    "affine_grid": row(_affine_grid),
    "warp_grid": row(_warp_grid),
    "spatial_transformer": row(_transformer, "jax.scipy.ndimage.map_coordinates"),
}
