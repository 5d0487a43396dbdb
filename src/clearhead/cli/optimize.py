"""`clearhead optimize`: learn a shortlist for faster decoding, and select the attention head for word alignment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.checks import refuse_missing, refuse_overwriting, refuse_untold_language
from clearhead.cli.console import progress
from clearhead.cli.from_settings import option
from clearhead.cli.options import BatchOptions, Device, Model, Threads, with_option_groups
from clearhead.errors import ConfigError, DataError

if TYPE_CHECKING:
    from clearhead.config import DecodeConfig
    from clearhead.translation.translator import Translator


MOST_LOOKED_AT = 1_000
"""Number of pairs searched for short ones, by which the alignment head is selected."""


@with_option_groups
def optimize(
    model: Model,
    source: Annotated[str, option("data.source", metavar="FILE")],
    target: Annotated[str, option("data.target", metavar="FILE")],
    decoding: BatchOptions,
    per_token: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=100_000,
            help="Maximum number of target tokens that a source token allows.",
            show_default="20",
        ),
    ] = None,
    common: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=10_000_000,
            help="Number of most frequent target tokens, which are always allowed.",
            show_default="1000",
        ),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Learn a shortlist for --shortlist, and select the attention head for --alignments, from parallel text.

    Examples:
      clearhead optimize runs/de-en --source train.de --target train.en
      clearhead translate runs/de-en input.txt -o output.txt --shortlist
      clearhead translate runs/de-en input.txt -o output.txt --alignments output.links

    Use the training data if possible. The shortlist contains the target tokens that each source token may translate to;
    it is learned from the model's cross-attention. The alignment head is selected on the first short pairs, unless the
    model has a head trained for alignment (docs/alignment.md). The results are written to the model directory and
    replace those of an earlier run of this command; its list of files changes, and nothing else in the directory.
    """
    refuse_missing([source, target])

    from clearhead.bundle import ALIGNMENT_FILE, SHORTLIST_FILE, add_side_files, model_directory
    from clearhead.decoding import learn_shortlist
    from clearhead.decoding.shortlist_learning import COMMON, PER_TOKEN
    from clearhead.files import display_name
    from clearhead.formats import read_parallel
    from clearhead.translation.alignment import choose_head, guided_head_of, save_head
    from clearhead.translation.translator import Translator

    directory = model_directory(model)
    for file in (SHORTLIST_FILE, ALIGNMENT_FILE):
        refuse_overwriting(str(directory / file), [source, target])
    pairs = list(read_parallel([source], [target]))
    translator = Translator.load(directory, device=device)
    if not translator.bundle.config.is_encoder_decoder:
        raise ConfigError("a shortlist is learned from cross-attention, which an encoder or a decoder alone has not")
    refuse_untold_language(translator, decoding.source_lang)
    config = translator.decode_config(decoding.settings)
    parts = translator.pair_encoder.split_sources(
        [pair.source for pair in pairs], config.target_lang, name=display_name(source)
    )
    rows, kept, num_blank, num_long = _usable(translator, parts, [pair.target for pair in pairs], config)
    if not kept:
        raise DataError(
            f"{display_name(source)} and {display_name(target)} hold no pair to learn from: of {len(pairs):,}, "
            f"{num_blank:,} have a blank side and {num_long:,} are too long"
        )
    source_ids, target_ids = [ids for ids, _ in kept], [ids for _, ids in kept]
    with progress("aligning", total=len(kept)) as advance:
        shortlist = learn_shortlist(
            translator.bundle.own_module,
            source_ids,
            target_ids,
            per_token=PER_TOKEN if per_token is None else per_token,
            common=COMMON if common is None else common,
            batch_tokens=config.batch_tokens,
            on_progress=advance,
        )
    looked_at = [pairs[row] for row in rows[:MOST_LOOKED_AT]]
    sides = [pair.source for pair in looked_at], [pair.target for pair in looked_at]
    encoded = translator.pair_encoder.pairs(*sides, config)
    guided = guided_head_of(translator.bundle)
    head, agreement = choose_head(
        translator.bundle.own_module, encoded, batch_tokens=config.batch_tokens, guided=guided
    )
    chosen = partial(save_head, head=head, agreement=agreement)
    add_side_files(directory, {SHORTLIST_FILE: shortlist.save, ALIGNMENT_FILE: chosen}, translator.bundle.identity())
    covered, allowed = shortlist.coverage(source_ids, target_ids)
    per_row = (shortlist.rows >= 0).sum(axis=1)[[token for ids in source_ids for token in ids]].mean()
    typer.echo(f"learned from       {len(kept):,} pairs; {num_long:,} too long, {num_blank:,} with a blank side")
    typer.echo(f"always allowed     {len(shortlist.common):,} tokens")
    typer.echo(f"by a source token  {per_row:,.1f} tokens on average")
    typer.echo(f"in a sentence      {allowed:,.1f} tokens on average, of {translator.bundle.tokenizer.vocab_size:,}")
    typer.echo(f"coverage           {100 * covered:.2f}% of the target tokens in this text")
    typer.echo(f"words aligned by   {head}; {100 * agreement:.1f}% agreement with occlusion")
    typer.echo(f"written            {directory / SHORTLIST_FILE}, {ALIGNMENT_FILE}")


def _usable(
    translator: Translator, parts: list[tuple[str | None, str]], targets: list[str], config: DecodeConfig
) -> tuple[list[int], list[tuple[list[int], list[int]]], int, int]:
    """Return the usable pairs as rows and as ids, and the numbers of pairs with a blank side and of too long pairs."""
    rows = [row for row, (_, text) in enumerate(parts) if text.strip() and targets[row].strip()]
    source_ids, target_ids = translator.pair_encoder.encode(
        [parts[row] for row in rows], [targets[row] for row in rows], config
    )
    usable = {
        row: (source, target)
        for row, source, target in zip(rows, source_ids, target_ids, strict=True)
        if max(len(source), len(target)) <= config.max_input_tokens
    }
    return list(usable), list(usable.values()), len(parts) - len(rows), len(rows) - len(usable)
