"""Evaluation of translations: corpus metrics, comparison of two systems, alignment error rate."""

from clearhead.evaluation.alignment_error import AlignmentScores, GoldLinks, alignment_scores, read_gold_links
from clearhead.evaluation.comparison import Comparison, MetricComparison, compare
from clearhead.evaluation.metrics import DEFAULT_METRICS, Evaluation, Metric, bleu, chrf, exact_match, judge

__all__ = [
    "DEFAULT_METRICS",
    "AlignmentScores",
    "Comparison",
    "Evaluation",
    "GoldLinks",
    "Metric",
    "MetricComparison",
    "alignment_scores",
    "bleu",
    "chrf",
    "compare",
    "exact_match",
    "judge",
    "read_gold_links",
]
