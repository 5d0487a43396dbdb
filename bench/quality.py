"""The quality estimate: how well it and its parts agree with chrF, its calibration, its constants, and its time.

python bench/quality.py --valid de-en MODEL val.de val.en \
    --test de-en test.de test.en --test de-en news.de news.en

--valid names a model, and translated text on which its own calibration is fitted; --test names text to judge it on.
The general constants for a model are fitted on the tests of the other models; those of all are printed last. A model
that learned from another model's translations is surer than others: --student names one that is only judged. With
--samples, so many samples of each line are drawn as well, for their agreement with the translation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from clearhead.config import Sampling
from clearhead.decoding import expected_chrf
from clearhead.evaluation.metrics import sentence_chrf
from clearhead.formats import read_parallel
from clearhead.runtime.threads import set_num_threads
from clearhead.text.line_statistics import length_ratio
from clearhead.translation.quality import GOOD_CHRF, Calibration, QualityEstimator
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator

T = TypeVar("T")

BINS = 10
"""Groups of equally many translations, by quality; in each the mean quality should be the share of good ones."""


FIFTHS = 5
"""Groups in which the quality is printed beside the share of good translations."""


class Judged(NamedTuple):
    """Translations of a text, and what is known of them."""

    model: str
    name: str
    parts: Mapping[str, np.ndarray]
    """Values by which to order the translations, higher for better ones; `sureness` among them."""
    chrf: np.ndarray

    @property
    def is_good(self) -> np.ndarray:
        """Which translations are good."""
        return self.chrf >= GOOD_CHRF


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--valid", nargs=4, action="append", required=True, metavar=("NAME", "MODEL", "SOURCE", "REF"))
    parser.add_argument("--test", nargs=3, action="append", required=True, metavar=("NAME", "SOURCE", "REF"))
    parser.add_argument("--student", action="append", default=[], metavar="NAME")
    parser.add_argument("--lines", type=int, default=1_000, metavar="N", help="lines of each text at most")
    parser.add_argument("--samples", type=int, default=0, metavar="N", help="samples of each line")
    parser.add_argument("--threads", type=int, metavar="N")
    options = parser.parse_args()
    if options.threads:
        set_num_threads(options.threads)
    own: dict[str, Calibration] = {}
    tests: list[Judged] = []
    for name, model, source, reference in options.valid:
        translator = Translator.load(model, device="cpu")
        valid = _judged(translator, name, source, reference, options.lines, 0)
        own[name] = _fitted([valid])
        for of_model, *files in options.test:
            if of_model == name:
                tests.append(_judged(translator, name, *files, options.lines, options.samples))
    _print_correlations(tests)
    ordinary = [one for one in tests if one.model not in options.student]
    _print_calibration(tests, ordinary, own)
    _print_fifths(tests, own)
    print(f"\ngeneral constants, of all models but students: {_fitted(ordinary)}")


def _judged(translator: Translator, model: str, source: str, reference: str, lines: int, samples: int) -> Judged:
    pairs = [(pair.source.strip(), pair.target.strip()) for pair in read_parallel([source], [reference])]
    pairs = [pairs[row] for row in np.linspace(0, len(pairs) - 1, min(lines, len(pairs)), dtype=int)]
    sources = [source for source, _ in pairs]
    seconds, found = _timed(lambda: translator.translate(sources, split="never"))
    rows = [row for row, one in enumerate(found) if one.score is not None and one.source and one.text]
    sources, found = [sources[row] for row in rows], [found[row] for row in rows]
    chrf = np.array(sentence_chrf([one.text for one in found], [pairs[row][1] for row in rows]))
    estimator = QualityEstimator(Calibration(), translator.bundle.line_statistics)
    scored = [(one.source, one.text, one.score or 0.0) for one in found]
    estimating, sure = _timed(lambda: [estimator.sureness(*one) for one in scored])
    parts = {
        "score per token": [one.score_per_token or 0.0 for one in found],
        "score per word": [score / (len(text.split()) + 1) for _, text, score in scored],
        "score per character": [score / (len(text) + 1) for _, text, score in scored],
        "length ratio": [length_ratio(source, text) for source, text, _ in scored],
        "sureness": sure,
    }
    attending, parts["coverage by attention"] = _timed(lambda: _coverage(translator, sources, found))
    times = f"search {seconds:.1f} s, sureness {estimating:.3f} s, attention {attending:.1f} s"
    if samples:
        sampling, parts[f"agreement of {samples} samples"] = _timed(
            lambda: _agreement(translator, sources, found, samples)
        )
        times += f", samples {sampling:.1f} s"
    print(f"{model} on {source}: {len(rows):,} lines, chrF {chrf.mean():.1f}; {times}", flush=True)
    return Judged(model, source, {name: np.array(values) for name, values in parts.items()}, chrf)


def _coverage(translator: Translator, sources: Sequence[str], found: Sequence[Translation]) -> list[float]:
    """Return for each translation how much attention its source tokens got at most, on average over them."""
    config = translator.decode_config({"max_input_tokens": 100_000})
    pairs = translator.pair_encoder.read(sources, [one.text for one in found], config)
    engine, covered = translator.engines.of("fp32"), []
    for pair in pairs:
        (weights,) = engine.cross_attention([pair.source_ids], [pair.target_ids])  # type: ignore[attr-defined]
        covered.append(float(weights.mean(axis=(0, 1)).max(axis=0)[:-1].mean()))
    return covered


def _agreement(translator: Translator, sources: Sequence[str], found: Sequence[Translation], count: int) -> list[float]:
    """Return for each translation its mean chrF with samples as references."""
    sampling = Sampling(seed=1)
    drawn = translator.translate(sources, split="never", sampling=sampling, num_best=count, scores=False)
    return [
        expected_chrf([one.text, *(sample.text for sample in samples.alternatives)])[0]
        for one, samples in zip(found, drawn, strict=True)
    ]


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _fitted(some: Sequence[Judged]) -> Calibration:
    sure, chrf = (
        np.concatenate(values) for values in zip(*((one.parts["sureness"], one.chrf) for one in some), strict=True)
    )
    return Calibration.fitted(sure.tolist(), chrf.tolist())


def _print_correlations(tests: Sequence[Judged]) -> None:
    print("\nSpearman's correlation with sentence chrF\n")
    names = list(tests[0].parts)
    rows = [[one.model, one.name, *(f"{spearman(one.parts[name], one.chrf):.2f}" for name in names)] for one in tests]
    _print_table(["model", "text", *names], rows)


def _print_calibration(tests: Sequence[Judged], ordinary: Sequence[Judged], own: Mapping[str, Calibration]) -> None:
    print(f"\nerror of calibration in {BINS} bins: mean of |quality - share of chrF {GOOD_CHRF:.0f} or more|\n")
    rows = []
    for one in tests:
        others = [other for other in ordinary if other.model != one.model]
        of_model = {"general": _fitted(others) if others else Calibration(), "own": own[one.model]}
        errors = []
        for calibration in of_model.values():
            quality = np.array([calibration.quality(sure) for sure in one.parts["sureness"]])
            errors.append(f"{calibration_error(quality, one.is_good):.3f}")
        sure_of = quality >= 0.9
        good = f"{one.is_good[sure_of].mean():.0%} of {sure_of.sum():,}" if sure_of.any() else "none"
        rows.append([one.model, one.name, f"{one.is_good.mean():.0%}", *errors, good])
    _print_table(["model", "text", "good", "others' constants", "own constants", "good of those from 0.9"], rows)


def _print_fifths(tests: Sequence[Judged], own: Mapping[str, Calibration]) -> None:
    print("\nmean quality by own constants / share of good translations, by fifths of the quality\n")
    rows = []
    for one in tests:
        quality = np.array([own[one.model].quality(sure) for sure in one.parts["sureness"]])
        order = np.argsort(quality, kind="stable")
        parts = [*np.array_split(order, min(FIFTHS, len(order))), order]
        rows.append(
            [one.model, one.name, *(f"{quality[at].mean():.2f} / {one.is_good[at].mean():.2f}" for at in parts)]
        )
    _print_table(["model", "text", "lowest", *[""] * (len(rows[0]) - 5), "highest", "all"], rows)


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Return the correlation of the ranks; equal values share their mean rank. NaN if all values of one are equal."""
    with np.errstate(invalid="ignore"):
        return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def calibration_error(quality: np.ndarray, is_good: np.ndarray) -> float:
    """Return the mean distance of the quality from the share of good translations, over bins of equal size."""
    bins = np.array_split(np.argsort(quality, kind="stable"), min(BINS, len(quality)))
    return float(sum(len(one) * abs(quality[one].mean() - is_good[one].mean()) for one in bins) / len(quality))


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
