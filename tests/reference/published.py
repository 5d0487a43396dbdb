"""Directories of translation models as Hugging Face transformers publishes them: small ones, made without any download.

Every tokenizer is trained here by its own library. The models are random but for the decoder's last layer, which is
made so that translations end by themselves and differ from source to source: see `chain`.
"""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from torch import nn
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART50_CODES
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB_CODES

from clearhead.data.demo_corpus import generate
from clearhead.text.languages import LOCALES
from commands import run
from sentencepiece_models import pieces_of, sentencepiece_model

NUM_TOKENS = 24  # so many pieces of text follow each other; the tests search up to 40 tokens
SHARPNESS = 2.0  # length of an embedding: some pieces are far likelier than others
D_MODEL = 64  # which the compiled core runs with 4 heads
BERT = {
    "hidden_size": D_MODEL,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 2 * D_MODEL,
    "max_position_embeddings": 256,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
SHAPE = {
    "d_model": D_MODEL,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 2 * D_MODEL,
    "decoder_ffn_dim": 2 * D_MODEL,
    "max_position_embeddings": 256,
    "init_std": 0.1,
    **DROPOUT,
}

Language = str | None


@dataclass(frozen=True)
class Published:
    """One directory."""

    directory: Path
    source_lang: Language = None
    """What our import is told; their tokenizer has it as `src_lang`."""
    target_langs: tuple[Language, ...] = (None,)
    """Languages that it writes, by the names that we give them; the first is what import is told."""
    token: str = ""
    """The token of a language, such as `__{}__`; empty if there are none."""
    heads_source: bool = False
    """Whether that token heads the source, and not the translation."""
    reads: tuple[str, str] = ("en", "de")
    """The locales that its tokenizer was trained on first, to read and to write."""
    is_converted: bool = False
    """Whether their library does not use the sentencepiece model, but makes a tokenizer of its own of it."""


@cache
def pairs(source: str, target: str, number: int = 40) -> list[tuple[str, str]]:
    """Return pairs of short texts of two locales."""
    drawn = generate(900, seed=7, num_test=0, locales=(source, target)).train
    chosen = [pair for pair in drawn if pair.origin.endswith(f":{source}-{target}") and len(pair.target) < 24]
    return [(pair.source.partition("> ")[2], pair.target) for pair in chosen][:number]


@cache
def texts() -> list[str]:
    """Return texts of all locales, Japanese among them."""
    return [pair.target for pair in generate(2_500, seed=3, num_test=0, locales=LOCALES).train]


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write one of their files."""
    path.write_text(json.dumps(values, ensure_ascii=False, indent=2), encoding="utf-8")


@torch.no_grad()
def chain(model: Any, targets: list[list[int]], *, starts_twice: bool = False) -> Any:
    """Set weights of a model of theirs such that pieces of text follow each other in a row, behind which outputs end.

    Embeddings of the pieces are orthogonal. The last feed-forward network of the decoder is a linear map,
    f(x) - f(-x) = x of each activation f, from every piece to the next, and from every third nearly as much to the end;
    a gated network holds it as a table. The source, as cross-attention is strong, decides between the two. So outputs
    end, and differ, however a processor rounds.

    Args:
        model: Randomly initialized, its decoder's feed-forward networks twice as wide as the model.
        targets: Labels; the first ids of text among them are the row, and whatever begins many leads into it.
        starts_twice: Whether the start token follows itself at the first position; needs BERT's learned positions.
    """
    two_parts = isinstance(model, transformers.EncoderDecoderModel)
    decoder = model.decoder if two_parts else model
    start, end, pad = (getattr(model.config, f"{name}_token_id") for name in ("decoder_start", "eos", "pad"))
    begins = [token for token, _ in Counter(target[0] for target in targets).most_common(4)]
    special = {start, end, pad, *begins, *(target[-1] for target in targets)}
    text = dict.fromkeys(token for target in targets for token in target if token not in special)
    order = list(text)[:NUM_TOKENS]
    given = decoder.get_input_embeddings() if two_parts else model.get_decoder().get_input_embeddings()
    tokens = 0.25 * nn.functional.normalize(torch.randn_like(given.weight))  # so that none but the row's is likely
    used = list(dict.fromkeys([start, end, *begins, *order]))
    unit = torch.linalg.qr(torch.randn(D_MODEL, len(used) + 1))[0].T
    tokens[used], place = unit[:-1], unit[-1]
    before, after = [*used[: -len(order)], *order], [order[0]] * len(used[: -len(order)]) + [*order[1:], end]
    following = tokens[after].T @ tokens[before]
    following += 0.96 * torch.outer(tokens[end], tokens[order[2:-1:3]].sum(dim=0))
    if starts_twice:
        following += 1.5 * torch.outer(tokens[start], place)
        decoder.bert.embeddings.position_embeddings.weight[0] = SHARPNESS * place
    weights = {name: weight for name, weight in model.named_parameters() if "decoder" in name and "embed" not in name}
    for name, weight in weights.items():
        if weight.dim() == 1:
            weight.add_(0.02 * torch.randn_like(weight))  # one that is forgotten shows
        elif name.endswith("transform.dense.weight"):
            weight.copy_(torch.eye(D_MODEL))
        elif any(part in name for part in ("encoder_attn", "EncDecAttention", "crossattention")):
            weight.normal_(std=0.7 * D_MODEL**-0.5)
        else:
            weight.mul_(0.2)
    *_, down = (weight for weight in weights.values() if weight.shape == (D_MODEL, 2 * D_MODEL))
    ups = [weight for weight in weights.values() if weight.shape == (2 * D_MODEL, D_MODEL)]
    if "gated" in getattr(model.config, "feed_forward_proj", ""):
        for up in ups[-2:]:
            up.zero_()[: len(before)] = tokens[before]
        down.zero_()[:, : len(before)] = 0.5 * following @ tokens[before].T
    else:
        ups[-1].copy_(torch.cat([torch.eye(D_MODEL), -torch.eye(D_MODEL)]))
        down.copy_(3.0 * torch.cat([following, -following], dim=1))
    # T5 does not multiply embeddings by sqrt(d_model), and is not normalized before its first layer.
    given.weight.copy_(SHARPNESS * tokens * (D_MODEL**0.5 if model.config.model_type == "t5" else 1.0))
    output = decoder.get_output_embeddings().weight
    if output is not given.weight:
        output.copy_(SHARPNESS * tokens)
    return model.eval()


def read_tokenizer(directory: Path, **settings: Any) -> Any:
    """Read the tokenizer of a directory as their library does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Marian's asks for a library that it never uses
        return transformers.AutoTokenizer.from_pretrained(directory, local_files_only=True, **settings)


def read_model(directory: Path) -> Any:
    """Read the model of a directory as their library does, in float32."""
    values = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    two_parts = values["model_type"] == "encoder-decoder"
    kind: Any = transformers.EncoderDecoderModel if two_parts else transformers.AutoModelForSeq2SeqLM
    return kind.from_pretrained(directory, local_files_only=True, dtype=torch.float32).eval()


def labels_of(tokenizer: Any, lines: Sequence[tuple[str, str]]) -> list[list[int]]:
    """Encode the targets of pairs with their tokenizer."""
    return tokenizer(text_target=[target for _, target in lines])["input_ids"]


def write_model(
    directory: Path, model: nn.Module, generation: Mapping[str, Any], config: Mapping[str, Any] | None = None
) -> None:
    """Write weights and settings; the given values are added to what the library writes."""
    model.save_pretrained(directory)
    written = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    write_json(directory / "config.json", {**written, **(config or {})})
    write_json(directory / "generation_config.json", {**generation, "transformers_version": "4.44.0"})


def import_it(published: Published, path: Path) -> str:
    """Import a directory by the command, and return what it said."""
    options = [] if published.source_lang is None else ["--source-lang", published.source_lang]
    if published.target_langs[0] is not None:
        options += ["--target-lang", published.target_langs[0]]
    return run("import", published.directory, "-o", path, *options)


# Marian


def shuffled_vocabulary(pieces: Iterable[str], seed: int) -> dict[str, int]:
    """Number pieces as Marian does: the end is 0, the unknown 1, padding behind all."""
    rest = sorted(set(pieces) - {"</s>", "<unk>", "<s>"})
    random.Random(seed).shuffle(rest)
    return {piece: number for number, piece in enumerate(["</s>", "<unk>", *rest, "<pad>"])}


def write_marian(
    directory: Path, lines: Sequence[tuple[str, str]], *, languages: Sequence[str] = (), separate: bool = False
) -> None:
    """Write all files of an OPUS-MT directory but the weights' other forms."""
    source, target = (
        sentencepiece_model([*side, *texts()[:500]], size)
        for side, size in zip(zip(*lines, strict=True), (300, 330), strict=True)
    )
    (directory / "source.spm").write_bytes(source)
    (directory / "target.spm").write_bytes(target)
    codes = [f">>{language}<<" for language in languages]
    if separate:
        # Padding has one id for both sides, so both have as many pieces.
        both = [pieces_of(source), pieces_of(target)]
        number = min(map(len, both))
        vocabulary, own = (shuffled_vocabulary(pieces[:number], 3) for pieces in both)
        write_json(directory / "target_vocab.json", own)
    else:
        vocabulary = own = shuffled_vocabulary([*pieces_of(source), *pieces_of(target), *codes], 3)
    write_json(directory / "vocab.json", vocabulary)
    asked = {"source_lang": "en", "target_lang": "de"}
    if separate:
        asked |= {"separate_vocabs": True, "tokenizer_class": "MarianTokenizer"}
    write_json(directory / "tokenizer_config.json", asked)
    pad_id = vocabulary["<pad>"]
    ids = {"pad_token_id": pad_id, "decoder_start_token_id": pad_id, "bos_token_id": 0, "eos_token_id": 0}
    model = transformers.MarianMTModel(
        transformers.MarianConfig(
            **SHAPE,
            **ids,
            vocab_size=len(vocabulary),
            decoder_vocab_size=len(own),
            share_encoder_decoder_embeddings=not separate,
            activation_function="swish",
            scale_embedding=True,
            forced_eos_token_id=None,
        )
    )
    write_json(directory / "config.json", {"model_type": "marian"})
    chain(model, labels_of(read_tokenizer(directory), lines))
    search = {"bad_words_ids": [[pad_id]], "forced_eos_token_id": 0, "max_length": 512, "num_beams": 4}
    old = {
        "add_bias_logits": False,
        "add_final_layer_norm": False,
        "architectures": ["MarianMTModel"],
        "classif_dropout": 0.0,
        "extra_pos_embeddings": pad_id + 1,
        "id2label": {"0": "LABEL_0"},
        "model_type": "marian",
        "normalize_before": False,
        "normalize_embedding": False,
        "static_position_embeddings": True,
    }
    write_model(directory, model, {**search, **ids}, {**old, **search})


def marian(directory: Path) -> Published:
    """Return a model from one language to another, as most of OPUS-MT."""
    write_marian(directory, pairs("en", "de"))
    return Published(directory)


def marian_into_several(directory: Path) -> Published:
    """Return a model whose sources begin with the token of the language to write."""
    lines = [
        (f">>{code}<< {source}", target)
        for code, locale in (("deu", "de"), ("jpn", "ja"), ("tur", "tr"))
        for source, target in pairs("en", locale)[:20]
    ]
    write_marian(directory, lines, languages=["deu", "jpn", "tur"])
    return Published(directory, target_langs=("deu", "jpn"), token=">>{}<<", heads_source=True)


def marian_with_two_vocabularies(directory: Path) -> Published:
    """Return a model that numbers the pieces of its two sides apart."""
    write_marian(directory, pairs("de", "fr"), separate=True)
    return Published(directory, reads=("de", "fr"))


# Byte-level BPE


def bart(directory: Path) -> Published:
    """Return a BART with vocab.json and merges.txt alone."""
    made = tokenizers.ByteLevelBPETokenizer(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made.train_from_iterator(texts(), vocab_size=700, min_frequency=2, special_tokens=special, show_progress=False)
    made.save_model(str(directory))
    ids = {"pad_token_id": 1, "decoder_start_token_id": 2, "bos_token_id": 0, "eos_token_id": 2}
    model = transformers.BartForConditionalGeneration(
        transformers.BartConfig(**SHAPE, **ids, vocab_size=700, activation_function="gelu", forced_bos_token_id=0)
    )
    write_json(directory / "config.json", {"model_type": "bart"})
    chain(model, labels_of(read_tokenizer(directory), pairs("fr", "en")))
    search = {"forced_bos_token_id": 0, "forced_eos_token_id": 2, "early_stopping": True, "num_beams": 4}
    old = {"normalize_before": False, "normalize_embedding": True, "add_final_layer_norm": False}
    write_model(directory, model, {**search, **ids, "no_repeat_ngram_size": 3}, {**old, **search})
    return Published(directory, reads=("fr", "en"))


def with_byte_level_file(directory: Path) -> None:
    """Put a tokenizer.json beside vocab.json and merges.txt, cutting texts short as published ones may."""
    made = tokenizers.ByteLevelBPETokenizer.from_file(str(directory / "vocab.json"), str(directory / "merges.txt"))
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    values = json.loads(made.to_str())
    values["post_processor"] = {
        "type": "RobertaProcessing",
        "sep": ["</s>", 2],
        "cls": ["<s>", 0],
        "trim_offsets": True,
        "add_prefix_space": False,
    }
    values["truncation"] = {"direction": "Right", "max_length": 300, "strategy": "LongestFirst", "stride": 0}
    write_json(directory / "tokenizer.json", values)
    write_json(directory / "tokenizer_config.json", {"model_max_length": 1024, "tokenizer_class": "BartTokenizer"})


# Pegasus


def pegasus(directory: Path) -> Published:
    """Return a Pegasus with spiece.model alone."""
    spiece = sentencepiece_model(texts(), 600, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (directory / "spiece.model").write_bytes(spiece)
    write_json(directory / "config.json", {"model_type": "pegasus"})
    tokenizer = read_tokenizer(directory)
    ids = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1}
    model = transformers.PegasusForConditionalGeneration(
        transformers.PegasusConfig(**SHAPE, **ids, vocab_size=len(tokenizer), scale_embedding=True)
    )
    chain(model, labels_of(tokenizer, pairs("es", "it")))
    search = {"forced_eos_token_id": 1, "length_penalty": 0.8, "max_length": 128, "num_beams": 8}
    old = {"normalize_before": True, "normalize_embedding": False, "add_final_layer_norm": True}
    old |= {"static_position_embeddings": True, "extra_pos_embeddings": 1}
    write_model(directory, model, {**search, **ids}, old)
    return Published(directory, reads=("es", "it"), is_converted=True)


# T5


def write_t5(directory: Path, lines: Sequence[tuple[str, str]], **settings: Any) -> None:
    """Write all files of a T5 with spiece.model alone; as published, the last rows of the model have no piece."""
    spiece = sentencepiece_model(texts(), 600, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (directory / "spiece.model").write_bytes(spiece)
    write_json(directory / "config.json", {"model_type": "t5"})
    tokenizer = read_tokenizer(directory)
    ids = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1}
    config = transformers.T5Config(
        vocab_size=len(tokenizer) + 28,
        d_model=D_MODEL,
        d_kv=16,
        d_ff=2 * D_MODEL,
        num_heads=4,
        num_layers=2,
        dropout_rate=0.0,
        relative_attention_max_distance=24,
        **ids,
        **settings,
    )
    model = transformers.T5ForConditionalGeneration(config)
    if not config.scale_decoder_outputs:
        model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight) * D_MODEL**-0.5)
    chain(model, labels_of(tokenizer, lines))
    task = {"early_stopping": True, "max_length": 300, "num_beams": 4, "prefix": "translate English to German: "}
    old = {"n_positions": 512, "output_past": True, "task_specific_params": {"translation_en_to_de": task}}
    if not config.scale_decoder_outputs:  # which version 5 writes otherwise
        old["tie_word_embeddings"] = False
    write_model(directory, model, ids, old)


