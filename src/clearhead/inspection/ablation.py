"""Head ablation: score and translation of a sentence, or loss and BLEU of a test set, without each head in turn.

A head's output is zeroed before W^O and the model is otherwise unchanged, as in Michel et al. (2019, "Are Sixteen Heads
Really Better than One?", equation 2). Voita et al. (2019) instead prune heads while the model is trained further, which
makes up for part of the loss; a head that seems important here may turn out to be dispensable there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from clearhead.config import DecodeChanges
from clearhead.errors import ConfigError, DataError
from clearhead.evaluation import judge
from clearhead.inspection.forward_pass import AS_IT_IS
from clearhead.inspection.heads import ATTENTIONS, AttentionName, attentions
from clearhead.inspection.tokens import printable
from clearhead.translation.translator import Translator

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


@dataclass(frozen=True, slots=True)
class SetResult:
    """Loss and BLEU of a model on a test set."""

    loss: float
    """Loss of the references in nats per target token, end tokens included."""
    bleu: float
    """BLEU score of greedy translations."""


@dataclass(frozen=True, slots=True)
class HeadEffect:
    """Results of the model without one head."""

    attention: AttentionName
    layer: int
    """Layer number, counted from 0."""
    head: int
    """Head number, counted from 0."""
    score: float
    """Log-probability in nats, without the head, of the translation that is scored."""
    translation: str
    """Translation that the model produces without the head."""
    test_set: SetResult | None = None
    """Results on the test set; None without a test set."""

    @property
    def name(self) -> str:
        """Return the display name, with layers and heads counted from 1."""
        return f"{self.attention} {self.layer + 1}.{self.head + 1}"


@dataclass(frozen=True)
class Ablation:
    """Effect of every head, switched off in turn, on one sentence and optionally on a test set."""

    source: str
    translation: str
    """The scored translation: that of the whole model, or the one given."""
    score: float
    """Its log-probability in the whole model, as from `Translator.score`, in nats."""
    written: str
    """Translation that the whole model produces: `translation`, unless that was given."""
    heads: tuple[HeadEffect, ...]
    """The most important head first: by the loss on the test set, else by the score of the sentence."""
    test_set: SetResult | None = None
    """Results of the whole model."""
    num_sentences: int = 0
    """Number of sentences in the test set."""
    bleu_signature: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; docs/explanation-json.md describes each."""
        return {
            "method": "output zeroed before W^O",
            "source": self.source,
            "translation": self.translation,
            "score": self.score,
            "written": self.written,
            "num_sentences": self.num_sentences,
            "test_set": None if self.test_set is None else asdict(self.test_set),
            "bleu_signature": self.bleu_signature or None,
            "heads": [
                {
                    **asdict(head),
                    "score_change": head.score - self.score,
                    "is_changed": head.translation != self.written,
                    "loss_change": _change(head.test_set, self.test_set, "loss"),
                    "bleu_change": _change(head.test_set, self.test_set, "bleu"),
                }
                for head in self.heads
            ],
        }

    def lines(self) -> list[str]:
        """Return a text table, the most important head first."""
        columns = ["head", "score", "change"]
        if self.test_set is not None:
            columns += ["loss", "change", "BLEU", "change"]
        whole = ["none off", f"{self.score:.3f}", ""]
        if self.test_set is not None:
            whole += [f"{self.test_set.loss:.4f}", "", f"{self.test_set.bleu:.2f}", ""]
        rows = [[*columns, "translation"], [*whole, printable(self.written)]]
        for head in self.heads:
            row = [head.name, f"{head.score:.3f}", f"{head.score - self.score:+.3f}"]
            if head.test_set is not None and self.test_set is not None:
                loss, bleu = head.test_set.loss, head.test_set.bleu
                row += [f"{loss:.4f}", f"{loss - self.test_set.loss:+.4f}"]
                row += [f"{bleu:.2f}", f"{bleu - self.test_set.bleu:+.2f}"]
            rows.append([*row, "the same" if head.translation == self.written else printable(head.translation)])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
        numbers = [[text.rjust(width) for text, width in zip(row, widths, strict=False)] for row in rows]
        return [
            "  ".join([row[0].ljust(widths[0]), *right[1:], row[-1]]) for row, right in zip(rows, numbers, strict=True)
        ]


def num_heads(model: Transformer) -> int:
    """Return the number of heads of a model, in all attentions of all layers."""
    return sum(module.num_heads for name in ATTENTIONS for module in attentions(model, name))


