"""Checked reading of Hugging Face `config.json` files."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ..._kernel import as_json

_REQUIRED: Final = object()
_LAYERS: Final = 10_000
_WIDTH: Final = 10_000_000
"""Also of a vocabulary, heads and experts."""
_TOKENS: Final = 1_000_000_000
_EXTENDING: Final = ("linear", "dynamic", "yarn")
"""Types of rotary scaling whose factor multiplies the positions."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Values of a model config; every getter raises `ValueError` naming the key.

    `name`: model name. `where`: the file, for messages. `outer`: the config that this
    one is a part of. `read_keys`: keys that a getter has read.
    """

    name: str
    where: str
    values: Mapping[str, Any]
    outer: "Config | None" = None
    read_keys: set[str] = dataclasses.field(
        default_factory=set, repr=False, compare=False, hash=False
    )

    def size(self, *keys: str, default: Any = _REQUIRED) -> int:
        """Whole number of at least 1 under the first of `keys` that is present, at most
        what a model may have of it."""
        key, value = self._first(keys, default)
        if value is default and default is not _REQUIRED:
            return default
        return self._bounded(key, value, 1)

    def whole(self, key: str, default: int) -> int:
        """Whole number of at least 0 under `key`."""
        _, value = self._first((key,), default)
        return self._bounded(key, value, 0)

    def _bounded(self, key: str, value: Any, least: int) -> int:
        most = _most(key)
        if not _is_whole(value) or not least <= value <= most:
            raise self.error(key, f"a whole number of at least {least}, up to {most:,}")
        return int(value)

    def sizes(
        self, key: str, length: int | None = None, least: int = 1
    ) -> tuple[int, ...]:
        """List of whole numbers of at least `least`."""
        _, value = self._first((key,), _REQUIRED)
        good, most = isinstance(value, list) and value, _most(key)
        if not good or not all(_is_whole(x) and least <= x <= most for x in value):
            words = f"a list of whole numbers of at least {least}, up to {most:,}"
            raise self.error(key, words)
        if length is not None and len(value) != length:
            raise self.error(key, f"a list of {length} numbers")
        return tuple(int(x) for x in value)

    def numbers(self, key: str) -> tuple[int, ...]:
        """List of whole numbers of at least 0, empty where there is none."""
        listed = self.has(key) and self.values[key]
        return self.sizes(key, least=0) if listed else ()

    def number(self, key: str, default: Any = _REQUIRED) -> float:
        """Number above 0 under `key`."""
        _, value = self._first((key,), default)
        bad = isinstance(value, bool) or not isinstance(value, int | float)
        if bad or not 0 < value <= _TOKENS:
            raise self.error(key, f"a finite number above 0, up to {_TOKENS:,}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Boolean under `key`."""
        _, value = self._first((key,), default)
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def text(self, key: str, default: Any = _REQUIRED) -> str:
        """Text under `key`."""
        _, value = self._first((key,), default)
        if not isinstance(value, str):
            raise self.error(key, "a text")
        return value

    def words(self, key: str, allowed: Iterable[str], length: int) -> tuple[str, ...]:
        """List of `length` of the `allowed` words."""
        _, value = self._first((key,), _REQUIRED)
        choices = tuple(allowed)
        if not isinstance(value, list) or any(x not in choices for x in value):
            raise self.error(key, f"a list of {', '.join(choices)}")
        if len(value) < length:
            raise self.error(key, f"a list of at least {length} words")
        return tuple(value[:length])

    def every(self, key: str, length: int, first: int = 0) -> tuple[bool, ...]:
        """Whether each of `length` layers is selected by `key`: a list of 0 and other
        numbers, or a period, counted from layer `first` on (absent: every layer)."""
        _, value = self._first((key,), 1)
        if isinstance(value, list):
            if len(value) < length or not all(_is_whole(x) for x in value):
                raise self.error(key, f"a list of {length} whole numbers")
            return tuple(bool(x) for x in value[:length])
        if not _is_whole(value) or value < 1:
            raise self.error(key, "a whole number of at least 1, or a list")
        return tuple(i >= first and not i % value for i in range(length))

    def has(self, key: str) -> bool:
        """Whether a key is there and not null."""
        self.read_keys.add(key)
        return self.values.get(key) is not None

    def ignore(self, *keys: str):
        """Marks keys as read that change nothing here."""
        self.read_keys.update(keys)

    def part(self, key: str) -> "Config":
        """The config nested under a key."""
        _, value = self._first((key,), _REQUIRED)
        if not isinstance(value, Mapping):
            raise self.error(key, "an object")
        return Config(self.name, f"{self.where}: `{key}`", value, self)

    def stated(self, *keys: str) -> Any:
        """Value under the first of `keys` in the whole file, else in this part of it
        (a multimodal config states the head and the type of the weights outside); None
        if neither has it."""
        for config in (self.outer, self) if self.outer else (self,):
            for key in keys:
                if config.has(key):
                    return config.values[key]
        return None

    def tied(self, default: bool = False) -> bool:
        """Whether the head is the embedding's table. A multimodal config states it
        outside (an inner key may be the default of its class)."""
        for key in ("tie_word_embeddings", "tie_embedding"):
            for config in (self.outer, self):
                if config and config.has(key):
                    return config.flag(key, default)
        return default

    def check_read(self):
        """Raises `ValueError` for a key that is set, that no getter read and that is
        not harmless: it may change the layers."""
        for key, value in self.values.items():
            off = value in (None, False, 0, "", [], {})
            if not off and key not in self.read_keys and not is_harmless(key):
                raise ValueError(
                    f"{self.where}: `{key}` is {as_json(value)}, which is not known "
                    f"for `model_type` '{self.values.get('model_type')}' and may "
                    "change its layers; leave it out if it does not, or give a kernel "
                    "listing."
                )

    def divides(self, part: str, whole: str):
        """Raises `ValueError` unless the value of `part` divides that of `whole`."""
        if self.values[whole] % self.values[part]:
            raise ValueError(
                f"{self.where}: `{whole}` is {self.values[whole]}, which `{part}` "
                f"{self.values[part]} does not divide; correct the config."
            )

    def error(self, key: str, allowed: str) -> ValueError:
        """Error for the value of `key`, with what is `allowed`."""
        return ValueError(
            f"{self.where}: `{key}` is {as_json(self.values.get(key))}; allowed is "
            f"{allowed}; correct the config."
        )

    def _first(self, keys: tuple[str, ...], default: Any) -> tuple[str, Any]:
        self.read_keys.update(keys)
        for key in keys:
            if self.values.get(key) is not None:
                return key, self.values[key]
        if default is _REQUIRED:
            names = " or ".join(f"`{key}`" for key in keys)
            raise ValueError(
                f"{self.where}: {names} is missing; give the model's complete "
                "`config.json`."
            )
        return keys[0], default


