"""The reviews that `clearhead serve --reviews` keeps: from a translated file to the corrected one, and their limits."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import nullcontext

import httpx
import pytest
from typer.testing import CliRunner

from clearhead.cli.main import app as command_line
from clearhead.config import ServeConfig
from clearhead.errors import DataError
from clearhead.serving import document_process, kept_reviews
from clearhead.serving.batched_search import Job
from clearhead.serving.http_errors import HTTPError
from clearhead.serving.kept_reviews import KeptReviews, ReviewStart
from clearhead.serving.keys import add_key
from clearhead.translation.result import Translation

SECONDS_TO_ANSWER = 120.0
PAGE = "<p>Hund</p><p>Zwei Hunde rennen.</p><p>犬 &lt;3</p>"
MODELS_OWN = ("machine", "quality", "score_per_token", "flags")
"""What a segment has from the model; it stays as it was when the review began."""


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=SECONDS_TO_ANSWER) as found:
        yield found


def translated(client: httpx.Client, url: str, name: str, content: str, **headers: str) -> str:
    """Translate a file; return its download name."""
    file, fields = {"file": (name, content)}, {"source": "de", "target": "en"}
    answer = client.post(f"{url}/translate_file", files=file, data=fields, headers=headers)
    return answer.json()["translatedFileUrl"].split("/")[-1]


def begun(client: httpx.Client, url: str, file: str, **headers: str) -> httpx.Response:
    return client.post(f"{url}/reviews", json={"file": file}, headers=headers)


def edit(client: httpx.Client, review: str, number: int, text: str, **headers: str) -> httpx.Response:
    body = {"text": text, "state": "edited", "revision": 0}
    return client.post(f"{review}segments/{number}", json=body, headers=headers)


def of_all(client: httpx.Client, review: str) -> dict[int, dict]:
    return {one["number"]: one for one in client.get(f"{review}segments").json()["segments"]}


def test_a_review_is_continued_by_its_link_after_the_server_was_killed(start_server, models, tmp_path, client):
    kept = tmp_path / "reviews"
    arguments = (str(models["de-en"]), "--reviews", str(kept))
    first = start_server(*arguments)
    review = begun(client, first.url, translated(client, first.url, "Mein Hund.html", PAGE)).json()["reviewUrl"]
    key = re.fullmatch(re.escape(first.url) + "/reviews/([0-9a-f]{32})/", review)[1]
    before = of_all(client, review)
    assert [before[number]["source"] for number in range(3)] == ["Hund", "Zwei Hunde rennen.", "犬 <3"]
    assert edit(client, review, 1, "Two dogs run & bark.").json()["state"] == "edited"
    first.process.kill()  # at once, before the document has it
    first.process.join()
    second = start_server(*arguments)
    review = f"{second.url}/reviews/{key}/"
    after = of_all(client, review)
    assert (after[1]["text"], after[1]["revision"]) == ("Two dogs run & bark.", 1)
    for number, segment in after.items():
        names = MODELS_OWN[:1] if number == 1 else MODELS_OWN
        assert [segment[name] for name in names] == [before[number][name] for name in names]
    alternatives = client.get(f"{review}segments/1/alternatives").json()
    assert alternatives["text"] == "Two dogs run & bark."
    assert len(alternatives["alternatives"]) > 1
    inside = client.get(f"{review}segments/1/inside")
    assert inside.text.startswith("<!doctype html>")
    assert inside.headers["content-security-policy"] == "frame-ancestors 'none'"  # its own policy lets its script run
    page = client.get(review)
    assert '"is_download":true' in page.text
    assert str(tmp_path) not in page.text
    third = start_server(*arguments)
    refused = client.get(f"{third.url}/reviews/{key}/")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json() == {"error": "Mein_Hund_en.html is being reviewed by another process; end that one first"}
    assert edit(client, review, 0, "Dog").json()["state"] == "edited"
    assert second.end() == 0  # writes the document, and leaves the review to the other server
    document = kept / key / "Mein_Hund_en.html"
    assert document.read_text(encoding="utf-8").startswith("<p>Dog</p><p>Two dogs run &amp; bark.</p>")
    review = f"{third.url}/reviews/{key}/"
    assert client.post(f"{review}undo", json={}).json()["segment"]["state"] == "open"
    download = client.get(f"{review}download")
    assert download.headers["content-disposition"] == 'attachment; filename="Mein_Hund_en.html"'
    assert "<p>Dog</p>" not in download.text
    assert "<p>Two dogs run &amp; bark.</p>" in download.text
    pairs = ["corpus", "convert", str(kept / key / ".memory.sqlite"), "-o", str(tmp_path / "pairs.tsv")]
    assert CliRunner().invoke(command_line, pairs).exit_code == 0
    assert (tmp_path / "pairs.tsv").read_text(encoding="utf-8") == "Zwei Hunde rennen.\tTwo dogs run & bark.\n"
    document.write_text("mine", encoding="utf-8")
    refused = edit(client, review, 2, "dog <3")
    assert (refused.status_code, refused.json()["changed"]) == (409, True)
    assert str(tmp_path) not in refused.text
    for change in (lambda: None, document.unlink):
        change()
        refused = client.get(f"{review}download")
        assert (refused.status_code, str(tmp_path) in refused.text) == (503, False)
        assert "Mein_Hund_en.html was changed by another program" in refused.json()["error"]
    log = third.log.read_text(encoding="utf-8")
    assert key not in log
    assert third.end() == 0


@pytest.fixture
def keyed(start_server, models, tmp_path) -> Iterator[tuple[str, list[str]]]:
    """Return the address of a server with small limits, and the keys of two clients."""
    keys: list[str] = []
    for name in ("anna", "bert"):
        add_key(tmp_path / "keys", name, 600, keys.append)
    limits = ("--set", "max_reviews=5", "--set", "max_review_bytes=70000")
    server = start_server(
        str(models["de-en"]), "--reviews", str(tmp_path / "reviews"), "--keys", str(tmp_path / "keys"), *limits
    )
    yield server.url, keys
    assert server.end() == 0


def test_beginning_needs_a_key_and_is_limited_and_a_link_is_enough_to_go_on(keyed, client):
    url, keys = keyed
    anna, bert = ({"authorization": f"Bearer {key}"} for key in keys)
    catalogue = 'msgid "Hund %s"\nmsgstr ""\n'
    file = translated(client, url, "a.po", catalogue, **anna)
    assert begun(client, url, file).status_code in (400, 403)
    review = begun(client, url, file, **anna).json()["reviewUrl"]
    assert edit(client, review, 0, "dog %s").json()["state"] == "edited"
    assert begun(client, url, file, **anna).status_code == 200
    refused = begun(client, url, file, **anna)
    assert (refused.status_code, refused.json()["error"]) == (
        403,
        "this server keeps no more reviews: it has 2 of yours",
    )
    assert begun(client, url, file, **bert).status_code == 200
    assert begun(client, url, f"{'0' * 32}.a_en.po", **bert).status_code == 404
    assert begun(client, url, "../../etc/passwd", **bert).status_code == 404
    for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "http://evil.example"}):
        assert edit(client, review, 0, "cat", **headers).status_code == 403
    assert client.get(review, headers={"host": "evil.example"}).status_code == 400
    for revision in (1, 2):
        body = {"text": f"{'dog ' * 5_000}{revision}", "state": "edited", "revision": revision}
        answer = client.post(f"{review}segments/0", json=body)
    assert answer.status_code == 403
    assert re.fullmatch("this review has no room: it takes [0-9,]+ bytes of at most 70,000", answer.json()["error"])
    checked = client.post(f"{review}check", json={"number": 0, "text": "dog"}).json()
    assert [flag["kind"] for flag in checked["flags"]] == ["placeholders"]
    assert "dog dog" in client.get(f"{review}download").text


@pytest.mark.parametrize(
    "key", ["0" * 32, "0" * 31, "G" * 32, "A" * 32, "%2e%2e", "%00", "0" * 32 + "%0a", "\u0663" * 32]
)
def test_unknown_and_hostile_keys_find_no_review(key, client, ended_server):
    for path in ("", "segments", "download", "..%2f..%2f..%2fetc/passwd"):
        assert client.get(f"{ended_server}/reviews/{key}/{path}").status_code == 404
    assert client.post(f"{ended_server}/reviews/{key}/undo", json={}).status_code == 404


@pytest.fixture(scope="module")
def ended_server(start_server, models, tmp_path_factory) -> Iterator[str]:
    """Return the address of a server without reviews in its directory."""
    server = start_server(str(models["de-en"]), "--reviews", str(tmp_path_factory.mktemp("none")))
    yield server.url
    assert server.end() == 0


def test_the_list_of_reviews_is_nowhere(client, ended_server):
    assert client.get(f"{ended_server}/reviews").status_code == 405
    assert client.get(f"{ended_server}/reviews/", follow_redirects=True).status_code == 405


def test_without_the_option_nothing_is_reviewed(server, client):
    file = translated(client, server.url, "a.txt", "Ein Hund.")
    assert begun(client, server.url, file).status_code == 404
    assert client.get(f"{server.url}/reviews/{'0' * 32}/").status_code == 404
    assert '"takes_reviews":false' in client.get(server.url).text
    assert "/reviews" not in client.get(f"{server.url}/openapi.json").json()["paths"]


CONFIG = ServeConfig(max_file_memory=3 * document_process.memory_of("a.txt", 0))
"""The documents of two small reviews have room."""


@pytest.fixture
def reviews(tmp_path) -> Iterator[KeptReviews]:
    found = KeptReviews(tmp_path / "reviews", CONFIG)
    yield found
    found.close()


@pytest.fixture
def job() -> Job:
    return Job("anna", time.monotonic() + SECONDS_TO_ANSWER, 1)


def start_of(text: str = "Hund.\n\nKatze.", **changes: object) -> ReviewStart:
    """Return the beginning of a review of paragraphs, translated by capitals."""
    results = [("translated", Translation(part, part.upper(), -1.0, ())) for part in text.split("\n\n")]
    fields = {"name": "a.txt", "output": "a_en.txt", "data": text.encode(), "options": {}, "model": "de-en"}
    languages = {"source": "de", "target": "en", "language": "en"}
    return ReviewStart(**{**fields, **languages, "translated": results, **changes})


def opened(reviews: KeptReviews, key: str, job: Job) -> kept_reviews.OpenReview | None:
    """Open a review; its application is the review itself."""
    reviews.open(key, job, lambda start: (None, lambda text, context=None: None), lambda review, start: review)
    return reviews.enter(key)


def test_reviews_not_used_for_the_longest_are_closed_where_memory_is_needed(reviews, job):
    keys = [reviews.begin(start_of(), job) for _ in range(3)]
    first, second = (opened(reviews, key, job) for key in keys[:2])
    first.app.change(1, "Cat.", "edited", 0)
    with pytest.raises(HTTPError, match="too many documents are being reviewed"):
        opened(reviews, keys[2], job)
    reviews.leave(second)
    reviews.leave(first)
    reviews.leave(opened(reviews, keys[2], job))
    assert [reviews.enter(key) is None for key in keys] == [False, True, False]
    for one in (first, reviews._open[keys[2]]):
        reviews.leave(one)
    first.last -= kept_reviews.IDLE_SECONDS
    reviews.sweep()
    assert reviews.enter(keys[0]) is None
    again = opened(reviews, keys[0], job)
    assert again.app.text(1) == "Cat."
    reviews.leave(again)


def test_a_document_whose_process_is_lost_is_read_again(reviews, job):
    key = reviews.begin(start_of(), job)
    review = opened(reviews, key, job)
    [process] = document_process._running
    os.kill(process, signal.SIGKILL)
    with pytest.raises(DataError, match="too much memory"):
        review.app.change(0, "Dog.", "edited", 0)
    reviews.leave(review)
    reviews.sweep()
    again = opened(reviews, key, job)
    again.app.change(0, "Dog.", "edited", 0)
    again.app.save()
    assert again.app.files.output.read_text(encoding="utf-8") == "Dog.\n\nKATZE."
    reviews.leave(again)


def test_a_bug_of_a_format_is_answered_and_logged_without_the_text(reviews, job, noted, monkeypatch):
    def fail(*arguments: object) -> None:
        raise RuntimeError("ValueError")

    review = opened(reviews, reviews.begin(start_of(), job), job)
    monkeypatch.setattr(review.document._document, "problem_of_edit", fail)
    with pytest.raises(DataError, match="the server made a mistake with this text"):
        review.app.check(0, "secret")
    assert review.document.has_ended
    [event] = [one for one in noted if one["event"] == "review"]
    assert event["error"] == f"ValueError at fail:{fail.__code__.co_firstlineno + 1}"
    reviews.leave(review)


def test_a_review_that_does_not_fit_its_document_is_refused_and_left_as_it_is(reviews, job, tmp_path):
    key = reviews.begin(start_of(data=b"Hund.\n\nMaus."), job)
    with pytest.raises(HTTPError, match="read in other segments than when its review began"):
        opened(reviews, key, job)
    damaged = reviews.begin(start_of(), job)
    path = tmp_path / "reviews" / damaged / ".start.json"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(HTTPError, match="this review cannot be read"):
        opened(reviews, damaged, job)
    assert (tmp_path / "reviews" / damaged / ".original" / "a.txt").exists()


def test_a_start_keeps_every_byte_and_number(tmp_path):
    start = start_of(data=bytes(range(256)), options={"columns": [2, "b"]})
    assert ReviewStart.model_validate_json(start.model_dump_json()) == start


def test_a_directory_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "reviews", tmp_path / "none" / "reviews"):
        with pytest.raises(DataError, match="cannot keep reviews in"):
            KeptReviews(path, CONFIG)


def test_a_review_that_would_take_too_many_bytes_is_not_begun(tmp_path, job):
    start = start_of(data=b"x" * 4_000)
    size = 8_000 + len(start.model_dump_json(exclude={"data"}))
    for most, is_begun in ((size, True), (size - 1, False)):
        directory = tmp_path / str(most)
        found = KeptReviews(directory, ServeConfig(max_review_bytes=most))
        with nullcontext() if is_begun else pytest.raises(HTTPError, match=f"it takes {size:,} bytes of at most"):
            found.begin(start, job)
        assert len([*directory.iterdir()]) == is_begun


def test_beginning_does_not_wait_for_another_review_to_be_opened(reviews, job):
    with reviews._changing:  # a large document is being read
        key = reviews.begin(start_of(), job)
    reviews.leave(opened(reviews, key, job))


def test_links_in_a_review_are_not_followed_to_tell_its_size(reviews, job, tmp_path):
    key = reviews.begin(start_of(), job)
    (tmp_path / "large").write_bytes(b"x")
    os.truncate(tmp_path / "large", CONFIG.max_review_bytes + 1)
    (tmp_path / "reviews" / key / "link").symlink_to(tmp_path / "large")
    (tmp_path / "reviews" / key / "loop").symlink_to("loop")
    reviews.require_room(key)


def test_beginning_is_refused_while_the_directory_is_missing(reviews, job, tmp_path):
    (tmp_path / "reviews").rename(tmp_path / "moved")
    with pytest.raises(HTTPError, match="this review cannot be begun: No such file or directory") as refused:
        reviews.begin(start_of(), job)
    assert refused.value.status == 503
    assert not (tmp_path / "reviews").exists()
