from __future__ import annotations

import subprocess
import sys
import time
from re import _compiler as sre_compile
from re import _constants as sre_constants
from re import _parser as parser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clearhead.text import placeholders
from clearhead.text.placeholder_masking import units_of
from clearhead.text.placeholders import (
    CODE_KINDS,
    LOCALIZED_KINDS,
    change_words,
    find_placeholders,
    has_words,
    placeholder,
    words_alone,
)

SIGNS = "ab1 .,(/%{}$#@<>&;:`|*=_\\-'\u20e3\ufe0f\u200d"
TEXTS = st.text(st.one_of(st.sampled_from(SIGNS), st.characters()), max_size=12)


@given(TEXTS)
@example("1\ufe0f\u20e3")
@example("\U0001f1e9\U0001f1ea")
@example("a://b")
@example("a.b@c.d")
@example("U.S.")
@example("a.bc")
@example("f(x)")
@example("/a")
@example("--a")
@example("-a")
def test_a_text_that_is_not_searched_has_nothing_to_find(text):
    assert [found.span() for found in find_placeholders(text)] == [m.span() for m in placeholder().finditer(text)]
    kept = placeholders._kept()
    assert words_alone(text) == kept.sub(" ", text)
    parts = kept.split(text)
    assert change_words(text, str.upper) == "".join(
        part if index % 2 else part.upper() for index, part in enumerate(parts)
    )


EXAMPLES = [(kind.name, example) for kind in CODE_KINDS for example in kind.examples]


@pytest.mark.parametrize(("kind", "example"), EXAMPLES)
def test_a_code_of_every_kind_is_found_whole(kind, example):
    for text in (example, f"Wort {example} Wort", f"({example})", f"Das, {example}, ist es."):
        assert [found[0] for found in find_placeholders(text)] == [example], kind
    assert not has_words(example)


@pytest.mark.parametrize(
    "code",
    ["/etc/app/conf.d", "~/notes", "--verbose", "--max-minutes", "B<ls>", "f()", "os.getcwd()", "README.md", "MAX_SIZE",
     "__init__", "%name%", "%title", "%1", "@count", "@lang('a.b')", ":smile:", "`code`"],
)  # fmt: skip
def test_placeholders_are_found_beside_cjk_thai_and_korean_words(code):
    for text in (f"使用{code}文件", f"设置{code}。", f"「{code}」を", f"{code}를 여세요", f"เปิด{code}เดี๋ยวนี้"):
        assert [found[0] for found in find_placeholders(text)] == [code], text
    assert [found[0] for found in find_placeholders(f"ä{code}")] != [code]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("See `the page <https://a.org/b>`_ now.", [("`", " <https://a.org/b>`_")]),
        ("Read :doc:`the rules </rules>` or :term:`oar`\\ s.", [(":doc:`", " </rules>`"), (":term:`oar`\\ ",)]),
        ("[b]Bold [i]and[/i][/b] [url=https://a.org]link[/url]",
         [("[b]", "[/b]"), ("[i]", "[/i]"), ("[url=https://a.org]", "[/url]")]),
        ("B<boat> I<sail height>, E<lt>helpE<gt>, B<oars>(1)",
         [("B<boat>",), ("I<",), ("E<lt>",), ("E<gt>",), ("B<oars>",)]),
        ("{0} no boats|{1} one boat|]1,Inf[ %count% boats", [("{0}",), ("{1}",), ("]1,Inf[",), ("%count%",)]),
        ("%arg boats, %1$#@boats@, %(%s, %) and %lld", [("%arg",), ("%1$#@boats@",), ("%(%s, %)",), ("%lld",)]),
        ("<b>`a`</b> <i>`b`</i> `c`", [("<b>", "</b>"), ("`a`",), ("<i>", "</i>"), ("`b`",), ("`c`",)]),
        ("%sclick here%s, %1$smore%2$s", [("%s",), ("%s",), ("%1$s",), ("%2$s",)]),
    ],
)  # fmt: skip
def test_marks_around_words_are_pairs(text, units):
    assert [unit.texts for unit in units_of(text)] == units


