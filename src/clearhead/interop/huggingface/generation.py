"""Generation settings of Hugging Face transformers: taken over, refused or named in a note, each one.

Like `generate`, this reads them from `generation_config.json`; without that file, from `config.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding.rules import never_written
from clearhead.errors import ConfigError
from clearhead.interop.readers.foreign_config import optional_json

TAKEN = ("decoder_start_token_id", "eos_token_id", "forced_bos_token_id", "num_beams", "length_penalty")
"""Settings that are taken over for every model; those of lengths and n-grams mostly (`search_settings`)."""

NOT_TAKEN: Mapping[str, Any] = {
    "assistant_early_exit": None,
    "bad_words_ids": None,
    "begin_suppress_tokens": None,
    "constraints": None,
    "diversity_penalty": 0.0,
    "do_sample": False,
    "dola_layers": None,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "guidance_scale": 1.0,
    "max_time": None,
    "min_length": 0,
    "min_new_tokens": None,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "penalty_alpha": None,
    "remove_invalid_values": False,
    "renormalize_logits": False,
    "repetition_penalty": 1.0,
    "sequence_bias": None,
    "stop_strings": None,
    "suppress_tokens": None,
    "token_healing": False,
    "watermarking_config": None,
}
"""Settings that change what is written and that ours lacks, or lacks for some models, and what disables each."""

SEPARATE = ("early_stopping", "forced_eos_token_id", "max_length", "max_new_tokens")
"""Settings with a note of their own."""

WITHOUT_EFFECT = (
    *("bos_token_id", "pad_token_id"),  # the start token if there is no other; written behind an end
    *("temperature", "top_k", "top_p", "top_h", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"),  # of sampling
    *("cache_config", "cache_implementation", "max_cache_len", "prefill_chunk_size", "use_cache", "low_memory"),
    *("compile_config", "disable_compile", "continuous_batching_config", "use_mtp"),
    *("assistant_confidence_threshold", "assistant_lookbehind", "is_assistant", "num_assistant_tokens"),
    *("num_assistant_tokens_schedule", "target_lookbehind", "prompt_lookup_num_tokens", "max_matching_ngram_size"),
    *("assistant_ensemble_weight", "speculation_type"),
    *("output_attentions", "output_hidden_states", "output_logits", "output_scores", "return_dict_in_generate"),
    *("transformers_version", "_from_model_config"),
)
"""Settings that do not change what greedy and beam search write."""


def read_generation(directory: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the generation settings of a directory that are set.

    Args:
        directory: Directory of the model.
        values: The fields of `config.json`.
    """
    said = optional_json(directory / "generation_config.json")
    if said is None:
        known = {*TAKEN, *NOT_TAKEN, *SEPARATE}
        part = values.get("decoder")
        whole = {**(part if isinstance(part, Mapping) else {}), **_set(values)}
        said = {name: value for name, value in whole.items() if name in known}
    return _set(said)


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def with_special_tokens(values: Mapping[str, Any], generation: Mapping[str, Any], origin: Path) -> dict[str, Any]:
    """Return the fields of `config.json` with the start and end token of the generation settings, which count.

    Raises:
        ConfigError: If there are several end tokens.
    """
    changed = dict(values)
    end = generation.get("eos_token_id")
    if isinstance(end, list):
        if len(end) != 1:
            raise ConfigError(
                f"{origin}: eos_token_id is {end!r:.60}, but our search ends at one token; keep the one that the model "
                f"was trained to end with"
            )
        end = end[0]
    if end is not None:
        changed["eos_token_id"] = end
    if (start := generation.get("decoder_start_token_id", generation.get("bos_token_id"))) is not None:
        changed["decoder_start_token_id"] = start
    return changed


def forced_token(generation: Mapping[str, Any], origin: Path) -> int | None:
    """Return the token that begins every translation; None without one.

    Raises:
        ConfigError: If it is not one token.
    """
    forced = generation.get("forced_bos_token_id")
    if isinstance(forced, list) and len(forced) == 1:
        forced = forced[0]
    if forced is not None and type(forced) is not int:
        raise ConfigError(f"{origin}: forced_bos_token_id is {forced!r:.60}, but must be the id of one token")
    return forced


