"""Explanation of one sentence: run the model and record what every head and step computed.

Shapes: T target tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from clearhead.config import DecodeChanges, DecodeConfig
from clearhead.decoding import NativeEngine, given_prefix
from clearhead.decoding.engine import Beams
from clearhead.decoding.sentence import Sentence
from clearhead.errors import ConfigError, DataError
from clearhead.inspection.beam_tree import record_search
from clearhead.inspection.explanation import Explanation
from clearhead.inspection.forward_pass import AS_IT_IS, ModelPass, numbers
from clearhead.inspection.neighbours import consulted_pairs
from clearhead.inspection.token_steps import NUM_CANDIDATES, LensStep, Step, lens, steps_of
from clearhead.inspection.tokens import Reader, Span
from clearhead.kernels.plain_code import plain_code
from clearhead.runtime.pytorch import has_pytorch
from clearhead.text.placeholder_masking import protect, protect_target
from clearhead.tokenizers import require_texts
from clearhead.translation.alignment import alignment_head
from clearhead.translation.memory import Retrieve
from clearhead.translation.translator import Translator

if TYPE_CHECKING:
    from jaxtyping import Float, Float32
    from torch import Tensor

    from clearhead.bundle import Bundle

_NO_WEIGHTS = np.zeros((0, 0, 0, 0), dtype=np.float32)


def explain(
    translator: Translator,
    text: str,
    target: str | None = None,
    *,
    top: int = NUM_CANDIDATES,
    search: bool = True,
    neighbours: Retrieve | None = None,
    plain: bool = False,
    **settings: Unpack[DecodeChanges],
) -> Explanation:
    """Translate a line, or take a given translation, and record the attention of every head.

    For a decoder alone, the translation is the continuation of the text; for an encoder alone there is none. Large
    arrays that are rarely needed (queries, keys, values, states) are computed on demand.

    Args:
        translator: The model.
        text: A source line; it may start with a language tag, such as `<2de> `. It is neither split nor normalized; to
            explain a line that `translate` splits or normalizes, explain one of its `sentences`. Its translation is the
            model's raw output: no markup is placed in it, and no shortlist excludes tokens.
        target: A translation to explain; if not given, the model searches for its own with its own decode settings.
        top: Number of most probable tokens recorded at each step.
        search: Whether to record the model's search as well.
        neighbours: Returns the pairs of a memory most similar to a text, which the search consults, as for
            `Translator.translate`.
        plain: Translate and score by the readable code alone, so that changes of it count.
        **settings: Fields of `DecodeConfig` that replace the model's own, such as `beam_size=8`.

    Raises:
        ConfigError: If it is not a translator, or an ensemble; if an encoder alone is given a target; if a setting is
            invalid; or if the model has language tags, and neither the text nor its settings name a language.
        DataError: If the text is empty or invalid, starts with an unknown language tag, or a side is longer than
            `decode.max_input_tokens`.
        ModelError: If the model's alignment.json is damaged.
    """
    _require_explainable(translator, text, target)
    if plain:
        with plain_code():
            return explain(translator.plain, text, target, top=top, search=search, neighbours=neighbours, **settings)
    config, shape, tokenizer = translator.decode_config(settings), translator.bundle.config, translator.bundle.tokenizer
    line = _line(translator, text, target, config, settings, neighbours)
    has_decoder, near = shape.num_decoder_layers > 0, consulted_pairs(translator, line.text, neighbours, settings)
    target_ids, score, engine = line.target_ids, 0.0, partial(translator.engines.of, "fp32")
    if has_decoder:
        [score] = translator.score([line.text], [line.translation], **settings)
    tree = None
    if has_decoder and (search or target is None):
        pairs = None if near is None else near.neighbours
        tree = record_search(engine(), line.source_ids, config, given_prefix(line.given), pairs)
        searched_ids = list(tree.hypothesis.tokens)
        searched = searched_ids[len(line.given) :]
        if target is None and searched_ids != target_ids and line.reader.text(searched) == line.translation:
            # The search may tokenize the text differently from the tokenizer; explain the tokens of the search.
            target_ids, score = searched_ids, tree.hypothesis.log_prob
            if near is not None:  # the search's is that of the mixture
                [score] = engine().score([line.source_ids], [target_ids])
    # The module computes where it can, because only it has states, queries and keys.
    compute = _with_module if has_pytorch() else _with_engine
    computed = compute(translator, line.reader, line.source_ids, target_ids, top)
    return Explanation(
        source=line.text,
        translation=line.translation,
        score=score,
        source_tokens=line.reader.source_pieces(line.source_ids),
        target_tokens=line.reader.pieces(target_ids),
        encoder=computed.encoder,
        decoder=computed.decoder,
        cross=computed.cross,
        steps=computed.steps,
        start_token=tokenizer.pieces([tokenizer.bos_id])[0],
        kind="encoder-decoder" if shape.is_encoder_decoder else "decoder" if has_decoder else "encoder",
        source_spans=line.source_spans(),
        target_spans=line.reader.target_spans(line.protected_translation, target_ids),
        num_told=len(line.given),
        is_given=target is not None,
        search=tree if search else None,
        lens=computed.lens,
        norms=computed.norms,
        model=model_facts(translator.bundle, translator.path, config),
        alignment_head=alignment_head(translator.bundle),
        memory=None if near is None else near.over(engine(), line.source_ids, target_ids),
        reader=line.reader,
        model_pass=computed.model_pass,
    )


def _require_explainable(translator: Translator, text: str, target: str | None) -> None:
    if not isinstance(translator, Translator):
        raise ConfigError(
            f"translator must be a clearhead.Translator, not {type(translator).__name__}; clearhead.Translator.load "
            f"reads one"
        )
    require_texts([text] if target is None else [text, target], "text and target")
    if translator.ensemble:
        raise ConfigError(
            "an ensemble has no attention of its own: its members' probabilities are averaged, and nothing else; "
            "explain each of its models by itself"
        )


@dataclass(frozen=True)
class _Line:
    """A source line and its translation, as text and as ids."""

    text: str
    """The source as the model reads it, after its language tag, if any."""
    tag: int
    """Length of the language tag."""
    translation: str
    protected_translation: str
    """The translation with its placeholders replaced by special characters."""
    source_ids: list[int]
    target_ids: list[int]
    given: tuple[int, ...]
    """Leading target ids that are prescribed to the model."""
    reader: Reader

    def source_spans(self) -> list[Span | None]:
        """Return the span of each source id in `text`."""
        spans = self.reader.source_spans(self.source_ids)
        return [None if span is None else (span[0] + self.tag, span[1] + self.tag) for span in spans]


def _line(
    translator: Translator,
    text: str,
    target: str | None,
    config: DecodeConfig,
    settings: DecodeChanges,
    neighbours: Retrieve | None,
) -> _Line:
    """Return a line and the translation to explain: the given one, otherwise that of the model."""
    pairs, tokenizer = translator.pair_encoder, translator.bundle.tokenizer
    [(language, given_words)] = pairs.split_sources([text], config.target_lang)
    words = pairs.source_form(given_words)
    tag = len(text) - len(given_words)
    text, parts = text[:tag] + words, [(language, words)]
    target = target and pairs.target_form(target)
    if not words.strip():
        raise DataError("there is nothing to explain: the text is empty; give a sentence to translate")
    has_decoder = translator.bundle.config.num_decoder_layers > 0
    if target is not None and not has_decoder:
        raise ConfigError("an encoder alone writes nothing; leave out the target, and what it reads is explained")
    [source_ids], _ = pairs.encode(parts, [""], config)
    _require_at_most(config.max_input_tokens, source_ids, "text")
    if target is None and has_decoder:
        whole: Any = {**settings, **AS_IT_IS}
        target = translator.translate([text], scores=False, neighbours=neighbours, **whole)[0].text
    target = target or ""
    _, [target_ids] = pairs.encode(parts, [target], config)
    if not has_decoder:
        target_ids = []
    _require_at_most(config.max_input_tokens, target_ids, "target")
    protected = protect(words, tokenizer.num_placeholders, with_numbers=config.protect_numbers)
    given = tokenizer.given(language) if has_decoder else ()
    written = protect_target(protected, target)
    return _Line(text, tag, target, written, source_ids, target_ids, given, Reader(tokenizer, protected))


@dataclass
class _Computed:
    """What the pass over the target computed; without PyTorch, only weights and steps."""

    encoder: np.ndarray
    """Attention weights, like those of `decoder` and `cross`."""
    decoder: np.ndarray
    cross: np.ndarray
    steps: list[Step] = field(default_factory=list)
    lens: list[list[LensStep]] = field(default_factory=list)
    norms: dict[str, np.ndarray] = field(default_factory=dict)
    model_pass: ModelPass | None = None


def _with_engine(
    translator: Translator, reader: Reader, source_ids: list[int], target_ids: list[int], top: int
) -> _Computed:
    """Return what the compiled engine computes, which needs no PyTorch."""
    engine = translator.engines.of("fp32")
    assert isinstance(engine, NativeEngine)  # other engines need PyTorch
    slots, model = engine.slots(1, 1), engine.model.config
    slots.enter(slots.encode([Sentence(0, source_ids, len(target_ids))]))
    everything = np.ones(model.vocab_size, dtype=bool)
    read = [model.bos_id, *target_ids[:-1]]
    log_probs = np.concatenate(  # the model's own distribution at every step, (T, V)
        [slots.log_probs([Beams([0.0], [token], [0], [everything], place)]) for place, token in enumerate(read)]
    )
    return _Computed(*engine.attention(source_ids, target_ids), steps_of(reader, target_ids, log_probs, top=top))


def _with_module(
    translator: Translator, reader: Reader, source_ids: list[int], target_ids: list[int], top: int
) -> _Computed:
    """Return what the model's module computes, in PyTorch."""
    import torch

    from clearhead.model.recorder import AttentionWeights, HiddenStates, Recorder

    ran = _model_pass(translator, source_ids, target_ids)
    weights, hidden = AttentionWeights(), HiddenStates()
    with torch.inference_mode():
        ran.run(Recorder(weights, hidden))
        computed = _Computed(_stack(weights.encoder), _stack(weights.decoder), _stack(weights.cross), model_pass=ran)
        if ran.target is not None:
            states = [state[0, -len(target_ids) :] for state in hidden.decoder]
            log_probs = ran.model.logits(states[-1]).float().log_softmax(dim=-1).numpy(force=True)  # (T, V)
            computed.steps = steps_of(reader, target_ids, log_probs, top=top)
            computed.lens = lens(ran.model, reader, target_ids, states)
    computed.norms = {
        side: np.linalg.norm(numbers(states), axis=-1)
        for side, states in (("encoder", hidden.encoder), ("decoder", hidden.decoder))
        if states
    }
    return computed


