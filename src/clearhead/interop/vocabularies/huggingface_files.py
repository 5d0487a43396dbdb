"""Vocabulary of a Hugging Face transformers directory as a `VocabularyFile`: pieces, ids and frames.

It is read from `tokenizer.json` where transformers reads that file too, otherwise from the files it is made of.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ModelError
from clearhead.files import os_error_as, parse_json, read_json, require_regular
from clearhead.interop.readers.foreign_config import file_text, optional_json
from clearhead.interop.vocabularies.added_tokens import MOST_PIECES, added_tokens, token_text, with_rows_of_added
from clearhead.tokenizers.foreign import Frame, VocabularyFile, VocabularySide
from clearhead.tokenizers.subword_encoders import (
    byte_level_tokenizer,
    sentencepiece_ends,
    sentencepiece_pieces,
    with_added_tokens,
    wordpiece_tokenizer,
)
from clearhead.tokenizers.tokenizer_json import require_bounded, require_few_values
from clearhead.tokenizers.vocabulary import MOST_BYTES

_CODES = {
    "clearhead": re.compile(r"<2(\S+)>"),  # clearhead's own, when the tokenizer was changed
    "m2m_100": re.compile(r"__(\w+)__|([a-z]{3}_[A-Z][a-z]{3})"),  # M2M100's and NLLB's
    "mbart": re.compile(r"([a-z]{2}_[A-Z]{2})"),
}
"""Kinds of model to the pattern of their language tokens."""

_MBART_CODES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP "
    "nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
)
_MORE_CODES = (
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE "
    "ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
"""Language codes of mBART-25, and those that mBART-50 appends, in the order of the tokenizer classes."""

_M2M100_CODES = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu "
        "hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt "
        "ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}
"""Language codes of M2M100, by the tokenizer's `language_codes`, in the order of the tokenizer class."""

MARIAN_CODE = re.compile(r">>(\S+)<<")
"""Target-language token of multilingual Marian models."""

_CLASSES = {
    "marian": "MarianTokenizer",
    "pegasus": "PegasusTokenizer",
    "bert-generation": "BertGenerationTokenizer",
}
"""Kinds of model to their tokenizer class, where there is one alone."""


def part_of(kind: str, values: Mapping[str, Any]) -> str:
    """Return the kind of model that determines the tokenizer; for a combined encoder-decoder, the encoder's.

    Args:
        kind: Their `model_type`.
        values: The fields of `config.json`.
    """
    encoder = values.get("encoder") if kind == "encoder-decoder" else None
    return str(encoder.get("model_type")) if isinstance(encoder, Mapping) else kind


def their_vocabulary(directory: Path, model_type: str, config: ModelConfig) -> VocabularyFile:
    """Read the vocabulary of a model.

    Args:
        directory: Directory of the transformers files.
        model_type: Their name of the kind of model; for a combined encoder-decoder, the encoder's.
        config: Our model settings, with the special token ids and the vocabulary sizes.

    Raises:
        ModelError: If a file is missing or damaged, or names no languages; or if this kind of model needs a library
            that is not installed.
    """
    values = optional_json(directory / "config.json") or {}
    # Used if tokenizer_config.json names no class.
    asked = {"tokenizer_class": values.get("tokenizer_class")}
    asked |= optional_json(directory / "tokenizer_config.json") or {}
    generation = optional_json(directory / "generation_config.json")
    generation = values if generation is None else generation
    # The end of a source is the tokenizer's, which generation_config.json does not change.
    end = values["eos_token_id"] if type(values.get("eos_token_id")) is int else config.eos_id
    source, target = _with_added(directory, model_type, config.model_copy(update={"eos_id": end}), asked)
    languages = _languages(source, model_type, asked)
    source_frame, target_frame = _frames(model_type, config, end, asked, generation, source, bool(languages))
    if not languages and "source_lang" in source_frame:
        raise ModelError(
            f"{directory} does not name the tokens of its languages (additional_special_tokens in "
            f"special_tokens_map.json or tokenizer_config.json); put the tokenizer of the model as it was published "
            f"there: transformers.AutoTokenizer.from_pretrained(NAME).save_pretrained({str(directory)!r})"
        )
    return vocabulary_of(config, (source, target), source_frame, target_frame, languages)


