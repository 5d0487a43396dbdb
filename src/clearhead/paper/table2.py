"""Table 2: BLEU and training cost as printed, the cost recalculated, and the operations counted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from clearhead.config import ModelConfig
from clearhead.config.presets import paper_base, paper_big
from clearhead.model.transformer import Transformer
from clearhead.paper.counts import counted_flops, forward_flops, training_flops
from clearhead.paper.parts import Check, ModelPart, aligned, paragraph, part_text

PAPER_TABLE_2 = (
    ("ByteNet", "23.75", "", "", ""),
    ("Deep-Att + PosUnk", "", "39.2", "", "1.0e20"),
    ("GNMT + RL", "24.6", "39.92", "2.3e19", "1.4e20"),
    ("ConvS2S", "25.16", "40.46", "9.6e18", "1.5e20"),
    ("MoE", "26.03", "40.56", "2.0e19", "1.2e20"),
    ("Deep-Att + PosUnk Ensemble", "", "40.4", "", "8.0e20"),
    ("GNMT + RL Ensemble", "26.30", "41.16", "1.8e20", "1.1e21"),
    ("ConvS2S Ensemble", "26.36", "41.29", "7.7e19", "1.2e21"),
    ("Transformer (base model)", "27.3", "38.1", "3.3e18", "3.3e18"),
    ("Transformer (big)", "28.4", "41.8", "2.3e19", "2.3e19"),
)
"""Table 2 as printed: model, BLEU EN-DE and EN-FR (newstest2014), training FLOPs EN-DE and EN-FR.

