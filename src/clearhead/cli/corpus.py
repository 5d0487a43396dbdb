"""`clearhead corpus`: statistics of a corpus, quality checks, cleaning, and conversion to other formats."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.checks import refuse_missing, refuse_mixing, refuse_other_than_page, refuse_overwriting
from clearhead.cli.console import notice, progress
from clearhead.cli.from_settings import option
from clearhead.cli.options import OUTPUT, Json, OptionGroup, PairFormat, Threads, with_option_groups
from clearhead.errors import ConfigError
from clearhead.files import is_standard_output

if TYPE_CHECKING:
    from clearhead.data.doctor.row_list import FindingList
    from clearhead.formats import PairFile, SentencePair


SEARCHED = "Searched for pairs that the corpus also contains."

Paths = list[str] | None
Files = Annotated[
    Paths,
    typer.Argument(
        metavar="FILE",
        help="Files that contain both sides, in any format of `train --pairs`; - is TSV from standard input.",
    ),
]


class CorpusOptions(PairFormat):
    """Line-aligned files of a corpus, and how its files of pairs are read."""

    source = option("data.source", metavar="FILE", more="May be repeated.")
    target = option("data.target", metavar="FILE", more="Once for each --source.")


class SplitOptions(OptionGroup):
    """The other parts of a split, which are searched for pairs of the corpus."""

    valid_pairs = option("data.valid_pairs", metavar="FILE", more=SEARCHED)
    valid_source = option("data.valid_source", metavar="FILE", more=SEARCHED)
    valid_target = option("data.valid_target", metavar="FILE", more=SEARCHED)
    test_pairs: Paths = typer.Option(None, metavar="FILE", help=f"Test files that contain both sides. {SEARCHED}")
    test_source: Paths = typer.Option(None, metavar="FILE", help=f"Test source text. {SEARCHED}")
    test_target: Paths = typer.Option(None, metavar="FILE", help=f"Translations of the test source text. {SEARCHED}")

    @property
    def named(self) -> dict[str, tuple[Paths, Paths, Paths]]:
        """Pairs, source and target files of each part that was given."""
        splits = {
            "valid": (self.valid_pairs, self.valid_source, self.valid_target),
            "test": (self.test_pairs, self.test_source, self.test_target),
        }
        return {name: files for name, files in splits.items() if any(files)}


@with_option_groups
def stats(files: Files = None, *, options: CorpusOptions, as_json: Json = False) -> None:
    """Print statistics of a corpus: numbers of rows, and sizes of the texts.

    Examples:
      clearhead corpus stats pairs.tsv
      clearhead corpus stats --source train.de --target train.en
      clearhead corpus stats memory.tmx --json
    """
    corpus = _Corpus(options)
    rows = corpus.opened(files, options.source, options.target)

    from clearhead.data.doctor import measure
    from clearhead.data.doctor.text_report import size_lines

    with progress("measuring") as advance:
        result = measure(rows, advance)
    for _, problem in corpus.unequal:
        notice(f"{problem}; the lines without a partner are not counted")
    _print({"files": corpus.read_as, **result.sizes()} if as_json else size_lines(result))


@with_option_groups
def check(
    files: Files = None,
    *,
    options: CorpusOptions,
    splits: SplitOptions,
    as_json: Json = False,
    output: Annotated[
        str | None, typer.Option(*OUTPUT, metavar="PAGE.html", help="Also write the report as an HTML page.")
    ] = None,
    all_rows: Annotated[
        str | None,
        typer.Option(
            "--all",
            metavar="FILE",
            help="Also list every row of every finding: tab-separated with a header, or JSON lines if the file ends "
            "in .jsonl.",
        ),
    ] = None,
    meaning: Annotated[
        bool | None,
        typer.Option(
            "--meaning/--no-meaning",
            help="Also compare the meanings of both sides, which takes minutes (needs the extra `meaning`).",
            show_default="where lengths and names cannot tell which rows are shifted",
        ),
    ] = None,
    threads: Threads = None,
) -> None:
    """Find problems in a corpus, and suggest remedies.

    Examples:
      clearhead corpus check pairs.tsv
      clearhead corpus check --source train.de --target train.en -o report.html
      clearhead corpus check train.tsv --valid-pairs val.tsv

    Among the problems are misaligned rows, leakage between splits, garbled characters, wrong language or script,
    duplicates, copies and differing placeholders; each is reported with examples. docs/data-doctor.md defines them. The
    exit status is 0 even if problems are found.
    """
    if output is not None:
        refuse_other_than_page("--output", output)
    corpus = _Corpus(options)
    rows = corpus.opened(files, options.source, options.target)
    others = {name: corpus.opened(*given) for name, given in splits.named.items()}
    corpus.refuse_overwriting(output, all_rows)
    refuse_mixing("--all", all_rows, "report")

    from clearhead.data.doctor import examine
    from clearhead.data.doctor.page import render_page
    from clearhead.data.doctor.row_list import COLUMNS, FindingList, row_list
    from clearhead.data.doctor.text_report import report_lines
    from clearhead.files import open_output, some_names
    from clearhead.runtime.threads import num_threads

    with ExitStack() as stack:
        listed: FindingList | None = None
        again: Iterable[SentencePair] = rows
        if all_rows is not None:
            again = stack.enter_context(rows.twice())
            listed = FindingList(stack.enter_context(row_list(all_rows, COLUMNS)))
        with progress("examining") as advance:
            on_found = listed.add if listed is not None else None
            result = examine(again, others, advance, on_found, with_meaning=meaning, processes=num_threads())
        for origin, problem in corpus.unequal:
            result.add_unequal_files(origin, problem)
        if listed is not None:
            listed.finish(result, again)
    if output is not None:
        with open_output(output) as page:
            page.write(render_page(result, corpus.read_as, title=some_names([*(files or ()), *(options.source or ())])))
    _print({"files": corpus.read_as, **result.to_dict()} if as_json else report_lines(result))


@with_option_groups
def convert(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IN.. OUT",
            help="Files that contain both sides; the last one is the output file, unless --output names it.",
        ),
    ] = None,
    *,
    output: Annotated[
        str | None, typer.Option(*OUTPUT, metavar="OUT", help="Output file, whose extension sets the format.")
    ] = None,
    options: CorpusOptions,
) -> None:
    """Convert files of pairs to another format, with all pairs in their original order.

    Examples:
      clearhead corpus convert a.po b.po -o pairs.tsv
      clearhead corpus convert memory.tmx memory.sqlite
      clearhead corpus convert --source train.de --target train.en -o pairs.tsv

    Entries that a file marks as untranslated, unfinished or similar are omitted and counted; a row that is not a pair
    is an error. A .sqlite file is a memory for `translate --memory` and `serve --memory`, in which a million pairs are
    searched without reading them first (docs/terms.md); it is read back as any other file of pairs. The languages named
    in the new file are those of --from-lang and --to-lang (after --swap); if these are not given, those of the first
    file; if it names none, the extensions of line-aligned files; otherwise `source` and `target`.
    """
    inputs = list(files or ())
    if output is None:
        if not inputs:
            raise typer.BadParameter("name the files: IN.. OUT")
        output = inputs.pop()
    corpus = _Corpus(options)
    rows = corpus.opened(inputs, options.source, options.target, tolerated=0.0)
    corpus.refuse_overwriting(output)

    from clearhead.formats import SKIPS, write_pairs
    from clearhead.formats.memory_database import EXTENSION
    from clearhead.translation.memory_file import write_memory

    skipped: Counter[str] = Counter()

    def kept(advance: Callable[[int], None]) -> Iterator[SentencePair]:
        for row in rows:
            if row.skipped is None:
                yield row
            else:
                skipped[row.skipped] += 1
            advance(1)

    with progress("converting") as advance:
        if output.lower().endswith(EXTENSION):
            useful = ((pair.source, pair.target, pair.context) for pair in kept(advance))
            count = write_memory(output, useful, corpus.known_languages)
        else:
            count = write_pairs(output, kept(advance), corpus.languages)
    for reason, number in skipped.items():
        notice(f"{number:,} entries are left out: {SKIPS[reason]}")
    notice(f"{count:,} pairs written")


@with_option_groups
def clean(
    files: Files = None,
    *,
    options: CorpusOptions,
    output: Annotated[
        str,
        typer.Option(*OUTPUT, metavar="OUT", help="File to write, whose extension sets the format; - is TSV."),
    ],
    rejected: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="List of every row that is dropped or changed, with the reason: tab-separated with a header, or JSON "
            "lines if the file ends in .jsonl.",
        ),
    ],
    fix: Annotated[
        str | None, option("data.fix", metavar="KIND,KIND", more="Or none.", show_default="all four")
    ] = None,
    drop: Annotated[
        str | None,
        option(
            "data.drop",
            metavar="KIND,KIND",
            more="Or none.",
            show_default="empty,duplicate,wrong_language,other_language,wrong_script,length_ratio",
        ),
    ] = None,
    threads: Threads = None,
) -> None:
    """Mend or drop what `check` finds, and write the rest.

    Examples:
      clearhead corpus clean messy.tsv -o clean.tsv --rejected rejected.tsv
      clearhead corpus clean messy.tmx -o clean.tmx --rejected rejected.jsonl --drop none
      clearhead corpus clean --source a.de --target a.en -o clean.tsv --rejected no.tsv

    What cannot be mended for certain is dropped. Every row is written or listed: the rows read are the rows written and
    the rows dropped. The languages named in the new file are chosen as by `convert`.
    """
    from clearhead.data.doctor.cleaning import DEFAULT_DROP, DROPPABLE, FIXABLE, Cleaning

    fixes, drops = _kinds("--fix", fix, FIXABLE, FIXABLE), _kinds("--drop", drop, DEFAULT_DROP, DROPPABLE)
    corpus = _Corpus(options)
    rows = corpus.opened(files, options.source, options.target)
    corpus.refuse_overwriting(output, rejected)
    refuse_mixing("--rejected", rejected, "pairs")

    from clearhead.data.doctor.row_list import CHANGE_COLUMNS, change_row, row_list
    from clearhead.formats import write_pairs
    from clearhead.runtime.threads import num_threads

    def kept() -> Iterator[SentencePair]:
        with progress("examining") as advance:
            cleaning = Cleaning(again, fixes, drops, advance, processes=num_threads())
        for origin, problem in corpus.unequal:
            notice(f"{problem}; the lines from {origin} on have no partner and are left out")
        for line in cleaning.unchecked_lines():
            notice(line)
        with progress("cleaning", total=cleaning.examination.rows.read) as advance:
            for row in cleaning.cleaned():
                if row.reasons:
                    write(change_row(row))
                if row.after is not None:
                    yield row.after
                advance(1)
        counts.extend(cleaning.lines())

    counts: list[str] = []
    with rows.twice() as again, row_list(rejected, CHANGE_COLUMNS) as write:
        write_pairs(output, kept(), corpus.languages)
    for line in counts:
        notice(line)


def _print(report: Mapping[str, Any] | list[str]) -> None:
    """Print a report as one JSON object, or its lines."""
    from clearhead.files import open_output

    lines = [json.dumps(report, ensure_ascii=False)] if isinstance(report, Mapping) else report
    with open_output(None) as out:
        out.writelines(line + "\n" for line in lines)


def _kinds(option: str, value: str | None, usual: Sequence[str], possible: Sequence[str]) -> tuple[str, ...]:
    """Return the findings that an option names.

    Raises:
        ConfigError: If it names one that is not possible.
    """
    if value is None:
        return (*usual,)
    names = [] if value.strip() == "none" else [name.strip() for name in value.split(",")]
    if unknown := [name for name in names if name not in possible]:
        raise ConfigError(f"{option}: there is no {unknown[0]!r}; choose from {', '.join(possible)}, or none")
    return (*names,)


class _Rows:
    """The rows of a corpus.

    Args:
        stream: Opens the files and returns their rows; messages are for the first time alone.
        can_be_read_again: Whether all are regular files.
    """

    def __init__(self, stream: Callable[[bool], Iterator[SentencePair]], can_be_read_again: bool) -> None:
        self._stream, self._can_be_read_again = stream, can_be_read_again
        self._first: Iterator[SentencePair] | None = stream(True)

    def __iter__(self) -> Iterator[SentencePair]:
        first, self._first = self._first, None
        return self._stream(False) if first is None else first

    @contextmanager
    def twice(self) -> Iterator[Iterable[SentencePair]]:
        """Yield the rows as an iterable that can be read several times.

        Files are read again. If one can be read only once, such as standard input, all rows are copied to a temporary
        file.
        """
        if self._can_be_read_again:
            yield self
            return
        from tempfile import TemporaryDirectory

        from clearhead.data.staged_corpus import StagedPairs

        with TemporaryDirectory() as directory:
            staged = StagedPairs(Path(directory) / "rows.jsonl")
            staged.write(self)
            yield staged


class _Corpus:
    """The input files of a command, all read with the same options.

    Args:
        options: How files of pairs are read.

    Raises:
        ConfigError: If there are not exactly two columns.
    """

    def __init__(self, options: PairFormat) -> None:
        self._wanted = options.wanted
        self._swap = options.swap
        self._named: list[str] = []
        self._sides: tuple[str | None, str | None] = (None, None)
        self.read_as: list[str] = []
        """A line for each file with its detected format; for a pipe, available once it is read."""
        self.unequal: list[tuple[str, str]] = []
        """For line-aligned files with different numbers of lines: where the shorter one ends, and the problem."""

    def opened(self, pairs: Paths, source: Paths, target: Paths, *, tolerated: float = 1.0) -> _Rows:
        """Open files, line-aligned ones first, and return their rows.

        Args:
            pairs: Files with both sides.
            source: Files with one source a line.
            target: Files with their translations.
            tolerated: Maximum share of the rows of a file that are not pairs. With 0, unequal files are an error too.

        Raises:
            ConfigError: If there is no file, or there are columns but no file of pairs.
            DataError: If a file is missing, or its format is unknown.
        """
        from itertools import chain

        from clearhead.formats import described, expand_paths, language_in_name, read_pairs, read_parallel

        pairs, source, target = expand_paths(pairs or [], notice=notice), source or [], target or []
        if not (pairs or source or target):
            raise ConfigError("name the corpus: FILE with both sides, or --source FILE --target FILE")
        if self._wanted.columns is not None and not pairs:
            raise ConfigError("--columns: only a file of pairs has columns; name one")
        named = [*source, *target, *pairs]
        self._named += named
        refuse_missing(self._named)
        if not pairs and len(source) == len(target) == 1 and self._sides == (None, None):
            sides = language_in_name(source[0]), language_in_name(target[0])
            self._sides = sides[::-1] if self._swap else sides
        self.read_as += [f"{left} and {right}: line by line" for left, right in zip(source, target, strict=False)]
        sources, targets, files = source, target, pairs

        def tell(opened: Sequence[PairFile]) -> None:
            lines = described(opened)
            self.read_as += lines
            for line in lines:
                notice(line)
            if opened and self._sides == (None, None) and not sources:
                self._sides = opened[0].languages

        def stream(is_first: bool) -> Iterator[SentencePair]:
            say, on_open = (notice, tell) if is_first else (None, None)
            unequal = self.unequal if is_first else []
            on_unequal = (lambda origin, problem: unequal.append((origin, problem))) if tolerated else None
            lines = read_parallel(sources, targets, swap=self._swap, notice=say, on_unequal=on_unequal)
            rows = read_pairs(files, self._wanted, swap=self._swap, tolerated=tolerated, on_open=on_open)
            return chain(lines, rows)

        return _Rows(stream, can_be_read_again=all(map(os.path.isfile, named)))

    def refuse_overwriting(self, *outputs: str | None) -> None:
        """Make sure that no output is one of the input files, or another output.

        Raises:
            ConfigError: If two outputs are the same file.
            DataError: If one is an input.
        """
        for output in outputs:
            refuse_overwriting(output, self._named)
        files = [os.path.realpath(path) for path in outputs if path is not None and not is_standard_output(path)]
        if len({*files}) < len(files):
            raise ConfigError(f"{files[0]} is named for two outputs; name another file for one")

    @property
    def languages(self) -> tuple[str, str]:
        """The languages of source and target; `source` and `target` if they are unknown."""
        source, target = self.known_languages
        return source or "source", target or "target"

    @property
    def known_languages(self) -> tuple[str | None, str | None]:
        """The languages of source and target; None if they are unknown."""
        asked, sides = (self._wanted.from_lang, self._wanted.to_lang), self._sides
        asked = asked[::-1] if self._swap else asked
        return asked[0] or sides[0], asked[1] or sides[1]
