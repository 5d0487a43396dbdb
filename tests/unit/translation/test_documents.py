from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace

import pytest

from clearhead.bundle.side_files import ALIGNMENT_FILE, add_side_files
from clearhead.config import DecodeConfig, Sampling
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.errors import ConfigError, DataError
from clearhead.formats.document import Document, DocumentSegment, Filling, LengthLimit
from clearhead.formats.document_files import read_document
from clearhead.text.placeholders import has_words
from clearhead.text.quality_flags import Flag
from clearhead.translation.alignment import save_head
from clearhead.translation.documents import (
    TranslatedSegment,
    document_summary,
    fillings,
    lines_to_translate,
    num_kept_copies,
    origin_of,
    translate_document,
)
from clearhead.translation.journal import TranslationJournal
from clearhead.translation.memory import TranslationMemory
from clearhead.translation.result import MemoryMatch, TermUse, Translation
from clearhead.translation.translator import Translator


class Listed(Document):
    """Segments alone."""

    format = "list"

    def __init__(self, *segments):
        self.segments = [
            DocumentSegment(one, line) if isinstance(one, str) else one for line, one in enumerate(segments, 1)
        ]

    def filled(self, fillings):
        return "|".join(
            one.text if filling is None else filling.text for one, filling in zip(self.segments, fillings, strict=True)
        ).encode()


@dataclass
class Shouting:
    """A translator that puts lines in capitals; it fails when it has translated `most` of them."""

    most: int = 1_000
    read: list[str] = field(default_factory=list)
    targets: Sequence[str] = ("de",)

    def translate(self, lines, *, one_line=False, name="", on_progress=None, scores=True, **settings):
        if len(self.read) + len(lines) > self.most:
            raise RuntimeError("stopped")
        self.read += lines
        if on_progress is not None:
            on_progress(len(lines))
        flags = [(Flag("numbers", "7"),) if "7" in line else () for line in lines]
        return [
            Translation(line, line.upper(), -float(len(line)) if scores else None, tuple(line.split()), warnings=flag)
            for line, flag in zip(lines, flags, strict=True)
        ]

    def decode_config(self, settings):
        return DecodeConfig(**settings)

    @property
    def bundle(self):
        return SimpleNamespace(languages=(["en"], self.targets))

    def translates(self, text, terms=None):
        return has_words(text)

    @property
    def pair_encoder(self):
        return self

    def split_sources(self, lines, target_lang, *, name="", first=1):
        if any(line.startswith("<2xx>") for line in lines):
            raise DataError(f"{name}, line {first}: unknown language tag <2xx>")
        return [(None, line) for line in lines]


@pytest.fixture
def shouted():
    """Return a function that translates a document and returns it as text."""

    def shout(document, translator=None, **how):
        return document.filled(fillings(translate_document(translator or Shouting(), document, **how))).decode()

    return shout


def test_segments_of_low_quality_are_left():
    document, qualities = Listed("ein Hund", "ja", "42", "eins\nzwei"), iter([0.9, 0.3, 0.5, 0.7])
    translator = Shouting()
    plain = translator.translate

    def judged(lines, *, quality=False, **how):
        assert quality
        return [replace(one, quality=next(qualities)) for one in plain(lines, **how)]

    translator.translate = judged
    found = translate_document(translator, document, only_if=0.59)
    # The last has two lines of four characters: 0.6 on average.
    assert [one.status for one in found] == ["translated", "left", "without_words", "translated"]
    assert document.filled(fillings(found)) == b"EIN HUND|ja|42|EINS\nZWEI"
    assert document_summary(found, name="a").endswith("2 translated, 0 kept, 1 without words, 1 left")


def test_white_space_and_line_ends_stay_and_lines_are_translated_apart(shouted):
    translator = Shouting()
    document = Listed(" ein Hund \n\n\t- und\u2028eine Katze\r\n", "ja", "\n", "")
    assert shouted(document, translator) == " EIN HUND \n\n\t- UND\u2028EINE KATZE\r\n|JA|\n|"
    assert translator.read == ["ein Hund", "- und", "eine Katze", "ja"]


def test_segments_without_words_are_not_translated(shouted):
    texts = ["42", "…", "%s", "{name}", "https://example.org/a", "<br/>", "a_b", "12 %\n7"]
    document, translator = Listed(*texts, "%s Hunde"), Shouting()
    translated = translate_document(translator, document)
    assert [one.status for one in translated] == ["without_words"] * len(texts) + ["translated"]
    assert fillings(translated) == [None] * len(texts) + [Filling("%S HUNDE")]
    assert translator.read == lines_to_translate(document) == ["%s Hunde"]


