"""Grouped-query attention over the best blocks of keys, which a few small heads choose
(MiniMax M3)."""

import dataclasses

from ..._kernel import Kernel
from .._network.linear_layer import Linear
from .._network.operators import Norm, Pass
from .._shared.config import Config
from .attention import CachedAttention
from .latent import Indexer
from .parts import AttentionShape, Part, attention


@dataclasses.dataclass(frozen=True)
class ChosenKeys(CachedAttention):
    """Attention in which a query reads at most `chosen` keys, all of which are kept."""

    chosen: int = 0

    def forward(self, run: Pass) -> list[Kernel]:
        *before, row = super().forward(run)
        if not run.is_step:
            return [*before, row | {"window_size": self.chosen}]
        return [*before, row | {"kv_len": min(run.kv_len, self.chosen)}]


def block_sparse(shape: AttentionShape, config: Config) -> Part:
    """Attention with the index of `sparse_attention_config`."""
    heads, width = (
        config.size("sparse_num_index_heads"),
        config.size("sparse_index_dim"),
    )
    chosen = config.size("sparse_topk_blocks") * config.size("sparse_block_size")
    index = Indexer(shape.hidden, 0, heads, width, chosen)
    prefix = "self_attn.index"
    projections = (
        Linear(heads * width, shape.hidden, module=f"{prefix}_q_proj"),
        Linear(width, shape.hidden, module=f"{prefix}_k_proj"),
        Norm("rmsnorm", width, heads, residual=False),
        Norm("rmsnorm", width, residual=False),
    )
    return tuple(
        y
        for x in attention(shape)
        for y in (
            (*projections, index, _chosen(x, chosen))
            if isinstance(x, CachedAttention)
            else (x,)
        )
    )


def _chosen(plain: CachedAttention, chosen: int) -> ChosenKeys:
    fields = {x.name: getattr(plain, x.name) for x in dataclasses.fields(plain)}
    return ChosenKeys(**fields, chosen=chosen)
