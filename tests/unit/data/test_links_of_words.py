"""Given links on their way into batches: they stay with their words through cleaning, altered copies and encoding."""

from __future__ import annotations

import numpy as np
import pytest

from clearhead.config import Config
from clearhead.data import augment
from clearhead.data.augment import altered
from clearhead.data.batches import collate
from clearhead.data.inputs import changed_inputs
from clearhead.data.prepare import open_prepared, prepare
from clearhead.data.store import PairStore, StoreWriter
from clearhead.formats import SentencePair
from clearhead.text.placeholder_masking import protect_pair

NOUNS = ["Hund", "Kätzchen", "Stadt", "Donaudampfschiff", "Berg"]
VERBS = ["sieht", "sucht", "malt"]


def corpus() -> list[tuple[str, str, str]]:
    """Return distinct pairs whose target has the words backwards, and links that say so of all but the last word."""
    found = []
    for number in range(120):
        words = [NOUNS[number % 5], VERBS[number // 5 % 3], f"<b>%{number}d</b>", NOUNS[number // 15 % 5] + f"{number}"]
        target = [word.upper() if word in NOUNS + VERBS else word for word in reversed(words)]
        found.append((" ".join(words), " ".join(target), "3-0 2-1 1-2"))
    return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Return what becomes of the corpus, with rows that cleaning drops in between, and of the same without links."""
    directory = tmp_path_factory.mktemp("links")
    rows = corpus()
    rows[7:7] = [("", "x", ""), (*rows[3][:2], "0-0"), ("x", "y" * 400, "0-0")]
    valid = [("Ein Mann", "A man", "0-0")]
    for name, some in (("train", rows), ("valid", valid)):
        for index, side in enumerate(("de", "en", "links")):
            (directory / f"{name}.{side}").write_text("".join(f"{row[index]}\n" for row in some), encoding="utf-8")
    data = {f"{role}": [str(directory / f"train.{side}")] for role, side in (("source", "de"), ("target", "en"))}
    data |= {f"valid_{role}": [str(directory / f"valid.{side}")] for role, side in (("source", "de"), ("target", "en"))}
    made = []
    for name, more in (("linked", {"alignments": [str(directory / "train.links")]}), ("plain", {})):
        settings = {"data": {**data, **more}, "tokenizer": {"placeholders": True, "vocab_size": 340}}
        config = Config.from_dict(settings)
        made.append((config, prepare(config, directory / name / "data"), directory / name / "data"))
    return made


def words_with_tokens(text, spans):
    """Return for each token the words of the text, parted by spaces, that contain a character of it."""
    return [{text[: at + 1].count(" ") for at in range(*span) if text[at] != " "} for span in spans]


def test_tokens_are_linked_as_their_words_are(prepared):
    (_, data, _), _ = prepared
    store, tokenizer = data.train, data.tokenizer
    assert tokenizer.num_placeholders
    assert data.report["links"]["pairs"] == len(store) == 120
    num_tokens = 0
    for row in range(len(store)):
        source, target = store.source(row), store.target(row)
        signs = protect_pair(source, target)
        assert signs != (source, target)
        # Every placeholder here is a word without spaces, and so are the signs that stand for it.
        left = words_with_tokens(signs[0], tokenizer.source_spans(store.source_ids(row), signs[0]))
        right = words_with_tokens(signs[1], tokenizer.target_spans(store.target_ids(row), signs[1]))
        links = {(3, 0), (2, 1), (1, 2)}
        expected = {
            (s, t)
            for s, some in enumerate(left)
            for t, others in enumerate(right)
            if any((a, b) in links for a in some for b in others)
        }
        assert {tuple(link) for link in store.links(row).tolist()} == expected
        assert len(expected) > 3
        num_tokens += len({t for _, t in expected})
    assert data.report["links"]["target_tokens"] == num_tokens


def test_without_links_the_store_is_what_it_was_and_with_them_it_is_reopened(prepared):
    (config, linked, directory), (_, plain, plain_directory) = prepared
    assert (len(linked.valid), linked.valid.links(0), plain.train.links(0)) == (1, None, None)
    assert "links" not in plain.report
    back = open_prepared(directory)
    assert [back.train.links(row).tolist() for row in range(120)] == [
        linked.train.links(row).tolist() for row in range(120)
    ]
    for name in ("source", "target"):
        texts = [[getattr(one.train, name)(row) for row in range(120)] for one in (linked, plain)]
        assert texts[0] == texts[1]
    assert (plain_directory / "valid.arrow").read_bytes() == (directory / "valid.arrow").read_bytes()
    assert changed_inputs(linked.report, config, config) == []
    path = config.data.alignments[0]
    without = Config.from_dict({"data": {**config.data.model_dump(), "alignments": []}})
    assert changed_inputs(linked.report, config, without) == [
        f"data.alignments: files named before: 1 ({path}), and now: 0 (none)"
    ]


def test_altered_copies_have_the_links_of_their_words(monkeypatch):
    monkeypatch.setattr(augment, "_SHARE_JOINED", 1.0)
    shares = {kind: (1.0, alter) for kind, (_, alter) in augment._ALTERATIONS.items()}
    monkeypatch.setattr(augment, "_ALTERATIONS", shares)
    pairs = [
        SentencePair("<2en> Er hat 7 Hunde .", "He has 7 dogs .", "f:1", "en", 6, links=((0, 0), (2, 2), (4, 4))),
        SentencePair("犬が走る。", "A dog runs.", "f:2", links=((0, 1), (2, 2), (4, 2))),
        SentencePair("Nein.", "No.", "f:3"),
    ]
    pairs = [pairs[0], *[SentencePair(p.source, p.target, p.origin, "en", 0, links=p.links) for p in pairs[1:]]]
    found: dict[str, list[SentencePair]] = {}
    for kind, pair in altered(pairs * 5, seed=1, max_characters=3_000):
        found.setdefault(kind, []).append(pair)
    for pair in found["joined"]:
        # Each sentence's links come again behind the words of those before it.
        expected, at = [], [0, 0]
        rest = pair.text
        while rest:
            part = next(one for one in pairs if rest.startswith(one.text))
            rest = rest[len(part.text) :].lstrip()
            expected += [(at[0] + a, at[1] + b) for a, b in part.links or ()]
            at[0] += {"Er": 5, "犬が": 5, "Ne": 1}[part.text[:2]]
            at[1] += len(part.target.split())
        assert list(pair.links or ()) == expected
    assert any(len(pair.links or ()) > 3 for pair in found["joined"])
    ends = {pair.text: pair.links for pair in found["without its end mark"]}
    assert ends == {"Er hat 7 Hunde": ((0, 0), (2, 2)), "犬が走る": ((0, 1), (2, 2)), "Nein": None}
    assert {pair.links for pair in found["another number"]} == {((0, 0), (2, 2), (4, 4))}


def test_a_batch_shares_each_target_token_among_its_links(tmp_path):
    links = [[(0, 1), (2, 1), (1, 0)], [], [(1, 0)]]
    with StoreWriter(tmp_path / "s.arrow", with_links=True) as writer:
        for number, some in enumerate(links):
            writer.append("a", "b", [5, 6, 7, 2], [8, 9, 2][: 3 - number % 2], some)
    store = PairStore.open(tmp_path / "s.arrow")
    batch = collate(store, [2, 1, 0], pad_id=0, bos_id=1).links
    found = {tuple(place): share for place, share in zip(batch.places.tolist(), batch.shares.tolist(), strict=True)}
    assert found == {(0, 0, 1): 1.0, (2, 1, 0): 0.5, (2, 1, 2): 0.5, (2, 0, 1): 1.0}
    assert batch.num_target_tokens == 3
    empty = collate(store, np.array([1]), pad_id=0, bos_id=1).links
    assert (empty.places.shape, empty.num_target_tokens) == ((0, 3), 0)
