from __future__ import annotations

import random

import pytest
from trained_text import counted

from clearhead.text.placeholder_masking import protect
from clearhead.text.placeholders import has_words
from clearhead.text.quality_flags import (
    KINDS,
    Flag,
    SeenInTraining,
    find_flags,
    merge_flags,
    repeated_unit,
)
from clearhead.text.quality_flags import missing_placeholders as placeholders

PAIRS = [
    ("Ein kleiner Hund rennt über die Wiese.", "A small dog runs across the meadow."),
    ("Zwei Männer sitzen auf einer Bank.", "Two men are sitting on a bench."),
    ("Am 3. Mai 2018 kostete es 12,50 €.", "On May 3, 2018 it cost €12.50."),
    ("Sie rief: „Halt, Jack!“ Quer cvx.", "He laughed: 'Very quick, John Fox!'"),
]


def seen(pairs=PAIRS):
    return SeenInTraining.of(counted(pairs, "de"), list)


def flags(source, text, *, tokens=5, sentences=1, seen=seen()):
    return {flag.kind: flag.detail for flag in find_flags(source, text, tokens=tokens, sentences=sentences, seen=seen)}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_good_translations_have_no_flags(source, target):
    assert flags(source, target) == {}


def test_each_kind_is_there_once_and_in_order():
    found = find_flags("Привет, meine Liebe, 477 %s", "Привет, meine Liebe, " * 9, tokens=99, sentences=1, seen=seen())
    kinds = [flag.kind for flag in found]
    assert kinds == [kind for kind in KINDS if kind in kinds]
    assert set(kinds) == set(KINDS) - {"empty", "too_short", "unusual_case", "repaired", "placed_markup"}


def test_lost_emoji_is_flagged_placeholders_and_masked_emoji_is_not_unseen():
    assert flags("Ein Hund 👍🏽.", "A dog.")["placeholders"] == "👍🏽"
    assert flags("Ein Hund.", "A dog 😆.")["placeholders"] == "not in the source: 😆"
    assert "unseen_characters" in flags("Ein Hund 😆.", "A dog 😆.")
    masked = protect("Ein Hund 😆.").text
    assert find_flags("Ein Hund 😆.", "A dog 😆.", tokens=5, sentences=1, seen=seen(), masked=masked) == ()


# Length


def test_a_source_longer_than_trained_is_flagged_by_tokens_and_by_sentences():
    trained = "of the training lines 99.9 % of at most 9 tokens, 25.0 % of several sentences"
    assert flags("Ein Hund.", "A dog.", tokens=9) == {}
    assert flags("Ein Hund.", "A dog.", tokens=10) == {"longer_than_trained": f"10 tokens, 1 sentence; {trained}"}
    two = flags("Ein Hund. Er rennt.", "A dog. A man runs.", sentences=2)
    assert two == {"longer_than_trained": f"5 tokens, 2 sentences; {trained}"}


def test_lengths_are_judged_by_those_of_the_training_pairs():
    source = PAIRS[0][0]
    assert flags(source, "A dog.") == {"too_short": "6 characters for 38"}
    assert flags(source, "A small dog runs across the meadow, and then it runs back again.")["too_long"]
    twice_as_long = seen([("Hund " * 16, "dog " * 45)] * 3)
    assert "too_short" in flags("Hund " * 16, "dog " * 20, seen=twice_as_long)
    assert not {"too_short", "too_long"} & set(flags("Hund " * 16, "dog " * 45, seen=twice_as_long))


@pytest.mark.parametrize("knowledge", [seen(), SeenInTraining.of(None, list)], ids=["known", "not known"])
def test_a_translation_that_shows_nothing_is_flagged_for_any_source(knowledge):
    for text in ("", " \u200b", "<b></b>"):
        assert flags("<b>7</b>", text, seen=knowledge)["empty"] == "the model wrote nothing"


# Repetition


@pytest.mark.parametrize(
    ("text", "unit", "times"),
    [
        ("a man and a man and a man and a man and a man", "a man and ", 4),
        ("Dozzzzzzzzzzzzzing", "z", 13),
        ("it is a bat bat bat bat bat", " bat", 5),
        ("犬が走る犬が走る犬が走る犬が走る", "犬が走る", 4),
        ("a dog runs across the meadow " * 4, "a dog runs across the meadow ", 4),
    ],
)
def test_repeated_unit_finds_four_repetitions(text, unit, times):
    assert repeated_unit(text) == (unit, times)


@pytest.mark.parametrize(
    "text", ["", "a", "ha ha ha ha!", "No... well.........", "1,000,000,000", "bla bla bla", "a b " * 2]
)
def test_repeated_unit_ignores_a_few_repetitions(text):
    assert repeated_unit(text) == ("", 0)


