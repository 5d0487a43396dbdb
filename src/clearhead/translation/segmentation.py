"""Split lines into segments: whole lines, or their sentences."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import SearchOptions, cut_sources
from clearhead.text.line_statistics import LineStatistics
from clearhead.text.placeholder_masking import protect, without_signs
from clearhead.text.placeholders import find_placeholders
from clearhead.text.sentence_splitting import split_sentences
from clearhead.tokenizers import Vocabulary
from clearhead.tokenizers.vocabulary import refuse_surrogates
from clearhead.translation.segment import Segment, SegmentedLine

_CHARACTERS_OF_A_TOKEN = 64
"""Far more characters than the tokens of a text have on average."""


def cut_lines(
    lines: Sequence[SegmentedLine], tokenizer: Vocabulary, config: DecodeConfig, trained: LineStatistics | None
) -> None:
    """Set the segments of lines: their sentences, or whole lines.

    With `always`, every line of several sentences is split. With `auto`, only those longer than the lines that the
    model was trained on (`LineStatistics.covers`), or longer than the input limit. A line whose translation begins with
    several given sentences stays whole, for it is unknown which of its sentences these translate.

    Args:
        lines: The lines, normalized.
        tokenizer: Tokenizes lines and sentences.
        config: Only `split`, `max_input_tokens`, `protect_numbers` and `source_lang` are used.
        trained: Statistics of the training lines; None if unknown.

    Raises:
        DataError: If a line contains an unpaired surrogate.
    """
    for line in lines:
        whole, num_sentences = (line.form.text, line.form.whole, ""), len(line.form.cut.sentences)
        line.segments = _segments(line, [whole], num_sentences, tokenizer, config)
    # Tokenize whole lines first, so that an error message counts lines.
    tokenize([segment for line in lines for segment in line.segments], tokenizer, config)
    split = [line for line in lines if _is_cut(line, line.segments[0], config, trained)]
    for line in split:
        sentences, gaps = line.form.cut
        texts = zip(sentences, line.form.original, ("", *gaps), strict=True)
        line.segments = _segments(line, texts, 1, tokenizer, config)
    tokenize([segment for line in split for segment in line.segments], tokenizer, config)


def _segments(
    line: SegmentedLine,
    texts: Iterable[tuple[str, str, str]],
    num_sentences: int,
    tokenizer: Vocabulary,
    config: DecodeConfig,
) -> list[Segment]:
    """Return the segments of a line, not tokenized yet.

    Args:
        line: The line.
        texts: Text of each segment, normalized and as it was, and the white space before it.
        num_sentences: Number of sentences of each.
        tokenizer: The vocabulary.
        config: As for `cut_lines`.
    """
    numbers = config.protect_numbers
    # Placeholders in the given beginning of a translation are tokenized as text. If the line's were masked, the
    # translation could repeat them. A sign in it is text as well: restored, it would become a placeholder of the line.
    given = line.beginning
    is_text = bool(given) and (any(find_placeholders(given, with_numbers=numbers)) or without_signs(given) != given)
    num_signs = 0 if is_text else tokenizer.num_placeholders
    return [
        Segment(
            line.tag + text,
            text,
            original,
            gap,
            num_sentences,
            protect(text, num_signs, with_numbers=numbers),
            line.language,
        )
        for text, original, gap in texts
    ]


def tokenize(segments: Sequence[Segment], tokenizer: Vocabulary, config: DecodeConfig) -> None:
    """Tokenize segments; of a text that is certainly longer than the input limit, the beginning alone.

    A word of a million characters would otherwise take 150 MB, of which the model reads the first `max_input_tokens`.
    """
    texts = [(segment.language, segment.protected.text) for segment in segments]
    most = _CHARACTERS_OF_A_TOKEN * config.max_input_tokens
    found = tokenizer.encode_parts([(language, text[:most]) for language, text in texts], config.source_lang)
    if long := [number for number, (_, text) in enumerate(texts) if len(text) > most]:
        refuse_surrogates([text for _, text in texts])
        for number in long:
            if len(found[number]) <= config.max_input_tokens:  # such as a long word that is one unknown token
                found[number] = tokenizer.encode_parts([texts[number]], config.source_lang)[0]
    for segment, ids in zip(segments, found, strict=True):
        segment.ids, segment.num_tokens = ids, len(ids)


def cut_to_limit(segments: Sequence[Segment], model: ModelConfig, config: DecodeConfig, *, begun: int = 0) -> None:
    """Cut the ids of segments to what the model reads; see `cut_sources`."""
    cut = cut_sources(model, config, [segment.ids for segment in segments], begun=begun)
    for segment, ids in zip(segments, cut, strict=True):
        segment.ids = ids


def _is_cut(line: SegmentedLine, whole: Segment, config: DecodeConfig, trained: LineStatistics | None) -> bool:
    if whole.num_sentences == 1 or config.split == "never":
        return False
    if line.beginning and len(split_sentences(line.beginning)) > 1:
        return False
    if config.split == "always" or whole.num_tokens > config.max_input_tokens:
        return True
    return trained is not None and not trained.covers(whole.num_sentences, whole.num_tokens)


def lines_done(
    lines: Sequence[SegmentedLine], on_lines_done: Callable[[int], None] | None
) -> Callable[[int], None] | None:
    """Return a progress callback that converts numbers of finished segments to approximate numbers of lines.

    Args:
        lines: The lines; those without a segment to translate are not counted.
        on_lines_done: Called with the number of lines.
    """
    if on_lines_done is None or not any(line.is_split for line in lines):
        return on_lines_done
    report = on_lines_done
    counts = [count for line in lines if (count := len(line.to_translate))]
    num_lines, num_segments = len(counts), sum(counts)
    done = 0

    def on_segments_done(segments: int) -> None:
        nonlocal done
        before, done = done * num_lines // num_segments, done + segments
        if advance := done * num_lines // num_segments - before:
            report(advance)

    return on_segments_done


def align_samples(lines: Sequence[SegmentedLine], options: SearchOptions) -> None:
    """Reorder the samples of sentences such that the i-th of all sentences of a line form a sample of the line.

    The samples of each sentence arrive sorted by probability. Combining all the best, all the second best and so on
    would not be draws from the model. So they are shuffled, and the resulting lines are sorted by probability.

    Args:
        lines: The lines, with equally many samples for each segment that is translated.
        options: Options of the search that drew them; the order depends on the seed of `sampling`.
    """
    assert options.sampling is not None
    for segments in (line.to_translate for line in lines if len(line.to_translate) > 1):
        shuffled = [
            random.Random(f"{options.sampling.seed} {number}").sample(segment.found, len(segment.found))
            for number, segment in enumerate(segments)
        ]
        rows = sorted(zip(*shuffled, strict=True), key=lambda row: -sum(one.log_prob for one in row))
        for number, segment in enumerate(segments):
            segment.found = [row[number] for row in rows]
