"""Parity check with transformers, of an export or an import: same tokens, scores and texts, or hidden states."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.bundle import Bundle
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import Engine, SearchOptions, decode, given_prefix, make_engine
from clearhead.decoding.rules import never_written
from clearhead.errors import ModelError
from clearhead.interop.huggingface.generation import neutral_settings
from clearhead.interop.imported import TOLERANCE, proof_settings
from clearhead.text.languages import tagged_language
from clearhead.tokenizers import Vocabulary
from clearhead.tokenizers.foreign import ForeignVocabulary
from clearhead.tokenizers.subword_encoders import sentencepiece_settings

_MOST_GENERATED = 100
"""Maximum number of tokens that `generate` writes for a golden sentence."""
_MOST_ADDED = 100
"""Maximum number of added tokens that are compared, each within a text."""
_READ = {
    "add_dummy_prefix": True,
    "remove_extra_whitespaces": True,
    "escape_whitespaces": True,
    "treat_whitespace_as_suffix": False,
}
"""Settings of a sentencepiece model with which transformers makes every tokenizer, whatever the model says."""
_OURS: Mapping[str, Any] = {
    "local_files_only": True,
    "trust_remote_code": False,  # else transformers would ask whether to run code from the directory
}
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
"""Name of sentencepiece's piece for one byte."""


@torch.inference_mode()
def prove_huggingface(directory: Path, kind: str, bundle: Bundle, sources: Sequence[str]) -> str | None:
    """Compare a model with its transformers version, before or after conversion, on a few sentences.

    For each sentence, their tokenizer must encode the source as the same ids, their model must give our translation the
    same log-probability, and their tokenizer must decode its ids to the same text. For an encoder alone, the hidden
    states of every layer must be equal.

    From a sentencepiece model alone, transformers makes a tokenizer without the model's byte pieces: it reads them as
    unknown and writes nothing for them. Nor does it read some of the model's settings. There our bytes and tokens are
    those of sentencepiece itself, and the rest is compared.

    Args:
        directory: Directory of the transformers model.
        kind: Their `model_type`.
        bundle: Our model.
        sources: Source sentences; each may begin with a target-language tag.

    Returns:
        A note if their tokenizer lost bytes of a sentence or a setting; None if everything is the same.

    Raises:
        ModelError: Showing the first difference, or if transformers cannot read the directory.
    """
    tokenizer, model = _their_model(directory, kind)
    ours, settings = bundle.tokenizer, proof_settings(bundle)
    bytes_here, unk_id = _byte_pieces(directory, ours)
    unread = _unread_settings(tokenizer, ours)
    engine = make_engine(bundle.model, settings.precision) if bundle.config.num_decoder_layers else None
    lost = 0
    for number, (language, text) in enumerate(ours.split_sources(sources, settings.target_lang), start=1):
        where = f"{directory}: golden sentence {number} ({text!r:.60})"
        [source_ids] = ours.encode_parts([(language, text)], settings.source_lang)
        their_ids = _their_ids(tokenizer, _tag(ours, language), text, settings.source_lang)
        is_lost = source_ids != their_ids and (bool(unread) or not bytes_here.isdisjoint(source_ids))
        if not (is_lost and unread):
            here = _as_unknown(source_ids, bytes_here, unk_id) if is_lost else source_ids
            _require_same(f"{where} is encoded", here, their_ids)
        if engine is None:
            _require_same_states(where, bundle, model, source_ids)
            continue
        given = ours.given(language)
        [[best]] = decode(engine, [source_ids], SearchOptions(settings), prefixes=[given_prefix(given)])
        target_ids = list(best.tokens)
        logits = _their_logits(model, bundle.config, source_ids, target_ids)
        log_probs = logits.log_softmax(dim=-1).gather(1, torch.tensor(target_ids)[:, None])[len(given) :, 0]
        theirs = log_probs.double().sum().item()
        if not abs(best.log_prob - theirs) <= TOLERANCE * len(target_ids):
            raise ModelError(f"{where}: its translation has log-probability {best.log_prob:.4f}, there {theirs:.4f}")
        of_text = [token_id for token_id in target_ids if token_id not in bytes_here]
        lost += is_lost or of_text != target_ids
        # Neither the tokens that begin every translation nor the end token, which may be special in one library alone.
        framed = {*given, bundle.config.eos_id}
        if not unread:
            _require_same_text(f"{where} is translated", tokenizer, ours, [one for one in of_text if one not in framed])
        _require_same_search(where, model, engine, ours, settings, source_ids, language)
    if unread:
        return (
            f"the same, but for the tokens of {lost} of {len(sources)} sentences: from a sentencepiece model alone, "
            f"their tokenizer does not read {', '.join(unread)}; here they are sentencepiece's, and so are the texts"
        )
    _require_same_added(directory, tokenizer, ours, sources[:1], settings, bytes_here)
    return (
        f"the same, but for bytes in {lost} of {len(sources)} sentences, which their tokenizer loses from a "
        f"sentencepiece model alone; here they are sentencepiece's"
        if lost
        else None
    )