def test_repeated_unit_finds_repetitions_in_any_surrounding_text():
    choose = random.Random(1)
    for _ in range(3_000):
        unit = "".join(choose.choices("ab c", k=choose.randint(1, 20)))
        before, after = ("".join(choose.choices("abc d", k=choose.randint(0, 30))) for _ in range(2))
        text = before + unit * max(4, -(-12 // len(unit))) + after
        found, times = repeated_unit(text)
        assert times >= 4
        assert len(found) * times >= 12
        assert found * times in text


def test_a_source_that_repeats_may_be_translated_so():
    laughter = "ha " * 9
    assert "repetition" not in flags(f"Er lacht: {laughter}", f"He laughs: {laughter}")
    assert flags("Er lacht", f"He says: {laughter}")["repetition"] == "'ha' 9 times"
    assert "repetition" in flags(f"Er lacht: {laughter}", "ha " * 40)
    assert "repetition" not in flags("哈哈哈哈哈哈", "Ha ha ha ha ha ha")
    assert "repetition" in flags("Eine Wasserratte.", "rat rat rat rat rat")


# Copies


def test_a_copy_is_flagged_unless_training_copied_too():
    source = "Zwei Männer sitzen auf einer Bank."
    assert flags(source, source) == {"copied": "most of the source"}
    assert flags(source, source, seen=seen([(source, source), *PAIRS])) == {}  # more than one pair in a hundred
    assert "copied" in flags(source, source, seen=SeenInTraining.of(None, lambda: ["Männer"]))


@pytest.mark.parametrize(
    "source",
    ["https://example.org/an/address?of=some&length", "Siehe `clearhead.flags.find_flags`", "2016 2017 2018 2019 2020"],
)
def test_addresses_code_and_numbers_are_not_flagged_as_copied(source):
    assert flags(source, source, seen=SeenInTraining.of(None, lambda: ["Siehe"])) == {}


# Characters


def test_a_script_that_no_training_source_has_is_named():
    assert flags("犬 и Hund", "A dog") == {"unseen_script": "CYRILLIC, HAN"}


def test_single_characters_are_named_by_code_point():
    assert flags("Ein Hund\u200b\u00a0…", "A dog runs") == {"unseen_characters": "U+00A0, U+200B, … U+2026"}
    many = flags("Ein Hund ÀÁÂÃÅÆÇ", "A dog runs here")["unseen_characters"]
    assert many == "À U+00C0, Á U+00C1, Â U+00C2, Ã U+00C3, Å U+00C5 and 2 more"


def test_unseen_characters_of_a_translation_are_named():
    assert flags("Ein Hund", "A dög\ufffd") == {"unseen_characters": "in the translation ö U+00F6, � U+FFFD"}
    assert flags("Ein Mü", "A Mü") == {}  # from the source


def test_without_statistics_the_vocabulary_tells_the_scripts():
    knowledge = SeenInTraining.of(None, lambda: [" Hu", "nd", "\ufffd", "ü"])
    assert flags("犬 Hund é", "dog", seen=knowledge) == {"unseen_script": "HAN"}


def test_the_tags_of_a_document_have_no_characters():
    assert flags("Ein <g12>Hund</g12> <x3/>", "A <g12>dog</g12> <x3/>") == {}
    assert flags("犬 <g1>Hund</g1> <b>", "A <g1>dog</g1> <b>") == {"unseen_script": "HAN"}
    assert flags("Ein < Hund", "A brown dog") == {"unseen_characters": "< U+003C"}
    cyrillic = SeenInTraining.of(None, lambda: ["пёс"])
    assert flags("<g1>пёс</g1>", "<g1>dog</g1>", seen=cyrillic) == {}
    assert flags("<g1>dog</g1>", "<g1>пёс</g1>", seen=cyrillic) == {"unseen_script": "LATIN"}


def test_missing_and_invented_numbers_are_distinguished():
    assert flags("Es war 2017.", "It was 2018.")["numbers"] == "2017; not in the source: 2018"
    assert flags("Es war Mai.", "It was 2018.")["numbers"] == "not in the source: 2018"


def test_a_source_in_a_case_that_hardly_any_training_line_is_in_is_flagged():
    assert flags("EIN HUND RENNT", "A dog runs")["unusual_case"] == "capitals"
    assert flags("ein hund rennt", "A dog runs")["unusual_case"] == "small letters"
    assert "unusual_case" not in flags("3 hunde rennen", "3 dogs run")
    assert "unusual_case" not in flags("{name} ist da.", "{name} is here.")
    in_capitals = seen([("EIN HUND", "A DOG")] * 3)
    assert "unusual_case" not in flags("EIN HUND RENNT", "A DOG RUNS", seen=in_capitals)
    assert "unusual_case" not in flags("EIN HUND RENNT", "A dog runs", seen=SeenInTraining.of(None, list))


# Placeholders


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("%s hat %d Dateien in %(folder)s und %1$s", ["%s", "%d", "%(folder)s", "%1$s"]),
        ("%5.2f von %@", ["%5.2f", "%@"]),
        ("%L1 von %2, %n Datei(en) in (%10).", ["%L1", "%2", "%n", "%10"]),
        ("50 %neu, 7%1, a%2Fb, %1.5", []),
        ("{} {0} {name} {x:.2f} ${HOME} {{ user }}", ["{}", "{0}", "{name}", "{x:.2f}", "${HOME}", "{{user}}"]),
        ("$HOME", ["$HOME"]),
        ("{{ user.name | upper }} {0:,.2f} %c", ["{{user.name|upper}}", "{0:,.2f}", "%c"]),
        (
            "Siehe http://a.de/b?c=1. Oder (https://b.de/), x@y.co.uk!",
            ["http://a.de/b?c=1", "https://b.de/", "x@y.co.uk"],
        ),
        (
            "%ld %lu %llX %zu %hhd %Lf %I64d %*d %.*s",
            ["%ld", "%lu", "%llX", "%zu", "%hhd", "%Lf", "%I64d", "%*d", "%.*s"],
        ),
        ("%1$ld in %2$-5s, %r, %<PRIu64>, %<n>.2f", ["%1$ld", "%2$-5s", "%r", "%<PRIu64>", "%<n>.2f"]),
        ("%sMehr%s, %dx%dpx, %.1fMB, %luB", ["%s", "%s", "%d", "%d", "%.1f", "%lu"]),
        ("100%% von %%s, %Y-%m-%d", ["%%", "%%", "%Y", "%m", "%d"]),
        ("%{count} in #{x.y} und %name%", ["%{count}", "#{x.y}", "%name%"]),
        ("<0>in</0> <1/>", ["<0>", "</0>", "<1>"]),
        (
            "Hallo :name, :count/:total (:kind)! 有:n_items个 :wink:",
            [":name", ":count", ":total", ":kind", ":n_items", ":wink:"],
        ),
        ("$USER$, $count$ und $x$", ["$USER$", "$count$", "$x$"]),
        ("$t(a.b), @:c.d. @.lower:e @:(f.g)", ["$t(a.b)", "@:c.d", "@.lower:e", "@:(f.g)"]),
        ("{0:>8} {x!r} {n, number} {{val, number}}", ["{0:>8}", "{x!r}", "{n,number}", "{{val,number}}"]),
        ("{% if x %}a{% endif %} <%= b %> <?php c; ?>", ["{%ifx%}", "{%endif%}", "<%=b%>", "<?phpc;?>"]),
        ("{{% note %}}a{{% /note %}} {$START_LINK}", ["{{%note%}}", "{{%/note%}}", "{$START_LINK}"]),
        ("100 % sure, 50% of, 50 %sure, 5 %-ige, %age, %ile", []),
        ("10:30, x:y, std::string, a: b, :-) :D :P :x", []),
        ('"key":value, Uhr:zeit, foo(x):bar, $5 and $6, A$b$c', []),
        ("%" + "0" * 50_000 + " <a " + "=" * 50_000, []),
        ('<b>fett</b><br/> <a href="x">da</a>', ["<b>", "</b>", "<br>", "<a>", "</a>"]),
        ("&amp; &#160; &#xA0;", ["&amp;", "&#160;", "&#xA0;"]),
        ("50 % sind da, 50%ig, 100%", []),
        ("5 $ und US$ 7, $A", []),
        ("a < b und c > d, x & y", []),
        ("{ein Satz} [x]", []),
        ("連絡先はinfo@a.orgです。", ["info@a.org"]),
        ("https://a.org/、と", ["https://a.org/"]),
        ("詳細はhttps://a.orgを見て", ["https://a.org"]),
        ("https://de.wikipedia.org/wiki/Köln.", ["https://de.wikipedia.org/wiki/Köln"]),
    ],
)
def test_placeholders_are_found_and_what_looks_like_them_is_not(source, missing):
    assert placeholders(source, "") == missing
    assert placeholders(source, source) == []


