"""Import of Hugging Face transformers directories, with vocabulary and search settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from clearhead.bundle import Bundle, read_card
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.config.decode import is_language
from clearhead.errors import ConfigError, ModelError
from clearhead.files import read_json
from clearhead.interop.huggingface.generation import (
    forced_token,
    generation_notes,
    read_generation,
    search_settings,
    with_special_tokens,
)
from clearhead.interop.huggingface.parity import prove_huggingface
from clearhead.interop.huggingface.state import family_of, import_state, restored_state
from clearhead.interop.imported import (
    Imported,
    as_model,
    as_vocabulary,
    can_prove,
    origin_info,
    read_settings,
    require_told,
    stating,
)
from clearhead.interop.readers.foreign_config import optional_json
from clearhead.interop.readers.foreign_weights import read_their_weights
from clearhead.interop.round_trip import KEY, own_bundle, read_origin
from clearhead.interop.vocabularies.huggingface_files import part_of, their_vocabulary
from clearhead.interop.vocabularies.vocabulary_files import special_ids
from clearhead.model.transformer import Transformer
from clearhead.tokenizers.foreign import ForeignVocabulary

LIBRARY = "Hugging Face transformers"

_SOURCES = 8
"""Number of source words in the test of the first token that a model writes."""


def import_huggingface(directory: Path, kind: str | None, source_lang: str | None, target_lang: str | None) -> Imported:
    """Read a directory of Hugging Face transformers.

    Args:
        directory: Directory of `config.json`, the weights and the tokenizer.
        kind: Their `model_type`; None for the one in `config.json`.
        source_lang: Source language, for a model with source-language tokens; None for the one in the files.
        target_lang: Default target language; None for the one in the files.

    Raises:
        ConfigError: If the kind is unknown, or naming every setting that our model cannot express.
        ModelError: If a file is missing or damaged, or does not fit the others.
    """
    values = read_json(directory / "config.json", ModelError)
    kind = str(kind or values.get("model_type"))
    try:
        family_of(kind)
    except ConfigError as error:
        raise ConfigError(f"{directory / 'config.json'}: {error}") from None
    generation = read_generation(directory, values)
    values = with_special_tokens(values, generation, directory)
    theirs, files = read_their_weights(directory)
    try:
        config, tensors = import_state(kind, values, theirs)
    except ConfigError as error:
        raise ConfigError(f"{directory / 'config.json'}: {error}") from None
    info = origin_info(LIBRARY, kind, directory, files)
    origin, notes = read_origin(values, directory / "config.json", config)
    anew = partial(their_vocabulary, directory, part_of(kind, values), config)
    if origin is not None:
        restored = restored_state(kind, origin.model, config, tensors)
        if restored is None:
            notes.append(f"the settings under {KEY!r} in config.json do not fit the weights, and are not used")
        asked = {"source_lang": source_lang, "target_lang": target_lang}
        changed = changed_search(directory, origin.decode, is_decoder_alone=config.is_decoder_alone)
        bundle, more = own_bundle(origin, directory, restored or (config, tensors), info, anew, **asked, **changed)
        notes += more
    else:
        file, model = anew(), as_model(config, tensors, directory)
        vocabulary = as_vocabulary(file, directory)
        forced = forced_token(generation, directory)
        if "target_lang" in file.target_frame and forced not in (None, *file.languages.values()):
            raise ConfigError(f"{directory}: forced_bos_token_id is {forced}, which is no language of the model")
        if kind == "encoder-decoder" and _writes_start_first(model, vocabulary):
            begun = file.model_copy(update={"target_frame": (config.bos_id, *file.target_frame)})
            vocabulary = as_vocabulary(begun, directory)
            notes.append("it has learned to write its start token first, so every translation begins with that twice")
        decode = _decode(directory, config, generation, vocabulary, source_lang, target_lang)
        settings = _tokenizer_settings(directory)
        written = _language(settings.get("tgt_lang", settings.get("target_lang")), vocabulary)
        bundle = Bundle(model, vocabulary, decode, stating(info, decode.source_lang, written))
    notes += generation_notes(config, generation, bundle.decode) if config.num_decoder_layers else []
    forced = forced_token(generation, directory)
    if isinstance(bundle.tokenizer, ForeignVocabulary) and forced in bundle.tokenizer.given(None):
        file = bundle.tokenizer.file
        if forced not in {*special_ids(file.target or file.source), *file.languages.values(), config.eos_id}:
            notes.append(f"forced_bos_token_id = {forced} begins every translation, and is not part of its text")
    compare = partial(prove_huggingface, directory, kind, bundle) if can_prove() else None
    notes += [*_tasks(values), *_cleaning(directory), *_sampling(directory)]
    return Imported(bundle, LIBRARY, kind, tuple(notes), read_card(directory), compare)


@torch.inference_mode()
def _writes_start_first(model: Transformer, vocabulary: ForeignVocabulary) -> bool:
    """Return whether the model most likely begins a translation with the start token, when no token is forced there.

    This happens if an encoder-decoder was trained with BERT's tokenization of a text as labels: `[CLS] text [SEP]`.
    """
    if vocabulary.given(None):
        return False
    pieces = map(str.strip, vocabulary.source_pieces(range(vocabulary.source_vocab_size or vocabulary.vocab_size)))
    words = [piece for piece in pieces if piece.isalpha()]
    sources = words[:: max(1, len(words) // _SOURCES)][:_SOURCES]
    begun = torch.tensor([[vocabulary.bos_id]])
    first = [int(model(torch.tensor([ids]), begun)[0, -1].argmax()) for ids in vocabulary.encode_sources(sources)]
    return 2 * first.count(vocabulary.bos_id) > len(first)


def _tokenizer_settings(directory: Path) -> dict[str, Any]:
    return optional_json(directory / "tokenizer_config.json") or {}


def _decode(
    directory: Path,
    config: ModelConfig,
    generation: Mapping[str, Any],
    tokenizer: ForeignVocabulary,
    source_lang: str | None,
    target_lang: str | None,
) -> DecodeConfig:
    """Return our decoding settings from theirs."""
    asked = _tokenizer_settings(directory)
    languages = {token_id: language for language, token_id in tokenizer.languages.items()}
    written = target_lang or _language(asked.get("tgt_lang", asked.get("target_lang")), tokenizer)
    forced = forced_token(generation, directory)
    written = written or (languages.get(forced) if isinstance(forced, int) else None) or languages.get(config.bos_id)
    read = source_lang or _language(asked.get("src_lang", asked.get("source_lang")), tokenizer)
    require_told(directory, tokenizer.languages, source_lang, target_lang)
    if config.bos_id in languages and written != languages[config.bos_id]:
        start = languages[config.bos_id]
        raise ConfigError(f"{directory} starts every translation from the token of {start}, and cannot write {written}")
    return read_settings(
        directory,
        **search_settings(generation, is_decoder_alone=config.is_decoder_alone),
        length_penalty_form="power",
        familiar=False,
        split="never" if config.is_decoder_alone else "auto",
        max_input_tokens=min(config.max_length or 1_024, 1_024),
        source_lang=read,
        target_lang=written if tokenizer.language_tags else None,
    )


def changed_search(directory: Path, exported: DecodeConfig, *, is_decoder_alone: bool) -> dict[str, Any]:
    """Return the search settings changed since the export; a changed length penalty has transformers' form."""
    path = directory / "generation_config.json"
    search = search_settings(read_generation(directory, {}), is_decoder_alone=is_decoder_alone) if path.exists() else {}
    changed = {name: value for name, value in search.items() if value != getattr(exported, name)}
    return {**changed, "length_penalty_form": "power"} if "length_penalty" in changed else changed


