"""Text for preparation in pieces of a few rows, with a row for every reason of dropping."""

from __future__ import annotations

import random

import pytest

from clearhead.config import Config
from clearhead.data import staged_corpus, survey, tokenised

WORDS = ["Hund", "Katze", "Häuser", "Baum", "Kind", "<b>", "3,5", "Straße", "Ｂall", "%s", "Berg", "u\u0308ber", "12"]
PIECE = 7
"""Rows of a piece."""


def cut_small(patch: pytest.MonkeyPatch) -> None:
    """Let the work be cut into pieces of `PIECE` rows, which any number of processes share."""
    patch.setattr(staged_corpus, "PIECE_ROWS", PIECE)
    patch.setattr(survey, "LEAST_PAIRS", 1)
    patch.setattr(tokenised, "LEAST_PAIRS", 1)
    patch.setattr(staged_corpus, "PAIRS_SHARED_FROM", 1)


def lines(count: int, seed: int, tags=("<2nl> ", "<2de> ")) -> list[str]:
    """Rows of two columns, with a row for every reason of dropping in every stretch of 23 rows."""
    choose = random.Random(seed)
    rows: list[str] = []
    for number in range(count):
        words = choose.choices(WORDS, k=choose.randint(2, 9))
        source, target = f"{number} {' '.join(words)}.", f"{' '.join(words[::-1]).lower()} {number}."
        match number % 23:
            case 3:
                target = " "  # empty
            case 5:
                target = "lang " * 60  # too many characters
            case 7:
                source = "viel " * 25  # length ratio
            case 11 if rows:
                rows.append(rows[-1])  # duplicate
                continue
            case 13:
                source = "Ein Satz der Validierung."  # leakage
            case 17:
                source = target = f"{number} {'9876543210' * 10}"  # too many tokens: each digit is one
            case 19:
                rows.append(f"<2xx> {source}\t{target}")  # unknown tag
                continue
        rows.append(f"{tags[number % len(tags)]}{source}\t{target}")
    rows[count // 2] = "no pair"  # malformed; at most 1 % may be
    return rows


def of_pairs(tmp_path) -> Config:
    """Pairs of two languages from two files, each with a weight, beside general text; some are excluded."""
    for name, count, seed in (("news", 301, 1), ("chat", 127, 2), ("general", 113, 3)):
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines(count, seed)) + "\n", encoding="utf-8")
    (tmp_path / "held.txt").write_text("Ein Satz der Validierung.\n")
    data = {
        "pairs": [str(tmp_path / "news.tsv"), str(tmp_path / "chat.tsv")],
        "weights": [1, 3],
        "general_pairs": [str(tmp_path / "general.tsv")],
        "general_share": 0.2,
        "exclude": [str(tmp_path / "held.txt")],
        "max_characters": 250,
        "max_length": 90,
        "max_ratio": 4.0,
    }
    tokenizer = {"language_tags": ["de", "nl"], "vocab_size": 340, "placeholders": True}
    return Config.from_dict({"data": data, "tokenizer": tokenizer, "train": {"seed": 5}, "from_model": "model"})


def of_linked_lines(tmp_path) -> Config:
    """Line-aligned text with links of words, none of them in every fifth line."""
    rows = [row.split("\t") for row in lines(173, 4, tags=("",)) if "\t" in row]
    columns = [source for source, _ in rows], [target for _, target in rows]
    links = [
        " ".join(f"{at}-{at}" for at in range(min(len(target.split()), number % 5)))
        for number, (_, target) in enumerate(rows)
    ]
    for name, column in zip(("a.de", "a.nl", "a.links"), (*columns, links), strict=True):
        (tmp_path / name).write_text("\n".join(column) + "\n", encoding="utf-8")
    paths = {
        role: [str(tmp_path / name)]
        for role, name in zip(("source", "target", "alignments"), ("a.de", "a.nl", "a.links"), strict=True)
    }
    return Config.from_dict({"data": {**paths, "valid_size": 5}, "tokenizer": {"vocab_size": 300}})
