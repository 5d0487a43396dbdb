"""Format strings: the verdicts of GNU gettext's `msgfmt --check-format`, and reordered arguments."""

from __future__ import annotations

import pytest

from clearhead.text.format_strings import checked_format, format_of


@pytest.mark.parametrize(
    ("flag", "source", "translation", "problem"),
    [
        ("c-format", "%d von %ld", "%i of %li", ""),
        ("c-format", "%d", "%u", "argument 1 is integer in the source, and unsigned in the translation"),
        ("c-format", "%ld", "%d", "argument 1 is integer l in the source, and integer in the translation"),
        ("c-format", "%lf %qd %ls", "%f %lld %S", ""),
        ("c-format", "%<PRIu64>", "%<PRIx64>", ""),
        ("c-format", "%<PRIu64>", "%lu", "argument 1 is unsigned 64 in the source, and unsigned l in the translation"),
        ("c-format", "%*d", "%d", "argument 2 (integer) is missing"),
        ("c-format", "%*d", "%2$*1$d", ""),
        ("c-format", "%s %m %%", "%s", ""),
        ("c-format", "a", "100% sure", "argument 1 (string) is not in the source"),
        ("c-format", "100% off", "100% x", ""),
        ("c-format", "%s", "%1$s %s", "some arguments have a number or a name, and others have none"),
        ("c-format", "%s", "%2$s", "argument 1 is not used"),
        ("c-format", "%s", "%y", "%y is no format"),
        ("c-format", "%s", "Ende %", "% is no format"),
        ("c-format", "%s %d", "%2$d %1$s", ""),
        ("objc-format", "%@", "%s", "argument 1 is object in the source, and string in the translation"),
        ("python-format", "%r %i", "%s %d", ""),
        ("python-format", "%(a)s %(b)d", "%(b)d", "argument a (text) is missing"),
        ("python-format", "%(a)s", "%s", "argument a (text) is missing; argument 1 (text) is not in the source"),
        ("python-format", "%s hat %d", "%d has %s",
         "argument 1 is text in the source, and integer in the translation; "
         "argument 2 is integer in the source, and text in the translation"),
        ("python-brace-format", "{a} {b:>{w}} {{c}}", "{b:>{w}} {a}", ""),
        ("python-brace-format", "{a:.2f}", "{a}", "argument a:.2f is missing; argument a is not in the source"),
        ("python-brace-format", "{a}", "{a} {", "{ is no format"),
        ("python-brace-format", "{} {}", "{0}", "argument 1 is missing"),
        ("python-brace-format", "{a.b}", "{a.c}", "argument a.b is missing; argument a.c is not in the source"),
        ("javascript-format", "%d", "%x", ""),
        ("javascript-format", "%j", "%s", "argument 1 is value in the source, and string in the translation"),
        ("php-format", "%2$s", "%2$s", ""),
        ("php-format", "%\'*5d %u", "%d %b", ""),
        ("php-format", "%1$s %2$s", "%2$s", "argument 1 (string) is missing"),
        ("python-format", "%()s", "a", "argument  (text) is missing"),
        ("python-format", "%(a)s", "%(a)%", "argument a is text in the source, and percent in the translation"),
        ("php-format", "%1$s %s %ld", "%s", "argument 2 (integer) is missing"),
        ("lua-format", "%q", "%s", "argument 1 is literal in the source, and string in the translation"),
        ("awk-format", "%2$*1$d", "%2$*1$d", ""),
        ("awk-format", "%2$*1$d", "%d", "argument 2 (integer) is missing"),
        ("awk-format", "%u", "%d", "argument 1 is unsigned in the source, and integer in the translation"),
        ("ruby-format", "%{a} %<b>d", "%<b>d %<a>s", ""),
        ("ruby-format", "%{a}", "a", "argument a (text) is missing"),
        ("ruby-format", "%-5<a>s %{b c}", "%{b c} %<a>-5s", ""),
        ("ruby-format", "%s %d", "%s", "argument 2 (integer) is missing"),
        ("ruby-format", "%{a}", "%{a} %s", "some arguments have a number or a name, and others have none"),
        ("rust-format", "{name} has {count:>3} {{x}}", "{count:>3} {name}", ""),
        ("rust-format", "{name} has {count:>3}", "{name}", "argument count (>3) is missing"),
        ("rust-format", "{} {}", "{}", "argument 1 is missing"),
        ("rust-format", "{a}", "{a", "{ is no format"),
        ("c++-format", "{0:>8} has {1:d}", "{1:d} {0:>8}", ""),
        ("c++-format", "{0:>8} has {1:d}", "{0:d} {1:>8}",
         "argument 0 is >8 in the source, and d in the translation; argument 1 is d in the source, and >8 in the "
         "translation"),
        ("go-format", "%[1]q has %[2]d and %v", "%[2]d %v %[1]q", ""),
        ("go-format", "%[1]q has %[2]d and %v", "%q %d %v", ""),
        ("go-format", "%s has %d", "%d has %s",
         "argument 1 is s in the source, and d in the translation; argument 2 is d in the source, and s in the "
         "translation"),
        ("go-format", "%s has %d", "%[2]d has %[1]s", ""),
        ("go-format", "%6.2f%% of %*d", "%6.2f%% of %d", "argument 3 (d) is missing; "
         "argument 2 is * in the source, and d in the translation"),
        ("go-format", "%s", "%s %", "% is no format"),
        ("d-format", "%(%s, %) has %d oars", "%(%s, %) hat %d", ""),
        ("d-format", "%(%s, %) has %d oars", "%(%s, ) hat %d", "argument 4 (%d) is missing; "
         "argument 3 is %) in the source, and %d in the translation"),
        ("ocaml-format", "%s has %Ld", "%s hat %Ld", ""),
        ("ocaml-format", "%s has %Ld", "%s hat %d", "argument 2 is %Ld in the source, and %d in the translation"),
        ("modula2-format", "%s has %d", "%d hat %s", "argument 1 is %s in the source, and %d in the translation; "
         "argument 2 is %d in the source, and %s in the translation"),
        ("java-format", "{0,number} {1}", "{1} {0}",
         "argument 0 is number in the source, and untyped in the translation"),
        ("java-format", "it's {0}", "it is {0}", "argument 0 is not in the source"),
        ("csharp-format", "{0:x} {{1}}", "{0}", ""),
        ("csharp-format", "{0}", "{0} { 0 }", "{ is no format"),
        ("java-format", "{0}", "{0} }", "} is no format"),
        ("java-format", "{0,choice,0#a {1}|1#b}", "{0,choice,0#a {1}|1#b}", ""),
        ("qt-format", "%1 %2", "%2", "argument 1 is missing"),
        ("qt-format", "%1", "%L1", "argument 1 is untyped in the source, and L in the translation"),
        ("ycp-format", "%1 %%", "%1 %x", "%x is no format"),
        ("sh-format", "${a} $b", "$b $a", ""),
        ("sh-format", "$a", "$a $(b)", "$( is no format"),
        ("perl-format", "%s: %5.2f", "%s (%5.2f)", ""),
        ("perl-format", "%s %d", "%d %s",
         "argument 1 is %s in the source, and %d in the translation; "
         "argument 2 is %d in the source, and %s in the translation"),
        ("scheme-format", "~a~%", "~a", "argument 2 (~%) is missing"),
        ("boost-format", "%1% %2%", "%1% %2", "argument 2 is %2% in the source, and %2 in the translation"),
        ("kde-kuit-format", "<b>%1</b>", "<b>%1", "argument 3 (</b>) is missing"),
    ],
)  # fmt: skip
def test_arguments_are_compared_by_the_rules_of_the_language(flag, source, translation, problem):
    assert checked_format(source, translation, flag) == (translation, problem and f"{flag}: {problem}")


