"""How good a translator is: corpus metrics, the comparison of two systems, and golden sentences."""

from clearhead.evaluation.comparison import Comparison, MetricComparison, compare
from clearhead.evaluation.golden import check_golden, make_golden
from clearhead.evaluation.metrics import DEFAULT_METRICS, Evaluation, Metric, bleu, chrf, evaluate, exact_match, judge

__all__ = [
    "DEFAULT_METRICS",
    "Comparison",
    "Evaluation",
    "Metric",
    "MetricComparison",
    "bleu",
    "check_golden",
    "chrf",
    "compare",
    "evaluate",
    "exact_match",
    "judge",
    "make_golden",
]
