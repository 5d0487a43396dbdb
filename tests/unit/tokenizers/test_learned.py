"""Tokenizers lose nothing, read no special token out of text, and travel as one file."""

from __future__ import annotations

import gzip
import hashlib
import json
import sys

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clearhead.errors import ConfigError, DataError, ModelError
from clearhead.text.languages import language_tag, split_tag
from clearhead.text.placeholders import SIGNS
from clearhead.tokenizers import SPECIAL_TOKENS, Tokenizer

KINDS = ("bpe", "unigram", "wordpiece")
LANGUAGES = ("de", "fr", "pt-BR")
SENTENCES = "der Hund rennt über die grüne Wiese und bellt; the dog runs across the green meadow, barking 1984 times"
WORDS = SENTENCES.split()
CORPUS = [" ".join(WORDS[start:] + WORDS[:start]) for start in range(len(WORDS))] * 3

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
# Strings that look like what the tokenizer works with: its words, its special tokens, runs of white space.
tricky = st.lists(
    st.one_of(
        st.sampled_from([*WORDS, *SPECIAL_TOKENS, "<2de>", "<2fr>", "Ġ", "##", "▁", "\x00", "�", "\ufeff"]),
        st.sampled_from([SIGNS[0], SIGNS[31], "\U000f0020"]),
        st.sampled_from([" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u200b", "\u2028", "\x1f", "\x7f", "\x85"]),
        st.sampled_from(
            ["👩‍👩‍👧‍👦", "🇩🇪", "é", "e\u0301", "ﬁ", "İ", "ß", "日本語", "שלום", "\U0010ffff", "٣", "²", "Ⅷ"]
        ),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    ),
    max_size=20,
).map("".join)


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return Tokenizer.train(CORPUS, kind=request.param, vocab_size=400, language_tags=LANGUAGES)


def special_ids(tokenizer):
    return {*range(4), *tokenizer.language_tags.values()}


@settings(max_examples=100)
@given(st.one_of(text, tricky))
@example("")
@example(" ")
@example("   leading and trailing   ")
@example("a\tb  c   d")
@example("NUL \x00 and \x01\x02 control")
@example("<pad><s></s><unk>")
@example("</s>")
@example("<2de> Hund")
@example("<2de>")
@example(" <2de>")
@example("👩‍👩‍👧‍👦🇩🇪")
@example("\n\r\n\u2028")
@example("x" * 5000)
def test_decode_of_encode_is_the_text_and_no_special_id_comes_from_it(tokenizer, line):
    ids = tokenizer.encode(line)
    assert tokenizer.decode(ids) == line
    assert not special_ids(tokenizer) & set(ids)


@settings(max_examples=30)
@given(st.lists(tricky, max_size=7))
def test_a_batch_is_encoded_as_its_lines_are(tokenizer, lines):
    batch = tokenizer.encode_batch(lines)
    assert batch == [tokenizer.encode(line) for line in lines]
    assert tokenizer.decode_batch(batch) == lines


@settings(max_examples=50)
@given(tricky)
@example("👩‍👩‍👧‍👦")
def test_every_byte_has_an_ordinary_id(tokenizer, line):
    ids = tokenizer.encode(line)
    assert all(4 <= token_id < tokenizer.vocab_size for token_id in ids)
    assert tokenizer.unk_id not in ids