def search_settings(generation: Mapping[str, Any], *, is_decoder_alone: bool) -> dict[str, Any]:
    """Return the search settings that have the same meaning in both libraries.

    A decoder alone counts its input in `min_length` and searches it for n-grams there, and not here.
    """
    settings = {"beam_size": generation.get("num_beams", 1), "length_penalty": generation.get("length_penalty", 1.0)}
    least = generation.get("min_new_tokens")
    if type(least) is int and least > 0:  # without the end token, and counts more than min_length
        settings["min_length"] = least + 1
    if is_decoder_alone:
        return settings
    settings.setdefault("min_length", generation.get("min_length", 0))
    return {**settings, "no_repeat_ngram_size": generation.get("no_repeat_ngram_size", 0)}


def generation_notes(config: ModelConfig, generation: Mapping[str, Any], decode: DecodeConfig) -> list[str]:
    """Return notes on settings that are not taken over.

    Args:
        config: Our model settings.
        generation: Their settings that are set.
        decode: Our settings, as taken over.
    """
    is_alone = config.is_decoder_alone
    taken = {"min_new_tokens"} if is_alone else {"min_length", "min_new_tokens", "no_repeat_ngram_size"}
    never = never_written(config)
    ours: dict[str, list[Any]] = {"bad_words_ids": [[token] for token in never]}
    ours |= dict.fromkeys(("suppress_tokens", "begin_suppress_tokens"), never)
    notes = [
        f"{name} = {generation[name]!r:.60} is not taken over: our search has no such setting"
        for name, nothing in NOT_TAKEN.items()
        if name not in taken
        and generation.get(name, nothing) not in (nothing, None)
        and not _is_among(generation[name], ours.get(name, []))
    ]
    if is_alone and generation.get("forced_bos_token_id") is not None:
        notes.append("forced_bos_token_id is not taken over: a decoder alone continues a text")
    if generation.get("early_stopping") not in (None, "never") and decode.beam_size > 1:
        notes.append("early_stopping is not taken over: ours stops when no hypothesis can win any more")
    if (end := generation.get("forced_eos_token_id")) is not None and end not in (config.eos_id, [config.eos_id]):
        notes.append(
            f"forced_eos_token_id = {end!r:.60} is not taken over: at the limit a translation ends with its end"
        )
    most = min(config.max_positions, decode.max_input_tokens + decode.extra_length)
    for name in ("max_length", "max_new_tokens"):
        if (limit := generation.get(name)) is not None and not (isinstance(limit, int) and limit >= most):
            notes.append(
                f"{name} = {limit!r:.60} is not taken over: a translation may have {decode.extra_length} tokens more "
                f"than its source (extra_length)"
            )
    known = {*TAKEN, *NOT_TAKEN, *SEPARATE, *WITHOUT_EFFECT}
    unknown = sorted(name for name, value in generation.items() if name not in known and value not in (False, [], {}))
    return [
        *notes,
        *(f"{name:.60} = {generation[name]!r:.60} is not known here, and not taken over" for name in unknown),
    ]


def _is_among(asked: object, done: Sequence[object]) -> bool:
    """Return whether our search already excludes all tokens that their setting excludes."""
    return isinstance(asked, list) and all(token in done for token in asked)


def neutral_settings(generation: Mapping[str, Any], *, is_decoder_alone: bool) -> dict[str, Any]:
    """Return what makes `generate` search without the settings that are not taken over."""
    taken = {"min_new_tokens"} if is_decoder_alone else {"min_length", "min_new_tokens", "no_repeat_ngram_size"}
    neutral = {name: nothing for name, nothing in NOT_TAKEN.items() if name in generation and name not in taken}
    return {**neutral, "early_stopping": "never", "forced_eos_token_id": None}
