"""Input files: where pairs come from, and noticing that a file is not what it was."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import asdict

import pytest

from clearhead.config import Config, DataConfig
from clearhead.data.inputs import InputFile, changed_inputs, languages, missing_inputs, open_inputs, source_language
from clearhead.errors import ConfigError, DataError


@pytest.fixture
def config(tmp_path):
    for name, content in {
        "de": "eins\n",
        "en": "one\n",
        "p.tsv": "zwei\ttwo\n",
        "v.tsv": "drei\tthree\n",
        "x": "x\n",
    }.items():
        (tmp_path / name).write_text(content)
    return config_of(tmp_path, source=["de"], target=["en"], pairs=["p.tsv"], valid_pairs=["v.tsv"], exclude=["x"])


def config_of(folder, **data):
    return Config.from_dict({"data": {key: [str(folder / name) for name in names] for key, names in data.items()}})


def report_of(config):
    inputs = open_inputs(config)
    return {"files": [asdict(file) for file in inputs.files], "roles": inputs.roles}


def test_training_and_validation_pairs_come_from_every_file_named(config):
    inputs = open_inputs(config)
    assert [pair.target for pair in inputs.pairs] == ["one", "two"]
    assert [pair.target for pair in inputs.valid_pairs] == ["three"]


def test_no_training_text_is_a_mistake_and_no_validation_text_is_not(config, tmp_path):
    with pytest.raises(ConfigError, match=r"data\.source and data\.target .*--pairs"):
        open_inputs(Config())
    assert open_inputs(config_of(tmp_path, pairs=["p.tsv"])).valid_pairs is None


def test_source_without_target_is_refused_at_once(tmp_path):
    with pytest.raises(DataError, match="1 source files but 0 target files"):
        open_inputs(config_of(tmp_path, source=["de"], valid_target=["en"]))
    with pytest.raises(DataError, match="0 source files but 1 target files"):
        open_inputs(config_of(tmp_path, pairs=["p.tsv"], valid_target=["en"]))


def test_files_are_identified_by_size_and_hash(config, tmp_path):
    files = open_inputs(config).files
    assert [os.path.basename(file.path) for file in files] == ["de", "en", "p.tsv", "v.tsv", "x"]
    assert files[2] == InputFile(
        str(tmp_path / "p.tsv"), 9, hashlib.sha256((tmp_path / "p.tsv").read_bytes()).hexdigest()
    )


def test_file_named_twice_is_identified_once(config, tmp_path):
    twice = config_of(tmp_path, source=["de", "de"], target=["en", "p.tsv"])
    assert len(open_inputs(twice).files) == 3


def test_columns_need_a_file_that_could_have_them(config, tmp_path):
    lines = config_of(tmp_path, source=["de"], target=["en"])
    with pytest.raises(ConfigError, match=r"columns 2,1: no file of pairs is named .* name one with --pairs"):
        open_inputs(Config.from_dict({"data": {**lines.data.model_dump(), "columns": [2, 1]}}))
    for data in (lines.data.model_dump() | {"exclude": (str(tmp_path / "p.tsv"),)}, config.data.model_dump()):
        open_inputs(Config.from_dict({"data": {**data, "columns": [2, 1]}}))


def test_open_inputs_rejects_columns_that_a_file_lacks(config):
    other = Config.from_dict({"data": {**config.data.model_dump(exclude={"pairs"}), "columns": ["german", "english"]}})
    with pytest.raises(ConfigError, match=r"v\.tsv has no header with 'german' and 'english': its first row is 'drei'"):
        open_inputs(other)


def test_validation_text_with_another_header_is_read_by_its_own(tmp_path):
    (tmp_path / "p.tsv").write_text("german\tenglish\nHund\tdog\n", encoding="utf-8")
    (tmp_path / "v.tsv").write_text("source\ttarget\nKuh\tcow\n", encoding="utf-8")
    named = {"valid_pairs": [str(tmp_path / "v.tsv")], "columns": ["german", "english"]}
    inputs = open_inputs(Config.from_dict({"data": {**named, "pairs": [str(tmp_path / "p.tsv")]}}))
    assert [(pair.source, pair.target) for pair in inputs.valid_pairs] == [("Kuh", "cow")]
    lines = {"source": [str(tmp_path / "p.tsv")], "target": [str(tmp_path / "p.tsv")]}
    with pytest.raises(ConfigError, match=r"v\.tsv has no column 'german'"):
        open_inputs(Config.from_dict({"data": {**named, **lines}}))


def test_all_missing_files_are_named(config, tmp_path):
    (tmp_path / "en").unlink()
    (tmp_path / "x").unlink()
    assert missing_inputs(config) == [str(tmp_path / "en"), str(tmp_path / "x")]
    with pytest.raises(DataError, match=r"no such file: .*/en, .*/x"):
        open_inputs(config)


def test_standard_input_has_no_identity_and_can_be_named_once():
    once = Config.from_dict({"data": {"pairs": ["-"]}})
    assert open_inputs(once).files == [InputFile("-", None, None)]
    assert changed_inputs(report_of(once), once, once) == []
    with pytest.raises(DataError, match="named 2 times"):
        open_inputs(Config.from_dict({"data": {"pairs": ["-"], "valid_pairs": ["-"]}}))


def test_pipe_is_not_swallowed_by_looking_at_it(tmp_path):
    os.mkfifo(tmp_path / "pipe.tsv")
    assert open_inputs(config_of(tmp_path, pairs=["pipe.tsv"])).files == [
        InputFile(str(tmp_path / "pipe.tsv"), None, None)
    ]


def test_unchanged_files_are_not_reported(config, tmp_path):
    report = report_of(config)
    os.utime(tmp_path / "de", (1, 1))
    assert changed_inputs(report, config, config) == []


def test_changed_files_are_reported_and_missing_ones_are_not(config, tmp_path):
    report = report_of(config)
    (tmp_path / "de").write_text("zwei!\n")
    (tmp_path / "en").write_text("two\n")
    (tmp_path / "x").unlink()
    lines = changed_inputs(report, config, config)
    assert len(lines) == 2
    assert lines[0].endswith("/de has 6 bytes, the prepared data was made of 5")
    assert lines[1].endswith("/en has the same size as before but other content")


def test_added_and_left_out_files_are_reported(config, tmp_path):
    (tmp_path / "new.tsv").write_text("a\tb\n")
    other = config_of(tmp_path, source=["de"], target=["en"], pairs=["p.tsv", "new.tsv"], exclude=["x"])
    lines = changed_inputs(report_of(config), config, other)
    assert len(lines) == 2
    assert lines[0].startswith("data.pairs: files named before: 1 (")
    assert lines[0].endswith("/new.tsv)")
    assert lines[1].startswith("data.valid_pairs: files named before: 1 (")
    assert lines[1].endswith(", and now: 0 (none)")


def test_files_that_change_their_roles_or_places_are_reported(config, tmp_path):
    other = config_of(tmp_path, source=["en"], target=["de"], pairs=["v.tsv"], valid_pairs=["p.tsv"], exclude=["x"])
    lines = changed_inputs(report_of(config), config, other)
    assert [line.split(" was ")[0] for line in lines] == [
        "data.source",
        "data.target",
        "data.pairs",
        "data.valid_pairs",
    ]
    assert all(line.endswith("which has other content") for line in lines)

    two, turned = (config_of(tmp_path, source=names, target=names[::-1]) for names in (["de", "en"], ["en", "de"]))
    lines = changed_inputs(report_of(two), two, turned)
    assert [line.split(" was ")[0] for line in lines] == [
        *("data.source, file 1", "data.source, file 2", "data.target, file 1", "data.target, file 2")
    ]


def test_a_file_under_another_path_is_the_same_also_when_the_run_has_noted_that_path(config, tmp_path):
    (tmp_path / "copy").write_bytes((tmp_path / "de").read_bytes())
    moved = config_of(tmp_path, source=["copy"], target=["en"], pairs=["p.tsv"], valid_pairs=["v.tsv"], exclude=["x"])
    report = report_of(config)
    assert changed_inputs(report, config, moved) == []
    assert changed_inputs(report, moved, moved) == []
    # Files that a run last named may be taken away.
    (tmp_path / "copy").unlink()
    assert changed_inputs(report, moved, moved) == []
    assert changed_inputs(report, config, moved) == [
        f"data.source was {tmp_path / 'de'} and now is {tmp_path / 'copy'}, which cannot be compared"
    ]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ({"source": ["a/train.de.gz"], "target": ["b.en"]}, ("de", "en")),
        ({"source": ["a.de", "b.nl"], "target": ["a.en", "b.en"]}, (None, "en")),
        ({"source": ["a.de"], "target": ["a.en"], "swap": True}, ("en", "de")),
        ({"pairs": ["p.tmx"], "from_lang": "de-AT"}, ("de-AT", None)),
        ({"source": ["a.de"], "target": ["a.en"], "pairs": ["p.tsv"]}, (None, None)),
    ],
)
def test_languages_come_from_settings_or_names_of_files(data, found):
    assert languages(DataConfig(**data)) == found


def test_source_language_has_no_modifier_of_gettext():
    config = Config.from_dict({"data": {"pairs": ["sr@latin.po"], "from_lang": "sr@latin"}})
    assert source_language(config) == "sr"


@pytest.mark.parametrize(
    ("files", "swap", "found"),
    [
        ({"a.csv": "en,de-AT\nyes,ja\n", "b.tsv": "no\tnein\n"}, False, ("en", "de-AT")),  # the second names none
        ({"a.csv": "en,de-AT\nyes,ja\n"}, True, ("de-AT", "en")),
        ({"a.csv": "en,de-AT\nyes,ja\n", "b.csv": "en,de\nyes,ja\n"}, False, ("en", "de")),
        ({"a.csv": "en,de\nyes,ja\n", "b.csv": "nl,de\nja,ja\n"}, False, (None, "de")),
    ],
)
def test_languages_come_from_headers_of_pair_files(tmp_path, files, swap, found):
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    config = Config.from_dict({"data": {"pairs": [str(tmp_path / name) for name in files], "swap": swap}})
    inputs = open_inputs(config)
    assert languages(config.data, inputs.opened) == found
    assert inputs.several_targets() is None


def test_several_target_languages_are_refused(tmp_path):
    for name, text in {"a.csv": "en,de\nyes,ja\n", "b.csv": "en,fr\nyes,oui\n"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    inputs = open_inputs(Config.from_dict({"data": {"pairs": [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]}}))
    message = inputs.several_targets()
    assert re.search(r"different target languages: de \(.*a\.csv\); fr \(.*b\.csv\); .*--force-data", message)


@pytest.fixture
def folder(tmp_path):
    """Return a directory with two files of pairs in it and one other, and beside it a third."""
    for name, text in {
        "all/a.tsv": "eins\tone\n",
        "all/b/c.po": 'msgid "two"\nmsgstr "zwei"\n',
        "all/READ.md": "x",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "d.tsv").write_text("drei\tthree\n")
    return tmp_path


def prepared(config):
    """Return what `prepare` would note of the files."""
    inputs = open_inputs(config)
    return {"files": [asdict(file) for file in inputs.files], "roles": inputs.roles}


def test_directories_and_patterns_are_expanded_in_every_role_of_pairs(folder):
    told: list[str] = []
    named = {"pairs": ["all", "d.tsv"], "valid_pairs": ["all/*.tsv"], "general_pairs": ["*.tsv"]}
    named["exclude"] = ["all/b", "all/READ*"]
    data = {role: [str(folder / name) for name in names] for role, names in named.items()}
    config = Config.from_dict({"from_model": "runs/general", "data": data})
    inputs = open_inputs(config, notice=told.append)
    assert [pair.target for pair in inputs.pairs] == ["one", "zwei", "three"]
    assert [pair.target for pair in inputs.valid_pairs] == ["one"]
    assert [pair.target for pair in inputs.general] == ["three"]
    assert [text for _, segments in inputs.excluded for _, text in segments] == ["two", "zwei", "x"]
    names = {role: [os.path.relpath(path, folder) for path in paths] for role, paths in inputs.roles.items() if paths}
    assert names == {
        "pairs": ["all/a.tsv", "all/b/c.po", "d.tsv"],
        "valid_pairs": ["all/a.tsv"],
        "general_pairs": ["d.tsv"],
        "exclude": ["all/b/c.po", "all/READ.md"],
    }
    assert {os.path.relpath(file.path, folder) for file in inputs.files} == {
        *names["pairs"],
        *names["exclude"],
    }
    assert told[0] == f"{folder / 'all'}: files of pairs: 2; other files in it, which are left out: 1"
    assert config.data.pairs == (str(folder / "all"), str(folder / "d.tsv"))  # as the user wrote it


def test_the_weight_of_a_directory_is_that_of_its_files(folder):
    config = config_of(folder, pairs=["all", "d.tsv"])
    assert open_inputs(config).weights == {}
    weighted = Config.from_dict({"data": {"pairs": config.data.pairs, "weights": [3, 2]}})
    weights = {os.path.relpath(path, folder): weight for path, weight in open_inputs(weighted).weights.items()}
    assert weights == {"all/a.tsv": 3, "all/b/c.po": 3, "d.tsv": 2}


def test_a_file_with_two_weights_is_refused(folder):
    pairs = [str(folder / "all"), str(folder / "all" / "a.tsv")]
    assert open_inputs(Config.from_dict({"data": {"pairs": pairs, "weights": [3, 3]}})).weights[pairs[1]] == 3
    with pytest.raises(ConfigError, match=r"all/a\.tsv is in data\.pairs more than once, with the weights 3 and 1"):
        open_inputs(Config.from_dict({"data": {"pairs": pairs, "weights": [3, 1]}}))


def test_a_directory_or_pattern_without_files_is_refused_and_reported_as_missing(folder):
    (folder / "empty").mkdir()
    for name, message in (("empty", "a directory without a file of pairs"), ("*.xlsx", "no file matches this pattern")):
        config = config_of(folder, pairs=["d.tsv", name])
        with pytest.raises(DataError, match=message):
            open_inputs(config)
        assert missing_inputs(config) == [str(folder / name)]
    # Lines are not looked for: a pattern there is a name.
    assert missing_inputs(config_of(folder, source=["*.tsv"], target=["d.tsv"])) == [str(folder / "*.tsv")]
    with pytest.raises(DataError, match=r"no such file: .*/\*\.tsv"):
        open_inputs(config_of(folder, source=["*.tsv"], target=["d.tsv"]))


def test_changed_inputs_compares_the_files_of_a_directory(folder):
    config = config_of(folder, pairs=["all", "d.tsv"])
    report = prepared(config)
    assert changed_inputs(report, config, config) == []
    spelled_out = config_of(folder, pairs=["all/a.tsv", "all/b/c.po", "d.tsv"])
    assert changed_inputs(report, config, spelled_out) == []
    (folder / "all/b/c.po").write_text('msgid "two"\nmsgstr "drei"\n')
    assert changed_inputs(report, config, config) == [
        f"data.pairs, file 2: {folder / 'all/b/c.po'} has the same size as before but other content"
    ]


def test_changed_inputs_reports_added_and_removed_files_of_a_directory(folder):
    config = config_of(folder, pairs=["all"])
    report = prepared(config)
    (folder / "all/new.jsonl").write_text("")
    (line,) = changed_inputs(report, config, config)
    assert line.startswith("data.pairs: files named before: 2 (")
    assert line.endswith("/new.jsonl)")
    (folder / "all/new.jsonl").unlink()
    (folder / "all/a.tsv").unlink()
    (line,) = changed_inputs(report, config, config)
    assert line.endswith(f", and now: 1 ({folder / 'all/b/c.po'})")


def test_changed_inputs_lists_only_new_files_of_many(folder):
    for number in range(20):
        (folder / f"all/{number}.tsv").write_text(f"{number}\tx\n")
    config = config_of(folder, pairs=["all"])
    report = prepared(config)
    (folder / "all/new.tsv").write_text("neu\tnew\n")
    (line,) = changed_inputs(report, config, config)
    came = folder / "all/new.tsv"
    assert line == f"data.pairs: files named before: 22 (all of them among the others), and now: 23 (among them {came})"


def test_a_directory_or_pattern_that_was_taken_away_does_not_stop_a_run(folder):
    config = config_of(folder, pairs=["all", "d.tsv"], exclude=["a*/*.tsv"])
    report = prepared(config)
    shutil.rmtree(folder / "all")
    assert missing_inputs(config) == [str(folder / "all"), str(folder / "a*/*.tsv")]
    assert changed_inputs(report, config, config) == []
    # But one that the run did not name is a change.
    assert len(changed_inputs(report, config, config_of(folder, pairs=["other", "d.tsv"], exclude=["a*/*.tsv"]))) == 1
