"""What a model gains from the similar pairs of a memory that it consults: chrF, BLEU and CPU time, by setting.

    python bench/memory_neighbours.py runs/de-en --memory train.de train.en --lines val.de val.en --settings

Without `--settings` only the model alone and the defaults are compared. Look-ups are part of the time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import sacrebleu

from clearhead.decoding import neighbours
from clearhead.files import read_lines
from clearhead.translation.memory import TranslationMemory
from clearhead.translation.translator import Translator

CONSTANTS: dict[str, tuple[float, ...]] = {"TEMPERATURE": (0.01, 0.03, 0.1, 0.3), "REACH": (0.3, 0.4, 0.6, 0.8)}
"""Other values of the constants of `clearhead.decoding.neighbours`."""
COUNTS, WEIGHTS, LEAST = (1, 2, 4, 16), (0.2, 0.4, 0.6, 0.9), (0.4, 0.5)


def main() -> None:
    """Print a line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--memory", nargs=2, metavar="FILE", required=True)
    parser.add_argument("--lines", nargs=2, metavar="FILE", required=True)
    parser.add_argument("--most", type=int, default=400, help="lines of the text that are translated")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--settings", action="store_true", help="also other settings than the defaults")
    given = parser.parse_args()
    nearest = TranslationMemory(zip(*map(read_lines, given.memory), strict=True)).nearest
    sources, references = ([*read_lines(path)][: given.most] for path in given.lines)

    def measure(name: str, retrieve: Callable | None, **settings: float) -> None:
        translator = Translator.load(given.model, device="cpu")  # without cached keys
        before = time.process_time()
        found = translator.translate(sources, neighbours=retrieve, scores=False, precision=given.precision, **settings)
        seconds = time.process_time() - before
        texts = [translation.text for translation in found]
        chrf, bleu = (score(texts, [references]).score for score in (sacrebleu.corpus_chrf, sacrebleu.corpus_bleu))
        print(f"{name:20} chrF {chrf:5.2f}  BLEU {bleu:5.2f}  CPU {seconds:6.1f} s", flush=True)

    measure("model alone", None)
    measure("defaults", nearest)
    if not given.settings:
        return
    for count in COUNTS:
        measure(f"{count} pairs", partial(nearest, count=count))
    for weight in WEIGHTS:
        measure(f"weight {weight}", nearest, memory_weight=weight)
    for least in LEAST:
        measure(f"from similarity {least}", partial(nearest, least=least))
    for name, values in CONSTANTS.items():
        own = getattr(neighbours, name)
        for value in values:
            setattr(neighbours, name, value)
            measure(f"{name.lower()} {value}", nearest)
        setattr(neighbours, name, own)


if __name__ == "__main__":
    main()
