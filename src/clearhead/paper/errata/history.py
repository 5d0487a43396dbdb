"""Mistakes in study notes about the paper's tasks, predecessors and tokens.

Shapes: T length, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig, TokenizerConfig
from clearhead.model.encoder import EncoderLayer
from clearhead.model.feed_forward import FeedForward
from clearhead.model.transformer import Transformer
from clearhead.paper.errata.erratum import CheckResult, erratum
from clearhead.paper.errata.materials import (
    EXACT,
    build,
    difference,
    paper_base_on_meta,
    small_model,
    standard_normal,
    word_ids,
)

_REPORTED_TASKS = {
    "English-German translation": "Table 2",
    "English-French translation": "Table 2",
    "English constituency parsing": "Table 4",
}
"""Tasks with results in the paper -> the table with the results."""

_CITED_SELF_ATTENTION = {
    "reading comprehension": "1601.06733",  # Cheng, Dong and Lapata
    "textual entailment": "1606.01933",  # Parikh et al.
    "sentence representations": "1703.03130",  # Lin et al.
    "abstractive summarization": "1705.04304",  # Paulus, Xiong and Socher
}
"""Earlier uses of self-attention named in section 2 -> arXiv number (year and month first) of the cited work."""

_THE_PAPER = "1706.03762"

_PRINTED_TOKENS = {"EN-DE": "bpe", "EN-FR": "wordpiece"}
"""Section 5.1: byte-pair encoding with a shared vocabulary of about 37,000; a word-piece vocabulary of 32,000."""


def _has_no_convolution(make: Callable[[], nn.Module]) -> CheckResult:
    """The base model and the layer have no recurrent modules, nor convolutions of a kernel size above 1.

    Every output of the layer has a gradient for every one of six words, and shuffling them only shuffles the output.
    """
    layer, order = make(), torch.tensor([4, 2, 5, 0, 3, 1])
    x = standard_normal(1, 6, 16, seed=90).requires_grad_()
    modules = [*layer.modules(), *paper_base_on_meta().modules()]
    count = sum(_is_foreign(module) for module in modules)
    output = layer(x)
    seen = sum(
        int((torch.autograd.grad(word.sum(), x, retain_graph=True)[0].abs().sum(dim=-1) > 0).sum())
        for word in output[0]
    )
    distance = difference(layer(x[:, order]), output[:, order])
    return CheckResult(
        count == 0 and seen == 36 and distance < EXACT,
        f"{count} convolutional or recurrent modules, {seen} of 36 pairs of words related, shuffling changes the "
        f"output by {distance:.2f}",
        output.detach(),
    )


def _is_foreign(module: nn.Module) -> bool:
    """Whether a module is recurrent, or a convolution that sees neighbours."""
    if isinstance(module, nn.modules.conv._ConvNd):
        return max(module.kernel_size) > 1
    return isinstance(module, nn.RNNBase | nn.RNNCellBase)


class _OurLayer(nn.Module):
    def __init__(self, feed_forward: nn.Module | None = None) -> None:
        super().__init__()
        self.layer = EncoderLayer(ModelConfig(d_model=16, d_ff=24, num_heads=2, dropout=0.0))
        if feed_forward is not None:
            self.layer.register_module("feed_forward", feed_forward)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, torch.ones(1, 1, 1, x.size(1), dtype=torch.bool))


def _bidirectional() -> nn.Module:
    return nn.LSTM(16, 8, batch_first=True, bidirectional=True)


class _RunningMean(_OurLayer):
    """The layer, which receives the mean of each word and the words before it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.cumsum(dim=1) / torch.arange(1, x.size(1) + 1)[:, None])


class _Convolutions(nn.Module):
    """Convolutions, with the dilations given, optionally followed by a recurrent network or attention."""

    def __init__(self, *dilations: int, kernel: int = 3, then: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv1d(16, 16, kernel, padding="same", dilation=dilation) for dilation in dilations
        )
        self.then = then

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x.transpose(1, 2)).transpose(1, 2)
        if self.then is None:
            return x
        result = self.then(x)
        return result[0] if isinstance(result, tuple) else result


def _distance_costs_layers(make: Callable[[int], nn.Module]) -> CheckResult:
    """One, two and three layers of kernel size 3 reach at least 1, 2 and 3 words back, and at most 1, 4 and 13.

    The reach is that of the last of 20 outputs, by gradients. L layers reach L words, or with the dilations 1, 3, 9 ...
    (3^L - 1) / 2 (Table 1: log_k n layers for n words).
    """
    reaches, outputs = list[int](), list[Tensor]()
    for num_layers in (1, 2, 3):
        network = make(num_layers)
        x = standard_normal(1, 20, 16, seed=91).requires_grad_()
        gradient = torch.autograd.grad(network(x)[0, -1].sum(), x)[0][0].abs().sum(dim=-1)
        reaches.append(19 - int((gradient > 0).nonzero()[0]))
        outputs.append(network(x).detach())
    return CheckResult(
        all(layers <= reach <= (3**layers - 1) / 2 for layers, reach in enumerate(reaches, start=1)),
        f"1, 2 and 3 layers reach {', '.join(map(str, reaches))} words back",
        torch.cat(outputs),
    )