@pytest.mark.parametrize("split_digits", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_encode_and_decode_keep_text_with_and_without_split_digits(kind, split_digits):
    tokenizer = Tokenizer.train(CORPUS, kind=kind, vocab_size=300, split_digits=split_digits)
    for line in ("1984", " 1 984,00 ", "a1b22c", "٣٤ ² Ⅷ", "1" * 200, "in 1984  times"):
        assert tokenizer.decode(tokenizer.encode(line)) == line


def test_unpaired_surrogates_are_refused(tokenizer):
    with pytest.raises(DataError) as caught:
        tokenizer.encode("half \ud83d of an emoji")
    assert str(caught.value) == (
        "text 1 holds an unpaired surrogate (U+D83D) at character 6; "
        "it is half of a character and cannot be written as UTF-8"
    )
    with pytest.raises(DataError, match=r"^text 2 holds an unpaired surrogate \(U\+DC00\) at character 1;"):
        tokenizer.encode_batch(["fine", "\udc00", "\ud800"])
    with pytest.raises(DataError, match="text 3"):
        tokenizer.encode_sources(["fine", "fine", "\udfff"])
    with pytest.raises(DataError, match="text 1"):
        tokenizer.encode_targets(["\udfff"])


def test_special_tokens_have_the_first_ids_and_tags_follow(tokenizer):
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id) == (0, 1, 2, 3)
    assert tokenizer.pieces(range(4)) == ["<pad>", "<s>", "</s>", "<unk>"] == list(SPECIAL_TOKENS)
    assert tokenizer.language_tags == {"de": 4, "fr": 5, "pt-BR": 6}
    assert tokenizer.pieces([4, 5, 6]) == ["<2de>", "<2fr>", "<2pt-BR>"]


def test_decode_leaves_special_tokens_out(tokenizer):
    ids = tokenizer.encode("der Hund")
    assert tokenizer.decode([1, 4, *ids, 2, 0, 0]) == "der Hund"
    assert tokenizer.decode([]) == tokenizer.decode([1, 2]) == ""


def test_sources_get_their_tag_and_their_end(tokenizer):
    hund = tokenizer.encode("der Hund")
    literal = tokenizer.encode("der <2xx> Hund")
    lines = ["der Hund", "<2fr> der Hund", "<2pt-BR>der Hund", "der <2xx> Hund", ""]
    assert tokenizer.encode_sources(lines) == [[*hund, 2], [5, *hund, 2], [6, *hund, 2], [*literal, 2], [2]]
    assert tokenizer.encode_sources(lines, target_lang="de") == [
        [4, *hund, 2],
        [5, *hund, 2],  # a tag of its own wins
        [6, *hund, 2],
        [4, *literal, 2],
        [4, 2],
    ]


@pytest.mark.parametrize("line", ["<2xx> Hund", "<2DE> Hund", "<2de_DE>Hund", "<2xx>", "<2ß> Hund"])
def test_a_line_that_starts_with_an_unknown_tag_is_named_with_the_tags_there_are(tokenizer, line):
    tag = line[: line.index(">") + 1]
    with pytest.raises(DataError) as caught:
        tokenizer.encode_sources(["<2de> Hund", line])
    assert str(caught.value) == f"line 2: unknown language tag {tag}; the model's tags are <2de>, <2fr>, <2pt-BR>"
    with pytest.raises(DataError, match=r"^in\.txt, line 12: unknown language tag"):
        tokenizer.split_sources(["Hund", line], name="in.txt", first=11)


def test_text_resembling_a_language_tag_is_text(tokenizer):
    lines = ["x <2xx>", "<2> Hund", "<2 xx> Hund", "<25> Hund", "<2-3> Hund", "<xx> Hund", "<2xx Hund"]
    assert tokenizer.split_sources(lines) == [(None, line) for line in lines]
    assert tokenizer.encode_sources(lines) == [[*tokenizer.encode(line), 2] for line in lines]


def test_targets_get_their_end_and_no_tag(tokenizer):
    literal = tokenizer.encode("<2de> Hund")
    assert tokenizer.encode_targets(["<2de> Hund", ""]) == [[*literal, 2], [2]]
    assert 4 not in literal


def test_unknown_target_language_names_the_nearest(tokenizer):
    with pytest.raises(ConfigError) as caught:
        tokenizer.encode_sources(["der Hund"], target_lang="pt-Br")
    assert str(caught.value) == "unknown target language 'pt-Br'; did you mean 'pt-BR'?"
    plain = Tokenizer.train(CORPUS, vocab_size=300)
    with pytest.raises(ConfigError) as caught:
        plain.encode_sources(["der Hund"], target_lang="de")
    assert str(caught.value) == "unknown target language 'de'; the model has no tags"


