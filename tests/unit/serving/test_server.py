"""The server as its clients see it: what they get is what the command line gives, and nothing they send harms it."""

from __future__ import annotations

import asyncio
import csv
import errno
import io
import json
import logging
import re
import signal
import socket
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir

import httpx
import pytest
from jsonschema import Draft202012Validator
from libretranslatepy import LibreTranslateAPI
from typer.testing import CliRunner

from clearhead.cli.main import app
from clearhead.config import ServeConfig
from clearhead.errors import ModelError
from clearhead.inspection.explain import explain
from clearhead.runtime.version import NUMBER
from clearhead.serving import files, search_process
from clearhead.serving.app import make_app
from clearhead.serving.http_errors import HTTPError
from clearhead.serving.keys import Keys
from clearhead.serving.log import log_to_stderr
from clearhead.serving.service import Service
from clearhead.translation.translator import Translator
from commands import clearhead

LINES = [
    "Ein kleiner Hund rennt über die Wiese.",
    "Zwei Männer sitzen auf einer Bank.",
    "Am 3. Mai 2018 kostete es 12,50 €.",
    "犬が走る。",
    "Zwei Hunde",
    "a dog. two men. Am 3. Mai.",
]


def test_many_clients_at_once_get_what_the_command_gives(server, models, command):
    plain = command(models["de-en"], lines=LINES)
    french = command(models["many"], "--target-lang", "fr", lines=LINES)
    best = [json.loads(line) for line in command(models["de-en"], "--format", "jsonl", "--nbest", "3", lines=LINES)]

    def ask(number):
        at = number % len(LINES)
        with httpx.Client(base_url=server.url, timeout=120) as client:
            fields = {"q": LINES[at], "source": "de", "target": "en"}
            one = client.post("/translate", json=fields).json()
            other = client.post("/translate", data={**fields, "target": "fr"}).json()
            three = client.post("/v1/translate", json={"text": LINES[at], "model": "de-en", "num_best": 3}).json()
        assert one["translatedText"] == plain[at]
        assert other["translatedText"] == french[at]
        assert three["translations"] == [best[at]]

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(ask, range(2 * len(LINES))))


def test_ready_event_holds_the_address_of_the_page(server):
    assert server.wait_for("ready")["page"] == f"{server.url}/"


def test_the_endpoints_of_libretranslate_are_described_at_its_path(client):
    found = client.get("/spec").json()
    assert found["openapi"].startswith("3.")
    assert {"/translate", "/detect", "/languages", "/translate_file", "/frontend/settings"} <= found["paths"].keys()
    assert not [path for path in found["paths"] if path.startswith("/v1/")]
    assert found["paths"]["/detect"] == client.get("/openapi.json").json()["paths"]["/detect"]


def test_texts_of_several_lines_keep_their_white_space(client, models, command):
    first, second = command(models["de-en"], lines=LINES[:2])
    text = f"\n  {LINES[0]}\r\n\t\n{LINES[1]}  "
    wanted = f"\n  {first}\r\n\t\n{second}  "
    body = {"q": [text, " \n", ""], "source": "de", "target": "en"}
    assert client.post("/translate", json=body).json()["translatedText"] == [wanted, " \n", ""]
    body = {"text": text, "model": "de-en", "alignments": True}
    [found] = client.post("/v1/translate", json=body).json()["translations"]
    one, other = Translator.load(models["de-en"]).translate(LINES[:2], alignments=True)
    ahead = len(LINES[0].split()), len(first.split())
    linked = [(left + ahead[0], right + ahead[1]) for left, right in other.alignment]
    assert [tuple(link) for link in found["alignment"]] == [*one.alignment, *linked]
    assert (found["source"], found["text"]) == (text, wanted)
    assert [one["text"] for one in found["sentences"]] == [first, second]
    assert found["score"] == pytest.approx(sum(one["score"] for one in found["sentences"]), abs=1e-5)


