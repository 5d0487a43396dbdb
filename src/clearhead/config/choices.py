"""`Literal` types of the named choices, such as optimizers and metrics, for settings, commands and their code.

Each type is defined once. The meaning of each name is documented with its setting in `config/`. This file imports
nothing else of the package, so that the command line can list the names without slow imports.
"""

from __future__ import annotations

from typing import Literal

TokenizerKind = Literal["bpe", "unigram", "wordpiece", "imported"]

NormOrder = Literal["post", "pre"]
NormKind = Literal["layer", "rms"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
SinusoidLayout = Literal["sinusoidal", "sinusoidal_halves", "sinusoidal_t2t"]
PositionKind = Literal[SinusoidLayout, "learned", "rotary", "relative", "none"]
Tying = Literal["three-way", "decoder", "embeddings", "none"]

Optimizer = Literal["adam", "adamw", "muon"]
Schedule = Literal["noam", "linear", "cosine", "constant"]
OwnPart = Literal["model", "loss"]
TrainPrecision = Literal["auto", "fp32", "bf16"]
Tracker = Literal["trackio", "mlflow", "wandb"]

PenaltyForm = Literal["gnmt", "power"]
Split = Literal["auto", "always", "never"]
ForeignLibrary = Literal["hf", "ctranslate2", "onnx"]
ExportLibrary = Literal[ForeignLibrary, "clearhead", "web"]
HuggingFaceName = Literal["transformers", "huggingface"]
"""Other names of `hf` on the command line."""
ForeignPrecision = Literal["float32", "float16", "bfloat16", "int16", "int8"]
StoredPrecision = Literal["int8", "bf16"]
ExportPrecision = Literal[ForeignPrecision, StoredPrecision]
AlignBy = Literal["attention", "occlusion"]
AlignmentWords = Literal["spaced", "characters"]
DecodePrecision = Literal["fp32", "bf16x3", "bf16", "fp16", "int8"]

MetricName = Literal["bleu", "chrf", "chrf++"]
Tokenization = Literal["13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200", "none"]

HoldOut = Literal["file", "passage", "line"]

FixKind = Literal["mojibake", "entities", "swapped", "shifted"]
"""Findings of the data doctor that can be mended."""
DropKind = Literal[
    FixKind,
    "wrong_language",
    "other_language",
    "wrong_script",
    "no_translation",
    "empty",
    "placeholders",
    "identical",
    "length_ratio",
    "too_long",
    "duplicate",
    "control_characters",
    "invisible",
    "numbers",
    "brackets",
    "several_targets",
]
"""Findings of the data doctor whose pairs can be dropped."""
