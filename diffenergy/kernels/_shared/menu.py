"""Tiles and splits that libraries choose among for matrix products."""

from typing import Final

import numpy as np

_TENSOR_TILES: Final = (
    (256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128),
    (64, 64), (32, 128), (16, 128), (32, 64), (16, 64),
)  # fmt: skip
_WGMMA_TILES: Final = (
    (256, 128), (128, 256), (128, 128), (192, 128), (128, 192), (128, 64), (64, 128),
    (64, 64), (32, 128), (16, 128), (32, 64), (16, 64), (96, 128), (160, 128),
    (96, 256), (192, 256), (32, 256), (64, 256),
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
    rows += [list(_LINEAR_TILES), list(_BATCHED_TILES)]
    width = max(map(len, rows))
    padded = [row + row[:1] * (width - len(row)) for row in rows]
    legal = [[1.0] * len(row) + [0.0] * (width - len(row)) for row in rows]
    return np.array(padded, float), np.array(legal)


MENU, LEGAL = _menu()
"""Candidates (tile_m, tile_n, split_k) by kind: the three MMA kinds, then CUDA-core
linear layers and CUDA-core batched or row-major products; shapes (5, c, 3) and (5, c).
Short menus are padded with a real tile that is marked illegal."""