def test_split_tag_takes_known_tags_off_the_start_alone():
    assert language_tag("pt-BR") == "<2pt-BR>"
    assert split_tag("<2de> Hund", LANGUAGES) == ("de", "Hund")
    assert split_tag("<2de>  Hund", LANGUAGES) == ("de", " Hund")
    assert split_tag("<2de>", LANGUAGES) == ("de", "")
    assert split_tag("Hund <2de>", LANGUAGES) == (None, "Hund <2de>")
    assert split_tag("\t <2de> Hund", LANGUAGES) == ("de", "Hund")
    assert split_tag("<2de> Hund", []) == (None, "<2de> Hund")
    assert split_tag("<2xx> Hund", LANGUAGES) == ("xx", "Hund")
    assert split_tag("<25> Hund", ["5"]) == ("5", "Hund")


def test_digits_are_pieces_of_their_own(tokenizer):
    pieces = tokenizer.pieces(tokenizer.encode("barking 1984 times 1984times 19"))
    with_digits = [piece.strip() for piece in pieces if any(c.isdigit() for c in piece)]
    assert with_digits == list("1984198419")


def test_digits_may_join_when_not_split():
    tokenizer = Tokenizer.train(["1984 1984 1984 1984"] * 20, vocab_size=300, split_digits=False)
    assert "1984" in [piece.strip() for piece in tokenizer.pieces(tokenizer.encode("1984"))]


def test_pieces_read_as_the_text(tokenizer):
    ids = tokenizer.encode("der Hund rennt")
    assert "".join(tokenizer.pieces(ids)) == " der Hund rennt"
    assert len(tokenizer.pieces(ids)) == len(ids)


def test_pieces_of_half_a_character_show_the_replacement_character(tokenizer):
    ids = tokenizer.encode("日")
    pieces = tokenizer.pieces(ids)
    assert len(pieces) == len(ids) > 1
    assert "\ufffd" in "".join(pieces)
    assert tokenizer.decode(ids[:-1]) != "日"  # what breaks off still decodes to something


