"""Parity check with onnxruntime, of an export or an import: the same scores, with and without a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.bundle import Bundle
from clearhead.config.choices import ForeignPrecision
from clearhead.decoding import SearchOptions, decode, given_prefix
from clearhead.decoding.step import pad_batch
from clearhead.errors import ModelError
from clearhead.interop.imported import MOST_ROUNDING, TOLERANCE, proof_settings
from clearhead.runtime.threads import num_threads


@torch.inference_mode()
def prove_onnx(directory: Path, bundle: Bundle, sources: Sequence[str], precision: ForeignPrecision) -> str:
    """Compare a model with its ONNX files in onnxruntime, on our translations of a few sentences.

    Args:
        directory: Directory of the ONNX files.
        bundle: Our model.
        sources: Source sentences; each may begin with a target-language tag.
        precision: Precision of the ONNX weights. In float32 the scores must be equal but for rounding; otherwise close.

    Returns:
        A summary of the comparison, in words.

    Raises:
        ModelError: If the scores differ by more, or the files cannot be loaded.
    """
    model, tokenizer, config, settings = bundle.model, bundle.tokenizer, bundle.config, proof_settings(bundle)
    parts = tokenizer.split_sources(sources, settings.target_lang)
    source_ids = tokenizer.encode_parts(parts, settings.source_lang)
    prefixes = [given_prefix(tokenizer.given(language)) for language, _ in parts]
    searched = decode(model, source_ids, SearchOptions(settings), prefixes=prefixes)
    targets = [list(best.tokens) for (best,) in searched]
    source, target = pad_batch(source_ids, config.pad_id), pad_batch(targets, config.pad_id)  # [B, S], [B, T]
    given = torch.cat([torch.full((len(targets), 1), config.bos_id), target[:, :-1]], dim=1)
    is_written = target != config.pad_id
    here = model(source, given).log_softmax(dim=-1)
    differences, same = [], []
    for there in _logits(directory, source, given, source != config.pad_id):
        of_tokens = (there.log_softmax(dim=-1) - here).gather(2, target[:, :, None])[:, :, 0]  # [B, T]
        differences.append((of_tokens * is_written).sum(dim=1).abs() / is_written.sum(dim=1))
        same.append(int(((there.argmax(dim=-1) == here.argmax(dim=-1)) & is_written).sum()))
    largest = torch.stack(differences).max().item()
    if not largest <= (TOLERANCE if precision == "float32" else MOST_ROUNDING):
        raise ModelError(
            f"a translation has another score in onnxruntime, by {largest:.4f} a token; nothing was written"
        )
    return (
        f"{len(sources)} sentences: with the cache and without, scores differ by {largest:.1e} a token at most, and "
        f"{min(same)} of {int(is_written.sum())} tokens have the same most probable successor in onnxruntime"
    )


def _logits(directory: Path, source: Tensor, given: Tensor, is_source: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits of all target positions [B, T, V], computed in one pass and computed step by step."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads()
    options.log_severity_level = 3  # errors only; warnings address programmers

    def session(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
        try:
            loaded = onnxruntime.InferenceSession(str(directory / name), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime may raise any exception
            raise ModelError(f"onnxruntime cannot load the {name} that was written: {error!s:.300}") from None
        names = [output.name for output in loaded.get_outputs()]
        return lambda inputs: dict(zip(names, loaded.run(names, inputs), strict=True))

    ids, mask = given.numpy(), is_source.long().numpy()
    encoded = session("encoder_model.onnx")({"input_ids": source.numpy(), "attention_mask": mask})
    decoder, continued = session("decoder_model.onnx"), session("decoder_with_past_model.onnx")
    states = {"encoder_hidden_states": encoded["last_hidden_state"], "encoder_attention_mask": mask}
    together = decoder({"input_ids": ids, **states})["logits"]
    outputs = decoder({"input_ids": ids[:, :1], **states})
    past: dict[str, Any] = {}
    steps = [outputs.pop("logits")]
    for position in range(1, ids.shape[1]):
        past |= {name.replace("present", "past_key_values"): value for name, value in outputs.items()}
        outputs = continued({"input_ids": ids[:, position : position + 1], "encoder_attention_mask": mask, **past})
        steps.append(outputs.pop("logits"))
    return torch.from_numpy(together), torch.from_numpy(np.concatenate(steps, axis=1))
