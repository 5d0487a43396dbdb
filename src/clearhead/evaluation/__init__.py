"""How good a translator is: corpus metrics, the comparison of two systems, and golden sentences."""

from clearhead.evaluation.comparison import Comparison, MetricComparison, compare
from clearhead.evaluation.golden import check_golden, make_golden
from clearhead.evaluation.metrics import Evaluation, Metric, bleu, chrf, evaluate, exact_match

__all__ = [
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
    "make_golden",
]
