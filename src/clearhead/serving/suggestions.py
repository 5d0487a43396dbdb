"""Translations that users suggest, in a TMX file of a language pair, which several servers may share."""

from __future__ import annotations

import re
import tempfile
from http import HTTPStatus
from pathlib import Path
from threading import Lock

from clearhead.errors import ConfigError, DataError
from clearhead.files import locked, read_text
from clearhead.formats import SentencePair, Wanted, read_pairs
from clearhead.formats.tmx.pairs import write_tmx
from clearhead.serving.file_changes import FileState, file_state
from clearhead.serving.http_errors import HTTPError, bad_request

_VERSION = re.compile(r' creationtoolversion="[^"]*"')


class SuggestionFile:
    """The suggested translations of a language pair. The file is complete, and on disk, whenever `add` returns.

    Args:
        path: The file; made with the first suggestion. It can be used as a translation memory after a review.
        languages: Codes of the two languages.
        most: Maximum number of suggestions.

    Raises:
        ConfigError: If the file is no `.tmx`, or holds anything besides suggestions, which the next one would remove.
        DataError: If it cannot be read, or its directory cannot be written to.
    """

    def __init__(self, path: Path, languages: tuple[str, str], most: int) -> None:
        self.path, self.languages, self.most = path, languages, most
        if path.suffix.lower() != ".tmx":
            raise ConfigError(f"suggestions are written as TMX; name a file that ends in .tmx, not {path}")
        self._lock = Lock()
        self._state: FileState | None = None
        self._pairs: dict[tuple[str, str], None] = {}
        try:
            with locked(path):
                self._renew()
        except OSError as error:
            raise DataError(f"cannot write suggestions into {path}: {error.strerror or error}") from None

    def add(self, source: str, target: str) -> None:
        """Add a suggestion; of texts of several lines, each line with its translation; a known pair is not added again.

        Raises:
            HTTPError: If a text is blank or has a character that cannot be stored, if one side has more lines than the
                other, if there are too many suggestions, or if the file cannot be written.
        """
        sides = source.strip().splitlines(), target.strip().splitlines()
        if len(sides[0]) != len(sides[1]):
            counts = f"{len(sides[0])} and {len(sides[1])}"
            raise bad_request(f"Invalid request: q and s have {counts} lines; a translation has the lines of its text")
        pairs = [(one.strip(), other.strip()) for one, other in zip(*sides, strict=True)]
        if not pairs or any(bool(one) != bool(other) for one, other in pairs):
            raise bad_request("Invalid request: a line of q or s is empty, and the other is not")
        try:
            with self._lock, locked(self.path):
                try:
                    self._renew()
                except (ConfigError, DataError):  # the client neither made the file nor may know its path
                    raise HTTPError(
                        HTTPStatus.SERVICE_UNAVAILABLE,
                        "the suggestion cannot be stored: another program has changed the file of suggestions",
                    ) from None
                added = {**self._pairs, **dict.fromkeys(pair for pair in pairs if pair[0])}
                if len(added) > self.most:
                    raise HTTPError(
                        HTTPStatus.FORBIDDEN, f"this server takes no more suggestions: it has {len(self._pairs):,}"
                    )
                if len(added) > len(self._pairs):
                    self._write(str(self.path), added)
                    self._pairs, self._state = added, file_state(self.path)
        except DataError as error:
            raise bad_request(f"Invalid request: {error}") from None
        except OSError as error:
            raise HTTPError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"the suggestion cannot be stored: {error.strerror or error}"
            ) from None

    def __len__(self) -> int:
        return len(self._pairs)

    def _renew(self) -> None:
        """Read the file again if another server, or its owner, has changed it."""
        if (state := file_state(self.path)) == self._state:
            return
        wanted = Wanted(from_lang=self.languages[0], to_lang=self.languages[1])
        pairs = read_pairs([str(self.path)], wanted) if state is not None else ()
        self._pairs = dict.fromkeys((pair.source, pair.target) for pair in pairs)
        if state is not None and not self._holds_suggestions_alone():
            raise ConfigError(
                f"{self.path} is not a file of suggestions: it holds more than pairs of texts as clearhead writes "
                f"them, which would be lost; name a new file"
            )
        self._state = state

    def _write(self, path: str, pairs: dict[tuple[str, str], None]) -> None:
        write_tmx(path, (SentencePair(*pair, origin="the suggestion") for pair in pairs), self.languages)

    def _holds_suggestions_alone(self) -> bool:
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory, "copy.tmx")
            self._write(str(copy), self._pairs)
            texts = [_VERSION.sub("", read_text(path), count=1) for path in (copy, self.path)]
        return texts[0] == texts[1]