def prove_added_tokens(directory: Path, bundle: Bundle, sources: Sequence[str]) -> None:
    """Require that the tokenizer of a directory reads and writes added tokens as ours, where transformers loads it.

    Args:
        directory: Directory of a tokenizer of transformers, beside a model in the format of another library.
        bundle: Our model.
        sources: Source sentences, of which the first is compared with every token within.

    Raises:
        ModelError: Showing the first difference, or if transformers cannot read the tokenizer.
    """
    tokenizer = _their_tokenizer(directory)
    bytes_here, _ = _byte_pieces(directory, bundle.tokenizer)
    _require_same_added(directory, tokenizer, bundle.tokenizer, sources[:1], proof_settings(bundle), bytes_here)


def _require_same_search(
    where: str,
    model: Any,
    engine: Engine,
    vocabulary: Vocabulary,
    settings: DecodeConfig,
    source: list[int],
    language: str | None,
) -> None:
    """Require that `generate`, with its own settings, starts, continues and ends as our search does.

    Settings that are not taken over, as the notes say, are set to have no effect. The translations are compared if both
    end by themselves; of two that are equally good, either may be found.
    """
    config = engine.model.config
    given, is_alone = vocabulary.given(language), config.is_decoder_alone
    limit = min(len(source) + settings.extra_length, _MOST_GENERATED)
    own = {name: value for name, value in model.generation_config.to_dict().items() if value is not None}
    search = neutral_settings(own, is_decoder_alone=is_alone)
    search["suppress_tokens"] = [token for token in never_written(config) if token not in given] or None
    is_told = isinstance(vocabulary, ForeignVocabulary) and "target_lang" in vocabulary.file.target_frame
    if is_told and given:
        search["forced_bos_token_id"] = given[0]
    ids = torch.tensor([source])
    if own.get("num_beams", 1) == 1:
        del search["early_stopping"]
    with warnings.catch_warnings():  # of settings that have no effect without sampling
        warnings.simplefilter("ignore")
        [row] = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_length=None, max_new_tokens=limit, **search
        ).tolist()
    theirs = row[len(source) :] if is_alone else row[1:]
    if not is_alone:
        _require_same(f"{where} is translated from the start tokens", [config.bos_id, *given], row[: 1 + len(given)])
    forced = own.get("forced_bos_token_id")
    if not (is_alone or is_told or forced is None):
        _require_same(f"{where} is translated with the forced token", given[:1], (forced,))
    end = own.get("eos_token_id")
    if end is not None:
        ends = end if isinstance(end, list) else [end]
        _require_same(f"{where} is translated with the end token", [config.eos_id], ends)
    if theirs[-1] != config.eos_id:
        return
    here = settings.with_changes({"length_penalty_form": "power", "end_loops": False, "extra_length": limit})
    prefix = given_prefix(given)
    [[best]] = decode(engine, [source], SearchOptions(here), prefixes=[prefix])
    if best.tokens == tuple(theirs) or len(best.tokens) >= limit:
        return
    both = [list(best.tokens), theirs]
    here_score, their_score = (_rank_score(model, config, source, ids, settings.length_penalty) for ids in both)
    if not abs(here_score - their_score) <= TOLERANCE:
        _require_same(f"{where} is translated as", *both)


def _rank_score(model: Any, config: ModelConfig, source: list[int], target: list[int], alpha: float) -> float:
    log_probs = _their_logits(model, config, source, target).double().log_softmax(dim=-1)
    return log_probs.gather(1, torch.tensor(target)[:, None]).sum().item() / len(target) ** alpha


def _require_same_text(what: str, tokenizer: Any, ours: Vocabulary, ids: Sequence[int]) -> None:
    there = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    # transformers reads a sentencepiece model through another library, which leaves spaces at the ends.
    _require_same(what, ours.decode(ids).strip(), there.strip())


def _require_same_added(
    directory: Path,
    tokenizer: Any,
    ours: Vocabulary,
    sources: Sequence[str],
    settings: DecodeConfig,
    bytes_here: Collection[int],
) -> None:
    """Require that both encode and decode tokens added in fine-tuning alike, each within a golden sentence."""
    if not isinstance(ours, ForeignVocabulary):
        return
    added = dict([*ours.added_tokens.items()][:_MOST_ADDED])
    for language, text in ours.split_sources(sources, settings.target_lang):
        words = text.split(" ")
        half = len(words) // 2
        for token, number in added.items():
            where = f"{directory}: the added token {token!r:.60} within a text"
            within = " ".join([*words[:half], token, *words[half:]])
            [ids] = ours.encode_parts([(language, within)], settings.source_lang)
            theirs = _their_ids(tokenizer, _tag(ours, language), within, settings.source_lang)
            if set(bytes_here).isdisjoint(ids):
                _require_same(f"{where} is encoded", ids, theirs)
            if number < ours.vocab_size:  # the sides of Marian may be numbered apart
                _require_same_text(f"{where} is decoded", tokenizer, ours, [number])