def test_equal_lines_are_translated_once():
    translator, steps = Shouting(), []
    document = Listed("ja", " ja", "ja\nnein", "nein", "ja")
    translated = translate_document(translator, document, on_progress=steps.append, chunk_lines=1)
    assert translator.read == ["ja", "nein"]
    assert [one.translation.text for one in translated] == ["JA", " JA", "JA\nNEIN", "NEIN", "JA"]
    assert steps == [1, 1]


def test_finished_translations_are_kept_where_that_is_asked_for(shouted):
    document = Listed(
        DocumentSegment("ja", 1, "yes", True),
        DocumentSegment("nein", 2, "no?", False),
        DocumentSegment("42", 3, "43", True),
    )
    translated = translate_document(Shouting(), document, only_missing=True)
    assert [one.status for one in translated] == ["kept", "translated", "kept"]
    assert shouted(document, only_missing=True) == "ja|NEIN|42"
    assert shouted(document) == "JA|NEIN|42"
    assert lines_to_translate(document, only_missing=True) == ["nein"]


def test_translations_longer_than_the_file_allows_are_flagged():
    shared = LengthLimit(2, 8)
    segments = [
        DocumentSegment("ja", 1, limit=LengthLimit(1, 2)),
        DocumentSegment("nein", 2, limit=shared),
        DocumentSegment("and", 3, "<g1>und</g1>!", is_finished=True, limit=shared),
        DocumentSegment("fünf", 4, limit=LengthLimit(3, 3)),
    ]

    def flags(*segments):
        found = translate_document(Shouting(), Listed(*segments), only_missing=True)
        return [one.translation and [*one.translation.warnings] for one in found]

    too_long = Flag("too_long", "4 characters, and the file allows 3")
    assert flags(*segments) == [[], [], None, [too_long]]
    segments[2] = replace(segments[2], translation="<g1>sowie</g1>")
    assert flags(*segments)[1] == [Flag("too_long", "9 characters, and the file allows 8")]


@pytest.mark.parametrize(
    ("targets", "settings", "language"),
    [
        (["de"], {}, "de"),
        (["de", "fr"], {"target_lang": "fr"}, "fr"),
        (["de", "fr"], {}, ""),
        ([], {}, ""),
    ],
)
def test_a_document_gets_the_language_of_its_translations(targets, settings, language):
    translator = Shouting(targets=targets)
    for text, expected in (("ja", language), ("42", "")):
        document = Listed(text)
        translate_document(translator, document, **settings)
        assert document.language == expected


def test_kept_copies_of_sources_are_counted():
    pairs = [("The <g1>boat</g1>", "__The <g1>boat</g1>"), ("The oar", "Das Ruder"), ("12 %s", "12 %s"), ("Sail", "")]
    segments = [DocumentSegment(source, 1, target, bool(target)) for source, target in pairs]
    translated = translate_document(Shouting(), Listed(*segments), only_missing=True)
    assert num_kept_copies(translated) == 1


def test_a_segment_has_the_score_the_flags_and_the_sentences_of_its_lines():
    one, two, none = translate_document(Shouting(), Listed("ab 7", "ab 7\nabcdef", "5"))
    assert (one.translation.source, one.translation.score, one.score_per_token) == ("ab 7", -4.0, -4 / 3)
    assert one.length_ratio == 1.0
    assert one.translation.sentences == ()
    assert (two.translation.source, two.translation.score, two.translation.tokens) == (
        "ab 7\nabcdef",
        -10.0,
        ("ab", "7", "abcdef"),
    )
    assert two.score_per_token == -10 / 5  # three tokens, two ends
    assert [line.source for line in two.translation.sentences] == ["ab 7", "abcdef"]
    assert two.translation.warnings == (Flag("numbers", "7"),)
    assert (none.score_per_token, none.length_ratio) == (None, None)
    short = TranslatedSegment(DocumentSegment("x" * 10, 1), "translated", Translation("x" * 10, "y" * 40, None, ()))
    assert short.length_ratio == 2.0  # (40 + 20) / (10 + 20)
    assert short.score_per_token is None


def test_a_line_that_cannot_be_translated_is_named_before_any_is(shouted):
    translator = Shouting()
    with pytest.raises(DataError, match=r"a.txt, line 3: unknown language tag"):
        shouted(Listed("ja", "nein", "<2xx> ja"), translator, name="a.txt")
    assert translator.read == []


@pytest.fixture
def journal(tmp_path):
    """Return a function that opens the journal, which must have nothing to say."""
    return lambda origin: TranslationJournal(tmp_path / "journal", origin, notice=pytest.fail)