def with_attribution(explanation: Explanation, on_progress: Callable[[int], None] | None = None) -> Explanation:
    """Return an explanation extended by the contribution of each source token to each target token.

    Args:
        explanation: An explanation of an encoder-decoder, created by `explain`.
        on_progress: Called with 1 after every target token, the larger part of the work.

    Raises:
        DataError: If it has no source to attribute to, or was not created by `explain`.
    """
    if explanation.kind != "encoder-decoder" or explanation.model_pass is None:
        raise DataError("only the translation of an encoder-decoder, explained by clearhead.explain, has attributions")
    from clearhead.inspection.attribution import attribute

    return replace(explanation, attribution=attribute(explanation.model_pass, explanation.source_words, on_progress))


def _model_pass(translator: Translator, source_ids: list[int], target_ids: list[int]) -> ModelPass:
    """Return the forward pass that reads a source and predicts every token of a target."""
    import torch

    from clearhead.model.module_state import has_own_forward

    model = translator.bundle.own_module
    if has_own_forward(model):
        raise ConfigError(
            "the model's own `forward` was replaced, or has hooks, and what is explained is computed by its parts; "
            "change or hook one of its parts, such as model.decoder.layers[0]"
        )
    config = model.config
    source = torch.tensor([source_ids], device=model.device)
    if config.is_decoder_alone:
        whole = torch.tensor([[*source_ids, *target_ids[:-1]]], device=model.device)
        return ModelPass(model, None, whole, tuple(target_ids))
    if not config.num_decoder_layers:
        return ModelPass(model, source, None, ())
    shifted = torch.tensor([[config.bos_id, *target_ids[:-1]]], device=model.device)
    return ModelPass(model, source, shifted, tuple(target_ids))


