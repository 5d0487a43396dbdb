"""Server-sent events: their sources are the text, their texts the translation, work stops when the client leaves."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

SENTENCES = ["Ein kleiner Hund rennt.", "Zwei Männer sitzen.", "Am 3. Mai kostete es 12 €!"]
TEXTS = [
    "\n  Ein kleiner Hund rennt.  Zwei Männer sitzen.\tAm 3. Mai kostete es 12 €! \r\n\t\nZwei Hunde \u2003",
    "犬が走る。犬が走る。",
    " \n",
    "",
    "EIN HUND RENNT ÜBER DIE WIESE. ZWEI MÄNNER SITZEN.",  # read in another form
    "<2fr> Zwei Männer sitzen. Ein Hund rennt.\n<2en> Ein Hund. <2fr> Zwei Hunde.",
    "<2fr>  Zwei   Männer\u3000sitzen.\u2028ein hund  rennt. zwei hunde\tsitzen !",  # in another form as well, and cut
]


def events(client, **body):
    """Return the names of the events, and what they say."""
    with client.stream("POST", "/v1/translate", json={**body, "stream": True}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = list(answer.iter_lines())  # which would end at U+2028 too
    assert set(lines[2::3]) == {""}
    return [name.removeprefix("event: ") for name in lines[::3]], [json.loads(data[6:]) for data in lines[1::3]]


@pytest.mark.parametrize("asked", [{"source": "de", "target": "en", "model": "many"}, {"source": "fr", "target": "de"}])
def test_events_joined_are_the_texts_and_their_translations(client, asked):
    wanted = client.post("/v1/translate", json={"text": TEXTS, **asked}).json()
    names, said = events(client, text=TEXTS, **asked)
    assert names == ["translation"] * (len(said) - 1) + ["done"]
    done = said.pop()
    assert done == {name: value for name, value in wanted.items() if name != "translations"}
    for number, (text, whole) in enumerate(zip(TEXTS, wanted["translations"], strict=True)):
        own = [one for one in said if one["index"] == number]
        assert "".join(one["text"] for one in own) == whole["text"]
        assert "".join(one["source"] for one in own) == text
        assert [one["source"] for one in own] == [text[one["start"] : one["end"]] for one in own]
        assert [one["start"] for one in own] == [0, *(one["end"] for one in own[:-1])]
        assert sum(one["score"] for one in own) == pytest.approx(whole["score"], abs=1e-4)
    assert [one["source"].strip() for one in said if one["index"] == 0] == [*SENTENCES, "Zwei Hunde"]
    assert len([one for one in said if one["index"] == 4]) == 1
    assert len([one for one in said if one["index"] == 5]) == 3  # two sentences, and a line whose second looks tagged
    assert len([one for one in said if one["index"] == 6]) == 3


def test_streamed_lines_in_the_translation_memory_are_not_split(client, lists):
    line = "Zwei Männer sitzen auf einer Bank."
    _, said = events(client, text=f"{line}\n Ein Hund rennt. Zwei Männer sitzen.", source="fr", target="de")
    assert (said[0]["text"], said[0]["memory"]["is_reused"]) == ("Two men on a bench.", True)
    assert [one["terms"][0]["source"] for one in said[1:3]] == ["Hund", "Männer"]
    assert [one["source"] for one in said[1:3]] == ["\n Ein Hund rennt.", " Zwei Männer sitzen."]


def test_error_during_a_stream_is_its_last_event(client):
    wide = {"source": "犬", "target": "x" * 100}
    names, said = events(client, text="Ein Hund rennt.\n" + "犬" * 100, model="de-en", terms=[wide])
    assert names == ["translation", "error"]
    assert (said[-1]["status"], "too many tokens" in said[-1]["error"]) == (413, True)


def counted(client):
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


def wait_for_open_requests(client, count):
    until = time.monotonic() + 60
    while counted(client)["clearhead_open_requests"] != count and time.monotonic() < until:
        time.sleep(0.02)
    assert counted(client)["clearhead_open_requests"] == count


@pytest.mark.skipif(sys.platform != "linux", reason="the search has a process of its own on Linux alone")
def test_disconnected_client_cancels_the_rest_of_its_stream(server, client):
    before, text = counted(client), "Ein Hund.\n" * 1_500
    body = json.dumps({"text": text, "model": "de-en", "stream": True}).encode()
    head = "POST /v1/translate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    host, _, port = server.url.removeprefix("http://").partition(":")
    os.kill(server.search, signal.SIGSTOP)  # so that nothing is finished before the client is gone
    try:
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            wait_for_open_requests(client, 1)
        wait_for_open_requests(client, 0)
    finally:
        os.kill(server.search, signal.SIGCONT)
    assert client.post("/v1/translate", json={"text": "Ein Hund.", "model": "de-en"}).status_code == 200
    after = counted(client)
    assert after["clearhead_cancelled_total"] == before["clearhead_cancelled_total"] + 1
    assert after["clearhead_sentences_total"] < before["clearhead_sentences_total"] + 1_500
