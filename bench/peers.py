"""The candidates: how each library makes a model of a given shape, and computes its loss."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from candidate import SMOOTHING, Candidate, Precision, clearhead, peer
from clearhead.config import ModelConfig
from clearhead.model.positions import sinusoidal_positions

__all__ = ["COMPILED", "LIBRARIES", "Library", "Missing", "build", "require"]

COMPILED = "torch.nn-compiled"
MAX_LENGTH = 512


class Missing(Exception):
    """A library that is not installed, or does not start; the text says how to install it."""


class PlainTransformer(nn.Module):
    """`torch.nn.Transformer` as most people use it: with embeddings, positions and a tied output projection."""

    positions: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pad_id = config.pad_id
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, padding_idx=config.pad_id)
        self.register_buffer("positions", sinusoidal_positions(MAX_LENGTH, config.d_model), persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.num_encoder_layers,
            config.num_decoder_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
            norm_first=config.norm == "pre",
        )
        for module in self.layers.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = config.attention_dropout
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Dropout(config.feed_forward_dropout)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits [B, T, V]."""
        is_padding = source == self.pad_id
        # Causal attention never reaches the padding at the end of a target, so that needs no mask.
        future = torch.ones(target.size(1), target.size(1), dtype=torch.bool, device=target.device).triu(1)
        states = self.layers(
            self._embed(source),
            self._embed(target),
            tgt_mask=future,
            tgt_is_causal=True,
            src_key_padding_mask=is_padding,
            memory_key_padding_mask=is_padding,
        )
        return nn.functional.linear(states, self.embedding.weight)

    def _embed(self, ids: Tensor) -> Tensor:
        scaled = self.embedding(ids) * self.embedding.embedding_dim**0.5
        return self.dropout(scaled + self.positions[: ids.size(1)])


