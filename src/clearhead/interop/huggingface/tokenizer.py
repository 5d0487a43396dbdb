"""Export of vocabularies as Hugging Face transformers tokenizers that produce the same ids.

Each kind of model in transformers has a tokenizer class. The class decides the ids of the pieces in a file and the
special tokens around a text. The written files are read back, to check that they give the same vocabulary.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.bundle import Bundle
from clearhead.config import DecodeConfig
from clearhead.errors import ConfigError, ModelError
from clearhead.files import write_json
from clearhead.interop.huggingface.state import FAMILIES, exportable_as
from clearhead.interop.vocabularies.added_tokens import ADDED_FLAGS
from clearhead.interop.vocabularies.huggingface_files import part_of, their_vocabulary, token_ids
from clearhead.interop.vocabularies.vocabulary_files import (
    OWN_VOCABULARY,
    side_bytes,
    special_ids,
    token_names,
    tokens_beside_sentencepiece,
    told_by_tag,
    unknown_name,
    vocabulary_files,
    write_files,
)
from clearhead.text.languages import language_tag
from clearhead.tokenizers import SPECIAL_TOKENS, Tokenizer, Vocabulary
from clearhead.tokenizers.foreign import ForeignVocabulary, VocabularyFile, VocabularySide
from clearhead.tokenizers.subword_encoders import sentencepiece_pieces

_NLLB = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")
_EXTRA = re.compile(r"<extra_id_\d+>")


@dataclass(frozen=True)
class TheirTokenizer:
    """Tokenizer files and settings of a transformers directory."""

    files: Mapping[str, bytes]
    """Content of the files by name, including clearhead's own."""
    settings: Mapping[str, Any]
    """The fields of `tokenizer_config.json`."""


def kind_and_tokenizer(bundle: Bundle, kinds: Iterable[str]) -> tuple[str, TheirTokenizer]:
    """Return the first kind of model whose tokenizer can express this vocabulary, and that tokenizer.

    Args:
        bundle: The model.
        kinds: Candidate `model_type`s; the one that the model was imported as is tried first.

    Raises:
        ConfigError: If no tokenizer can; it gives the reasons.
    """
    vocabulary, config = bundle.tokenizer, bundle.config
    was = (bundle.imported_from or {}).get("kind")
    ordered = sorted(kinds, key=lambda kind: kind != was)
    if isinstance(vocabulary, Tokenizer):
        return ordered[0], _learned(vocabulary, config.max_positions)
    assert isinstance(vocabulary, ForeignVocabulary)
    problems = []
    for kind in ordered:
        part = part_of(kind, FAMILIES[kind].config_to(config))
        try:
            tokenizer = _foreign(vocabulary, part, bundle.decode, config.max_positions)
            _require_same(vocabulary, part, bundle, tokenizer)
        except (ConfigError, ModelError) as error:
            problems.append(f"as {kind}, {error}")
        else:
            return kind, tokenizer
    if added := tokens_beside_sentencepiece(vocabulary):
        instead = f"; no other library reads its added tokens ({', '.join(added):.100}) as here"
    else:
        instead = "; write it with --to ctranslate2 or --to onnx" if config.is_encoder_decoder else ""
    raise ConfigError(
        f"no tokenizer of Hugging Face transformers that goes with such a model encodes as this vocabulary does "
        f"({'; '.join(problems)}){instead}"
    )


def onnx_instead(bundle: Bundle) -> str:
    """Return the advice, for the end of a message, to write a model as ONNX; empty if that refuses it too."""
    config = bundle.config
    if not config.is_encoder_decoder:
        return ""
    if tokens_beside_sentencepiece(bundle.tokenizer):
        try:
            kind_and_tokenizer(bundle, exportable_as(config) or FAMILIES)
        except ConfigError:
            return ""
    return "; --to onnx writes it"


def told_in_transformers(vocabulary: Vocabulary, decode: DecodeConfig) -> list[str]:
    """Return notes on how to set source and target language in transformers.

    Args:
        vocabulary: Vocabulary of the model.
        decode: Decoding settings, with the default languages.
    """
    if not isinstance(vocabulary, ForeignVocabulary):
        return told_by_tag(vocabulary, decode)
    file, notes = vocabulary.file, []
    if "target_lang" in file.source_frame:
        names = {number: name for name, number in token_ids(file.source).items()}
        number = file.languages.get(decode.target_lang or "", min(file.languages.values()))
        notes.append(f"begin each text with the token of its target language, such as '{names[number]} '")
    if "source_lang" in file.source_frame:
        notes.append(f"pass the tokenizer the source language as src_lang; the default is {decode.source_lang}")
    if "target_lang" in file.target_frame:
        default = f"the default is {decode.target_lang}" if decode.target_lang else "there is no default"
        notes.append(f"pass generate() the id of the target language's token as forced_bos_token_id; {default}")
    return notes


