"""Keys of a config that change neither shapes nor work."""

import re
from typing import Final

_WORDS: Final = """
act_fn activation_function add_cross_attention architectures attention_in_multiplier
attention_logit_cap attention_multiplier attention_out_multiplier attention_value_scale
_attn_implementation attn_implementation attn_implementation_autoset
attn_logit_softcapping attn_scale attn_temperature_tuning audio_config auto_map
aux_loss_alpha bad_words_ids begin_suppress_tokens block_norm_eps bos_token
cache_implementation chunk_size_feed_forward compress_rope_theta compression_config
cross_attention_hidden_size decoder_start_token_id diversity_penalty do_image_splitting
do_sample downsample_factor dtype early_stopping embedding_multiplier
encoder_no_repeat_ngram_size encoder_patch_size eos_token ep_size
exponential_decay_length_penalty final_logit_softcapping finetuning_task floor_scale
forced_bos_token_id forced_eos_token_id generation_config global_rope_theta
gradient_checkpointing hc_eps hc_sinkhorn_iters hidden_act hidden_activation hidden_size
id2label ignore_index image_seq_length indexer_rope_interleave init_method
init_method_std init_std initial_context_length initializer_range input_jitter_noise
is_decoder is_encoder_decoder jitter_noise key_multiplier keys_to_ignore_at_inference
label2id language_model_only layer_norm_eps layer_norm_epsilon layernorm_epsilon
layernorm_full_attention_alpha length_penalty lm_head_multiplier local_rope_theta
logit_scale logits_scaling logits_to_keep mamba_dt_rank mamba_hidden_act
max_image_tokens max_length max_model_len max_pixels_tolerance max_position_embeddings
max_seq_len max_sequence_length max_thumbnail_size max_tiles max_window_layers
media_placeholder min_image_tokens min_length min_tiles mlp_hidden_act mlp_multipliers
mm_tokens_per_image model_max_length model_name model_type moe_capacity moe_drop_tokens
moe_norm_min moe_renormalize moe_router_activation_func moe_router_bias_update_rate
moe_router_dtype moe_router_score_function moe_shared_expert_overlap moe_use_aux_free
mtp_block_type mtp_hybrid_override_pattern mtp_layers_block_type mtp_loss_scaling_factor
mtp_num_hidden_layers mtp_transformer_layers mtp_use_dedicated_embeddings
multi_token_pred_lambda multimodal_projector_bias mup_enabled n_group n_positions
_name_or_path name_or_path no_repeat_ngram_size no_rope_layer_interval
nope_layer_interval norm_eps norm_epsilon norm_topk_prob normalization_function
num_beam_groups num_beams num_expert_group num_hidden_layers num_labels
num_logits_to_keep num_mtp_layers num_mtp_modules num_nextn_predict_layer
num_nextn_predict_layers num_return_sequences org_vocab_size
original_max_position_embeddings original_vocab_size output_attentions
output_hidden_states output_router_logits output_scores partial_rotary_factor
position_embedding_type pad_id prefix pretraining_tp problem_type projector_bias
projector_hidden_act projector_hidden_size projector_use_layernorm pruned_heads
quantization_config query_pre_attn_scalar remove_invalid_values reorder_and_upcast_attn
repetition_penalty rescale_prenorm_residual residual_in_fp32 residual_multiplier
return_dict return_dict_in_generate rms_norm_eps rope_head_dim rope_interleave
rope_layers rope_local_base_freq rope_parameters rope_pct rope_percent rope_ratio
rope_scaling rope_theta rope_type rotary_dim rotary_emb_base rotary_pct rotary_percent
route_scale routed_scaling_factor router_jitter_noise router_score_func scale_embedding
score_func score_function scoring_func sep_token_id seq_aux seq_length
spatial_merge_size ssm_in_multiplier ssm_multipliers ssm_out_multiplier suppress_tokens
swa_rope_theta swiglu_alpha swiglu_limit task_specific_params temperature text_config
tf_legacy_loss tie_embedding tie_word_embeddings tile_size time_step_floor
time_step_limit time_step_max time_step_min time_step_rank tokenizer_class
tokens_per_second top_k top_p topk_group topk_method torch_dtype torchscript tp_size
train_max_seq_length training_seq_len transformers_version typical_p unsloth_fixed
unsloth_version use_bfloat16 use_bidirectional_attention use_cache use_flash_attn
use_gemma_norm use_grouped_topk use_image_special_tokens use_kernels use_mamba_kernels
use_mtp use_mup use_pos_enc use_rope use_router_bias use_routing_bias use_sliding_window
use_thumbnail use_unified_vision_chunk video_config video_placeholder vision_config
vision_feature_layer vision_feature_select_strategy vision_soft_tokens_per_image
vit_config vocab_size z_loss_coef
"""
_HARMLESS: Final = frozenset(_WORDS.split())
_PATTERN: Final = re.compile(
    r".*_token_(id|ids|index)|.*dropout.*|.*_pdrop|router_.*(loss|coef).*|"
    r".*_loss_coef|.*aux_loss.*|.*_loss_alpha|(boi|eoi|boa|eoa)_.*|rope_.*|mrope_.*|"
    r"use_mrope|.*_use_xavier_init|pooler_.*|summary_.*|layernorm_.*_(alpha|beta)|"
    r".*initializer.*|generation_.*|.*_init_.*|time_step_.*|_.*|mtp_.*|.*_multiplier|.*_multipliers|mup_.*"
)


def is_harmless(key: str) -> bool:
    """Whether a key says nothing of shapes or work.

    >>> is_harmless("pad_token_id"), is_harmless("moe_latent_size")
    (True, False)
    """
    return key in _HARMLESS or bool(_PATTERN.fullmatch(key))
