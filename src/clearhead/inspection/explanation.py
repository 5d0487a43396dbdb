"""The explanation of one sentence: everything the model computed on it, as arrays, JSON, or an HTML page.

Shapes: L layers, H heads, S source tokens, T target tokens, N tokens that the decoder reads (T; for a decoder alone,
also those of the text that it continues), D d_model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.errors import DataError
from clearhead.inspection.beam_tree import BeamTree
from clearhead.inspection.head_roles import HeadRole, cross_roles, self_roles
from clearhead.inspection.head_statistics import head_statistics
from clearhead.inspection.heads import (
    ATTENTIONS,
    AttentionName,
    Head,
    Projections,
    attentions,
    projections,
    relative_positions,
)
from clearhead.inspection.neighbours import ConsultedMemory
from clearhead.inspection.page import (
    MAX_PAGE_WEIGHTS,
    framed,
    packed_rows,
    packed_weights,
    plain,
    plain_values,
    render_page,
)
from clearhead.inspection.page import packed as pack
from clearhead.inspection.token_steps import LensStep, Step
from clearhead.inspection.tokens import Reader, Span, TokenWord, token_words
from clearhead.runtime.lazy import cached_property
from clearhead.text.word_links import Link, link_words
from clearhead.tokenizers import START_TOKEN

if TYPE_CHECKING:
    from jaxtyping import Float, Float32

    from clearhead.inspection.ablation import Ablation
    from clearhead.inspection.attribution import Attribution
    from clearhead.inspection.forward_pass import ModelPass

SCHEMA_VERSION = 1
"""Version of the format of `Explanation.to_dict`; it increases when existing keys change their meaning."""

_AS_THEY_ARE = (
    *("source", "translation", "is_given", "score", "source_tokens", "source_spans", "source_words", "decoder_tokens"),
    *("target_tokens", "target_spans", "target_words", "first_step", "num_told"),
)
"""Attributes of an explanation that have the same name in `Explanation.to_dict`."""

MOST_EXACT, MOST_ROUNDED = 150_000, 1_200_000
"""Most numbers of queries, keys and values in a page: exact (4 bytes each), and in 8 bits (4/3 bytes each)."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """Attention weights, probabilities and alignment of one translated line.

    The decoder reads its own output shifted right: row t of `decoder` and `cross` belongs to the position that has read
    `decoder_tokens[: t + 1]` and predicts `target_tokens[t]`. A column of `decoder` is a token read, from
    `decoder_tokens`; a column of `cross` is a source token. A decoder alone reads the source first: its row
    `first_step + t` predicts `target_tokens[t]`.
    """

    source: str
    translation: str
    """Empty for an encoder alone; for a decoder alone, the continuation of the text."""
    score: float
    """Log-probability of the translation given the source, in nats: the sum over the steps, up to float32 rounding.

    Tokens prescribed to an imported model, such as a language, cost nothing. `Translator.score` returns the same value,
    unless the search tokenized its text differently from the tokenizer; `target_tokens` are then those of the search.
    """
    source_tokens: list[str]
    """Pieces of the source: the language tag if any, the text, the end token."""
    target_tokens: list[str]
    """Pieces of the translation, the end token included; those of the search, if it was searched.

    Empty for an encoder alone.
    """
    encoder: Float32[np.ndarray, "L H S S"] = field(repr=False)
    """Attention weights. It has no layers, like `decoder` and `cross`, if the model lacks this attention."""
    decoder: Float32[np.ndarray, "L H N N"] = field(repr=False)
    cross: Float32[np.ndarray, "L H T S"] = field(repr=False)
    steps: list[Step] = field(repr=False)
    """One step per target token."""
    start_token: str = START_TOKEN
    """First token that the decoder reads, unless it is a decoder alone."""
    kind: Literal["encoder-decoder", "encoder", "decoder"] = "encoder-decoder"
    """Architecture of the model."""
    source_spans: list[Span | None] = field(default_factory=list, repr=False)
    """Character span in `source` of each of its tokens; None for a token without text."""
    target_spans: list[Span | None] = field(default_factory=list, repr=False)
    """Character span in `translation` of each target token; None for a token without text."""
    num_told: int = 0
    """Number of leading target tokens that are prescribed to the model, such as the language to write."""
    is_given: bool = True
    """Whether the translation was given; otherwise the model found it."""
    search: BeamTree | None = field(default=None, repr=False)
    """The model's own search, also if a translation was given; None if it was not requested."""
    lens: list[list[LensStep]] = field(default_factory=list, repr=False)
    """Logit lens: predictions from the embedded tokens and after every decoder layer, for each target token."""
    norms: Mapping[str, Float32[np.ndarray, "states tokens"]] = field(default_factory=dict, repr=False)
    """Vector norms of the states of `residual`, for `encoder` and `decoder`."""
    model: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Facts about the model: its name, shape and settings.

    `label_smoothing` is the one it was trained with, if known; `highest_probability` is the probability that a
    perfectly trained model assigns under that smoothing.
    """
    attribution: Attribution | None = field(default=None, repr=False)
    """Contribution of each source token to each target token; None if not requested."""
    alignment_head: AlignmentHead = field(default_factory=AlignmentHead)
    """Attention head used for word alignment: the one chosen for the model, or the mean of all heads."""
    ablation: Ablation | None = field(default=None, repr=False)
    """Effect of each head on the translation; None if not requested."""
    memory: ConsultedMemory | None = field(default=None, repr=False)
    """Similar pairs of a memory, with their probabilities at each step; None if none was consulted."""
    reader: Reader | None = field(default=None, repr=False)
    """Converts the tokens of `search` to text."""
    model_pass: ModelPass | None = field(default=None, repr=False)
    """The forward pass, for `head` and `residual`; None for an explanation that `explain` did not create."""

    @property
    def decoder_tokens(self) -> list[str]:
        """Token that the decoder reads at each position: the start token, then all target tokens but the last."""
        first = self.source_tokens if self.kind == "decoder" else [self.start_token]
        return [*first, *self.target_tokens[:-1]] if self.kind != "encoder" else []

    @property
    def first_step(self) -> int:
        """Row of `decoder` that predicts the first target token."""
        return len(self.source_tokens) - 1 if self.kind == "decoder" else 0

    @cached_property
    def source_words(self) -> list[TokenWord]:
        """The words of the source, with their tokens."""
        return token_words(self.source, self.source_spans)

    @cached_property
    def target_words(self) -> list[TokenWord]:
        """The words of the translation, with their tokens."""
        return token_words(self.translation, self.target_spans)

    @property
    def attentions(self) -> dict[AttentionName, Float32[np.ndarray, "L H rows columns"]]:
        """The attention weights of the attentions that the model has, by name."""
        all_three = {name: getattr(self, name) for name in ATTENTIONS}
        return {name: weights for name, weights in all_three.items() if len(weights)}

    @cached_property
    def head_statistics(self) -> dict[str, Mapping[str, Float[np.ndarray, "L H"]]]:
        """Entropy, distance and other statistics of every head; see `STATISTICS`."""
        return {
            name: head_statistics(weights, is_self=name != "cross", is_causal=name == "decoder")
            for name, weights in self.attentions.items()
        }

    @cached_property
    def head_roles(self) -> dict[str, list[list[HeadRole]]]:
        """Description of every head's behaviour on this sentence: for each attention its layers, and their heads."""
        has_text = np.array([span is not None for span in self.source_spans or self.source_tokens], dtype=bool)
        tokens = {"encoder": self.source_tokens, "decoder": self.decoder_tokens}
        return {
            name: cross_roles(weights, self.alignment, (self.target_tokens, self.source_tokens), has_text)
            if name == "cross"
            else self_roles(weights, tokens[name], is_causal=name == "decoder")
            for name, weights in self.attentions.items()
        }

    @cached_property
    def alignment(self) -> Float32[np.ndarray, "T S"]:
        """Attention of each target token to each source token, by `alignment_head`; rows sum to 1."""
        return self.alignment_head.of(self.cross) if len(self.cross) else np.zeros((0, 0), dtype=np.float32)

    @cached_property
    def links(self) -> list[Link]:
        """Word alignment: pairs of indices into `source_words` and `target_words`."""
        if not (len(self.cross) and self.source_words and self.target_words):
            return []
        tokens = [[span or (0, 0) for span in spans] for spans in (self.source_spans, self.target_spans)]
        words = [[word.span for word in words] for words in (self.source_words, self.target_words)]
        return link_words(self.alignment, *tokens, *words)

    def head(self, attention: AttentionName, layer: int, head: int) -> Head:
        """Return one head with every number of its attention; runs the model once more.

        Args:
            attention: `encoder`, `decoder` or `cross`.
            layer: Layer number, counted from 0.
            head: Head number, counted from 0.

        Raises:
            DataError: If there is no such head, or the explanation was not created by `explain`.
        """
        weights = self._of_attention(attention)
        if not (0 <= layer < len(weights) and 0 <= head < weights.shape[1]):
            raise DataError(
                f"there is no head {head} in layer {layer} of {attention!r}: it has {len(weights)} layers with "
                f"{weights.shape[1]} heads, each counted from 0"
            )
        ran = self._require_pass()
        module = attentions(ran.model, attention)[layer]
        [projected] = projections([module], ran.run)
        bias = relative_positions(ran.model, attention, weights.shape[2])
        position_scores = None if bias is None else bias[head]
        return Head.of(
            module, projected, weights[layer, head], position_scores, attention=attention, layer=layer, head=head
        )

    def projections(self, attention: AttentionName) -> list[Projections]:
        """Return inputs, queries, keys and values of every layer of an attention; runs the model once more.

        Raises:
            DataError: If the model has no such attention, or the explanation was not created by `explain`.
        """
        self._of_attention(attention)
        ran = self._require_pass()
        return projections(attentions(ran.model, attention), ran.run)

    def position_scores(self, attention: AttentionName) -> Float32[np.ndarray, "H rows columns"] | None:
        """Return the scores that relative positions add in every layer; None without relative positions.

        Raises:
            DataError: If the model has no such attention, or the explanation was not created by `explain`.
        """
        return relative_positions(self._require_pass().model, attention, self._of_attention(attention).shape[2])

    def residual(self, side: Literal["encoder", "decoder"]) -> Float32[np.ndarray, "states tokens D"]:
        """Return the residual stream: the embedded tokens, then the output of each layer; runs the model once more.

        The last states are those after the final norm, if there is one.

        Raises:
            DataError: If the model has no such side, or the explanation was not created by `explain`.
        """
        if side not in ("encoder", "decoder") or side not in self.attentions:
            raise DataError(f"this model has no {side!r}; it has {', '.join(self.attentions)}")
        ran = self._require_pass()

        from clearhead.inspection.forward_pass import numbers
        from clearhead.model.recorder import HiddenStates, Recorder

        hidden = HiddenStates()
        ran.run(Recorder(hidden=hidden))
        return numbers(hidden.encoder if side == "encoder" else hidden.decoder)

    def to_dict(self, *, packed: bool = False, with_vectors: bool = True) -> dict[str, Any]:
        """Return everything as plain JSON values; docs/explanation-json.md describes each.

        Args:
            packed: Encode arrays in base 64, for a page, and add queries, keys and values of all heads; otherwise
                arrays are nested lists, rounded to six digits.
            with_vectors: Whether to add queries, keys and values when `packed`.
        """
        array = pack if packed else plain

        def present(weights: np.ndarray) -> Any:
            return (packed_weights if packed else plain)(weights) if len(weights) else None

        return {
            "clearhead_explanation": SCHEMA_VERSION,
            "kind": self.kind,
            "model": dict(self.model),
            **{name: plain_values(getattr(self, name)) for name in _AS_THEY_ARE},
            **{name: present(getattr(self, name)) for name in (*ATTENTIONS, "alignment")},
            "alignment_head": {**self.alignment_head._asdict(), "name": str(self.alignment_head)}
            if len(self.cross)
            else None,
            "links": plain_values(self.links),
            "head_statistics": {
                name: {statistic: plain(values) for statistic, values in of_heads.items()}
                for name, of_heads in self.head_statistics.items()
            },
            "head_roles": {name: plain_values(roles, digits=6) for name, roles in self.head_roles.items()},
            "steps": plain_values(self.steps),
            "logit_lens": plain_values(self.lens, digits=6) or None,
            "residual_norms": {side: plain(norms) for side, norms in self.norms.items()},
            "search": None if self.search is None else self.to_search(),
            "attribution": None if self.attribution is None else self.attribution.to_dict(array),
            **({} if self.memory is None else {"memory": self.memory.to_dict()}),
            "ablation": None if self.ablation is None else self.ablation.to_dict(),
            "vectors": self._vectors() if packed and with_vectors and self.model_pass is not None else None,
        }

    def to_search(self) -> dict[str, Any]:
        """Return the search as plain JSON values, with its tokens as text; see `to_dict`."""
        tree, reader = self.search, self.reader
        assert tree is not None
        assert reader is not None, "a search without what reads its tokens"
        chosen = set(tree.path(tree.finished[0]) if tree.finished else ())
        pieces = reader.pieces([node.token for node in tree.nodes])

        def text_of(tokens: Sequence[int]) -> str:
            return reader.text(tokens[self.num_told :])

        text = text_of(tree.hypothesis.tokens)
        return {
            "beam_size": tree.beam_size,
            "length_penalty": tree.length_penalty,
            "max_length": tree.max_length,
            "text": text,
            "is_translation": text == self.translation,
            "was_ended": tree.hypothesis.was_ended,
            "nodes": [
                {**plain_values(node, digits=6), "token": piece, "is_chosen": node.number in chosen}
                for node, piece in zip(tree.nodes, pieces, strict=True)
            ],
            "finished": [
                {
                    "node": number,
                    "text": text_of([tree.nodes[node].token for node in tree.path(number)]),
                    "score": tree.nodes[number].score,
                    "rank_score": tree.nodes[number].rank_score,
                }
                for number in tree.finished
            ],
        }

    def _vectors(self) -> dict[str, Any] | None:
        """Return queries, keys and values of all heads, as exactly as fits in a page; None if they do not fit."""
        vectors = {name: self.projections(name) for name in self.attentions}
        layers = [layer for projected in vectors.values() for layer in projected]
        size = sum(part.size for layer in layers for part in (layer.queries, layer.keys, layer.values))
        if size > MOST_ROUNDED:
            return None
        rows = pack if size <= MOST_EXACT else packed_rows
        return {
            name: {
                "queries": rows(np.stack([layer.queries for layer in projected])),
                "keys": rows(np.stack([layer.keys for layer in projected])),
                "values": rows(np.stack([layer.values for layer in projected])),
                "log_sums": pack(self._log_sums(name, projected)),
                "position_scores": None if (bias := self.position_scores(name)) is None else pack(bias),
            }
            for name, projected in vectors.items()
        }

    def _log_sums(self, name: AttentionName, layers: list[Projections]) -> Float[np.ndarray, "L H rows"]:
        """Return the log-sum-exp of the scores of every row: a score is the logarithm of its weight plus this."""
        bias = self.position_scores(name)
        rows = []
        for layer in layers:
            scores = layer.queries @ layer.keys.swapaxes(-1, -2) * self.model["scale"]  # (H, rows, columns)
            if bias is not None:
                scores = scores + bias
            if name == "decoder":
                scores = np.where(np.tril(np.ones(scores.shape[1:], dtype=bool)), scores, -np.inf)
            highest = scores.max(axis=-1, keepdims=True)
            rows.append((highest + np.log(np.exp(scores - highest).sum(axis=-1, keepdims=True)))[..., 0])
        return np.stack(rows)

    def to_html(self) -> str:
        """Return one self-contained HTML page that needs no other file and no network.

        Raises:
            DataError: If the sentence is too long for a page.
        """
        self.require_room()
        return render_page(self.to_dict(packed=True))

    def _repr_html_(self) -> str:
        """Return the page for display in a notebook."""
        return framed(self.to_html)

    def require_room(self) -> None:
        """Raise an error unless a page can hold the sentence.

        Raises:
            DataError: If it is too long.
        """
        if (held := sum(weights.size for weights in self.attentions.values())) > MAX_PAGE_WEIGHTS:
            raise DataError(
                f"a page holds at most {MAX_PAGE_WEIGHTS:,} attention weights, and this sentence has {held:,}; "
                f"split it into sentences, or take the numbers as JSON"
            )

    def _of_attention(self, name: AttentionName) -> Float32[np.ndarray, "L H rows columns"]:
        if (weights := self.attentions.get(name)) is None:
            raise DataError(f"this model has no attention {name!r}; it has {', '.join(self.attentions)}")
        return weights

    def _require_pass(self) -> ModelPass:
        if self.model_pass is None:
            raise DataError(
                "this explanation does not hold its model; make it with clearhead.explain, and with PyTorch"
            )
        return self.model_pass
