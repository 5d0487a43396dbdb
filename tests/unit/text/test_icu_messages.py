from __future__ import annotations

import re

import pytest
from steps import assert_linear

from clearhead.text.icu_messages import MessageRun, message_runs, message_syntax
from clearhead.text.quality_flags import missing_placeholders

COUNTED = "{count, plural, one {# file} other {# files}}"
NESTED = (
    "{who, select, female {She''s got {n, plural, offset:1 =0 {no files} one {# file} other {# files of {d, date, "
    "short}}}.} other {They have {n, plural, one {a file} other {# files}}}} now, {name}"
)


def rewritten(message, change):
    """Return a message in which each stretch of words is changed."""
    written, at = "", 0
    for run in message_runs(message):
        written += message[at : run.start] + run.written(change(run.text), run.text)
        at = run.end
    return written + message[at:]


def capitals(words):
    """Put words in capitals, except inside braces."""
    return re.sub(r"\{\w+\}|[^{]+", lambda found: found[0] if found[0][0] == "{" else found[0].upper(), words)


@pytest.mark.parametrize(
    ("message", "texts"),
    [
        (COUNTED, ["{n1} file", "{n1} files"]),
        (NESTED, ["She's got ", "no files", "{n1} file", "{n1} files of {n2}", ".", "They have ", "a file",
                  "{n1} files", " now, {name}"]),
        ("a {n1} {x,selectordinal,two{{n1} #nd}other{#th}}", ["a {n1} ", "{n1} {n2}nd", "{n2}th"]),
        ("{x, select, other {# is no number}}", ["# is no number"]),
        ("l'ami {x, select, other {d'Anne}}", ["l'ami ", "d'Anne"]),
        ("{x, plural, other {the sign '#' is not #}}", ["the sign # is not {n1}"]),
        ("{x, select, a{} other{b}}", ["b"]),
    ],
)  # fmt: skip
def test_runs_are_what_has_words(message, texts):
    assert [run.text for run in message_runs(message)] == texts
    assert rewritten(message, str) == message
    shouted = rewritten(message, capitals)
    assert message_syntax(shouted) == message_syntax(message) != ()


@pytest.mark.parametrize(
    "text",
    [
        "a {name} and {n, number}",
        "the words plural, select, are here {",
        "{n, plural, one {x}}",
        "{n, plural, one {x} other {y}",
        "{n, plural, one {x} other {y}}}",
        "{n, plural, other x}",
        "{, plural, other {x}}",
        "{n, plural, other {'{x}'}}",
        "{a, select, other {" * 60 + "}}" * 60,
    ],
)
def test_text_that_is_not_a_valid_icu_message_has_no_runs(text):
    assert message_runs(text) == []
    assert message_syntax(text) == ()


def test_words_that_would_be_read_as_syntax_are_quoted():
    first, _ = message_runs(COUNTED)
    assert first.written("l'a {n1} # {", first.text) == "l''a # '#' '{'"
    assert first.written("l'a # {n1} }'", first.text) == "l''a '#' # '}'''"
    (single,) = message_runs("{x, select, other {l'ami}}")
    assert single.written("d'un '", single.text) == "d'un ''"


# How each is written was checked with ICU 78 (PyICU): formatted, it gives the words again.
@pytest.mark.parametrize(
    ("message", "words", "written"),
    [
        ("{n, plural, other {it's # y}}", "'#'s {n1}", "'''#'''s #"),
        ("{n, plural, other {it's # y}}", "#'s {n1}", "'#'''s #"),
        ("{n, plural, other {it's # y}}", "{n1} #'{#'", "# '#''{#'''"),
        ("{n, plural, other {it is # y}}", "l'a#'' {n1}", "l''a'#''''' #"),
        ("{x, select, other {l'ami {n}}}", "{n} }'s #'", "{n} '}'''s #''"),
        ("{x, select, other {l'ami {n}}}", "l'{n}", "l''{n}"),
    ],
)
def test_a_stretch_from_a_sign_on_is_quoted_with_its_apostrophes(message, words, written):
    (run,) = message_runs(message)
    assert run.written(words, run.text) == written


def test_messages_that_do_not_read_back_as_the_translation_are_not_written(monkeypatch):
    (run,) = message_runs("{n, plural, other {it's # y}}")
    monkeypatch.setattr(MessageRun, "_quoted", lambda run, words: words)
    assert run.written("it's {n1}", run.text) == "it's #"
    assert run.written("'#' {n1}", run.text) is None
    assert run.written("it' {n1} }", run.text) is None


def test_a_translation_without_its_arguments_does_not_fit():
    first, _ = message_runs(COUNTED)
    for bad in ("file", "{n1} {n1}", "{n2} file", "{n1} file {x}"):
        assert first.written(bad, first.text) is None


def test_a_damaged_message_is_flagged():
    assert missing_placeholders(COUNTED, "{count, plural, one {# Datei} other {# Dateien}}") == []
    for damaged in (
        "{count, plural, eine {# Datei} other {# Dateien}}",
        "{count, plural, one {Datei} other {# Dateien}}",
    ):
        assert missing_placeholders(COUNTED, damaged) == ["{count, plural, one {"]


def test_names_are_new_in_the_message_and_count_from_one_in_every_run():
    runs = message_runs("{n1} {x, plural, one {# {n3} #} other {{x, date, short} #}} {x, number}")
    assert [run.text for run in runs] == ["{n1} ", "{n2} {n3} {n4}", "{n2} {n4}", " {n2}"]
    assert runs[1].originals("{n4} {n3}") == ["#", "{n3}"]


@pytest.mark.parametrize(
    "branches",
    [
        lambda count: "other {" + "#" * count + "}",
        lambda count: "other {" + "{a,b}" * count + "}",
        lambda count: "other {" + "# a\n" * count + "}",
        lambda count: "other {" + "".join(f"{{n{number}}}" for number in range(count)) + "}" + "a{#}" * count,
    ],
)
def test_long_messages_take_work_proportional_to_their_length(branches):
    def rewrite(count):
        for run in message_runs("{x, plural, " + branches(count) + "}"):
            for line in run.text.splitlines():
                assert run.written(line, line) is not None

    assert_linear(rewrite, 50)