def _torch_nn(
    config: ModelConfig, device: torch.device, precision: Precision, *, is_compiled: bool = False
) -> Candidate:
    model = PlainTransformer(config)
    criterion = nn.CrossEntropyLoss(ignore_index=config.pad_id, label_smoothing=SMOOTHING, reduction="sum")

    def loss(source: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
        return criterion(model(source, target_in).flatten(0, 1), target_out.flatten())

    name, differences = "torch.nn", {"biases of attention": _attention_biases(config)}
    if is_compiled:
        # Every batch has sizes of its own; without `dynamic` each would be compiled anew.
        name, loss = COMPILED, torch.compile(loss, dynamic=True)
    return peer(name, model, loss, config, device, precision, differences)


def _marian(config: ModelConfig, device: torch.device, precision: Precision) -> Candidate:
    from transformers import MarianConfig, MarianMTModel

    model = MarianMTModel(
        MarianConfig(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            encoder_layers=config.num_encoder_layers,
            decoder_layers=config.num_decoder_layers,
            encoder_attention_heads=config.num_heads,
            decoder_attention_heads=config.num_heads,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation_dropout=config.feed_forward_dropout,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=MAX_LENGTH,
            pad_token_id=config.pad_id,
            bos_token_id=config.bos_id,
            eos_token_id=config.eos_id,
            decoder_start_token_id=config.bos_id,
            forced_eos_token_id=None,
        )
    )
    criterion = nn.CrossEntropyLoss(ignore_index=config.pad_id, label_smoothing=SMOOTHING, reduction="sum")

    def loss(source: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
        mask = (source != config.pad_id).long()
        logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=target_in, use_cache=False).logits
        return criterion(logits.flatten(0, 1), target_out.flatten())

    differences = {
        "biases of attention": _attention_biases(config),
        "post-norm, so no norm after the last layers": -4 * config.d_model,
    }
    return peer("marian", model, loss, config, device, precision, differences)


def _opennmt(config: ModelConfig, device: torch.device, precision: Precision) -> Candidate:
    from onmt.decoders.transformer import TransformerDecoder
    from onmt.encoders.transformer import TransformerEncoder
    from onmt.models import NMTModel
    from onmt.modules import Embeddings
    from onmt.utils.loss import LossCompute

    source_embedding, target_embedding = (
        Embeddings(config.d_model, config.vocab_size, config.pad_id, position_encoding=True, dropout=config.dropout)
        for _ in range(2)
    )
    target_embedding.word_lut.weight = source_embedding.word_lut.weight
    shape: dict[str, Any] = {
        "d_model": config.d_model,
        "heads": config.num_heads,
        "d_ff": config.d_ff,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "max_relative_positions": 0,
        "relative_positions_buckets": 0,
    }
    encoder = TransformerEncoder(config.num_encoder_layers, embeddings=source_embedding, **shape)
    decoder = TransformerDecoder(
        config.num_decoder_layers,
        embeddings=target_embedding,
        copy_attn=False,
        self_attn_type="scaled-dot-flash",
        aan_useffn=False,
        full_context_alignment=False,
        alignment_layer=None,
        alignment_heads=0,
        **shape,
    )
    model = NMTModel(encoder, decoder)
    model.generator = nn.Linear(config.d_model, config.vocab_size)
    model.generator.weight = target_embedding.word_lut.weight
    criterion = nn.CrossEntropyLoss(ignore_index=config.pad_id, label_smoothing=SMOOTHING, reduction="sum")
    compute = LossCompute(criterion, model.generator)

    def loss(source: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
        lengths = (source != config.pad_id).sum(dim=1)
        target = torch.cat([target_in[:, :1], target_out], dim=1)[:, :, None]  # it cuts off the last and first itself
        states, attention = model(source[:, :, None], target, lengths)
        return compute({"tgt": target, "srclen": lengths}, states, attention)[0]

    _set_inner_dropout(model, config.feed_forward_dropout)
    return peer("opennmt", model, loss, config, device, precision, {"biases of the output": config.vocab_size})


class _Pieces:
    """As much of a vocabulary as eole asks for: how many pieces, and which one pads."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    def __len__(self) -> int:
        return self.config.vocab_size

    def __getitem__(self, piece: str) -> int:
        return {"<blank>": self.config.pad_id}[piece]


def _eole(config: ModelConfig, device: torch.device, precision: Precision) -> Candidate:
    from eole.config.models import TransformerModelConfig
    from eole.config.training import TrainingConfig
    from eole.models.model import EncoderDecoderModel
    from eole.utils.loss import LossCompute

    settings = TrainingConfig(dropout=[config.dropout], attention_dropout=[config.attention_dropout], gpu_ranks=[])
    shape = TransformerModelConfig(
        heads=config.num_heads,
        hidden_size=config.d_model,
        transformer_ff=config.d_ff,
        encoder={"encoder_type": "transformer", "layers": config.num_encoder_layers},
        decoder={"decoder_type": "transformer", "layers": config.num_decoder_layers},
        embeddings={"word_vec_size": config.d_model, "position_encoding_type": "SinusoidalInterleaved"},
        add_ffnbias=True,
        generator_bias=False,
        share_embeddings=True,
        share_decoder_embeddings=True,
    )
    pieces = _Pieces(config)
    vocabularies = {"src": pieces, "tgt": pieces, "specials": {"pad_token": "<blank>"}}
    model = EncoderDecoderModel.build(shape, vocabularies, settings)
    criterion = nn.CrossEntropyLoss(ignore_index=config.pad_id, label_smoothing=SMOOTHING, reduction="sum")
    compute = LossCompute(criterion, model.generator, vocabs=vocabularies)

    def loss(source: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
        lengths = (source != config.pad_id).sum(dim=1)
        target = torch.cat([target_in[:, :1], target_out], dim=1)  # it cuts off the last and the first token itself
        states, attention, _ = model(source, target, lengths)
        batch = {"tgt": target, "srclen": lengths, "cid": [], "cid_line_number": []}
        return compute(batch, states, attention)[0]

    _set_inner_dropout(model, config.feed_forward_dropout)
    return peer("eole", model, loss, config, device, precision, {})


def _attention_biases(config: ModelConfig) -> int:
    attentions = config.num_encoder_layers + 2 * config.num_decoder_layers
    return attentions * 4 * config.d_model


def _set_inner_dropout(model: nn.Module, rate: float) -> None:
    # OpenNMT-py and eole have one rate for the feed-forward network's inside and its output.
    for module in model.modules():
        if isinstance(inner := getattr(module, "dropout_1", None), nn.Dropout):
            inner.p = rate


@dataclass(frozen=True)
class Library:
    """Where a candidate comes from."""

    module: str
    """What is imported."""
    install: str
    """How to get it."""
    make: Callable[[ModelConfig, torch.device, Precision], Candidate]


LIBRARIES: Mapping[str, Library] = {
    "clearhead": Library("clearhead", "make setup", clearhead),
    "torch.nn": Library("torch", "make setup", _torch_nn),
    COMPILED: Library("torch", "make setup", partial(_torch_nn, is_compiled=True)),
    "marian": Library("transformers", ".venv/bin/pip install -c constraints.txt transformers", _marian),
    "opennmt": Library(
        "onmt",
        ".venv/bin/pip install -c constraints.txt configargparse ctranslate2 tensorboard flask waitress pyonmttok "
        "rapidfuzz pyahocorasick fasttext-wheel spacy six && .venv/bin/pip install --no-deps OpenNMT-py==3.5.1",
        _opennmt,
    ),
    "eole": Library("eole", ".venv/bin/pip install -c constraints.txt eole==0.6.4 aiohttp", _eole),
}
"""Name to library. OpenNMT-py asks for a torch older than 2.3, but trains with newer ones, hence `--no-deps`."""


def require(name: str) -> None:
    """Look for a library without importing it.

    Raises:
        Missing: If it is not installed.
    """
    library = LIBRARIES[name]
    if find_spec(library.module) is None:
        raise Missing(f"{name} is not installed; to have it: {library.install}")


def build(name: str, config: ModelConfig, device: torch.device, precision: Precision) -> Candidate:
    """Return a candidate in training mode.

    Raises:
        Missing: If its library cannot be imported.
    """
    require(name)
    library = LIBRARIES[name]
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the libraries miss or find deprecated
        try:
            return library.make(config, device, precision)
        except ImportError as error:
            raise Missing(f"{name} does not start ({error}); to have it: {library.install}") from error