The FLOPs of the two Transformers are printed once, across both columns.
"""

PAPER_P100_FLOPS = 9.5e12
"""Sustained single-precision operations per second that footnote 5 assumes for a P100."""
PAPER_GPUS = 8
"""Section 5.2: one machine with 8 P100 GPUs."""
PAPER_BATCH_TOKENS = 25_000
"""Section 5.1: approximate number of source tokens, and of target tokens, in a batch."""

_FRENCH_IN_THE_TEXT = 41.0
"""BLEU of big for EN-FR in the text of section 6.1; the table says 41.8."""
_LENGTHS = (25, 50)
"""Sentence lengths assumed for the count; the paper does not state its average."""


@dataclass(frozen=True)
class PaperRun:
    """A training run of section 5.2."""

    name: str
    config: ModelConfig
    hours: float
    seconds_per_step: float
    steps: int
    printed_flops: str


PAPER_RUNS = (
    PaperRun("base", paper_base(), 12.0, 0.4, 100_000, "3.3e18"),
    PaperRun("big", paper_big(), 3.5 * 24, 1.0, 300_000, "2.3e19"),
)
"""Section 5.2: 12 hours and 3.5 days, 0.4 and 1.0 seconds per step, 100,000 and 300,000 steps; the FLOPs of Table 2."""


@cache
def counted_forward_flops(config: ModelConfig, length: int) -> int:
    """Return the operations of one pair of equally long sentences as counted by PyTorch, without allocating weights."""
    with torch.device("meta"):
        model, ids = Transformer(config).eval(), torch.ones(1, length, dtype=torch.long)
        return counted_flops(lambda: model(ids, ids))


def table2() -> ModelPart:
    """Return Table 2, its FLOPs column recalculated from hours and GPUs, and counted operations of the runs."""
    checks = [*_text_checks(), *(check for run in PAPER_RUNS for check in _checks(run))]
    lines = [
        "As printed (newstest2014):",
        *aligned(["model", "BLEU EN-DE", "EN-FR", "FLOPs EN-DE", "EN-FR"], PAPER_TABLE_2),
        *paragraph(
            """BLEU: these are tokenised scores with German compounds split at hyphens (tensor2tensor's
            get_ende_bleu.sh), the convention of their time. Detokenised sacreBLEU of the same output is usually
            lower, so compare only scores with the same signature. The big model's EN-FR score is 41.8 in abstract and
            table of the arXiv paper; the NIPS version has 41.0, and section 6.1 of the arXiv text still says so."""
        ),
        *paragraph(
            """The caption's "fraction of the training cost" is true of base, and of big against the ensembles and for
            EN-FR. For EN-DE big costs as much as GNMT~+~RL, 2.3e19, and 2.4 times ConvS2S, the cheapest single
            model."""
        ),
        *paragraph("The FLOPs column is time on the GPUs times an assumed speed (section 6.1, footnote 5):"),
        *_derived_flops(),
        *paragraph(
            f"""So it is what the GPUs could have done in that time, not what the model needs. Counted here are the
            matrix products of {PAPER_BATCH_TOKENS:,} source and {PAPER_BATCH_TOKENS:,} target tokens a step, every
            sentence of one length (an assumption; the paper does not give its average, and it matters little), the
            backward pass taken as two forward passes, vocabulary {PAPER_RUNS[0].config.vocab_size:,}:"""
        ),
        *_counted_flops(),
        *paragraph(
            """The quotient is the share of the assumed speed that the training must have reached, if its batches were
            full. Padding inside batches, which costs operations too, is not counted."""
        ),
    ]
    return ModelPart(
        title="Table 2: BLEU and training cost",
        text=part_text(lines, checks),
        data={
            "printed": [
                dict(zip(("model", "bleu_ende", "bleu_enfr", "flops_ende", "flops_enfr"), row, strict=True))
                for row in PAPER_TABLE_2
            ],
            "runs": [
                {
                    "name": run.name,
                    "gpu_time_flops": _gpu_time_flops(run),
                    "counted_flops": {str(length): _our_flops(run, length) for length in _LENGTHS},
                    "utilisation": {
                        str(length): round(_our_flops(run, length) / _gpu_time_flops(run), 4) for length in _LENGTHS
                    },
                }
                for run in PAPER_RUNS
            ],
        },
        checks=tuple(checks),
    )


def _derived_flops() -> list[str]:
    """Return the FLOPs of the runs by time, GPUs and speed, as a table."""
    return aligned(
        ["run", "hours", "x GPUs", "x FLOP/s", "= FLOPs", "printed", "steps x s/step", "that is"],
        [
            [
                run.name,
                f"{run.hours:g}",
                str(PAPER_GPUS),
                f"{PAPER_P100_FLOPS:.1e}".replace("e+", "e"),
                _scientific(_gpu_time_flops(run), 3),
                run.printed_flops,
                f"{run.steps:,} x {run.seconds_per_step}",
                f"{run.steps * run.seconds_per_step / 3600:.1f} h",
            ]
            for run in PAPER_RUNS
        ],
    )


def _counted_flops() -> list[str]:
    """Return the operations of the runs at each length, as a table."""
    return aligned(
        ["run", "sentence length", "forward, one step", "x 3, all steps", "printed", "implied utilisation"],
        [
            [
                run.name,
                str(length),
                _scientific(_our_flops(run, length) / 3 / run.steps, 3),
                _scientific(_our_flops(run, length), 3),
                run.printed_flops,
                f"{_our_flops(run, length) / _gpu_time_flops(run):.0%}",
            ]
            for run in PAPER_RUNS
            for length in _LENGTHS
        ],
    )


def _gpu_time_flops(run: PaperRun) -> float:
    return run.hours * 3600 * PAPER_GPUS * PAPER_P100_FLOPS


def _our_flops(run: PaperRun, length: int) -> int:
    return training_flops(run.config, batch_tokens=PAPER_BATCH_TOKENS, length=length, steps=run.steps)


def _text_checks() -> list[Check]:
    """Return what section 6.1 says of the printed figures."""
    *earlier, base, big = PAPER_TABLE_2
    single = [row for row in earlier if not row[0].endswith("Ensemble")]
    best_german = max(float(row[1]) for row in earlier if row[1])
    cheapest_german = min(float(row[3]) for row in earlier if row[3])
    best_french = max((row for row in single if row[2]), key=lambda row: float(row[2]))
    cost = float(big[4]) / float(best_french[4])
    return [
        Check(
            "6.1: EN-DE, big is more than 2.0 BLEU above every earlier model and ensemble",
            float(big[1]) - best_german > 2.0,
            f"{big[1]} against {best_german}",
        ),
        Check(
            "6.1: EN-DE, base is above them, too, at a fraction of the cost of each",
            float(base[1]) > best_german and float(base[3]) < cheapest_german / 2,
            f"{base[1]}, at {float(base[3]) / cheapest_german:.0%} of the cost of the cheapest",
        ),
        Check(
            f"6.1: EN-FR, {_FRENCH_IN_THE_TEXT} is above every earlier single model, at less than 1/4 of its cost",
            float(best_french[2]) < _FRENCH_IN_THE_TEXT and cost < 0.25,
            f"{best_french[0]} {best_french[2]}; {cost:.0%} of its cost",
        ),
    ]


def _checks(run: PaperRun) -> list[Check]:
    length = _LENGTHS[0]
    counted, formula = counted_forward_flops(run.config, length), forward_flops(run.config, length, length)
    derived = _gpu_time_flops(run)
    stepped = run.steps * run.seconds_per_step / 3600
    return [
        Check(
            f"{run.name}: hours x GPUs x speed is the printed figure",
            _scientific(derived, 2) == run.printed_flops,
            f"{_scientific(derived, 4)}, printed {run.printed_flops}",
        ),
        Check(
            f"{run.name}: steps x seconds a step is no more than the stated time, and at least nine tenths of it",
            0.9 * run.hours <= stepped <= run.hours,
            f"{stepped:.1f} of {run.hours:g} hours",
        ),
        Check(
            f"{run.name}: the formula of operations is what PyTorch's counter counts",
            counted == formula,
            f"{counted:,} and {formula:,} for one pair of {length} + {length} tokens",
        ),
    ]


def _scientific(value: float, digits: int) -> str:
    """Return a number in compact scientific notation, such as 3.3e18.

    >>> _scientific(3.283e18, 2)
    '3.3e18'
    """
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(power)}"