@pytest.mark.parametrize(
    "text",
    [
        "und/oder, 24/7, 3/4/2018, km/h, /nein, A/B/C",
        "Leser_innen, Schüler_in, _Open, Save _As",
        "z.B. Hund.Er ging. e.g. U.S. 1.250,5 3.Mai",
        "It costs $1, $5 or $1.50.",
        "wort--wort, --Ja, --nein. -- und",
        "I < you, A<B, C > D",
        "@ 5, a @ b, 50 %ig, %age",
        "[1], [x], [ein Satz], [sic]",
        "f(x), Hund(e)",
        "C: Users, D: x",
    ],
)
def test_words_that_look_like_codes_are_words(text):
    assert [found[0] for found in find_placeholders(text)] == []


def test_final_full_stop_is_not_part_of_a_placeholder():
    text = r"Mit /etc/app/conf.d. Dann user.name. In C:\Users\x. Per --max-minutes. Auf https://a.org/b. Von f()."
    codes = ["/etc/app/conf.d", "user.name", r"C:\Users\x", "--max-minutes", "https://a.org/b", "f()"]
    assert [found[0] for found in find_placeholders(text)] == codes


def test_repetitions_of_repetitions_have_something_between_them():
    # Else the same text could be matched in exponentially many ways: (?:_[a-z]+)+ has one, (?:[a-z]+)+ has many.
    for kind in CODE_KINDS:
        for outer in unbounded(parser.parse(kind.pattern)):
            for inner in unbounded(outer):
                ends = characters(outer[:1]), characters(outer[-1:])
                assert not all(end & characters(inner) for end in ends), kind.name


@pytest.mark.parametrize("kind", LOCALIZED_KINDS, ids=lambda kind: kind.name)
def test_comparing_codes_takes_time_in_proportion_to_the_text(kind):
    start = time.process_time()
    for piece in (kind.examples[0], "a_", "&a", "Ctrl+Alt+"):
        for pattern in (kind.in_source, kind.in_translation):
            pattern.findall(piece * (200_000 // len(piece)))
    assert time.process_time() - start < 10  # a minute and more if each place looks at all that follows


def unbounded(parsed):
    """Yield what is repeated any number of times within a parsed pattern, at any depth."""
    for operation, argument in parsed:
        if operation in (sre_constants.MAX_REPEAT, sre_constants.MIN_REPEAT):
            if argument[1] == sre_constants.MAXREPEAT:
                yield argument[2]
            yield from unbounded(argument[2])
        elif operation is sre_constants.SUBPATTERN:
            yield from unbounded(argument[3])
        elif operation is sre_constants.BRANCH:
            for branch in argument[1]:
                yield from unbounded(branch)
        elif operation in (sre_constants.ASSERT, sre_constants.ASSERT_NOT):
            yield from unbounded(argument[1])


def characters(parsed):
    """Return the ASCII characters that a pattern of single characters begins with."""
    pattern = parser.SubPattern(parser.State(), list(parsed)[:1])
    (operation, argument), *_ = pattern
    if operation in (sre_constants.MAX_REPEAT, sre_constants.MIN_REPEAT):
        return characters(argument[2])
    if operation is sre_constants.SUBPATTERN:
        return characters(argument[3])
    compiled = sre_compile.compile(pattern)
    return {one for one in map(chr, range(128)) if compiled.match(one)}


@pytest.mark.parametrize("text", ["--help", "-n", "-n, --dry-run", "--max-minutes 20", "<b>--help</b> -o=2"])
def test_options_of_a_command_are_no_words(text):
    assert not has_words(text)


@pytest.mark.parametrize("text", ["--Ja", "--nein.", "- ja", "-Ja", "a --b c", "wort--wort", "-- und"])
def test_dash_before_a_word_is_not_a_placeholder(text):
    assert has_words(text)


def test_a_plain_text_compiles_no_long_pattern():
    program = """
from clearhead.text import placeholders
assert placeholders.has_words("Ein Hund, 3 Katzen und (vielleicht) ein Pferd.")
assert not list(placeholders.find_placeholders("Ein Hund."))
print(placeholders.placeholder.cache_info().misses + placeholders._kept.cache_info().misses)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "0\n"
