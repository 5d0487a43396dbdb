"""Ways to decode, beside each other: quality, words of the source language, and how much the n best differ.

python bench/ways.py MODEL --source val.de --reference val.en --train-source train.de --train-target train.en
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from time import process_time
from typing import Any

from clearhead.config import Sampling
from clearhead.evaluation import bleu, chrf
from clearhead.files import read_lines
from clearhead.runtime.threads import set_num_threads
from clearhead.translation.translator import Translator

WAYS: dict[str, dict[str, Any]] = {
    "`--beam 1`": {"beam_size": 1},
    "`--beam 4`": {"beam_size": 4},
    "`--sample --epsilon 0`": {"sampling": Sampling(epsilon=0.0)},
    "`--sample --epsilon 0 --top-p 0.9`": {"sampling": Sampling(epsilon=0.0, top_p=0.9)},
    "`--sample --epsilon 0.005`": {"sampling": Sampling(epsilon=0.005)},
    "`--sample` (epsilon 0.02)": {"sampling": Sampling()},
    "`--sample --epsilon 0.05`": {"sampling": Sampling(epsilon=0.05)},
    "`--mbr 16`": {"mbr": 16},
    "`--mbr 64`": {"mbr": 64},
    "`--mbr 64 --epsilon 0`": {"mbr": 64, "sampling": Sampling(epsilon=0.0)},
}
DIVERSITIES = (0.0, 0.2, 0.5, 0.8, 1.5)
NUM_BEST = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("model", type=Path, metavar="MODEL", help="a trained model or run")
    parser.add_argument("--ensemble", type=Path, action="append", default=[], metavar="MODEL2")
    parser.add_argument("--source", required=True, help="a test set")
    parser.add_argument("--reference", required=True, help="its translations")
    parser.add_argument("--train-source", required=True, help="what the words of either language are told from")
    parser.add_argument("--train-target", required=True)
    parser.add_argument("--threads", type=int, metavar="N")
    options = parser.parse_args()
    if options.threads:
        set_num_threads(options.threads)
    sources, references = (list(read_lines(path)) for path in (options.source, options.reference))
    foreign = _words(read_lines(options.train_source)) - _words(read_lines(options.train_target))
    translator = Translator.load(options.model, ensemble=options.ensemble)
    _print_ways(translator, sources, references, foreign)
    _print_diversity(translator, sources, references)


def _print_ways(translator: Translator, sources: Sequence[str], references: Sequence[str], foreign: set[str]) -> None:
    _print_row("way", "BLEU", "chrF", "lines with words of the source language alone", "seconds")
    _print_row(*["---"] * 5)
    for name, settings in WAYS.items():
        start = process_time()
        texts = [one.text for one in translator.translate(sources, scores=False, **settings)]
        seconds = process_time() - start
        leaking = sum(not _words([text]).isdisjoint(foreign) for text in texts) / len(texts)
        quality = (f"{metric(texts, references).score:.1f}" for metric in (bleu, chrf))
        _print_row(name, *quality, f"{leaking:.1%}", f"{seconds:.1f}")


def _print_diversity(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> None:
    print(f"\n`--beam {NUM_BEST} --nbest {NUM_BEST}`\n")
    _print_row(
        "`--diversity`", "different words a line", "BLEU of each with the others", "BLEU of the first", "seconds"
    )
    _print_row(*["---"] * 5)
    for diversity in DIVERSITIES:
        start = process_time()
        settings: dict[str, Any] = {"beam_size": NUM_BEST, "num_best": NUM_BEST, "diversity": diversity}
        found = translator.translate(sources, scores=False, **settings)
        seconds = process_time() - start
        best = [[one.text for one in line.alternatives] for line in found if line.alternatives]
        words = sum(len(_words(texts)) for texts in best) / len(best)
        pairs = [pair for texts in best for pair in permutations(texts, 2)]
        alike = bleu(*map(list, zip(*pairs, strict=True))).score
        first = bleu([line.text for line in found], references).score
        _print_row(f"{diversity:g}", f"{words:.1f}", f"{alike:.1f}", f"{first:.1f}", f"{seconds:.1f}")


def _words(lines: Any) -> set[str]:
    return {word for line in lines for word in re.findall(r"[^\W\d_]+", line.casefold())}


def _print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