def vocabulary_of(
    config: ModelConfig,
    sides: tuple[VocabularySide, VocabularySide | None],
    source_frame: Frame,
    target_frame: Frame,
    languages: Mapping[str, int],
) -> VocabularyFile:
    """Return the vocabulary of a model.

    Args:
        config: Our model settings, with the special token ids and the vocabulary sizes.
        sides: The source tokenizer, and the target tokenizer if it differs.
        source_frame: Frame of a source: its text and the ids around it.
        target_frame: Frame of a target, after the start token.
        languages: Ids of the language tokens.
    """
    return VocabularyFile(
        source=sides[0],
        target=sides[1],
        source_frame=source_frame,
        target_frame=target_frame,
        languages=dict(languages),
        pad_id=config.pad_id,
        bos_id=config.bos_id,
        eos_id=config.eos_id,
        vocab_size=config.vocab_size,
        source_vocab_size=config.source_vocab_size,
    )


def _sides(
    directory: Path, model_type: str, config: ModelConfig, asked: Mapping[str, Any]
) -> tuple[VocabularySide, VocabularySide | None]:
    """Return the source tokenizer, and the target tokenizer if it differs."""
    if model_type == "marian":
        return _marian_sides(directory, config, asked)
    if (path := directory / "tokenizer.json").is_file():
        return VocabularySide(speller="tokenizers", model=_as_asked(checked_json(path), model_type, asked)), None
    if model_type in ("bart", "gpt2") and (path := directory / "vocab.json").is_file():
        merges = [tuple(line.split(" ")) for line in file_text(directory / "merges.txt").split("\n")]
        pairs = [(pair[0], pair[1]) for pair in merges if len(pair) == 2 and pair[0] != "#version:"]
        special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>")
        space = bool(asked.get("add_prefix_space"))
        return _made_side(path, lambda: byte_level_tokenizer(_ids(path), pairs, special, space_before=space)), None
    if model_type == "bert" and (path := directory / "vocab.txt").is_file():
        pieces = file_text(path).removesuffix("\n").split("\n")
        settings: dict[str, Any] = {
            "lowercase": asked.get("do_lower_case", True),
            "strip_accents": asked.get("strip_accents"),
            "split_han": asked.get("tokenize_chinese_chars", True),
        }
        return _made_side(path, lambda: wordpiece_tokenizer(pieces, **settings)), None
    for name in ("spiece.model", "sentencepiece.bpe.model", "sentencepiece.model"):
        if (path := directory / name).is_file():
            return _sentencepiece_side(path, model_type, config, asked), None
    raise ModelError(
        f"{directory} has no tokenizer: neither tokenizer.json nor, for a {model_type} model, the files it is made of"
    )


def _as_asked(text: str, model_type: str, asked: Mapping[str, Any]) -> str:
    """Return a `tokenizer.json` with the settings of `tokenizer_config.json`, which count more in transformers.

    They do so for the tokenizer classes of BERT, BART and GPT-2, and not for a class that takes the file as it is.
    """
    if any(name in str(asked.get("tokenizer_class")) for name in ("PreTrainedTokenizerFast", "TokenizersBackend")):
        return text
    values = json.loads(text)
    if model_type == "bert":
        part, names = (
            values.get("normalizer"),
            {
                "do_lower_case": "lowercase",
                "strip_accents": "strip_accents",
                "tokenize_chinese_chars": "handle_chinese_chars",
            },
        )
    else:
        part, names = values.get("pre_tokenizer"), {"add_prefix_space": "add_prefix_space"}
        names = names if model_type in ("bart", "gpt2") else {}
    kinds = ("BertNormalizer", "ByteLevel")
    changed = {ours: asked[theirs] for theirs, ours in names.items() if theirs in asked}
    if not (isinstance(part, dict) and part.get("type") in kinds):
        return text
    if all(part.get(name) == value for name, value in changed.items()):
        return text
    part.update(changed)
    return json.dumps(values, ensure_ascii=False)


