"""Pairs of which a model wrote one side: which side, what is dropped, and that every line is counted."""

from __future__ import annotations

import pytest

from clearhead.decoding import Sampling
from clearhead.errors import ConfigError, DataError
from clearhead.files import output_parts
from clearhead.training.synthetic_pairs import SyntheticReport, synthesize
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator


@pytest.fixture
def translator(make_bundle):
    return Translator(make_bundle(seed=4, decode={"beam_size": 2, "extra_length": 60}))


def pairs_of(translator, lines, machine_side="source", **options):
    report = SyntheticReport()
    pairs = list(synthesize(translator, lines, machine_side=machine_side, report=report, **options))
    assert report.read == len(lines) == report.kept + sum(report.dropped.values())
    assert report.kept == len(pairs)
    return [(pair.source, pair.target) for pair in pairs], report


def scripted(monkeypatch, **texts):
    """Let every translator answer as told, and others with the line in capitals."""
    cut = texts.pop("cut", ())

    def translate(self, lines, **options):
        return [
            Translation(line, texts.get(line, line.upper()), None, (), output_truncated=line in cut) for line in lines
        ]

    monkeypatch.setattr(Translator, "translate", translate)


def test_synthetic_side_is_source_by_default_or_target(translator, sentences, monkeypatch):
    scripted(monkeypatch)
    text = ["ein hund", "zwei hunde"]
    assert pairs_of(translator, text)[0] == [("EIN HUND", "ein hund"), ("ZWEI HUNDE", "zwei hunde")]
    assert pairs_of(translator, text, "target")[0] == [("ein hund", "EIN HUND"), ("zwei hunde", "ZWEI HUNDE")]
    assert pairs_of(translator, text, tag="de")[0][0] == ("<2de> EIN HUND", "ein hund")


def test_dropped_pairs_are_counted_by_reason(translator, monkeypatch):
    scripted(monkeypatch, nothing="", same="same", tabbed="a\tb", nul="a\0b", cut=["long"])
    lines = ["good", "", "nothing", "same", "tabbed", "nul", "long", "a\tb", "fine"]
    pairs, report = pairs_of(translator, lines)
    assert pairs == [("GOOD", "good"), ("FINE", "fine")]
    assert report.dropped == {"blank": 2, "cut": 1, "copied": 1, "unwritable": 3}
    assert report.lines()[:2] == ["           9 lines read", "           2 kept"]
    assert report.lines()[2].endswith("2 dropped: blank, the line or its translation is blank")


def test_language_tag_of_a_line_is_not_part_of_its_pair(make_bundle, monkeypatch):
    scripted(monkeypatch)
    translator = Translator(make_bundle(language_tags=("de", "fr")))
    assert pairs_of(translator, ["<2fr> a dog"], "target")[0] == [("a dog", "<2FR> A DOG")]


def test_synthetic_pairs_keep_the_order_of_lines(translator, monkeypatch):
    scripted(monkeypatch)
    text = [f"line {number}" for number in range(4_321)]
    assert [target for _, target in pairs_of(translator, text)[0]] == text


def test_origins_and_errors_of_synthetic_pairs_count_lines_from_1_over_all_chunks(make_bundle, monkeypatch):
    monkeypatch.setattr(output_parts, "SHARD_LINES", 2)
    translator = Translator(make_bundle(language_tags=("de", "fr")))
    options = {"machine_side": "source", "report": SyntheticReport(), "name": "mono.txt"}
    with pytest.raises(DataError, match=r"mono\.txt, line 3: unknown language tag <2da>"):
        list(synthesize(translator, ["<2fr> one", "<2fr> two", "<2da> three"], **options))
    scripted(monkeypatch)
    pairs = synthesize(translator, ["<2fr> one", "", "<2fr> two", "<2fr> three"], **options)
    assert [pair.origin for pair in pairs] == ["mono.txt:1", "mono.txt:3", "mono.txt:4"]


def test_a_model_translates_and_samples_by_its_seed(translator, sentences):
    found, _ = pairs_of(translator, sentences)
    translations = {one.source: one.text for one in translator.translate(list(sentences))}
    assert len(found) == 5
    assert all(translations[target] == source for source, target in found)
    drawn = [pairs_of(translator, sentences, sampling=Sampling(seed=seed))[0] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_synthetic_pairs_reject_an_invalid_language_tag(translator):
    with pytest.raises(ConfigError, match="must be the name of a language"):
        pairs_of(translator, ["a"], tag="two words")
