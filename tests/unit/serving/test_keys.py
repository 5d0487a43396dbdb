"""API keys: their file has hashes alone, and what is wrong in it is named."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest

from clearhead.errors import ConfigError, DataError
from clearhead.serving.http_errors import HTTPError
from clearhead.serving.keys import ApiKey, Keys, add_key, read_keys, revoke_key
from commands import clearhead


def test_a_key_is_printed_once_and_its_hash_is_kept(tmp_path, capsys):
    path = tmp_path / "keys.jsonl"
    for name in ("anna", "otto"):
        assert clearhead("api-key", name, "--keys", path, "--requests-per-minute", "7") == 0
    printed = capsys.readouterr().out.split()
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert lines == [
        {"name": name, "sha256": sha256(key.encode()).hexdigest(), "requests_per_minute": 7}
        for name, key in zip(("anna", "otto"), printed, strict=True)
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    keys = Keys(read_keys(path))
    assert [keys.owner(key) for key in printed] == ["anna", "otto"]
    clearhead("api-key", "anna", "--keys", path)
    assert "the name 'anna' is impossible or there already" in capsys.readouterr().err


def test_keys_that_are_added_and_revoked_at_once_are_all_there(tmp_path):
    path = tmp_path / "keys.jsonl"
    for number in range(6):
        add_key(path, f"old-{number}", 7)
    with ThreadPoolExecutor(12) as pool:
        added = [pool.submit(add_key, path, f"new-{number}", 7) for number in range(18)]
        revoked = [pool.submit(revoke_key, path, f"old-{number}") for number in range(6)]
    keys = Keys(read_keys(path))
    assert [keys.owner(one.result()) for one in added] == [f"new-{number}" for number in range(18)]
    assert [one.result() for one in revoked] == [None] * 6
    assert sorted(read_keys(path)) == sorted(f"new-{number}" for number in range(18))


def _full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_keys_as_they_were(tmp_path, monkeypatch):
    path = tmp_path / "keys.jsonl"
    monkeypatch.setattr("os.fsync", _full)
    with pytest.raises(DataError, match=r"cannot write .*keys.jsonl: No space left"):
        add_key(path, "anna", 7, deliver=lambda key: pytest.fail(key))
    assert not path.exists()
    monkeypatch.undo()
    add_key(path, "anna", 7)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", _full)
    for change in (lambda: add_key(path, "otto", 7), lambda: revoke_key(path, "anna")):
        with pytest.raises(DataError, match="No space left"):
            change()
        assert path.read_bytes() == before
    assert {one.name for one in tmp_path.iterdir()} == {"keys.jsonl", ".keys.jsonl.lock"}


def test_a_key_that_cannot_be_printed_is_not_added(tmp_path):
    path = tmp_path / "keys.jsonl"
    with pytest.raises(OSError, match="No space left"):
        add_key(path, "anna", 7, _full)
    assert not path.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
@pytest.mark.parametrize("case", ["unread", "closed", "full"])
def test_api_key_that_cannot_be_printed_is_not_added(tmp_path, case):
    path = tmp_path / "keys.jsonl"
    command = f"{sys.executable} -m clearhead api-key anna --keys {path}"
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as unread:
        redirected = {"unread": "", "closed": " >&-", "full": " >/dev/full"}[case]
        done = subprocess.run(command + redirected, shell=True, stdout=unread, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    why = "no key was created, because nothing reads standard output"
    assert (why if case == "unread" else "cannot write standard output") in done.stderr.decode()
    assert not path.exists()


def test_the_command_lists_and_revokes_keys(tmp_path, capsys):
    path = tmp_path / "keys.jsonl"
    for name, rate in (("anna", 7), ("otto", 60)):
        add_key(path, name, rate)

    def printed(*arguments, status=0):
        assert clearhead("api-key", *arguments, "--keys", path) == status
        return capsys.readouterr()

    assert printed("--list").out == "anna\t7\notto\t60\n"
    assert f"revoked the key of anna in {path}" in printed("anna", "--revoke").err
    assert printed("--list").out == "otto\t60\n"
    assert "has no key 'oto'; did you mean 'otto'?" in printed("oto", "--revoke", status=1).err
    assert "api-key needs NAME or --list" in printed(status=1).err
    assert "--list cannot be used with NAME" in printed("otto", "--list", status=1).err
    assert (
        "--revoke cannot be used with --requests-per-minute"
        in printed("otto", "--revoke", "--requests-per-minute", "7", status=1).err
    )
    path.unlink()
    assert "cannot read the keys" in printed("--list", status=1).err


def test_a_rate_is_kept_for_each_key_by_itself(monkeypatch):
    now = 1_000.0
    monkeypatch.setattr("clearhead.serving.keys.time.monotonic", lambda: now)
    hashes = {name: sha256(name.encode()).hexdigest() for name in "ab"}
    keys = Keys({name: ApiKey(name=name, sha256=digest, requests_per_minute=2) for name, digest in hashes.items()})
    assert [keys.owner("a") for _ in range(2)] == ["a", "a"]
    with pytest.raises(HTTPError, match="Slowdown: 2 per minute") as refused:
        keys.owner("a")
    assert (refused.value.status, refused.value.retry_after) == (429, 31)
    assert keys.owner("b") == "b"
    now += 31
    assert keys.owner("a") == "a"
    with pytest.raises(HTTPError):
        keys.owner("a")


def test_a_key_that_is_revoked_opens_nothing_and_the_others_keep_their_rate(tmp_path):
    path = tmp_path / "keys.jsonl"
    given = [add_key(path, name, 2) for name in ("anna", "otto")]
    keys = Keys(read_keys(path), path)
    assert keys.owner(given[1]) == "otto"
    assert not keys.reload()
    path.write_text(path.read_text(encoding="utf-8").splitlines()[1], encoding="utf-8")
    assert keys.reload()
    with pytest.raises(HTTPError, match="Invalid API key"):
        keys.owner(given[0])
    assert keys.owner(given[1]) == "otto"
    with pytest.raises(HTTPError, match="Slowdown"):
        keys.owner(given[1])
    path.write_text("damaged", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1"):
        keys.reload()
    with pytest.raises(HTTPError, match="Slowdown"):
        keys.owner(given[1])
    path.write_text("", encoding="utf-8")  # no key is left, and requests without a key are still refused
    assert keys.reload()
    for key in (*given, None):
        with pytest.raises(HTTPError, match=r"Invalid|operator"):
            keys.owner(key)


def test_keys_without_entries_are_not_required():
    assert Keys({}).owner("whatever") is None
    assert not Keys({}).are_required


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "line 1"),
        ('{"name": "a"}', "line 1.*sha256"),
        ('{"name": "a b", "sha256": "%s"}' % ("0" * 64), "impossible or there already"),
        ('{"name": "a", "sha256": "%s"}\n' % ("0" * 64) * 2, "line 2.*impossible or there already"),
        ('{"name": "a", "sha256": "A"}', "line 1.*sha256"),
        ('{"name": "a", "sha256": "%s", "rate": 1}' % ("0" * 64), "unknown setting 'rate'"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path, text, message):
    path = tmp_path / "keys.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        read_keys(path)
    with pytest.raises(ConfigError, match="cannot read the keys"):
        read_keys(tmp_path / "none")
