"""What models, their configs, requests and kernel listings refuse."""

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import File, Refusal, row

from diffenergy import load_model
from diffenergy.workload import read_listings, select_listing

from .builders import FAMILIES
from .published import OTHERS
from .test_diffusion import SD3, TINY, WAN
from .test_layered import GPT_OSS
from .test_towers import TEXT
from .test_towers import TINY as VISION
from .test_whisper import TINY as WHISPER

INF, NAN = float("inf"), float("nan")


def list_kernels(model: str, **options: Any):
    load_model(model).listings(**options)


def of(sentence: str, values: Any, request: dict[str, Any] | None = None) -> Any:
    """A config of these values, or of a family with changes, and a request."""
    if isinstance(values, str):
        values = {"model_type": values} | FAMILIES[values]
    file = File(json.dumps(values), "config.json")
    return row(sentence, list_kernels, file, **(request or {}))


def config(sentence: str, family: str, **changes: Any) -> Any:
    values = {"model_type": family} | FAMILIES[family] | changes
    present = {key: x for key, x in values.items() if x != "absent"}
    return of(f"config.json: .. {sentence}", present)


def other(kind: str, key: str, **changes: Any) -> Any:
    return of(f"`{key}` is", {"model_type": kind, **OTHERS[kind][0], **changes})


def model(sentence: str, name: str | dict[str, Any], **options: Any) -> Any:
    """A request of a bundled model, a family or a config."""
    if isinstance(name, str) and name not in FAMILIES:
        return row(sentence, list_kernels, name, **options)
    if name in ("gpt2", "mixtral"):
        options = {"input_len": 8, "output_len": 4} | options
    return of(sentence, name, options)


def training(sentence: str, model: str, **options: Any) -> Any:
    return row(sentence, list_kernels, model, phase="train", **options)


def towers(sentence: str, kind: str, vision: Any, **options: Any) -> Any:
    values = {"model_type": kind, "text_config": TEXT}
    return of(sentence, values | ({"vision_config": vision} if vision else {}), options)