def _with_added(
    directory: Path,
    model_type: str,
    config: ModelConfig,
    asked: Mapping[str, Any],
) -> tuple[VocabularySide, VocabularySide | None]:
    """Return the sides of a vocabulary with the tokens added in fine-tuning, such as those of `tokenizer.add_tokens`.

    They are in `tokenizer_config.json` or `added_tokens.json`; those of `tokenizer.json` are in the side already.
    """
    source, target = _sides(directory, model_type, config, asked)
    path, added = added_tokens(directory, asked)
    if source.speller == "tokenizers":
        if model_type == "bert" and asked.get("do_lower_case", True):  # as `add_tokens` of transformers
            added = [token if token["special"] else {**token, "content": token["content"].lower()} for token in added]
        made = _checked(path, lambda: with_added_tokens(source.model, added))
        return source.model_copy(update={"model": made}), target
    name = _CLASSES.get(model_type, str(asked.get("tokenizer_class")))
    name = "M2M100Tokenizer" if (directory / "vocab.json").is_file() and target is None else name
    source = with_rows_of_added(source, path, added, name)
    if target is None:
        return source, None
    # The sides of Marian may be numbered apart, and then the target may have no row for a token of the source.
    both = [token for token in added if token["id"] < config.vocab_size and _is_free(target, token)]
    return source, with_rows_of_added(target, path, both, name)


def _is_free(side: VocabularySide, token: Mapping[str, Any]) -> bool:
    return token["id"] >= len(side.pieces) or side.pieces[token["id"]] in (None, token["content"])


def _marian_sides(
    directory: Path, config: ModelConfig, asked: Mapping[str, Any]
) -> tuple[VocabularySide, VocabularySide]:
    own = directory / "target_vocab.json"
    sides = []
    for name, vocabulary in (("source.spm", "vocab.json"), ("target.spm", own.name if own.is_file() else "vocab.json")):
        ids = _ids(directory / vocabulary)
        unk_id = _unknown_id(directory / vocabulary, ids, asked)
        named = (ids.get(token) for token in ("</s>", "<pad>"))
        special = sorted({*(token for token in named if token is not None), unk_id, config.pad_id, config.eos_id})
        pieces = _by_id(ids)
        sides.append(sentencepiece_side(directory / name, pieces, special, unk_id))
    return sides[0], sides[1]


def _unknown_id(path: Path, ids: Mapping[str, int], asked: Mapping[str, Any]) -> int:
    """Return the id of unknown pieces in a `vocab.json`, as `tokenizer_config.json` names it, or else `<unk>`."""
    token = asked.get("unk_token") or "<unk>"
    name = token_text(token)
    if name is None or name not in ids:
        shown = token if name is None else name
        raise ModelError(f"{path} has no piece {shown!s:.50} for what the model does not know; unk_token names it")
    return ids[name]


def _sentencepiece_side(path: Path, model_type: str, config: ModelConfig, asked: Mapping[str, Any]) -> VocabularySide:
    """Return the tokenizer of a sentencepiece model, with the ids of the pieces in transformers."""
    codes = _codes(model_type, asked, path.parent)
    if (vocabulary := path.parent / "vocab.json").is_file():  # M2M100; language tokens come after the list
        ids = _ids(vocabulary)
        codes, unk_id = _m2m100_codes(codes, asked), _unknown_id(vocabulary, ids, asked)
        pieces = [*_by_id(ids), *codes]
        first = ("<s>", "<pad>", "</s>")
        special = [number for number, piece in enumerate(pieces) if piece in first or number >= len(ids)]
        return sentencepiece_side(path, pieces, sorted({*special, unk_id}), unk_id)
    own = own_pieces(path)
    if model_type == "mbart" and not codes:
        known = (_MBART_CODES + " " + _MORE_CODES if _is_mbart50(asked) else _MBART_CODES).split()
        added = sum(token["id"] > len(own) + len(known) for token in added_tokens(path.parent, asked)[1])
        codes = known if config.vocab_size == len(own) + len(known) + 2 + added else []
    match model_type:
        case "pegasus":
            offset = _number(path, asked, "offset", 103, least=2)
            masks = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, offset))]
            pieces = [*masks[: offset + 2], *own[2:]]
            return sentencepiece_side(path, pieces, [*range(offset + 3)], offset + 2)
        case "mbart" | "m2m_100":  # numbered as in fairseq
            pieces = ["<s>", "<pad>", "</s>", "<unk>", *own[3:], *codes, "<mask>"]
            return sentencepiece_side(path, pieces, [0, 1, 2, 3, *range(len(own) + 1, len(pieces))], 3)
        case _:
            extra = _number(path, asked, "extra_ids", 100) if model_type in ("t5", "mt5") else 0
            pieces = [*own, *(f"<extra_id_{number}>" for number in reversed(range(extra)))]
            _, unk_id = _checked(path, lambda: sentencepiece_ends(file_base64(path)))
            named = {unk_id, *(number for number, piece in enumerate(own) if piece in ("<pad>", "<s>", "</s>"))}
            named |= {config.pad_id, config.eos_id, *range(len(own), len(pieces))}
            return sentencepiece_side(path, pieces, sorted(named), unk_id)


