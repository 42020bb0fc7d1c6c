"""Published configs of models, and what is known of each."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Published:
    """Parameters of the language model; bytes a token adds in bf16, for good and within
    windows; bytes of a request; GFLOP of a token's weight products without the head
    (None: not published); parameters of the vision tower."""

    parameters: int
    grows: int
    windowed: int = 0
    state: int = 0
    gflop: float | None = None
    tower: int = 0


BUNDLED = {
    "deepseek-v3": Published(671_026_404_352, 70_272, gflop=71.395836),
    "gemma-4-26b-a4b": Published(25_233_141_760, 20_480, 204_800, gflop=6.167265,
     tower=572_792_112),
    "glm-4.5-air": Published(106_852_245_504, 188_416, gflop=24.363139),
    "gpt-oss-120b": Published(116_829_156_672, 36_864, 36_864, gflop=9.103933),
    "gpt-oss-20b": Published(20_914_757_184, 24_576, 24_576, gflop=6.056018),
    "kimi-k2": Published(1_026_408_209_408, 70_272, gflop=61.023322),
    "llama-3.1-405b": Published(405_853_388_800, 516_096),
    "llama-4-scout": Published(107_769_861_120, 49_152, 147_456, gflop=30.206853,
     tower=871_932_416),
    "minimax-m2": Published(228_689_748_992, 253_952),
    "mistral-small": Published(23_572_403_200, 163_840, gflop=44.459622,
     tower=438_958_080),
    "nemotron-3-nano": Published(31_577_937_344, 6_144, 0, 49_082_368, 5.748965),
    "qwen3-0.6b": Published(596_049_920, 114_688, gflop=0.880804),
    "qwen3-235b-a22b": Published(235_093_634_560, 192_512),
    "qwen3-32b": Published(32_762_123_264, 262_144),
    "qwen3.5-27b": Published(26_895_998_464, 65_536, 0, 153_944_064, 48.701112,
     tower=460_730_096),
    "qwen3.5-35b-a3b": Published(34_660_610_688, 20_480, 0, 64_389_120, 4.873421,
     tower=446_571_248),
    "qwen3.5-9b": Published(8_953_803_264, 32_768, 0, 51_511_296, 13.837009,
     tower=456_010_480),
}  # fmt: skip
"""Counts of the reference implementations, without towers."""


_LATENT = dict(
    kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    first_k_dense_replace=1, moe_layer_freq=1, n_shared_experts=2,
    num_experts_per_tok=6, max_position_embeddings=163840, vocab_size=102400,
)  # fmt: skip


_FALCON = dict(
    hidden_size=1024, num_hidden_layers=36, num_attention_heads=8,
    num_key_value_heads=2, head_dim=64, intermediate_size=2048, mamba_d_ssm=1536,
    mamba_n_heads=24, mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1,
    mamba_d_conv=4, mamba_chunk_size=128, mamba_rms_norm=False, vocab_size=32784,
    max_position_embeddings=16384,
)  # fmt: skip


_GRANITE = dict(
    hidden_size=2048, num_hidden_layers=40, num_attention_heads=32,
    num_key_value_heads=8, intermediate_size=8192, shared_intermediate_size=8192,
    num_local_experts=0, vocab_size=100352, max_position_embeddings=131072,
    mamba_n_heads=64, mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1,
    mamba_d_conv=4, mamba_chunk_size=256, tie_word_embeddings=True,
    layer_types=[
        "attention" if i in (5, 15, 25, 35) else "mamba" for i in range(40)
    ],
)  # fmt: skip


_LFM2 = dict(
    hidden_size=2048, num_hidden_layers=24, num_attention_heads=32,
    num_key_value_heads=8, intermediate_size=7168, moe_intermediate_size=1792,
    num_dense_layers=2, num_experts=32, num_experts_per_tok=4, vocab_size=65536,
    max_position_embeddings=128000, conv_L_cache=3, use_expert_bias=True,
    layer_types=[
        "full_attention" if i in (2, 6, 10, 14, 18, 21) else "conv" for i in range(24)
    ],
)  # fmt: skip


_NEXT = dict(
    hidden_size=2048, num_hidden_layers=48, num_attention_heads=16,
    num_key_value_heads=2, head_dim=256, intermediate_size=5120,
    moe_intermediate_size=512, shared_expert_intermediate_size=512, num_experts=512,
    num_experts_per_tok=10, vocab_size=151936, max_position_embeddings=262144,
    linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_num_key_heads=16,
    linear_num_value_heads=32, linear_value_head_dim=128,
)  # fmt: skip


_KIMI = dict(
    hidden_size=2304, num_hidden_layers=27, num_attention_heads=32, q_lora_rank=None,
    kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    intermediate_size=9216, moe_intermediate_size=1024, num_experts=256,
    num_experts_per_token=8, num_shared_experts=1, first_k_dense_replace=1,
    vocab_size=163840, max_position_embeddings=1048576,
    linear_attn_config=dict(
        full_attn_layers=[4, 8, 12, 16, 20, 24, 27], head_dim=128, num_heads=32,
        short_conv_kernel_size=4,
    ),
)  # fmt: skip


GEMMA = dict(
    hidden_size=5376, num_hidden_layers=62, num_attention_heads=32,
    num_key_value_heads=16, head_dim=128, intermediate_size=21504, vocab_size=262208,
    max_position_embeddings=131072, sliding_window=1024,
)  # fmt: skip


_EXAONE = dict(
    hidden_size=5120, num_hidden_layers=64, num_attention_heads=40,
    num_key_value_heads=8, head_dim=128, intermediate_size=27392, vocab_size=102400,
    max_position_embeddings=131072, sliding_window=4096, sliding_window_pattern="LLLG",
)  # fmt: skip


_OLMO = dict(
    hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
    intermediate_size=11008, vocab_size=100352, max_position_embeddings=4096,
)  # fmt: skip


_PHI = dict(
    hidden_size=5120, num_hidden_layers=40, num_attention_heads=40,
    num_key_value_heads=10, intermediate_size=17920, vocab_size=100352,
    max_position_embeddings=16384,
)  # fmt: skip


_VL = dict(
    hidden_size=2048, num_hidden_layers=28, num_attention_heads=16,
    num_key_value_heads=8, head_dim=128, intermediate_size=6144, vocab_size=151936,
    max_position_embeddings=262144, tie_word_embeddings=True,
)  # fmt: skip


_VL_MOE = dict(
    hidden_size=2048, num_hidden_layers=48, num_attention_heads=32,
    num_key_value_heads=4, head_dim=128, intermediate_size=6144,
    moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8,
    vocab_size=151936, max_position_embeddings=262144,
)  # fmt: skip


_DEVSTRAL = dict(
    hidden_size=12288, num_hidden_layers=88, num_attention_heads=96,
    num_key_value_heads=8, head_dim=128, intermediate_size=28672, vocab_size=131072,
    max_position_embeddings=262144,
)  # fmt: skip


_MIMO_DENSE = dict(
    hidden_size=4096, num_hidden_layers=36, num_attention_heads=32,
    num_key_value_heads=8, head_dim=128, intermediate_size=11008, vocab_size=151680,
    max_position_embeddings=32768,
)  # fmt: skip


_SMOL = dict(
    hidden_size=2048, num_hidden_layers=36, num_attention_heads=16,
    num_key_value_heads=4, intermediate_size=11008, vocab_size=128256,
    max_position_embeddings=65536, tie_word_embeddings=True,
)  # fmt: skip


_SEED = dict(
    hidden_size=5120, num_hidden_layers=64, num_attention_heads=80,
    num_key_value_heads=8, head_dim=128, intermediate_size=27648, vocab_size=155136,
    max_position_embeddings=524288, attention_bias=True, attention_out_bias=False,
)  # fmt: skip


_GRANITE_DENSE = dict(
    hidden_size=4096, num_hidden_layers=40, num_attention_heads=32,
    num_key_value_heads=8, intermediate_size=12800, vocab_size=49155,
    max_position_embeddings=131072, tie_word_embeddings=True,
)  # fmt: skip


_MIMO = dict(
    hidden_size=4096, num_hidden_layers=48, num_attention_heads=64,
    num_key_value_heads=4, head_dim=192, v_head_dim=128, intermediate_size=16384,
    vocab_size=152576, max_position_embeddings=262144, sliding_window=128,
    swa_num_attention_heads=64, swa_num_key_value_heads=8, swa_head_dim=192,
    swa_v_head_dim=128, moe_intermediate_size=2048, n_routed_experts=256,
    num_experts_per_tok=8, add_swa_attention_sink_bias=True,
    moe_layer_freq=[0] + [1] * 47,
    hybrid_layer_pattern=[0, *[1] * 4, *([0] + [1] * 5) * 7, 0],
)  # fmt: skip


_GEMMA2 = dict(
    hidden_size=3584, num_hidden_layers=42, num_attention_heads=16,
    num_key_value_heads=8, head_dim=256, intermediate_size=14336, vocab_size=256000,
    max_position_embeddings=8192, sliding_window=4096,
)  # fmt: skip


_OLMO3 = dict(
    hidden_size=5120, num_hidden_layers=64, num_attention_heads=40,
    num_key_value_heads=8, intermediate_size=27648, vocab_size=100278,
    max_position_embeddings=65536, sliding_window=4096,
)  # fmt: skip


_M3 = dict(
    hidden_size=6144, num_hidden_layers=60, num_attention_heads=64,
    num_key_value_heads=4, head_dim=128, intermediate_size=3072,
    dense_intermediate_size=12288, num_local_experts=128, num_experts_per_tok=4,
    moe_layer_freq=[0] * 3 + [1] * 57, n_shared_experts=1,
    shared_intermediate_size=3072, use_qk_norm=True, qk_norm_type="per_head",
    vocab_size=200064, max_position_embeddings=1048576,
    sparse_attention_config=dict(
        sparse_num_index_heads=4, sparse_index_dim=128, sparse_topk_blocks=16,
        sparse_block_size=128, sparse_attention_freq=[0] * 3 + [1] * 57,
    ),
)  # fmt: skip


_V3 = dict(
    hidden_size=7168, num_hidden_layers=61, num_attention_heads=128,
    q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
    v_head_dim=128, first_k_dense_replace=3, intermediate_size=18432,
    moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1,
    num_experts_per_tok=8, vocab_size=129280, max_position_embeddings=163840,
)  # fmt: skip


_INDEX = dict(index_topk=2048, index_n_heads=64, index_head_dim=128)


_V4 = dict(
    hidden_size=4096, num_hidden_layers=43, num_attention_heads=64,
    num_key_value_heads=1, head_dim=512, q_lora_rank=1024, o_groups=8,
    o_lora_rank=1024, sliding_window=128, hc_mult=4, index_n_heads=64,
    index_head_dim=128, index_topk=512, compress_ratios=[0, 0] + [4, 128] * 20 + [4, 0],
    n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=6,
    moe_intermediate_size=2048, num_hash_layers=3, vocab_size=129280,
    max_position_embeddings=1048576,
)  # fmt: skip


_LFM2_DENSE = dict(
    hidden_size=2048, num_hidden_layers=16, num_attention_heads=32,
    num_key_value_heads=8, intermediate_size=12288, vocab_size=65536,
    max_position_embeddings=128000, conv_L_cache=3,
    layer_types=[
        "full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)
    ],
)  # fmt: skip


_QWEN2_MOE = dict(
    hidden_size=2048, num_hidden_layers=24, num_attention_heads=16,
    num_key_value_heads=16, moe_intermediate_size=1408, num_experts=60,
    shared_expert_intermediate_size=5632, num_experts_per_tok=4, vocab_size=151936,
    max_position_embeddings=8192, max_window_layers=21, intermediate_size=5632,
    sliding_window=32768, use_sliding_window=False, tie_word_embeddings=False,
)  # fmt: skip


_PHI_MOE = dict(
    hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, intermediate_size=6400, num_local_experts=16,
    num_experts_per_tok=2, vocab_size=32064, max_position_embeddings=131072,
    sliding_window=131072, attention_bias=True, lm_head_bias=True,
)  # fmt: skip


_ERNIE = dict(
    hidden_size=1024, num_hidden_layers=18, num_attention_heads=16,
    num_key_value_heads=2, head_dim=128, intermediate_size=3072, vocab_size=103424,
    max_position_embeddings=131072, tie_word_embeddings=True, use_bias=False,
)  # fmt: skip


_ERNIE_MOE = dict(
    hidden_size=2560, num_hidden_layers=28, num_attention_heads=20,
    num_key_value_heads=4, intermediate_size=12288, moe_intermediate_size=1536,
    moe_num_experts=64, moe_num_shared_experts=2, moe_k=6, moe_layer_start_index=1,
    moe_layer_end_index=27, moe_layer_interval=1, moe_capacity=[64, 64, 64],
    vocab_size=103424, max_position_embeddings=131072, tie_word_embeddings=True,
)  # fmt: skip


_HUNYUAN = dict(
    hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, head_dim=128, intermediate_size=14336, vocab_size=128167,
    max_position_embeddings=32768, tie_word_embeddings=True, use_qk_norm=True,
    use_cla=False, cla_share_factor=2, num_experts=1, norm_type="rms",
)  # fmt: skip


_INTERN = dict(
    hidden_size=4096, num_hidden_layers=48, num_attention_heads=32,
    num_key_value_heads=2, head_dim=128, intermediate_size=10240, vocab_size=128512,
    max_position_embeddings=32768, bias=False, qkv_bias=False,
)  # fmt: skip


_COHERE = dict(
    hidden_size=8192, num_hidden_layers=40, num_attention_heads=64,
    num_key_value_heads=64, intermediate_size=22528, vocab_size=256000,
    max_position_embeddings=8192, use_qk_norm=False,
)  # fmt: skip


_COHERE2 = dict(
    hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, head_dim=128, intermediate_size=14336, vocab_size=256000,
    max_position_embeddings=8192, sliding_window=4096, sliding_window_pattern=4,
    layer_switch=4, order_of_interleaved_layers="local_attn_first",
)  # fmt: skip


_GLM4 = dict(
    hidden_size=6144, num_hidden_layers=61, num_attention_heads=48,
    num_key_value_heads=2, head_dim=128, intermediate_size=23040, vocab_size=151552,
    max_position_embeddings=32768, partial_rotary_factor=0.5,
)  # fmt: skip


_MISTRAL4 = dict(
    hidden_size=4096, num_hidden_layers=36, num_attention_heads=32,
    num_key_value_heads=32, q_lora_rank=1024, kv_lora_rank=256, qk_nope_head_dim=64,
    qk_rope_head_dim=64, v_head_dim=128, intermediate_size=12288,
    moe_intermediate_size=2048, n_routed_experts=128, n_shared_experts=1,
    num_experts_per_tok=4, vocab_size=131072, max_position_embeddings=1048576,
)  # fmt: skip


VL25 = dict(
    hidden_size=3584, num_hidden_layers=28, num_attention_heads=28,
    num_key_value_heads=4, intermediate_size=18944, vocab_size=152064,
    max_position_embeddings=128000, max_window_layers=28, sliding_window=32768,
    use_sliding_window=False,
)  # fmt: skip


_MPT = dict(
    d_model=4096, n_heads=32, n_layers=32, expansion_ratio=4, max_seq_len=2048,
    vocab_size=50432, no_bias=True, attn_config=dict(alibi=True),
)  # fmt: skip


_NEMOTRON = dict(
    hidden_size=6144, num_hidden_layers=32, num_attention_heads=48,
    num_key_value_heads=8, intermediate_size=24576, vocab_size=256000,
    max_position_embeddings=4096, tie_word_embeddings=False,
)  # fmt: skip


OTHERS: dict[str, tuple[dict[str, Any], Published]] = {
    "mpt": (_MPT, Published(6_649_286_656, 524_288)),  # 7B
    # 15.6 B, of which 3.1 B embed (arXiv 2402.16819, table 1)
    "nemotron": (_NEMOTRON, Published(15_628_775_424, 131_072)),  # 4 15B
    "deepseek_v2": (  # V2-Lite
        _LATENT | dict(
            hidden_size=2048, num_hidden_layers=27, num_attention_heads=16,
            q_lora_rank=None, intermediate_size=10944, moe_intermediate_size=1408,
            n_routed_experts=64,
        ),
        Published(15_706_484_224, 31_104),
    ),
    "falcon_h1": (_FALCON, Published(521_411_104, 18_432, 0, 28_698_624)),  # 0.5B
    "granitemoehybrid": (_GRANITE, Published(3_191_396_096, 8_192, 0, 76_437_504)),
    "lfm2_moe": (_LFM2, Published(8_339_929_856, 12_288, 0, 147_456)),  # 8B-A1B
    "qwen3_next": (_NEXT, Published(79_674_391_296, 24_576, 0, 77_266_944)),  # 80B-A3B
    # its published size has 26 x 256 score corrections more, which no token multiplies
    "kimi_linear": (_KIMI, Published(49_122_681_728 - 26 * 256, 8_064, 0, 43_417_600)),
    "gemma3_text": (GEMMA, Published(27_009_346_304, 81_920, 425_984)),  # 27B
    "exaone4": (_EXAONE, Published(32_003_216_384, 65_536, 196_608)),  # 32B
    "olmo2": (_OLMO, Published(7_298_617_344, 524_288)),  # 7B
    "phi3": (_PHI, Published(14_659_507_200, 204_800, gflop=27.262976)),  # phi-4
    "qwen3_vl_text": (_VL, Published(1_720_574_976, 114_688, gflop=2.818572)),  # 2B
    "qwen3_vl_moe_text": (_VL_MOE, Published(30_532_122_624, 98_304, gflop=5.460984)),
    "ministral3": (_DEVSTRAL, Published(125_025_988_608, 360_448, gflop=243.605176)),
    # its published size has one layer and a product of 2h x h more, to draft with
    "mimo": (_MIMO_DENSE, Published(7_833_409_536 - 210_790_400, 147_456)),  # 7B
    "smollm3": (_SMOL, Published(3_075_098_624, 73_728)),  # 3B
    "seed_oss": (_SEED, Published(36_151_104_512, 262_144)),  # 36B
    "granite": (_GRANITE_DENSE, Published(8_170_848_256, 163_840)),  # 3.2 8B
    "mimo_v2_flash": (
        _MIMO, Published(308_778_768_832, 23_040, 199_680, gflop=28.391244)
    ),
    "gemma2": (_GEMMA2, Published(9_241_705_984, 172_032, 172_032)),  # 9B
    "olmo3": (_OLMO3, Published(32_233_522_176, 65_536, 196_608, gflop=62.411244)),
    "minimax_m3": (_M3, Published(426_174_565_632, 137_472)),
    "deepseek_v32": (
        _V3 | _INDEX, Published(671_877_929_216, 85_888, gflop=73.098854)
    ),
    "glm_moe_dsa": (_V3 | _INDEX, Published(671_877_929_216, 85_888)),
    "deepseek_v4": (_V4, Published(284_332_230_231, 6_880, 0, 5_636_096, 25.477251)),
    "lfm2": (_LFM2_DENSE, Published(1_170_340_608, 12_288, 0, 81_920, 2.071986)),
    "qwen2_moe": (  # Qwen1.5-MoE-A2.7B
        _QWEN2_MOE, Published(14_315_784_192, 196_608, gflop=4.1332)
    ),
    "phimoe": (_PHI_MOE, Published(41_873_153_344, 131_072, gflop=12.7549)),  # 3.5
    "ernie4_5": (_ERNIE, Published(360_748_032, 18_432, gflop=0.5096)),  # 0.3B
    # its published size has 27 x 64 score corrections more
    "ernie4_5_moe": (  # 21B-A3B
        _ERNIE_MOE, Published(21_825_437_888 - 27 * 64, 57_344, gflop=6.1745)
    ),
    "hunyuan_v1_dense": (_HUNYUAN, Published(7_504_568_320, 131_072, gflop=13.9586)),
    "internlm3": (_INTERN, Published(8_804_241_408, 49_152)),  # 8B
    "cohere": (_COHERE, Published(34_980_831_232, 1_310_720, gflop=65.7667)),  # R
    "cohere2": (_COHERE2, Published(8_028_033_024, 32_768, 98_304, gflop=13.9586)),
    "glm4": (_GLM4, Published(32_566_081_536, 62_464, gflop=61.4046)),  # 32B-0414
    # Mistral Small 4
    "mistral4": (_MISTRAL4, Published(118_972_826_624, 23_040, gflop=11.117003)),
    "qwen2_5_vl_text": (VL25, Published(7_615_616_512, 57_344, gflop=13.0506)),  # 7B
}  # fmt: skip
"""Configs of families without a bundled model, by `model_type`."""
