"""Suggested translations: what is stored, what is refused, and two servers with one file."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import httpx
import pytest

from clearhead.config import ServeConfig
from clearhead.errors import ConfigError, DataError
from clearhead.formats import SentencePair, Wanted, read_pairs
from clearhead.formats.tmx.pairs import write_tmx
from clearhead.serving.http_errors import HTTPError
from clearhead.serving.suggestions import SuggestionFile

LANGUAGES = ("de", "en")


def pairs_in(path: Path) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in read_pairs([str(path)], Wanted(None, *LANGUAGES))]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "suggestions.tmx"


def test_suggestions_are_stored_once_and_line_by_line(path):
    file = SuggestionFile(path, LANGUAGES, 5)
    file.add(" Hund ", "dog <b> & \u200bcat")
    file.add("Hund", "dog <b> & \u200bcat")
    file.add("eins\n\ndrei", "one\n\nthree")
    assert pairs_in(path) == [("Hund", "dog <b> & \u200bcat"), ("eins", "one"), ("drei", "three")]
    assert len(SuggestionFile(path, LANGUAGES, 5)) == 3


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("eins\nzwei", "one", "q and s have 2 and 1 lines"),
        ("eins\n \ndrei", "one\ntwo\nthree", "a line of q or s is empty"),
        (" ", "one", "q and s have 0 and 1 lines"),
        (" ", " ", "a line of q or s is empty"),
        ("a\x01b", "one", r"Invalid request: the suggestion: the source holds U\+0001 at character 2"),
        ("\ud800", "one", r"Invalid request: the suggestion: the source holds U\+D800"),
    ],
)
def test_a_suggestion_that_cannot_be_stored_is_refused_and_changes_nothing(path, source, target, message):
    file = SuggestionFile(path, LANGUAGES, 5)
    file.add("Hund", "dog")
    before = path.read_bytes()
    with pytest.raises(HTTPError, match=message):
        file.add(source, target)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["s.sqlite", "s.txt", "s"])
def test_a_file_that_is_no_tmx_by_its_name_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=r"name a file that ends in \.tmx"):
        SuggestionFile(tmp_path / name, LANGUAGES, 5)
    assert list(tmp_path.iterdir()) == []


def test_a_full_file_takes_no_more(path):
    file = SuggestionFile(path, LANGUAGES, 2)
    file.add("a\nb", "c\nd")
    file.add("a", "c")
    with pytest.raises(HTTPError, match="no more suggestions: it has 2"):
        file.add("e", "f")
    assert len(pairs_in(path)) == 2


def test_two_servers_share_a_file(path):
    files = [SuggestionFile(path, LANGUAGES, 100) for _ in range(2)]

    def suggest(number: int) -> None:
        for count in range(7):
            files[number].add(f"{number}-{count}", "x")

    threads = [threading.Thread(target=suggest, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(source for source, _ in pairs_in(path)) == sorted(f"{n}-{c}" for n in range(2) for c in range(7))


def test_a_file_with_anything_else_is_not_written_to(path):
    write_tmx(str(path), [SentencePair("Hund", "dog", "here")], LANGUAGES)
    assert len(SuggestionFile(path, LANGUAGES, 5)) == 1
    text = path.read_text(encoding="utf-8").replace("<tu>", "<tu><note>mine</note>")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="holds more than pairs of texts"):
        SuggestionFile(path, LANGUAGES, 5)
    path.write_text(text[:90], encoding="utf-8")
    with pytest.raises(DataError):
        SuggestionFile(path, LANGUAGES, 5)
    with pytest.raises(DataError, match="cannot write suggestions into"):
        SuggestionFile(path.parent / "none" / "a.tmx", LANGUAGES, 5)
    assert path.read_text(encoding="utf-8") == text[:90]


@pytest.mark.parametrize("damage", [("<tu>", "<tu><note>mine</note>"), ("</tmx>", "")], ids=["note", "cut"])
def test_a_file_that_another_program_changed_is_left_as_it_is(path, damage):
    file = SuggestionFile(path, LANGUAGES, 5)
    file.add("Hund", "dog")
    text = path.read_text(encoding="utf-8")
    path.write_text(changed := text.replace(*damage), encoding="utf-8")
    for _ in range(2):
        with pytest.raises(HTTPError, match="another program has changed the file of suggestions") as refused:
            file.add("Katze", "cat")
        assert (refused.value.status, str(path) in str(refused.value)) == (503, False)
    assert path.read_text(encoding="utf-8") == changed
    path.write_text(text, encoding="utf-8")
    file.add("Katze", "cat")
    assert len(pairs_in(path)) == 2


def test_requests_suggest_and_others_are_refused(start_server, models, tmp_path):
    path = tmp_path / "s.tmx"
    server = start_server(str(models["de-en"]), str(models["many"]), "--suggestions", f"fr-de={path}")
    with httpx.Client(base_url=server.url, timeout=120) as client:
        assert client.get("/frontend/settings").json()["suggestions"] is True
        body = {"q": "chien", "s": "Hund", "source": "fr", "target": "de"}
        assert client.post("/suggest", json=body).json() == {"success": True}
        assert client.post("/suggest", data={**body, "q": "chat", "s": "Katze"}).json() == {"success": True}
        answers = [
            client.post("/suggest", json={**body, "source": "en"}),
            client.post("/suggest", json={**body, "target": "xx"}),
            client.post("/suggest", json={**body, "s": ""}),
            client.post("/suggest", json={**body, "q": "x" * ServeConfig().max_characters}),
        ]
    assert [answer.status_code for answer in answers] == [403, 400, 400, 400]
    assert "disabled for these languages" in answers[0].json()["error"]
    text = path.read_text(encoding="utf-8")
    assert text.count("<tu>") == 2
    assert json.dumps(text).count("Katze") == 1
    assert server.end() == 0


def test_a_server_without_a_file_takes_no_suggestions(client):
    answer = client.post("/suggest", json={"q": "a", "s": "b", "source": "fr", "target": "de"})
    assert (answer.status_code, answer.json()["error"]) == (403, "Suggestions are disabled on this server.")
    assert client.get("/frontend/settings").json()["suggestions"] is False