def _number(path: Path, asked: Mapping[str, Any], name: str, default: int, *, least: int = 0) -> int:
    """Return a number of ids from `tokenizer_config.json`, or the default."""
    number = asked.get(name, default)
    if type(number) is not int or not least <= number < MOST_PIECES:
        raise ModelError(f"{path.parent / 'tokenizer_config.json'}: {name} is {number!r:.50}, not a number of ids")
    return number


def _frames(
    model_type: str,
    config: ModelConfig,
    end: int,
    asked: Mapping[str, Any],
    generation: Mapping[str, Any],
    source: VocabularySide,
    has_languages: bool,
) -> tuple[Frame, Frame]:
    """Return the source frame, and the target frame after the start token."""
    eos, forced = config.eos_id, generation.get("forced_bos_token_id")
    begin: Frame = (forced,) if type(forced) is int else ()
    match model_type:
        case "marian" | "clearhead":
            return (("target_lang", "text", end) if has_languages else ("text", end)), (*begin, "text", eos)
        case "bart":
            return (_id_of(source, "<s>"), "text", end), (*begin, "text", eos)
        case "mbart" if not _is_mbart50(asked):
            return ("text", end, "source_lang"), (*begin, "text", eos)  # the start token names the language
        case "m2m_100" if asked.get("legacy_behaviour"):
            return ("text", end, "source_lang"), ("target_lang", "text", eos)
        case "m2m_100" | "mbart":
            return ("source_lang", "text", end), ("target_lang", "text", eos)
        case "bert":
            return (_id_of(source, "[CLS]"), "text", _id_of(source, "[SEP]")), (*begin, "text", eos)
        case "bert-generation":
            return ("text",), (*begin, "text", eos)
        case "gpt2":
            return ("text",), ("text", eos)
        case _:
            return ("text", end), (*begin, "text", eos)


def _languages(source: VocabularySide, model_type: str, asked: Mapping[str, Any]) -> dict[str, int]:
    if source.speller == "tokenizers":
        tokens = {token["content"]: token["id"] for token in json.loads(source.model).get("added_tokens", ())}
    else:
        tokens = {piece: number for number, piece in enumerate(source.pieces) if piece is not None}
    pattern = MARIAN_CODE if model_type == "marian" else _CODES.get(model_type)
    if pattern is None:
        return {}
    matches = ((pattern.fullmatch(token), number) for token, number in tokens.items())
    return {next(filter(None, match.groups())): number for match, number in matches if match is not None}


def _is_mbart50(asked: Mapping[str, Any]) -> bool:
    return "50" in str(asked.get("tokenizer_class"))


def _codes(model_type: str, asked: Mapping[str, Any], directory: Path) -> list[str]:
    """Return the language tokens that the files name, in order."""
    if model_type not in _CODES:
        return []
    added = [token["content"] for token in added_tokens(directory, asked)[1]]
    lists = [
        [text for token in tokens if (text := token_text(token)) is not None]
        for values in (asked, optional_json(directory / "special_tokens_map.json") or {})
        for key in ("additional_special_tokens", "extra_special_tokens")
        if isinstance(tokens := values.get(key), list)
    ]
    codes = ([token for token in tokens if _CODES[model_type].fullmatch(token)] for tokens in (*lists, added))
    return next(filter(None, codes), [])


