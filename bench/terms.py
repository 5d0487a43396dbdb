"""Terminology: how many terms are met, BLEU and speed, with and without `--terms`, in both engines.

python bench/terms.py MODEL --source test2016.en --reference test2016.de --train-source train.en --train-target train.de

The terms come from the data: a content word of a source, with the words that stand most often beside it in the training
text (Dice's coefficient) and look alike as its forms. A line of the test set is taken if it has so many terms and its
reference has a form of each: so what is asked for is right, and BLEU may rise.

`--prices` compares the log-probabilities of sentences with and without these terms, and with wrong ones: how often they
fall by more than a bound, and how many of the sentences that terms spoil are found by it.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any

from clearhead.decoding import Engine, NativeEngine, PyTorchEngine
from clearhead.evaluation import bleu
from clearhead.evaluation.metrics import sentence_chrf
from clearhead.files import read_lines
from clearhead.formats import read_parallel
from clearhead.runtime.threads import set_num_threads
from clearhead.translation.terminology import Term, Terms, forms_in
from clearhead.translation.translator import Translator

LEAST_LETTERS = 4
"""Of a content word."""
MOST_LINES = 0.02
"""Maximum share of the training lines in which a content word may occur."""
LEAST_DICE = 0.3
"""Of a word and its translation."""
LEAST_DICE_OF_FORMS = 0.02
SPOILED = 10.0
"""Points of chrF that a sentence lost by its terms."""
ALIKE = 0.6
"""Share of its letters that a form has in common with the translation, from the beginning."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("model", type=Path, metavar="MODEL", help="a trained model or run")
    parser.add_argument("--source", required=True, nargs="+", help="a test set")
    parser.add_argument("--reference", required=True, nargs="+", help="its translations")
    parser.add_argument("--train-source", required=True, help="what the terms are made from")
    parser.add_argument("--train-target", required=True)
    parser.add_argument("--least-dice", type=float, default=LEAST_DICE, metavar="X")
    parser.add_argument("--per-line", type=int, default=2, metavar="N", help="terms of a line, at least")
    parser.add_argument("--lines", type=int, default=500, metavar="N")
    parser.add_argument("--beam", type=int, nargs="+", default=[1, 4], metavar="K")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="lines to print, as they are with and without")
    parser.add_argument("--prices", action="store_true", help="what the price of terms tells, instead")
    options = parser.parse_args()
    if options.threads:
        set_num_threads(options.threads)
    test = [
        (pair.source, pair.target)
        for files in zip(options.source, options.reference, strict=True)
        for pair in read_parallel([files[0]], [files[1]])
    ]
    train = list(zip(read_lines(options.train_source), read_lines(options.train_target), strict=True))
    terms = Terms(_terms(train, {word for source, _ in test for word in _words(source)}, options.least_dice))
    chosen = list(islice(_lines_with_terms(test, terms, options.per_line), options.lines))
    asked = sum(len(terms.found_in(source)) for source, _ in chosen)
    print(f"{len(terms):,} terms; {len(chosen):,} lines with {asked:,} of them\n")
    translator = Translator.load(options.model)
    if options.prices:
        for beam in options.beam:
            _print_prices(translator, chosen, terms, beam)
        return
    _print_row("engine", "", "terms met", "BLEU", "lines a second")
    _print_row(*["---"] * 5)
    for engine in _engines(translator):
        translator.engines._built["fp32"] = engine
        translator.translate([source for source, _ in chosen[:20]], terms=terms, scores=False)
        for beam in options.beam:
            for given in (None, terms):
                _print_way(translator, chosen, terms, given, beam)
    if options.show:
        _show(translator, chosen[: options.show], terms)


def _print_way(
    translator: Translator, lines: Sequence[tuple[str, str]], terms: Terms, given: Terms | None, beam: int
) -> None:
    sources, references = zip(*lines, strict=True)
    start = process_time()
    texts = [one.text for one in translator.translate(sources, terms=given, scores=False, beam_size=beam)]
    seconds = process_time() - start
    met = [bool(form) for source, text in zip(sources, texts, strict=True) for form in _used(terms, source, text)]
    name = type(translator.engines._built["fp32"]).__name__.removesuffix("Engine")
    way = f"`--beam {beam}{' --terms' if given else ''}`"
    quality = bleu(texts, references).score
    _print_row(name, way, f"{sum(met) / len(met):.1%}", f"{quality:.1f}", f"{len(lines) / seconds:.0f}")


