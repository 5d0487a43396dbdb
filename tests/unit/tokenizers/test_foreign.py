"""Vocabularies of other libraries: special tokens around a sentence, token ids, and files that are none."""

from __future__ import annotations

import base64
import json
import re
import sys

import pytest

from clearhead.errors import ConfigError, DataError, ModelError
from clearhead.runtime.installation import pip_install
from clearhead.tokenizers import Tokenizer, load_vocabulary
from clearhead.tokenizers.foreign import ForeignVocabulary, VocabularyFile, VocabularySide
from clearhead.tokenizers.subword_encoders import byte_level_tokenizer, wordpiece_tokenizer
from sentencepiece_models import pieces_of, sentencepiece_model

TEXT = ["ein Hund rennt über die Wiese", "zwei Hunde bellen", "a dog runs", "犬が走る", "der Mann liest ein Buch"] * 9
LANGUAGES = {"de": 104, "en": 103}


@pytest.fixture(scope="module")
def model() -> str:
    return base64.b64encode(sentencepiece_model(TEXT, 90)).decode()


@pytest.fixture(scope="module")
def side(model) -> VocabularySide:
    """Return pieces numbered as in fairseq, with a gap before the languages."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *pieces_of(base64.b64decode(model))[3:]]
    pieces = [*pieces, *[None] * (103 - len(pieces)), "__en__", "__de__"]
    return VocabularySide(
        speller="sentencepiece", model=model, pieces=tuple(pieces), special=(0, 1, 2, 3, 103, 104), unk_id=3
    )


@pytest.fixture(scope="module")
def make(side):
    def make(**settings) -> ForeignVocabulary:
        values = {
            "source": side,
            "source_frame": ("source_lang", "text", 2),
            "target_frame": ("target_lang", "text", 2),
            "languages": LANGUAGES,
            "pad_id": 1,
            "bos_id": 2,
            "eos_id": 2,
            "vocab_size": 110,
            **settings,
        }
        return ForeignVocabulary(json.dumps(VocabularyFile(**values).model_dump()))

    return make


def test_encode_sources_and_targets_put_text_into_frames(make):
    tokenizer = make()
    [ids] = tokenizer.encode_batch(["ein Hund"])
    assert tokenizer.encode_sources(["ein Hund"], "en", "de") == [[104, *ids, 2]]
    assert tokenizer.encode_sources(["<2de> ein Hund"], "en", "en") == [[103, *ids, 2]]
    assert tokenizer.encode_targets(["ein Hund"] * 2, ["de", None]) == [[104, *ids, 2], [*ids, 2]]
    assert tokenizer.encode_targets(["ein Hund"]) == [[*ids, 2]]
    assert (tokenizer.given("de"), tokenizer.given(None)) == ((104,), ())
    after = make(source_frame=("text", 2, "source_lang"), target_frame=(0, "text", 2))
    assert after.encode_sources(["ein Hund"], None, "de") == [[*ids, 2, 104]]
    assert after.encode_targets(["ein Hund"]) == [[0, *ids, 2]]
    assert after.given("de") == (0,)
    tagged = make(source_frame=("target_lang", "text", 2), target_frame=("text", 2))
    assert tagged.encode_sources(["<2en> ein Hund", "ein Hund"]) == [[103, *ids, 2], [*ids, 2]]


def test_the_tags_of_opus_mt_tell_the_language_too(make):
    tagged = make(source_frame=("target_lang", "text", 2), target_frame=("text", 2))
    [ids] = tagged.encode_batch(["ein Hund"])
    assert tagged.encode_sources([">>en<< ein Hund", " >>de<<ein Hund"]) == [[103, *ids, 2], [104, *ids, 2]]
    assert tagged.split_sources(["ein >>en<< Hund", ">>Hinweis<< Hund"]) == [
        (None, "ein >>en<< Hund"),
        (None, ">>Hinweis<< Hund"),
    ]
    for line in (">>nds<< ein Hund", ">>cmn_Hans<< ein Hund"):
        with pytest.raises(DataError, match=r"line 1: unknown language tag <2.*>; the model's tags are <2en>, <2de>"):
            tagged.encode_sources([line])


def test_foreign_vocabulary_round_trips_except_for_losses_of_the_original(make):
    tokenizer = make()
    for text, read in (
        ("ein Hund rennt", "ein Hund rennt"),
        ("  ein   Hund ", "ein Hund"),
        ("犬が走る", "犬が走る"),
        ("", ""),
        ("ein \u2603 Hund", "ein Hund"),
        ("ein</s>", "eins"),
    ):
        ids = tokenizer.encode(text)
        assert not {0, 1, 2, 103, 104} & set(ids)
        assert " ".join(tokenizer.decode([104, *ids, 2]).split()) == read, text
    assert "".join(tokenizer.pieces(tokenizer.encode("ein Hund"))) == " ein Hund"
    assert tokenizer.source_pieces([104, 2, 3, 101]) == ["__de__", "</s>", "<unk>", ""]
    assert not tokenizer.is_lossless


def test_completions_start_with_the_last_piece_of_the_prefix(make):
    tokenizer = make()
    [ids] = tokenizer.encode_prefixes(["ein H"])
    last = [tokenizer.pieces([token])[0] for token in tokenizer.completions(ids)[-1]]
    assert last
    assert all(piece.startswith(tokenizer.pieces(ids)[-1]) for piece in last)


def test_both_sides_may_be_encoded_in_their_own_way(make, side):
    own = VocabularySide(
        speller="tokenizers",
        model=wordpiece_tokenizer(["[UNK]", "dog", "##s", "[SEP]"], lowercase=True, strip_accents=None, split_han=True),
    )
    tokenizer = make(
        target=own, target_frame=("text", 3), languages={}, source_frame=("text", 2), source_vocab_size=110
    )
    assert tokenizer.encode_targets(["DOGS"]) == [[1, 2, 3]]
    assert tokenizer.decode([1, 2, 3, 2]) == "dogss"
    assert tokenizer.pieces([1, 2, 3]) == [" dog", "s", "[SEP]"]
    assert tokenizer.model_settings["source_vocab_size"] == 110
    assert tokenizer.kind == "wordpiece"


def byte_level(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> ForeignVocabulary:
    side = VocabularySide(speller="tokenizers", model=byte_level_tokenizer(vocabulary, merges, ["</s>"]))
    values = {"source": side, "source_frame": ("text", 4), "target_frame": ("text", 4), "languages": {}}
    file = VocabularyFile(**values, pad_id=4, bos_id=4, eos_id=4, vocab_size=len(vocabulary))
    return ForeignVocabulary(json.dumps(file.model_dump()))


def test_byte_level_pieces_are_those_of_their_files():
    tokenizer = byte_level({"a": 0, "b": 1, "ab": 2, "Ġ": 3, "</s>": 4}, [("a", "b")])
    assert tokenizer.encode_sources(["ab ba"]) == [[2, 3, 1, 0, 4]]
    assert tokenizer.decode([2, 3, 1, 0, 4]) == "ab ba"
    assert tokenizer.pieces([3, 2]) == [" ", "ab"]


def test_parts_of_characters_of_a_byte_level_vocabulary():
    tokenizer = byte_level({"a": 0, "Ã": 1, "¤": 2, "Ã¤": 3, "</s>": 4, "aÃ": 5}, [("Ã", "¤"), ("a", "Ã")])
    assert tokenizer.encode_sources(["ä"]) == [[3, 4]]
    assert tokenizer.parts_of_characters() == {1: "ä".encode()[:1], 2: "ä".encode()[1:], 5: "aä".encode()[:2]}


def test_encode_sources_rejects_missing_and_unknown_languages(make):
    with pytest.raises(ConfigError, match=r"which language is the source\? This model is told so: say --source-lang"):
        make().encode_sources(["ein Hund"], "de")
    with pytest.raises(ConfigError, match="unknown source language fr"):
        make().encode_sources(["ein Hund"], "de", "fr")
    with pytest.raises(ConfigError, match="unknown target language 'fr'"):
        make().encode_sources(["ein Hund"], "fr", "de")


def test_encode_batch_and_decode_reject_invalid_texts_and_ids(make):
    with pytest.raises(DataError, match="number 2 is int"):
        make().encode_batch(["ein", 5])
    with pytest.raises(DataError, match=r"text 1 holds an unpaired surrogate \(U\+D83D\) at character 5"):
        make().encode_batch(["ein \ud83d"])
    for ids in ([-1], ["x"], [1.5]):
        with pytest.raises(DataError, match="cannot be read as"):
            make().decode(ids)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": 100}, "it has the id 104, and the model has 100 rows"),
        ({"bos_id": 110}, "it has the id 110, and the model has 110 rows"),
        ({"source_frame": ("text", 200)}, "it has the id 200, and the model has 110 rows"),
        ({"target_frame": ("text", -1)}, "it has the id -1, and the model has 110 rows"),
        ({"languages": {"de": 999}}, "it has the id 999, and the model has 110 rows"),
        ({"source_vocab_size": 50}, "it has the id 104, and the model has 50 rows"),
        ({"source_frame": ()}, "it has 0 places for the text"),
        ({"source_frame": (5,)}, "it has 0 places for the text"),
        ({"target_frame": ("text", "text")}, "it has 2 places for the text"),
        ({"source_frame": ("text", "source_lang"), "languages": {}}, "a place for a language, and no languages"),
        ({"source_frame": ("text", 6), "pad_id": 6}, "it has padding around the text"),
    ],
)
def test_ids_without_a_row_and_invalid_frames_are_rejected(make, settings, message):
    with pytest.raises(ValueError, match=message):
        make(**settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clearhead_vocabulary": 2}, "clearhead_vocabulary"),
        ({"source": {"speller": "moses", "model": ""}}, "speller"),
        ({"source": {"speller": "sentencepiece", "model": "%%%"}}, "tokenizer.json is not a clearhead tokenizer"),
        ({"source": {"speller": "sentencepiece", "model": "YWJj"}}, "tokenizer.json is not a clearhead tokenizer"),
        ({"source": {"speller": "tokenizers", "model": "{}"}}, "tokenizer.json is not a clearhead tokenizer"),
        ({"surprise": 1}, "surprise"),
        ({"pad_id": None}, "pad_id"),
    ],
)
def test_a_damaged_file_is_named(make, tmp_path, change, message):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(make().text), **change}))
    with pytest.raises(ModelError, match=message):
        load_vocabulary(path)


def test_load_vocabulary_chooses_the_class_by_the_content(make, tmp_path):
    path = tmp_path / "tokenizer.json"
    make().save(path)
    loaded = load_vocabulary(path)
    assert isinstance(loaded, ForeignVocabulary)
    assert (loaded.sha256, loaded.model_settings) == (make().sha256, make().model_settings)
    Tokenizer.train(TEXT, vocab_size=300).save(path)
    assert isinstance(load_vocabulary(path), Tokenizer)


def test_a_library_that_is_missing_is_named(make, tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    make().save(path)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ModelError, match=re.escape(f"SentencePiece, which is not installed: {pip_install('interop')}")):
        load_vocabulary(path)


def test_a_start_token_that_names_the_language_allows_no_other(make):
    tokenizer = make(source_frame=("text", 2, "source_lang"), target_frame=("text", 2), bos_id=104)
    assert tokenizer.language_tags == {"de": 104}
    assert tokenizer.languages == {"en": 103, "de": 104}
    [ids] = tokenizer.encode_batch(["ein Hund"])
    assert tokenizer.encode_sources(["ein Hund"], "de", "en") == [[*ids, 2, 103]]
    with pytest.raises(ConfigError, match="unknown target language 'en'"):
        tokenizer.encode_sources(["ein Hund"], "en", "en")
    with pytest.raises(DataError, match="unknown language tag <2en>"):
        tokenizer.encode_sources(["<2en> ein Hund"], None, "en")