def test_the_quality_of_translations_is_estimated_if_asked_for(client, models):
    first, second = Translator.load(models["de-en"]).translate(LINES[:2], quality=True)
    body = {"text": [LINES[0], "\n".join(LINES[:2]), " "], "model": "de-en", "quality": True}
    one, two, blank = client.post("/v1/translate", json=body).json()["translations"]
    assert one["quality"] == pytest.approx(first.quality, abs=1e-3)
    assert [line["quality"] for line in two["sentences"]] == pytest.approx([first.quality, second.quality], abs=1e-3)
    lengths = [len(line) for line in LINES[:2]]
    weighted = (lengths[0] * first.quality + lengths[1] * second.quality) / sum(lengths)
    assert two["quality"] == pytest.approx(weighted, abs=1e-3)
    assert "quality" not in blank
    [page] = client.post(
        "/v1/translate", json={**body, "text": f"<p>{LINES[0]}</p><p>{LINES[1]}</p>", "format": "html"}
    ).json()["translations"]
    assert page["quality"] == pytest.approx(weighted, abs=1e-3)
    streamed = client.post("/v1/translate", json={**body, "text": LINES[0], "stream": True}).text
    assert f'"quality": {one["quality"]}' in streamed
    plain = client.post("/v1/translate", json={**body, "quality": False}).json()["translations"]
    assert not any("quality" in translation for translation in plain)


def test_libretranslate_python_client_translates_detects_and_lists_languages(server, models, command):
    api = LibreTranslateAPI(server.url)
    assert api.translate(LINES[1], "de", "en") == command(models["de-en"], lines=LINES[1:2])[0]
    assert api.detect("Zwei Männer sitzen auf einer Bank und lesen.")[0]["language"] == "de"
    assert api.languages() == [
        {"code": "de", "name": "German", "targets": ["en", "fr"]},
        {"code": "en", "name": "English", "targets": ["de", "fr"]},
        {"code": "fr", "name": "French", "targets": ["de", "en"]},
    ]


def test_alternatives_and_detection_are_as_libretranslate_has_them(client):
    text = "Zwei Männer sitzen auf einer Bank."
    one = client.post("/translate", json={"q": text, "source": "auto", "target": "en", "alternatives": 2}).json()
    assert one.keys() - {"warnings"} == {"translatedText", "detectedLanguage", "alternatives"}
    assert one["detectedLanguage"]["language"] == "de"
    assert 99 < one["detectedLanguage"]["confidence"] <= 100
    assert 1 <= len(one["alternatives"]) <= 2
    assert one["translatedText"] not in one["alternatives"]
    many = client.post("/translate", json={"q": [text, text], "source": "auto", "target": "en", "alternatives": 2})
    assert many.json() == {name: [value, value] for name, value in one.items()}
    same = client.post("/translate", json={"q": text, "source": "auto", "target": "de", "alternatives": 1}).json()
    assert same == {"translatedText": text, "detectedLanguage": one["detectedLanguage"], "alternatives": []}
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 20_000
    assert settings["language"]["source"] == {"code": "auto", "name": "Auto Detect"}
    assert client.get("/health").json() == {"status": "ok"}


GERMAN, FRENCH, ENGLISH = (
    "Zwei Männer sitzen auf einer Bank.",
    "Deux hommes sont assis sur un banc.",
    "Two men are sitting on a bench.",
)


