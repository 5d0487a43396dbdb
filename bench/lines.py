"""Lines as users write them, and flags: BLEU of joined and altered lines, false alarms, and damage that is found.

python bench/lines.py MODEL --source test2016.de --reference test2016.en
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from clearhead.evaluation import bleu
from clearhead.evaluation.metrics import judge
from clearhead.formats import read_parallel
from clearhead.runtime.threads import set_num_threads
from clearhead.text.quality_flags import Flag, SeenInTraining, find_flags
from clearhead.text.sentence_splitting import split_sentences
from clearhead.translation.translator import Translator

JOINED = (1, 2, 3, 5, 10)
"""Sentences of the test set on a line."""

DAMAGE: dict[str, tuple[str, Callable[[str, str], tuple[str, str]]]] = {
    "a third of the translation is left": ("too_short", lambda source, target: (source, target[: len(target) // 3])),
    "the translation occurs twice": ("too_long", lambda source, target: (source, f"{target} {target}")),
    "its last two words eight times": (
        "repetition",
        lambda source, target: (source, f"{target} {' '.join(target.split()[-2:] * 7)}"),
    ),
    "the source instead": ("copied", lambda source, target: (source, source)),
    "a Cyrillic word in the source": ("unseen_script", lambda source, target: (f"{source} Привет", target)),
    "an emoji in the source": ("unseen_characters", lambda source, target: (f"{source} 🙂", target)),
    "2016 became 2017": ("numbers", lambda source, target: (f"{source} 2016", f"{target} 2017")),
    "`<b>` is gone": ("placeholders", lambda source, target: (f"<b>{source}", target)),
}
"""What is done to human translations or their sources, and the flag that should be there then."""


ALTERED: dict[str, tuple[Callable[[str], str], Callable[[str], str]]] = {
    "as it is": (str, str),
    "in upper case": (str.upper, str.upper),
    "in small letters": (str.lower, str),
    "without its end mark": (lambda source: source.rstrip(".!?"), lambda target: target.rstrip(".!?")),
    "with stray spaces": (lambda source: "  " + source.replace(" ", "   ", 2), str),
}
"""What users do to a line, and what its translation should be then."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("model", type=Path, metavar="MODEL", help="a trained model or run")
    parser.add_argument("--source", required=True, help="a test set of one sentence a line")
    parser.add_argument("--reference", required=True, help="its translations")
    parser.add_argument("--joined", nargs="+", type=int, default=JOINED, metavar="N", help="sentences on a line")
    parser.add_argument("--threads", type=int, metavar="N")
    options = parser.parse_args()
    if options.threads:
        set_num_threads(options.threads)
    pairs = [
        (pair.source.strip(), pair.target.strip()) for pair in read_parallel([options.source], [options.reference])
    ]
    translator = Translator.load(options.model)
    _print_joined(translator, pairs, options.joined)
    _print_altered(translator, pairs)
    _print_flags(translator, pairs)


def _print_joined(translator: Translator, pairs: Sequence[tuple[str, str]], numbers: Sequence[int]) -> None:
    def translated(number: int, mode: str) -> float:
        found = translator.translate(_joined([source for source, _ in pairs], number), scores=False, split=mode)
        return bleu([one.text for one in found], _joined([target for _, target in pairs], number)).score

    alone = [one.text for one in translator.translate([source for source, _ in pairs], scores=False, split="never")]
    targets = [target for _, target in pairs]
    rows = {
        "`--split never`": [translated(number, "never") for number in numbers],
        "`--split auto`": [translated(number, "auto") for number in numbers],
        "translated one a line, then joined": [bleu(_joined(alone, n), _joined(targets, n)).score for n in numbers],
    }
    _print_table(
        ["sentences a line", *map(str, numbers)], [[name, *map("{:.1f}".format, row)] for name, row in rows.items()]
    )


def _print_altered(translator: Translator, pairs: Sequence[tuple[str, str]]) -> None:
    print()
    rows = []
    for name, (of_source, of_target) in ALTERED.items():
        found = translator.translate([of_source(source) for source, _ in pairs], scores=False)
        texts, references = [one.text for one in found], [of_target(target) for _, target in pairs]
        scores = (
            judge(texts, references, metrics=["bleu"], lowercase=lowercase).metrics["bleu"].score
            for lowercase in (False, True)
        )
        rows.append([name, *map("{:.1f}".format, scores)])
    _print_table(["the line", "BLEU", "in lower case"], rows)


def _print_flags(translator: Translator, pairs: Sequence[tuple[str, str]]) -> None:
    bundle = translator.bundle
    seen = SeenInTraining.of(
        bundle.line_statistics, lambda: bundle.tokenizer.pieces(range(bundle.tokenizer.vocab_size))
    )

    def flags(source: str, target: str) -> tuple[Flag, ...]:
        sentences = len(split_sentences(source, bundle.decode.source_lang))
        tokens = len(bundle.tokenizer.encode(source)) + 1
        return find_flags(source, target, tokens=tokens, sentences=sentences, seen=seen)

    translations = translator.translate([source for source, _ in pairs], scores=False)
    by_model = Counter(flag.kind for translation in translations for flag in translation.warnings)
    by_people = Counter(
        flag.kind for source, target in pairs for flag in flags(source, target) if flag.kind != "longer_than_trained"
    )
    kinds = dict.fromkeys([*by_model, *by_people])
    print(f"\nflags on {len(pairs):,} lines\n")
    _print_table(
        ["kind", "human translations", "the model's"], [[k, str(by_people[k]), str(by_model[k])] for k in kinds]
    )
    print()
    rows = []
    for damage, (kind, change) in DAMAGE.items():
        found = sum(kind in {flag.kind for flag in flags(*change(*pair))} for pair in pairs)
        rows.append([damage, kind, f"{found / len(pairs):.1%}"])
    _print_table(["damage to human translations", "flag", "found"], rows)


def _joined(texts: Sequence[str], number: int) -> list[str]:
    return [" ".join(texts[at : at + number]) for at in range(0, len(texts), number)]


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