def t5(directory: Path) -> Published:
    """Return a T5 of the first kind: one matrix, ReLU."""
    write_t5(directory, pairs("en", "fr"))
    return Published(directory, reads=("en", "fr"), is_converted=True)


def t5_1_1(directory: Path) -> Published:
    """Return a T5 1.1, as Flan-T5: an output matrix of its own, a gated GELU."""
    write_t5(directory, pairs("nl", "en"), feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    return Published(directory, reads=("nl", "en"), is_converted=True)


# Models that are told languages


def chain_languages(
    model: nn.Module, tokenizer: Any, directions: Mapping[tuple[str, str], tuple[str, str]]
) -> nn.Module:
    """Set weights by targets of several languages."""
    targets = []
    for (source_lang, target_lang), locales in directions.items():
        tokenizer.src_lang, tokenizer.tgt_lang = source_lang, target_lang
        targets += labels_of(tokenizer, pairs(*locales)[:6])
    return chain(model, targets)


STARTS_WITH_END = {"pad_token_id": 1, "decoder_start_token_id": 2, "bos_token_id": 0, "eos_token_id": 2}
MANY = {"early_stopping": True, "forced_eos_token_id": 2, "max_length": 200, "num_beams": 5}


def mbart50(directory: Path) -> Published:
    """Return an mBART-50 as published: a sentencepiece model, and the languages in special_tokens_map.json."""
    (directory / "sentencepiece.bpe.model").write_bytes(sentencepiece_model(texts(), 600))
    # As published, config.json names the class of the tokenizer, and tokenizer_config.json does not.
    write_json(directory / "config.json", {"model_type": "mbart", "tokenizer_class": "MBart50Tokenizer"})
    write_json(directory / "tokenizer_config.json", {"src_lang": None, "tgt_lang": None, "model_max_length": 1024})
    write_json(directory / "special_tokens_map.json", {"additional_special_tokens": MBART50_CODES})
    tokenizer = read_tokenizer(directory)
    config = transformers.MBartConfig(
        **SHAPE, **STARTS_WITH_END, vocab_size=len(tokenizer), activation_function="relu", scale_embedding=True
    )
    directions = {("en_XX", "de_DE"): ("en", "de"), ("en_XX", "ja_XX"): ("en", "ja"), ("de_DE", "ja_XX"): ("de", "ja")}
    model = chain_languages(transformers.MBartForConditionalGeneration(config), tokenizer, directions)
    old = {"normalize_before": True, "normalize_embedding": True, "add_final_layer_norm": True}
    old |= {"static_position_embeddings": False, "tokenizer_class": "MBart50Tokenizer"}
    write_model(directory, model, {**MANY, **STARTS_WITH_END}, old)
    return Published(directory, "en_XX", ("de_DE", "ja_XX"), "{}", is_converted=True)


def mbart(directory: Path) -> Published:
    """Return an mBART of 25 languages, which starts with the language to write."""
    (directory / "sentencepiece.bpe.model").write_bytes(sentencepiece_model(texts(), 600))
    write_json(directory / "config.json", {"model_type": "mbart"})
    tokenizer = read_tokenizer(directory)
    tokenizer.save_pretrained(directory)
    ids = {**STARTS_WITH_END, "decoder_start_token_id": tokenizer.convert_tokens_to_ids("nl_XX")}
    config = transformers.MBartConfig(**SHAPE, **ids, vocab_size=len(tokenizer), scale_embedding=True)
    model = transformers.MBartForConditionalGeneration(config)
    chain_languages(model, tokenizer, {("en_XX", "nl_XX"): ("en", "nl"), ("de_DE", "nl_XX"): ("de", "nl")})
    write_model(directory, model, {**MANY, **ids})
    return Published(directory, "en_XX", reads=("en", "nl"))


def nllb(directory: Path) -> Published:
    """Return an NLLB."""
    (directory / "sentencepiece.bpe.model").write_bytes(sentencepiece_model(texts(), 700, "bpe"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = transformers.NllbTokenizer.from_pretrained(directory, extra_special_tokens=list(NLLB_CODES))
    made.save_pretrained(directory)
    asked = {"src_lang": None, "tgt_lang": None, "tokenizer_class": "NllbTokenizer"}
    write_json(directory / "tokenizer_config.json", {**asked, "additional_special_tokens": NLLB_CODES})
    write_json(directory / "config.json", {"model_type": "m2m_100"})
    tokenizer = read_tokenizer(directory)
    config = transformers.M2M100Config(**SHAPE, **STARTS_WITH_END, vocab_size=len(tokenizer), scale_embedding=True)
    directions = {
        ("eng_Latn", "deu_Latn"): ("en", "de"),
        ("eng_Latn", "jpn_Jpan"): ("en", "ja"),
        ("tur_Latn", "deu_Latn"): ("tr", "de"),
    }
    model = chain_languages(transformers.M2M100ForConditionalGeneration(config), tokenizer, directions)
    write_model(directory, model, {"max_length": 200, **STARTS_WITH_END}, {"tokenizer_class": "NllbTokenizer"})
    return Published(directory, "eng_Latn", ("jpn_Jpan", "deu_Latn"), "{}")


def m2m100(directory: Path) -> Published:
    """Return an M2M100, whose languages have rows behind those of vocab.json."""
    model_file = sentencepiece_model(texts(), 640, "bpe")
    (directory / "sentencepiece.bpe.model").write_bytes(model_file)
    rest = pieces_of(model_file)[3:]
    random.Random(2).shuffle(rest)
    vocabulary = {piece: number for number, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *rest])}
    write_json(directory / "vocab.json", vocabulary)
    write_json(directory / "config.json", {"model_type": "m2m_100"})
    asked = {"src_lang": None, "tgt_lang": None, "num_madeup_words": 8, "tokenizer_class": "M2M100Tokenizer"}
    write_json(directory / "tokenizer_config.json", asked)
    tokenizer = read_tokenizer(directory)
    codes = list(tokenizer.lang_token_to_id)
    write_json(directory / "special_tokens_map.json", {"eos_token": "</s>", "additional_special_tokens": codes})
    size = len(vocabulary) + len(codes) + 8
    config = transformers.M2M100Config(**SHAPE, **STARTS_WITH_END, vocab_size=size, scale_embedding=True)
    directions = {("en", "de"): ("en", "de"), ("en", "ja"): ("en", "ja"), ("tr", "de"): ("tr", "de")}
    model = chain_languages(transformers.M2M100ForConditionalGeneration(config), tokenizer, directions)
    write_model(directory, model, {**MANY, **STARTS_WITH_END})
    return Published(directory, "en", ("de", "ja"), "__{}__")


# Two BERTs


def write_two_berts(
    directory: Path, model: Any, lines: Sequence[tuple[str, str]], ids: Mapping[str, int], *, starts_twice: bool = False
) -> None:
    """Set the weights of an EncoderDecoderModel, and write it with a search of its own."""
    for name, token_id in ids.items():
        setattr(model.config, name, token_id)
    chain(model, labels_of(read_tokenizer(directory), lines), starts_twice=starts_twice)
    write_model(directory, model, {**ids, "num_beams": 4})


def bert2bert(directory: Path, *, labels_begin: bool = False) -> Published:
    """Return an encoder and a decoder that were BERTs, with vocab.txt; its words are in small letters.

    With `labels_begin`, it writes the start token [CLS] first, like one whose labels were all tokens of the tokenizer.
    """
    made = tokenizers.BertWordPieceTokenizer(lowercase=True)
    made.train_from_iterator(texts(), vocab_size=600, min_frequency=2, show_progress=False)
    made.save_model(str(directory))
    write_json(directory / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    write_json(directory / "config.json", {"model_type": "bert"})
    vocabulary = made.get_vocab()
    shape = {**BERT, "vocab_size": len(vocabulary), "pad_token_id": vocabulary["[PAD]"]}
    decoder = transformers.BertConfig(**shape, is_decoder=True, add_cross_attention=True)
    model = transformers.EncoderDecoderModel(
        encoder=transformers.BertModel(transformers.BertConfig(**shape)), decoder=transformers.BertLMHeadModel(decoder)
    )
    tokens = {"decoder_start_token_id": "[CLS]", "eos_token_id": "[SEP]", "pad_token_id": "[PAD]"}
    ids = {name: vocabulary[token] for name, token in tokens.items()}
    write_two_berts(directory, model, pairs("sv", "de"), ids, starts_twice=labels_begin)
    return Published(directory, reads=("sv", "de"))


def bert_generation(directory: Path) -> Published:
    """Return an encoder and a decoder of BertGeneration; their tokenizer puts nothing around a text."""
    made = sentencepiece_model(texts(), 600, pad_id=0, eos_id=1, bos_id=2, unk_id=3, user_defined_symbols=["<::::>"])
    (directory / "spiece.model").write_bytes(made)
    write_json(directory / "tokenizer_config.json", {"tokenizer_class": "BertGenerationTokenizer"})
    write_json(directory / "config.json", {"model_type": "bert-generation"})
    shape = {**BERT, "vocab_size": 600, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1}
    decoder = transformers.BertGenerationConfig(**shape, is_decoder=True, add_cross_attention=True)
    model = transformers.EncoderDecoderModel(
        encoder=transformers.BertGenerationEncoder(transformers.BertGenerationConfig(**shape)),
        decoder=transformers.BertGenerationDecoder(decoder),
    )
    ids = {"decoder_start_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}
    write_two_berts(directory, model, pairs("sv", "de"), ids)
    return Published(directory, reads=("sv", "de"))


# The same in other files


def with_their_tokenizer(directory: Path) -> None:
    """Put the files there that their tokenizer writes."""
    read_tokenizer(directory).save_pretrained(directory)


def in_half_precision(directory: Path) -> None:
    """Put the weights in a pytorch_model.bin of float16, tied and computed ones among them, as OPUS-MT does."""
    state = {name: tensor.half() for name, tensor in read_model(directory).state_dict().items()}
    (directory / "model.safetensors").unlink()
    torch.save(state, directory / "pytorch_model.bin")


def in_shards(directory: Path) -> None:
    """Cut the weights up."""
    model = read_model(directory)
    (directory / "model.safetensors").unlink()
    model.save_pretrained(directory, max_shard_size="100KB")


PUBLISHED: Mapping[str, Callable[[Path], Published]] = {
    "marian": marian,
    "marian into several languages": marian_into_several,
    "marian with two vocabularies": marian_with_two_vocabularies,
    "bart": bart,
    "pegasus": pegasus,
    "t5": t5,
    "t5 1.1": t5_1_1,
    "mbart": mbart,
    "mbart-50": mbart50,
    "nllb": nllb,
    "m2m100": m2m100,
    "bert-generation": bert_generation,
    "bert2bert": bert2bert,
}
"""Name of a test case to what makes such a directory in an empty one."""

FORMS: Mapping[str, tuple[str, Callable[[Path], None]]] = {
    "bart with tokenizer.json": ("bart", with_byte_level_file),
    "pegasus with tokenizer.json": ("pegasus", with_their_tokenizer),
    "t5 1.1 with tokenizer.json": ("t5 1.1", with_their_tokenizer),
    "mbart-50 with tokenizer.json": ("mbart-50", with_their_tokenizer),
}
"""Name of a test case to the one that it is a copy of, and what is then done to it."""

OTHER_WEIGHTS: Mapping[str, tuple[Callable[[Path], None], float]] = {
    "in half precision": (in_half_precision, 2e-3),
    "in shards": (in_shards, 0.0),
}
"""Name of a test case to what is done to the weights of a directory, and how far they may then be from those before."""