def test_each_text_is_translated_from_its_own_language(client, models, command):
    texts = [FRENCH, GERMAN, "12 + 7", ENGLISH, FRENCH]
    [french] = command(models["many"], "--target-lang", "en", "--source-lang", "fr", lines=[FRENCH])
    german = command(models["de-en"], lines=[GERMAN])[0]
    [figures] = command(models["many"], "--target-lang", "en", "--source-lang", "fr", lines=["12 + 7"])
    wanted = [french, german, figures, ENGLISH, french]  # most of the request is French
    found = client.post("/translate", json={"q": texts, "source": "auto", "target": "en"}).json()
    assert found["translatedText"] == wanted
    assert [one["language"] for one in found["detectedLanguage"]] == ["fr", "de", "fr", "en", "fr"]
    assert [one["confidence"] > 99 for one in found["detectedLanguage"]] == [True, True, False, True, True]
    assert found["detectedLanguage"][2]["confidence"] == 33.33
    native = client.post("/v1/translate", json={"text": texts, "source": "auto", "target": "en"}).json()
    assert [one["text"] for one in native["translations"]] == wanted
    assert [one["model"] for one in native["translations"]] == ["many", "de-en", "many", None, "many"]
    assert [one["detected"] for one in native["translations"]] == found["detectedLanguage"]
    said = {name: native[name] for name in ("model", "source", "target", "confidence")}
    assert said == {"model": None, "source": None, "target": "en", "confidence": 33.33}
    body = {"text": texts, "source": "auto", "target": "en", "stream": True}
    events = re.findall("event: (.*)\ndata: (.*)\n\n", client.post("/v1/translate", json=body).text)
    parts = [json.loads(data) for name, data in events if name == "translation"]
    assert ["".join(one["text"] for one in parts if one["index"] == number) for number in range(5)] == wanted
    assert {one["index"]: one["detected"] for one in parts} == dict(enumerate(found["detectedLanguage"]))
    assert (events[-1][0], json.loads(events[-1][1])) == ("done", said)
    listed = client.post("/detect", json={"q": [GERMAN, FRENCH]}).json()
    assert listed == [client.post("/detect", json={"q": text}).json() for text in (GERMAN, FRENCH)]
    assert [one[0]["language"] for one in listed] == ["de", "fr"]


def test_warnings_reach_clients_of_translate_and_v1_translate(client):
    texts = ["Am 3. Mai 2018 kostete es 12,50 €.", " "]
    native = client.post("/v1/translate", json={"text": texts, "source": "de", "target": "en"}).json()["translations"]
    assert "2018" in native[0]["warning_details"]["numbers"]
    cut = {name: "" for name in ("source_truncated", "output_truncated") if native[0][name]}
    wanted = {**native[0]["warning_details"], **cut}
    fields = {"source": "de", "target": "en"}
    assert client.post("/translate", json={"q": texts, **fields}).json()["warnings"] == [wanted, {}]
    assert client.post("/translate", data={"q": texts[0], **fields}).json()["warnings"] == wanted
    assert "warnings" not in client.post("/translate", json={"q": " ", **fields}).json()
    terms = client.post("/translate", json={"q": "Zwei Hunde, Männer", "source": "fr", "target": "de"}).json()
    native = client.post("/v1/translate", json={"text": "Zwei Hunde, Männer", "source": "fr", "target": "de"}).json()
    uses = native["translations"][0]["terms"]
    wrong = [f"{one['source']} -> {one['target']}" for one in uses if not one["form"]]
    costly = [one for one in uses if one["reason"] == "costly"]
    wrong += [f"{one['source']} -> {one['form']} at a price (without it: {one['without']})" for one in costly]
    assert terms.get("warnings", {}).get("terms", "") == ", ".join(wrong)


def test_markup_stays_and_text_never_becomes_markup(client):
    page = '<p title="x">Zwei <b>Männer</b> &lt;script&gt; &amp; a</p><script>var a = "Hund";</script>'
    found = client.post("/translate", json={"q": page, "source": "de", "target": "en", "format": "html"}).json()
    translated = found["translatedText"]
    assert re.fullmatch(r'<p title="[^"<>]*">.*</p><script>var a = "Hund";</script>', translated)
    assert set(re.findall(r"<[^>]*>", translated)) <= set(re.findall(r"<[^>]*>", page)) | {
        translated.split(">")[0] + ">"
    }


CHOICE = {"source": "de", "target": "en"}
ERRORS = [
    (CHOICE, "Invalid request: missing q parameter"),
    ({"q": "a", "target": "en"}, "Invalid request: missing source parameter"),
    ({"q": "a", "source": "de"}, "Invalid request: missing target parameter"),
    (
        CHOICE | {"q": "a", "source": "xx"},
        "no model translates xx to en; this server has de to en, fr to en, de to fr, en to de, en to fr, fr to de",
    ),
    (CHOICE | {"q": "a", "format": "pdf"}, "pdf format is not supported"),
    (CHOICE | {"q": "a", "alternatives": "x"}, "Invalid request: alternatives parameter is not a number"),
    (CHOICE | {"q": "a", "alternatives": 10_000}, "Invalid request: alternatives parameter must be <= 10"),
    (CHOICE | {"q": "a" * 20_001}, "Invalid request: request (20001) exceeds text limit (20000)"),
]


