"""`clearhead optimize`: learn a shortlist for faster decoding, and select the attention head for word alignment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.checks import given, refuse_missing, refuse_overwriting, refuse_untold_language
from clearhead.cli.console import progress
from clearhead.cli.from_settings import option
from clearhead.cli.options import BatchOptions, Device, Model, OptionGroup, Threads, with_option_groups
from clearhead.errors import ConfigError, DataError

if TYPE_CHECKING:
    from clearhead.config import DecodeConfig
    from clearhead.decoding.cross_attention import AlignmentHead
    from clearhead.formats import SentencePair
    from clearhead.translation.translator import Translator


MOST_LOOKED_AT = 1_000
"""Number of pairs searched for short ones, by which the alignment head is selected."""


class SizeOptions(OptionGroup):
    """How many target tokens are allowed."""

    per_token: int | None = typer.Option(
        None,
        metavar="N",
        min=1,
        max=100_000,
        help="Maximum number of target tokens that a source token allows.",
        show_default="20",
    )
    common: int | None = typer.Option(
        None,
        metavar="N",
        min=1,
        max=10_000_000,
        help="Number of most frequent target tokens, which are always allowed.",
        show_default="1000",
    )


@with_option_groups
def optimize(
    model: Model,
    source: Annotated[str, option("data.source", metavar="FILE")],
    target: Annotated[str, option("data.target", metavar="FILE")],
    decoding: BatchOptions,
    size: SizeOptions,
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

    from clearhead.bundle.model_directory import model_directory
    from clearhead.bundle.side_files import ALIGNMENT_FILE, SHORTLIST_FILE, add_side_files
    from clearhead.decoding import learn_shortlist
    from clearhead.files import display_name
    from clearhead.formats import read_parallel
    from clearhead.translation.alignment import save_head
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
    usable, counts = _usable(translator, pairs, config, (display_name(source), display_name(target)))
    source_ids, target_ids = [ids for ids, _ in usable.values()], [ids for _, ids in usable.values()]
    with progress("aligning", total=len(usable)) as advance:
        shortlist = learn_shortlist(
            translator.bundle.own_module,
            source_ids,
            target_ids,
            **given(**vars(size)),
            batch_tokens=config.batch_tokens,
            on_progress=advance,
        )
    head, agreement = _chosen_head(translator, [pairs[row] for row in list(usable)[:MOST_LOOKED_AT]], config)
    chosen = partial(save_head, head=head, agreement=agreement)
    add_side_files(directory, {SHORTLIST_FILE: shortlist.save, ALIGNMENT_FILE: chosen}, translator.bundle.identity())
    covered, allowed = shortlist.coverage(source_ids, target_ids)
    per_row = (shortlist.rows >= 0).sum(axis=1)[[token for ids in source_ids for token in ids]].mean()
    typer.echo(f"learned from       {counts}")
    typer.echo(f"always allowed     {len(shortlist.common):,} tokens")
    typer.echo(f"by a source token  {per_row:,.1f} tokens on average")
    typer.echo(f"in a sentence      {allowed:,.1f} tokens on average, of {translator.bundle.tokenizer.vocab_size:,}")
    typer.echo(f"coverage           {100 * covered:.2f}% of the target tokens in this text")
    typer.echo(f"words aligned by   {head}; {100 * agreement:.1f}% agreement with occlusion")
    typer.echo(f"written            {directory / SHORTLIST_FILE}, {ALIGNMENT_FILE}")


def _usable(
    translator: Translator, pairs: list[SentencePair], config: DecodeConfig, names: tuple[str, str]
) -> tuple[dict[int, tuple[list[int], list[int]]], str]:
    """Return the usable pairs by row, as ids, and how many there are.

    Raises:
        DataError: If there are none.
    """
    parts = translator.pair_encoder.split_sources([pair.source for pair in pairs], config.target_lang, name=names[0])
    rows = [row for row, (_, text) in enumerate(parts) if text.strip() and pairs[row].target.strip()]
    sides = translator.pair_encoder.encode([parts[row] for row in rows], [pairs[row].target for row in rows], config)
    usable = {
        row: (source, target)
        for row, source, target in zip(rows, *sides, strict=True)
        if max(len(source), len(target)) <= config.max_input_tokens
    }
    num_blank, num_long = len(parts) - len(rows), len(rows) - len(usable)
    if not usable:
        raise DataError(
            f"{names[0]} and {names[1]} hold no pair to learn from: of {len(pairs):,}, {num_blank:,} have a blank side "
            f"and {num_long:,} are too long"
        )
    return usable, f"{len(usable):,} pairs; {num_long:,} too long, {num_blank:,} with a blank side"


def _chosen_head(
    translator: Translator, pairs: list[SentencePair], config: DecodeConfig
) -> tuple[AlignmentHead, float]:
    """Return the head for word alignment, and its agreement with occlusion."""
    from clearhead.translation.alignment import choose_head, guided_head_of

    sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
    encoded, guided = translator.pair_encoder.pairs(*sides, config), guided_head_of(translator.bundle)
    return choose_head(translator.bundle.own_module, encoded, batch_tokens=config.batch_tokens, guided=guided)
