"""What other toolkits (fairseq, Marian, OpenNMT, Hugging Face) call a setting, and what it is called here.

For messages alone: a key has one name.
"""

from collections.abc import Mapping
from typing import Final

USUAL_NAMES: Final[Mapping[str, str]] = {
    name: key
    for key, names in {
        "train.learning_rate": "lr learn_rate",
        "train.max_tokens": "batch_size batch_tokens mini_batch mini_batch_words per_device_train_batch_size",
        "train.max_updates": "steps max_steps train_steps num_train_steps max_update updates after_batches",
        "train.max_epochs": "epochs num_train_epochs max_epoch after_epochs",
        "train.warmup_updates": "warmup_steps lr_warmup warmup",
        "train.accumulate": "update_freq gradient_accumulation_steps optimizer_delay accum_count",
        "train.validate_every": "eval_steps eval_every valid_freq save_freq save_every save_interval",
        "train.patience": "early_stopping early_stopping_patience",
        "train.precision": "fp16 bf16 amp mixed_precision dtype",
        "train.clip_norm": "clip clip_grad max_grad_norm gradient_clipping",
        "train.adam_betas": "betas optimizer_params",
        "train.average": "average_checkpoints",
        "model.dimension": "d_model hidden_size hidden_dim dim dim_emb embed_dim model_dim",
        "model.feed_forward": "ffn ffn_dim d_ff dim_ffn ffn_embed_dim",
        "model.heads": "num_heads attention_heads transformer_heads n_heads",
        "model.encoder_layers": "enc_depth enc_layers num_encoder_layers",
        "model.decoder_layers": "dec_depth dec_layers num_decoder_layers",
        "model.pre_norm": "normalize_before",
        "loss.label_smoothing": "smoothing label_smoothing_factor",
        "decode.beam": "beam_size num_beams beams",
        "decode.length_penalty": "lenpen normalize",
        "decode.nbest": "n_best num_return_sequences",
        "view.max_tokens": "max_len max_seq_length max_seq_len max_source_positions",
        "view.before": "context_size context_sentences num_context",
    }.items()
    for name in names.split()
}
