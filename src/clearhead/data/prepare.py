"""Data preparation: from text files to tokenized stores, the tokenizer and a report; opening of prepared data.

    input files -> clean -> hold out -> learn the tokenizer -> tokenise -> train.arrow, valid.arrow, report.json

`staged_corpus.py` does the first two steps, `survey.py` the third, and `tokenised.py` the fourth.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.config import Config, TrainConfig
from clearhead.config.nested import flat
from clearhead.data.batches import WINDOW, BatchOrder
from clearhead.data.clean import CleaningReport
from clearhead.data.doctor.wrong_pairs import refuse_wrong
from clearhead.data.inputs import ROLES, Inputs, entry_sizes, identified_file, languages, open_inputs
from clearhead.data.replay import mixed_in
from clearhead.data.staged_corpus import (
    Progress,
    StagedCorpus,
    read_corpus,
    refuse_empty,
    refuse_languages,
    with_progress,
)
from clearhead.data.store import PairStore, RowWeights, StoreWriter
from clearhead.data.survey import survey
from clearhead.data.tokenised import TokenisedPieces, fill
from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.files import file_sha256, json_sha256, new_directory, os_error_as, read_json, write_json
from clearhead.files.finished_steps import FinishedSteps, differences
from clearhead.runtime.ray_shards import Actors
from clearhead.runtime.version import full_version
from clearhead.tokenizers import Vocabulary, load_vocabulary

STORES = ("train.arrow", "valid.arrow")
GENERAL = "general.arrow"
"""Name of the store of held-out general text."""
FRESH = "run the same command with --fresh to prepare the data again"


@dataclass(frozen=True)
class Prepared:
    """The prepared data of a run."""

    train: PairStore
    """Training pairs."""
    valid: PairStore
    """Validation pairs, given or held out."""
    tokenizer: Vocabulary
    """The vocabulary of the stores."""
    report: dict[str, Any]
    """Contents of `report.json`: counts of all pairs read, and the identity of the input files."""
    general: PairStore | None = None
    """Held-out pairs of general text, on which forgetting is measured; None if none was given."""

    def order(self, train: TrainConfig) -> BatchOrder:
        """Return the order of the training batches."""
        lengths = self.train.source_lengths, self.train.target_lengths
        times = RowWeights(self.report["weights"]) if "weights" in self.report else None
        rest = {**self.report.get("rounds", {}), "window": self.report.get("window")}
        return BatchOrder(*lengths, batch_tokens=train.batch_tokens, seed=train.seed, times=times, **rest)


def prepare(
    config: Config,
    directory: Path,
    *,
    tokenizer: Vocabulary | None = None,
    former_languages: tuple[str | None, str | None] = (None, None),
    on_progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
    is_forced: bool = False,
    processes: int = 1,
    actors: Actors | None = None,
) -> Prepared:
    """Read, clean and tokenize the corpus; write `directory` and, beside it, `tokenizer.json`.

    A run that is killed or fails leaves nothing that could be mistaken for prepared data. Existing prepared data is
    replaced. What is finished of a text of more than one piece (`PIECE_ROWS`) stays in `data.parts` beside the
    directory until all is: the same preparation continues from there, with the same result. No other process may
    prepare the same directory meanwhile.

    Args:
        config: The files, and the settings for cleaning and tokenizing them.
        directory: `data/` of a run directory.
        tokenizer: The vocabulary to use; if not given, one is learned from the corpus.
        former_languages: Source and target language of the model that training starts from; used if neither the
            settings nor the files name them.
        on_progress: Called about every thousand items.
        notice: Called with the detected format, columns and direction of each file of pairs, and with findings of
            `data.fix` and `data.drop` that cannot be looked for.
        is_forced: Whether training text of which much is wrong is taken all the same.
        processes: Processes that share the work, if the text is large; the result is the same for any number. They
            import the main module of the program, which must do nothing then (`if __name__ == "__main__":`).
        actors: Those of a Ray cluster that share it instead, on machines that have the directory at the same place.

    Raises:
        ConfigError: If no text is named, files do not have the configured columns, or the configured vocabulary is too
            small or larger than the corpus yields.
        DataError: If a file cannot be used or changes while it is read, too many of its rows are no pairs, no pair is
            left, the corpus is too small, more than `MOST_SHARE` of it looks wrong, or the disk is full.
    """
    # Errors that can be found at once are reported before anything is created.
    refuse_languages(config)
    inputs = open_inputs(config, notice=notice)
    if not is_forced and (several := _several_targets(config, inputs)):
        raise DataError(several)
    progress = on_progress or (lambda stage, count: None)
    say = notice or (lambda text: None)
    settings = _settings(config, None if tokenizer is None else tokenizer.sha256, former_languages)
    with (
        os_error_as(DataError, f"cannot write the prepared data {directory}"),
        FinishedSteps.of(parts_of(directory), _origin(inputs, settings), say) as steps,
        new_directory(directory) as temporary,
    ):
        work = _Work(config, inputs, steps, progress, say, is_forced, processes, actors)
        tokenizer, report = work.build(temporary, tokenizer, settings, former_languages)
        # The old data is removed first: if killed between these lines, a run finds none, never data of another
        # tokenizer.
        if directory.exists():
            shutil.rmtree(directory)
        tokenizer.save(directory.parent / "tokenizer.json")
    return _opened(directory, tokenizer, report)


def open_prepared(directory: Path) -> Prepared:
    """Open prepared data.

    Raises:
        DataError: If it is missing or damaged (by its checksums), or the tokenizer beside it is not the one it was made
            with.
    """
    path = directory / "report.json"
    try:
        report = read_json(path, DataError)
        made_with = report["tokenizer"]["sha256"]
        tokenizer = load_vocabulary(directory.parent / "tokenizer.json")
    except (KeyError, TypeError):
        raise DataError(f"{path} is damaged; {FRESH}") from None
    except ClearheadError as error:
        raise DataError(f"{error}; {FRESH}") from None
    if tokenizer.sha256 != made_with:
        raise DataError(f"{directory} was not made with {directory.parent / 'tokenizer.json'}; {FRESH}")
    _verify(directory, report)
    return _opened(directory, tokenizer, report)


def changed_settings(
    report: Mapping[str, Any],
    config: Config,
    tokenizer_sha256: str | None,
    former_languages: tuple[str | None, str | None],
) -> list[str]:
    """Return a line for each setting, except files, that has changed since the data were prepared.

    Args:
        report: Contents of the `report.json` that `prepare` wrote.
        config: The settings now.
        tokenizer_sha256: Identity of the vocabulary now given to `prepare`; None if one is to be learned.
        former_languages: As now given to `prepare`.
    """
    if any(file["sha256"] is None for file in report["files"]):
        return ["the text was read from a pipe, which cannot be compared"]
    if "settings" not in report:
        return ["they were made by an earlier version, which did not note its settings"]
    return differences(report["settings"], _settings(config, tokenizer_sha256, former_languages))


def parts_of(directory: Path) -> Path:
    """Return the directory that keeps what is finished of prepared data."""
    return directory.with_name(f"{directory.name}.parts")


def refuse_forced(report: Mapping[str, Any]) -> None:
    """Refuse prepared data that `prepare` would have refused, had it not been forced.

    Raises:
        DataError: If they are such data.
    """
    if several := report.get("several_targets"):
        raise DataError(several)
    refuse_wrong(report["wrong"], report["train"]["kept"])


def _several_targets(config: Config, inputs: Inputs) -> str | None:
    return None if config.tokenizer.language_tags else inputs.several_targets()


def _settings(
    config: Config, tokenizer_sha256: str | None, former_languages: tuple[str | None, str | None]
) -> dict[str, Any]:
    """Return all that the prepared data depend on, except the contents of the files, by name."""
    is_weighted = config.data.weights or config.data.temperature != 1.0
    sections = {
        "data": config.data.model_dump(mode="json", exclude={*ROLES}),
        "tokenizer": config.tokenizer.model_dump(mode="json"),
        "decode": config.decode.model_dump(mode="json", include={"source_lang", "target_lang", "protect_numbers"}),
        "train": {"seed": config.train.seed},
        "from": {"tokenizer": tokenizer_sha256, "languages": [*former_languages]},
        # The same contents may have other names now.
        "files": {"languages": [*languages(config.data)], "of_entries": entry_sizes(config) if is_weighted else None},
    }
    return flat(sections)


def _origin(inputs: Inputs, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all that determines the prepared data, by name; nothing if some text can be read only once."""
    if any(file.sha256 is None for file in inputs.files):
        return {}
    files = {f"the SHA-256 of {file.path}": file.sha256 for file in inputs.files}
    return {**settings, **flat({"data": inputs.roles}), **files, "clearhead's version": full_version()}


