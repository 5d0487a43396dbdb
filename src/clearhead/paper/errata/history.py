"""Mistakes in study notes about the paper's tasks, predecessors and tokens.

Shapes: T length, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig, TokenizerConfig
from clearhead.model.encoder import EncoderLayer
from clearhead.model.transformer import Transformer
from clearhead.paper.errata.erratum import CheckResult, Erratum
from clearhead.paper.errata.materials import build, paper_base_on_meta, small_model, standard_normal, word_ids

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

_PRINTED_TOKENS = {"EN-DE": "bpe", "EN-FR": "wordpiece"}
"""Section 5.1: byte-pair encoding with a shared vocabulary of about 37,000; a word-piece vocabulary of 32,000."""


def _has_no_convolution(make: Callable[[], nn.Module]) -> CheckResult:
    """The base model and the layer have no convolutional or recurrent modules.

    Shuffling six words only shuffles the layer's output.
    """
    layer, x, order = make(), standard_normal(1, 6, 16, seed=90), torch.tensor([4, 2, 5, 0, 3, 1])
    foreign = (nn.modules.conv._ConvNd, nn.RNNBase, nn.RNNCellBase)
    in_base = sum(isinstance(module, foreign) for module in paper_base_on_meta().modules())
    count = sum(isinstance(module, foreign) for module in layer.modules()) + in_base
    distance = (layer(x[:, order]) - layer(x)[:, order]).abs().max().item()
    return CheckResult(
        count == 0 and distance < 1e-5,
        f"{count} convolutional or recurrent modules, shuffling changes the output by {distance:.2f}",
    )


class _OurLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = EncoderLayer(ModelConfig(d_model=16, d_ff=24, num_heads=2, dropout=0.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, torch.ones(1, 1, 1, x.size(1), dtype=torch.bool))


class _Convolutions(nn.Module):
    """Convolutions of kernel size 3, optionally followed by a recurrent network or attention."""

    def __init__(self, *, num_layers: int, then: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(16, 16, 3, padding=1) for _ in range(num_layers))
        self.then = then

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x.transpose(1, 2)).transpose(1, 2)
        if self.then is None:
            return x
        result = self.then(x)
        return result[0] if isinstance(result, tuple) else result


def _distance_costs_layers(make: Callable[[int], nn.Module]) -> CheckResult:
    """Each convolution of kernel size 3 extends the last output's reach by one word, by gradients."""
    reaches = {}
    for num_layers in (1, 2, 4):
        network = make(num_layers)
        x = standard_normal(1, 12, 16, seed=91).requires_grad_()
        gradient = torch.autograd.grad(network(x)[0, -1].sum(), x)[0][0].abs().sum(dim=-1)
        reaches[num_layers] = 11 - int((gradient > 0).nonzero()[0])
    return CheckResult(
        all(reach == num_layers for num_layers, reach in reaches.items()),
        f"1, 2 and 4 layers reach {', '.join(map(str, reaches.values()))} words back",
    )


def _needs_no_source(score: Callable[[Tensor, Tensor], Tensor]) -> CheckResult:
    """A text has the same probability with two unrelated source sentences."""
    text = word_ids(1, 6, 9, 3, 2)
    log_probs = [
        score(source, text[:, :-1]).log_softmax(dim=-1).gather(-1, text[:, 1:, None]).sum().item()
        for source in (word_ids(5, 7, 4, 2), word_ids(8, 3, 10, 2))
    ]
    moved = abs(log_probs[0] - log_probs[1])
    return CheckResult(moved < 1e-5, f"another source sentence changes the text's log-probability by {moved:.2f} nats")


def _decoder_alone() -> Transformer:
    return small_model(num_encoder_layers=0)


def _are_reported(tasks: tuple[str, ...]) -> CheckResult:
    """Every named task has a result in Table 2 or Table 4."""
    missing = [task for task in tasks if task not in _REPORTED_TASKS]
    return CheckResult(not missing, f"without a result in the paper: {', '.join(missing) or 'none'}")


