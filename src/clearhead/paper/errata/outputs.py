"""Mistakes in study notes about the model's output and how text is generated from it.

Shapes: T target length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.decoding.sampling import greedy_search
from clearhead.decoding.step import token_log_probs
from clearhead.model.transformer import Transformer
from clearhead.paper.errata.erratum import CheckResult, erratum
from clearhead.paper.errata.materials import EXACT, compared, small_model, standard_normal, word_ids
from clearhead.paper.plain import softmax

_SOURCE = [5, 7, 4, 9, 2]


def _is_a_distribution(predict: Callable[[Transformer, Tensor, Tensor], Tensor]) -> CheckResult:
    """The predictions of four next tokens contain no negative values, and each sums to 1.

    They are the softmax of the logits, calculated number by number.
    """
    model, source, target = small_model(), word_ids(*_SOURCE), word_ids(1, 6, 9, 3)
    prediction = predict(model, source, target)[0]
    lowest, sums = prediction.min().item(), prediction.sum(dim=-1)
    return compared(
        prediction,
        [softmax(row) for row in model(source, target)[0].tolist()],
        to="the softmax of the logits",
        holds=lowest >= 0 and (sums - 1).abs().max().item() < EXACT,
        figures=f"smallest value {lowest:.2f}, sums from {sums.min().item():.2f} to {sums.max().item():.2f}",
    )


def _share_of_the_sigmoid(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    weights: Tensor = model(source, target).sigmoid()
    return weights / weights.sum(dim=-1, keepdim=True)


def _keeps_the_choice(normalise: Callable[[Tensor], Tensor]) -> CheckResult:
    """200 choices among 37 tokens are the same before and after the normalisation."""
    logits = 3 * standard_normal(200, 37, seed=70)
    choices = normalise(logits).argmax(dim=-1)
    kept = (choices == logits.argmax(dim=-1)).float().mean().item()
    return CheckResult(kept == 1, f"{100 * kept:.0f} % of 200 choices are the same before and after", choices)


def _scores_are_probabilities(score: Callable[[Transformer, list[int], list[int]], Tensor]) -> CheckResult:
    """The probabilities of all eleven tokens at the third target position sum to 1.

    The score of a token is the logarithm of its softmax, calculated number by number, after the tokens before it alone.
    """
    model, target = small_model(), [6, 9, 3, 8, 2]
    log_probs = [score(model, _SOURCE, [6, 9, token, 2])[2].item() for token in range(1, 11)]
    # Padding (0) marks the end of a row in a batch, so its probability is taken from the logits.
    padding = _after(model, [6, 9])[0]
    total = sum(torch.tensor(log_probs).exp().tolist()) + padding
    return compared(
        score(model, _SOURCE, target),
        torch.tensor([_after(model, target[:place])[token] for place, token in enumerate(target)]).log(),
        to="one token after the other",
        holds=abs(total - 1) < EXACT,
        figures=f"the probabilities of all tokens at the third position sum to {total:.2f}",
    )


def _after(model: Transformer, prefix: list[int]) -> list[float]:
    """Return the probabilities of all tokens after the start token and a prefix."""
    return softmax(model(word_ids(*_SOURCE), word_ids(1, *prefix))[0, -1].tolist())


def _shifted_right(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    return token_log_probs(model, [source], [target])[0]


def with_inputs(
    inputs: Callable[[list[int]], list[int]],
) -> Callable[[Transformer, list[int], list[int]], Tensor]:
    """Return a score whose decoder inputs are another function of the target."""

    def score(model: Transformer, source: list[int], target: list[int]) -> Tensor:
        log_probs = model(word_ids(*source), word_ids(*inputs(target))).log_softmax(dim=-1)
        return log_probs.gather(-1, word_ids(*target)[..., None])[0, :, 0]

    return score


def _each_token_follows_from_those_before(decode: Callable[[Transformer, list[int]], list[int]]) -> CheckResult:
    """Each decoded token, the end token too, is the most probable one after the tokens before it.

    This is checked by feeding each prefix back to the model. The last token is the end token.
    """
    model = _ending_model()
    tokens = decode(model, _SOURCE)
    agree = sum(_choice(model, tokens[:place]) == token for place, token in enumerate(tokens))
    ends = tokens[-1] == model.config.eos_id
    return CheckResult(
        agree == len(tokens) and ends,
        f"{agree} of {len(tokens)} tokens are the most probable after their prefix, the end token is "
        f"{'present' if ends else 'missing'}",
        tokens,
    )


def _ending_model() -> Transformer:
    model = small_model(tying="none")  # with random weights, tied matrices make a model repeat its input
    model.output_proj.weight[model.config.eos_id] *= 4  # with random weights, the end token is never the best one
    return model


def _choice(model: Transformer, prefix: list[int]) -> int:
    logits = model(word_ids(*_SOURCE), word_ids(1, *prefix))[0, -1]
    return int(logits[2:].argmax()) + 2  # padding and start token are not text


def _one_pass(model: Transformer, source: list[int]) -> list[int]:
    """Feed the source to the decoder and take the most probable token at each position, as study notes do."""
    tokens: list[int] = model(word_ids(*source), word_ids(*source)).argmax(dim=-1)[0].tolist()
    return tokens


def _step_by_step(model: Transformer, source: list[int]) -> list[int]:
    return list(greedy_search(model, [source], max_lengths=[12])[0].tokens)


def _prefix_by_prefix(model: Transformer, source: list[int]) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < 12 and model.config.eos_id not in tokens:
        tokens.append(_choice(model, tokens))
    return tokens


OUTPUTS_ERRATA = (
    erratum(
        "Logits are probabilities",
        wrong_version=lambda model, source, target: model(source, target),
        right_version=lambda model, source, target: model(source, target).softmax(dim=-1),
        test=_is_a_distribution,
        mutants={
            "sigmoids divided by their sum": _share_of_the_sigmoid,
            "equal probabilities": lambda model, source, target: torch.full_like(model(source, target), 1 / 11),
            "the softmax twice": lambda model, source, target: model(source, target).softmax(-1).softmax(-1),
            "a softmax over the positions": lambda model, source, target: model(source, target).softmax(dim=1),
        },
        also_right={"e^(log-softmax)": lambda model, source, target: model(source, target).log_softmax(-1).exp()},
    ),
    erratum(
        "The argmax needs the softmax",
        wrong_version=lambda logits: logits.softmax(dim=0),
        right_version=lambda logits: logits.softmax(dim=-1),
        test=_keeps_the_choice,
        mutants={
            "of the negative logits": lambda logits: (-logits).softmax(dim=-1),
            "of absolute values": lambda logits: logits.abs().softmax(dim=-1),
        },
        also_right={
            "no softmax": lambda logits: logits,
            "the log-softmax": lambda logits: logits.log_softmax(dim=-1),
            "a softmax at temperature 5": lambda logits: (logits / 5).softmax(dim=-1),
            "`dim=0` of each vector": lambda logits: torch.stack([row.softmax(dim=0) for row in logits]),
        },
    ),
    erratum(
        "The decoder's input is the target itself",
        wrong_version=with_inputs(lambda target: target),
        right_version=_shifted_right,
        test=_scores_are_probabilities,
        mutants={
            "shifted by two": with_inputs(lambda target: [1, 1, *target[:-2]]),
            "shifted left": with_inputs(lambda target: [*target[1:], 2]),
            "equal probabilities": lambda model, source, target: torch.full((len(target),), 1 / 11).log(),
        },
        also_right={"start token by hand": with_inputs(lambda target: [1, *target[:-1]])},
    ),
    erratum(
        "Decoding is one argmax",
        wrong_version=_one_pass,
        right_version=_step_by_step,
        test=_each_token_follows_from_those_before,
        mutants={
            "the end token alone": lambda model, source: [2],
            "one pass, then the end token": lambda model, source: [*_one_pass(model, source), 2],
            "the end token too early": lambda model, source: [*_step_by_step(model, source)[:-2], 2],
        },
        also_right={"each prefix anew": _prefix_by_prefix},
    ),
)
