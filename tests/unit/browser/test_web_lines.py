"""What a page makes of lines around the search, without the core: it asks for Python's searches, and answers alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from browsers import page_with_modules
from clearhead.browser.engine import engine_settings
from clearhead.browser.text import text_settings
from clearhead.decoding import decode, score
from clearhead.serving.event_stream import text_events
from clearhead.serving.text_translation import translate_texts
from clearhead.text.line_statistics import LineCounter
from clearhead.translation import search
from clearhead.translation.json_output import translation_object
from clearhead.translation.translator import Translator, searching_by
from every_run import one_in

PAGE = """<script type="module">
import { Translator } from "./web/translator.js";
import { Vocabulary } from "./web/vocabulary.js";
window.translated = (file, settings, texts, how, searches, scores) => {
  Object.assign(window, { searches, scores });
  const [weights, scorer] = [{ config: settings.config }, { config: settings.config }];
  return new Translator(weights, new Vocabulary(file), settings, () => scorer).translate(texts, how);
};
</script>"""
STUBS = {
    "web/search.js": """
      export const search = async (_weights, sentences, { nbest, beam }) => sentences.map(({ source }) => {
        const found = window.searches[`${nbest} ${beam} ${source}`];
        if (!found) throw new Error(`Python does not search for ${nbest} of ${source}`);
        return structuredClone(found);
      });
    """,
    "web/scoring.js": """
      export const forcedScores = (_weights, sources, targets) => sources.map((source, number) => {
        const found = window.scores[`${source} ${targets[number]}`];
        if (found === undefined) throw new Error(`Python does not score ${targets[number]}`);
        return found;
      });
    """,
    "web/attention.js": "export const attention = null;",
}
LINES = [
    "Ein kleiner Hund rennt über die Wiese.",
    "",
    "Zwei Männer sitzen auf einer Bank. Ein kleiner Hund rennt.",
    "  \t ",
    "... 12345",
    "  Ein  kleiner\u00a0Hund \r\n",
    "ein kleiner hund rennt",
    "ZWEI MÄNNER SITZEN AUF EINER BANK",
    "犬が走る。犬が走る。",
    "Delete <b>%s</b>? 😆 {count} of %s",
    "Ein Hund.\n\n  Zwei Männer.\nEnde",
    "</s><pad> \U000f0000 literal",
]
MODELS = {
    "plain": {},
    "trained": {"decode": {"source_lang": "de"}},
    "short": {"decode": {"split": "always", "source_lang": "de", "max_input_tokens": 12}},
    "signs": {"placeholders": True, "decode": {"protect_numbers": True}},
    "unigram": {"kind": "unigram"},
    "tags": {"language_tags": ("de", "fr"), "decode": {"target_lang": "fr"}},
}


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("web_lines")
    with page_with_modules(browser, directory, PAGE, "window.translated", STUBS) as page:
        yield page


def named(ids: list[int]) -> str:
    return ",".join(map(str, ids))


@pytest.mark.parametrize(("nbest", "in_parts"), [(1, True), (3, False)])
@pytest.mark.parametrize("name", one_in(3, MODELS))
def test_the_same_texts_are_searched_and_answered(page, make_bundle, sentences, monkeypatch, name, nbest, in_parts):
    counter = LineCounter("de")
    for sentence in sentences:
        counter.add(sentence, sentence[:5], 40, 40)
    info = {"data": {"line_statistics": counter.statistics().model_dump(mode="json")}} if name == "trained" else {}
    bundle = make_bundle(info=info, **MODELS[name])
    searches: dict[str, list[dict[str, Any]]] = {}
    scores: dict[str, float] = {}

    def recorded(engine, sources, options, *rest):
        found = decode(engine, sources, options, *rest)
        for source, group in zip(sources, found, strict=True):
            searches[f"{options.num_best} {options.config.beam_size} {named(source)}"] = [
                {"tokens": one.tokens, "wasEnded": one.was_ended} for one in group
            ]
        return found

    def recorded_score(engine, sources, targets, **how):
        found = score(engine, sources, targets, **how)
        pairs = zip(map(named, sources), map(named, targets), strict=True)
        scores.update(zip(map(" ".join, pairs), found, strict=True))
        return found

    monkeypatch.setattr(search, "score", recorded_score)
    translator = searching_by(Translator(bundle), recorded)
    how = {"num_best": nbest, "place_markup": False}
    if in_parts:
        groups = text_events(translator, dict(enumerate(LINES)), **how)
        made = [part for group in groups for part in group]
    else:
        translations = translate_texts(translator, LINES, **how)
        made = [{"index": index, **translation_object(one)} for index, one in enumerate(translations)]
    settings = {
        **engine_settings(bundle.config),
        "decode": bundle.decode.model_dump(mode="json"),
        "text": text_settings(bundle),
    }
    asked = {"nbest": nbest, "inParts": in_parts}
    given = [json.loads(bundle.tokenizer.text), settings, LINES, asked, searches, scores]
    found = page.evaluate("(given) => translated(...given)", given)
    wanted = json.loads(json.dumps(made))
    for answer in [*found, *wanted]:
        for name in ("tokens", "start", "end"):  # here ids, there texts; of streams of the server alone
            answer.pop(name, None)
    assert found == wanted
    assert any(answer["warnings"] for answer in found)
    if in_parts:
        assert len(found) > len(LINES)
        texts = ["".join(one["source"] for one in found if one["index"] == index) for index in range(len(LINES))]
        assert texts == LINES