@contextmanager
def without_head(model: Transformer, attention: AttentionName, layer: int, head: int) -> Iterator[None]:
    """Switch off one head during the block, for everything that uses the model's weights, engines included.

    The head's columns of W^O are zero meanwhile, which equals a zero output of the head.

    Args:
        model: The model, whose weights change; nothing else may use it meanwhile.
        attention: `encoder`, `decoder` or `cross`.
        layer: Layer number, counted from 0.
        head: Head number, counted from 0.
    """
    module = attentions(model, attention)[layer]
    width = module.v_proj.out_features // module.num_heads
    columns = module.out_proj.weight.detach()[:, head * width : (head + 1) * width]
    before = columns.clone()
    columns.zero_()
    try:
        yield
    finally:
        columns.copy_(before)


def ablate(
    translator: Translator,
    text: str,
    target: str | None = None,
    *,
    sources: Sequence[str] = (),
    references: Sequence[str] = (),
    name: str = "",
    on_progress: Callable[[int], None] | None = None,
    **settings: Unpack[DecodeChanges],
) -> Ablation:
    """Switch off every head in turn, in a copy of the model.

    Args:
        translator: A single model with a decoder.
        text: A source line, translated without splitting or normalization.
        target: The translation to score; the model's own if not given.
        sources: Source lines of a test set; empty for the sentence alone.
        references: Reference translations of the test set.
        name: File name of the sources, for error messages.
        on_progress: Called with 1 after every head.
        **settings: Fields of `DecodeConfig` that replace the model's own. The test set is translated greedily.

    Raises:
        ConfigError: If it is an ensemble or an encoder alone, or a setting is invalid.
        DataError: If `Translator.score` refuses the texts, the text is empty, or sources and references differ in
            number.
    """
    if translator.ensemble or not translator.bundle.config.num_decoder_layers:
        raise ConfigError("heads are switched off in one model that writes: no ensemble, and no encoder alone")
    if not text.strip():
        raise DataError("there is nothing to explain: the text is empty; give a sentence to translate")
    if len(sources) != len(references):
        raise DataError(f"{len(sources)} source lines but {len(references)} references; they must pair up")
    own = Translator(replace(translator.bundle, weights=copy.deepcopy(translator.bundle.own_module)), translator.path)
    model = own.bundle.model
    alone: Any = {**settings, **AS_IT_IS}
    greedy: Any = {**settings, "beam_size": 1}
    num_tokens = _num_tokens(own, sources, references, name, settings)
    signature = ""

    def translated() -> str:
        return own.translate([text], scores=False, **alone)[0].text

    def on_test_set() -> SetResult | None:
        nonlocal signature
        if not sources:
            return None
        texts = [result.text for result in own.translate(sources, scores=False, raw=True, name=name, **greedy)]
        bleu = judge(texts, references, metrics=("bleu",)).metrics["bleu"]
        signature = bleu.signature
        loss = -sum(own.score(sources, references, name=name, **settings)) / num_tokens
        return SetResult(loss, bleu.score)

    written = translated()
    translation = written if target is None else target
    [score], whole = own.score([text], [translation], **settings), on_test_set()
    heads: list[HeadEffect] = []
    for attention in ATTENTIONS:
        for layer, module in enumerate(attentions(model, attention)):
            for head in range(module.num_heads):
                with without_head(model, attention, layer, head):
                    [changed] = own.score([text], [translation], **settings)
                    heads.append(HeadEffect(attention, layer, head, changed, translated(), on_test_set()))
                if on_progress is not None:
                    on_progress(1)
    heads.sort(key=lambda ablated: ablated.score if ablated.test_set is None else -ablated.test_set.loss)
    return Ablation(text, translation, score, written, tuple(heads), whole, len(sources), signature)


def _num_tokens(
    translator: Translator, sources: Sequence[str], references: Sequence[str], name: str, settings: DecodeChanges
) -> int:
    """Return the number of target tokens of a test set."""
    config = translator.decode_config(settings)
    parts = translator.pair_encoder.split_sources(sources, config.target_lang, name=name)
    _, target_ids = translator.pair_encoder.encode(parts, references, config)
    return sum(map(len, target_ids))


def _change(without: SetResult | None, whole: SetResult | None, name: str) -> float | None:
    return None if without is None or whole is None else getattr(without, name) - getattr(whole, name)