@pytest.mark.parametrize(("fields", "message"), ERRORS, ids=[message[:40] for _, message in ERRORS])
def test_translate_errors_have_the_texts_of_libretranslate(client, fields, message):
    for sent in ({"json": fields}, {"data": fields}):
        answer = client.post("/translate", **sent)
        assert (answer.status_code, answer.json()) == (400, {"error": message})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[" * 100_000, "Invalid JSON format"),
        (b'"text"', "Invalid JSON format"),
        (b'{"q": "\xff"}', "Invalid JSON format"),
        (b'{"q": 5, "source": "de", "target": "en"}', "neither a text nor a list"),
        (b'{"q": ["a", 5], "source": "de", "target": "en"}', "neither a text nor a list"),
        (b'{"q": "a", "source": ["de"], "target": "en"}', "source parameter is not a text"),
        (b'{"q": "a", "source": "de", "target": "\\ud800", "text": "a"}', "Invalid JSON format"),
        (b'{"q": "\\ud800", "source": "de", "target": "en"}', "Invalid JSON format"),
        (b'{"q\\ud800": "a", "source": "de", "target": "en"}', "Invalid JSON format"),
        (json.dumps({"q": ["a"] * 129, "source": "de", "target": "en"}).encode(), r"request \(129\) exceeds"),
    ],
    ids=[
        "deep",
        "no object",
        "no UTF-8",
        "number",
        "number in a list",
        "list",
        "surrogate in a code",
        "surrogate",
        "surrogate in a name",
        "many",
    ],
)
def test_impossible_bodies_are_refused(client, body, message):
    for path in ("/translate", "/v1/translate"):
        answer = client.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400
        if path == "/translate":
            assert re.search(message, answer.json()["error"])


def test_too_many_tokens_and_bytes_are_refused(client):
    # Each text is a token or two of the source, and may be six more of the translation.
    answer = client.post("/v1/translate", json={"text": "\n".join("犬" * 7_000), "model": "de-en"})
    assert answer.status_code == 413
    assert "tokens" in answer.json()["error"]
    large = client.post("/translate", content=b"x" * (1_048_576 + 1))
    assert (large.status_code, list(large.json())) == (413, ["error"])

    def parts():
        for _ in range(30):
            yield b"x" * 65_536

    assert client.post("/translate", content=parts()).status_code == 413


def test_translate_file_returns_the_translated_file(client, models, tmp_path):
    page = f"<p>{LINES[1]}</p>\n<code>a = 1</code>\n"
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    assert CliRunner().invoke(app, ["translate", str(models["de-en"]), str(tmp_path / "page.html"), "-o",
                                    str(tmp_path / "out.html")]).exit_code == 0  # fmt: skip
    fields = {"source": "de", "target": "en"}
    answer = client.post("/translate_file", data=fields, files={"file": ("../Eine Seite.html", page.encode())})
    url = answer.json()["translatedFileUrl"]
    assert re.search(r"/download_file/[0-9a-f]{32}\.Eine_Seite_en\.html$", url)
    fetched = client.get(url)
    assert fetched.content == (tmp_path / "out.html").read_bytes()
    assert fetched.headers["content-disposition"] == 'attachment; filename="Eine_Seite_en.html"'
    assert client.get("/download_file/../../etc/passwd").status_code == 404
    assert client.get(url + "x").status_code == 404
    for name, saved in (("README", "README_en"), ("letter.de", "letter_en.de")):
        url = client.post("/translate_file", data=fields, files={"file": (name, LINES[1].encode())}).json()
        assert url["translatedFileUrl"].endswith(f".{saved}")
    for name, data, message in (
        ("a.exe", b"x", r"^a\.exe: \.exe files are not read as documents; convert it to one of \.csv"),
        ("a.txt", b"<?xml version='1.0'?><a>b</a>", r"^a\.txt is no plain text, for it begins with '<\?xml'"),
        ("a.strings", b'"a" = "b";', r"^a\.strings: \.strings files are not read as documents; convert it to XLIFF"),
        ("a.json", b"{", r"^a\.json"),
        ("a.txt", b"a\n\n" * 100_001, r"\(200002 lines\) exceeds text limit"),
        ("a.json", b'["a"' + b',"a"' * 200_000 + b"]", r"\(more than 200000 texts\) exceeds text limit"),
        ("a.json", b'["' + b"b" * 200_001 + b'"]', r"\(more than 200000\) exceeds text limit"),
        ("a.docx", b"PK no archive", r"^a\.docx"),
        ("a.MD", b"*a\n\n" * 260_000, "exceeds text limit"),  # which would take a quarter of a minute to read
    ):
        refused = client.post("/translate_file", data=fields, files={"file": (name, data)})
        assert refused.status_code == 400
        assert re.search(message, refused.json()["error"])