def _opened(directory: Path, tokenizer: Vocabulary, report: dict[str, Any]) -> Prepared:
    train, valid = (PairStore.open(directory / name) for name in STORES)
    general = PairStore.open(directory / GENERAL) if "general" in report else None
    return Prepared(train, valid, tokenizer, report, general)


def _hashes(directory: Path, report: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of every store."""
    names = (*STORES, GENERAL) if "general" in report else STORES
    return {name: file_sha256(directory / name) for name in names}


def _verify(directory: Path, report: Mapping[str, Any]) -> None:
    """Compare every file with its checksum."""
    checksums = report.get("checksums")
    if not isinstance(checksums, Mapping):
        raise DataError(f"{directory / 'report.json'} is damaged: it has no checksums; {FRESH}")
    said = {name: value for name, value in report.items() if name != "checksums"}
    try:
        hashes = {**_hashes(directory, report), "report.json": json_sha256(said)}
    except OSError as error:
        raise DataError(f"the prepared data {directory} is incomplete: {error.strerror or error}; {FRESH}") from None
    if damaged := [name for name, sha256 in hashes.items() if checksums.get(name) != sha256]:
        names = ", ".join(str(directory / name) for name in damaged)
        raise DataError(f"the prepared data {names} is damaged (not what its checksum says); {FRESH}")


class _Work(NamedTuple):
    """A preparation: what is prepared, where its finished steps are kept, and who shares the work; see `prepare`."""

    config: Config
    inputs: Inputs
    steps: FinishedSteps
    on_progress: Progress
    notice: Callable[[str], None]
    is_forced: bool
    processes: int
    actors: Actors | None

    def build(
        self,
        partial: Path,
        tokenizer: Vocabulary | None,
        settings: Mapping[str, Any],
        former_languages: tuple[str | None, str | None],
    ) -> tuple[Vocabulary, dict[str, Any]]:
        """Write the prepared data, and return its vocabulary and report."""
        config, inputs, corpus = self.config, self.inputs, self._cleaned()
        train, valid, general, watched = corpus.train, corpus.valid, corpus.general, corpus.watched
        wrong, tokenizer = self._surveyed(corpus, tokenizer)
        if config.decode.protect_numbers and not tokenizer.num_placeholders:
            raise ConfigError(
                "decode.protect_numbers needs a vocabulary with tokens for placeholders, and this one has none"
            )
        rounds: dict[str, int] = {}
        entries = {} if config.data.temperature == 1.0 else inputs.entries
        pieces = TokenisedPieces(self.steps, corpus, tokenizer, config, (inputs.weights, entries))
        pieces.make(self.on_progress, self.notice, self.processes, self.actors)
        with StoreWriter(partial / "train.arrow", with_links=bool(config.data.alignments)) as store:
            counts = pieces.join(store)
            if entries:
                counts.weights.temper(config.data.temperature)
            if watched:
                epochs, mixed = mixed_in(general, watched, valid, train, counts.weights.num_seen, config)
                rounds = {"epochs": epochs, "num_new": train.report.kept + counts.altered.total()}
                pairs = with_progress(mixed, "mixing general text in", self.on_progress)
                fill(store, pairs, tokenizer, config, general.report, counts.lines)
            counts.weights.add(1, store.num_rows - counts.weights.num_rows)  # altered copies and general text
        _write_held_out(corpus, partial, tokenizer, config, self.on_progress)
        report = {
            **_report_of_text(config, inputs, corpus, settings, former_languages),
            "tokenizer": {
                "kind": config.tokenizer.kind,
                "vocab_size": tokenizer.vocab_size,
                "sha256": tokenizer.sha256,
            },
            "tokens": dict(counts.tokens),
            "wrong": wrong,
            **({"several_targets": several} if (several := _several_targets(config, inputs)) else {}),
            **({"augmented": dict(counts.altered)} if counts.altered else {}),
            **({"links": store.links} if config.data.alignments else {}),
            **({"general": general.report.to_dict(), "rounds": rounds} if watched else {}),
            **({"weights": counts.weights.runs} if inputs.weights or entries else {}),
            **({"window": WINDOW} if store.num_rows > WINDOW else {}),  # data of earlier versions is one window
            "line_statistics": counts.lines.statistics().model_dump(mode="json"),
        }
        report["checksums"] = {**_hashes(partial, report), "report.json": json_sha256(report)}
        write_json(partial / "report.json", report)
        return tokenizer, report

    def _cleaned(self) -> StagedCorpus:
        """Return the cleaned and split text, which is read unless that is finished."""
        if (values := self.steps.get("text")) is not None:
            self.notice("the text was read and cleaned before")
            return StagedCorpus.from_dict(values, self.steps.directory)
        files, directory = self.inputs.files, self.steps.directory
        corpus = read_corpus(self.config, self.inputs, directory, self.on_progress, self.notice, self.processes)
        if changed := [file.path for file in files if identified_file(file.path).sha256 != file.sha256]:
            raise DataError(f"{', '.join(changed)} changed while it was read; run the same command again")
        self.steps.add("text", corpus.to_dict(), {file.name: file_sha256(file) for file in corpus.files})
        self.steps.are_kept = len(corpus.train.pieces) > 1 and all(file.sha256 for file in files)
        return corpus

    def _surveyed(self, corpus: StagedCorpus, given: Vocabulary | None) -> tuple[dict[str, Any], Vocabulary]:
        """Return the counts of wrong pairs and the vocabulary; the text is surveyed unless that is finished."""
        path = self.steps.directory / "tokenizer.json"
        if (wrong := self.steps.get("survey")) is not None:
            if not self.is_forced:
                refuse_wrong(wrong, corpus.train.report.kept)
            return wrong, given or load_vocabulary(path)
        wrong, tokenizer = survey(
            corpus.train,
            self.config,
            given,
            is_forced=self.is_forced,
            on_progress=self.on_progress,
            processes=self.processes,
        )
        if given is None:
            tokenizer.save(path)
        self.steps.add("survey", wrong, {} if given else {path.name: file_sha256(path)})
        return wrong, tokenizer


def _report_of_text(
    config: Config,
    inputs: Inputs,
    corpus: StagedCorpus,
    settings: Mapping[str, Any],
    former_languages: tuple[str | None, str | None],
) -> dict[str, Any]:
    """Return what the report says of the text: its counts, languages, and the identity and lines of every file."""
    own = languages(config.data, inputs.opened)
    return {
        "train": corpus.train.report.to_dict(),
        "valid": corpus.valid.report.to_dict(),
        **corpus.held_out,
        "roles": inputs.roles,
        "settings": settings,
        "languages": [one or former for one, former in zip(own, former_languages, strict=True)],
        "files": [
            asdict(replace(file, lines=corpus.lines.get(file.path, 0), read_as=inputs.read_as.get(file.path)))
            for file in inputs.files
        ],
    }


def _write_held_out(
    corpus: StagedCorpus, partial: Path, tokenizer: Vocabulary, config: Config, on_progress: Progress
) -> None:
    """Write the stores of held-out pairs, and check the reports of all texts.

    Raises:
        DataError: If a text has no pairs.
    """
    valid, general, watched = corpus.valid, corpus.general, corpus.watched
    pairs = with_progress(valid, "tokenising validation text", on_progress)
    with StoreWriter(partial / "valid.arrow") as store:
        fill(store, pairs, tokenizer, config, valid.report)
    if watched:
        held_out = CleaningReport(read=len(watched), kept=len(watched))
        with StoreWriter(partial / GENERAL) as store:
            fill(store, general.of_rows(watched), tokenizer, config, held_out)
        refuse_empty("general", config.data, held_out)
        general.report.drop_held_out(held_out)
    general.report.check()
    for what, text in (("training", corpus.train), ("validation", valid)):
        text.report.check()
        refuse_empty(what, config.data, text.report)
