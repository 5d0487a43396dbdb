"""`clearhead verify`: check that a model directory is intact and that its translations have not changed."""

from __future__ import annotations

import typer

from clearhead.cli.console import progress
from clearhead.cli.options import Device, Model, Threads
from clearhead.errors import ModelError


def verify(model: Model, device: Device = "auto", threads: Threads = None) -> None:
    """Check the files of a model and its golden sentences; exit with status 1 if a check fails.

    Examples:
      clearhead verify runs/de-en
      clearhead verify models/de-en
      clearhead verify runs/de-en --device cpu
    """
    from clearhead.bundle.model_directory import model_directory
    from clearhead.translation.golden import check_golden
    from clearhead.translation.small_model import read_beside
    from clearhead.translation.translator import Translator

    directory = model_directory(model)
    translator = Translator.load(directory, device=device)  # refuses what does not fit together
    tokenizer, golden = translator.bundle.tokenizer, translator.bundle.golden
    _passed("format", f"version {translator.bundle.format_version}")
    _passed("checksums", "every file but the card is as it was written")
    parameters, stored_in = translator.bundle.weights.num_parameters(), translator.bundle.precision or "float32"
    _passed("weights", f"{parameters:,} parameters in {stored_in}, in the shapes that config.json names")
    _passed("tokenizer", f"{tokenizer.vocab_size:,} pieces, the ones the weights were trained with")
    beside = ("shortlist", "alignment head", "quality")
    if there := [name for name, file in zip(beside, read_beside(translator.bundle), strict=True) if file is not None]:
        _passed("other files", f"{', '.join(there)}: made for this model")
    for name in translator.bundle.leftovers():
        typer.echo(f"ignored {'other files':<17}  {name}: not part of this model")
    if not golden:
        typer.echo("none    golden sentences   the model was written without any")
        return
    with progress("translating the golden sentences"):
        problems = check_golden(translator, golden)
    if problems:
        raise ModelError(
            f"{directory} does not translate as it did when it was made ({len(problems)} of {len(golden)} golden "
            f"sentences):\n  " + "\n  ".join(problems)
        )
    _passed("golden sentences", f"all {len(golden)} are translated as when the model was made")


def _passed(check: str, result: str) -> None:
    typer.echo(f"passed  {check:<17}  {result}")
