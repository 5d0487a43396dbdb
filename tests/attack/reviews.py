"""Attack: hostile requests to a review, others that change its document, a full disk, a kill; nothing saved is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from harness import Attack, Campaign, Case, Outcome, judged

MAKERS = {
    ".po": lambda sources: (
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        + "".join(f'msgid "{text}"\nmsgstr "{"ja" * (place == 1)}"\n\n' for place, text in enumerate(sources))
    ),
    ".xlf": lambda sources: (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file><body>'
        + "".join(
            f'<trans-unit id="{place}"><source>{text}</source>{"<target>ja</target>" * (place == 1)}</trans-unit>'
            for place, text in enumerate(sources)
        )
        + "</body></file></xliff>"
    ),
    ".html": lambda sources: "".join(f"<p>{text}</p>" for text in sources),
    ".srt": lambda sources: "".join(
        f"{place + 1}\n00:00:0{place},000 --> 00:00:0{place},500\n{text}\n\n" for place, text in enumerate(sources)
    ),
    ".json": lambda sources: json.dumps([*sources]),
}
"""Text of a document with these sources, by its extension; of a bilingual one the second is finished."""
BILINGUAL = (".po", ".xlf")
SOURCES = ("eins %d", "zwei", "drei", "zwei drei", "vier &lt;b&gt;", "drei")
TEXTS = (
    *(
        "one",
        "two %d",
        "",
        " ",
        "a\0b",
        "a\x1bb",
        "\ud800",
        "\u2028x",
        "\r\n\r\n1\n",
        "<g1>x</g2>",
        "<script>",
        "x" * 9_000,
    ),
    *("-->", "\ufffe", '"\\', "#, fuzzy", "]]>", "&amp;", "%s %n", "{0", "\U0001f600", "e\u0301"),
)
HEADERS: tuple[dict[str, str], ...] = (
    *({}, {}, {}, {}, {"host": "evil.example"}, {"origin": "null"}, {"origin": "http://evil.example"}),
    *({"sec-fetch-site": "cross-site"}, {"content-type": "text/plain"}, {"host": ""}, {"host": "localhost@evil"}),
)
FOREIGN = {"evil.example", "null", "http://evil.example", "cross-site", "text/plain", "", "localhost@evil"}
"""Values of headers with which nothing may change."""
PATHS = ("/", "/status", "/segments", "/segments?start=9&show=open", "/segments/99", "/segments/x", "/..%2f", "/%00")
BODIES = (b"", b"{}", b"[", b"null", b"\xff", b"[" * 9_999, b'{"text": 1}', b'{"number": 1e99, "text": "x"}')
STEPS = 25


def cases(campaign: Campaign) -> Iterator[Case]:
    """Review one document in every case."""
    for number in campaign.numbers():
        extension = list(MAKERS)[number % len(MAKERS)]
        arguments = {"work": str(campaign.directory / f"case-{number}"), "extension": extension}
        yield Case(number, extension, "reviews:attack", {**arguments, "seed": campaign.choose(number).random()})


def attack(work: str, extension: str, seed: float) -> dict[str, str]:
    """Send requests to a review that ends by a kill, and open it again; runs in a child."""
    from starlette.testclient import TestClient

    from clearhead.serving.review import review_app
    from clearhead.translation.review_files import open_review

    choose, root = Random(seed), Path(work)
    root.mkdir()
    path = root / f"in{extension}"
    path.write_text(MAKERS[extension](SOURCES), encoding="utf-8")
    output = None if extension in BILINGUAL else str(root / f"out{extension}")
    promised: dict[int, tuple[str, str]] = {}
    with open_review(str(path), output, {}) as files:
        review = _review(files)
        review.save()
        page = {"name": path.name, "output": path.name, "languages": ["de", "en"], "direction": ["ltr", "ltr"]}
        app = review_app(review, None, {}, page, hosts=["localhost"])  # type: ignore[arg-type]
        client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
        for _ in range(STEPS):
            if trouble := _step(choose, client, review, files, promised):
                return {"outcome": Outcome.wrong, "detail": trouble}
        review._is_dirty = False  # killed: what is not in the document is not written
        review.close()
    with open_review(str(path), output, {}) as files:
        again = _review(files)
        kept = {number: (again.text(number), again.state(number)) for number in range(len(again))}
        again.save()
        again.close()
        if again.problem:
            return {"outcome": Outcome.wrong, "detail": again.problem}
    if lost := {number: own for number, own in promised.items() if kept[number] != own}:
        return {"outcome": Outcome.wrong, "detail": f"lost {lost}: {[kept[number] for number in lost]}"}
    trouble = _trouble_of_output(files.output, again)
    return {"outcome": Outcome.wrong if trouble else Outcome.works, "detail": trouble}


def _review(files: Any) -> Any:
    """Open the session with a model that puts texts in capitals."""
    from clearhead.formats.document_files import read_document
    from clearhead.translation.documents import TranslatedSegment
    from clearhead.translation.result import Translation
    from clearhead.translation.review import Review

    document = files.read(read_document)
    made = [
        TranslatedSegment(one, "kept")
        if one.is_finished
        else TranslatedSegment(one, "translated", Translation(one.text, f"NEW {one.text}", -1.0, ()))
        for one in document.segments
    ]
    return Review(files, document, made)


def _step(choose: Random, client: Any, review: Any, files: Any, promised: dict[int, tuple[str, str]]) -> str:
    """Do one thing to a review; return what is wrong with its answer."""
    before = {number: (review.text(number), review.state(number)) for number in range(len(review))}
    headers = {"content-type": "application/json", **choose.choice(HEADERS)}
    is_foreign = not FOREIGN.isdisjoint(headers.values())
    match choose.choice(("edit", "edit", "edit", "undo", "get", "body", "outside", "full", "save")):
        case "edit":
            answer = _edit(choose, client, review, headers)
        case "undo":
            answer = client.post("/undo", content=b"{}", headers=headers)
        case "get":
            answer = client.get(choose.choice(PATHS))
            return f"{answer.status_code}" if answer.status_code >= 500 else ""
        case "body":
            where = choose.choice(("/segments/0", "/undo", "/check", "/status"))
            answer = client.post(where, content=choose.choice(BODIES), headers=headers)
        case "outside":
            return _changed_outside(choose, client, review, files, headers)
        case "full":
            with patch("os.fsync", side_effect=OSError(28, "No space left on device")):
                answer = _edit(choose, client, review, headers)
                is_foreign = True  # nothing may change
        case _:
            review.save()
            return review.problem or ""
    if answer.status_code >= 500 and answer.status_code != 503:
        return f"{answer.status_code}: {answer.text[:200]}"
    after = {number: (review.text(number), review.state(number)) for number in range(len(review))}
    if (is_foreign or answer.status_code >= 400) and after != before:
        return f"changed although refused with {answer.status_code}"
    if review.num_done != sum(state != "open" for _, state in after.values()):
        return f"{review.num_done} segments are counted as done"
    promised.clear()
    promised.update(after)
    return ""


def _edit(choose: Random, client: Any, review: Any, headers: dict[str, str]) -> Any:
    number = choose.randrange(len(review))
    revision = review.object(number)["revision"] + (choose.random() < 0.1)
    text, state = choose.choice((*TEXTS, review.text(number))), choose.choice(("accepted", "edited", "open"))
    body = json.dumps({"text": text, "state": state, "revision": revision})
    return client.post(f"/segments/{number}", content=body, headers=headers)


def _changed_outside(choose: Random, client: Any, review: Any, files: Any, headers: dict[str, str]) -> str:
    """Let another program write or remove the document meanwhile; put it back."""
    ours, mine = files.output.read_bytes(), choose.randbytes(choose.randrange(9))
    is_removed = choose.random() < 0.3
    if is_removed:
        os.remove(files.output)
    else:
        files.output.write_bytes(mine)
    answer = _edit(choose, client, review, headers)
    review.save()
    if (files.output.read_bytes() if files.output.exists() else None) != (None if is_removed else mine):
        return "what another program did to the document is overwritten"
    files.output.write_bytes(ours)
    return "a change of a changed document is taken" if answer.status_code == 200 else ""


def _trouble_of_output(output: Path, review: Any) -> str:
    """Return what another reading of the document says against the review; HTML has no segments without words."""
    from clearhead.formats.document_files import read_document
    from clearhead.text.placeholders import has_words

    found = len(read_document(str(output)).segments)
    least = sum(has_words(review.text(number)) for number in range(len(review)))
    is_exact = output.suffix != ".html"
    if found == len(review) or (not is_exact and least <= found < len(review)):
        return ""
    return f"{found} segments, and there were {len(review)}, {least} with words"


ATTACK = Attack("reviews", "reviews", full=60, few=5, run=judged(cases))
