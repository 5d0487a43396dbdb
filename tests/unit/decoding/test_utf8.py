"""No search leaves a character incomplete: masks against Python's decoder of UTF-8, searches with random weights."""

from __future__ import annotations

import random
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.decoding import Prefix, Sampling, SearchOptions, Shortlist
from clearhead.decoding.scheduler import search
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.decoding.utf8 import CharacterParts
from clearhead.translation.options import TranslateOptions
from clearhead.translation.terminology import Term, Terms
from clearhead.translation.translator import Translator
from plain_search import plain_search

PAD, START, END, FIRST = 0, 1, 2, 3
BORDERS = bytes.fromhex("41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")


@lru_cache(None)
def is_utf8(text: bytes) -> bool:
    try:
        return text.decode() is not None
    except UnicodeDecodeError:
        return False


@lru_cache(None)
def can_be_completed(pending: bytes) -> bool:
    """Return whether bytes are the beginning of a character, by trying the borders of all ranges of Unicode."""
    ends = (bytes(some) for number in range(4) for some in product((0x80, 0x90, 0xA0, 0xBF), repeat=number))
    return any(is_utf8(pending + end) for end in ends)


@lru_cache(None)
def incomplete_end(text: bytes) -> bytes | None:
    """Return the bytes of the incomplete character at the end of a text; None if it is not the beginning of UTF-8."""
    for size in range(min(4, len(text) + 1)):
        pending = text[len(text) - size :]
        if is_utf8(text[: len(text) - size]) and can_be_completed(pending):
            return pending
    return None


class Needed(dict[bytes, int]):
    """The least number of tokens that complete a character, by trying them all."""

    def __init__(self, texts: list[bytes]) -> None:
        super().__init__({b"": 0})
        self.texts = texts

    def __missing__(self, pending: bytes) -> int:
        reached, number = {pending}, 0
        while b"" not in reached:
            ends = {incomplete_end(before + text) for before in reached for text in self.texts}
            reached, number = ends - {None}, number + 1
        self[pending] = number
        return number


def vocabulary(choose: random.Random) -> list[bytes]:
    """Return the bytes at the borders of all ranges, and longer tokens: whole characters, and parts of them."""
    characters = "aé€犬😆߿ࠀ퟿\U00010000\U0010ffff"
    text = "".join(choose.choices(characters, k=40)).encode()
    cuts = [text[start : start + choose.randint(2, 6)] for start in choose.sample(range(len(text) - 6), 30)]
    return [*(bytes([byte]) for byte in BORDERS), *dict.fromkeys(cut for cut in cuts if len(cut) > 1)]


@pytest.mark.parametrize("seed", range(4))
def test_exactly_the_tokens_that_can_become_valid_in_time_are_allowed(seed):
    choose = random.Random(seed)
    texts = vocabulary(choose)
    size = FIRST + len(texts)
    config = ModelConfig(vocab_size=size, pad_id=PAD, bos_id=START, eos_id=END, d_model=16, num_heads=2)
    parts = {FIRST + place: text for place, text in enumerate(texts) if not is_utf8(text)}
    allowed = AllowedTokens(config, parts=CharacterParts(parts, size))
    needed = Needed(texts)
    for _ in range(40):
        written, limit = [], choose.randint(1, 12)
        sentence = Sentence(0, [END], limit)
        while written[-1:] != [END]:
            mask, before = allowed.after(written, sentence), b"".join(texts[token - FIRST] for token in written)
            wanted = {END} if is_utf8(before) else set()
            for place, text in enumerate(texts):
                pending = incomplete_end(incomplete_end(before) + text)
                if pending is not None and len(written) + 1 + needed[pending] + 1 <= limit:
                    wanted.add(FIRST + place)
            assert {*np.flatnonzero(mask).tolist()} == wanted
            rare = [token for token in wanted if token in parts]
            written.append(choose.choice(rare or sorted(wanted)))
        assert len(written) <= limit


def test_bytes_of_characters_the_vocabulary_cannot_complete_are_masked():
    parts = CharacterParts({3: b"\xe2", 4: b"\x82", 5: b"\xc3", 6: b"\xf0"}, 7)
    assert parts.masks[-1, 0].tolist() == [True, True, True, True, False, True, False]
    assert np.flatnonzero(parts.masks[-1, parts.state([3])]).tolist() == [4]  # E2 82 82
    assert parts.state([3, 4]) == 1
    assert parts.state([3, 4, 4]) == 0


WIDTHS = {"d_model": 64, "num_heads": 2, "d_ff": 64}
HOW = [
    {},
    {"beam_size": 1, "scores": False},
    {"beam_size": 1, "precision": "int8", "scores": False},
    {"num_best": 4},
    {"plain": True},
    {"plain": True, "beam_size": 1},
    {"plain": True, "sampling": Sampling(seed=3), "num_best": 3},
    {"sampling": Sampling(seed=3), "num_best": 3},
    {"diversity": 0.5, "num_best": 3},
    {"no_repeat_ngram_size": 2},
    {"min_length": 9},
    {"end_loops": False, "extra_length": 3},
    {"prefix": "ein H"},
    {"terms": Terms([Term("Hund", ("犬😆",)), Term("Bank", ("é€",))])},
]
LINES = ["Ein kleiner Hund rennt.", "Zwei Männer sitzen auf einer Bank.", "犬が走る。", "Hund %s Bank <b>x</b>"]


