"""Beam search of one sentence with an engine, whose steps are observed; the same steps as `beam_search` takes.

Shapes: K beams, V vocabulary.
"""

from __future__ import annotations

import numpy as np

from clearhead.config import DecodeConfig
from clearhead.decoding.beam_record import BeamObserver, BeamStep, Ending, considered_of_sentence
from clearhead.decoding.best_tokens import best_tokens
from clearhead.decoding.engine import Beams, Engine
from clearhead.decoding.hypothesis import Hypothesis
from clearhead.decoding.rules import can_win, first_token, rank_penalty, score_to_beat
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens


def recorded_search(engine: Engine, sentence: Sentence, config: DecodeConfig, observer: BeamObserver) -> Hypothesis:
    """Return the best translation of a sentence.

    Args:
        engine: An engine in fp32.
        sentence: The sentence.
        config: Settings of the search.
        observer: Called with every step.
    """
    model, size = engine.model.config, config.beam_size
    allowed = AllowedTokens.of(model, config, engine.parts)
    slots = engine.slots(size, 1)
    slots.enter(slots.encode([sentence]))
    beams = Beams([0.0], [first_token(model, sentence.source)], [0], [], 0)
    written: list[tuple[int, ...]] = [()]
    finished: list[Hypothesis] = []
    longest = rank_penalty(sentence.max_length, config)
    for length in range(1, sentence.max_length + 1):
        beams.masks = [allowed.after(tokens, sentence) for tokens in written]
        log_probs = slots.log_probs([beams])  # (K, V)
        all_scores = np.array(beams.scores, dtype=np.float32)[:, None] + log_probs
        [scores], [places] = best_tokens(all_scores.reshape(1, -1), 2 * size)
        is_real = scores > -np.inf
        scores = scores[is_real].tolist()
        parents, tokens = (part.tolist() for part in np.divmod(places[is_real], all_scores.shape[1]))
        penalty = rank_penalty(length, config)
        for beam, token, score in zip(parents[:size], tokens[:size], scores[:size], strict=True):
            if token == model.eos_id:
                was_ended = beams.masks[beam] is allowed.end
                finished.append(Hypothesis((*written[beam], token), score, score / penalty, was_ended))
        kept = [place for place, token in enumerate(tokens) if token != model.eos_id][:size]
        costs = length > sentence.prefix.given
        beams = Beams(
            [scores[place] if costs else 0.0 for place in kept],
            [tokens[place] for place in kept],
            [parents[place] for place in kept],
            [],
            length,
        )
        can_go_on = bool(kept) and can_win(beams.scores[0], longest, score_to_beat(finished, 1))
        ending: Ending = "limit" if length == sentence.max_length else "" if can_go_on else "hopeless"
        seen = considered_of_sentence(parents, tokens, scores, log_probs, kept, size=size, eos_id=model.eos_id)
        observer(BeamStep(0, length, seen, ending))
        if ending:
            break
        written = [(*written[parent], token) for parent, token in zip(beams.parents, beams.newest, strict=True)]
    return max(finished, key=lambda one: one.rank_score)
