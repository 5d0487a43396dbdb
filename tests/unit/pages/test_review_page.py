"""What the page of a review repeats, and what its small server for tests imitates, is that of the real ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, get_args

import pytest
from fake_review import GAPPED, FakeReview, segment
from starlette.testclient import TestClient

from clearhead.formats.document_files import read_document
from clearhead.serving import review as module
from clearhead.serving.review import review_app
from clearhead.text.quality_flags import Flag
from clearhead.translation.documents import TranslatedSegment
from clearhead.translation.memory import TranslationMemory
from clearhead.translation.result import Translation
from clearhead.translation.review import Origin, Review, State
from clearhead.translation.review_files import open_review
from clearhead.translation.terminology import Term, Terms

MODULES = files("clearhead") / "pages" / "review"


def keys_of(name: str, constant: str) -> set[str]:
    """Return the keys of an object in a module of the page."""
    text = (MODULES / f"{name}.js").read_text(encoding="utf-8")
    body = re.search(rf"const {constant} = {{\n(.*?)\n}};", text, re.DOTALL)[1]
    return {key.strip('"') for key in re.findall(r"^  (\S+): ", body, re.MULTILINE)}


def test_the_page_has_a_name_for_every_state_and_origin():
    assert keys_of("segment_list", "STATES") == {*get_args(State)}
    assert keys_of("editor", "ORIGINS") == {*get_args(Origin)}


def test_the_list_of_keys_names_those_that_do_something():
    names = {"ArrowDown": "↓", "ArrowUp": "↑", "Escape": "Esc"}
    page = (MODULES.parent / "review.html").read_text(encoding="utf-8")
    tables = re.findall(r"<table>.*?</table>", page, re.DOTALL)
    shown = [set(re.findall(r"<kbd>(.+?)</kbd>", table)) for table in tables]
    others = {"Ctrl", "Shift", "Alt", *"019"}
    code = (MODULES / "shortcuts.js").read_text(encoding="utf-8")
    everywhere = code.partition("function commandOf")[2].partition("function inList")[0]
    pressed = set(re.findall(r'key(?:\.toLowerCase\(\))? === "(\S+?)"', everywhere))
    assert shown[0] - others == {names.get(key, key if len(key) > 1 else key.upper()) for key in pressed}
    in_list = keys_of("shortcuts", "IN_LIST")
    assert shown[1] - others == {names.get(key, key if len(key) > 1 else key.upper()) for key in in_list}


def shape(value: Any) -> Any:
    """Return the keys of JSON objects; of a list, those of its first value."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    return [*map(shape, value[:1])] if isinstance(value, list) else None


@pytest.fixture
def real(tmp_path, monkeypatch) -> Iterator[TestClient]:
    """Return a client of a real review, of two segments like those of the small server."""
    monkeypatch.setattr(module, "segment_alternatives", lambda *texts, **settings: ["a dog runs"])
    monkeypatch.setattr(module, "segment_links", lambda *texts, **settings: [(0, 0)])
    path, source = tmp_path / "messages.po", GAPPED["source"]
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    path.write_text(f'{head}msgid "{source}"\nmsgstr ""\n\nmsgid "zwei"\nmsgstr ""\n', encoding="utf-8")
    memory = TranslationMemory([(source.replace("Menü", "Fenster"), "Open %s in the <g1>window</g1>.")])
    with open_review(str(path), None, {}) as files_:
        document = files_.read(read_document)
        flags = {GAPPED["text"]: (Flag("placeholders", "%s"),), "two": ()}
        made = [
            TranslatedSegment(
                one, "translated", Translation(one.text, text, -1.0, (), warnings=flags[text], quality=0.5)
            )
            for one, text in zip(document.segments, flags, strict=True)
        ]
        terms = Terms([Term("Menü", ("menu bar", "menu"))])
        review = Review(files_, document, made, terms=terms, memory=memory.match)
        page = {"name": "messages.po", "output": "messages.po", "languages": ("de", "en"), "direction": ("ltr", "ltr")}
        yield TestClient(review_app(review, None, {}, page), base_url="http://localhost")
        review.close()


def test_the_small_server_answers_with_the_fields_of_the_real_one(real):
    review = FakeReview([GAPPED, segment(1, "zwei", "two")], alternatives=["a dog runs"], links=[[0, 0]])
    edit = {"text": "a", "state": "edited", "revision": 0}
    clients = real, TestClient(review.app())
    for path, body in (
        ("/segments?start=0&count=9&show=all", None),
        ("/segments?after=0&count=9&show=all&find=zw", None),
        ("/segments/0", None),
        ("/segments/0/alternatives", None),
        ("/status", None),
        ("/check", {"number": 0, "text": "a"}),
        ("/segments/0", edit),
        ("/segments/0", edit),  # of another tab
        ("/undo", {}),
        ("/undo", {}),
    ):
        answers = [client.get(path) if body is None else client.post(path, json=body) for client in clients]
        assert answers[0].status_code == answers[1].status_code, path
        assert shape(answers[0].json()) == shape(answers[1].json()), path
    pages = [re.search(r'id="review">(.*?)</script>', client.get("/").text)[1] for client in clients]
    assert shape(json.loads(pages[0])) == shape(json.loads(pages[1]))
