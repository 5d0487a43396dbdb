"""Reference beam search with a length penalty (paper section 6.1), whose steps can be observed.

Translation uses `beam_state` and an engine, with the same results.

Shapes: B sentences still open, K beams, R = B * K rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.config.choices import PenaltyForm
from clearhead.decoding.beam_record import BeamObserver, BeamStep, Ending, considered
from clearhead.decoding.hypothesis import Hypothesis, length_penalty
from clearhead.decoding.rules import can_win, score_to_beat
from clearhead.decoding.sentence import Prefix, sentences_of
from clearhead.decoding.step import DecodingBatch, next_log_probs
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.decoding.utf8 import CharacterParts
from clearhead.model.transformer import Transformer


def beam_search(
    model: Transformer,
    sources: list[list[int]],
    *,
    max_lengths: list[int],
    beam_size: int,
    alpha: float,
    form: PenaltyForm = "gnmt",
    num_best: int = 1,
    prefixes: Sequence[Prefix] = (),
    end_loops: bool = True,
    min_length: int = 0,
    no_repeat_ngram_size: int = 0,
    parts: CharacterParts | None = None,
    observer: BeamObserver | None = None,
) -> list[list[Hypothesis]]:
    """Return the translations with the best log-probability divided by length penalty.

    Every step keeps the `beam_size` best candidates. A candidate that ends is finished and frees its place for the next
    best one. The search of a sentence stops when no open hypothesis can still enter its `num_best` finished ones
    (`rules.can_win`).

    `translate` runs its fast twin, `beam_state.SearchedSentence` with an engine; with `plain=True`, `--plain` and in
    `explain`, this one. tests/unit/decoding/test_beam_state.py and test_native_search.py hold them equal.

    Args:
        model: A model in evaluation mode.
        sources: Source ids of each sentence, ended by `eos_id`.
        max_lengths: Maximum target tokens of each sentence, end token included.
        beam_size: Hypotheses kept at every step, K.
        alpha: Exponent of the length penalty, at least 0.
        form: Formula of the length penalty, see `length_penalty`.
        num_best: Hypotheses returned for each sentence, best first; at most `beam_size`.
        prefixes: Forced target prefix of each sentence; empty if there are none.
        end_loops: Whether a hypothesis in a repetition loop must end.
        min_length: Minimum target tokens, end token included.
        no_repeat_ngram_size: Tokens of a sequence that may not be repeated; 0 allows every repetition.
        parts: The tokens that are parts of characters; None if there are none.
        observer: Called with every step of every sentence, if given; it does not change the result.
    """
    assert 1 <= num_best <= beam_size, (num_best, beam_size)
    eos_id = model.config.eos_id
    device = model.device
    finished: list[list[Hypothesis]] = [[] for _ in sources]
    batch = DecodingBatch.encode(model, sources, beam_size)
    allowed = AllowedTokens(
        model.config,
        end_loops=end_loops,
        min_length=min_length,
        no_repeat_ngram_size=no_repeat_ngram_size,
        parts=parts,
    )
    sentences = sentences_of(sources, max_lengths, prefixes)

    open_sentences = list(range(len(sources)))  # index in `sources` of each open sentence
    newest = batch.newest.repeat_interleave(beam_size)  # (R,)
    tokens = torch.empty((len(sources), beam_size, 0), dtype=torch.int64, device=device)  # (B, K, length)
    # All beams of a sentence begin equal. Only the first may count, or all K would stay the same hypothesis.
    scores = torch.full((len(sources), beam_size), float("-inf"), device=device)  # (B, K)
    scores[:, 0] = 0.0

    for length in range(1, max(max_lengths) + 1):
        masks = [
            allowed.after(written, sentences[sentence])
            for sentence, beams in zip(open_sentences, tokens.tolist(), strict=True)
            for written in beams
        ]
        log_probs = next_log_probs(model, batch, newest, masks)  # (R, V)
        vocab_size = log_probs.size(-1)
        all_scores = (scores.view(-1, 1) + log_probs).view(len(open_sentences), -1)  # (B, K * V)
        # At most K of the best 2 K end, so the K best open ones are always among them.
        candidate_scores, candidates = all_scores.topk(2 * beam_size, dim=-1)  # (B, 2K), best first
        beams, ids = candidates // vocab_size, candidates % vocab_size
        ends = ids == eos_id

        for row, rank in (ends[:, :beam_size] & candidate_scores[:, :beam_size].isfinite()).nonzero().tolist():
            log_prob = candidate_scores[row, rank].item()
            prefix = tokens[row, beams[row, rank]].tolist()
            rank_score, sentence = log_prob / length_penalty(length, alpha, form), open_sentences[row]
            was_ended = masks[row * beam_size + beams[row, rank].item()] is allowed.end
            finished[sentence].append(Hypothesis((*prefix, eos_id), log_prob, rank_score, was_ended))

        found = beams, ids, candidate_scores
        scores, picked = candidate_scores.masked_fill(ends, float("-inf")).topk(beam_size, dim=-1)  # (B, K)
        beams, ids = beams.gather(1, picked), ids.gather(1, picked)
        tokens = torch.cat([tokens.gather(1, beams[..., None].expand(-1, -1, length - 1)), ids[..., None]], dim=-1)
        costs = torch.tensor([length > sentences[sentence].prefix.given for sentence in open_sentences], device=device)
        scores = scores.where(costs[:, None] | ~scores.isfinite(), 0.0)

        best_open = scores[:, 0].tolist()
        stay = [
            row
            for row, sentence in enumerate(open_sentences)
            if length < max_lengths[sentence]
            and can_win(
                best_open[row],
                length_penalty(max_lengths[sentence], alpha, form),
                score_to_beat(finished[sentence], num_best),
            )
        ]
        if observer is not None:
            seen = considered(*found, log_probs.view(*scores.shape, vocab_size), picked, eos_id=eos_id)
            for row, sentence in enumerate(open_sentences):
                ending: Ending = "" if row in stay else "limit" if length == max_lengths[sentence] else "hopeless"
                observer(BeamStep(sentence, length, seen[row], ending))
        if not stay:
            break
        rows = torch.arange(len(open_sentences), device=device)[:, None] * beam_size + beams  # (B, K)
        if len(stay) < len(open_sentences):
            kept: Tensor | None = torch.tensor(stay, device=device)
            open_sentences = [open_sentences[row] for row in stay]
            rows, ids, scores, tokens = (x[kept] for x in (rows, ids, scores, tokens))
        else:
            kept = None
        batch.select(rows.flatten(), kept)
        newest = ids.flatten()

    return [sorted(hypotheses, key=lambda h: -h.rank_score)[:num_best] for hypotheses in finished]
