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

SHORT = {
    "h": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv": "num_key_value_heads",
    "inner": "intermediate_size",
    "vocab": "vocab_size",
    "positions": "max_position_embeddings",
    "expert": "moe_intermediate_size",
}


def of(**sizes: Any) -> dict[str, Any]:
    """A config; sizes that all have in short."""
    return {SHORT.get(name, name): size for name, size in sizes.items()}


_V3 = of(
    h=7168, layers=61, heads=128, q_lora_rank=1536, kv_lora_rank=512,
    qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, first_k_dense_replace=3,
    inner=18432, expert=2048, n_routed_experts=256, n_shared_experts=1,
    num_experts_per_tok=8, vocab=129280, positions=163840,
)  # fmt: skip
_INDEX = dict(index_topk=2048, index_n_heads=64, index_head_dim=128)
OTHERS: dict[str, tuple[dict[str, Any], Published]] = {
    "mpt": (of(
        vocab=50432, d_model=4096, n_heads=32, n_layers=32, expansion_ratio=4,
        max_seq_len=2048, no_bias=True, attn_config=dict(alibi=True),
    ), Published(6_649_286_656, 524_288)),  # 7B
    # 15.6 B, of which 3.1 B embed (arXiv 2402.16819, table 1)
    "nemotron": (of(
        h=6144, layers=32, heads=48, kv=8, inner=24576, vocab=256000, positions=4096,
        tie_word_embeddings=False,
    ), Published(15_628_775_424, 131_072)),  # 4 15B
    "deepseek_v2": (of(
        h=2048, layers=27, heads=16, inner=10944, expert=1408, vocab=102400,
        positions=163840, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128, first_k_dense_replace=1, moe_layer_freq=1, n_shared_experts=2,
        num_experts_per_tok=6, q_lora_rank=None, n_routed_experts=64,
    ), Published(15_706_484_224, 31_104)),  # V2-Lite
    "falcon_h1": (of(
        h=1024, layers=36, heads=8, kv=2, inner=2048, vocab=32784, positions=16384,
        head_dim=64, mamba_d_ssm=1536, mamba_n_heads=24, mamba_d_head=64,
        mamba_d_state=128, mamba_n_groups=1, mamba_d_conv=4, mamba_chunk_size=128,
        mamba_rms_norm=False,
    ), Published(521_411_104, 18_432, 0, 28_698_624)),  # 0.5B
    "granitemoehybrid": (of(
        h=2048, layers=40, heads=32, kv=8, inner=8192, vocab=100352, positions=131072,
        shared_intermediate_size=8192, num_local_experts=0, mamba_n_heads=64,
        mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1, mamba_d_conv=4,
        mamba_chunk_size=256, tie_word_embeddings=True,
        layer_types=[
            "attention" if i in (5, 15, 25, 35) else "mamba" for i in range(40)
        ],
    ), Published(3_191_396_096, 8_192, 0, 76_437_504)),
    "lfm2_moe": (of(
        h=2048, layers=24, heads=32, kv=8, inner=7168, expert=1792, vocab=65536,
        positions=128000, num_dense_layers=2, num_experts=32, num_experts_per_tok=4,
        conv_L_cache=3, use_expert_bias=True,
        layer_types=[
            "full_attention" if i in (2, 6, 10, 14, 18, 21) else "conv"
            for i in range(24)
        ],
    ), Published(8_339_929_856, 12_288, 0, 147_456)),  # 8B-A1B
    "qwen3_next": (of(
        h=2048, layers=48, heads=16, kv=2, inner=5120, expert=512, vocab=151936,
        positions=262144, head_dim=256, shared_expert_intermediate_size=512,
        num_experts=512, num_experts_per_tok=10, linear_conv_kernel_dim=4,
        linear_key_head_dim=128, linear_num_key_heads=16, linear_num_value_heads=32,
        linear_value_head_dim=128,
    ), Published(79_674_391_296, 24_576, 0, 77_266_944)),  # 80B-A3B
    # its published size has 26 x 256 score corrections more, which no token multiplies
    "kimi_linear": (of(
        h=2304, layers=27, heads=32, inner=9216, expert=1024, vocab=163840,
        positions=1048576, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128,
        qk_rope_head_dim=64, v_head_dim=128, num_experts=256, num_experts_per_token=8,
        num_shared_experts=1, first_k_dense_replace=1,
        linear_attn_config=dict(
            full_attn_layers=[4, 8, 12, 16, 20, 24, 27], head_dim=128, num_heads=32,
            short_conv_kernel_size=4,
        ),
    ), Published(49_122_681_728 - 26 * 256, 8_064, 0, 43_417_600)),
    "gemma3_text": (of(
        h=5376, layers=62, heads=32, kv=16, inner=21504, vocab=262208, positions=131072,
        head_dim=128, sliding_window=1024,
    ), Published(27_009_346_304, 81_920, 425_984)),  # 27B
    "exaone4": (of(
        h=5120, layers=64, heads=40, kv=8, inner=27392, vocab=102400, positions=131072,
        head_dim=128, sliding_window=4096, sliding_window_pattern="LLLG",
    ), Published(32_003_216_384, 65_536, 196_608)),  # 32B
    "olmo2": (of(
        h=4096, layers=32, heads=32, inner=11008, vocab=100352, positions=4096,
    ), Published(7_298_617_344, 524_288)),  # 7B
    "phi3": (of(
        h=5120, layers=40, heads=40, kv=10, inner=17920, vocab=100352, positions=16384,
    ), Published(14_659_507_200, 204_800, gflop=27.262976)),  # phi-4
    "qwen3_vl_text": (of(
        h=2048, layers=28, heads=16, kv=8, inner=6144, vocab=151936, positions=262144,
        head_dim=128, tie_word_embeddings=True,
    ), Published(1_720_574_976, 114_688, gflop=2.818572)),  # 2B
    "qwen3_vl_moe_text": (of(
        h=2048, layers=48, heads=32, kv=4, inner=6144, expert=768, vocab=151936,
        positions=262144, head_dim=128, num_experts=128, num_experts_per_tok=8,
    ), Published(30_532_122_624, 98_304, gflop=5.460984)),
    "ministral3": (of(
        h=12288, layers=88, heads=96, kv=8, inner=28672, vocab=131072, positions=262144,
        head_dim=128,
    ), Published(125_025_988_608, 360_448, gflop=243.605176)),
    # its published size has one layer and a product of 2h x h more, to draft with
    "mimo": (of(
        h=4096, layers=36, heads=32, kv=8, inner=11008, vocab=151680, positions=32768,
        head_dim=128,
    ), Published(7_833_409_536 - 210_790_400, 147_456)),  # 7B
    "smollm3": (of(
        h=2048, layers=36, heads=16, kv=4, inner=11008, vocab=128256, positions=65536,
        tie_word_embeddings=True,
    ), Published(3_075_098_624, 73_728)),  # 3B
    "seed_oss": (of(
        h=5120, layers=64, heads=80, kv=8, inner=27648, vocab=155136, positions=524288,
        head_dim=128, attention_bias=True, attention_out_bias=False,
    ), Published(36_151_104_512, 262_144)),  # 36B
    "granite": (of(
        h=4096, layers=40, heads=32, kv=8, inner=12800, vocab=49155, positions=131072,
        tie_word_embeddings=True,
    ), Published(8_170_848_256, 163_840)),  # 3.2 8B
    "mimo_v2_flash": (of(
        h=4096, layers=48, heads=64, kv=4, inner=16384, expert=2048, vocab=152576,
        positions=262144, head_dim=192, v_head_dim=128, sliding_window=128,
        swa_num_attention_heads=64, swa_num_key_value_heads=8, swa_head_dim=192,
        swa_v_head_dim=128, n_routed_experts=256, num_experts_per_tok=8,
        add_swa_attention_sink_bias=True, moe_layer_freq=[0] + [1] * 47,
        hybrid_layer_pattern=[0, *[1] * 4, *([0] + [1] * 5) * 7, 0],
    ), Published(308_778_768_832, 23_040, 199_680, gflop=28.391244)),
    "gemma2": (of(
        h=3584, layers=42, heads=16, kv=8, inner=14336, vocab=256000, positions=8192,
        head_dim=256, sliding_window=4096,
    ), Published(9_241_705_984, 172_032, 172_032)),  # 9B
    "olmo3": (of(
        h=5120, layers=64, heads=40, kv=8, inner=27648, vocab=100278, positions=65536,
        sliding_window=4096,
    ), Published(32_233_522_176, 65_536, 196_608, gflop=62.411244)),
    "minimax_m3": (of(
        h=6144, layers=60, heads=64, kv=4, inner=3072, vocab=200064, positions=1048576,
        head_dim=128, dense_intermediate_size=12288, num_local_experts=128,
        num_experts_per_tok=4, moe_layer_freq=[0] * 3 + [1] * 57, n_shared_experts=1,
        shared_intermediate_size=3072, use_qk_norm=True, qk_norm_type="per_head",
        sparse_attention_config=dict(
            sparse_num_index_heads=4, sparse_index_dim=128, sparse_topk_blocks=16,
            sparse_block_size=128, sparse_attention_freq=[0] * 3 + [1] * 57,
        ),
    ), Published(426_174_565_632, 137_472)),
    "deepseek_v32": (_V3 | _INDEX, Published(671_877_929_216, 85_888, gflop=73.098854)),
    "glm_moe_dsa": (_V3 | _INDEX, Published(671_877_929_216, 85_888)),
    "deepseek_v4": (of(
        h=4096, layers=43, heads=64, kv=1, expert=2048, vocab=129280, positions=1048576,
        head_dim=512, q_lora_rank=1024, o_groups=8, o_lora_rank=1024,
        sliding_window=128, hc_mult=4, index_n_heads=64, index_head_dim=128,
        index_topk=512, compress_ratios=[0, 0] + [4, 128] * 20 + [4, 0],
        n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=6,
        num_hash_layers=3,
    ), Published(284_332_230_231, 6_880, 0, 5_636_096, 25.477251)),
    "lfm2": (of(
        h=2048, layers=16, heads=32, kv=8, inner=12288, vocab=65536, positions=128000,
        conv_L_cache=3,
        layer_types=[
            "full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv"
            for i in range(16)
        ],
    ), Published(1_170_340_608, 12_288, 0, 81_920, 2.071986)),
    "qwen2_moe": (of(
        h=2048, layers=24, heads=16, kv=16, inner=5632, expert=1408, vocab=151936,
        positions=8192, num_experts=60, shared_expert_intermediate_size=5632,
        num_experts_per_tok=4, max_window_layers=21, sliding_window=32768,
        use_sliding_window=False, tie_word_embeddings=False,
    ), Published(14_315_784_192, 196_608, gflop=4.1332)),  # Qwen1.5-MoE-A2.7B
    "phimoe": (of(
        h=4096, layers=32, heads=32, kv=8, inner=6400, vocab=32064, positions=131072,
        num_local_experts=16, num_experts_per_tok=2, sliding_window=131072,
        attention_bias=True, lm_head_bias=True,
    ), Published(41_873_153_344, 131_072, gflop=12.7549)),  # 3.5
    "ernie4_5": (of(
        h=1024, layers=18, heads=16, kv=2, inner=3072, vocab=103424, positions=131072,
        head_dim=128, tie_word_embeddings=True, use_bias=False,
    ), Published(360_748_032, 18_432, gflop=0.5096)),  # 0.3B
    # its published size has 27 x 64 score corrections more
    "ernie4_5_moe": (of(
        h=2560, layers=28, heads=20, kv=4, inner=12288, expert=1536, vocab=103424,
        positions=131072, moe_num_experts=64, moe_num_shared_experts=2, moe_k=6,
        moe_layer_start_index=1, moe_layer_end_index=27, moe_layer_interval=1,
        moe_capacity=[64, 64, 64], tie_word_embeddings=True,
    ), Published(21_825_437_888 - 27 * 64, 57_344, gflop=6.1745)),  # 21B-A3B
    "hunyuan_v1_dense": (of(
        h=4096, layers=32, heads=32, kv=8, inner=14336, vocab=128167, positions=32768,
        head_dim=128, tie_word_embeddings=True, use_qk_norm=True, use_cla=False,
        cla_share_factor=2, num_experts=1, norm_type="rms",
    ), Published(7_504_568_320, 131_072, gflop=13.9586)),
    "internlm3": (of(
        h=4096, layers=48, heads=32, kv=2, inner=10240, vocab=128512, positions=32768,
        head_dim=128, bias=False, qkv_bias=False,
    ), Published(8_804_241_408, 49_152)),  # 8B
    "cohere": (of(
        h=8192, layers=40, heads=64, kv=64, inner=22528, vocab=256000, positions=8192,
        use_qk_norm=False,
    ), Published(34_980_831_232, 1_310_720, gflop=65.7667)),  # R
    "cohere2": (of(
        h=4096, layers=32, heads=32, kv=8, inner=14336, vocab=256000, positions=8192,
        head_dim=128, sliding_window=4096, sliding_window_pattern=4, layer_switch=4,
        order_of_interleaved_layers="local_attn_first",
    ), Published(8_028_033_024, 32_768, 98_304, gflop=13.9586)),
    "glm4": (of(
        h=6144, layers=61, heads=48, kv=2, inner=23040, vocab=151552, positions=32768,
        head_dim=128, partial_rotary_factor=0.5,
    ), Published(32_566_081_536, 62_464, gflop=61.4046)),  # 32B-0414
    # Mistral Small 4
    "mistral4": (of(
        h=4096, layers=36, heads=32, kv=32, inner=12288, expert=2048, vocab=131072,
        positions=1048576, q_lora_rank=1024, kv_lora_rank=256, qk_nope_head_dim=64,
        qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=128, n_shared_experts=1,
        num_experts_per_tok=4,
    ), Published(118_972_826_624, 23_040, gflop=11.117003)),
    "qwen2_5_vl_text": (of(
        h=3584, layers=28, heads=28, kv=4, inner=18944, vocab=152064, positions=128000,
        max_window_layers=28, sliding_window=32768, use_sliding_window=False,
    ), Published(7_615_616_512, 57_344, gflop=13.0506)),  # 7B
}  # fmt: skip
"""Configs of families without a bundled model, by `model_type`."""
