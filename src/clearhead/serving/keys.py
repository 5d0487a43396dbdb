"""API keys: a file of key hashes, creation of keys, and rate limits.

A key has 256 random bits, so a single round of SHA-256 is as hard to invert as a slow password hash.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

from pydantic import Field

from clearhead.config.settings import Settings
from clearhead.errors import ConfigError, DataError, nearest_name
from clearhead.files import locked, new_file, os_error_as, read_json_lines
from clearhead.serving.file_changes import file_state
from clearhead.serving.http_errors import HTTPError, bad_request

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
    """Token bucket of a rate limit."""

    per_minute: int

    def __post_init__(self) -> None:
        self.left = float(self.per_minute)
        self.since = time.monotonic()

    def take(self) -> float:
        """Take one token; return 0, or the seconds until one is available."""
        now = time.monotonic()
        self.left = min(self.per_minute, self.left + (now - self.since) * self.per_minute / 60.0)
        self.since = now
        if self.left < 1.0:
            return (1.0 - self.left) * 60.0 / self.per_minute
        self.left -= 1.0
        return 0.0


class Keys:
    """The known API keys and their rate limits.

    Args:
        keys: Keys by name; if empty, no key is required.
        path: The file that they were read from.
    """

    def __init__(self, keys: Mapping[str, ApiKey], path: Path | None = None) -> None:
        self.are_required = bool(keys)
        """Whether a key is required; stays True when the last key has been revoked."""
        self._path = path
        self._state = file_state(path) if path is not None else None
        self._known: dict[str, tuple[ApiKey, _Bucket]] = {}
        self._replace(keys)

    def reload(self, *, always: bool = False) -> bool:
        """Read the file again if it has changed, or always; return whether it was read.

        Raises:
            ConfigError: If the file cannot be read or is invalid; the keys then stay as they were.
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
        """Replace the keys; a key that is unchanged keeps its rate-limit state."""
        before = self._known
        self._known = {
            name: before[name] if name in before and before[name][0] == key else (key, _Bucket(key.requests_per_minute))
            for name, key in keys.items()
        }

    def client(self, given: object) -> str:
        """Return the client that a key belongs to, as `owner` finds it; anything but a text is no key.

        Raises:
            HTTPError: As `owner`.
        """
        return f"key {self.owner(given if isinstance(given, str) else None)}"

    def owner(self, given: str | None) -> str | None:
        """Return the name of a key and count one request against its rate limit; None if no key is required.

        Raises:
            HTTPError: If the key is missing or unknown, or its rate limit is exceeded.
        """
        if not self.are_required:
            return None
        if not given:
            raise bad_request("Please contact the server operator to get an API key")
        digest = sha256(given.encode(errors="surrogatepass")).hexdigest()
        match = None
        for key, bucket in self._known.values():  # compare with all of them, so that the timing reveals nothing
            if hmac.compare_digest(key.sha256, digest):
                match = key, bucket
        if match is None:
            raise HTTPError(HTTPStatus.FORBIDDEN, "Invalid API key")
        owner, bucket = match
        if seconds := bucket.take():
            raise HTTPError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"Slowdown: {owner.requests_per_minute} per minute",
                retry_after=int(seconds) + 1,
            )
        return owner.name


def keys_in(path: Path | None) -> Keys:
    """Return the keys of a file, or without a file no keys, so that none is required.

    Raises:
        ConfigError: If the file cannot be read, is invalid (see `read_keys`), or has no key.
    """
    if path is None:
        return Keys({})
    keys = read_keys(path)
    if not keys:
        raise ConfigError(f"{path} has no key, so nobody could ask; make one: `clearhead api-key NAME --keys {path}`")
    return Keys(keys, path)


def read_keys(path: Path) -> dict[str, ApiKey]:
    """Read a file of API keys.

    Raises:
        ConfigError: If it cannot be read, a line is not a valid key, or two keys have the same name.
    """
    keys: dict[str, ApiKey] = {}
    with os_error_as(ConfigError, f"cannot read the keys in {path}"):
        for number, line in read_json_lines(path):
            if isinstance(line, ValueError):
                raise ConfigError(f"{path}, line {number}: {line}")
            key = ApiKey.from_dict(line, origin=f"{path}, line {number}")
            if _NAME.fullmatch(key.name) is None or key.name in keys:
                raise ConfigError(f"{path}, line {number}: the name {key.name!r:.80} is impossible or there already")
            keys[key.name] = key
    return keys


def add_key(path: Path, name: str, requests_per_minute: int, deliver: Callable[[str], None] = lambda _: None) -> str:
    """Create a key, add its hash to a file, and return the key, which is stored nowhere else.

    Args:
        path: The file.
        name: Whose it is.
        requests_per_minute: Its rate limit.
        deliver: Takes the key right before the file is replaced, so that no key counts which nobody got.

    Raises:
        ConfigError: If the name is taken or invalid, or the file is invalid.
        DataError: If the file cannot be written.
    """
    with _changed(path) as (keys, temporary):
        if _NAME.fullmatch(name) is None or name in keys:
            raise ConfigError(f"the name {name!r:.80} is impossible or there already; use letters, digits, _, . and -")
        key = secrets.token_urlsafe(32)
        digest = sha256(key.encode()).hexdigest()
        keys[name] = ApiKey(name=name, sha256=digest, requests_per_minute=requests_per_minute)
        with os_error_as(DataError, f"cannot write {path}"):
            _write(temporary, keys)
        deliver(key)
    return key


def revoke_key(path: Path, name: str) -> None:
    """Remove a key from a file; a server that reads it refuses the key within a second or two.

    Raises:
        ConfigError: If the file cannot be read or is invalid, or has no such key.
        DataError: If it cannot be written.
    """
    with _changed(path) as (keys, temporary):
        if keys.pop(name, None) is None:
            raise ConfigError(f"{path} has no key {name!r:.80}{nearest_name(name, list(keys))}")
        with os_error_as(DataError, f"cannot write {path}"):
            _write(temporary, keys)


@contextmanager
def _changed(path: Path) -> Iterator[tuple[dict[str, ApiKey], Path]]:
    """Yield the keys of a file and the path to write the changed ones to; it replaces the file when the block ends.

    Two commands at once wait for each other, and neither loses the other's key. After an error the file is as before.
    """
    with ExitStack() as held:
        with os_error_as(DataError, f"cannot write {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(path))
            keys = read_keys(path) if path.exists() else {}
            temporary = held.enter_context(new_file(path, mode=0o600))  # its owner alone reads it
        yield keys, temporary
        with os_error_as(DataError, f"cannot write {path}"):
            held.pop_all().close()


def _write(path: Path, keys: Mapping[str, ApiKey]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(key.model_dump()) + "\n" for key in keys.values())
        file.flush()
        os.fsync(file.fileno())  # a full disk is found before the key is delivered