def positions(config: Config) -> int:
    """Longest sequence in tokens of a model with rotary positions.

    `max_position_embeddings` (Kimi Linear: `model_max_length`), unless `rope_scaling`
    (newer: `rope_parameters`) is of a type whose `factor` extends it: `linear` and
    `dynamic` that many times the stated positions, `yarn` that many times
    `original_max_position_embeddings` (Qwen3 states 40,960 and is extended from 32,768;
    DeepSeek, gpt-oss, OLMo and Kimi state the product themselves). An original stated
    with `linear` or `dynamic` is multiplied too. In Gemma 3, and in all other types
    (`llama3`, `longrope`, `su`, `mrope`) the stated positions are the extended ones:
    Llama-3.2 has factor 32 over 8,192 and reads 131,072. So does vLLM
    (`_get_and_verify_max_len`). Of parameters by kind of layer the largest count.
    """
    stated = config.size("max_position_embeddings", "model_max_length")
    key = "rope_scaling" if config.values.get("rope_scaling") else "rope_parameters"
    scaling = config.values.get(key)
    if scaling is None or config.values.get("model_type") == "gemma3_text":
        return stated
    if not isinstance(scaling, Mapping):
        raise config.error(key, "an object")
    by_layer = [part for part in scaling.values() if isinstance(part, Mapping)]
    return max(_extended(config, key, part, stated) for part in by_layer or [scaling])


def _extended(config: Config, key: str, rope: Mapping[str, Any], stated: int) -> int:
    """Longest sequence (tokens) with the rotary scaling `rope`, the value of `key`."""
    kind = rope.get("rope_type", rope.get("type"))
    if kind not in _EXTENDING or rope.get("factor") is None:
        return stated
    inside = Config(config.name, f"{config.where}: `{key}`", rope)
    original = inside.size("original_max_position_embeddings", default=stated)
    return int(original * inside.number("factor"))


