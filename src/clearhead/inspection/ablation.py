"""What each head is good for: every head switched off in turn, and what that changes.

A head's output is zeroed before W^O, and the model is otherwise as it is, as Michel et al. (2019, "Are Sixteen Heads
Really Better than One?", equation 2) do it. Voita et al. (2019) prune heads while the model is trained further, which
makes up for part of the loss; a head that seems important here may turn out to be dispensable there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Unpack

import torch

from clearhead.config import DecodeChanges
from clearhead.errors import ConfigError, DataError
from clearhead.evaluation import judge
from clearhead.inspection.forward_pass import AS_IT_IS
from clearhead.inspection.heads import AttentionName, attentions
from clearhead.inspection.tokens import printable
from clearhead.model.transformer import Transformer
from clearhead.translation.translator import Translator

__all__ = ["Ablation", "HeadEffect", "SetResult", "ablate", "num_heads", "without_head"]

ATTENTIONS: tuple[AttentionName, ...] = ("encoder", "decoder", "cross")


@dataclass(frozen=True, slots=True)
class SetResult:
    """How a model does on a test set."""

    loss: float
    """Nats per target token, the end token included, of the references."""
    bleu: float
    """Of greedy translations."""


@dataclass(frozen=True, slots=True)
class HeadEffect:
    """What the model does without one head."""

    attention: AttentionName
    layer: int
    """Counted from 0."""
    head: int
    """Counted from 0."""
    score: float
    """Log-probability of the whole model's translation, in nats."""
    translation: str
    """What the model writes without the head."""
    test_set: SetResult | None = None
    """None if there is none."""

    @property
    def name(self) -> str:
        """Return how people call it: layers and heads counted from 1."""
        return f"{self.attention} {self.layer + 1}.{self.head + 1}"


@dataclass(frozen=True)
class Ablation:
    """Every head switched off in turn, on one sentence and, if there is one, on a test set."""

    source: str
    translation: str
    """Of the whole model, or as it was given."""
    score: float
    """Its log-probability in the whole model, as `Translator.score` says, in nats."""
    written: str
    """What the whole model writes: `translation`, unless that was given."""
    heads: tuple[HeadEffect, ...]
    """The one that is missed most first: by the loss on the test set, else by the score of the sentence."""
    test_set: SetResult | None = None
    """Of the whole model."""
    num_sentences: int = 0
    """Of the test set."""
    bleu_signature: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; docs/explanation-json.md says what each means."""
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
                    **asdict(one),
                    "score_change": one.score - self.score,
                    "is_changed": one.translation != self.written,
                    "loss_change": _change(one.test_set, self.test_set, "loss"),
                    "bleu_change": _change(one.test_set, self.test_set, "bleu"),
                }
                for one in self.heads
            ],
        }

    def lines(self) -> list[str]:
        """Return a table for people, the head that is missed most first."""
        columns = ["head", "score", "change"]
        if self.test_set is not None:
            columns += ["loss", "change", "BLEU", "change"]
        whole = ["none off", f"{self.score:.3f}", ""]
        if self.test_set is not None:
            whole += [f"{self.test_set.loss:.4f}", "", f"{self.test_set.bleu:.2f}", ""]
        rows = [[*columns, "translation"], [*whole, printable(self.written)]]
        for one in self.heads:
            row = [one.name, f"{one.score:.3f}", f"{one.score - self.score:+.3f}"]
            if one.test_set is not None and self.test_set is not None:
                loss, bleu = one.test_set.loss, one.test_set.bleu
                row += [f"{loss:.4f}", f"{loss - self.test_set.loss:+.4f}"]
                row += [f"{bleu:.2f}", f"{bleu - self.test_set.bleu:+.2f}"]
            rows.append([*row, "the same" if one.translation == self.written else printable(one.translation)])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
        numbers = [[text.rjust(width) for text, width in zip(row, widths, strict=False)] for row in rows]
        return [
            "  ".join([row[0].ljust(widths[0]), *right[1:], row[-1]]) for row, right in zip(rows, numbers, strict=True)
        ]


def num_heads(model: Transformer) -> int:
    """Return how many heads a model has, in all attentions of all layers."""
    return sum(module.num_heads for name in ATTENTIONS for module in attentions(model, name))


@contextmanager
def without_head(model: Transformer, attention: AttentionName, layer: int, head: int) -> Iterator[None]:
    """Switch one head off while the block runs, for everything that uses the model's weights, the engines included.

    Its columns of W^O are zero meanwhile, which is the same as a head whose output is.

    Args:
        model: Whose weights change, so that nobody else may use it meanwhile.
        attention: `encoder`, `decoder` or `cross`.
        layer: Counted from 0.
        head: Counted from 0.
    """
    module = attentions(model, attention)[layer]
    width = module.v_proj.out_features // module.num_heads
    columns = module.out_proj.weight[:, head * width : (head + 1) * width]
    with torch.no_grad():
        before = columns.clone()
        columns.zero_()
    try:
        yield
    finally:
        with torch.no_grad():
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
    """Switch every head off in turn, in a copy of the model.

    Args:
        translator: A model that writes.
        text: A source line, read whole and as it is.
        target: The translation whose score is watched; the model's own if not given.
        sources: Of a test set; none for the sentence alone.
        references: Their translations.
        name: File the sources come from, for messages.
        on_progress: Called with 1 for every head that is done.
        **settings: Fields of `DecodeConfig` other than the model's own. The test set is translated greedily.

    Raises:
        ConfigError: If it is an ensemble or an encoder alone, or a setting is impossible.
        DataError: As of `Translator.score`; or if the text is empty, or sources and references do not pair up.
    """
    if translator.ensemble or not translator.bundle.model.config.num_decoder_layers:
        raise ConfigError("heads are switched off in one model that writes: no ensemble, and no encoder alone")
    if not text.strip():
        raise DataError("there is nothing to explain: the text is empty; give a sentence to translate")
    if len(sources) != len(references):
        raise DataError(f"{len(sources)} source lines but {len(references)} references; they must pair up")
    own = Translator(replace(translator.bundle, model=copy.deepcopy(translator.bundle.model)), translator.path)
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
        texts = [one.text for one in own.translate(sources, scores=False, name=name, **greedy)]
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
    heads.sort(key=lambda one: one.score if one.test_set is None else -one.test_set.loss)
    return Ablation(text, translation, score, written, tuple(heads), whole, len(sources), signature)


def _num_tokens(
    translator: Translator, sources: Sequence[str], references: Sequence[str], name: str, settings: DecodeChanges
) -> int:
    """Return the target tokens of a test set."""
    config = translator.decode_config(settings)
    parts = translator.speller.split_sources(sources, config.target_lang, name=name)
    _, target_ids = translator.speller.spell(parts, references, config)
    return sum(map(len, target_ids))


def _change(found: SetResult | None, whole: SetResult | None, name: str) -> float | None:
    return None if found is None or whole is None else getattr(found, name) - getattr(whole, name)