def _m2m100_codes(codes: Sequence[str], asked: Mapping[str, Any]) -> list[str]:
    """Return the language tokens in the order of their rows: first those of the tokenizer class, in its order.

    Args:
        codes: Language tokens that the files name.
        asked: The fields of `tokenizer_config.json`.
    """
    known = [f"__{code}__" for code in _M2M100_CODES.get(str(asked.get("language_codes", "m2m100")), "").split()]
    if not set(known) <= set(codes or known):  # a model of its own languages
        return list(codes)
    return [*known, *(code for code in codes if code not in known)]


def _id_of(side: VocabularySide, token: str) -> int:
    ids = token_ids(side)
    if token not in ids:
        raise ModelError(f"the tokenizer has no token {token}")
    return ids[token]


def token_ids(side: VocabularySide) -> dict[str, int]:
    """Return the ids of all named tokens of a side."""
    if side.speller != "tokenizers":
        return {piece: number for number, piece in enumerate(side.pieces) if piece is not None}
    values = json.loads(side.model)
    vocabulary = values["model"]["vocab"]
    names = list(vocabulary) if isinstance(vocabulary, dict) else [piece for piece, _ in vocabulary]
    ids = vocabulary if isinstance(vocabulary, dict) else {name: number for number, name in enumerate(names)}
    return {**ids, **{added["content"]: added["id"] for added in values.get("added_tokens", ())}}


def sentencepiece_side(path: Path, pieces: Sequence[str | None], special: Sequence[int], unk_id: int) -> VocabularySide:
    """Return the `VocabularySide` of a sentencepiece model; the arguments are fields of `VocabularySide`.

    Raises:
        ModelError: If the file cannot be read or is damaged.
    """
    own_pieces(path)
    return VocabularySide(
        speller="sentencepiece", model=file_base64(path), pieces=tuple(pieces), special=tuple(special), unk_id=unk_id
    )


def own_pieces(path: Path) -> list[str]:
    """Return the pieces of a sentencepiece model, in the order of its own ids.

    Raises:
        ModelError: If the file cannot be read or is damaged.
    """
    if not (pieces := _checked(path, lambda: sentencepiece_pieces(file_base64(path)))):
        raise ModelError(f"{path} is damaged: it is no sentencepiece model")  # such as an empty file
    return list(pieces)


def _made_side(path: Path, make: Callable[[], str]) -> VocabularySide:
    return VocabularySide(speller="tokenizers", model=_checked(path, make))


def _checked(path: Path, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ValueError as error:
        raise ModelError(f"{path} is damaged: {error}") from None


def file_base64(path: Path) -> str:
    """Return the content of a vocabulary file in base 64.

    Raises:
        ModelError: If the file cannot be read, or is larger than `MOST_BYTES`.
    """
    with os_error_as(ModelError, f"cannot read {path}"):
        require_regular(path)
        if path.stat().st_size > MOST_BYTES:
            raise ModelError(f"{path} is larger than {MOST_BYTES:,} bytes; no tokenizer is")
        return base64.b64encode(path.read_bytes()).decode()


def checked_json(path: Path) -> str:
    """Return the text of a `tokenizer.json` after checking its structure.

    Raises:
        ModelError: If the file cannot be read or is damaged.
    """
    text = file_text(path)
    _checked(path, lambda: require_few_values(text))
    values = _checked(path, lambda: parse_json(text))
    model = values.get("model") if isinstance(values, dict) else None
    added = values.get("added_tokens") if isinstance(values, dict) else None
    pieces = model.get("vocab") if isinstance(model, dict) else None
    is_sound = isinstance(pieces, dict | list) and all(
        isinstance(token, dict) and isinstance(token.get("content"), str) and isinstance(token.get("id"), int)
        for token in (added if isinstance(added, list) else [None])
    )
    if not is_sound:
        raise ModelError(
            f"{path} is damaged: it must hold a model with its vocab, and added_tokens with content and id"
        )
    _checked(path, lambda: require_bounded(values))  # before anything takes long
    return text


def _ids(path: Path) -> dict[str, int]:
    values = read_json(path, ModelError)
    if not all(type(number) is int and 0 <= number < MOST_PIECES for number in values.values()):
        raise ModelError(f"{path} is damaged: it must give every piece the number of its row")
    return values


def _by_id(ids: Mapping[str, int]) -> list[str | None]:
    pieces: list[str | None] = [None] * (max(ids.values(), default=-1) + 1)
    for piece, number in ids.items():
        pieces[number] = piece
    return pieces