@pytest.mark.parametrize("split_digits", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_words_are_cut_as_by_the_library_that_reads_the_file(kind, split_digits):
    long = ["a" * 300, "ab" * 150] * 9  # so that there are long pieces
    tokenizer = Tokenizer.train([*CORPUS, *long], kind=kind, vocab_size=500, split_digits=split_digits)
    library = tokenizers.Tokenizer.from_str(tokenizer.text)
    library.encode_special_tokens = True
    signs = ("a", "ab", "ü", "日", "👩", "1", ".", " ", "\t", "\u00a0", "\x1f", "\u0301")
    lines = [f"der {sign * count}Hund{sign * 3} {count}" for sign in signs for count in (2, 21, 63, 64, 65, 130, 257)]
    assert tokenizer.encode_batch(lines) == [library.encode(line, add_special_tokens=False).ids for line in lines]
    assert json.loads(tokenizer.text)["pre_tokenizer"]["pretokenizers"][-1]["type"] == "Split"  # for older versions


def test_a_word_is_the_same_piece_at_the_start_and_within(tokenizer):
    start, within = tokenizer.encode("Hund"), tokenizer.encode("der Hund")
    assert within == tokenizer.encode("der") + start


def test_save_and_load_keep_hash_and_ids(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]
    assert loaded.sha256 == tokenizer.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert loaded.vocab_size == tokenizer.vocab_size
    assert loaded.language_tags == tokenizer.language_tags
    for line in [*CORPUS[:5], "</s> <2de> 日本 \x00 1984"]:
        assert loaded.encode(line) == tokenizer.encode(line)
        assert loaded.decode(loaded.encode(line)) == line


def test_training_twice_gives_the_same_file():
    first, second = (Tokenizer.train(iter(CORPUS), vocab_size=350) for _ in range(2))
    assert first.text == second.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_corpus_yields_a_small_vocabulary(kind):
    tokenizer = Tokenizer.train(["ab ab", "cd"], kind=kind, vocab_size=8_000)
    assert 260 <= tokenizer.vocab_size < 300
    assert tokenizer.decode(tokenizer.encode("ab 日本")) == "ab 日本"


def test_an_unknown_kind_is_refused():
    with pytest.raises(ConfigError, match="no kind 'words'; there are bpe, unigram, wordpiece"):
        Tokenizer.train(CORPUS, kind="words", vocab_size=300)


@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_is_never_larger_than_asked(kind):
    for vocab_size in (261, 283, 307):
        assert Tokenizer.train(CORPUS, kind=kind, vocab_size=vocab_size).vocab_size <= vocab_size


@pytest.mark.parametrize(("tags", "least", "special"), [((), 261, 4), (LANGUAGES, 264, 7)])
def test_a_vocabulary_without_room_for_the_bytes_is_refused(tags, least, special):
    Tokenizer.train(CORPUS, vocab_size=least, language_tags=tags)
    with pytest.raises(ConfigError) as caught:
        Tokenizer.train(CORPUS, vocab_size=least - 1, language_tags=tags)
    assert str(caught.value) == (
        f"tokenizer.vocab_size ({least - 1}) must be at least {least}: 256 bytes, "
        f"{special} special tokens and one learned piece"
    )


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelError) as caught:
        Tokenizer.load(tmp_path / "absent.json")
    assert str(caught.value) == f"cannot read the tokenizer {tmp_path / 'absent.json'}: No such file or directory"


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"model": 3}'])
def test_tokenizer_load_rejects_invalid_files_by_name(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        Tokenizer.load(path)
    assert str(caught.value).startswith(f"{path} is not a clearhead tokenizer: ")


def test_a_tokenizer_with_other_special_tokens_is_refused(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.text.replace('"<pad>"', '"[PAD]"'), encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        Tokenizer.load(path)
    assert str(caught.value) == f"{path} is not a clearhead tokenizer: it has no special token <pad>"


@pytest.mark.parametrize("kind", KINDS)
def test_real_text_is_kept_letter_for_letter_in_pieces_of_several_letters(data_dir, kind):
    lines = []
    for language in ("cs", "de", "en", "fr"):
        with gzip.open(data_dir("multi30k") / f"val.{language}.gz", "rt", encoding="utf-8", newline="\n") as file:
            lines += [line.removesuffix("\n") for line in file][:249]
    tokenizer = Tokenizer.train(lines, kind=kind, vocab_size=2_003)
    ids = tokenizer.encode_batch(lines)
    assert tokenizer.decode_batch(ids) == lines
    assert sum(map(len, lines)) / sum(map(len, ids)) > 1.5  # of single letters it would be 1, or less


# Special ids


def test_special_ids_are_read_from_the_vocabulary(tokenizer, move_tokens):
    last = tokenizer.vocab_size - 1
    other = move_tokens(tokenizer, {"<pad>": last, "</s>": 0, "<unk>": 200, "<2fr>": 190})
    assert other.model_settings == {
        "vocab_size": last + 1,
        "pad_id": last,
        "bos_id": other._backend.token_to_id("<s>"),
        "eos_id": 0,
    }
    assert other.unk_id == 200
    assert other.language_tags["fr"] == 190
    assert other.pieces([last, other.bos_id, 0, 200, 190]) == ["<pad>", "<s>", "</s>", "<unk>", "<2fr>"]
    encoded = other.encode_sources(["<2fr> der Hund </s>"])[0]
    assert (encoded[0], encoded[-1]) == (190, 0)
    assert 0 not in encoded[:-1]
    assert other.decode([other.bos_id, *encoded, last]) == "der Hund </s>"
    assert tokenizer.pieces(tokenizer.encode("der Hund")) == other.pieces(other.encode("der Hund"))


def test_added_tokens_of_another_form_are_no_languages(tokenizer):
    values = json.loads(tokenizer.text)
    values["added_tokens"].append({**values["added_tokens"][0], "id": tokenizer.vocab_size, "content": "<mask>"})
    other = Tokenizer(json.dumps(values))
    assert other.language_tags == tokenizer.language_tags
    assert other.pieces([tokenizer.vocab_size]) == ["<mask>"]


def test_a_vocabulary_whose_ids_have_gaps_is_refused():
    values = json.loads(Tokenizer.train(CORPUS, kind="wordpiece", vocab_size=400).text)
    values["model"]["vocab"]["a"] = 10**9
    with pytest.raises(ValueError, match=r"the ids of its \d+ pieces are not 0 to \d+"):
        Tokenizer(json.dumps(values))


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_reading_a_vocabulary_has_the_library_list_no_pieces(kind):
    text = Tokenizer.train(CORPUS, kind=kind, vocab_size=400).text
    called = []
    sys.setprofile(lambda frame, event, function: event == "c_call" and called.append(function.__name__))
    try:
        read = Tokenizer(text)
    finally:
        sys.setprofile(None)
    assert read.vocab_size == len(read.tokens())
    assert ("from_str" in called, "get_vocab" in called) == (True, False)


# Wrong use


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.encode(None), "texts must be a list of texts; number 1 is NoneType, not str"),
        (lambda t: t.encode_batch(["a", b"b"]), "texts must be a list of texts; number 2 is bytes, not str"),
        (lambda t: t.encode_batch("ab"), "texts must be a list of texts, not str; for one text write [text]"),
        (lambda t: t.encode_sources([3]), "texts must be a list of texts; number 1 is int, not str"),
        (lambda t: t.encode_targets(7), "texts must be a list of texts, not int"),
        (lambda t: t.decode([None]), "these ids cannot be read as text"),
        (lambda t: t.decode(3), "these ids cannot be read as text"),
        (lambda t: t.decode([-1]), "these ids cannot be read as text"),
        (lambda t: t.decode([10**30]), "these ids cannot be read as text"),
        (lambda t: t.pieces(["x"]), "these ids cannot be read as pieces"),
    ],
)
def test_tokenizer_rejects_arguments_that_are_not_texts_or_ids(tokenizer, call, message):
    with pytest.raises(DataError) as caught:
        call(tokenizer)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("language", [["de"], b"de", 3])