@pytest.fixture(scope="module", params=[True, False], ids=["core", "PyTorch"])
def writing_bytes(request, make_bundle):
    """Return a function to translators with random weights, which write the bytes of characters at random."""

    @lru_cache(None)
    def make(seed):
        torch.manual_seed(seed)
        bundle = make_bundle(
            placeholders=True, **(WIDTHS if request.param else {"d_model": 24, "num_heads": 2, "d_k": 5})
        )
        with torch.no_grad():
            for weight in bundle.model.parameters():
                weight.add_(torch.randn(weight.shape) * 0.3)
        return Translator(bundle)

    return make


@pytest.mark.parametrize("how", HOW, ids=lambda how: " ".join(how) or "beam")
def test_every_search_writes_whole_characters(writing_bytes, how):
    for seed in range(3):
        translator = writing_bytes(seed)
        for one in translator.translate(LINES, raw=True, **how):
            for text in (one.text, *(other.text for other in one.alternatives)):
                assert "\ufffd" not in text
        found = translator.translate(LINES[:3], raw=True, familiar=False, **how)
        if all(one.score is not None for one in found):
            scores = translator.score(LINES[:3], [one.text for one in found])
            assert [one.score for one in found] == pytest.approx(scores, rel=1e-4)


def test_a_shortlist_that_lacks_the_rest_of_a_character_gets_it(writing_bytes):
    translator = Translator(writing_bytes(1).bundle)
    tokenizer = translator.bundle.tokenizer
    begins = [token for token, text in tokenizer.parts_of_characters().items() if text[0] >= 0xC2]
    rows = np.full((tokenizer.vocab_size, 1), -1, dtype=np.int32)
    translator.shortlist = Shortlist(np.array(sorted({tokenizer.eos_id, *begins}), dtype=np.int32), rows)
    found = translator.translate(LINES[:2], shortlist=True)
    assert all(one.text and "\ufffd" not in one.text for one in found)


@pytest.mark.usefixtures("inference")
def test_the_search_of_the_core_is_that_of_python(writing_bytes):
    translator = writing_bytes(2)
    engine, sources = translator.engines.of("fp32"), translator.bundle.tokenizer.encode_sources(LINES[:3])
    config = translator.bundle.decode.with_changes({"beam_size": 3})
    limits = [len(source) + 5 for source in sources]
    found = [one for _, one in sorted(search(engine, sources, limits, SearchOptions(config, num_best=3)))]
    settings = {"beam_size": 3, "alpha": config.length_penalty, "num_best": 3, "parts": translator.engines.parts}
    plain = plain_search(translator.model, sources, max_lengths=limits, **settings)
    assert [[one.tokens for one in group] for group in found] == [[one.tokens for one in group] for group in plain]


def test_a_prefix_that_a_part_of_a_character_completes(writing_bytes):
    translator = writing_bytes(0)
    found = translator.translate(LINES[:1], prefix="犬")[0]
    assert found.text.startswith("犬")
    [line] = translator.preprocessor(LINES[:1], translator.bundle.decode, "犬", TranslateOptions())
    assert isinstance(line.segments[0].prefix, Prefix)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_characters_leave_room_for_missing_terms_and_placeholders(writing_bytes, beam_size):
    terms = Terms([Term("Hund", ("hound", "犬")), Term("Bank", ("bench",))])
    for seed in range(6):
        how = {"beam_size": beam_size, "num_best": beam_size, "extra_length": 12, "end_loops": False}
        for one in writing_bytes(seed).translate(["Hund %s Bank", "Hund"], terms=terms, **how):
            for text in (one.text, *(other.text for other in one.alternatives)):
                assert "hound" in text.lower() or "犬" in text
                assert text.count("%s") == one.source.count("%s")


def test_prefix_takes_precedence_over_terms_and_placeholders_at_the_limit(writing_bytes):
    terms = Terms([Term("Hund", ("hound", "犬"))])
    for seed in range(4):
        translator = writing_bytes(seed)
        for line, prefix, how in (("Hund", "é", {"terms": terms}), ("%s %d %s %s %s", "é犬", {})):
            for extra in (1, 2):
                found = translator.translate([line], prefix=prefix, extra_length=extra, end_loops=False, **how)
                assert found[0].text.startswith(prefix)


def test_rules_that_leave_no_listed_token_are_not_applied(writing_bytes):
    for seed in range(3):
        translator = Translator(writing_bytes(seed).bundle)
        tokenizer = translator.bundle.tokenizer
        common = sorted({tokenizer.eos_id, *tokenizer.encode("犬 é a")})
        rows = np.full((tokenizer.vocab_size, 1), -1, dtype=np.int32)
        translator.shortlist = Shortlist(np.array(common, dtype=np.int32), rows)
        for beam_size in (1, 4):
            how = {"shortlist": True, "min_length": 30, "no_repeat_ngram_size": 1, "beam_size": beam_size}
            for one in translator.translate(LINES[:3], end_loops=False, extra_length=20, **how):
                assert one.text
                assert "\ufffd" not in one.text