@pytest.mark.parametrize(
    ("source", "text", "detail"),
    [
        ("Press Ctrl+Shift+S now", "Drücke jetzt Strg+Umschalt+S", None),
        ("Press Ctrl+S or F4", "Drücke F4", "Ctrl+S"),
        ("You have $1 new from $2.", "Du hast $1 neue von $2.", None),
        ("You have $1 new from $2.", "Du hast 1 neue von $2.", "$1"),
        ("You have $1 new from $2.", "Du hast 1 $2 neue.", "$1"),
        ("You have $1 new from $2.", "Du hast neue von $2.", "$1"),
        ("It costs $5.", "Es kostet 5 $.", None),
        ("It costs $5.", "Es kostet 5\xa0US-Dollar.", None),
        ("It costs $5.", "Es kostet USD 5.", None),
        ("It costs $5.", "5ドルです。", None),
        ("It costs $5.", "Es kostet 5 Euro.", "$5"),
        ("_Open", "Ö_ffnen", None),
        ("_Open", "Öffnen", "_"),
        ("Save _As…", "_Speichern _unter", "not in the source: _"),
        ("&Quit &amp; go", "Beenden &amp; los", "&"),
        ("R&D of file_name", "F&E von file_name", None),
        ("no boats | one boat | {n} boats", "keine Boote | {n} Boote", "|"),
        ("Make a :class:`Boat` with ``row()``", "创建:class:`Boat`对象 ``row()``", "beside a letter: :class:`Boat`"),
        ("Make a :class:`Boat` now", "创建 :class:`Boat` 对象", None),
        ("Read :term:`oar`\\ s", "Lies :term:`oar`\\ s", None),
        ("See `a page <https://a.org>`_.", "Siehe eine Seite <https://a.org>`_.", "`"),
        ("Run B<ls> with I<an option>", "Starte B <ls> mit I<einer Option", "B<ls> I<; not in the source: <ls>"),
        ("See --verbose in /etc/app/conf.d", "Siehe --ausführlich", "--verbose /etc/app/conf.d"),
    ],
)
def test_localized_codes_are_compared_by_their_invariant_part(source, text, detail):
    assert flags(source, text).get("placeholders") == detail


