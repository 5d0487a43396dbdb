"""A model exported to other libraries, on real text: how many lines each of them translates as we do.

    python bench/exports.py runs/de-en --source test2016.de.gz

All search with the same beams and divide by length ** alpha, the form that all of them have; ONNX has no search of its
own, so the one of `onnx_search.py` is taken, with the weights in float32 and in 8-bit integers. Where a text differs,
both are printed, with the scores that our model gives them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import ctranslate2
import tokenizers
import torch
import transformers

from clearhead.bundle import load_bundle
from clearhead.config import DecodeConfig
from clearhead.files.streams import read_lines
from clearhead.interop.export_model import export_directory
from clearhead.runtime.threads import num_threads, set_num_threads
from clearhead.translation.translator import Translator
from onnx_search import OnnxSearch

_AT_ONCE = 50
_SHOWN = 3


def main() -> None:
    summary, _, about = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("--source", required=True, metavar="FILE")
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.0, 0.6], help="length penalties (0 and 0.6)")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    set_num_threads(options.threads)
    bundle = load_bundle(options.model)
    lines = list(read_lines(options.source))
    bundle.decode = bundle.decode.with_changes(
        {"length_penalty_form": "power", "end_loops": False, "split": "never", "familiar": False}
    )
    ours = Translator(bundle)
    with tempfile.TemporaryDirectory() as directory:
        searches: dict[str, Callable[[Sequence[str], float], list[str]]] = {}
        for to, precision, search in (
            ("hf", "float32", _transformers),
            ("ctranslate2", "float32", _ctranslate2),
            ("onnx", "float32", _onnx),
            ("onnx", "int8", _onnx),
        ):
            name = to if precision == "float32" else f"{to} {precision}"
            there = Path(directory, name)
            _, compared, _ = export_directory(bundle, there, to, lines[:8], precision)  # type: ignore[arg-type]
            print(f"{name}: {compared}")
            searches[name] = search(there, bundle.decode)
        for alpha in options.alpha:
            found = [one.text for one in ours.translate(lines, length_penalty=alpha, raw=True)]
            for name, search in searches.items():
                theirs = search(lines, alpha)
                different = [row for row, texts in enumerate(zip(found, theirs, strict=True)) if len(set(texts)) > 1]
                same = len(lines) - len(different)
                print(f"length penalty {alpha:g}, {name}: {same:,} of {len(lines):,} lines the same", flush=True)
                for row in different[:_SHOWN]:
                    scores = ours.score([lines[row]] * 2, [found[row], theirs[row]])
                    print(f"  {scores[0]:.3f} {found[row]!r}\n  {scores[1]:.3f} {theirs[row]!r}")


def _transformers(directory: Path, decode: DecodeConfig) -> Callable[[Sequence[str], float], list[str]]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory).eval()

    def translate(lines: Sequence[str], alpha: float) -> list[str]:
        texts: list[str] = []
        for first in range(0, len(lines), _AT_ONCE):
            batch = tokenizer(list(lines[first : first + _AT_ONCE]), return_tensors="pt", padding=True)
            with torch.inference_mode():
                limit = batch["input_ids"].size(1) + decode.extra_length
                found = model.generate(
                    **batch, num_beams=decode.beam_size, length_penalty=alpha, max_length=None, max_new_tokens=limit
                )
            texts += tokenizer.batch_decode(found, skip_special_tokens=True)
        return texts

    return translate


def _ctranslate2(directory: Path, decode: DecodeConfig) -> Callable[[Sequence[str], float], list[str]]:
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    translator = ctranslate2.Translator(str(directory), compute_type="float32")

    def translate(lines: Sequence[str], alpha: float) -> list[str]:
        read = [[tokenizer.id_to_token(number) for number in tokenizer.encode(line).ids] for line in lines]
        found = translator.translate_batch(
            read,
            beam_size=decode.beam_size,
            length_penalty=alpha,
            min_decoding_length=0,
            max_decoding_length=max(map(len, read)) + decode.extra_length,
            max_batch_size=_AT_ONCE,
        )
        written = [[tokenizer.token_to_id(token) for token in one.hypotheses[0]] for one in found]
        return tokenizer.decode_batch(written)

    return translate


def _onnx(directory: Path, decode: DecodeConfig) -> Callable[[Sequence[str], float], list[str]]:
    model = OnnxSearch(directory, num_threads())
    ways = {"beam_size": decode.beam_size, "extra_length": decode.extra_length}
    return lambda lines, alpha: [model.translate(line, alpha=alpha, **ways) for line in lines]


if __name__ == "__main__":
    main()