def test_encode_sources_rejects_a_target_lang_that_is_not_text(tokenizer, language):
    with pytest.raises(ConfigError, match="target_lang must be a language such as 'de'"):
        tokenizer.encode_sources(["x"], target_lang=language)


class PanicException(BaseException):
    """As the library's Rust code raises where it panics."""


class Panics:
    def __getattr__(self, name):
        def panic(*arguments, **options):
            raise PanicException("index out of bounds")

        return panic


def test_a_panic_of_the_library_is_an_error_of_ours(tokenizer, monkeypatch, tmp_path):
    monkeypatch.setattr(tokenizer, "_backend", Panics())
    with pytest.raises(ModelError, match="cannot encode the text: index out of bounds"):
        tokenizer.encode("x")
    with pytest.raises(DataError, match="cannot be read as text: index out of bounds"):
        tokenizer.decode([3])
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    monkeypatch.setattr("tokenizers.Tokenizer", Panics())
    with pytest.raises(ModelError, match=r"is not a clearhead tokenizer: index out of bounds"):
        Tokenizer.load(path)


def test_encode_passes_on_keyboard_interrupt_of_the_library(tokenizer, monkeypatch):
    class Interrupted:
        def encode_batch_fast(self, *arguments, **options):
            raise KeyboardInterrupt

    monkeypatch.setattr(tokenizer, "_backend", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        tokenizer.encode("x")


@pytest.mark.parametrize(
    ("name", "part", "message"),
    [
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "/////w=="}, "a part of type 'Precompiled'"),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]}, "a part of type 'Lowercase'"),
        ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior": "Isolated"}, "another pattern"),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 7}, "128 times as long"),
        ("padding", {"strategy": {"Fixed": 10**12}}, "its padding must be null"),
        ("truncation", {"max_length": 1, "stride": 0}, "its truncation must be null"),
        ("post_processor", {"type": "ByteLevel"}, "its post_processor must be null"),
    ],
)
def test_parts_that_no_tokenizer_of_ours_has_are_refused(make_bundle, name, part, message):
    values = {**json.loads(make_bundle().tokenizer.text), name: part}
    with pytest.raises(ValueError, match=message):
        Tokenizer(json.dumps(values))


