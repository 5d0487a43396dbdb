"""Parts of an output that are kept beside it: made once, joined in order, of one input and one origin."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress

import pytest

from clearhead.errors import DataError
from clearhead.files import output_parts
from clearhead.files.output_parts import OutputParts, Part, Shard

LINES = ["a", "b\r", "", "d\u2028e", "犬", "f", "g"]


@pytest.fixture(autouse=True)
def shards_of_three_lines(monkeypatch):
    monkeypatch.setattr(output_parts, "SHARD_LINES", 3)


def upper(shard):
    """Return the part that a worker would make of a shard, given as a row."""
    shard = Shard(**shard._asdict())
    return Part("".join(line.upper() + "\n" for line in shard.lines()), {"first": shard.first}).to_bytes(shard)


@contextmanager
def ended(output, lines=LINES, **origin):
    """Open parts for work that ends with an error."""
    with suppress(KeyboardInterrupt), OutputParts.of(str(output), [("in.txt", lines)], origin) as parts:
        yield parts
        raise KeyboardInterrupt


def interrupted(output, lines=LINES, *, numbers=(), **origin):
    """Make some parts, and end with an error; return the shards."""
    with ended(output, lines, **origin) as parts:
        for number in numbers:
            parts.add(parts.shards[number], upper(parts.shards[number]))
    return parts.shards


def test_parts_are_joined_in_the_order_of_the_input(tmp_path):
    output = tmp_path / "out.txt"
    with OutputParts.of(str(output), [("in.txt", LINES)], {"model": "m"}) as parts:
        assert [(shard.number, shard.first, shard.lines()) for shard in parts.shards] == [
            (0, 1, LINES[:3]),
            (1, 4, LINES[3:6]),
            (2, 7, LINES[6:]),
        ]
        for shard in (parts.shards[2], parts.shards[0], parts.shards[1]):
            parts.add(shard, upper(shard))
        assert "".join(part.text for _, part in parts) == "".join(line.upper() + "\n" for line in LINES)
        assert [part.details for _, part in parts] == [{"first": 1}, {"first": 4}, {"first": 7}]
    assert list(tmp_path.iterdir()) == []


def test_shards_are_of_one_file_each(tmp_path):
    inputs = [("a.txt", LINES[:4]), ("empty.txt", []), ("b.txt", LINES[4:])]
    with OutputParts.of(str(tmp_path / "out.txt"), inputs, {}) as parts:
        assert [(shard.number, shard.name, shard.first, shard.lines()) for shard in parts.shards] == [
            (0, "a.txt", 1, LINES[:3]),
            (1, "a.txt", 4, LINES[3:4]),
            (2, "b.txt", 1, LINES[4:]),
        ]


def test_an_input_without_lines_has_no_parts(tmp_path):
    with OutputParts.of(str(tmp_path / "out.txt"), [], {}) as parts:
        assert parts.shards == list(parts) == []


def test_finished_parts_stay_after_an_interruption(tmp_path):
    output = tmp_path / "out.txt"
    interrupted(output, numbers=[2], model="m")
    with OutputParts.of(str(output), [("in.txt", LINES)], {"model": "m"}) as parts:
        assert [parts.get(shard) is not None for shard in parts.shards] == [False, False, True]
        with pytest.raises(DataError, match=r"part-00000000 was damaged or removed; the same command makes it again"):
            list(parts)
        for shard in parts.shards[:2]:
            parts.add(shard, upper(shard))
    assert not (tmp_path / "out.txt.parts").exists()


def test_a_damaged_part_is_not_used(tmp_path):
    output = tmp_path / "out.txt"
    shards = interrupted(output, numbers=[0, 1])
    path = tmp_path / "out.txt.parts" / "part-00000001"
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:40], b"", whole.replace("犬".encode(), "猫".encode()), upper(shards[0])):
        path.write_bytes(damaged)
        with ended(output) as parts:
            assert [parts.get(shard) is not None for shard in shards] == [True, False, False]
            with pytest.raises(DataError, match="from line 4 on was damaged on its way"):
                parts.add(shards[1], damaged)


@pytest.mark.parametrize(
    ("lines", "origin", "changed"),
    [
        ([*LINES, "h"], {"model": "m", "beam": 4}, "input"),
        (LINES, {"model": "n", "beam": 4}, "model"),
        (LINES, {"model": "m", "beam": 5, "terms": []}, "beam, terms"),
    ],
)
def test_parts_of_another_origin_are_refused(tmp_path, lines, origin, changed):
    output = tmp_path / "out.txt"
    interrupted(output, numbers=[1], model="m", beam=4)
    match = rf"out\.txt\.parts has finished parts of an output that was made with another {changed}; repeat"
    with pytest.raises(DataError, match=match), OutputParts.of(str(output), [("in.txt", lines)], origin):
        pass
    assert interrupted(output, model="m", beam=4), "the parts are still there"
    (tmp_path / "out.txt.parts" / "origin.json").unlink()
    inputs = [("in.txt", LINES)]
    with (
        pytest.raises(DataError, match=r"origin\.json"),
        OutputParts.of(str(output), inputs, {"model": "m", "beam": 4}),
    ):
        pass


def test_work_that_finished_no_part_leaves_nothing_and_hinders_no_other(tmp_path):
    output = tmp_path / "out.txt"
    with ended(output, model="m"):
        origin = (tmp_path / "out.txt.parts" / "origin.json").read_bytes()
    assert list(tmp_path.iterdir()) == []

    def unreadable():
        yield from LINES[:4]
        raise DataError("in.txt, line 5: no text")

    with pytest.raises(DataError, match="line 5"), OutputParts.of(str(output), [("in.txt", unreadable())], {}):
        pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out.txt.parts").mkdir()  # as a kill leaves it
    (tmp_path / "out.txt.parts" / "origin.json").write_bytes(origin)
    with ended(output, [*LINES, "h"], model="n") as parts:
        assert [shard.num_lines for shard in parts.shards] == [3, 3, 2]


def test_a_worker_refuses_lines_that_are_not_those_of_the_shard(tmp_path):
    shard = interrupted(tmp_path / "out.txt", numbers=[0])[1]
    lines = tmp_path / "out.txt.parts" / "lines.txt"
    lines.write_bytes(lines.read_bytes().replace(b"f", b"F"))
    with pytest.raises(DataError, match=r"lines\.txt has other lines from 4 on"):
        shard.lines()
    lines.unlink()
    with pytest.raises(DataError, match=r"cannot read .*lines\.txt, which must be there on every machine: No such"):
        shard.lines()


def test_one_process_works_on_an_output(tmp_path):
    output, match = str(tmp_path / "out.txt"), re.escape("out.txt.parts; wait for its end")
    with OutputParts.of(output, [], {}), pytest.raises(DataError, match=match), OutputParts.of(output, [], {}):
        pass


def test_files_of_others_in_the_directory_stay(tmp_path):
    (directory := tmp_path / "out.txt.parts").mkdir()
    (directory / "notes").write_text("mine")
    with OutputParts.of(str(tmp_path / "out.txt"), [("in.txt", LINES)], {}) as parts:
        for shard in parts.shards:
            parts.add(shard, upper(shard))
    assert [path.name for path in directory.iterdir()] == ["notes"]


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "out.txt.parts").write_text("a file")
    with (
        pytest.raises(DataError, match=r"cannot keep finished parts in .*out\.txt\.parts: File exists"),
        OutputParts.of(str(tmp_path / "out.txt"), [("in.txt", LINES)], {}),
    ):
        pass
