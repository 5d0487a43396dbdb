"""`clearhead demo`: generate a corpus, train a model and translate with it, in a few minutes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.console import notice, progress
from clearhead.cli.options import OUTPUT, Threads
from clearhead.runtime.installation import program

if TYPE_CHECKING:
    from clearhead.formats import SentencePair


_PAIRS = 120_000
_VALID, _TEST = 200, 1_000
_STEPS = 1_600  # once through the corpus; not so many minutes, so that every machine makes about the same model
_CORPUS_SEED, _SEED = 1, 1
_SHOWN = 12
_EXPLAINED = "<2fr> Thursday, May 3, 2018"


def demo(
    out: Annotated[Path, typer.Option(*OUTPUT, help="Run directory to create.")] = Path("runs/demo"),
    minutes: Annotated[
        float | None,
        typer.Option(min=0.1, max=10_000_000, help=f"Train for this many minutes instead of {_STEPS:,} steps."),
    ] = None,
    threads: Threads = None,
) -> None:
    """Generate a corpus of dates, amounts and lists in twelve languages, train a model on it, translate and explain.

    Examples:
      clearhead demo
      clearhead demo -o runs/mine --minutes 10
      clearhead serve --demo
    """
    from clearhead.data.demo_corpus import generate
    from clearhead.evaluation.metrics import exact_match
    from clearhead.files import write_text
    from clearhead.inspection.explain import explain
    from clearhead.text.languages import LOCALES
    from clearhead.training.run import train_from_values
    from clearhead.training.run_directory import claim
    from clearhead.translation.translator import Translator

    claim(out)
    corpus = generate(_PAIRS, seed=_CORPUS_SEED, num_test=_VALID + _TEST)
    files = {"train": corpus.train, "valid": corpus.test[:_VALID], "test": corpus.test[_VALID:]}
    for name, pairs in files.items():
        _write_once(out / "corpus" / f"{name}.tsv", pairs)
    train_from_values(
        {
            "out": str(out),
            "preset": "tiny",
            # The sentences are always new, so nothing is overfitted in minutes; a shallow decoder makes faster steps.
            "model": {"dropout": 0.0, "num_encoder_layers": 3, "num_decoder_layers": 2},
            "data": {"pairs": [str(out / "corpus" / "train.tsv")], "valid_pairs": [str(out / "corpus" / "valid.tsv")]},
            # Years and hours are pieces of their own: 16:00 and 4:00 PM differ in one.
            "tokenizer": {"language_tags": list(LOCALES), "vocab_size": 3_000, "split_digits": False},
            "train": {
                **({"max_steps": _STEPS} if minutes is None else {"max_minutes": minutes}),
                "seed": _SEED,
                "batch_tokens": 512,
                "warmup_steps": 200,
                "weight_decay": 0.1,  # of a corpus seen twice little is learned by heart
                "validate_every": 800,
            },
            # Dates are no sentences, and `27 de fev. de 2041` is not two of them; longer ones are not more often right.
            "decode": {"target_lang": "de", "split": "never", "length_penalty": 0.6},
        }
    )

    translator = Translator.load(out)
    held_out = files["test"]
    with progress("translating held-out sentences", total=len(held_out)) as advance:
        outputs = translator.translate([pair.source for pair in held_out], scores=False, raw=True, on_progress=advance)
    texts = [translation.text for translation in outputs]
    score = exact_match(texts, [pair.target for pair in held_out])
    typer.echo(f"\nExact match on {len(held_out):,} held-out sentences: {score:.1f} %\n")
    for pair, text in list(zip(held_out, texts, strict=True))[:_SHOWN]:
        mark = "" if text == pair.target else f"   (should be: {pair.target})"
        typer.echo(f"  {pair.source}\n      {text}{mark}")
    page = out / "explain.html"
    write_text(page, explain(translator, _EXPLAINED).to_html())
    notice(f"model {out / 'model'}, report {out / 'report.html'}")
    command = f"{program()} translate {shlex.quote(str(out))}"
    typer.echo(
        f"\nTry it (a tag such as <2fr> names the language; without one it is German):\n"
        f'  echo "Thursday, May 3, 2018" | {command}\n'
        f'  echo "<2ja> Thursday, May 3, 2018" | {command}\n'
        f"Look inside, at what every head and every step did with {_EXPLAINED!r}: open {page}"
    )


def _write_once(path: Path, pairs: list[SentencePair]) -> None:
    """Write a part of the corpus; keep the file of an earlier demo, and reject any other existing file."""
    from clearhead.errors import DataError
    from clearhead.formats import read_pairs, write_tsv

    if not path.exists():
        write_tsv(str(path), pairs)
    elif not path.is_file() or _sides(read_pairs([str(path)])) != _sides(pairs):
        raise DataError(f"{path} is there and is not this demo's corpus; name a new directory with --out")


def _sides(pairs: Iterable[SentencePair]) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in pairs]