def test_a_word_with_the_mark_of_a_shortcut_is_a_word():
    assert has_words("_Open")
    assert not has_words("_open_file")


def test_placeholders_may_move_and_attributes_change_but_none_is_lost():
    assert placeholders('<a title="Hund">{x} %s</a> {{ y }}', '%s {{y}} <a title="dog">{x}</a>') == []
    assert placeholders("{x} {x}", "{x}") == ["{x}"]


@pytest.mark.parametrize(
    ("source", "text", "torn"),
    [
        ("a <b>c</b>", "</b>a <b>c", ["<b>", "</b>"]),
        ("{% if x %}a{% endif %} b", "{% endif %}b {% if x %}a", ["{%ifx%}", "{%endif%}"]),
        ("{{% n %}}a{{% /n %}} b", "b {{% n %}}a{{% /n %}}", []),
        ("{{#a}}b{{/a}}", "{{/a}}{{#a}}b", ["{{#a}}", "{{/a}}"]),
        ("{$START_LINK_1}a{$CLOSE_LINK} b", "b {$CLOSE_LINK}a{$START_LINK_1}", ["{$START_LINK_1}", "{$CLOSE_LINK}"]),
        (
            "{% if x %}a{% else %}b{% endif %}",
            "{% else %}{% if x %}a b{% endif %}",
            ["{%else%}", "{%ifx%}", "{%endif%}"],
        ),
        ("<p>a<br> {% include x %}</p>", "<p>{% include x %} a<br></p>", []),
        ("<a>b</a> <i>c</i>", "<i>c</i> <a>b</a>", []),
        ("</b>a<b>", "<b>a</b>", []),
    ],
)
def test_a_pair_of_codes_keeps_its_order(source, text, torn):
    assert placeholders(source, text) == torn
    assert placeholders(source, source) == []


def test_placeholders_that_no_source_has_are_flagged_but_not_emphasis():
    assert flags("{name} ist da", "{name} <b>is</b> *here*")["placeholders"] == "not in the source: <b> </b>"
    assert flags("{name} ist da", "{nom} is here")["placeholders"] == "{name}; not in the source: {nom}"


# A line of several pieces


def test_flags_of_pieces_are_those_of_the_line_each_kind_once():
    groups = [
        (Flag("numbers", "45"), Flag("placeholders", "%s")),
        (),
        (Flag("too_long", "a"), Flag("numbers", "7")),
        (Flag("numbers", "45"),),
    ]
    assert merge_flags(groups) == (Flag("numbers", "45; 7"), Flag("placeholders", "%s"), Flag("too_long", "a"))
    assert merge_flags([(), ()]) == ()


def test_marks_that_mark_nothing_any_more_are_missing():
    assert placeholders("It is *very* good, ``x`` too", "Es ist * sehr * gut, `x` auch") == ["*", "*", "``x``"]
    assert placeholders("It is *very* good", "*sehr* gut ist es") == []
