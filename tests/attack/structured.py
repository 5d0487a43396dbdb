"""Attack: texts full of markup, placeholders and messages; documents keep them, and cost grows as their size does."""

from __future__ import annotations

import gc
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from random import Random

from documents import CONTENT_TYPES, HEADER, WORD, filled_document
from harness import Attack, Campaign, Case, Outcome, judged

WORDS = ("eins", "Zwei ", "drei.", " ", "\n", "犬", "犬が。", "e\u0301", "\u0301", "\u202e", "\u2066x", "İ", "1,5", "٣")
CONSTRUCTS: dict[str, tuple[str, ...]] = {
    "messages": ("{n, plural, one {", "{x, select, a {", "} other {", "}}", "#", "'", "''", "'{'", "{n}", "=0 {"),
    "markup": ("<a>", "</a>", '<b class="x">', "</b>", "<br/>", "<", ">", "</", "<g1>", "</g1>", "<x2/>", "<!--", "&"),
    "placeholders": ("%s", "%1$ld", "%", "{0}", "{name}", "{{x}}", "${x}", "$x$", ":name", "@:key", "$t(a)", "%{x}"),
    "templates": ("{% if x %}", "{% endif %}", "{%", "%}", "<%= x %>", "<?php x ?>", "START_LINK", "CLOSE_LINK"),
    "quotes": ('"', "'", "„", "“", "«", "»", "`", "``", "\\", "*", "**", "_", "__", "~~", "|"),
    "brackets": ("(", ")", "[", "]", "[x](", "![", "{", "}", "[^1]", "((", "]]", "（", "）", "「", "」"),
    "lines": ("# ", "> ", "- ", "1. ", "```\n", "\n\n", "\t", ",", "---\n", "    ", "00:00:05,000 --> 00:00:06,000\n"),
    "addresses": ("http://x.org/", "a@b.org", "www.", "//", "/a", ".", ":", "README.txt", "--flag", ":func:`", "1.2.3"),
}  # fmt: skip
"""Pieces of text by their kind."""
NESTED = (
    *(("{n, plural, other {", "}}"), ("<a>", "</a>"), ("{% if x %}", "{% endif %}"), ("(", ")"), ("[", "](u)")),
    *(("**a ", "**"), ("> ", "\n"), ("„", "“"), ("<b><i>", "</b></i>"), ("{{", "}}"), ("<g1>", "</g1>"), ("`", "`")),
)
"""Openings with their closings."""
SIZES = (1_500, 3_000, 6_000)
"""Characters of the texts whose costs are compared."""
MOST_GROWTH = (2 * 1.5) ** 2
"""Largest cost of four times the characters: twice is linear, for each of two doublings, with half as much to spare."""
LEAST_SECONDS = 0.05
"""Processor time below which growth is not judged."""


def cases(campaign: Campaign) -> Iterator[Case]:
    """Give one text in every case to one reader or to one function."""
    targets = [*DOCUMENTS, *FUNCTIONS]
    for number in campaign.numbers():
        choose = campaign.choose(number)
        target, grows = targets[number % len(targets)], not campaign.is_small and choose.random() < 0.25
        arguments = {"target": target, "grows": grows, "seed": choose.random()}
        work = str(campaign.directory / f"case-{number}")
        name = f"{target}{', growth' * grows}"
        yield Case(number, name, "structured:attack", {"work": work, **arguments}, seconds=120.0)


def attack(work: str, target: str, grows: bool, seed: float) -> dict[str, str]:
    """Make one text and put it through a reader or a function; runs in a child."""
    choose = Random(seed)
    text_of, form = structured_text(choose), choose.random()

    def check(size: int) -> tuple[Outcome, str]:
        text = text_of(size)
        if target in FUNCTIONS:
            trouble = FUNCTIONS[target](text, Random(form))
            return (Outcome.wrong, f"{trouble}: {text!r:.300}") if trouble else (Outcome.works, f"{text[:60]!r}")
        path = Path(work) / f"document{target}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(_document(target, text, Random(form)))
        outcome, detail = filled_document(path)
        return outcome, f"{detail}: {path.read_bytes()!r:.300}"

    outcome, detail = check(choose.choice((0, 30, 100, 300, 1_000)))
    if grows and not outcome.is_finding and (trouble := _growth(check)):
        outcome, detail = Outcome.hung, f"{trouble}: {text_of(200)!r}"
    return {"outcome": outcome, "detail": detail}