def _tasks(values: Mapping[str, Any]) -> list[str]:
    """Return a note with the task prefixes of a model that learned several tasks, such as T5."""
    tasks = values.get("task_specific_params")
    settings = list(tasks.values()) if isinstance(tasks, dict) else []
    prefixes = [task.get("prefix") for task in settings if isinstance(task, dict)]
    named = ", ".join(f"{prefix!r:.60}" for prefix in prefixes[:8] if isinstance(prefix, str) and prefix)
    return [f"it has learned several tasks, and a text begins with the one that is asked for: {named}"] if named else []


def _cleaning(directory: Path) -> list[str]:
    """Return a note if their tokenizer removes spaces from translations; version 5 mostly keeps them with BPE."""
    if not _tokenizer_settings(directory).get("clean_up_tokenization_spaces"):
        return []
    return [
        "clean_up_tokenization_spaces is not taken over: a translation keeps the spaces that the model wrote, where "
        "their decode() makes ' .' to '.', and ' ?', ' !', ' ,' and English contractions likewise (in version 5 mostly "
        "not with BPE)"
    ]


def _sampling(directory: Path) -> list[str]:
    """Return a note if their tokenizer gives its sentencepiece model settings of its own, such as sampling."""
    if not (settings := _tokenizer_settings(directory).get("sp_model_kwargs")):
        return []
    return [f"sp_model_kwargs is not taken over ({settings!r:.100}): every text has one segmentation, the most likely"]


def _language(name: object, tokenizer: ForeignVocabulary) -> str | None:
    """Return the language named in their files; None if it is not a known language, such as `ROMANCE`."""
    if not isinstance(name, str):
        return None
    plain = name.strip("_")
    if tokenizer.languages:
        return plain if plain in tokenizer.languages else None
    return plain if is_language(plain) else None
