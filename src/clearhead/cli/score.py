"""`clearhead score`: how probable the model finds given translations."""

from __future__ import annotations

from clearhead.cli.checks import refuse_missing
from clearhead.cli.console import progress
from clearhead.cli.options import BatchTokens, Device, Model, SourceFile, TargetFile, TargetLang, Threads

__all__ = ["score"]


def score(
    model: Model,
    source: SourceFile,
    target: TargetFile,
    target_lang: TargetLang = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print the model's own log-probability of each translation given its source, in nats, one a line.

    It is the sum over the tokens of the translation and its end; an empty translation scores its end alone, and that of
    a blank line is certain (0).
    """
    refuse_missing([source, target])

    from clearhead.corpora import display_name, open_output, read_parallel
    from clearhead.translator import Translator

    pairs = list(read_parallel([source], [target]))
    translator = Translator.load(model, device=device)
    with progress("scoring", total=len(pairs)) as advance:
        scores = translator.score(
            [pair.source for pair in pairs],
            [pair.target for pair in pairs],
            name=display_name(source),
            on_progress=advance,
            target_lang=target_lang,
            batch_tokens=batch_tokens,
        )
    with open_output(None) as out:
        out.writelines(f"{value:.6f}\n" for value in scores)
