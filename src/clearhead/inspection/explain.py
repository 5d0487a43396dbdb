"""One sentence with everything the model did on it: what each head attended to, and how sure each step was.

Shapes: L layers, H heads, S source tokens, T target tokens.
"""

from __future__ import annotations

import html
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from clearhead.errors import ConfigError, DataError
from clearhead.inspection.page import render_frame, render_page
from clearhead.tokenizers import START_TOKEN, Vocabulary, require_texts
from clearhead.translator import Translator

__all__ = ["Candidate", "Explanation", "Step", "explain"]

NUM_CANDIDATES = 5
"""Most probable tokens shown at each step."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token the model might have written."""

    token: str
    probability: float


@dataclass(frozen=True, slots=True)
class Step:
    """The choice of one target token."""

    token: str
    """The token written."""
    probability: float
    """Its probability given the source and the target tokens before it."""
    candidates: tuple[Candidate, ...]
    """The most probable tokens, best first; the one written need not be among them."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a model attended to while it translated one line.

    The decoder reads its own output shifted right: row t of `decoder` and `cross` belongs to the position that has read
    `decoder_tokens[: t + 1]` and predicts `target_tokens[t]`. A column of `decoder` is a token read, from
    `decoder_tokens`; a column of `cross` is a source token.
    """

    source: str
    translation: str
    score: float
    """Log-probability of the translation given the source, in nats: what `Translator.score` says, and, but for the
    rounding of float32, the sum over the steps; what an imported model is told, such as a language, costs nothing."""
    source_tokens: list[str]
    """Pieces of the source: the language tag if any, the text, the end token."""
    target_tokens: list[str]
    """Pieces of the translation as predicted, the end token included."""
    encoder: Float32[np.ndarray, "L H S S"] = field(repr=False)
    decoder: Float32[np.ndarray, "L H T T"] = field(repr=False)
    cross: Float32[np.ndarray, "L H T S"] = field(repr=False)
    steps: list[Step] = field(repr=False)
    """One for each target token."""
    start_token: str = START_TOKEN
    """What the decoder reads first."""

    @property
    def decoder_tokens(self) -> list[str]:
        """What the decoder read at each position: the start token, then the target up to its last token but one."""
        return [self.start_token, *self.target_tokens[:-1]]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values; weights are rounded to six digits."""
        return {
            "source": self.source,
            "translation": self.translation,
            "score": self.score,
            "source_tokens": self.source_tokens,
            "decoder_tokens": self.decoder_tokens,
            "target_tokens": self.target_tokens,
            "encoder": _plain(self.encoder),
            "decoder": _plain(self.decoder),
            "cross": _plain(self.cross),
            "steps": [
                {**asdict(step), "candidates": [asdict(candidate) for candidate in step.candidates]}
                for step in self.steps
            ],
        }

    def to_html(self) -> str:
        """Return one HTML page that needs no other file and no network.

        Raises:
            DataError: If the sentence is too long for a page.
        """
        return render_page(
            source=self.source,
            translation=self.translation,
            score=self.score,
            source_tokens=self.source_tokens,
            decoder_tokens=self.decoder_tokens,
            target_tokens=self.target_tokens,
            weights={"cross": self.cross, "encoder": self.encoder, "decoder": self.decoder},
            steps=[
                (step.token, step.probability, [(other.token, other.probability) for other in step.candidates])
                for step in self.steps
            ],
        )

    def _repr_html_(self) -> str:
        """Show the page in a notebook."""
        try:
            return render_frame(self.to_html())
        except DataError as error:
            return f"<p>{html.escape(str(error))}</p>"


@torch.inference_mode()
def explain(translator: Translator, text: str, target: str | None = None) -> Explanation:
    """Translate a line, or take its translation as given, and return what every head attended to.

    Args:
        translator: The model.
        text: A source line; it may start with a language tag, such as `<2de> `. It is read whole and as it is; of a
            line that `translate` splits, or reads in another form, explain one of its `sentences`.
        target: A translation to explain; if not given, the model searches for its own with its own decode settings.

    Raises:
        ConfigError: If it is an ensemble, or an encoder or a decoder alone; or if the model has language tags, and
            neither the text nor its settings name a language.
        DataError: If the text is empty or no text, starts with an unknown language tag, or a side is longer than
            `decode.max_input_tokens`.
    """
    require_texts([text] if target is None else [text, target], "text and target")
    if translator.ensemble:
        raise ConfigError(
            "an ensemble has no attention of its own: its members' probabilities are averaged, and nothing else; "
            "explain each of its models by itself"
        )
    bundle = translator.bundle
    if not bundle.model.config.is_encoder_decoder:
        raise ConfigError(
            "an encoder or a decoder alone translates nothing that could be explained; in Python, "
            "model.attention_weights gives what its heads attend to"
        )
    tokenizer, model, settings = bundle.tokenizer, bundle.model, translator.decode_config({})
    parts = translator.split_sources([text], settings.target_lang)
    if not parts[0][1].strip():
        raise DataError("there is nothing to explain: the text is empty; give a sentence to translate")
    if target is None:
        target = translator.translate([text], scores=False)[0].text
    [source_ids], [target_ids] = translator.spell(parts, [target], settings)
    _require_at_most(settings.max_input_tokens, source_ids, "text")
    _require_at_most(settings.max_input_tokens, target_ids, "target")

    device = model.device
    source = torch.tensor([source_ids], device=device)  # (1, S)
    shifted = torch.tensor([[model.config.bos_id, *target_ids[:-1]]], device=device)  # (1, T)
    log_probs = model(source, shifted)[0].float().log_softmax(dim=-1)  # (T, V)
    weights = model.attention_weights(source, shifted)
    written = log_probs.gather(-1, torch.tensor(target_ids, device=device)[:, None])[:, 0].tolist()
    return Explanation(
        source=text,
        translation=target,
        score=translator.score([text], [target])[0],
        source_tokens=tokenizer.source_pieces(source_ids),
        target_tokens=tokenizer.pieces(target_ids),
        encoder=_stack(weights.encoder),
        decoder=_stack(weights.decoder),
        cross=_stack(weights.cross),
        steps=_steps(tokenizer, target_ids, written, log_probs),
        start_token=tokenizer.pieces([tokenizer.bos_id])[0],
    )


def _steps(
    tokenizer: Vocabulary, target_ids: list[int], written: list[float], log_probs: Float[Tensor, "T V"]
) -> list[Step]:
    # The model's own distribution, special tokens included: the search passes over <pad> and <s> even where they lead.
    best = log_probs.topk(min(NUM_CANDIDATES, log_probs.size(-1)), dim=-1)
    return [
        Step(
            token=token,
            probability=math.exp(log_prob),
            candidates=tuple(
                Candidate(piece, math.exp(value)) for piece, value in zip(tokenizer.pieces(ids), values, strict=True)
            ),
        )
        for token, log_prob, ids, values in zip(
            tokenizer.pieces(target_ids), written, best.indices.tolist(), best.values.tolist(), strict=True
        )
    ]


def _stack(layers: list[Float[Tensor, "1 H T S"]]) -> Float32[np.ndarray, "L H T S"]:
    return torch.cat(layers).float().cpu().numpy()


def _plain(weights: Float32[np.ndarray, "L H T S"]) -> list[Any]:
    return np.round(weights.astype(np.float64), 6).tolist()


def _require_at_most(limit: int, ids: list[int], what: str) -> None:
    if len(ids) > limit:
        raise DataError(
            f"the {what} has {len(ids):,} tokens; at most {limit:,} can be explained (decode.max_input_tokens): "
            f"split it into sentences"
        )