def model_facts(bundle: Bundle, path: Path | None, config: DecodeConfig) -> dict[str, Any]:
    """Return the value of `Explanation.model`.

    Args:
        bundle: The model.
        path: Where it was read from; None if it has no name.
        config: Only `beam_size` is used.
    """
    shape = bundle.config
    settings = bundle.info.get("settings")
    train = settings.get("train") if isinstance(settings, Mapping) else None
    smoothing = train.get("label_smoothing") if isinstance(train, Mapping) else None
    return {
        "name": None if path is None else _name_of(path),
        "num_encoder_layers": shape.num_encoder_layers,
        "num_decoder_layers": shape.num_decoder_layers,
        "num_heads": shape.num_heads,
        "d_model": shape.d_model,
        "d_k": shape.key_dim,
        "scale": shape.key_dim**-0.5 if shape.attention_scale else 1.0,
        "vocab_size": shape.vocab_size,
        "norm": shape.norm,
        "positions": shape.positions,
        "beam_size": config.beam_size,
        "label_smoothing": smoothing,
        # Label smoothing gives the true token (1 - eps) plus its share of the uniform part; see `training.loss`.
        "highest_probability": None if smoothing is None else 1.0 - smoothing + smoothing / shape.vocab_size,
    }


def _name_of(path: Path) -> str:
    """Return a distinctive model name: the directory, with its parent if it is called `model`, as in every run."""
    path = path.absolute()
    return f"{path.parent.name}/{path.name}" if path.name == "model" else path.name


def _stack(layers: Sequence[Float[Tensor, "1 H T S"]]) -> Float32[np.ndarray, "L H T S"]:
    return np.concatenate([layer.float().numpy(force=True) for layer in layers]) if layers else _NO_WEIGHTS


def _require_at_most(limit: int, ids: list[int], what: str) -> None:
    if len(ids) > limit:
        raise DataError(
            f"the {what} has {len(ids):,} tokens; at most {limit:,} can be explained (decode.max_input_tokens): "
            f"split it into sentences"
        )