@pytest.mark.parametrize(
    ("flag", "source", "translation", "numbered"),
    [
        ("c-format", "%s hat %d", "%d has %s", "%2$d has %1$s"),
        ("c-format", "%s, %5.2f%%, %s", "%5.2f%% %s %s", "%2$5.2f%% %1$s %3$s"),
        ("php-format", "%s %d", "%d %s", "%2$d %1$s"),
        ("c-format", "%s hat %i", "%s has %i", "%s has %i"),
        ("c-format", "%i und %d", "%d and %i", "%2$d and %1$i"),
    ],
)
def test_reordered_arguments_get_the_numbers_of_the_source(flag, source, translation, numbered):
    assert checked_format(source, translation, flag) == (numbered, "")


# Of java-format `msgfmt --check-format` accepts these; ICU 78 (PyICU) shows the words again.
@pytest.mark.parametrize(
    ("flag", "source", "translation", "written"),
    [
        ("java-format", "Installation of {0}", "Assistant d'installation de {0}", "Assistant d''installation de {0}"),
        ("java-format", "Photo of {0}", "La photo de l'{0}, d''ici", "La photo de l''{0}, d''ici"),
        ("java-format", "A '{' {0}", "L'{0} '{' d'ici", "L''{0} '{' d''ici"),
        ("icu-format", "The photo of {name}", "La photo de l'{name}", "La photo de l''{name}"),
        ("icu-format", "The end of {name}", "La fin d'un {name}", "La fin d'un {name}"),
        ("icu-format", "{a} '{b}' it''s", "l'{a} '{b}' d''ici d'ici", "l''{a} '{b}' d''ici d'ici"),
    ],
)
def test_an_apostrophe_begins_no_quotation_that_the_source_does_not_have(flag, source, translation, written):
    assert checked_format(source, translation, flag) == (written, "")


def test_a_message_without_branches_needs_its_arguments():
    assert checked_format("{a} of {b, number}", "{a}", "icu-format")[1] == "icu-format: argument b (number) is missing"
    assert checked_format("{a}", "{a", "icu-format")[1] == "icu-format: { is no format"
    assert checked_format("{{a}}", "l'{{a}}", "icu-format") == ("l'{{a}}", "")  # of another template language


def test_the_first_format_with_known_rules_counts():
    assert format_of({"fuzzy", "c-format", "wrap"}) == "c-format"
    assert format_of({"no-c-format", "possible-c-format", "fuzzy"}) == ""


def test_long_texts_are_read_in_one_pass():
    many = "%s %d " * 20_000
    assert checked_format(many, many + "%s", "c-format")[1] == "c-format: argument 40001 (string) is not in the source"
    assert checked_format("{0}", "{0}" + "l'" * 100_000, "java-format") == ("{0}" + "l''" * 100_000, "")
    assert checked_format("%s", "%" + "0" * 100_000, "c-format")[1].endswith("is no format")


@pytest.mark.parametrize(("flag", "text"), [("c-format", "%{}$s"), ("c-format", "%2$*{}$d"), ("go-format", "%[{}]s")])
def test_numbers_of_any_length_are_read(flag, text):
    assert checked_format(text.format("1"), text.format("9" * 5_000), flag)[1]