def test_translate_document_reuses_the_translations_of_its_journal(shouted, journal):
    document, how = Listed("a", "b\nc", "d", "e", "f 7"), {"chunk_lines": 2}
    translator = Shouting(most=5)
    with pytest.raises(RuntimeError, match="stopped"):
        shouted(document, translator, journal=journal({}), **how)
    assert translator.read == ["a", "b", "c", "d"]
    translator, steps = Shouting(), []
    whole = translate_document(translator, document, journal=journal({}), on_progress=steps.append, **how)
    assert translator.read == ["e", "f 7"]
    assert steps == [4, 2]
    assert whole == translate_document(Shouting(), document)
    changed = Listed("f 7", "g", "b")  # edited meanwhile
    translator = Shouting()
    assert shouted(changed, translator, journal=journal({})) == "F 7|G|B"
    assert translator.read == ["g"]


def test_origin_of_depends_on_models_and_settings_not_on_batch_tokens(make_model_dir):
    translator = Translator.load(make_model_dir())
    other = Translator.load(make_model_dir("other", seed=8))
    origin = origin_of(translator)
    assert origin_of(translator, batch_tokens=17) == origin == origin_of(Translator.load(translator.path))
    both = Translator.load(translator.path, ensemble=[other.path])
    others = [
        origin_of(other),
        origin_of(both),
        origin_of(translator, beam_size=1),
        origin_of(translator, scores=False),
        origin_of(translator, plain=True),
        origin_of(translator, sampling=Sampling()),
        origin_of(translator, sampling=Sampling(seed=2)),
        origin_of(translator, mbr=3),
        origin_of(Translator.load(make_model_dir("informed", info={"data": {}}))),
        origin_of(Translator.load(make_model_dir("decode", decode={"beam_size": 2}))),
    ]
    assert all(one != two for number, one in enumerate([origin, *others]) for two in others[number:])
    with pytest.raises(ConfigError, match="beam_size"):
        origin_of(translator, beam_size=0)


def test_a_model_translates_a_document_as_it_translates_lines(make_model_dir, sentences):
    translator = Translator.load(make_model_dir())
    texts = sentences[:3]
    translated = translate_document(translator, Listed(*texts, "\n".join(texts)), chunk_lines=2)
    expected = [one.text for one in translator.translate(texts, one_line=True)]
    assert [one.translation.text for one in translated] == [*expected, "\n".join(expected)]
    assert [one.translation.text for one in translate_document(translator, Listed(*texts), plain=True)] == expected
    with pytest.raises(ConfigError, match="beam_size"):
        translate_document(translator, Listed("a"), beam_size=0)


def test_of_a_message_with_branches_the_words_alone_are_translated():
    shouting = Shouting()
    message = "{n, plural, =0 {no files} one {a file\n in it} other {# files}} left, {7, number}"
    (one,) = translate_document(shouting, Listed(message))
    # What shouts changes the names of arguments too, so that these stretches do not fit.
    assert one.translation.text == "{n, plural, =0 {NO FILES} one {A FILE\n IN IT} other {# files}} left, {7, number}"
    assert shouting.read == ["no files", "a file", "in it", "{n1} files", "left, {n1}"]
    (flag,) = one.translation.warnings
    assert flag == Flag("placeholders", "left as it was, for its translation lacks an argument: {n1} files; left, {n1}")
    assert one.translation.source == message


def test_a_message_without_branches_is_one_where_others_have_them():
    class French(Shouting):
        def translate(self, lines, **how):
            made = {"Photo of {name}": "Photo de l'{name}", "a": "un", "Of {{name}}": "De l'{{name}}", "It's": "L'"}
            return [Translation(line, made[line], 0.0, ()) for line in lines]

    plain = ["Photo of {name}", "Of {{name}}", "It's"]
    texts = [one.translation.text for one in translate_document(French(), Listed(*plain))]
    assert texts == ["Photo de l'{name}", "De l'{{name}}", "L'"]
    translated = translate_document(French(), Listed(*plain, "{n, plural, other {a}}"))
    texts = [one.translation.text for one in translated]
    assert texts == ["Photo de l''{name}", "De l'{{name}}", "L'", "{n, plural, other {un}}"]


def test_terms_in_an_untranslated_part_of_a_message_are_left():
    class Termed(Shouting):
        def translate(self, lines, **how):
            uses = {line: (TermUse("file", "FILE", "FILE"),) if "file" in line else () for line in lines}
            return [replace(one, terms=uses[one.source]) for one in super().translate(lines, **how)]

    document = Listed("{n, plural, one {a file} other {# files}}")
    (one,) = translate_document(Termed(), document)
    assert one.translation.text == "{n, plural, one {A FILE} other {# files}}"
    assert one.translation.terms == (TermUse("file", "FILE", "FILE"), TermUse("file", "FILE", "", "left"))
    (filling,) = fillings([one])
    assert filling.note == "term missed: file -> FILE (its part of the message was left as it was)"


