"""What is attacked: small models with random weights, text for them, and a small training run.

The functions that need clearhead run in children; the others only make text.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GERMAN = ("null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "Żółw", "犬が")
ENGLISH = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "turtle", "dog")

LINES = ("drei null eins", "Żółw sieben!", "", "犬が neun acht sieben sechs", "unbekannte Wörter: naïve 42")
"""What the undamaged models translate for comparison."""

STRANGE = ("", " ", "\u3000", "drei " * 60, "犬が", "a", "x\u0301", "</s>", "42", "drei\u2028null", "👩‍👩‍👧‍👦")
"""Lines that are blank, long or in no vocabulary."""

KINDS = ("plain", "tagged")
"""The models; `plain` has a shortlist, `tagged` has language tags and learned positions, and ties nothing."""


def sentences(count: int, seed: int, longest: int = 12) -> list[str]:
    """Return random source sentences of 1 to `longest` words."""
    choose = random.Random(seed)
    return [" ".join(choose.choices(GERMAN, k=choose.randint(1, longest))) for _ in range(count)]


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Return random sentences with their translations, word by word."""
    words = dict(zip(GERMAN, ENGLISH, strict=True))
    return [(text, " ".join(words[word] for word in text.split())) for text in sentences(count, seed)]


def write_lines(path: Path, lines: Sequence[str]) -> str:
    """Write a text file and return its path."""
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return str(path)


def write_pairs(directory: Path, count: int = 300, seed: int = 1) -> dict[str, str]:
    """Write pairs as `source.txt`, `target.txt` and `pairs.tsv`; return their paths."""
    found = pairs(count, seed)
    return {
        "source": write_lines(directory / "source.txt", [source for source, _ in found]),
        "target": write_lines(directory / "target.txt", [target for _, target in found]),
        "pairs": write_lines(directory / "pairs.tsv", [f"{source}\t{target}" for source, target in found]),
    }


def train_arguments(run: str, corpus: str, *, steps: int = 30) -> list[str]:
    """Return a `clearhead train` command of a second; bit for bit the same each time."""
    return [
        *("train", "--out", run, "--pairs", corpus, "--preset", "tiny", "--device", "cpu", "--max-steps", str(steps)),
        *("--set", "model.d_model=16", "model.d_ff=23", "model.num_heads=2", "model.num_encoder_layers=1"),
        *("model.num_decoder_layers=1", "tokenizer.vocab_size=290", "data.valid_size=11", "train.precision='fp32'"),
        *("train.batch_tokens=128", "train.validate_every=14", "train.checkpoint_every=10"),
        *("train.validate_sentences=5", "train.average_last=2", "decode.beam_size=2", "decode.extra_length=3"),
    ]


def make_models(directory: str) -> dict[str, Any]:
    """Write the models and return what they make of `LINES`, by kind; runs in a child."""
    from clearhead.translation.golden import make_golden
    from clearhead.translation.translator import Translator

    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    text = write_pairs(root)
    references = {}
    for seed, kind in enumerate(KINDS, start=1):
        bundle = make_bundle(kind, seed)
        golden = make_golden(Translator(bundle), sentences(4, seed=3))
        save(root / kind, bundle, golden)
        if kind == "plain":
            learn_shortlist(root / kind, text)
        references[kind] = translations(root / kind)
    return references


def make_bundle(kind: str, seed: int, *, placeholders: bool = False, **settings: Any) -> Any:
    """Return a model with random weights, sharp enough that no two translations tie.

    Args:
        kind: One of `KINDS`.
        seed: Of the weights.
        placeholders: Whether it has tokens for placeholders.
        **settings: Of the model, beside those of its kind.
    """
    import torch

    from clearhead.bundle import Bundle
    from clearhead.config import DecodeConfig, ModelConfig
    from clearhead.model import Transformer
    from clearhead.tokenizers import Tokenizer

    tagged = kind == "tagged"
    texts = [text for pair in pairs(200, seed=5) for text in pair]
    tokenizer = Tokenizer.train(
        texts,
        kind="unigram" if tagged else "bpe",
        vocab_size=310,
        language_tags=("de", "fr") if tagged else (),
        placeholders=placeholders,
    )
    shape: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "d_model": 24, "num_heads": 4, "d_ff": 40}
    shape |= {"num_encoder_layers": 2, "num_decoder_layers": 1, "num_placeholders": tokenizer.num_placeholders}
    shape |= (
        {"positions": "learned", "max_positions": 128, "tying": "none", "attention_bias": True, "output_bias": True}
        if tagged
        else {"norm": "pre"}
    )
    torch.manual_seed(seed)
    model = Transformer(ModelConfig(**{**shape, **settings})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.mul_(2.0 if weight is model.source_embedding.weight else 4.0)
    decode = DecodeConfig(extra_length=5, beam_size=2, target_lang="fr" if tagged else None)
    return Bundle(model, tokenizer, decode, {"which": seed})


def save(directory: Path, bundle: Any, golden: Sequence[Any] = ()) -> None:
    """Write a model directory."""
    from clearhead.bundle import save_bundle

    save_bundle(directory, bundle, golden=golden, card="# A small model\n")


def learn_shortlist(model: Path, text: dict[str, str]) -> None:
    """Run `clearhead optimize`."""
    from child import command

    code, _, errors = command("optimize", model, "--source", text["source"], "--target", text["target"], "--common", 20)
    assert code == 0, errors


def translations(model: Path) -> dict[str, Any]:
    """Return what a model makes of `LINES`, without and with its shortlist if it has one, as plain values."""
    from clearhead.translation.translator import Translator

    translator = Translator.load(model)
    found = {"full": translator.translate(LINES)}
    if (model / "shortlist.safetensors").exists():
        found["shortlist"] = translator.translate(LINES, shortlist=True)
    return {name: [[one.text, one.score] for one in lines] for name, lines in found.items()}


def tree_digest(root: Path, *, without: Sequence[str] = ()) -> dict[str, str]:
    """Return every name below a directory with the hash of what it holds, for files, or its kind."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.split("/")[0] in without:
            continue
        if path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "directory" if path.is_dir() else "special"
    return found


def differing(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the names that two trees do not share."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))