def test_a_translated_file_has_a_report_of_what_to_check(client, models, tmp_path):
    page = f"<p>{LINES[2]}</p>\n<p>{LINES[1]}</p>\n<p>&lt;script&gt; 犬</p>\n<pre>Hund</pre>\n"
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    arguments = ["page.html", "-o", str(tmp_path / "out.html"), "--report", str(tmp_path / "report.html")]
    with chdir(tmp_path):
        assert CliRunner().invoke(app, ["translate", str(models["de-en"]), *arguments]).exit_code == 0
    wanted = (tmp_path / "report.html").read_text(encoding="utf-8")
    fields = {"source": "de", "target": "en"}
    answer = client.post("/translate_file", data=fields, files={"file": ("page.html", page.encode())}).json()
    report = client.get(answer["reportUrl"])
    assert report.text == wanted
    assert "script-src" not in report.headers["content-security-policy"]
    assert "default-src 'none'" in report.headers["content-security-policy"]
    counts = re.search(r"(\d+) translated; (\d+) of them look wrong", wanted)
    assert [answer["segments"], answer["toCheck"]] == [int(counts[1]), int(counts[2])]
    assert answer["segments"] == 3
    assert answer["toCheck"] >= 1  # the year is not in the translation
    assert answer["reportUrl"].rpartition("/")[2] == answer["translatedFileUrl"].rpartition("/")[2]
    assert client.get(answer["reportUrl"] + "x").status_code == 404


@pytest.mark.parametrize("source", ["en", "auto"])
def test_translate_file_returns_a_file_already_in_the_target_language_unchanged(client, source):
    page = f"<p>{ENGLISH}\n<P>A dog is running over the  meadow.".encode()
    fields = {"source": source, "target": "en"}
    answer = client.post("/translate_file", data=fields, files={"file": ("a.html", page)}).json()
    assert client.get(answer["translatedFileUrl"]).content == page
    assert (answer["segments"], answer["toCheck"]) == (0, 0)
    assert "already in the target language" in client.get(answer["reportUrl"]).text


def test_scores_and_explanations_are_those_of_the_library(client, models):
    translator = Translator.load(models["many"])
    body = {"model": "many", "source": "de", "target": "fr"}
    scores = client.post("/v1/score", json={**body, "texts": LINES[:2], "translations": ["A dog", ""]}).json()["scores"]
    assert scores == translator.score(LINES[:2], ["A dog", ""], target_lang="fr")
    found = client.post("/v1/explain", json={**body, "text": LINES[1]}).json()["explanation"]
    alone = explain(translator, LINES[1], search=False, target_lang="fr", source_lang="de")
    assert found == json.loads(json.dumps(alone.to_dict()))
    packed = client.post("/v1/explain", json={**body, "text": LINES[1], "packed": True}).json()["explanation"]
    assert packed == json.loads(json.dumps(alone.to_dict(packed=True)))
    uneven = client.post("/v1/score", json={**body, "texts": LINES[:2], "translations": [""]})
    assert (uneven.status_code, "pair up" in uneven.json()["error"]) == (400, True)
    assert client.post("/v1/explain", json={**body, "text": "Hund " * 300}).status_code == 400


