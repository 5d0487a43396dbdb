"""What a model says here beside what it says in another library: the same tokens, the same scores, the same text."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from clearhead.bundle import Bundle
from clearhead.choices import ExportPrecision
from clearhead.decoding import SearchOptions, decode, given_prefix
from clearhead.errors import ModelError
from clearhead.language_tags import language_tag
from clearhead.tokenizers import Tokenizer

__all__ = ["can_prove", "prove", "prove_ctranslate2"]

TOLERANCE = 1e-3
"""Nats that the score of a translation may differ by, for each of its tokens: both round in float32."""


MOST_ROUNDING = 0.5
"""The same for weights that were rounded; beyond it nothing is left of the model."""


def can_prove() -> bool:
    """Tell whether their library is installed."""
    return importlib.util.find_spec("transformers") is not None


@torch.inference_mode()
def prove(directory: Path, kind: str, bundle: Bundle, sources: Sequence[str]) -> None:
    """Compare a model that came from a directory of theirs, or is about to become one, with it on a few sentences.

    Of each, their tokenizer must spell the source in the same ids, their model must find our translation as probable as
    ours does, and their tokenizer must read its ids as the same text.

    Args:
        directory: Where their model stands.
        kind: Their `model_type`.
        bundle: The model here.
        sources: Sentences; each may begin with the tag of the language to write.

    Raises:
        ModelError: Showing the first difference, or if their library cannot read the directory.
    """
    tokenizer, model = _their_model(directory, kind)
    ours, settings = bundle.tokenizer, bundle.decode
    for number, (language, text) in enumerate(ours.split_sources(sources, settings.target_lang), start=1):
        where = f"{directory}: golden sentence {number} ({text!r:.60})"
        [source_ids] = ours.encode_parts([(language, text)], settings.source_lang)
        is_ours = isinstance(ours, Tokenizer)
        their_ids = _their_ids(tokenizer, language, text, settings.source_lang, is_ours=is_ours)
        _require_same(f"{where} is spelled", source_ids, their_ids)
        given = ours.given(language)
        [[found]] = decode(bundle.model, [source_ids], SearchOptions(settings), prefixes=[given_prefix(given)])
        target_ids = list(found.tokens)
        start = torch.tensor([[bundle.model.config.bos_id, *target_ids[:-1]]])
        logits = model(input_ids=torch.tensor([source_ids]), decoder_input_ids=start).logits[0]
        log_probs = logits.log_softmax(dim=-1).gather(1, torch.tensor(target_ids)[:, None])[len(given) :, 0]
        theirs = log_probs.double().sum().item()
        if not abs(found.log_prob - theirs) <= TOLERANCE * len(target_ids):
            raise ModelError(f"{where}: its translation has log-probability {found.log_prob:.4f}, there {theirs:.4f}")
        there = tokenizer.decode(target_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        # transformers reads a sentencepiece model through another library, which leaves spaces at the ends.
        _require_same(f"{where} is translated", ours.decode(target_ids).strip(), there.strip())


@torch.inference_mode()
def prove_ctranslate2(directory: Path, bundle: Bundle, sources: Sequence[str], precision: ExportPrecision) -> str:
    """Compare a model with what CTranslate2 makes of it, on a few sentences.

    Args:
        directory: Where their model stands.
        bundle: The model here, with a vocabulary of ours.
        sources: Sentences; each may begin with the tag of the language to write.
        precision: Of the weights there. In float32 the scores of our translations must be the same, otherwise near.

    Returns:
        What was found, in words.

    Raises:
        ModelError: If the scores differ by more, or their library cannot load the directory.
    """
    import ctranslate2

    tokenizer = bundle.tokenizer
    assert isinstance(tokenizer, Tokenizer)
    names = tokenizer.tokens()
    try:
        theirs = ctranslate2.Translator(
            str(directory), device="cpu", compute_type="float32" if precision == "float32" else "default"
        )
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"CTranslate2 cannot load what was written: {error}") from None
    ids = tokenizer.encode_parts(tokenizer.split_sources(sources, bundle.decode.target_lang))
    found = [best for (best,) in decode(bundle.model, ids, SearchOptions(bundle.decode))]
    read = [[names[token] for token in source] for source in ids]
    written = [[names[token] for token in best.tokens[:-1]] for best in found]
    scores = [sum(one.log_probs) for one in theirs.score_batch(read, written)]
    largest = max(abs(best.log_prob - score) / len(best.tokens) for best, score in zip(found, scores, strict=True))
    if not largest <= (TOLERANCE if precision == "float32" else MOST_ROUNDING):
        raise ModelError(
            f"a translation has another score in CTranslate2, by {largest:.4f} a token; nothing was written"
        )
    settings = {
        "beam_size": bundle.decode.beam_size,
        "length_penalty": bundle.decode.length_penalty,
        "max_decoding_length": max(map(len, ids)) + bundle.decode.extra_length,
    }
    same = sum(
        one.hypotheses[0] == tokens
        for one, tokens in zip(theirs.translate_batch(read, **settings), written, strict=True)
    )
    return (
        f"{len(sources)} sentences: scores differ by {largest:.1e} a token at most, and CTranslate2's own search finds "
        f"{same} of the same translations"
    )


def _their_model(directory: Path, kind: str) -> tuple[Any, Any]:
    with warnings.catch_warnings():  # which are for those who write programs with it
        warnings.simplefilter("ignore")
        import transformers

        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        where = {
            "pretrained_model_name_or_path": str(directory),
            "local_files_only": True,
            "trust_remote_code": False,  # else it would ask whether to run what stands there
        }
        two_parts = kind == "encoder-decoder"
        kind_of_model: Any = transformers.EncoderDecoderModel if two_parts else transformers.AutoModelForSeq2SeqLM
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
            return tokenizer, kind_of_model.from_pretrained(**where, dtype=torch.float32).eval()
        except Exception as error:  # their library raises anything
            said = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            raise ModelError(f"transformers cannot read {directory} to compare with ({said:.300})") from None


def _their_ids(tokenizer: Any, language: str | None, text: str, source_lang: str | None, *, is_ours: bool) -> list[int]:
    if hasattr(tokenizer, "src_lang") and source_lang is not None:
        tokenizer.src_lang = source_lang
        return list(tokenizer(text)["input_ids"])
    tag = "" if language is None else f"{language_tag(language)} " if is_ours else f">>{language}<<"
    return list(tokenizer(tag + text)["input_ids"])


def _require_same(what: str, here: object, there: object) -> None:
    if here != there:
        raise ModelError(f"{what} {here!r:.300} here, and {there!r:.300} by transformers; nothing was written")
