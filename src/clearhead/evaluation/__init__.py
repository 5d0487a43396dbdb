"""How good a translator is: corpus metrics, the comparison of two systems, and golden sentences."""

from clearhead.evaluation.alignment_error import (
    AlignmentScores,
    GoldLinks,
    alignment_scores,
    read_gold_links,
)
from clearhead.evaluation.comparison import Comparison, MetricComparison, compare
from clearhead.evaluation.golden import check_golden, make_golden
from clearhead.evaluation.metrics import DEFAULT_METRICS, Evaluation, Metric, bleu, chrf, evaluate, exact_match, judge

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
    "check_golden",
    "chrf",
    "compare",
    "evaluate",
    "exact_match",
    "judge",
    "make_golden",
    "read_gold_links",
]
