"""Model card of a model directory, its README.md: architecture, training data, settings and quality."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearhead.bundle import Bundle, own_parts
from clearhead.config import NO_GOLDEN
from clearhead.runtime.version import full_version


def model_card(name: str, bundle: Bundle) -> str:
    """Return the Markdown model card of a model that was trained with this package.

    Args:
        name: Name of the model directory.
        bundle: The model. Its `info` records how it was trained.
    """
    info = bundle.info
    shape = bundle.model.config
    files = "\n".join(
        f"| {_cell(Path(file['path']).name)} | {file['lines']} | {_read_as(file)} "
        f"| {file['sha256'] or 'not known (standard input)'} |"
        for file in info["data"]["files"]
    )
    metrics, training = info["metrics"], info["training"]
    mixed_in = f" and {info['data']['general']['kept']:,} of general text" if "general" in info["data"] else ""
    general_row = ""
    if "general_chrf" in metrics:
        general_row = f"| general text (greedy) | BLEU {metrics['general_bleu']}, chrF {metrics['general_chrf']} |\n"
    lines = bundle.line_statistics
    given = info["settings"]["golden"]
    golden = "words of its vocabulary" if given is None else _cell(f"sentences of {given}")
    if given == NO_GOLDEN:
        golden = "none"
    quoted = shlex.quote(name)
    return f"""# {name}

A Transformer trained by clearhead {full_version()}.

    clearhead translate {quoted} < input.txt > output.txt

| | |
| --- | --- |
| shape | {shape.num_encoder_layers}+{shape.num_decoder_layers} layers, d_model {shape.d_model}, d_ff {shape.d_ff}, \
{shape.num_heads} heads, {shape.norm}-norm |
| parameters | {bundle.model.num_parameters():,} |
| vocabulary | {bundle.tokenizer.vocab_size:,} {info["data"]["tokenizer"]["kind"]} pieces |
| languages asked for by tag | {", ".join(bundle.tokenizer.language_tags) or "none"} |
| preset | {info["preset"]} |
| weights | {info["weights"]} |
{_origin_rows(name, bundle)}| trained | {training["date"]}, {training["steps"]:,} steps, \
{training["target_tokens"]:,} target tokens, \
{training["minutes"]} minutes |
| training pairs | {info["data"]["train"]["kept"]:,}{mixed_in} |
| training lines | {"not known" if lines is None else lines} |
| validation BLEU (greedy) | {metrics["valid_bleu"]} `{_cell(metrics["bleu_signature"])}` |
| validation chrF (greedy) | {metrics["valid_chrf"]} `{_cell(metrics["chrf_signature"])}` |
| validation perplexity per piece | {metrics["valid_ppl"]} |
{general_row}| golden sentences | {golden} |

## Training data

| file | lines | read as | SHA-256 |
| --- | --- | --- | --- |
{files}

The full settings stand in `config.json`. `clearhead verify {quoted}` checks that the files are whole and that the model
still gives the translations in `golden.jsonl`.
"""


def _origin_rows(name: str, bundle: Bundle) -> str:
    """Return rows that name the model before this one, and parts whose code came from elsewhere."""
    rows = ""
    if start := bundle.info.get("started_from"):
        rows += f"| started from | {_cell(start['name'])}, SHA-256 of its weights {start['sha256']} |\n"
    if came := bundle.imported_from:
        rows += f"| imported from | {_cell(came['name'])}, of the kind {came['kind']}, of {came['library']} |\n"
    if own := own_parts(bundle.info):
        load = f"; `clearhead.Translator.load({name!r}, model=...)` loads it" if "model" in own else ""
        rows += f"| own parts | {' and '.join(own)}, whose code is not in this directory{load} |\n"
    return rows


def _read_as(file: Mapping[str, Any]) -> str:
    words = file["read_as"]
    return "one segment a line" if words is None else _cell(words)


def _cell(text: object) -> str:
    """Return text with `|` escaped for a Markdown table cell."""
    return str(text).replace("|", r"\|")
