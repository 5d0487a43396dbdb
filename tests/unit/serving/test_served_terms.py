"""Terms, translation memories and markup over HTTP: what `clearhead translate` gives with the same files."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from clearhead.cli.main import app
from clearhead.errors import ClearheadError
from clearhead.serving.http_errors import HTTPError
from clearhead.serving.models import Models, load_model, model_sources
from clearhead.serving.service import Service
from clearhead.serving.terms_and_memories import Resources, named_files
from clearhead.translation.memory_file import MemoryFile, write_memory

LINES = [
    "Ein kleiner Hund rennt über die Wiese.",
    "Zwei Männer sitzen auf einer Bank.",
    "Zwei Hunde sitzen. Ein Hund rennt. Zwei Männer sitzen.",
    "Am 3. Mai 2018 kostete es 12,50 €.",
]
GIVEN = [
    {"source": "Hund", "target": ["dog", "hound"]},
    {"source": "Männer", "target": "men"},
    {"source": "zwei Hunde", "target": "two dogs"},
]
PAGE = "<p>Zwei <b>Hunde</b> &amp; Männer.</p>\n<pre>Hund</pre>\n"


def objects(command, model, *arguments, lines=LINES):
    return [json.loads(line) for line in command(model, "--format", "jsonl", *arguments, lines=lines)]


def translations(client, **body):
    answer = client.post("/v1/translate", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["translations"]


def test_terms_are_used_as_the_command_uses_them(client, models, lists, command):
    wanted = objects(command, models["de-en"], "--terms", str(lists["terms"]), "--nbest", "2")
    assert {use["form"] for one in wanted for use in one["terms"]} >= {"dog", "men"}
    for terms in (GIVEN, "pets"):
        found = translations(client, text=LINES, model="de-en", terms=terms, num_best=2)
        assert found == wanted
    for terms in (None, []):
        assert translations(client, text=LINES, model="de-en", terms=terms) == objects(command, models["de-en"])
    assert client.get("/v1/models").json()["terms"] == [{"name": "pets", "size": 3}, {"name": "fr-de", "size": 3}]


def test_terms_and_memory_of_a_pair_of_languages_are_for_all_its_requests(client, models, lists, command, tmp_path):
    languages = "--source-lang", "fr", "--target-lang", "de"
    both = (*languages, "--terms", str(lists["terms"]), "--memory", str(lists["memory"]))
    body = {"source": "fr", "target": "de"}
    texts = [*LINES, "Öffnen Sie %s.", "Zwei Männer sitzen auf einer Banken."]
    plain = client.post("/translate", json={"q": texts, **body}).json()["translatedText"]
    assert plain == command(models["many"], *both, lines=texts)
    assert plain[1] == "Two men on a bench."
    found = translations(client, text=texts, **body)
    assert found == objects(command, models["many"], *both, lines=texts)
    assert [(one["memory"]["similarity"], one["memory"]["is_reused"]) for one in found if "memory" in one] == [
        (1.0, True),
        (1.0, False),  # it lacks the placeholder
        (0.8571, False),
    ]
    alone = objects(command, models["many"], *languages, lines=texts)
    assert translations(client, text=texts, terms=[], memory=False, **body) == alone
    [joined] = translations(client, text="\n".join(LINES[:2]), **body)
    assert (joined["score"], joined["sentences"][1]["memory"]["is_reused"]) == (None, True)

    (tmp_path / "page.html").write_text(f"{PAGE}<p>{LINES[1]}</p>", encoding="utf-8")
    out = tmp_path / "out.html"
    arguments = ["translate", str(models["many"]), str(tmp_path / "page.html"), "-o", str(out), *both]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    page, wanted = (path.read_text(encoding="utf-8") for path in (tmp_path / "page.html", out))
    assert "<p>Two men on a bench.</p>" in wanted
    answers = client.post("/translate", json={"q": page, "format": "html", **body})
    assert answers.json()["translatedText"] == wanted
    [native] = translations(client, text=page, format="html", **body)
    assert native["text"] == wanted
    assert [one["source"] for one in native["sentences"]] == ["Zwei <g1>Hunde</g1> & Männer.", LINES[1]]
    assert [use["source"] for use in native["terms"]] == ["Männer"]
    sent = client.post("/translate_file", data=body, files={"file": ("page.html", page.encode())})
    assert client.get(sent.json()["translatedFileUrl"]).text == wanted


def test_alternatives_are_the_model_s_also_where_a_memory_has_the_text(client):
    body = {"q": LINES[1], "source": "fr", "target": "de"}
    assert client.post("/translate", json=body).json()["translatedText"] == "Two men on a bench."
    [own] = translations(client, text=LINES[1], source="fr", target="de", memory=False)
    answer = client.post("/translate", json={**body, "alternatives": 1}).json()
    assert (answer["translatedText"], len(answer["alternatives"])) == (own["text"], 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"terms": [{"source": "a", "target": ["b"] * 101}]}, "101 terms, and a request may bring 100"),
        (
            {"terms": [{"source": "a" * 201, "target": "b"}]},
            "terms.0: 201 characters in one text, and at most 200 are allowed",
        ),
        ({"terms": [*GIVEN, {"source": " ", "target": "b"}]}, "terms.3: there is no term"),
        ({"terms": [{"source": "a", "target": []}]}, "terms.0: no translation of 'a'"),
        ({"terms": [{"source": "a\tb", "target": "b"}]}, "terms.0: a tab or an end of a line in a text"),
        ({"terms": "cats"}, "no list of terms has this name; there are: pets, fr-de"),
        ({"memory": True}, "there is no translation memory for these languages"),
        ({"memory": True, "num_best": 2, "source": "fr", "target": "de", "model": "many"}, "ask for one (num_best)"),
        ({"format": "html", "stream": True}, "num_best, alignments and stream are for the format text"),
        ({"protect_numbers": True}, "protect_numbers: this model has no tokens for placeholders"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_translate_rejects_invalid_terms_and_memory_fields(client, fields, message):
    answer = client.post("/v1/translate", json={"text": "Ein Hund.", "model": "de-en", **fields})
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_the_lists_that_apply_by_default_are_named(client, served, lists):
    own = {"name": "fr-de", "size": 3, "model": "many", "source": "fr", "target": "de"}
    assert client.get("/v1/models").json()["default_terms"] == [own]
    path = str(lists["terms"])
    resources = Resources({"de-en": path, "many": path, "cars": path})
    resources.load(served)
    assert [tuple(one.values()) for one in resources.default_terms(served)] == [
        ("de-en", 3, "de-en", "de", "en"),
        ("many", 3, "many", None, None),
        ("de-en", 3, "many", "de", "en"),  # behind the list of this model
    ]
    alone = Models({"de-en": served.served["de-en"]})
    resources = Resources({"": path})
    resources.load(alone)
    assert [tuple(one.values()) for one in resources.default_terms(alone)] == [("", 3, "de-en", "de", "en")]


def test_so_many_terms_that_the_search_would_be_too_wide_are_refused(client):
    body = {"text": "犬" * 100, "model": "de-en", "terms": [{"source": "犬", "target": "x" * 100}]}
    answer = client.post("/v1/translate", json=body)
    assert (answer.status_code, "too many tokens" in answer.json()["error"]) == (413, True)


@pytest.fixture(scope="module")
def served(models):
    some = model_sources(list(map(str, models.values())))
    return Models({one.name: load_model(one, device="cpu") for one in some})


def test_changed_terms_file_is_reloaded_and_a_broken_one_keeps_the_old_terms(served, tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("Hund\tdog\n", encoding="utf-8")
    resources = Resources({"de-fr": str(path)})
    resources.load(served)
    assert resources.changed() == []
    path.write_text("Hund\tdog\nBank\tbench\n", encoding="utf-8")
    assert [resources.changed(), resources.changed()] == [[], ["de-fr"]]  # it may still be written at first
    resources.read("de-fr", served)
    assert resources.sizes() == {"de-fr": 2}
    path.write_text("no tab\n", encoding="utf-8")
    with pytest.raises(ClearheadError, match="no tab"):
        resources.read("de-fr", served)
    assert resources.sizes() == {"de-fr": 2}
    assert [resources.changed(), resources.changed()] == [[], []]  # it is not tried again until it changes
    many = served.served["many"]
    assert len(resources.terms(many, "de", "fr")) == 2
    assert resources.terms(many, "en", "fr") is None


@pytest.mark.parametrize(
    ("terms", "memory", "message"),
    [
        (["{}"], [], "--terms .*: there are 7 pairs of languages; say which it is for, such as --terms de-en="),
        ([], ["x={}"], "--memory x=.*: neither a model nor a pair of languages that is served is called so"),
        (["a={}", "a={}"], [], "--terms: two files are called 'a'"),
        (["a="], [], "--terms a=: write FILE, or NAME=FILE"),
        (["nowhere.tsv", "b={}"], [], "there are 7 pairs"),
    ],
)
def test_resources_load_rejects_terms_and_memory_files_of_no_single_pair(served, lists, terms, memory, message):
    def load():
        given = [[one.format(lists["terms"]) for one in some] for some in (terms, memory)]
        Resources(named_files(given[0], "--terms"), named_files(given[1], "--memory")).load(served)

    with pytest.raises(ClearheadError, match=message):
        load()


def test_a_memory_file_that_cannot_be_read_is_not_the_fault_of_the_client(tmp_path):
    path = str(tmp_path / "m.sqlite")
    write_memory(path, [("Hund", "dog", None)], ("de", "en"))
    with closing(MemoryFile(path)) as memory:
        of_all = SimpleNamespace(resources=SimpleNamespace(memory=lambda *_: memory))
        choice = SimpleNamespace(model=None, source="de", target="en")
        options = [Service.memory(of_all, choice, SimpleNamespace(require_time=lambda: None), n) for n in (None, 0.5)]
        assert [match.target for match in options[0]["neighbours"]("Hund")] == ["dog"]
        lookups = [*(given["memory"] for given in options), options[0]["neighbours"]]
        assert [lookup("Hund").target for lookup in lookups[:2]] == ["dog", "dog"]
        with closing(sqlite3.connect(path)) as other:
            other.execute("DROP TABLE pairs")
            other.commit()
        for lookup in lookups:
            with pytest.raises(HTTPError, match="memory of this server cannot be read") as refused:
                lookup("Hund")
            assert (refused.value.status, path in str(refused.value)) == (503, False)
