"""The attention log of a run, `attention.jsonl`: cross-attention of a few validation pairs at every validation.

The file holds attention weights, one byte each, and no text. The text of the pairs is in the prepared data.

Shapes: L layers, H heads, T target tokens, S source tokens, P pairs, all padded to the longest.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.data.batches import collate
from clearhead.data.store import PairStore
from clearhead.decoding.pytorch.weights import cross_attention_weights
from clearhead.files import open_own, read_json_lines, write_text
from clearhead.model.transformer import Transformer

_NUM_PAIRS = 3
_SHORTEST, _LONGEST = 5, 20
"""Bounds on the tokens of each side of a pair that fits a small picture."""

Snapshot = tuple[int, list[Float32[np.ndarray, "L H T S"]]]
"""A step, and the cross-attention of each pair at that step. Teacher-forced: row T belongs to reference token T."""


class AttentionLog:
    """Log of the cross-attention of the first few validation pairs that fit a small picture."""

    def __init__(self, run: Path, valid: PairStore, config: ModelConfig) -> None:
        self._path = run / "attention.jsonl"
        self._valid = valid
        self._config = config
        lengths = np.stack([valid.source_lengths[:], valid.target_lengths[:]])
        fits = ((lengths >= _SHORTEST) & (lengths <= _LONGEST)).all(axis=0)
        self.rows: list[int] = np.flatnonzero(fits)[:_NUM_PAIRS].tolist()

    def cut(self, step: int) -> None:
        """Remove the records after the validation from which a run resumes."""
        if self.rows:
            write_text(self._path, "".join(self._line(*snapshot) for snapshot in self.read() if snapshot[0] <= step))

    @torch.inference_mode()
    def add(self, model: Transformer, step: int) -> None:
        """Append a model's cross-attention to the log, and leave its training mode as it was.

        Args:
            model: Model that holds all its weights, not a sharded one.
            step: Optimiser steps that the model has been trained for.
        """
        if not self.rows:
            return
        was_training = model.training
        batch = collate(self._valid, self.rows, pad_id=model.config.pad_id, bos_id=model.config.bos_id)
        source, target = batch.source.to(model.device), batch.target_out.to(model.device)
        model.eval()
        cross: Float[Tensor, "L P H T S"] = torch.stack(cross_attention_weights(model, source, target)).float().cpu()
        model.train(was_training)
        weights = [cross[:, number, :, :rows, :columns].numpy() for number, (rows, columns) in enumerate(self._sizes())]
        with open_own(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
            file.write(self._line(step, weights).encode())

    def read(self) -> list[Snapshot]:
        """Return the logged snapshots. Damaged lines are skipped: the log is only for display."""
        if not self._path.exists():
            return []
        return [logged for _, record in read_json_lines(self._path) if (logged := self._snapshot(record)) is not None]

    def _line(self, step: int, weights: Sequence[Float32[np.ndarray, "L H T S"]]) -> str:
        parts = [base64.b64encode(np.rint(255 * matrix).astype(np.uint8).tobytes()).decode() for matrix in weights]
        return json.dumps({"step": step, "rows": self.rows, "weights": parts}) + "\n"

    def _snapshot(self, record: Any) -> Snapshot | None:
        try:
            if record["rows"] != self.rows or type(record["step"]) is not int:
                return None
            heads = self._config.num_decoder_layers, self._config.num_heads
            return record["step"], [
                np.frombuffer(base64.b64decode(text), np.uint8).reshape(*heads, *size).astype(np.float32) / 255
                for text, size in zip(record["weights"], self._sizes(), strict=True)
            ]
        except (KeyError, TypeError, ValueError):
            return None

    def _sizes(self) -> list[tuple[int, int]]:
        """Return the numbers of target and source tokens of each pair."""
        rows = np.array(self.rows, dtype=np.int64)
        sizes = self._valid.target_lengths[rows].tolist(), self._valid.source_lengths[rows].tolist()
        return list(zip(*sizes, strict=True))