def forced_id(bundle: Bundle) -> int | None:
    """Return the first id of every translation into the default target language; None if no id is forced."""
    given = bundle.tokenizer.given(bundle.decode.target_lang)
    return given[0] if given else None


def _learned(tokenizer: Tokenizer, max_positions: int) -> TheirTokenizer:
    pad, bos, eos, unk = SPECIAL_TOKENS
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": pad,
        "bos_token": bos,
        "eos_token": eos,
        "unk_token": unk,
        # Version 4, which Optimum needs, reads this name alone; version 5 has another one and reads both.
        "additional_special_tokens": [language_tag(language) for language in tokenizer.language_tags],
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_positions,
    }
    return TheirTokenizer(vocabulary_files(tokenizer), settings)


def _foreign(vocabulary: ForeignVocabulary, kind: str, decode: DecodeConfig, max_positions: int) -> TheirTokenizer:
    """Return the tokenizer of a foreign vocabulary for a kind of model.

    Raises:
        ConfigError: If the kind has no tokenizer for such files.
    """
    file = vocabulary.file
    files, settings = _form(file, kind)
    names = token_names(file.source, file.source_vocab_size or file.vocab_size, file.pad_id)
    # A special id that the model never reads may be the id of a piece of text; naming it as a special token would
    # remove that piece from texts.
    is_text = set(token_ids(file.source).values()) - special_ids(file.source)
    named = {
        "pad_token": None if kind == "gpt2" and file.pad_id in is_text else names[file.pad_id],
        "eos_token": None if kind == "bert" and file.eos_id in is_text else names[file.eos_id],
        "unk_token": unknown_name(file.source, names),
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_positions,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    marian = kind == "marian"
    read, written = ("source_lang", "target_lang") if marian else ("src_lang", "tgt_lang")
    told = {read: decode.source_lang, written: decode.target_lang} if marian or file.languages else {}
    own = {OWN_VOCABULARY: vocabulary.text.encode()}
    if added := _added(file.source, file.languages.values() if kind == "m2m_100" else ()):
        is_code = set(settings.get("additional_special_tokens", ())).__contains__
        markers = [token["content"] for token in added.values() if token["special"] and not is_code(token["content"])]
        codes = [*settings.get("additional_special_tokens", []), *markers]
        settings = {**settings, "added_tokens_decoder": added, "additional_special_tokens": codes}
    known = {name: value for name, value in {**named, **told}.items() if value is not None}
    return TheirTokenizer({**files, **own}, {**known, **settings})


def _added(side: VocabularySide, languages: Iterable[int]) -> dict[str, Any]:
    """Return the tokens added to a sentencepiece model, as in `tokenizer_config.json`; nothing without such tokens.

    The language tokens are included: M2M100's tokenizer gives omitted ones new ids, which collide with added tokens.
    """
    if side.speller != "sentencepiece" or not side.added:
        return {}
    return {
        str(number): {
            "content": side.pieces[number],
            **{name: number in getattr(side, name) for name in ADDED_FLAGS},
            "normalized": False,
            "special": number in side.special,
        }
        for number in sorted({*side.added, *languages})
    }


def _form(file: VocabularyFile, kind: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the tokenizer files, and their settings in `tokenizer_config.json`."""
    source, target = file.source, file.target or file.source
    if source.speller == "words" or target.speller == "words":
        raise ConfigError("it has no tokenizer of words that are looked up in a list")
    if source.lowercase or target.lowercase:
        raise ConfigError("no tokenizer there puts text in small letters before such pieces")
    if kind == "marian":
        if "tokenizers" in (source.speller, target.speller):
            raise ConfigError("its tokenizer is made of sentencepiece's files, and this one is a tokenizer.json")
        return _marian(source, target)
    if source != target:
        raise ConfigError("its two sides are encoded alike, and here they are not")
    if source.speller == "tokenizers":
        return {"tokenizer.json": side_bytes(file)}, _of_class(file, kind, "PreTrainedTokenizerFast")
    pieces = [piece or "" for piece in source.pieces]
    model = base64.b64decode(source.model)
    match kind:
        case "pegasus":
            return {"spiece.model": model}, {"tokenizer_class": "PegasusTokenizer", "offset": source.unk_id - 2}
        case "t5" | "mt5":
            extra = sum(_EXTRA.fullmatch(piece) is not None for piece in pieces)
            return {"spiece.model": model}, {"tokenizer_class": "T5Tokenizer", "extra_ids": extra}
        case "bert-generation":
            return {"spiece.model": model}, {"tokenizer_class": "BertGenerationTokenizer"}
        case "mbart" | "m2m_100":
            return _of_many_languages(file, kind, pieces, model)
        case _:
            raise ConfigError("it has no tokenizer of sentencepiece")


def _marian(source: VocabularySide, target: VocabularySide) -> tuple[dict[str, bytes], dict[str, Any]]:
    files = {"source.spm": base64.b64decode(source.model), "target.spm": base64.b64decode(target.model)}
    settings: dict[str, Any] = {"tokenizer_class": "MarianTokenizer"}
    files["vocab.json"] = _numbered(source.pieces)
    if source.pieces != target.pieces:
        files["target_vocab.json"] = _numbered(target.pieces)
        settings["separate_vocabs"] = True
    return files, settings


def _of_many_languages(
    file: VocabularyFile, kind: str, pieces: list[str], model: bytes
) -> tuple[dict[str, bytes], dict[str, Any]]:
    files = {"sentencepiece.bpe.model": model}
    settings = _of_class(file, kind, "M2M100Tokenizer")
    first = min(file.languages.values(), default=len(pieces))
    if settings["tokenizer_class"] == "M2M100Tokenizer":  # its list ends before the language tokens
        files["vocab.json"] = _numbered(pieces[:first])
    return files, settings


def _of_class(file: VocabularyFile, kind: str, default: str) -> dict[str, Any]:
    """Return the tokenizer class that adds the same special tokens as this vocabulary, and the language tokens."""
    is_behind = file.source_frame[-1] == "source_lang"
    names = {number: name for name, number in token_ids(file.source).items()}
    codes = {"additional_special_tokens": [names[number] for number in sorted(file.languages.values())]}
    match kind:
        case "mbart":
            return {"tokenizer_class": "MBartTokenizer" if is_behind else "MBart50Tokenizer", **codes}
        case "m2m_100" if all(_NLLB.fullmatch(language) for language in file.languages):
            return {"tokenizer_class": "NllbTokenizer", "legacy_behaviour": is_behind, **codes}
        case _:
            return {"tokenizer_class": default, **codes}


def _numbered(pieces: Iterable[str | None]) -> bytes:
    ids = {piece: number for number, piece in enumerate(pieces) if piece is not None}
    return json.dumps(ids, ensure_ascii=False, indent=2).encode()


def _require_same(vocabulary: ForeignVocabulary, kind: str, bundle: Bundle, tokenizer: TheirTokenizer) -> None:
    """Read the files as an import does, and compare them with the vocabulary.

    Raises:
        ConfigError: Naming every difference.
        ModelError: If the files cannot be read.
    """
    with tempfile.TemporaryDirectory() as name:
        write_files(directory := Path(name), tokenizer.files)
        write_json(directory / "tokenizer_config.json", tokenizer.settings)
        write_json(directory / "generation_config.json", {"forced_bos_token_id": forced_id(bundle)})
        try:
            there = their_vocabulary(directory, kind, bundle.config)
        except ModelError as error:
            raise ModelError(str(error).replace(f"{directory}/", "")) from None
    here = vocabulary.file
    different = [
        what
        for what, ours, theirs in (
            ("the tokens around a source", here.source_frame, there.source_frame),
            ("the tokens around a translation", here.target_frame, there.target_frame),
            ("the tokens of languages", here.languages, there.languages),
            ("the ids of a source", _pieces_or_kind(here.source), _pieces_or_kind(there.source)),
            (
                "the ids of a translation",
                _pieces_or_kind(here.target or here.source),
                _pieces_or_kind(there.target or there.source),
            ),
            ("the added tokens", _added_text(here.source), _added_text(there.source)),
        )
        if ours != theirs
    ]
    if different:
        raise ConfigError(f"{' and '.join(different)} would be otherwise there")


def _added_text(side: VocabularySide) -> dict[int, list[bool]]:
    """Return the added tokens that are text, and whether each setting of `ADDED_FLAGS` holds for them."""
    added = () if side.speller == "tokenizers" else set(side.added) - set(side.special)
    return {number: [number in getattr(side, name) for name in ADDED_FLAGS] for number in added}


def _pieces_or_kind(side: VocabularySide) -> dict[str, int] | str:
    """Return the ids of the text pieces of a sentencepiece model.

    For other tokenizers return only their kind: a `tokenizer.json` is copied unchanged.
    """
    if side.speller != "sentencepiece":
        return side.speller
    own = set(sentencepiece_pieces(side.model))
    return {piece: number for number, piece in enumerate(side.pieces) if piece in own}
