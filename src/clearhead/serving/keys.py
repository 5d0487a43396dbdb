"""API keys: a file with their hashes, how one is made, and how much each may ask for.

A key has 256 random bits, so a single round of SHA-256 is as hard to turn round as a slow hash of a password.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

from pydantic import Field

from clearhead.config.settings import Settings
from clearhead.errors import ConfigError, DataError
from clearhead.files import read_json_lines, write_text
from clearhead.serving.file_changes import file_state
from clearhead.serving.http_errors import Refusal

__all__ = ["ApiKey", "Keys", "add_key", "keys_in", "read_keys"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class ApiKey(Settings):
    """A line of the file of keys, as JSON."""

    name: str
    """Whose it is; letters, digits, `_`, `.` and `-`."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Of the key."""
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = 600
    """How many it may ask for, on average and at once."""


@dataclass
class _Bucket:
    """What is left of a rate (token bucket)."""

    per_minute: int

    def __post_init__(self) -> None:
        self.left = float(self.per_minute)
        self.since = time.monotonic()

    def take(self) -> float:
        """Take one; return 0, or the seconds until there is one."""
        now = time.monotonic()
        self.left = min(self.per_minute, self.left + (now - self.since) * self.per_minute / 60.0)
        self.since = now
        if self.left < 1.0:
            return (1.0 - self.left) * 60.0 / self.per_minute
        self.left -= 1.0
        return 0.0


class Keys:
    """Who may ask, and how often.

    Args:
        keys: By their names; without any everybody may ask.
        path: The file that they were read from.
    """

    def __init__(self, keys: Mapping[str, ApiKey], path: Path | None = None) -> None:
        self.are_required = bool(keys)
        """Whether a key must be given, also when the last one has been revoked."""
        self._path = path
        self._state = file_state(path) if path is not None else None
        self._known: dict[str, tuple[ApiKey, _Bucket]] = {}
        self._replace(keys)

    def reload(self, *, always: bool = False) -> bool:
        """Read the file anew if it has changed, or always; tell whether it was read.

        Raises:
            ConfigError: If it cannot be read or is wrong; the keys stay as they were.
        """
        if self._path is None:
            return False
        state = file_state(self._path)
        if state == self._state and not always:
            return False
        self._state = state
        self._replace(read_keys(self._path))
        return True

    def _replace(self, keys: Mapping[str, ApiKey]) -> None:
        """Take other keys; of one that stays as it was, what was asked for with it still counts."""
        before = self._known
        self._known = {
            name: before[name] if name in before and before[name][0] == key else (key, _Bucket(key.requests_per_minute))
            for name, key in keys.items()
        }

    def owner(self, given: str | None) -> str | None:
        """Return whose key it is; None where none is needed. One request is taken from what it may ask for.

        Raises:
            Refusal: If there is none, it is unknown, or too much was asked for with it.
        """
        if not self.are_required:
            return None
        if not given:
            raise Refusal(HTTPStatus.BAD_REQUEST, "Please contact the server operator to get an API key")
        digest = sha256(given.encode(errors="surrogatepass")).hexdigest()
        found = None
        for key, bucket in self._known.values():  # all of them, so that the time tells nothing
            if hmac.compare_digest(key.sha256, digest):
                found = key, bucket
        if found is None:
            raise Refusal(HTTPStatus.FORBIDDEN, "Invalid API key")
        owner, bucket = found
        if seconds := bucket.take():
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"Slowdown: {owner.requests_per_minute} per minute",
                retry_after=int(seconds) + 1,
            )
        return owner.name


def keys_in(path: Path | None) -> Keys:
    """Return who may ask: who has a key of a file, or without a file everybody.

    Raises:
        ConfigError: As `read_keys`; or if there is none in it.
    """
    if path is None:
        return Keys({})
    keys = read_keys(path)
    if not keys:
        raise ConfigError(f"{path} has no key, so nobody could ask; make one: clearhead api-key NAME --keys {path}")
    return Keys(keys, path)


def read_keys(path: Path) -> dict[str, ApiKey]:
    """Read a file of keys.

    Raises:
        ConfigError: If it cannot be read, a line is no key, or two have the same name.
    """
    found: dict[str, ApiKey] = {}
    try:
        for number, line in read_json_lines(path):
            if isinstance(line, ValueError):
                raise ConfigError(f"{path}, line {number}: {line}")
            key = ApiKey.from_dict(line, origin=f"{path}, line {number}")
            if _NAME.fullmatch(key.name) is None or key.name in found:
                raise ConfigError(f"{path}, line {number}: the name {key.name!r:.80} is impossible or there already")
            found[key.name] = key
    except OSError as error:
        raise ConfigError(f"cannot read the keys in {path}: {error.strerror or error}") from None
    return found


def add_key(path: Path, name: str, requests_per_minute: int) -> str:
    """Make a key, add its hash to a file, and return it: it is nowhere else.

    Raises:
        ConfigError: If there is a key of that name, or the name is impossible.
        DataError: If the file cannot be written.
    """
    keys = read_keys(path) if path.exists() else {}
    if _NAME.fullmatch(name) is None or name in keys:
        raise ConfigError(f"the name {name!r:.80} is impossible or there already; use letters, digits, _, . and -")
    key = secrets.token_urlsafe(32)
    digest = sha256(key.encode()).hexdigest()
    keys[name] = ApiKey(name=name, sha256=digest, requests_per_minute=requests_per_minute)
    try:
        write_text(path, "".join(json.dumps(one.model_dump()) + "\n" for one in keys.values()))
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from None
    return key