def _print_prices(translator: Translator, lines: Sequence[tuple[str, str]], terms: Terms, beam: int) -> None:
    sources, references = zip(*lines, strict=True)
    forms = [term.forms for term in terms.terms]
    random.Random(1).shuffle(forms)
    wrong = Terms([Term(term.source, own) for term, own in zip(terms.terms, forms, strict=True)])
    free = translator.translate(sources, beam_size=beam)
    found: dict[bool, list[tuple[float, bool]]] = {}
    for given in (terms, wrong):
        bound = translator.translate(sources, beam_size=beam, terms=given)
        both = zip(references, free, bound, strict=True)
        found[given is wrong] = [
            ((one.score or 0.0) - (other.score or 0.0), _loss(reference, one.text, other.text) > SPOILED)
            for reference, one, other in both
            if one.text != other.text
        ]
    spoiled = [price for of_terms in found.values() for price, is_spoiled in of_terms if is_spoiled]
    print(f"\nbeam {beam}: {len(found[False]):,} lines changed by good terms, {len(found[True]):,} by wrong ones\n")
    _print_row("price above", "good terms", "spoiled sentences")
    _print_row(*["---"] * 3)
    for most in (10, 15, 20, 30):
        shares = (
            sum(price > most for price in prices) / max(1, len(prices))
            for prices in ([price for price, _ in found[False]], spoiled)
        )
        _print_row(f"{most} nats", *(f"{share:.0%}" for share in shares))


def _loss(reference: str, before: str, after: str) -> float:
    one, other = sentence_chrf([before, after], [reference, reference])
    return one - other


def _show(translator: Translator, lines: Sequence[tuple[str, str]], terms: Terms) -> None:
    sources = [source for source, _ in lines]
    ways: list[dict[str, Any]] = [{}, {"terms": terms}]
    found = zip(lines, *(translator.translate(sources, **way) for way in ways), strict=True)
    for (source, reference), without, with_terms in found:
        if without.text != with_terms.text:
            print(f"\n{source}\n{reference}\n{without.text}\n{with_terms.text}\n{with_terms.terms}")


def _used(terms: Terms, source: str, text: str) -> list[str]:
    return forms_in(terms.found_in(source), text)


def _engines(translator: Translator) -> Iterator[Engine]:
    model = translator.bundle.model
    yield PyTorchEngine(model)
    if NativeEngine.supports(model, "fp32"):
        yield NativeEngine(model, "fp32")


def _lines_with_terms(test: Iterable[tuple[str, str]], terms: Terms, per_line: int) -> Iterator[tuple[str, str]]:
    for source, reference in test:
        forms = _used(terms, source, reference)
        if len(forms) >= per_line and all(forms):
            yield source, reference


def _terms(train: Sequence[tuple[str, str]], wanted: set[str], least_dice: float) -> Iterator[Term]:
    """Yield content words with their aligned target words, and forms of these."""
    counts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    together: dict[str, Counter[str]] = {}
    for source, target in train:
        sides = set(_words(source)), set(_words(target))
        for count, words in zip(counts, sides, strict=True):
            count.update(words)
        for word in sides[0] & wanted:
            together.setdefault(word, Counter()).update(sides[1])
    for word, beside in sorted(together.items()):
        if len(word) < LEAST_LETTERS or not 5 <= counts[0][word] <= MOST_LINES * len(train):
            continue
        dice = {other: 2 * both / (counts[0][word] + counts[1][other]) for other, both in beside.items()}
        best = max(dice, key=lambda other: (dice[other], other))
        if dice[best] >= least_dice and len(best) >= LEAST_LETTERS:
            forms = [other for other in dice if dice[other] >= LEAST_DICE_OF_FORMS and _are_alike(other, best)]
            yield Term(word, tuple(sorted(forms, key=lambda other: (-dice[other], other))))


def _are_alike(one: str, other: str) -> bool:
    common = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return common >= ALIKE * max(len(one), len(other))


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text) if word.isalpha()]


def _print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