def test_a_model_is_chosen_by_name_or_languages(client):
    named = client.get("/v1/models").json()["models"]
    assert [(one["name"], one["sources"], one["targets"]) for one in named] == [
        ("de-en", ["de"], ["en"]),
        ("many", ["de", "en", "fr"], ["de", "en", "fr"]),
    ]
    ask = {"text": "a"}
    for choice, wanted in (
        ({"source": "de", "target": "en"}, ("de-en", "de", "en")),
        ({"source": "de", "target": "fr"}, ("many", "de", "fr")),
        ({"source": "de", "target": "en", "model": "many"}, ("many", "de", "en")),
        ({"model": "de-en"}, ("de-en", "de", "en")),
        ({"model": "many"}, ("many", None, "de")),
    ):
        found = client.post("/v1/translate", json={**ask, **choice}).json()
        assert (found["model"], found["source"], found["target"]) == wanted
    for choice in ({"model": "x"}, {"source": "de"}, {}, {"model": "de-en", "source": "fr", "target": "en"}):
        assert client.post("/v1/translate", json={**ask, **choice}).status_code == 400


def test_the_interface_is_described_without_asking_elsewhere(client):
    page = client.get("/docs")
    assert re.findall(r"""(?:src|href)\s*=\s*["']([^"']+)""", page.text) == ["/docs/style.css", "/openapi.json"]
    assert "script" not in page.text.lower()
    assert client.get("/docs/style.css").headers["content-type"].startswith("text/css")
    assert page.text.count("Confidence in percent.") == 1  # of `/detect`, whose answer has two forms
    document = client.get("/openapi.json").json()
    assert all(
        f"<code>{method.upper()} {path}</code>" in page.text for path, of in document["paths"].items() for method in of
    )