def _is_the_earliest(number: str) -> CheckResult:
    """The named work is not later than any that section 2 cites for self-attention."""
    earliest = min(_CITED_SELF_ATTENTION.values())
    return CheckResult(number <= earliest, f"arXiv {number}, earliest work cited in section 2 arXiv {earliest}")


def _are_as_printed(tokens: Mapping[str, str]) -> CheckResult:
    """The kind of token is the printed one for both language pairs.

    For English-German, the right version is the default of this package.
    """
    same = sum(tokens[task] == kind for task, kind in _PRINTED_TOKENS.items())
    return CheckResult(
        same == len(_PRINTED_TOKENS), ", ".join(f"{task} {kind}" for task, kind in tokens.items()) + f": {same} of 2"
    )


HISTORY_ERRATA: tuple[Erratum[Any], ...] = (
    Erratum(
        number=45,
        title="Based on attention and convolutions",
        wrong="The Transformer is based on the ideas of attention and convolutional networks.",
        right="It is based on attention alone, without recurrence and convolutions. (The feed-forward network can be "
        "described as two convolutions of kernel size 1, which see no neighbours.)",
        source="Abstract; section 3.3 for the kernel size 1",
        wrong_version=lambda: build(lambda: _Convolutions(num_layers=1, then=_OurLayer())),
        right_version=lambda: build(_OurLayer),
        test=_has_no_convolution,
    ),
    Erratum(
        number=46,
        title="Convolutions that feed recurrent networks",
        wrong="Earlier models such as ByteNet and ConvS2S use convolutions and then feed their output to RNNs.",
        right="They use convolutions instead of recurrence, and therefore relate distant words only through many "
        "layers.",
        source="Section 2, first paragraph; Table 1, maximum path length",
        wrong_version=lambda num_layers: build(
            lambda: _Convolutions(num_layers=num_layers, then=nn.RNN(16, 16, batch_first=True))
        ),
        right_version=lambda num_layers: build(lambda: _Convolutions(num_layers=num_layers)),
        test=_distance_costs_layers,
    ),
    Erratum(
        number=47,
        title="Language models are encoder-decoders",
        wrong="Language models use an encoder-decoder structure.",
        right="Models of sequence transduction do: p(target | source). A language model, p(text), has no source and "
        "needs only a decoder.",
        source="Section 3, first sentence: most competitive neural sequence transduction models",
        wrong_version=lambda source, text: small_model()(source, text),
        right_version=lambda source, text: _decoder_alone()(None, text),
        test=_needs_no_source,
    ),
    Erratum(
        number=48,
        title="State of the art in language modelling",
        wrong="The paper reaches the state of the art in language modelling and question answering.",
        right="Its results are for WMT 2014 English-German and English-French translation, and for English "
        "constituency parsing.",
        source="Abstract; Tables 2 and 4",
        wrong_version=("language modelling", "question answering"),
        right_version=("English-German translation", "English-French translation", "English constituency parsing"),
        test=_are_reported,
        kind="quotation",
    ),
    Erratum(
        number=49,
        title="The paper introduced self-attention",
        wrong="The key contribution is the introduction of self-attention.",
        right="Self-attention had been used before, as section 2 says. The paper contributes the first transduction "
        "model that relies on it entirely, with scaled dot products and several heads.",
        source="Section 2, second and last paragraph",
        wrong_version="1706.03762",
        right_version="1601.06733",
        test=_is_the_earliest,
        kind="quotation",
    ),
    Erratum(
        number=50,
        title="Word pieces for English-German",
        wrong="The tokens are word pieces, as in BERT.",
        right="English-German used byte-pair encoding with a shared vocabulary of about 37,000 tokens; English-French "
        "used 32,000 word pieces.",
        source="Section 5.1",
        wrong_version={"EN-DE": "wordpiece", "EN-FR": "wordpiece"},
        right_version={"EN-DE": TokenizerConfig().kind, "EN-FR": "wordpiece"},
        test=_are_as_printed,
        kind="quotation",
    ),
)