def test_a_translation_that_the_format_cannot_express_is_left_and_flagged():
    class Narrow(Listed):
        def problem(self, number, translation):
            return "too long" if number and len(translation) > 3 else ""

    kept, left = translate_document(Shouting(), Narrow("a dog", "a cat"))
    assert kept.translation.text == "A DOG"
    assert not kept.translation.warnings
    assert left.translation.text == "a cat"
    assert left.translation.warnings == (Flag("placeholders", "left as it was: too long"),)


def test_another_head_to_place_markup_by_is_another_origin(make_model_dir):
    path = make_model_dir()
    translator = Translator.load(path)
    before = [origin_of(translator, place_markup=it) for it in (True, False)]
    head = partial(save_head, head=AlignmentHead(0, 0), agreement=0.5)
    add_side_files(path, {ALIGNMENT_FILE: head}, translator.bundle.identity())
    after = [origin_of(Translator.load(path), place_markup=it) for it in (True, False)]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True]


class Reversing(Shouting):
    """A translator that puts words in the opposite order."""

    def translate(self, lines, **how):
        made = super().translate(lines, **how)
        return [replace(one, text=" ".join(reversed(one.source.split()))) for one in made]


def test_a_segment_whose_formats_are_changed_is_left_and_flagged():
    texts = [("%s has %d files", "c-format"), ("%s has %d files", "python-format"), ("%s has %d files", "")]
    document = Listed(*(DocumentSegment(text, 1, format=flag) for text, flag in texts))
    made = [one.translation for one in translate_document(Reversing(), document)]
    assert [one.text for one in made] == ["files %2$d has %1$s", "%s has %d files", "files %d has %s"]
    assert [[flag.kind for flag in one.warnings] for one in made] == [[], ["placeholders"], []]
    assert made[1].warnings[0].detail.startswith("left as it was: python-format: argument 1 is text in the source, and")


def test_a_translation_of_a_memory_whose_formats_are_changed_is_left_and_flagged():
    document = Listed(DocumentSegment("%d files", 1, format="c-format"))
    reused = MemoryMatch("%d files", "%s Dateien", 1.0, is_reused=True)
    (one,) = translate_document(Shouting(), document, memory=lambda text: reused)
    assert (one.status, one.translation.text) == ("reused", "%d files")
    assert [flag.kind for flag in one.translation.warnings] == ["placeholders"]


def test_messages_in_different_contexts_have_their_own_translations(tmp_path):
    def written(name, *translations):
        path = tmp_path / name
        contexts = zip(("verb", "adjective"), translations, strict=True)
        messages = (f'msgctxt "{context}"\nmsgid "Open"\nmsgstr "{text}"\n' for context, text in contexts)
        path.write_text("\n".join(messages), encoding="utf-8")
        return str(path)

    memory = TranslationMemory.load([written("memory.po", "Öffnen", "Offen")])
    document = read_document(written("todo.po", "", ""))
    translated = translate_document(Shouting(), document, memory=memory.match)
    assert [(one.status, one.translation.text) for one in translated] == [("reused", "Öffnen"), ("reused", "Offen")]


@pytest.mark.parametrize(
    ("translation", "remark"),
    [
        (
            "Siehe <g1>eins und <g2>zwei</g2></g1>.",
            "<g2> is inside <g1>, which is a link; <g2> is missing; it now comes after the text",
        ),
        ("Siehe <g1></g1>eins und <g2>zwei</g2>.", "<g1> has no words; <g1> is missing; it now comes after the text"),
        ("Siehe <g2>zwei</g2> und <g1>eins</g1>.", None),
    ],
)
def test_a_link_that_is_moved_is_flagged(tmp_path, translation, remark):
    class Linking(Shouting):
        def translate(self, lines, **how):
            return [replace(one, text=translation) for one in super().translate(lines, **how)]

    page = tmp_path / "a.html"
    page.write_text('<p>See <a href="1">one</a> and <a href="2">two</a>.</p>', encoding="utf-8")
    catalogue = tmp_path / "a.xlf"
    links = '<g id="1" ctype="link">one</g> and <g id="2" ctype="link">two</g>'
    catalogue.write_text(f'<xliff version="1.2"><trans-unit><source>See {links}.</source></trans-unit></xliff>')
    memory = tmp_path / "a.tmx"
    links = '<hi x="1" type="link">one</hi> and <hi x="2" type="link">two</hi>'
    unit = f'<tu><tuv xml:lang="en"><seg>See {links}.</seg></tuv></tu>'
    memory.write_text(f'<tmx version="1.4"><header srclang="en"/><body>{unit}</body></tmx>', encoding="utf-8")
    text = tmp_path / "a.md"
    text.write_text("See [one](1) and [two](2).", encoding="utf-8")
    for path, options in ((page, {}), (catalogue, {}), (memory, {"to_lang": "de"}), (text, {})):
        (one,) = translate_document(Linking(), read_document(str(path), **options))
        assert one.translation.warnings == (() if remark is None else (Flag("placeholders", remark),)), path
