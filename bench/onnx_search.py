"""A beam search over the ONNX files of an exported model, one sentence at a time, without any code of clearhead.

It stops when no open hypothesis can win, and divides log-probabilities by length ** alpha.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tokenizers

__all__ = ["OnnxSearch"]


class OnnxSearch:
    """An exported model, loaded.

    Args:
        directory: What `clearhead export --to onnx` wrote.
        threads: Of each product.
    """

    def __init__(self, directory: Path, threads: int = 1) -> None:
        self.tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._settings = json.loads((directory / "generation_config.json").read_text(encoding="utf-8"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._sessions = {
            name: onnxruntime.InferenceSession(str(directory / f"{name}.onnx"), options)
            for name in ("encoder_model", "decoder_model", "decoder_with_past_model")
        }

    def translate(self, text: str, *, beam_size: int, alpha: float, extra_length: int) -> str:
        """Return the best translation of a text that has at most `extra_length` tokens more than it."""
        source = self.tokenizer.encode(text).ids
        found = self.search(source, beam_size=beam_size, alpha=alpha, max_length=len(source) + extra_length)
        return self.tokenizer.decode(found)

    def search(self, source: list[int], *, beam_size: int, alpha: float, max_length: int) -> list[int]:
        """Return the tokens of the best translation, its end token among them."""
        end = self._settings["eos_token_id"]
        mask = np.ones((1, len(source)), np.int64)
        memory = self._run("encoder_model", input_ids=np.array([source]), attention_mask=mask)["last_hidden_state"]
        start = np.array([[self._settings["decoder_start_token_id"]]])
        given = self._run("decoder_model", input_ids=start, encoder_hidden_states=memory, encoder_attention_mask=mask)
        beams: list[tuple[float, list[int]]] = [(0.0, [])]
        ended: list[tuple[float, list[int]]] = []
        past: dict[str, np.ndarray] = {}
        for length in range(1, max_length + 1):
            log_probs = _log_softmax(given.pop("logits")[:, -1].astype(np.float64))
            log_probs[:, self._settings["suppress_tokens"]] = -np.inf
            if length == max_length:
                log_probs[:, np.arange(log_probs.shape[1]) != end] = -np.inf
            past |= {name.replace("present", "past_key_values"): value for name, value in given.items()}
            scores = np.array([[score] for score, _ in beams]) + log_probs
            # Of twice as many ways as there are beams, one at most of each beam is an end.
            best = np.argsort(-scores, axis=None, kind="stable")[: 2 * beam_size]
            ways = [
                (float(scores[row, token]), int(row), int(token))
                for row, token in zip(*np.unravel_index(best, scores.shape), strict=True)
            ]
            ended += [
                (score / length**alpha, beams[row][1] + [end]) for score, row, token in ways[:beam_size] if token == end
            ]
            ways = [way for way in ways if way[2] != end][:beam_size]
            if ended and (not ways or max(ended)[0] >= ways[0][0] / max_length**alpha):
                break
            rows = [row for _, row, _ in ways]
            beams = [(score, [*beams[row][1], token]) for score, row, token in ways]
            past = {name: value[rows] for name, value in past.items()}
            newest = np.array([[token] for _, _, token in ways])
            given = self._run(
                "decoder_with_past_model", input_ids=newest, encoder_attention_mask=mask.repeat(len(rows), 0), **past
            )
        return max(ended)[1]

    def _run(self, name: str, **inputs: Any) -> dict[str, np.ndarray]:
        names = [output.name for output in self._sessions[name].get_outputs()]
        return dict(zip(names, self._sessions[name].run(names, inputs), strict=True))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
