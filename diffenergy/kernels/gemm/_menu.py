"""Tiles and splits that libraries choose among for matrix products.

Where the caller names no tile:

| kernels | tiles | also split |
|---|---|---|
| mma.sync | 12, from 256x128 down to 16x64 | six of them by 3 and 8 |
| wgmma, tcgen05 | 18, from 192x256 to 16x64, with sides of 96, 160, 192 | the same |
| systolic | 14, from 2048x1024 to 128x128 | none |
| CUDA cores, `nn.Linear` layout or a weight | 4, up to 128x64 | 128x32 by 3 |
| CUDA cores, batched or row-major products | 5, up to 256x128 | 128x128 by 3 |

Those split by 3 and 8 are 128x128, 128x64, 64x64, 16x128, 32x64 and 16x64. Tensor tiles
are inferred by this project (the public tables name no kernels): an M side may be the
swapped N side of the instruction. The CUDA-core lists are the tiles that cuBLAS is
recorded to use on an A100 in the NeuSight data set. Rows and columns below the side of
a systolic array run as padding, so that its smallest tile has 128 of each.
"""

from typing import Final

import jax.numpy as jnp
import numpy as np
from jax import Array

from ...hardware import MMA_KINDS, GpuSpec
from ...records import as_float
from .. import _rates
from ._operands import scalar_accesses
from ._shape import Gemm

_TENSOR_TILES: Final = (
    (256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128),
    (64, 64), (32, 128), (16, 128), (32, 64), (16, 64),
)  # fmt: skip
_WGMMA_TILES: Final = (
    (256, 128), (128, 256), (128, 128), (192, 128), (128, 192), (128, 64), (64, 128),
    (64, 64), (32, 128), (16, 128), (32, 64), (16, 64), (96, 128), (160, 128),
    (96, 256), (192, 256), (32, 256), (64, 256),
)  # fmt: skip
_SYSTOLIC_TILES: Final = (
    (2048, 1024), (1024, 2048), (1024, 1024), (1024, 512), (512, 1024), (512, 512),
    (1024, 256), (256, 1024), (512, 256), (256, 512), (256, 256), (256, 128),
    (128, 256), (128, 128),
)  # fmt: skip
_SPLIT_OF: Final = (2, 5, 7, 9, 10, 11)
"""Entries of the tensor menus that the library also runs with split K."""
_SPLITS: Final = (3, 8)
_LINEAR_TILES: Final = (
    (128, 64, 1),
    (128, 32, 1),
    (32, 128, 1),
    (64, 32, 1),
    (128, 32, 3),
)
"""What cuBLAS runs for fp32 `nn.Linear` on A100 (tile and grid recorded)."""
_BATCHED_TILES: Final = (
    (128, 128, 1), (256, 128, 1), (128, 256, 1), (128, 64, 1), (64, 128, 1),
    (128, 128, 3),
)  # fmt: skip


def _menu() -> tuple[np.ndarray, np.ndarray]:
    rows = []
    for tiles in (_TENSOR_TILES, _WGMMA_TILES, _WGMMA_TILES):
        rows.append(
            [(*tile, 1) for tile in tiles]
            + [(*tiles[i], s) for i in _SPLIT_OF for s in _SPLITS]
        )
    rows.append([(*tile, 1) for tile in _SYSTOLIC_TILES])
    rows += [list(_LINEAR_TILES), list(_BATCHED_TILES)]
    width = max(map(len, rows))
    padded = [row + row[:1] * (width - len(row)) for row in rows]
    legal = [[1.0] * len(row) + [0.0] * (width - len(row)) for row in rows]
    return np.array(padded, float), np.array(legal)


CUDA_LINEAR: Final = len(MMA_KINDS)
CUDA_BATCHED: Final = CUDA_LINEAR + 1
"""Menus of CUDA cores, behind those of the MMA kinds."""
TILE_MENU, LEGAL_TILES = _menu()
"""Candidates (tile_m, tile_n, split_k) by kind: the MMA kinds, then CUDA-core linear
layers and CUDA-core batched or row-major products; shapes (6, c, 3) and (6, c).
Short menus are padded with a real tile that is marked illegal."""

_ODD_TILE: Final = (128.0, 128.0, 0.0)
"""Tile of products whose rows are no multiple of 16 B, which bulk copies cannot take:
libraries keep one old kernel for them (names in the same traces)."""
_PATCH_TILE: Final = (256.0, 64.0, 1.0)
"""Tile of the first layer of a vision transformer, undivided (the same traces)."""


def candidates(
    s: Gemm, gpu: GpuSpec, tensor: Array
) -> tuple[Array, Array, Array, Array]:
    """`tile_m, tile_n, split_k, legal`, each of shape (kernels, candidates): as given,
    the one kernel that libraries have, or those of the menu."""
    if s.fixed_tile:
        split = _rates.or_default(s.split_k, 1.0)
        return s.tile_m, s.tile_n, split, jnp.ones_like(split)
    kind = jnp.round(gpu.mma_kind).astype(jnp.int32)
    cuda = jnp.where(s.linear > 0, CUDA_LINEAR, CUDA_BATCHED)
    entry = jnp.where(tensor > 0, kind, cuda)[..., 0]
    bulk = gpu.copies_in_bulk
    patches, odd = bulk & (s.gathered > 0), bulk & (scalar_accesses(s, gpu) > 0)
    menu, chosen = as_float(TILE_MENU)[entry], []
    for i, of_row in enumerate((s.tile_m, s.tile_n, s.split_k)):
        only = jnp.where(patches, _PATCH_TILE[i], jnp.where(odd, _ODD_TILE[i], 0.0))
        chosen.append(_rates.or_default(of_row, _rates.or_default(only, menu[..., i])))
    tile_m, tile_n, split = chosen
    return tile_m, tile_n, split, as_float(LEGAL_TILES)[entry]