def _needs_no_source(score: Callable[[Tensor, Tensor], Tensor]) -> CheckResult:
    """A text has the same probability with two unrelated source sentences.

    The distribution of each next token depends on the token before it, and on no later one.
    """
    text, sources = word_ids(1, 6, 9, 3, 2), (word_ids(5, 7, 4, 2), word_ids(8, 3, 10, 2))
    inputs = text[:, :-1]
    first, second = (score(source, inputs).log_softmax(dim=-1) for source in sources)
    moved = abs(sum((first - second).gather(-1, text[:, 1:, None]).flatten().tolist()))
    own = later = 0
    for place in range(inputs.size(1)):
        changed = inputs.clone()
        changed[0, place] = 4
        is_moved = ((score(sources[0], changed).log_softmax(dim=-1) - first)[0].abs().amax(dim=-1) > EXACT).tolist()
        own += is_moved[place]
        later += sum(is_moved[:place])
    return CheckResult(
        moved < EXACT and own == inputs.size(1) and later == 0,
        f"another source sentence changes the text's log-probability by {moved:.2f} nats, {own} of 4 predictions "
        f"depend on the token before them and {later} on later ones",
        first,
    )


def _decoder_alone() -> Transformer:
    return small_model(num_encoder_layers=0)


def _are_reported(tasks: tuple[str, ...]) -> CheckResult:
    """Every named task has a result in Table 2 or Table 4."""
    missing = [task for task in tasks if task not in _REPORTED_TASKS]
    return CheckResult(not missing, f"without a result in the paper: {', '.join(missing) or 'none'}", tasks)


def _used_self_attention_before(number: str) -> CheckResult:
    """The named work is one that section 2 cites for self-attention, and older than the paper."""
    uses = [use for use, cited in _CITED_SELF_ATTENTION.items() if cited == number]
    return CheckResult(
        bool(uses) and number < _THE_PAPER,
        f"arXiv {number}, cited for {uses[0]}" if uses else f"arXiv {number}, not cited for self-attention",
        number,
    )


def _are_as_printed(tokens: Mapping[str, str]) -> CheckResult:
    """The kind of token is the printed one for both language pairs.

    For English-German, the right version is the default of this package.
    """
    same = sum(tokens[task] == kind for task, kind in _PRINTED_TOKENS.items())
    return CheckResult(
        same == len(_PRINTED_TOKENS),
        ", ".join(f"{task} {kind}" for task, kind in tokens.items()) + f": {same} of 2",
        tokens,
    )


HISTORY_ERRATA = (
    erratum(
        "Based on attention and convolutions",
        wrong_version=lambda: build(lambda: _Convolutions(1, then=_OurLayer())),
        right_version=lambda: build(_OurLayer),
        test=_has_no_convolution,
        mutants={
            "a convolution in place of the feed-forward network": lambda: build(lambda: _OurLayer(_Convolutions(1))),
            "the feed-forward network alone": lambda: build(lambda: FeedForward(d_model=16, d_ff=24)),
            "a recurrent network in place of attention": lambda: build(lambda: _Convolutions(then=_bidirectional())),
            "a running mean of the words, then attention": lambda: build(_RunningMean),
        },
        also_right={
            "two convolutions of kernel size 1 as the feed-forward network": lambda: build(
                lambda: _OurLayer(_Convolutions(1, 1, kernel=1))
            )
        },
    ),
    erratum(
        "Convolutions that feed recurrent networks",
        wrong_version=lambda num_layers: build(
            lambda: _Convolutions(*num_layers * [1], then=nn.RNN(16, 16, batch_first=True))
        ),
        right_version=lambda num_layers: build(lambda: _Convolutions(*num_layers * [1])),
        test=_distance_costs_layers,
        mutants={
            "then an LSTM": lambda layers: build(lambda: _Convolutions(*layers * [1], then=_bidirectional())),
            "then self-attention": lambda layers: build(lambda: _Convolutions(*layers * [1], then=_OurLayer())),
            "kernel size 1": lambda layers: build(lambda: _Convolutions(*layers * [1], kernel=1)),
        },
        also_right={
            "dilations 1, 2, 4": lambda layers: build(lambda: _Convolutions(*(2**i for i in range(layers)))),
            "dilations 1, 3, 9": lambda layers: build(lambda: _Convolutions(*(3**i for i in range(layers)))),
        },
    ),
    erratum(
        "Language models are encoder-decoders",
        wrong_version=lambda source, text: small_model()(source, text),
        right_version=lambda source, text: _decoder_alone()(None, text),
        test=_needs_no_source,
        mutants={
            "the same logits everywhere": lambda source, text: torch.zeros(1, 4, 11),
            "the text as its own source": lambda source, text: small_model()(text, text),
            "the decoder sees the last token first": lambda source, text: _decoder_alone()(None, text.flip(1)).flip(1),
        },
        also_right={"a table of pairs of tokens": lambda source, text: standard_normal(11, 11, seed=92)[text]},
    ),
    erratum(
        "State of the art in language modelling",
        wrong_version=("language modelling", "question answering"),
        right_version=("English-German translation", "English-French translation", "English constituency parsing"),
        test=_are_reported,
    ),
    erratum(
        "The paper introduced self-attention",
        wrong_version=_THE_PAPER,
        right_version="1601.06733",
        test=_used_self_attention_before,
        mutants={
            "attention to the source (Bahdanau et al.)": "1409.0473",
            "attention to the source, with convolutions (ConvS2S)": "1705.03122",
        },
        also_right={"Parikh et al.": "1606.01933", "Lin et al.": "1703.03130", "Paulus et al.": "1705.04304"},
    ),
    erratum(
        "Word pieces for English-German",
        wrong_version={"EN-DE": "wordpiece", "EN-FR": "wordpiece"},
        right_version={"EN-DE": TokenizerConfig().kind, "EN-FR": "wordpiece"},
        test=_are_as_printed,
    ),
)
