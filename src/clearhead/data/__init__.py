"""From pairs of text to batches of ids: cleaning, holding out, the store on disk, the order of the steps."""

from __future__ import annotations

from clearhead.data.batches import Batch, BatchOrder, collate, split, valid_batches
from clearhead.data.clean import REASONS, CleaningReport, clean, key_digest, normalized_key
from clearhead.data.inputs import InputFile, changed_inputs, input_files, missing_inputs
from clearhead.data.prepare import Prepared, automatic_vocab_size, open_prepared, prepare
from clearhead.data.store import PairStore, StoreWriter

__all__ = [
    "REASONS",
    "Batch",
    "BatchOrder",
    "CleaningReport",
    "InputFile",
    "PairStore",
    "Prepared",
    "StoreWriter",
    "automatic_vocab_size",
    "changed_inputs",
    "clean",
    "collate",
    "input_files",
    "key_digest",
    "missing_inputs",
    "normalized_key",
    "open_prepared",
    "prepare",
    "split",
    "valid_batches",
]