def test_the_page_is_of_parts_of_its_own_and_runs_nothing_else(client):
    parts = set()
    for path in ("/", "/inside"):
        page = client.get(path)
        policy = dict(one.strip().split(" ", 1) for one in page.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert {policy[kind] for kind in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
        assert policy["frame-ancestors"] == "'none'"
        assert not re.search(r"<script(?![^>]*(src=|application/json))|<style|\son\w+=|\sstyle=", page.text)
        parts |= set(re.findall(r"""(?:src|href)="([^"#]+)""", page.text))
    assert "./docs" in parts
    for part in parts:
        answer = client.get(f"/{part}")
        assert answer.status_code == 200
        assert "<" in answer.text or "{" in answer.text
    answer = client.get("/page/translate.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    again = client.get("/page/translate.js", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert [client.get(f"/page/{name}").status_code for name in ("main.js", "..%2Fstyle.css", "")] == [404, 404, 404]


def test_answers_are_as_they_are_described(client):
    document = client.get("/openapi.json").json()

    def check(method, path, **sent):
        answer = client.request(method, path, **sent)
        described = document["paths"][path][method.lower()]["responses"][str(answer.status_code)]
        schema = {**described["content"]["application/json"]["schema"], "components": document["components"]}
        Draft202012Validator(schema).validate(answer.json())
        return answer.status_code

    for path in ("/languages", "/frontend/settings", "/health", "/livez", "/readyz", "/v1/models"):
        assert check("GET", path) == 200
    languages = {"source": "auto", "target": "en"}
    text = {"q": "Zwei Männer", "source": "auto", "target": "fr"}
    assert check("POST", "/translate", json={**text, "q": ["a"], "alternatives": 1}) == 200
    assert check("POST", "/translate", data=text) == 200
    assert check("POST", "/detect", data=text) == 200
    assert check("POST", "/detect", json={"q": ["a", "b"]}) == 200
    assert check("POST", "/v1/translate", json={"text": ["Zwei Männer", "Two men are here."], **languages}) == 200
    assert check("POST", "/v1/translate", json={"text": "a. b.", "model": "many", "num_best": 2}) == 200
    assert check("POST", "/v1/translate", json={"text": "a", "nothing": 1}) == 400
    assert check("POST", "/v1/score", json={"texts": ["a"], "translations": ["b"], "model": "de-en"}) == 200
    assert check("POST", "/v1/explain", json={"text": "a", "model": "de-en"}) == 200
    assert check("POST", "/translate_file", json={}) == 400
    files = {"file": ("a.txt", b"Ein Hund.")}
    assert check("POST", "/translate_file", data={"source": "de", "target": "en"}, files=files) == 200


def test_neither_log_nor_metrics_tell_what_was_asked_or_by_whom(server, client):
    secret = "Geheimniskraemerei"
    answers = [
        client.post("/translate", json={"q": secret, "source": "de", "target": "en", "api_key": secret}),
        client.post("/translate", json={"q": secret, "source": secret, "target": "en"}),
        client.post(f"/{secret}?q={secret}", headers={"authorization": f"Bearer {secret}"}),
        client.post("/v1/translate", json={"text": secret, "model": secret}),
    ]
    assert [answer.status_code for answer in answers] == [200, 400, 404, 400]
    server.wait_for("request", id=answers[-1].headers["x-request-id"], status=400, endpoint="/v1/translate")
    logged, counted = server.log.read_text(encoding="utf-8"), client.get("/metrics").text
    assert all(secret[:9] not in text for text in (logged, counted))
    assert "127.0.0.1" not in counted
    assert [event for event in server.events() if "127.0.0.1" in json.dumps(event)] == server.events()[:2]
    assert 'clearhead_requests_total{endpoint="/translate",status="400"}' in counted
    assert 'clearhead_stage_seconds_count{stage="wait"}' in counted


def test_metrics_tell_models_memory_and_build(client):
    def count(name):
        found = re.search(rf"^{re.escape(name)} (\S+)$", client.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    name = 'clearhead_model_requests_total{model="de-en",status="200"}'
    seconds = 'clearhead_model_request_seconds_count{model="de-en"}'
    before = count(name), count(seconds)
    for _ in range(2):
        assert client.post("/v1/translate", json={"text": "a", "model": "de-en"}).status_code == 200
    assert (count(name), count(seconds)) == (before[0] + 2, before[1] + 2)
    [build] = re.findall(r"^clearhead_build_info\{(.*)\} 1\.0$", client.get("/metrics").text, re.MULTILINE)
    assert re.fullmatch(rf'version="{re.escape(NUMBER)}[^"]*"', build)  # another commit, if one was made meanwhile
    assert count("process_resident_memory_bytes") > 10_000_000


def test_probes_are_not_in_the_log(server, client):
    probes = ("/livez", "/readyz", "/health", "/metrics")
    assert [client.get(path).status_code for path in probes] == [200] * 4
    server.wait_for("request", id=client.get("/languages").headers["x-request-id"])
    logged = {event.get("endpoint") for event in server.events()}
    assert "/languages" in logged
    assert not logged & {*probes}


def test_columns_and_keys_of_a_file_are_fields_of_its_form(client):
    fields = {"source": "de", "target": "en"}

    def sent(name, content, **more):
        return client.post("/translate_file", data={**fields, **more}, files={"file": (name, content)})

    def translated(*arguments, **more):
        return client.get(sent(*arguments, **more).json()["translatedFileUrl"]).text

    table = f'id,"a, b",c\nEin Hund.,{LINES[0]},{LINES[1]}\n'.encode()
    assert "columns" in sent("a.csv", table).json()["error"]
    for columns in ('"a, b"', "2"):
        rows = list(csv.reader(io.StringIO(translated("a.csv", table, columns=columns))))
        assert columns == "2" or rows[0] == ["id", "a, b", "c"]  # a number tells nothing of a header
        assert (rows[1][0], rows[1][2]) == ("Ein Hund.", LINES[1])
        assert rows[1][1] != LINES[0]
    values = {"label": LINES[0], "id": LINES[1]}
    found = json.loads(translated("a.json", json.dumps(values), keys="label"))
    assert found["label"] != LINES[0]
    assert found["id"] == LINES[1]
    for name, more, message in (
        ("a.txt", {"columns": "1"}, "columns is for files of .csv, .tsv"),
        ("a.csv", {"keys": "a"}, "keys is for files of .json"),
        ("a.csv", {"columns": '"a'}, 'columns "a: unexpected end of data'),
        ("a.csv", {"columns": "zzz"}, "zzz"),
    ):
        refused = sent(name, table, **more)
        assert refused.status_code == 400
        assert message in refused.json()["error"]


@pytest.fixture
def loggers() -> Iterator[None]:
    """Put the loggers of this process back as they were."""
    changed = [logging.getLogger(), logging.getLogger("clearhead.serving")]
    before = [(list(logger.handlers), logger.level, logger.propagate) for logger in changed]
    yield
    logging.captureWarnings(False)
    for logger, (handlers, level, propagate) in zip(changed, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.mark.usefixtures("loggers")
def test_library_log_records_are_json_lines_without_their_message(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        log_to_stderr(with_libraries=True)
        logging.getLogger("asyncio").warning("socket.send() of %s failed", "secret")
        try:
            raise KeyError("secret")
        except KeyError:
            logging.getLogger("asyncio").exception("secret")
        warnings.warn("secret", stacklevel=1)
        logging.captureWarnings(False)
    logged = capsys.readouterr().err
    assert "secret" not in logged
    first, second, third = (json.loads(line) for line in logged.splitlines())
    assert (first["event"], first["level"], first["logger"]) == ("library", "warning", "asyncio")
    assert first["place"].startswith("test_server.py:")
    assert "error" not in first
    assert (second["level"], second["error"]) == ("error", "KeyError")
    assert third["logger"] == "py.warnings"


@pytest.mark.skipif(sys.platform != "linux", reason="the search has a process of its own on Linux alone")
@pytest.mark.usefixtures("loggers")
def test_serve_logs_warnings_while_search_processes_start_as_json(models, monkeypatch, capsys):
    def begin(*_):
        warnings.warn("secret", stacklevel=1)
        raise ModelError("enough")

    monkeypatch.setattr(search_process, "SearchProcesses", begin)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        clearhead("serve", models["de-en"], "--device", "cpu")
    noted, ended = capsys.readouterr().err.splitlines()
    assert json.loads(noted)["logger"] == "py.warnings"
    assert "enough" in ended


def test_answers_have_security_headers(client):
    headers = client.get("/languages", headers={"origin": "https://example.org"}).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_a_mistake_of_the_server_is_answered_and_noted_without_its_words(monkeypatch, noted):
    service = Service([], ServeConfig(), Keys({}), device="cpu")
    monkeypatch.setattr(service.keys, "are_required", True)
    monkeypatch.setattr(service.keys, "owner", lambda key: 1 / 0)
    transport = httpx.ASGITransport(make_app(service), raise_app_exceptions=False)

    async def ask():
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            return await client.post("/detect", json={"q": "secret"})

    answer = asyncio.run(ask())
    [event] = noted
    assert answer.status_code == 500
    assert answer.json() == {"error": f"the server made a mistake (request {event['id']})"}
    assert event["error"].startswith("ZeroDivisionError at <lambda>:")
    monkeypatch.setattr(service.keys, "owner", lambda key: full_disk())
    assert (asyncio.run(ask()).status_code) == 503
    service.close()


def full_disk():
    raise OSError(errno.ENOSPC, "No space left on device")


def test_head_is_get_without_its_body(client):
    answers = client.get("/docs"), client.head("/docs")
    lengths = [answer.headers["content-length"] for answer in answers]
    assert (answers[1].status_code, answers[1].content, lengths[1]) == (200, b"", lengths[0])


def test_client_that_disconnects_early_is_logged_as_499(server):
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({"text": "犬 " * 9_000, "model": "de-en"}).encode()
    head = [
        "POST /v1/translate HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    server.send(signal.SIGSTOP)  # so it reads the request and its client's leave together
    try:
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall("\r\n".join([*head, "\r\n"]).encode() + body)
    finally:
        server.send(signal.SIGCONT)
    server.wait_for("request", status=499)


def test_headers_without_end_are_refused(server):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 40_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 431 ")


def test_one_client_does_not_take_all_the_room_of_files(monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 10)
    monkeypatch.setattr(files, "MAX_BYTES_PER_CLIENT", 6)
    kept = files.TranslatedFiles(60)
    name = kept.add("anna", "a.txt", b"123", "45")
    with pytest.raises(HTTPError) as refused:
        kept.add("anna", "b.txt", b"12")
    assert refused.value.status == 429
    kept.add("otto", "c.txt", b"12345")
    with pytest.raises(HTTPError) as refused:
        kept.add("otto", "d.txt", b"1")
    assert refused.value.status == 503
    assert (kept.get(name), kept.report(name)) == (b"123", b"45")
    kept.close()