CONFIGS = [
    *(
        config(f"`{key}` .. is missing; ", family, **{key: "absent"})
        for family, values in FAMILIES.items()
        for key in values
        if key != "sliding_window"
    ),
    config("`n_embd` is 50, which `n_head` 3 does not divide", "gpt2", n_embd=50),
    config("`n_layer` is 2.5; allowed is a whole number", "gpt2", n_layer=2.5),
    config("`num_hidden_layers` is 1000000000; allowed is a whole number of at least "
           "1, up to 10,000; correct the config.", "qwen3_moe",
           num_hidden_layers=10**9),
    config("`hidden_size` .. up to 10,000,000", "qwen3_moe", hidden_size=10**8),
    config("`max_position_embeddings` .. up to 1,000,000,000",
           "qwen3_moe", max_position_embeddings=10**10),
    config("`activation_function` is 3; allowed is", "gpt2", activation_function=3),
    config("`hidden_size` is 50, which `num_a", "opt", hidden_size=50, ffn_dim=1),
    config("`word_embed_proj_dim` is 24; allowed is `hidden_size` = 48",
           "opt", word_embed_proj_dim=24),
    config("`num_attention_heads` is 3, which .. heads` 2", "llama",
           num_key_value_heads=2),
    config("`mlp_bias` is 1; allowed is true or false", "llama", mlp_bias=1),
    config("`rope_scaling` is", "llama", rope_scaling="yarn"),
    config("`rope_scaling`: `factor` is -1; allowed", "llama",
           rope_scaling={"type": "yarn", "factor": -1}),
    config("`num_experts_per_tok` is 6; allowed is at most 5 experts",
           "mixtral", num_experts_per_tok=6),
    config("`mlp_only_layers` is [1]; allowed is an empty list",
           "mixtral", mlp_only_layers=[1]),
    config("`decoder_sparse_step` is 2; allowed", "mixtral", decoder_sparse_step=2),
    config("`hidden_size` is 50, which", "bert", hidden_size=50),
    config("`patch_size` is 36; allowed is at most", "vit", patch_size=36),
    config("`depths` is [1]; allowed is a list of 2", "resnet", depths=[1]),
    config("`depths` is .. whole numbers of at least 1", "resnet", depths=[3, 6.5]),
    config("`hidden_sizes` is 16; allowed is a list of", "resnet", hidden_sizes=16),
    config('`layer_type` is "basic"; allowed is', "resnet", layer_type="basic"),
    config("a list of 3 numbers", "mobilevit", hidden_sizes=[36, 48]),
    config("a divisor of each", "mobilevit", hidden_sizes=[36, 48, 61]),
    config("a list of 7 numbers", "mobilevit", neck_hidden_sizes=[1] * 6),
    config("`image_size` is 96; allowed is a multiple of 64",
           "mobilevit", image_size=96),
    config("`mlp_ratio` is 0.0; allowed is a finite", "mobilevit", mlp_ratio=0.0),
    config("`expand_ratio` is Infinity", "mobilevit", expand_ratio=INF),
    config("near are gpt2", "gpt2", model_type="gpt5"),
    config("lists them) none is near", "gpt2", model_type="wxyz9"),
    of("config.json has no `model_type` .. tokenizer", {"hidden_size": 64}),
    of("`moe_latent_size` is 16, which is not known",
       GPT_OSS | {"moe_latent_size": 16}),
    of("`dual_attention_layers` is set", SD3 | {"dual_attention_layers": [0]}),
    of("`image_dim` is set, and attention to an", WAN | {"image_dim": 1280}),
    of("`patch_size` is .. a list of 3 numbers", WAN | {"patch_size": [2, 2]}),
    other("smollm3", "layer_types", sliding_window=512,
          layer_types=18 * ["full_attention", "sliding_attention"]),
    other("qwen2_5_vl_text", "max_window_layers",
          use_sliding_window=True, max_window_layers=14),
    other("hunyuan_v1_dense", "num_experts", num_experts=16),
    other("phi3", "use_qk_norm", use_qk_norm=True),
    other("deepseek_v2", "moe_layer_freq", moe_layer_freq=[0, *25 * [1], 0.5]),
    other("phimoe", "sliding_window", sliding_window=512),
    other("qwen2_moe", "use_sliding_window", use_sliding_window=True),
    other("internlm3", "bias", bias=True),
    other("ernie4_5", "use_bias", use_bias=True),
    *(
        of(f"config.json: `model_type` is '{kind}', and {words} .. listing",
           {"model_type": kind})
        for kind, words in {
            "mamba": "the scan of Mamba 1, with a state for every chann",
            "rwkv7": "the recurrence of RWKV is not built",
            "t5": "an encoder-decoder of text is not built",
            "wav2vec2": "a speech encoder other than Whisper's is not",
            "bark": "speech that is made token by token or wave by wave",
            "siglip": "an image encoder that stands alone, other than V",
            "nemotron-nas": "a stack whose layers have attention and MLPs of their own",
            "mllama": "attention to an image between the layers of text",
            "kimi_k3": "a stack whose layers attend to the blocks before them",
            "step3p7": "a stack whose kinds of attention differ in heads",
        }.items()
    ),
    of("`_class_name` is 'AutoencoderKL', and such a network is not built; of dif",
       {"_class_name": "AutoencoderKL"}),
    of("is 'UNet2D', and U-Nets are not built; of d", {"_class_name": "UNet2D"}),
    config('`quantization_config` is "fp8"; allowed', "llama",
           quantization_config="fp8"),
]  # fmt: skip
FILES = [
    row(sentence, load_model, File(content, name))
    for content, name, sentence in (
        (b"{", "config.json", "broken JSON"),
        (b'{\n"model_type": "gpt2",,}', "deep.json", "deep.json, line 2: broken JSON"),
        (b'["model_type"]', "list.json", "list.json has no `model_type`"),
        (b"\xff", "config.json", "UTF-8"),
        (None, "empty", "has no `config.json`"),
    )
] + [
    row(sentence, load_model, name)
    for name, sentence in {
        "qwen3-8": "model or file 'qwen3-8'; near are qwen3-8b",
        "llama-3.1-7b": "'llama-3.1-7b' .. llama-3.1-8b",
        "#": "model or file '#'; bundled are bert-base, b",
        **{
            name: f"no model or file '{name}'"
            for name in (
                "meta-llama/Llama-3.1-7B-Instruct",  # another size
                "mistralai/Mistral-7B-v0.3",  # another vocabulary
                "nvidia/Llama-3.1-70B-Instruct-FP8",  # another type of weights
                "openai/whisper-base",
                "some/folder/gpt2",
                "./gpt2",
                "-instruct",
            )
        },
    }.items()
]
REQUESTS = [
    model("is 41, but .. has 40 positions", "gpt2", input_len=33, output_len=8),
    model("`kv_dtype` is 'tf32'; allowed are fp32, bf16", "gpt2", kv_dtype="tf32"),
    model("`accumulation` is given, but .. train", "gpt2", accumulation=1),
    model("`checkpointing` is given, but only .. train", "gpt2", checkpointing=True),
    model("`phase` .. forward", "bert-base", phase="decode"),
    model("'generate', but .. generates no tokens", "bert", phase="generate"),
    model("is 41, but .. has 40 positions", "bert", input_len=41),
    model("'serving', but .. has only eager", "vit", stack="serving"),
    model("is 4, but .. reads images of the config's size", "vit", input_len=4),
    model("'eager', but .. has only serving", "mixtral", stack="eager"),
    model("llama-3.1-8b has no experts", "llama-3.1-8b", routing="random"),
    # not the type first, which the remedy there would not help
    model("`stack` is 'eager', but .. has only", GPT_OSS, stack="eager", dtype="mxfp4"),
    model("`routing` is 'even'; allowed are random, balanced", GPT_OSS, routing="even"),
    *(model(f"`draft_tokens` is {x}; allowed is a whole number from 1 to", GPT_OSS,
            speculative="eagle", accept=0.5, draft_tokens=x) for x in (0, 99)),
    model("states no layer that predicts", GPT_OSS, speculative="mtp", accept=0.5),
    model("`accept` is missing", GPT_OSS, speculative="mtp"),
    model("`speculative` is 'guess'; allowed", GPT_OSS, speculative="guess",
          accept=0.5),
    model("`accept` is 1.5; allowed is a number", GPT_OSS, speculative="eagle",
          accept=1.5),
    model("`accept` is given, but nothing drafts tokens", GPT_OSS, accept=0.5),
    model("gguf .. --dtype",
          GPT_OSS | {"quantization_config": {"quant_method": "gguf"}}),
    model("'generate', but .. generates no tokens", TINY, phase="generate"),
    model("`stack` is 'eager', but .. has only serving", TINY, stack="eager"),
    model("`images` is 2, but .. reads no images; leave it out", TINY, images=2),
    model("`input_len` is 7, but forward is the enc", WHISPER, phase="forward",
          input_len=7),
    model("is 1, but a decode step follows the pass", WHISPER, phase="decode",
          input_len=1),
    model("is 31, but .. has 30 positions; shorten", WHISPER, input_len=20,
          output_len=11),
    model("'eager', but .. has only serving", WHISPER, stack="eager", output_len=4),
    model("'train', but .. has only prefill, decode, generate", WHISPER, phase="train"),
    towers("`images` is 1, but the vision tower of `model_type` 'unknown_vl' is not "
           "known, and its weights and kernels are", "unknown_vl", VISION, images=1),
    towers("config.json has no `vision_config`: its", "qwen3_vl", None, images=1),
    towers("images is 4240, but", "qwen3_vl", VISION, images=9, image_tokens=400),
    towers("training is known of the", "qwen3_vl", VISION, images=1, phase="train"),
    towers("`steps` is 2, but .. makes nothing in", "qwen3_vl", VISION, steps=2),
    towers("`guidance` is True, but .. makes", "qwen3_vl", VISION, guidance=True),
    towers("`vision_config`: `depth` is 0; allowed", "qwen3_vl", VISION | {"depth": 0},
           images=1),
]  # fmt: skip
STEPS = [
    training("`output_len` is 4", "gpt2", output_len=4),
    training("`kv_dtype` .. KV cache", "gpt2", kv_dtype="fp8"),
    training("`base` is True .. head", "gpt2", base=True),
    training("1025 .. 1024", "gpt2", input_len=1025),
    training("is 513 .. 512", "bert-base", input_len=513),
    training("13 .. 12 layers", "gpt2", frozen_layers=13),
    training("beside `lora`", "gpt2", frozen_layers=2, lora=8),
    training("`lora` .. experts", "mixtral-8x7b", lora=8),
    training("`stack` .. serving", "mixtral-8x7b", stack="eager"),
    training("`stack` .. only eager", "resnet-50", stack="serving"),
    training("`lora` .. convolutions", "resnet-50", lora=8),
    training("`phase` is 'train', but llama-4-scout has only prefill", "llama-4-scout"),
    training("has fused attention alone", "deepseek-v3", attention="eager"),
    training("has experts, whose adapters", "deepseek-v3", lora=8),
    training("a training step has only", "deepseek-v3", dtype="int8"),
]  # fmt: skip
GEMM = dict(op="gemm", m=64, n=32, k=16, dtype="bf16")
CONV = dict(
    op="conv2d", images=1, in_channels=6, out_channels=4, input_hw=5, kernel_size=3,
    dtype="bf16",
)  # fmt: skip
HEADS = dict(op="context_attention", q_len=8, num_heads=6, head_dim=64, dtype="bf16")
MOE = dict(
    op="moe", num_tokens=1, hidden_size=8, inter_size=8, topk=1, num_experts=8,
    dtype="bf16",
)  # fmt: skip