@settings(max_examples=20)
@given(text=tricky)
def test_completions_are_the_pieces_that_begin_with_all_the_rest(tokenizer, text):
    named = json.loads(tokenizer.text)
    special = {token["id"] for token in named["added_tokens"]}
    names = named["model"]["vocab"]  # to ids or, of a unigram model, with scores
    pairs = names.items() if isinstance(names, dict) else ((name, number) for number, (name, _) in enumerate(names))
    by_id = {number: name for name, number in pairs if number not in special}
    ids = tokenizer.encode(text)
    expected = [
        {number for number, name in by_id.items() if name.startswith("".join(by_id[i] for i in ids[place:]))}
        for place in range(len(ids))
    ]
    assert [set(found) for found in tokenizer.completions(ids)] == expected
    assert all(ids[-1] in found for found in tokenizer.completions(ids)[-1:])


@pytest.fixture(scope="module", params=KINDS)
def with_signs(request):
    return Tokenizer.train(CORPUS, kind=request.param, vocab_size=440, placeholders=True)


@settings(max_examples=100)
@given(tricky)
def test_encode_and_decode_keep_text_beside_placeholder_tokens(with_signs, text):
    ids = with_signs.encode(text)
    assert with_signs.decode(ids) == text
    assert sum(token >= with_signs.vocab_size - 32 for token in ids) == sum(sign in SIGNS for sign in text)


def test_signs_of_placeholders_have_the_last_ids_and_a_token_each(with_signs):
    first = with_signs.vocab_size - 32
    assert (with_signs.num_placeholders, with_signs.settings["placeholders"]) == (32, True)
    assert with_signs.model_settings["num_placeholders"] == 32
    assert with_signs.encode("".join(SIGNS)) == list(range(first, with_signs.vocab_size))
    words = with_signs.encode(f"der Hund{SIGNS[3]}rennt {SIGNS[20]}")
    assert [token - first for token in words if token >= first] == [3, 20]
    pieces = with_signs.pieces(with_signs.encode("rennt"))  # as at the beginning of a line
    assert with_signs.pieces(with_signs.encode(f"{SIGNS[3]}rennt")) == [SIGNS[3], *pieces]


def test_signs_are_text_to_a_vocabulary_without_them(tokenizer):
    assert tokenizer.num_placeholders == 0
    assert len(tokenizer.encode(SIGNS[0])) >= 4
    assert tokenizer.decode(tokenizer.encode(SIGNS[0] + " x")) == SIGNS[0] + " x"


def test_a_tokenizer_without_all_signs_is_refused(with_signs):
    values = json.loads(with_signs.text)
    values["added_tokens"] = [token for token in values["added_tokens"] if token["content"] != SIGNS[7]]
    with pytest.raises(ValueError, match=r"are not 0 to|are not those for placeholders"):
        Tokenizer(json.dumps(values))


@pytest.mark.parametrize("name", ["lstrip", "rstrip", "single_word", "normalized"])
def test_a_tokenizer_that_finds_signs_otherwise_is_refused(with_signs, name):
    values = json.loads(with_signs.text)
    values["added_tokens"][-1][name] = True
    with pytest.raises(ValueError, match="must be found as they stand"):
        Tokenizer(json.dumps(values))