def read_config(path: Path, name: str | None = None) -> Config:
    """Config of the file `path`, or of `config.json` in the folder `path`.

    `name` defaults to the folder (of a `config.json`) or the file's stem.
    """
    file = path / "config.json" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        raise ValueError(
            f"{path} has no `config.json`; give the folder of a downloaded Hugging "
            "Face model, or the config file itself."
        )
    try:
        values = json.loads(file.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError(
            f"{file} is not UTF-8 text; give the model's `config.json`."
        ) from None
    except OSError as error:
        raise ValueError(
            f"{file} cannot be read ({error.strerror}); check path and permissions."
        ) from None
    except (ValueError, RecursionError) as error:
        line = (
            f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        )
        raise ValueError(
            f"{file}{line}: broken JSON; give the model's `config.json` as it was "
            "published."
        ) from None
    if isinstance(values, dict) and "_class_name" in values:  # of diffusers
        values = {"model_type": values["_class_name"], **values}
    if not isinstance(values, dict) or "model_type" not in values:
        raise ValueError(
            f"{file} has no `model_type`, so it is not a model config (a tokenizer or "
            "generation file?); give the model's `config.json`."
        )
    default = file.resolve().parent.name if file.name == "config.json" else file.stem
    return Config(name or default, str(file), values)


def _is_whole(value: Any) -> bool:
    whole = isinstance(value, int) or isinstance(value, float) and value.is_integer()
    return whole and not isinstance(value, bool)


def _most(key: str) -> int:
    """Largest value allowed under `key`: a hundred times that of any published model,
    so that a slip is refused before it fills the memory.

    >>> _most("num_hidden_layers"), _most("hidden_size"), _most("sliding_window")
    (10000, 10000000, 1000000000)
    """
    if re.search("layer|depth|nextn|mtp", key):
        return _LAYERS
    return _TOKENS if re.search("position|seq_len|length|window|chunk", key) else _WIDTH


# Keys that change neither shapes nor work -------------------------------------------

_WORDS: Final = """
act_fn activation_function add_cross_attention architectures attention_logit_cap
attention_value_scale attn_implementation attn_implementation_autoset
attn_logit_softcapping attn_scale attn_temperature_tuning audio_config auto_map
bad_words_ids begin_suppress_tokens block_norm_eps bos_token cache_implementation
chunk_size_feed_forward compress_rope_theta compression_config
cross_attention_hidden_size diversity_penalty do_image_splitting do_sample
downsample_factor dtype early_stopping encoder_no_repeat_ngram_size encoder_patch_size
eos_token ep_size exponential_decay_length_penalty final_logit_softcapping
finetuning_task floor_scale global_rope_theta gradient_checkpointing hc_eps
hc_sinkhorn_iters hidden_act hidden_activation hidden_size id2label ignore_index
image_seq_length indexer_rope_interleave init_method init_method_std init_std
initial_context_length input_jitter_noise is_decoder is_encoder_decoder jitter_noise
keys_to_ignore_at_inference label2id language_model_only layer_norm_eps
layer_norm_epsilon layernorm_epsilon length_penalty local_rope_theta logit_scale
logits_scaling logits_to_keep mamba_dt_rank mamba_hidden_act max_image_tokens max_length
max_model_len max_pixels_tolerance max_position_embeddings max_seq_len
max_sequence_length max_thumbnail_size max_tiles max_window_layers media_placeholder
min_image_tokens min_length min_tiles mlp_hidden_act mm_tokens_per_image
model_max_length model_name model_type moe_capacity moe_drop_tokens moe_norm_min
moe_renormalize moe_router_activation_func moe_router_bias_update_rate moe_router_dtype
moe_router_score_function moe_shared_expert_overlap moe_use_aux_free
multi_token_pred_lambda multimodal_projector_bias n_group n_positions name_or_path
no_repeat_ngram_size no_rope_layer_interval nope_layer_interval norm_eps norm_epsilon
norm_topk_prob normalization_function num_beam_groups num_beams num_expert_group
num_hidden_layers num_labels num_logits_to_keep num_mtp_layers num_mtp_modules
num_nextn_predict_layer num_nextn_predict_layers num_return_sequences org_vocab_size
original_max_position_embeddings original_vocab_size output_attentions
output_hidden_states output_router_logits output_scores partial_rotary_factor
position_embedding_type pad_id prefix pretraining_tp problem_type projector_bias
projector_hidden_act projector_hidden_size projector_use_layernorm pruned_heads
quantization_config query_pre_attn_scalar remove_invalid_values reorder_and_upcast_attn
repetition_penalty rescale_prenorm_residual residual_in_fp32 return_dict
return_dict_in_generate rms_norm_eps rotary_dim rotary_emb_base rotary_pct
rotary_percent route_scale routed_scaling_factor router_jitter_noise router_score_func
scale_embedding score_func score_function scoring_func seq_aux seq_length
spatial_merge_size suppress_tokens swa_rope_theta swiglu_alpha swiglu_limit
task_specific_params temperature text_config tf_legacy_loss tie_embedding
tie_word_embeddings tile_size tokenizer_class tokens_per_second top_k top_p topk_group
topk_method torch_dtype torchscript tp_size train_max_seq_length training_seq_len
transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16
use_bidirectional_attention use_cache use_flash_attn use_gemma_norm use_grouped_topk
use_image_special_tokens use_kernels use_mamba_kernels use_mtp use_mup use_pos_enc
use_rope use_router_bias use_routing_bias use_sliding_window use_thumbnail
use_unified_vision_chunk video_config video_placeholder vision_config
vision_feature_layer vision_feature_select_strategy vision_soft_tokens_per_image
vit_config vocab_size
"""
_HARMLESS: Final = frozenset(_WORDS.split())
_PATTERN: Final = re.compile(
    r".*_token_(id|ids|index)|.*dropout.*|.*_pdrop|router_.*(loss|coef).*|"
    r".*_loss_coef|.*aux_loss.*|.*_loss_alpha|(boi|eoi|boa|eoa)_.*|rope_.*|mrope_.*|"
    r"use_mrope|.*_use_xavier_init|pooler_.*|summary_.*|layernorm_.*_(alpha|beta)|"
    r".*initializer.*|generation_.*|.*_init_.*|time_step_.*|_.*|mtp_.*|.*_multipliers?|mup_.*"
)


def is_harmless(key: str) -> bool:
    """Whether a key changes neither shapes nor work.

    >>> is_harmless("pad_token_id"), is_harmless("moe_latent_size")
    (True, False)
    """
    return key in _HARMLESS or bool(_PATTERN.fullmatch(key))
