"""No text is tokenized as a control token, and a file that may multiply a text is refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from clearhead.errors import DataError, ModelError
from clearhead.interop.vocabularies.huggingface_files import checked_json
from clearhead.tokenizers import tokenizer_json
from clearhead.tokenizers.foreign import ForeignVocabulary, VocabularyFile, VocabularySide
from clearhead.tokenizers.learned import load_vocabulary
from clearhead.tokenizers.subword_encoders import TokenizersEncoder

CONTROL = ["<s>", "<pad>", "</s>", "<mask>", "de_DE"]
LETTERS = ["<unk>", *"abdeEDksmp_<>/"]
ORDINARY = [*LETTERS, "▁", "▁a"]
NAMES = [*CONTROL, *ORDINARY]


def file(model: models.Model, *, added: bool = True, **parts: Any) -> str:
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    values = json.loads(tokenizer.to_str())
    values["added_tokens"] = [
        {"id": n, "content": name, "special": name != "de_DE"}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for n, name in enumerate(CONTROL if added else ())
    ]
    return json.dumps(values)


def unigram() -> models.Model:
    return models.Unigram([(name, 0.0 if name in CONTROL else -1.0) for name in NAMES], unk_id=NAMES.index("<unk>"))


def bpe() -> models.Model:
    names = [*NAMES, "</", "s>"]
    ids = {name: number for number, name in enumerate(names)}
    return models.BPE(ids, [("<", "/"), ("s", ">"), ("</", "s>")], unk_token="<unk>")


def whole_words() -> models.Model:
    return models.WordLevel({name: number for number, name in enumerate(NAMES)}, unk_token="<unk>")


def wordpiece() -> models.Model:
    ids = {name: number for number, name in enumerate(NAMES)}
    return models.WordPiece(ids, unk_token="<unk>", continuing_subword_prefix="")


MODELS = {"unigram": unigram, "bpe": bpe, "words": whole_words, "wordpiece": wordpiece}


@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize("kind", MODELS)
def test_no_text_gives_the_id_of_a_control_token(kind, added):
    text = file(MODELS[kind](), added=added, pre_tokenizer=pre_tokenizers.WhitespaceSplit())
    vocabulary = ForeignVocabulary(
        json.dumps(
            VocabularyFile(
                source=VocabularySide(speller="tokenizers", model=text),
                source_frame=(0, "source_lang", "text", 2),
                target_frame=("target_lang", "text", 2),
                languages={"de_DE": 4},
                pad_id=1,
                bos_id=2,
                eos_id=2,
                vocab_size=40,
            ).model_dump()
        )
    )
    hidden = {0, 2, 4} if not added else set(range(len(CONTROL)))
    for name in CONTROL:
        for line in (name, f"a {name} b", f"a{name}b", name * 3):
            [ids] = vocabulary.encode_batch([line])
            assert ids
            assert not hidden & set(ids), line
            assert not hidden & set(vocabulary.encode_prefixes([line])[0])
    assert vocabulary.source_pieces([0, 2, 4]) == ["<s>", "</s>", "de_DE"]
    [[first, language, *_, last]] = vocabulary.encode_sources(["a </s> b"], "de_DE", "de_DE")
    assert (first, language, last) == (0, 4, 2)


def test_a_control_token_in_a_text_is_its_pieces():
    """The pieces of highest score that are not control: each costs 1, so as few as possible."""
    encoder = TokenizersEncoder(file(unigram()))
    assert [encoder.token(token_id) for token_id in encoder.encode(["a</s>b"])[0]] == ["a", "<", "/", "s", ">", "b"]
    encoder = TokenizersEncoder(file(bpe()))
    assert [encoder.token(token_id) for token_id in encoder.encode(["a</s>b"])[0]] == ["a", "</", "s>", "b"]
    assert encoder.decode([[2, 5 + LETTERS.index("a"), 2]]) == ["a"]
    with pytest.raises(DataError):
        encoder.token("a")


def replace(pattern: str | Regex, content: str) -> normalizers.Normalizer:
    return normalizers.Replace(pattern, content)


def charsmap(replacement: bytes) -> str:
    return base64.b64encode((4).to_bytes(4, "little") + bytes(4) + replacement + b"\0").decode()


EXPLODES = {
    "six replacements": [replace("a", "a" * 10)] * 6,
    "a character that NFKC makes 18 of": [replace("a", "\ufdfa"), replace("ص", "\ufdfa"), normalizers.NFKC()],
    "an empty match": [replace(Regex("x*"), "abc")] * 4,
    "bytes of bytes": [normalizers.ByteLevel()] * 7,
    "a long beginning": [normalizers.Prepend("a" * 101)],
    "a nested repetition": [replace(Regex("(a+)+$"), "")],
    "a repetition that must end": [replace(Regex("a+b"), "")],
    "two repetitions": [replace(Regex("a*a*$"), "")],
    "optional characters": [replace(Regex("a?a?a?aaa"), "")],
    "a reference": [replace(Regex(r"[a]\0"), "")],
    "a repeated choice": [replace(Regex("(a|aa)*b"), "")],
    "a repeated count": [replace(Regex("a{1,9}+b"), "")],
    "a long count": [replace(Regex("a{1,999}"), "")],
}


@pytest.mark.parametrize("case", EXPLODES)
@pytest.mark.parametrize("part", ["normalizer", "decoder"])
def test_tokenizers_encoder_rejects_normalizers_and_decoders_that_expand_text(case, part):
    values = json.loads(file(unigram(), normalizer=normalizers.Sequence(EXPLODES[case])))
    values[part], values["normalizer"] = values["normalizer"], values[part]
    with pytest.raises(ValueError, match=r"times as long|may take more than linear time|more than 100 characters"):
        TokenizersEncoder(json.dumps(values))


def test_sizes_are_bounded(monkeypatch):
    values = json.loads(file(wordpiece()))
    values["model"]["max_input_chars_per_word"] = 1_001
    with pytest.raises(ValueError, match="max_input_chars_per_word is 1,001, but must be at most 1,000"):
        TokenizersEncoder(json.dumps(values))
    for name in ("normalizer", "pre_tokenizer"):
        part = {"type": "Precompiled", "precompiled_charsmap": charsmap(b"a" * 257)}
        with pytest.raises(ValueError, match="may make a text inf times as long"):
            tokenizer_json.require_bounded({name: {"type": "Sequence", "normalizers": [part]}})
        tokenizer_json.require_bounded({name: part | {"precompiled_charsmap": charsmap(b"a" * 33)}})
    monkeypatch.setattr(tokenizer_json, "_MOST_PIECES", len(NAMES) - 1)
    with pytest.raises(ValueError, match=f"its vocab has {len(NAMES)} entries, but must have at most {len(NAMES) - 1}"):
        TokenizersEncoder(file(unigram()))


def test_a_file_of_too_many_entries_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    path.write_text('{"model": {"vocab": {' + '"a":1,' * 1_500_000 + '"b":1}}}', encoding="utf-8")
    monkeypatch.setattr(json, "loads", lambda text: pytest.fail("it was parsed"))
    with pytest.raises(ModelError, match="it has 3,000,003 commas and colons, but must have at most 3,000,000"):
        load_vocabulary(path)
    with pytest.raises(ModelError, match=r"tokenizer\.json is damaged: it has 3,000,003 commas and colons"):
        checked_json(path)


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
CL100K += r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@pytest.mark.parametrize("pattern", [" {2,}", r"\s+", r"\s{2,}|[\n\r\t]", "^▁+$", r"\n", r"\d", GPT2, CL100K])
def test_patterns_of_published_tokenizers_are_accepted(pattern):
    text = file(
        unigram(),
        normalizer=normalizers.Sequence([normalizers.NFKC(), replace(Regex(pattern), " "), normalizers.Lowercase()]),
        pre_tokenizer=pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(use_regex=False)]
        ),
        decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteLevel(), decoders.Strip(" ", 1, 0)]),
    )
    assert TokenizersEncoder(text).kind == "unigram"