def kernel(sentence: str, values: dict[str, Any], **changes: Any) -> Any:
    """The second workload's kernel of a listing."""
    lines = [{"name": "good", "kernels": [GEMM]}]
    lines.append({"name": "bad", "kernels": [values | changes]})
    text = "".join(json.dumps(x) + "\n" for x in lines)
    where = "work.jsonl, line 2, kernel 1: .. "
    return row(where + sentence, read_listings, File(text, "work.jsonl"))


def select(sentence: str, names: list[str], name: str | None) -> Any:
    text = "".join(json.dumps({"name": x, "kernels": [GEMM]}) + "\n" for x in names)
    return row(sentence, lambda path: select_listing(read_listings(path), name),
               File(text, "work.jsonl"))  # fmt: skip


KERNELS = [
    kernel("`m` is 0 .. at least 1", GEMM, m=0),
    kernel("`m` is NaN .. finite", GEMM, m=NAN),
    kernel("`m` is 128.5 .. whole number of at least 1", GEMM, m=128.5),
    kernel("`m` is true", GEMM, m=True),
    kernel("`m` of gemm is missing", GEMM, m=None),
    kernel('`dtype` is "fp7" .. bf16', GEMM, dtype="fp7"),
    kernel("`count` is -1 .. at least 0", GEMM, count=-1),
    kernel("`tensor_core` is 1 .. true", GEMM, tensor_core=1),
    kernel("`zero_share` is 1.5 .. 0 to 1", GEMM, zero_share=1.5),
    kernel('`layout` is "xy" .. tn', GEMM, layout="xy"),
    kernel("`op` is \"gem\" .. 'gemm'", GEMM, op="gem"),
    kernel("`op` is missing .. gemm", GEMM, op=None),
    kernel("`in_channels` is 6 .. `groups` 4", CONV, groups=4),
    kernel("`kernel_size` is 6 .. = 5", CONV, kernel_size=6),
    kernel("`num_heads` is 6 .. `num_kv_heads` 4", HEADS, num_kv_heads=4),
    kernel("`topk` is 9 .. = 8", MOE, topk=9),
    kernel('`distribution` is "uniform" .. balanced', MOE, distribution="uniform"),
]
LISTINGS = [
    row(sentence, read_listings, File(content, "work.jsonl"))
    for content, sentence in (
        (b"", "is empty .. `kernels`"),
        (b'{"name": "x", ', "line 1 .. broken JSON"),
        (b"[" * 100_000, "line 1 .. broken JSON"),
        (b"[1, 2]", "line 1 .. [1, 2] .. JSON object"),
        (b'{"name": "x"}', "line 1 .. `kernels` is missing"),
        (b'{"kernels": {"op": "gemm"}}', "`kernels` .. list"),
        (b'{"kernels": [3]}', "kernel 1 .. 3 .. object"),
        (b'{"name": "\xff"}', "not UTF-8"),
        (None, "is a folder"),
    )
] + [
    row("does not exist", read_listings, "none.jsonl"),
    select("line 2: `name` is 'one' like on line 1", ["one", "one"], None),
    select("3 workloads .. --workload", ["a/prefill", "a/decode", "bert"], None),
    select("'bart' .. 'bert'", ["a/prefill", "a/decode", "bert"], "bart"),
]


@pytest.mark.parametrize(
    "refusal", CONFIGS + FILES + REQUESTS + STEPS + KERNELS + LISTINGS
)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