def structured_text(choose: Random) -> Callable[[int], str]:
    """Return what makes a text of a size, of the same kind for every size."""
    pieces = (*CONSTRUCTS[choose.choice(list(CONSTRUCTS))], *choose.sample(WORDS, 4))
    before, behind = ("".join(choose.choices(pieces, k=choose.choice((0, 0, 1, 3)))) for _ in range(2))
    unit = "".join(choose.choices(pieces, k=choose.choice((1, 1, 2, 3, 5, 20))))
    opening, closing = choose.choice(NESTED)
    match choose.choice(("repeated", "repeated", "nested", "every kind")):
        case "nested":
            return lambda size: _times(opening, size // 2) + unit + _times(closing, size // 2)
        case "every kind":
            every = [piece for some in CONSTRUCTS.values() for piece in some]
            unit = "".join(choose.choices([*every, *WORDS, " ", " "], k=40))
    return lambda size: before + _times(unit, size) + behind


def _times(unit: str, size: int) -> str:
    return unit * (size // len(unit))


def _growth(check: Callable[[int], object]) -> str:
    """Return how the cost grows, if more than the size; measured again, since other processes disturb a measurement."""
    best = [float("inf")] * len(SIZES)
    gc.disable()
    for _ in range(3):
        for number, size in enumerate(SIZES):
            began = time.process_time()
            check(size)
            best[number] = min(best[number], time.process_time() - began)
        if best[-1] < LEAST_SECONDS or best[-1] <= MOST_GROWTH * best[0]:
            return ""
    return f"{', '.join(f'{seconds:.3f} s' for seconds in best)} for {SIZES} characters"


def _document(extension: str, text: str, choose: Random) -> bytes:
    """Return a document with a text in it, as the format writes it, or as it is."""
    is_raw, marked = choose.random() < 0.3, escape(text, quote=False)
    quoted = json.dumps(text, ensure_ascii=False)
    markup = text if is_raw else marked
    match extension:
        case ".po":
            flag = choose.choice(("", "#, c-format\n", "#, python-brace-format\n", "#, icu-format\n"))
            made = f'{HEADER}\n{flag}msgid {quoted if not is_raw else chr(34) + text + chr(34)}\nmsgstr ""\n'
        case ".json":
            made = f'{{"a": {quoted}, "b": ["{text}"]}}' if is_raw else f'{{"a": {quoted}, "b": [{quoted}]}}'
        case ".html":
            made = f"<!DOCTYPE html>\n<p>{markup}</p>\n<ul><li title='x'>{markup}</ul>\n"
        case ".srt":
            made = f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n\n2\n00:00:03,000 --> 00:00:04,000\neins\n"
        case ".vtt":
            made = f"WEBVTT\n\n00:01.000 --> 00:02.000\n{markup}\n\n00:03.000 --> 00:04.000\neins\n"
        case ".xlf":
            unit = f'<trans-unit id="1"><source>{markup}</source></trans-unit>'
            namespace = "urn:oasis:names:tc:xliff:document:1.2"
            made = f'<xliff version="1.2" xmlns="{namespace}"><file><body>{unit}</body></file></xliff>'
        case ".xliff":
            unit = f'<unit id="1"><segment><source>{markup}</source></segment></unit>'
            made = (
                f'<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f">{unit}</file></xliff>'
            )
        case ".tmx":
            unit = f'<tu><tuv xml:lang="en"><seg>{markup}</seg></tuv></tu>'
            made = f'<tmx version="1.4"><header srclang="en"/><body>{unit}</body></tmx>'
        case ".csv":
            made = f"id,name\n1,{text}\n" if is_raw else 'id,name\n1,"{}"\n'.format(text.replace('"', '""'))
        case ".docx":
            body = f"<w:p><w:r><w:t>{marked}</w:t></w:r></w:p>"
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w") as archive:
                archive.writestr("[Content_Types].xml", CONTENT_TYPES)
                archive.writestr(
                    "word/document.xml", f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
                )
            return packed.getvalue()
        case _:  # Markdown, tab-separated values and paragraphs
            made = f"{text}\n\neins\n"
    return made.encode()


def _messages(text: str, choose: Random) -> str:
    from clearhead.text.icu_messages import message_runs, message_syntax

    made, at = "", 0
    for run in message_runs(text):
        written = run.written(run.text, run.text)
        assert written is not None
        made, at = made + text[at : run.start] + written, run.end
    return "a message is written otherwise" if message_syntax(made + text[at:]) != message_syntax(text) else ""


def _masking(text: str, choose: Random) -> str:
    from clearhead.text.placeholder_masking import protect, protect_target, protected_pair
    from clearhead.text.placeholders import change_words, words_alone

    words_alone(text)
    other = _other(text, choose)
    source, target = protected_pair(text, other, with_numbers=choose.random() < 0.5)
    hidden = protect(text, with_numbers=choose.random() < 0.5)
    back = [change_words(text, str), hidden.restored(hidden.text), source.restored(source.text)]
    back += [hidden.restored(protect_target(hidden, text))]
    if target.restored(target.text) != other:
        return "a masked target is not restored"
    return "" if all(one == text for one in back) else "a masked text is not restored"


def _projection(text: str, choose: Random) -> str:
    from clearhead.text.markup_projection import parts_with_placeholders, strip_markup
    from clearhead.text.quality_flags import missing_placeholders

    stripped = strip_markup(text, tags=choose.random() < 0.7)
    translation = choose.choice((stripped.text, _other(stripped.text, choose), "x " * (len(text) // 4)))
    read, written = (len(parts_with_placeholders(one)) for one in (stripped.text, translation))
    placed = stripped.placed(translation, [(number, number) for number in range(min(read, written))])
    texts = [part for mark in stripped.marks for part in mark.unit.texts]
    missing_placeholders(text, placed)
    return (
        "" if all(placed.count(one) >= texts.count(one) for one in set(texts)) else f"markup is lost in {placed!r:.200}"
    )


def _flags(text: str, choose: Random) -> str:
    from clearhead.text.format_strings import checked_format
    from clearhead.text.quality_flags import SeenInTraining, find_flags

    seen = SeenInTraining.of(None, lambda: ["eins", "犬"])
    for one, other in ((text, text), (text, _other(text, choose)), ("eins", text)):
        find_flags(one, other, tokens=9, sentences=1, seen=seen)
        for flag in ("c-format", "python-format", "python-brace-format"):
            checked_format(one, other, flag)
    return ""


def _sentences(text: str, choose: Random) -> str:
    from clearhead.text.sentence_splitting import cut_line, join_sentences, split_sentences
    from clearhead.text.word_links import joined_links, words_of

    pieces, cut = split_sentences(text, choose.choice((None, "de", "ja", "en"))), cut_line(text)
    join_sentences(cut.sentences, cut.gaps)
    links = [[(number, number) for number in range(len(words_of(one)))] for one in cut.sentences]
    joined = joined_links(links, cut.sentences, cut.sentences, text, text)
    if joined != [(number, number) for number in range(len(words_of(text)))]:
        return "links of sentences are not those of their line"
    return "" if "".join(pieces) == text else "sentences are not their text"


def _lines(text: str, choose: Random) -> str:
    from clearhead.text.line_statistics import LineCounter, has_uneven_space, is_copied, letter_case
    from clearhead.text.lines import for_terminal
    from clearhead.text.translatable_lines import text_lines

    LineCounter().add(text, _other(text, choose), 9, 9)
    is_copied(text, _other(text, choose)), letter_case(text), has_uneven_space(text), for_terminal(text)
    lines = "".join(line.before + line.text + line.after for line in text_lines(text))
    return "" if lines == text else "lines are not their text"


def _normalization(text: str, choose: Random) -> str:
    from clearhead.config import DecodeConfig
    from clearhead.text.line_statistics import LineCounter
    from clearhead.tokenizers import Tokenizer
    from clearhead.translation.normalization import Normalizer

    counter = LineCounter()
    for number in range(2_000):
        counter.add(f"Eins zwei {number}", "One two", 4, 4)
    trained = counter.statistics()
    tokenizer = Tokenizer.train(["Eins zwei drei", "One two"] * 9, kind="bpe", vocab_size=270)
    for one in (text, text.upper(), text.lower()):
        Normalizer(tokenizer, trained)(one, DecodeConfig())
    return ""


def _terms(text: str, choose: Random) -> str:
    from clearhead.translation.terminology import Terms, forms_in, term_of

    words = text.split() or ["eins"]
    phrases = [" ".join(words[start : start + size]) for start in range(0, 60, 7) for size in (1, 2, 9)]
    found = Terms([term_of(one, [one, "x"]) for one in dict.fromkeys(phrases) if one]).found_in(text)
    forms_in(found, _other(text, choose))
    return ""


def _memory(text: str, choose: Random) -> str:
    from clearhead.translation.memory import TranslationMemory

    entries = [text, _other(text, choose), text[: len(text) // 2], text + " eins", *text.split()[:50]]
    memory = TranslationMemory([(one, "x") for one in entries])
    memory.match(f"{text} zwei"), memory.match(_other(text, choose), 0.3)
    return "an entry is not found" if text.strip() and memory.match(text) is None else ""


def _other(text: str, choose: Random) -> str:
    """Return a text that has much of another, as a bad translation has."""
    words = text.split(" ")
    return " ".join([*words[len(words) // 2 :], choose.choice(WORDS), *words[: len(words) // 3]])


DOCUMENTS: Sequence[str] = (
    *(".po", ".json", ".html", ".md", ".srt", ".vtt", ".xlf", ".xliff", ".tmx", ".csv", ".tsv", ".txt", ".docx"),
)
FUNCTIONS: dict[str, Callable[[str, Random], str]] = {
    "messages": _messages,
    "masking": _masking,
    "projection": _projection,
    "flags": _flags,
    "sentences": _sentences,
    "lines": _lines,
    "normalization": _normalization,
    "terms": _terms,
    "memory": _memory,
}
"""Return what is wrong with what the functions for text make of one."""

ATTACK = Attack("structured texts", "texts", full=5_000, few=66, run=judged(cases))
