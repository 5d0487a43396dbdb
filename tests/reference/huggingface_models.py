"""Small random models of Hugging Face transformers, one of each kind we read, made without any download."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.files.tensors import load_tensors
from clearhead.interop.huggingface.state import import_state
from clearhead.model import Transformer

__all__ = ["KINDS", "Kind", "as_ours", "random_state"]

SHAPE = {
    "vocab_size": 37,
    "d_model": 26,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 13,
    "decoder_attention_heads": 13,
    "encoder_ffn_dim": 19,
    "decoder_ffn_dim": 19,
    "max_position_embeddings": 53,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}
BERT_SHAPE = {
    "vocab_size": 37,
    "hidden_size": 26,
    "num_hidden_layers": 3,
    "num_attention_heads": 13,
    "intermediate_size": 19,
    "max_position_embeddings": 53,
    "layer_norm_eps": 1e-3,  # large enough to show
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
# Neither in our order nor the smallest ids, so that one taken for another shows.
SPECIAL = {"pad_token_id": 5, "decoder_start_token_id": 3, "bos_token_id": 3, "eos_token_id": 7}
BERT_SPECIAL = {"pad_token_id": 5, "bos_token_id": 3, "eos_token_id": 7}
# As in published models, where one id does two things: opus-mt starts with its padding, BART and NLLB with their end.
STARTS_WITH_PADDING = {"pad_token_id": 36, "decoder_start_token_id": 36, "bos_token_id": 0, "eos_token_id": 0}
STARTS_WITH_END = {"pad_token_id": 1, "decoder_start_token_id": 2, "bos_token_id": 0, "eos_token_id": 2}
PEGASUS_SPECIAL = {"pad_token_id": 0, "decoder_start_token_id": 0, "bos_token_id": None, "eos_token_id": 1}
T5_SHAPE = {
    "vocab_size": 37,
    "d_model": 26,
    "d_kv": 3,
    "d_ff": 19,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 5,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 6,  # less than the longest sentences of the tests
    "dropout_rate": 0.0,
    "layer_norm_epsilon": 1e-3,  # large enough to show
    "decoder_start_token_id": 3,
    "pad_token_id": 5,
    "eos_token_id": 7,
}
GPT2_SPECIAL = {"pad_token_id": None, "bos_token_id": 36, "eos_token_id": 36}

SHARED = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
T5_SHARED = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
SINUSOIDS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


@dataclass(frozen=True)
class Kind:
    """One kind of model: how to make it, and which of its tensors are copies or computed."""

    model_type: str
    make: Callable[..., nn.Module]
    not_written: tuple[str, ...]
    """Tensors of its state that another one holds, that are computed, or that stand above our model."""
    activation: str


def marian(**settings: Any) -> nn.Module:
    settings = {"activation_function": "swish", "scale_embedding": True, **SHAPE, **SPECIAL, **settings}
    return transformers.MarianMTModel(transformers.MarianConfig(**settings, attn_implementation="eager"))


def pegasus(**settings: Any) -> nn.Module:
    settings = {"activation_function": "relu", "scale_embedding": True, **SHAPE, **SPECIAL, **settings}
    return transformers.PegasusForConditionalGeneration(
        transformers.PegasusConfig(**settings, attn_implementation="eager")
    )


def bart(**settings: Any) -> nn.Module:
    settings = {"activation_function": "gelu", **SHAPE, **SPECIAL, **settings}
    return transformers.BartForConditionalGeneration(transformers.BartConfig(**settings, attn_implementation="eager"))


def mbart(**settings: Any) -> nn.Module:
    settings = {"activation_function": "gelu", "scale_embedding": True, **SHAPE, **SPECIAL, **settings}
    return transformers.MBartForConditionalGeneration(transformers.MBartConfig(**settings, attn_implementation="eager"))


def m2m100(**settings: Any) -> nn.Module:
    settings = {"activation_function": "relu", **SHAPE, **SPECIAL, **settings}
    return transformers.M2M100ForConditionalGeneration(
        transformers.M2M100Config(**settings, attn_implementation="eager")
    )


def bert(**settings: Any) -> nn.Module:
    settings = {**BERT_SHAPE, **BERT_SPECIAL, **settings}
    return transformers.BertModel(transformers.BertConfig(**settings, attn_implementation="eager"))


def bert_generation(**settings: Any) -> nn.Module:
    settings = {**BERT_SHAPE, **BERT_SPECIAL, "attn_implementation": "eager", **settings}
    encoder = transformers.BertGenerationConfig(**{**settings, "vocab_size": 41})
    changed = {"vocab_size": 37, "num_hidden_layers": 2, "is_decoder": True, "add_cross_attention": True}
    decoder = transformers.BertGenerationConfig(**{**settings, **changed})
    model = transformers.EncoderDecoderModel(
        encoder=transformers.BertGenerationEncoder(encoder), decoder=transformers.BertGenerationDecoder(decoder)
    )
    model.config.decoder_start_token_id, model.config.pad_token_id = 3, 5
    return model


def bert2bert(encoder_class: type = transformers.BertModel, **settings: Any) -> nn.Module:
    settings = {**BERT_SHAPE, **BERT_SPECIAL, "attn_implementation": "eager", **settings}
    encoder = encoder_class.config_class(**{**settings, "vocab_size": 41})
    changed = {"vocab_size": 37, "num_hidden_layers": 2, "is_decoder": True, "add_cross_attention": True}
    model = transformers.EncoderDecoderModel(
        encoder=encoder_class(encoder),
        decoder=transformers.BertLMHeadModel(transformers.BertConfig(**{**settings, **changed})),
    )
    model.config.decoder_start_token_id, model.config.pad_token_id, model.config.eos_token_id = 3, 5, 7
    return model


def gpt2(**settings: Any) -> nn.Module:
    shape = {"vocab_size": 37, "n_embd": 26, "n_layer": 3, "n_head": 13, "n_inner": 19, "n_positions": 31}
    rates = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    shape["layer_norm_epsilon"] = 1e-3  # large enough to show
    config = transformers.GPT2Config(**{**shape, **rates, **BERT_SPECIAL, **settings}, attn_implementation="eager")
    return transformers.GPT2LMHeadModel(config)


def t5(**settings: Any) -> nn.Module:
    config = transformers.T5Config(**{**T5_SHAPE, **settings}, attn_implementation="eager")
    return transformers.T5ForConditionalGeneration(config)


def t5_untied(**settings: Any) -> nn.Module:
    """T5 1.1 and Flan-T5; their library ties what it makes, and unties what it reads, if a file has both matrices."""
    model = t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False, **settings)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def mt5() -> nn.Module:
    model = transformers.MT5ForConditionalGeneration(transformers.MT5Config(**T5_SHAPE, attn_implementation="eager"))
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    return model


KINDS = {
    "marian": Kind("marian", marian, (*SHARED, *SINUSOIDS), "silu"),
    "marian with two vocabularies": Kind(
        "marian",
        lambda: marian(share_encoder_decoder_embeddings=False, vocab_size=41, decoder_vocab_size=37),
        ("lm_head.weight", *SINUSOIDS),
        "silu",
    ),
    "marian with nothing tied": Kind(
        "marian",
        lambda: marian(share_encoder_decoder_embeddings=False, tie_word_embeddings=False, scale_embedding=False),
        SINUSOIDS,
        "silu",
    ),
    "marian that starts with padding": Kind(
        "marian", lambda: marian(**STARTS_WITH_PADDING), (*SHARED, *SINUSOIDS), "silu"
    ),
    "pegasus": Kind("pegasus", pegasus, (*SHARED, *SINUSOIDS), "relu"),
    "pegasus that starts with padding": Kind(
        "pegasus", lambda: pegasus(**PEGASUS_SPECIAL), (*SHARED, *SINUSOIDS), "relu"
    ),
    "bart": Kind("bart", bart, SHARED, "gelu"),
    "bart that starts with its end": Kind("bart", lambda: bart(**STARTS_WITH_END), SHARED, "gelu"),
    "mbart": Kind("mbart", mbart, SHARED, "gelu"),
    "m2m100": Kind("m2m_100", m2m100, SHARED, "relu"),
    "m2m100 that starts with its end": Kind("m2m_100", lambda: m2m100(**STARTS_WITH_END), SHARED, "relu"),
    "bert": Kind("bert", bert, ("pooler.dense.weight", "pooler.dense.bias"), "gelu"),
    "bert-generation": Kind(
        "encoder-decoder",
        bert_generation,
        ("decoder.lm_head.decoder.weight", "decoder.lm_head.decoder.bias"),
        "gelu",
    ),
    "bert2bert": Kind(
        "encoder-decoder",
        bert2bert,
        (
            "decoder.cls.predictions.decoder.weight",
            "decoder.cls.predictions.decoder.bias",
            "encoder.pooler.dense.weight",
            "encoder.pooler.dense.bias",
        ),
        "gelu",
    ),
    "bert-generation beside a bert": Kind(
        "encoder-decoder",
        lambda: bert2bert(transformers.BertGenerationEncoder),
        ("decoder.cls.predictions.decoder.weight", "decoder.cls.predictions.decoder.bias"),
        "gelu",
    ),
    "gpt2": Kind("gpt2", gpt2, ("lm_head.weight",), "gelu_tanh"),
    "gpt2 that starts with its end": Kind("gpt2", lambda: gpt2(**GPT2_SPECIAL), ("lm_head.weight",), "gelu_tanh"),
    "t5": Kind("t5", t5, (*T5_SHARED, "lm_head.weight"), "relu"),
    "t5 that starts with padding": Kind(
        "t5",
        lambda: t5(pad_token_id=0, decoder_start_token_id=0, eos_token_id=1, num_decoder_layers=None),
        (*T5_SHARED, "lm_head.weight"),
        "relu",
    ),
    "t5 1.1": Kind("t5", t5_untied, T5_SHARED, "gelu_tanh"),
    "t5 with a gated silu": Kind(
        "t5", lambda: t5(feed_forward_proj="gated-silu"), (*T5_SHARED, "lm_head.weight"), "silu"
    ),
    "mt5": Kind("mt5", mt5, T5_SHARED, "gelu_tanh"),
}
"""Name of a test case to the kind of model."""


def random_state(model: nn.Module) -> nn.Module:
    """Draw every weight, also biases and norms that start at 0 and 1, so that one copied to the wrong place shows."""
    with torch.no_grad():
        for module in model.modules():
            for name, weight in module.named_parameters(recurse=False):
                if isinstance(module, nn.Embedding):
                    if weight.requires_grad:  # sinusoids stay
                        weight.normal_(std=weight.size(1) ** -0.5)
                elif weight.dim() == 2:
                    weight.normal_(std=math.sqrt(2 / sum(weight.shape)))
                else:
                    is_gain = type(module).__name__.endswith("LayerNorm") and name == "weight"
                    weight.normal_(mean=float(is_gain), std=0.3)
            if type(module).__name__.endswith("BartLearnedPositionalEmbedding"):
                module.weight[:2] = 0.0  # never read, and so not kept
            if hasattr(module, "final_logits_bias"):
                module.final_logits_bias.normal_(std=0.3)
        if model.config.model_type in ("t5", "mt5"):
            model.shared.weight.normal_()  # which is not multiplied by sqrt(d_model)
    return model.eval()


def as_ours(model_type: str, theirs: nn.Module) -> Transformer:
    """Return our model with the settings and weights of theirs, through the key table."""
    config, tensors = import_state(model_type, theirs.config.to_dict(), theirs.state_dict())
    ours = Transformer(config)
    load_tensors(ours, tensors, origin=model_type)
    return ours.eval()


def logits(theirs: nn.Module, config: ModelConfig, source: Tensor, target: Tensor, segments: Tensor) -> Tensor:
    """Run their model on the same batch; a decoder alone reads the target, an encoder alone gives its states."""
    output = their_output(theirs, config, source, target, segments)
    return output.last_hidden_state if config.num_decoder_layers == 0 else output.logits


def their_output(
    theirs: nn.Module, config: ModelConfig, source: Tensor, target: Tensor, segments: Tensor, **settings: Any
) -> Any:
    """Run their model on the same batch, and return all that it gives."""
    seen = source != config.pad_id
    if config.num_decoder_layers == 0:
        return theirs(input_ids=source, attention_mask=seen.long(), token_type_ids=segments, **settings)
    if config.num_encoder_layers == 0:
        return theirs(input_ids=target, **settings)
    return theirs(input_ids=source, attention_mask=seen.long(), decoder_input_ids=target, **settings)


def our_logits(ours: Transformer, source: Tensor, target: Tensor, segments: Tensor) -> Tensor:
    """Run our model on the same batch."""
    if ours.config.num_decoder_layers == 0:
        return ours.encode(source, segments)[0]
    return ours(None if ours.config.num_encoder_layers == 0 else source, target)