def _tag(ours: Vocabulary, language: str | None) -> str:
    return "" if language is None else ours.source_pieces([ours.language_tags[language]])[0]


def _byte_pieces(directory: Path, vocabulary: Vocabulary) -> tuple[set[int], int]:
    """Return the ids of byte pieces that transformers may lose, and the id of the unknown token."""
    if not isinstance(vocabulary, ForeignVocabulary) or (directory / "tokenizer.json").exists():
        return set(), 0
    side = vocabulary.file.source
    byte_pieces = {number for number, piece in enumerate(side.pieces) if piece is not None and _BYTE.fullmatch(piece)}
    return byte_pieces if side.speller == "sentencepiece" else set(), side.unk_id


def _unread_settings(tokenizer: Any, vocabulary: Vocabulary) -> list[str]:
    """Return the settings of a sentencepiece model that transformers loses when it makes its own tokenizer of it."""
    if not isinstance(vocabulary, ForeignVocabulary) or not hasattr(tokenizer, "backend_tokenizer"):
        return []
    if (side := vocabulary.file.source).speller != "sentencepiece":
        return []
    read = {**_READ, "model_type": type(tokenizer.backend_tokenizer.model).__name__.lower()}
    settings = sentencepiece_settings(side.model)
    return [f"{name} = {value}" for name, value in settings.items() if value != read[name]]


def _as_unknown(ids: Sequence[int], byte_pieces: Collection[int], unk_id: int) -> list[int]:
    """Return ids with every run of byte pieces replaced by one unknown token."""
    unknown = [unk_id if token_id in byte_pieces else token_id for token_id in ids]
    before = [None, *unknown]
    return [token_id for number, token_id in enumerate(unknown) if token_id != unk_id or before[number] != unk_id]


def _their_model(directory: Path, kind: str) -> tuple[Any, Any]:
    with _transformers(directory) as transformers:
        kinds: Mapping[str, Any] = {
            "bert": transformers.AutoModel,
            "encoder-decoder": transformers.EncoderDecoderModel,
            "gpt2": transformers.AutoModelForCausalLM,
        }
        kind_of_model = kinds.get(kind, transformers.AutoModelForSeq2SeqLM)
        model = kind_of_model.from_pretrained(str(directory), **_OURS, dtype=torch.float32).eval()
    return _their_tokenizer(directory), model


def _their_tokenizer(directory: Path) -> Any:
    with _transformers(directory) as transformers:
        return transformers.AutoTokenizer.from_pretrained(str(directory), **_OURS)


@contextmanager
def _transformers(directory: Path) -> Iterator[Any]:
    """Import the library without its messages, and name the directory in its errors."""
    with warnings.catch_warnings():  # the warnings address programmers
        warnings.simplefilter("ignore")
        import transformers

        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
        try:
            yield transformers
        except Exception as error:  # transformers may raise any exception
            said = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            raise ModelError(f"transformers cannot read {directory} to compare with ({said:.300})") from None


def _their_logits(model: Any, config: ModelConfig, source: list[int], target: list[int]) -> Float[Tensor, "T V"]:
    if config.is_decoder_alone:
        return model(input_ids=torch.tensor([[*source, *target[:-1]]])).logits[0, len(source) - 1 :]
    start = torch.tensor([[config.bos_id, *target[:-1]]])
    return model(input_ids=torch.tensor([source]), decoder_input_ids=start).logits[0]


def _require_same_states(where: str, bundle: Bundle, model: Any, source: list[int]) -> None:
    ids = torch.tensor([source])
    theirs = model(input_ids=ids, output_hidden_states=True).hidden_states
    for layer, (here, there) in enumerate(zip(bundle.model.hidden_states(ids).encoder, theirs, strict=True)):
        if not (difference := (here - there).abs().max().item()) <= TOLERANCE:
            raise ModelError(f"{where}: the states after layer {layer} differ by {difference:.1e}")


def _their_ids(tokenizer: Any, tag: str, text: str, source_lang: str | None) -> list[int]:
    if hasattr(tokenizer, "src_lang") and source_lang is not None:
        tokenizer.src_lang = source_lang
        return list(tokenizer(text)["input_ids"])
    space = " " if tagged_language(tag) is not None else ""  # a clearhead tag includes the space after it
    return list(tokenizer(tag + space + text)["input_ids"])


def _require_same(what: str, here: object, there: object) -> None:
    if here != there:
        raise ModelError(f"{what} {here!r:.300} here, and {there!r:.300} by transformers; nothing was written")
