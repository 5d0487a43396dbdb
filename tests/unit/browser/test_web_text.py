"""What a page knows of texts is what Python knows: placeholders, case, links, spans of tokens, and flags."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from browsers import page_with_modules
from clearhead.browser.engine import engine_settings
from clearhead.browser.rules import RULES, rules_module
from clearhead.browser.text import text_settings
from clearhead.data.demo_corpus import generate
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.decoding.utf8 import CharacterParts
from clearhead.files.streams import read_lines
from clearhead.inspection.page import TEXT_RULES, text_rules_module
from clearhead.inspection.tokens import Reader
from clearhead.pages import script
from clearhead.text import placeholders
from clearhead.text.languages import split_tag
from clearhead.text.placeholder_masking import protect, units_of
from clearhead.text.quality_flags import SeenInTraining, find_flags
from clearhead.text.sentence_splitting import cut_line, join_sentences
from clearhead.text.word_links import UNSPACED, joined_links, link_words, words_of
from clearhead.tokenizers import Tokenizer
from clearhead.translation.normalization import Normalizer

PAGE = """<script type="module">
import * as characters from "./web/characters.js";
import * as flags from "./web/flags.js";
import * as links from "./web/links.js";
import * as masks from "./web/masks.js";
import * as normalization from "./web/normalization.js";
import * as placeholders from "./web/placeholders.js";
import * as search from "./web/search.js";
import * as sentences from "./web/sentences.js";
import * as spans from "./web/spans.js";
import * as textForm from "./web/text_form.js";
import * as vocabulary from "./web/vocabulary.js";
import * as words from "./translate/words.js";
const texts = { ...characters, ...links, ...normalization, ...sentences, ...spans, ...textForm, ...words };
window.web = { ...texts, ...flags, ...masks, ...placeholders, ...search, ...vocabulary };
</script>"""

TEXTS = [
    "",
    "Ein Hund.",
    "Delete <b>%s</b>? It has %1$s of {count} files &amp; 100 % of $HOME",
    "{% if x %}a{% else %}b{% endif %} 50%ig, 100 % sure, {{#if y}}y{{/if}} <% if a %>x<% end %>",
    "Mail name@example.org or https://example.org/x?y=1. 😆👨‍👩‍👧 :smile: `code` **bold** *em* |version|",
    "START_LINK_1 a CLOSE_LINK, {$START_LINK} 犬https://a.b/犬 é@x.de ä%s -n, --dry-run f(x) a_b",
    "1.250,5 dogs at 20:15 on 2016-05-03 in the U.S. Senate, 12,50 € ... \u200b",
    "<br/> <b> </b>",
    "<g1>a < b</g1> <x2/> %d%% :name \u00a0@:key.x $t(key) </0>",
    *(f"Wort {example} Wort" for kind in placeholders.CODE_KINDS for example in kind.examples),
    "See `the page <https://a.org>`_, :ref:`it <x>` and :term:`oar`\\ s. I<a b> [b]x[/b] Leser_innen _Open foo(x)",
    "٣٤٥ números, １２ Hunde 犬が走る。\U000f0003 sign",
]
PAIRS = [
    ("1.250 Hunde am 3. Mai 2016", "1,250 dogs on May 3, 2018"),
    ("1.250 Hunde am 3.5.2016", "1 dog on May 3, 2018"),
    ("12 Hunde um 20 Uhr", "twelve dogs at 8 pm"),
    ("Der Zug hat 1.250 Plätze.", "The train of 2016 has 1,250 seats."),
    ("٣٤٥ Hunde, 5,000,000 Katzen", "345 dogs, 5,000 cats"),
    ("Zwei junge Männer sind im Freien.", "Zwei junge Männer sind in the open."),
    ("Ein Mann.", "a man and a man and a man and a man and a man"),
    ("ha ha ha ha ha ha ha", "ha ha ha ha ha ha ha"),
    ("Ein Mann.", "".join(map(chr, range(0x20000, 0x20000 + 45))) * 4),
    ("Ein Mann.", "x".join(map(chr, range(0x20000, 0x20000 + 29))) * 4 + "\U0001f600" * 13),
    ("%s hat <b>{count}</b> Dateien &amp; 100 % Zeit", "%s has {count} files & 100 % time"),
    ("<b>{a}</b> und <i>b</i>", "</b>a<b> and <i class='x'>b</i> %s"),
    ("{% if x %}a{% else %}b{% endif %}", "{% else %}a{% if x %}b{% endif %}"),
    ("EIN MANN GEHT NACH HAUSE", "A man goes home"),
    ("ein mann geht nach hause", "A man goes home"),
    ("Пётр видит собаку.", "Peter sees a dog Ω."),
    ("Ein Hund.", ""),
    ("Ein Hund.", "  \u200b"),
    ("Ein sehr langer Satz mit vielen Wörtern, der nicht enden will.", "Short."),
    ("Ja.", "That is a very long answer to a very short question, which nobody has asked for."),
    ("\ue000 Hund", "dog \ue001"),
    ("Press Ctrl+Shift+S, Ctrl+O", "Strg+O"),
    ("You have $1 from $2 for $3 and $4", "Du hast 1 von $2 für 3 US-Dollar und 4 $"),
    ("You have $1 from $2, _Open &Quit a|b", "Du hast 2, Öffnen Be_enden|x|_y"),
    ("A :class:`Boat` and `the page <x>`_ ``y``", "船:class:`Boat`和`页 <x>`_ ``y``\U00020000"),
    ("[b]x[/b] and [i]y[/i]", "[/b]x[b] and [i]y[/i]"),
]


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory) -> Iterator[Any]:
    """Return a page with the modules of a translating page as `web`."""
    with page_with_modules(browser, tmp_path_factory.mktemp("web_text"), PAGE, "window.web") as page:
        yield page


@pytest.fixture(scope="module")
def make_trained(make_bundle, trained_info) -> Callable[..., Any]:
    """Return a function to a model that knows the lines it was trained on."""
    return partial(make_bundle, info=trained_info)


def loaded(page, bundle) -> None:
    """Make a model's vocabulary and what is known of its training text available to the page's functions."""
    page.evaluate(
        """([file, settings]) => {
          const { Flags, Normalizer, Placeholders, TextForm, Vocabulary } = window.web;
          const charactersIn = (ranges) => ranges === undefined ? null : new Set(ranges.split(" ").flatMap((range) => {
            const [first, last = first] = range.split("-").map((code) => Number.parseInt(code, 16));
            return Array.from({ length: last - first + 1 }, (_, n) => String.fromCodePoint(first + n));
          }));
          const { training } = settings;
          const [read, written] = [training?.source_characters, training?.target_characters].map(charactersIn);
          window.vocabulary = new Vocabulary(file);
          window.placeholders = new Placeholders(settings);
          const formOf = (form) => new TextForm(form, placeholders);
          const { source } = settings.forms;
          const forms = { familiar: formOf(source), source: formOf({ ...source, spaces: null }) };
          window.normalizer = new Normalizer(window.vocabulary, placeholders, forms, training, written ?? new Set());
          window.flags = new Flags(window.vocabulary, window.placeholders, settings, { read, written });
        }""",
        [json.loads(bundle.tokenizer.text), text_settings(bundle)],
    )


def test_placeholders_and_words_are_those_of_python(page, make_bundle):
    loaded(page, make_bundle(placeholders=True))
    for text in TEXTS:
        found = page.evaluate(
            """(text) => ({
              found: placeholders.find(text).map(({ 0: one }) => one),
              numbers: placeholders.find(text, true).map(({ 0: one }) => one),
              words: placeholders.wordsAlone(text), hasWords: placeholders.hasWords(text),
              isBlank: placeholders.isBlank(text), capitals: placeholders.changeWords(text, (one) => one.toUpperCase()),
              units: placeholders.unitsOf(text).map(({ texts }) => texts), masked: placeholders.protect(text).text,
              restored: ((masked) => masked.restored(masked.text))(placeholders.protect(text)),
            })""",
            text,
        )
        assert found == {
            "found": [match[0] for match in placeholders.find_placeholders(text)],
            "numbers": [match[0] for match in placeholders.find_placeholders(text, with_numbers=True)],
            "words": placeholders.words_alone(text),
            "hasWords": placeholders.has_words(text),
            "isBlank": placeholders.is_blank(text),
            "capitals": placeholders.change_words(text, str.upper),
            "units": [list(unit.texts) for unit in units_of(text)],
            "masked": protect(text).text,
            "restored": text,
        }


def test_words_begin_with_the_capital_of_python(page):
    letters = list(filter(str.isalpha, map(chr, range(0x110000))))
    # One text each way, as Playwright wraps every value of a list.
    found = page.evaluate("(letters) => [...letters].map(web.inTitleCase).join(' ')", "".join(letters)).split(" ")
    # A capital of several letters is not used. `ƛ` and others got one in a later version of Unicode than Python's.
    different = [
        one
        for one, made in zip(letters, found, strict=True)
        if made != one.title() and 1 in (len(one.title()), len(made)) and unicodedata.category(made) != "Cn"
    ]
    assert different == []
    assert [found[letters.index(letter)] for letter in "აǆǄᾳa"] == ["ა", "ǅ", "ǅ", "ᾼ", "A"]


def test_a_model_without_signs_masks_nothing(page, make_bundle):
    loaded(page, make_bundle())
    assert page.evaluate("(text) => placeholders.protect(text).text", TEXTS[2]) == TEXTS[2]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_spans_of_tokens_are_those_of_python(page, make_bundle, kind):
    bundle = make_bundle(kind=kind, placeholders=True)
    loaded(page, bundle)
    for text in [*TEXTS, " ein  Hund ", "part of a character \ufffd and more", "ẞ \U0001f600\u0301"]:
        protected = protect(text)
        (ids,) = bundle.tokenizer.encode_sources([protected.text])
        found = page.evaluate(
            """([text, ids]) => {
              const masked = placeholders.protect(text);
              return [web.shownSpans(vocabulary, masked, ids), web.shownSpans(vocabulary, masked, ids, text),
                      vocabulary.pieces(ids)];
            }""",
            [text, ids],
        )
        reader = Reader(bundle.tokenizer, protected)
        of_source, of_target = reader.source_spans(ids), reader.target_spans(text, ids)
        spans = [[None if span is None else list(span) for span in side] for side in (of_source, of_target)]
        assert found == [*spans, bundle.tokenizer.pieces(ids)]


def test_words_are_linked_as_python_links_them(page):
    generator = np.random.default_rng(7)
    for source, target in [
        ("Ein kleiner Hund.", "a small dog ."),
        ("犬 が走る\U00020000", "a \U0001f600 dog"),
        ("", "x"),
    ]:
        sides = []
        for text in (source, target):
            cuts = sorted({0, len(text), *generator.integers(0, len(text) + 1, 4).tolist()})
            sides.append([*pairwise(cuts), (len(text), len(text))])
        weights = generator.random((len(sides[1]), len(sides[0])))
        weights[:, : len(weights) // 2] = 0.25  # ties
        found = page.evaluate(
            """([weights, tokens, texts]) => {
              const rows = weights.map((row) => Float64Array.from(row));
              return web.linkWords(rows, ...tokens, ...texts.map(web.wordSpans));
            }""",
            [weights.tolist(), sides, [source, target]],
        )
        assert [tuple(link) for link in found] == link_words(weights, *sides, words_of(source), words_of(target))


def test_links_of_sentences_become_those_of_their_line(page):
    links, sources, targets = [[(0, 0), (1, 2)], [(0, 0)]], ["Ein Hund.", "犬だ"], ["a big dog.", "It is."]
    line, translated = "Ein Hund.  犬だ", "a big dog. It is."
    found = page.evaluate("(given) => web.joinedLinks(...given)", [links, sources, targets, line, translated])
    assert [tuple(link) for link in found] == joined_links(links, sources, targets, line, translated)


@pytest.mark.parametrize("is_trained", [True, False])
def test_flags_are_those_of_python(page, make_bundle, make_trained, is_trained):
    bundle = (make_trained if is_trained else make_bundle)()
    loaded(page, bundle)
    tokenizer = bundle.tokenizer
    seen = SeenInTraining.of(bundle.line_statistics, lambda: tokenizer.pieces(range(tokenizer.vocab_size)))
    for source, text in PAIRS:
        facts = {"tokens": 3 * len(source), "sentences": 2}
        found = page.evaluate(
            "([source, text, facts]) => flags.of(source, text, { ...facts, masked: source })", [source, text, facts]
        )
        wanted = find_flags(source, text, **facts, seen=seen, masked=source)
        assert [(one["kind"], one["detail"]) for one in found] == [(flag.kind, flag.detail) for flag in wanted]


@pytest.mark.parametrize("language", ["de", "tr", None])
def test_lines_get_the_case_and_white_space_of_the_training_text(page, make_trained, language):
    bundle = make_trained(decode={"source_lang": language})
    loaded(page, bundle)
    normalize = Normalizer(bundle.tokenizer, bundle.line_statistics)
    lines = [
        "EIN KLEINER HUND RENNT ÜBER DIE WIESE!",
        "ein kleiner hund",
        "Ein  kleiner\tHund ",
        "HUND",
        "NATO",
        "a  %s  b",
    ]
    lines += ["\ufeffEin ku\u0308hner\u3000Ma\u00adnn <b>u\u0308</b> 1\u00a0kg １２\t", "ΑΎΡΙΟ Αύριο\u200e", "\u200b"]
    lines += ["Er ging fu\u0308r immer.\u200b\u3000\u00adDie Frau\u00a0las.\u2060 Ende gut."]
    lines += [
        "- Ein Hund",
        "\ufeff> 1.\u00a0Öffnen Sie",
        "12. März 2004",
        "a) 犬が走る。",
        "1. ein Hund",
        "1. ½ Hund",
        "1. ٣ Hunde",
        "- 12",
    ]
    for line in [*lines, "<b>EIN HUND</b> {name}", "3 hunde rennen", "犬が走る。", "ΕΝΑΣ ΣΚΎΛΟΣ", "STRASSE WEIẞ"]:
        found = page.evaluate(
            "([line, settings]) => normalizer.normalize(line, settings, null)",
            [line, bundle.decode.model_dump(mode="json")],
        )
        wanted = normalize(line, bundle.decode)
        assert (found["text"], found["inCapitals"]) == (wanted.text, wanted.in_capitals)
        assert (found["original"], found["marker"]) == (list(wanted.original), wanted.marker)
        assert found["gaps"] == list(wanted.cut.gaps)


SPLIT = [
    ("Ein kleiner Hund rennt. Zwei Männer sitzen.\tAm 3. Mai kostete es 12 €!", "de"),
    ("1. Open it. 2. Close it. See the 3. Button.", "en"),
    ("I use Node.js. It works! Really? Yes…", None),
    ("er kam am montag. sie ging.", "de"),
    ("犬が走る。犬が走る。「犬だ。」と言った。", "ja"),
    ("A. Turing met J. Neumann. – Then he left.", "en"),
    ("... ?!", None),
    ("  One.   Two.  ", "en"),
    ("Ένα; Δύο.", "el"),
]


@pytest.mark.parametrize(("line", "language"), SPLIT)
def test_a_line_has_the_sentences_that_python_finds(page, line, language):
    wanted = cut_line(line, language)
    found = page.evaluate("(given) => web.cutLine(...given)", [line, language])
    assert (tuple(found["sentences"]), tuple(found["gaps"])) == wanted
    texts = [f"t{number}." for number in range(len(wanted.sentences))]
    for own in (texts, ["犬。" for _ in texts], ["" for _ in texts]):
        joined = page.evaluate("(given) => web.joinSentences(...given)", [own, list(wanted.gaps)])
        assert joined == join_sentences(own, wanted.gaps)


def test_a_browser_without_a_segmenter_keeps_lines_whole(page):
    found = page.evaluate("""() => {
      const { Segmenter } = Intl;
      Intl.Segmenter = undefined;
      try { return web.cutLine("Ein Hund. Zwei.", "de"); } finally { Intl.Segmenter = Segmenter; }
    }""")
    assert found == {"sentences": ["Ein Hund. Zwei."], "gaps": []}


def test_browser_without_lookbehind_is_reported_as_too_old(page, make_bundle):
    found = page.evaluate(
        """(settings) => {
          const { RegExp } = window;
          window.RegExp = function (source, flags) {
            if (source.includes("(?<")) throw new SyntaxError("invalid group specifier name");
            return new RegExp(source, flags);
          };
          try { return String(new web.Placeholders(settings)); } catch (error) { return error.message; }
          finally { window.RegExp = RegExp; }
        }""",
        text_settings(make_bundle()),
    )
    assert found.startswith("this browser is too old")


SELDOM = "αжא犬ア한\u0301\u200b"
"""Characters of many scripts, and invisible ones."""


def altered(draw: Random, number: int, source: str, target: str) -> tuple[str, str]:
    """Return a pair as it may be translated: with codes, several sentences, copied, repeated, or without a number."""
    examples = [example for kind in placeholders.CODE_KINDS for example in kind.examples]
    match number % 8:
        case 0 | 1:
            codes = draw.sample(examples, 2)
            return " ".join([codes[0], source, codes[1]]), " ".join([*codes[: draw.randint(0, 2)], target])
        case 2:
            return f"{source.title()}! Zwei {draw.choice(examples)}.  Drei <b>?</b>", f"<b>{target}</b>. Two."
        case 3:
            return source, source
        case 4:
            return source, target + f" {target[:4]}" * draw.randint(1, 9)
        case 5:
            return source.upper(), "".join(one for one in target if not one.isdigit())
        case 6:
            return f"{source} {draw.choice(SELDOM)}", f"{target} {draw.choice(SELDOM)}"
    return source, target


def are_whole(ids: list[int], parts: CharacterParts) -> bool:
    """Return whether tokens can follow each other: none begins within a character."""
    state = 0
    for token in ids:
        state = int(parts.next_states[state, token])
        if state < 0:
            return False
    return True


def test_two_thousand_lines_are_read_as_python_reads_them(page, make_trained):
    """Placeholders, signs, sentences, the normal form, spans of tokens, flags, and masks of next tokens."""
    bundle, draw = make_trained(placeholders=True), Random(7)
    loaded(page, bundle)
    tokenizer, config = bundle.tokenizer, bundle.config
    pairs = generate(2_000, seed=3, num_test=1, locales=("de", "en", "ja", "tr")).train
    sides = [altered(draw, at, split_tag(one.source, ["de"])[1], one.target) for at, one in enumerate(pairs)]
    protected = [protect(source) for source, _ in sides]
    sources = tokenizer.encode_sources([one.text for one in protected])
    targets = tokenizer.encode_targets([protect(target).text for _, target in sides])
    begun = [ids[: draw.randint(0, len(ids) - 1)] for ids in targets]
    parts = CharacterParts.of(tokenizer)
    begun = [longer if are_whole(longer := ids + ids[-3:] * draw.choice([0, 9]), parts) else ids for ids in begun]
    limits = [len(ids) + draw.choice([1, 2, 3, 9]) for ids in begun]
    rules = [{"min_length": draw.choice([0, 5]), "no_repeat_ngram_size": draw.choice([0, 2])} for _ in sides]
    given = {"sides": sides, "sources": sources, "begun": begun, "limits": limits, "rules": rules}
    given |= {"config": engine_settings(config)["config"], "utf8": text_settings(bundle)["utf8"]}
    # As JSON, since Playwright wraps every value of a list.
    found = page.evaluate(
        """(given) => {
          const { sides, sources, begun, limits, rules, config, utf8, decode } = JSON.parse(given);
          const parts = new web.CharacterParts(utf8, config);
          return JSON.stringify(sides.map(([source, target], n) => {
            const masked = placeholders.protect(source);
            const isOver = web.endsInLoop(begun[n], web.mostTimes(sources[n]));
            const options = { minLength: rules[n].min_length, noRepeatNgramSize: rules[n].no_repeat_ngram_size, parts };
            const mask = web.maskAfter(config, sources[n], begun[n], limits[n], isOver, options);
            const { text, inCapitals, marker } = normalizer.normalize(source, decode, null);
            return {
              units: placeholders.unitsOf(source).map(({ texts }) => texts), words: placeholders.wordsAlone(source),
              signs: masked.text, sentences: web.cutLine(source, "de").sentences, normal: [text, inCapitals, marker],
              ids: vocabulary.encode(masked.text), spans: web.shownSpans(vocabulary, masked, sources[n]),
              flags: flags.of(source, target, { tokens: sources[n].length, sentences: 1, masked: masked.text })
                .map(({ kind, detail }) => [kind, detail]),
              allowed: mask?.bytes().join("") ?? null,
            };
          }));
        }""",
        json.dumps({**given, "decode": bundle.decode.model_dump(mode="json")}),
    )
    normalize = Normalizer(tokenizer, bundle.line_statistics)
    seen = SeenInTraining.of(bundle.line_statistics, list)
    kinds, cut_differently = Counter(), []
    for number, (own, (source, target)) in enumerate(zip(json.loads(found), sides, strict=True)):
        masked, ids, sentences = protected[number], sources[number], own.pop("sentences")
        mask = AllowedTokens(config, **rules[number], parts=parts).after(
            begun[number], Sentence(0, ids, limits[number])
        )
        spans = Reader(tokenizer, masked).source_spans(ids)
        raised = find_flags(source, target, tokens=len(ids), sentences=1, seen=seen, masked=masked.text)
        normal = normalize(source, bundle.decode)
        assert own == {
            "units": [list(unit.texts) for unit in units_of(source)],
            "words": placeholders.words_alone(source),
            "signs": masked.text,
            "normal": [normal.text, normal.in_capitals, normal.marker],
            "ids": ids[:-1],
            "spans": [None if span is None else list(span) for span in spans],
            "flags": [[flag.kind, flag.detail] for flag in raised],
            "allowed": None if mask is None else "".join(map(str, mask.astype(int))),
        }
        if sentences != list(cut_line(source, "de").sentences):
            cut_differently.append(source)
        kinds.update(flag.kind for flag in raised)
    assert len([kind for kind, times in kinds.items() if times > 20]) >= 8, kinds
    assert len(cut_differently) <= 40, cut_differently  # after abbreviations; see sentences.js


def test_real_text_is_read_as_python_reads_it(page, data_dir):
    """On sentences of software and of news: placeholders, words and flags."""
    directory = data_dir("python-docs-en-fr")
    names = sorted(path for path in directory.iterdir() if path.name.startswith("test."))
    sides = [list(read_lines(path))[:400] for path in names[:2]]
    bundle_texts = [line for side in sides for line in side]
    tokenizer = Tokenizer.train(bundle_texts, vocab_size=600)
    seen = SeenInTraining.of(None, lambda: tokenizer.pieces(range(tokenizer.vocab_size)))

    class Bundle:
        line_statistics = None

    Bundle.tokenizer = tokenizer
    loaded(page, Bundle)
    found = page.evaluate(
        """([sources, targets]) => sources.map((source, n) => [
          placeholders.unitsOf(source).map(({ texts }) => texts), placeholders.wordsAlone(source),
          flags.of(source, targets[n], { tokens: 9, sentences: 1, masked: source })
            .map(({ kind, detail }) => [kind, detail]),
        ])""",
        sides,
    )
    for (units, words, flags), source, target in zip(found, *sides, strict=True):
        assert units == [list(unit.texts) for unit in units_of(source)]
        assert words == placeholders.words_alone(source)
        wanted = find_flags(source, target, tokens=9, sentences=1, seen=seen, masked=source)
        assert flags == [[flag.kind, flag.detail] for flag in wanted]


def test_words_and_lines_are_those_of_python(page):
    every = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    found = page.evaluate("(text) => text.match(new RegExp(`[${web.UNSPACED}]`, 'gu')).join('')", every)
    assert found == "".join(re.findall(f"[{UNSPACED}]", every))
    found = page.evaluate("(text) => [web.linesOf(text), [...text].filter(web.isBlank)]", every)
    assert found == [every.splitlines(keepends=True), [one for one in every if one.isspace()]]


def test_the_modules_have_different_names_for_everything(page):
    problem = page.evaluate(
        """async (text) => {
          const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
          return import(address).then(() => null, (error) => String(error));
        }""",
        script("web/worker.js", made={RULES: rules_module(), TEXT_RULES: text_rules_module()}),
    )
    assert problem is None
