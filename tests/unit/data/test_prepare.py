"""Preparing data end to end: everything counted, nothing leaked, nothing half-made left behind."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import sys
from itertools import islice
from pathlib import Path

import pytest

from clearhead.config import Config, TrainConfig
from clearhead.data.batches import BLOCK
from clearhead.data.clean import CleaningReport, normalized_key
from clearhead.data.prepare import open_prepared, prepare
from clearhead.errors import ConfigError, DataError
from clearhead.files import read_lines
from clearhead.text.line_statistics import LineStatistics

NOUNS = ["Hund", "Katze", "Haus", "Baum", "Kind", "Mann", "Frau", "Ball", "Auto", "Berg", "Fluss", "Stadt"]
VERBS = ["sieht", "sucht", "findet", "malt", "zeigt", "kauft"]


def sentences(count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Distinct made-up pairs, the target a word-by-word image of the source."""
    choose = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        words = [choose.choice(NOUNS), choose.choice(VERBS), choose.choice(NOUNS), str(choose.randrange(100))]
        found[" ".join(words)] = " ".join(word[::-1].lower() for word in words)
    return list(found.items())


def write_tsv(path: Path, texts) -> str:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in texts), encoding="utf-8", newline="\n")
    return str(path)


def config_of(*, tokenizer=None, decode=None, seed=1, **data) -> Config:
    sections = {"data": data, "tokenizer": tokenizer or {}, "train": {"seed": seed}, "decode": decode or {}}
    return Config.from_dict(sections)


def texts_of(store) -> list[tuple[str, str]]:
    return [(store.source(row), store.target(row)) for row in range(len(store))]


def test_data_of_more_pairs_than_a_window_has_the_window_in_its_report(tmp_path, monkeypatch):
    path = write_tsv(tmp_path / "pairs.tsv", sentences(1_500))
    settings = {"pairs": [path], "valid_size": 100}
    whole = prepare(config_of(**settings), tmp_path / "whole" / "data")
    assert "window" not in whole.report
    monkeypatch.setattr("clearhead.data.prepare.WINDOW", 1_100)
    cut = prepare(config_of(**settings), tmp_path / "cut" / "data")
    assert cut.report["window"] == 1_100
    orders = [data.order(TrainConfig(batch_tokens=997)) for data in (whole, open_prepared(tmp_path / "cut" / "data"))]
    firsts = [{row // BLOCK for step in range(3) for row in order.rows(step).tolist()} for order in orders]
    assert firsts[0] == {0, 1}
    assert len(firsts[1]) == 1


def assert_counts_add_up(report) -> None:
    for part in ("train", "valid"):
        counts = report[part]
        assert counts["read"] == counts["kept"] + counts["held_out"] + sum(counts["dropped"].values())


@pytest.mark.parametrize(
    ("hold_out", "num_files", "how"), [(None, 1, "passage"), (None, 60, "file"), ("line", 60, "line")]
)
def test_the_report_says_how_pairs_are_held_out(tmp_path, hold_out, num_files, how):
    texts = sentences(600)
    size = len(texts) // num_files
    files = [write_tsv(tmp_path / f"{n}.tsv", texts[n * size : (n + 1) * size]) for n in range(num_files)]
    config = config_of(pairs=files, hold_out=hold_out, valid_size=50, augment=False)
    prepared = prepare(config, tmp_path / "run" / "data")
    assert prepared.report["held_out_by"] == how
    given = write_tsv(tmp_path / "valid.tsv", sentences(20, seed=2))
    given_text = config_of(pairs=files, valid_pairs=[given], augment=False)
    assert "held_out_by" not in prepare(given_text, tmp_path / "given" / "data").report
    rows = sorted(texts.index(pair) for pair in texts_of(prepared.valid))
    assert len(rows) == 50
    num_starts = sum(row - 1 not in rows for row in rows)
    assert num_starts <= 10 if how != "line" else num_starts > 30
    assert how != "file" or len({row // size for row in rows}) == 5


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_pairs_are_held_out_without_leakage_and_all_are_counted(tmp_path, kind):
    texts = sentences(211)
    texts += [(source.upper() + "!", f"noch einmal {n}") for n, (source, _) in enumerate(texts[:150])]
    texts += [("", "x"), texts[7], ("x" * 121, "short")]
    config = config_of(pairs=[write_tsv(tmp_path / "p.tsv", texts)], tokenizer={"kind": kind})
    prepared = prepare(config, tmp_path / "run" / "data")

    report = prepared.report
    assert_counts_add_up(report)
    assert report["valid_held_out"] is True
    assert report["train"]["read"] == 364
    assert report["train"]["held_out"] == report["valid"]["kept"] == len(prepared.valid) == 36
    assert report["train"]["kept"] == len(prepared.train)
    dropped = report["train"]["dropped"]
    assert (dropped["empty"], dropped["duplicate"], dropped["length_ratio"]) == (1, 1, 1)
    assert dropped["leakage"] > 10
    train, valid = (
        {normalized_key(side) for pair in texts_of(store) for side in pair} for store in prepared_stores(prepared)
    )
    assert train.isdisjoint(valid)
    assert set(texts_of(prepared.train) + texts_of(prepared.valid)) <= set(texts)


def prepared_stores(prepared):
    return prepared.train, prepared.valid


def test_ids_are_the_tokens_of_the_text_and_the_files_identify_themselves(tmp_path):
    path = tmp_path / "p.tsv.gz"
    path.write_bytes(gzip.compress("".join(f"{s}\t{t}\n" for s, t in sentences(101)).encode()))
    prepared = prepare(config_of(pairs=[str(path)]), tmp_path / "run" / "data")
    tokenizer, report = prepared.tokenizer, prepared.report
    for store in prepared_stores(prepared):
        sources, targets = zip(*texts_of(store), strict=True)
        assert [store.source_ids(row).tolist() for row in range(len(store))] == tokenizer.encode_sources(sources)
        assert [store.target_ids(row).tolist() for row in range(len(store))] == tokenizer.encode_targets(targets)
    assert report["files"] == [
        {
            "path": str(path),
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "lines": 101,
            "read_as": "tab-separated, 2 columns; from column 1 to column 2",
        }
    ]
    assert report["tokenizer"] == {"kind": "bpe", "vocab_size": tokenizer.vocab_size, "sha256": tokenizer.sha256}
    assert report["tokens"] == {
        "source": prepared.train.source_lengths.sum(),
        "target": prepared.train.target_lengths.sum(),
    }
    assert sorted(os.listdir(tmp_path / "run")) == ["data", "tokenizer.json"]
    assert sorted(os.listdir(tmp_path / "run" / "data")) == ["report.json", "train.arrow", "valid.arrow"]


def test_given_validation_and_excluded_text_is_kept_out_of_training(tmp_path):
    texts = sentences(97)
    valid = [texts[3], ("ein neuer Satz", texts[5][1].upper()), ("", "blank"), ("ein neuer Satz", texts[5][1].upper())]
    (tmp_path / "test.de").write_text(f"{texts[11][0]} ?!\n\nunbekannt\n")
    config = config_of(
        pairs=[write_tsv(tmp_path / "p.tsv", texts)],
        valid_pairs=[write_tsv(tmp_path / "v.tsv", valid)],
        exclude=[str(tmp_path / "test.de")],
    )
    prepared = prepare(config, tmp_path / "data")
    assert texts_of(prepared.valid) == valid[:2]
    assert texts_of(prepared.train) == [pair for n, pair in enumerate(texts) if n not in (3, 5, 11)]
    report = prepared.report
    assert_counts_add_up(report)
    assert report["valid_held_out"] is False
    assert report["train"]["dropped"]["leakage"] == 3
    assert report["train"]["examples"]["leakage"] == [f"{tmp_path / 'p.tsv'}:{line}" for line in (4, 6, 12)]
    assert report["valid"]["dropped"]["empty"] == report["valid"]["dropped"]["duplicate"] == 1
    assert [file["lines"] for file in report["files"]] == [97, 4, 3]


def test_both_sides_of_a_test_set_in_one_file_are_kept_out_of_training(tmp_path):
    texts = sentences(97)
    (tmp_path / "test.csv").write_text(f'en,de\n"{texts[3][1].upper()}!",neu\nnew,{texts[5][0]}\n', encoding="utf-8")
    (tmp_path / "test.txt").write_text(f"{texts[7][0]}\tnew\tCC-BY\n", encoding="utf-8")
    told: list[str] = []
    config = config_of(
        pairs=[write_tsv(tmp_path / "p.tsv", texts)],
        valid_pairs=[write_tsv(tmp_path / "v.tsv", [("ein Satz", "nie")])],
        exclude=[str(tmp_path / "test.csv"), str(tmp_path / "test.txt")],
    )
    prepared = prepare(config, tmp_path / "data", notice=told.append)
    assert texts_of(prepared.train) == [pair for n, pair in enumerate(texts) if n not in (3, 5, 7)]
    assert [line.split(": ")[0] for line in told] == [
        str(tmp_path / name) for name in ("p.tsv", "v.tsv", "test.csv", "test.txt")
    ]
    assert [f"{file['path']}: {file['read_as']}" for file in prepared.report["files"]] == told
    assert [file["lines"] for file in prepared.report["files"]] == [97, 1, 3, 1]
    (tmp_path / "test.txt").write_text("a\tb\ntorn\n")
    with pytest.raises(DataError, match=r"test\.txt, line 2: there is no tab"):  # or its text would be trained on
        prepare(config, tmp_path / "data")


def test_rows_that_are_no_pairs_are_counted_up_to_one_in_a_hundred_of_a_file(tmp_path):
    lines = [f"{source}\t{target}\n" for source, target in sentences(400)]
    for row in (7, 107, 207, 307):
        lines[row] = "torn\n"
    path = tmp_path / "p.tsv"
    path.write_text("".join(lines), encoding="utf-8")
    valid = write_tsv(tmp_path / "v.tsv", sentences(200, seed=2))
    prepared = prepare(config_of(pairs=[str(path)], valid_pairs=[valid]), tmp_path / "data")
    assert_counts_add_up(prepared.report)
    assert prepared.report["train"]["dropped"]["malformed"] == 4
    assert prepared.report["train"]["read"] == 400
    assert prepared.report["train"]["examples"]["malformed"] == [f"{path}:{line}" for line in (8, 108, 208)]
    path.write_text("".join(lines) + "torn\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"5 of 401 rows are no pairs, and at most 1 % may be skipped"):
        prepare(config_of(pairs=[str(path)]), tmp_path / "other" / "data")
    with pytest.raises(DataError, match=r"5 of 401 rows are no pairs"):
        prepare(config_of(pairs=[valid], valid_pairs=[str(path)]), tmp_path / "other" / "data")


def test_the_other_direction_is_prepared_of_every_file(tmp_path):
    texts, valid = sentences(97), sentences(11, seed=5)
    for name, side in (("de", 0), ("en", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in texts[:50]), encoding="utf-8")
    config = config_of(
        source=[str(tmp_path / "de")],
        target=[str(tmp_path / "en")],
        pairs=[write_tsv(tmp_path / "p.tsv", texts[50:])],
        valid_pairs=[write_tsv(tmp_path / "v.tsv", valid)],
        swap=True,
    )
    prepared = prepare(config, tmp_path / "data")
    assert texts_of(prepared.train) == [pair[::-1] for pair in texts]
    assert texts_of(prepared.valid) == [pair[::-1] for pair in valid]
    assert [file["lines"] for file in prepared.report["files"]] == [50, 50, 47, 11]


def test_files_of_different_formats_are_one_corpus(tmp_path):
    texts = sentences(90)
    tsv = write_tsv(tmp_path / "a.tsv", texts[:30])
    semicolons = tmp_path / "b.csv"
    semicolons.write_text("".join(f'"{a}";"{b}"\n' for a, b in texts[30:60]), encoding="utf-8")
    anki = tmp_path / "c.txt.gz"
    lines = "".join(f"<b>{a}</b>\t{b}\ttag\n" for a, b in texts[60:])
    anki.write_bytes(gzip.compress(f"#separator:tab\n#html:true\n#tags column:3\n{lines}".encode()))
    config = config_of(pairs=[tsv, str(semicolons), str(anki)], valid_size=9)
    prepared = prepare(config, tmp_path / "data")
    assert sorted(texts_of(prepared.train) + texts_of(prepared.valid)) == sorted(texts)
    assert [file["lines"] for file in prepared.report["files"]] == [30, 30, 33]


def test_an_epoch_has_pairs_as_often_as_the_weight_of_their_file_says(tmp_path):
    first, second = sentences(240)[:120], sentences(240)[120:]
    files = [write_tsv(tmp_path / "first.tsv", first), write_tsv(tmp_path / "second.tsv", second)]
    config = config_of(pairs=files, weights=[3, 1], augment=False)
    prepared = prepare(config, tmp_path / "run" / "data")
    for data in (prepared, open_prepared(tmp_path / "run" / "data")):
        order = data.order(config.train)
        steps = range(order.batches_per_epoch)
        seen = [data.train.source(row) for step in steps for row in order.rows(step)]
        kept = [source for source, _ in texts_of(data.train)]
        assert sorted(seen) == sorted(kept + [source for source in kept if source in dict(first)] * 2)


@pytest.mark.parametrize("num_general", [60, 900])  # one round of it, and several
def test_general_text_is_mixed_in_beside_weights(tmp_path, num_general):
    texts = sentences(240 + num_general)
    new, general = texts[:240], texts[240:]
    paths = [write_tsv(tmp_path / name, some) for name, some in (("new.tsv", new), ("general.tsv", general))]
    data = {"pairs": paths[:1], "weights": [2], "general_pairs": paths[1:], "valid_size": 20, "augment": False}
    config = Config.from_dict({"from_model": "model", "data": data, "tokenizer": {"vocab_size": 280}})
    prepared = prepare(config, tmp_path / "run" / "data")
    order = prepared.order(config.train)
    seen = [prepared.train.source(row) for row in order.rows(0)]
    assert all(seen.count(source) == 1 + (source in dict(new)) for source in seen)
    assert {source in dict(new) for source in seen} == {True, False}


def test_same_seed_gives_the_same_files_and_another_seed_another_validation(tmp_path):
    path = write_tsv(tmp_path / "p.tsv", sentences(211))
    runs = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        prepare(config_of(pairs=[path], seed=seed), tmp_path / name / "data")
        files = [tmp_path / name / "tokenizer.json", *sorted((tmp_path / name / "data").iterdir())]
        runs[name] = [file.read_bytes() for file in files]
    assert runs["a"] == runs["b"]
    assert runs["a"] != runs["c"]


def test_standard_input_is_read_once_and_counted(tmp_path, monkeypatch):
    content = "".join(f"{source}\t{target}\n" for source, target in sentences(83)).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    prepared = prepare(config_of(pairs=["-"]), tmp_path / "data")
    assert len(prepared.train) + len(prepared.valid) == 83
    assert prepared.report["files"] == [
        {
            "path": "-",
            "bytes": None,
            "sha256": None,
            "lines": 83,
            "read_as": "tab-separated, 2 columns; from column 1 to column 2",
        }
    ]


SWAPPED = ("The man and the woman are here with their dog.", "Der Mann und die Frau sind mit ihrem Hund hier.")
GARBLED = ("Die GrÃ¶ÃŸe der TÃ¼r ist nicht bekannt.", "Nobody knows the height of the door.")


def german(count: int) -> list[tuple[str, str]]:
    """Return made-up pairs in two languages."""
    found = []
    for number in range(count):
        one, other = NOUNS[number % 12], NOUNS[number // 12 % 12]
        found.append(
            (f"Der {one} ist {number} mal die {other}.", f"The {one} is there {number} times with the {other}.")
        )
    return found


def test_training_text_is_mended_and_what_cannot_be_is_dropped_under_reasons_of_its_own(tmp_path):
    rows = [*german(100), SWAPPED, GARBLED, ("Die T\ufffdr ist zu.", "The door is shut."), ("Hund", "")]
    data = {"pairs": [write_tsv(tmp_path / "p.tsv", [*rows, german(1)[0]])], "augment": False}
    told: list[str] = []
    config = config_of(**data, fix=["mojibake", "swapped"], drop=["empty", "no_translation"])
    stages: list[str] = []
    prepared = prepare(config, tmp_path / "data", on_progress=lambda stage, _: stages.append(stage), notice=told.append)
    assert stages.index("looking for what to mend") < stages.index("mending")
    assert "no_translation is not looked for: there are too few pairs to learn from" in told
    counts = prepared.report["train"]
    assert counts["mended"] == {"mojibake": 1, "swapped": 1}
    assert counts["dropped"]["doctor_mojibake"] == counts["dropped"]["doctor_empty"] == 1
    assert (counts["dropped"]["empty"], counts["dropped"]["duplicate"], counts["read"]) == (0, 1, 105)
    assert counts["examples"]["doctor_mojibake"] == [f"{tmp_path}/p.tsv:103"]
    assert_counts_add_up(prepared.report)
    texts = [*texts_of(prepared.train), *texts_of(prepared.valid)]
    assert SWAPPED[::-1] in texts
    assert (GARBLED[0].encode("cp1252").decode(), GARBLED[1]) in texts
    assert not {*texts} & {SWAPPED, GARBLED}
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"train.arrow", "valid.arrow", "report.json"}
    lines = CleaningReport(**counts).lines()
    assert "           1 mended: swapped" in lines
    assert any("dropped: doctor_mojibake, a finding of the data doctor" in line for line in lines)
    # Mended text is compared with validation text as any other.
    data["valid_pairs"] = [write_tsv(tmp_path / "v.tsv", [("Die Größe der Tür ist nicht bekannt", "x")])]
    prepared = prepare(config_of(**data, fix=["mojibake"]), tmp_path / "data")
    assert prepared.report["train"]["dropped"]["leakage"] == 1
    assert prepared.report["valid"]["kept"] == 1


@pytest.mark.parametrize("processes", [1, 2])
def test_training_text_of_which_much_is_wrong_is_refused_unless_it_is_forced(tmp_path, processes, monkeypatch):
    monkeypatch.setattr("clearhead.data.survey.LEAST_PAIRS", 100)
    rows = german(100)
    swapped = [(target, source) for source, target in german(130)[100:]]
    config = config_of(pairs=[write_tsv(tmp_path / "p.tsv", [*rows, *swapped])], augment=False)
    with pytest.raises(DataError, match=r"about 2. % of the training pairs look wrong: 2. with source") as told:
        prepare(config, tmp_path / "data", processes=processes)
    assert str(told.value).endswith("--set data.fix=swapped; if all is as it should be, add --force-data")
    assert [path.name for path in tmp_path.iterdir()] == ["p.tsv"]
    forced = prepare(config, tmp_path / "data", is_forced=True)
    assert forced.report["wrong"]["findings"].keys() == {"swapped"}
    assert open_prepared(tmp_path / "data").report["wrong"] == forced.report["wrong"]
    config = config_of(pairs=[write_tsv(tmp_path / "p.tsv", [*rows, *swapped])], augment=False, fix=["swapped"])
    assert prepare(config, tmp_path / "data").report["wrong"]["findings"] == {}


def test_prepare_rejects_dropping_other_language_with_language_tags(tmp_path):
    data = {"pairs": [write_tsv(tmp_path / "p.tsv", sentences(30))]}
    config = config_of(**data, drop=["other_language", "wrong_script"], tokenizer={"language_tags": ["de", "fr"]})
    with pytest.raises(ConfigError, match="other_language, wrong_script cannot be told in text of several languages"):
        prepare(config, tmp_path / "data")


def test_language_tags_become_one_token_and_are_not_learned_as_text(tmp_path):
    texts = [(f"<2{'de' if n % 2 else 'sv'}> {source}", target) for n, (source, target) in enumerate(sentences(199))]
    config = config_of(
        pairs=[write_tsv(tmp_path / "p.tsv", texts)],
        exclude=[str(tmp_path / "test")],
        tokenizer={"language_tags": ["de", "sv"]},
    )
    (tmp_path / "test").write_text(texts[17][0].partition(" ")[2] + "\n")
    prepared = prepare(config, tmp_path / "data")
    tokenizer = prepared.tokenizer
    for row, (source, _) in enumerate(texts_of(prepared.train)):
        assert prepared.train.source_ids(row)[0] == tokenizer.language_tags[source[2:4]]
    assert texts[17] not in texts_of(prepared.train) + texts_of(prepared.valid)
    untagged = prepare(
        config_of(pairs=[write_tsv(tmp_path / "q.tsv", [(s.partition(" ")[2], t) for s, t in texts])]),
        tmp_path / "other" / "data",
    )
    assert tokenizer.encode_targets(["<2de>"]) == [[*tokenizer.encode("<2de>"), tokenizer.eos_id]]
    assert abs(tokenizer.vocab_size - untagged.tokenizer.vocab_size) < 40


def test_pairs_with_too_many_tokens_are_dropped_and_counted_on_both_sets(tmp_path):
    long_pair = ("Hund Katze " * 40, "dnuh eztak " * 40)
    config = config_of(
        pairs=[write_tsv(tmp_path / "p.tsv", [*sentences(53), long_pair])],
        valid_pairs=[write_tsv(tmp_path / "v.tsv", [("ein Satz", "nie"), (long_pair[0] + "x", long_pair[1] + "y")])],
        max_length=31,
    )
    prepared = prepare(config, tmp_path / "data")
    assert_counts_add_up(prepared.report)
    assert prepared.report["train"]["dropped"]["too_many_tokens"] == 1
    assert prepared.report["train"]["examples"]["too_many_tokens"] == [f"{tmp_path / 'p.tsv'}:54"]
    assert prepared.report["valid"]["dropped"]["too_many_tokens"] == 1
    assert len(prepared.train) == 53
    assert max(prepared.train.source_lengths[:].max(), prepared.train.target_lengths[:].max()) <= 31


def test_captions_are_all_accounted_for(tmp_path, data_dir):
    for language in ("de", "en"):
        lines = islice(read_lines(str(data_dir("multi30k") / f"train.{language}.gz")), 997)
        (tmp_path / language).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    stages = []
    prepared = prepare(
        config_of(source=[str(tmp_path / "de")], target=[str(tmp_path / "en")], max_characters=130),
        tmp_path / "run" / "data",
        on_progress=lambda *done: stages.append(done),
    )
    report = prepared.report
    assert_counts_add_up(report)
    assert report["train"]["read"] == 997
    assert report["train"]["kept"] + len(prepared.valid) == 997 - sum(report["train"]["dropped"].values())
    assert len(prepared.train) - report["train"]["kept"] == sum(report["augmented"].values()) > 20
    assert report["train"]["dropped"]["too_many_characters"] > 0
    assert [file["lines"] for file in report["files"]] == [997, 997]
    assert ("reading and cleaning", 997) in stages
    assert {stage for stage, _ in stages} >= {"learning the vocabulary", "tokenising", "holding out validation pairs"}


def test_augmented_copies_follow_the_original_pairs_and_are_counted(tmp_path):
    texts = [(f"{source}.", f"{target}.") for source, target in sentences(900)]
    named = {"pairs": [write_tsv(tmp_path / "p.tsv", texts)], "valid_size": 50, "max_length": 50}
    plain = prepare(config_of(**named, augment=False), tmp_path / "plain" / "data")
    augmented = prepare(config_of(**named), tmp_path / "augmented" / "data")
    kept = texts_of(plain.train)
    assert texts_of(augmented.train)[: len(kept)] == kept
    copies = texts_of(augmented.train)[len(kept) :]
    assert len(copies) == sum(augmented.report["augmented"].values())
    assert min(augmented.report["augmented"].values()) > 0
    assert len({*copies} & {*kept}) <= augmented.report["augmented"]["another number"]  # another line may have it
    assert max(augmented.train.source_lengths[:]) <= 50  # of joined ones some were too long
    assert "augmented" not in plain.report
    assert augmented.tokenizer.sha256 == plain.tokenizer.sha256
    assert texts_of(augmented.valid) == texts_of(plain.valid)


@pytest.mark.parametrize("is_given", [True, False])
def test_another_number_makes_no_text_that_is_validated_on(tmp_path, is_given):
    names = ["".join(chr(ord("a") + int(digit)) for digit in str(number)) for number in range(100, 300)]
    texts = [(f"Bus {number} nach {name}.", f"Bus {number} to {name}.") for name in names for number in range(5, 10)]
    random.Random(2).shuffle(texts)
    valid = {"valid_pairs": [write_tsv(tmp_path / "v.tsv", texts[:200])]} if is_given else {"valid_size": 100}
    prepared = prepare(config_of(pairs=[write_tsv(tmp_path / "p.tsv", texts)], **valid), tmp_path / "run" / "data")
    assert prepared.report["augmented"]["another number"] > 50
    assert {*texts_of(prepared.valid)}.isdisjoint(texts_of(prepared.train))


def test_report_has_the_line_statistics_of_the_training_text(tmp_path):
    texts = [(f"<2de> Am 3. Mai {source} da. Und {source} dort.", f"{target}.") for source, target in sentences(300)]
    config = config_of(
        pairs=[write_tsv(tmp_path / "p.tsv", texts)],
        tokenizer={"language_tags": ["de"]},
        decode={"source_lang": "de"},
        max_length=40,
    )
    prepared = prepare(config, tmp_path / "data")
    kept = prepared.report["train"]["kept"]
    assert kept < len(prepared.train)  # altered copies are no lines of the corpus
    statistics = LineStatistics.from_dict(prepared.report["line_statistics"])
    assert statistics.sentences == (0, kept)  # the tag is no text, and after `3.` no sentence ends
    assert statistics.source_tokens.max == max(prepared.train.source_lengths[:kept])
    assert statistics.target_tokens.max == max(prepared.train.target_lengths[:kept])
    source, target = statistics.known_characters()
    stored = texts_of(prepared.train)  # the copies too
    assert source == {character for text, _ in stored for character in text.removeprefix("<2de> ")}
    assert target == {character for _, text in stored for character in text}


def test_prepare_replaces_an_existing_data_directory(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "other").write_bytes(b"old")
    prepare(config_of(pairs=[write_tsv(tmp_path / "p.tsv", sentences(41))]), tmp_path / "data")
    assert sorted(os.listdir(tmp_path)) == ["data", "p.tsv", "tokenizer.json"]
    assert "other" not in os.listdir(tmp_path / "data")


@pytest.mark.parametrize("name", ["train.arrow", "valid.arrow", "report.json"])
def test_any_flipped_bit_in_prepared_data_is_refused(tmp_path, name):
    prepare(config_of(pairs=[write_tsv(tmp_path / "p.tsv", sentences(41))]), tmp_path / "data")
    path = tmp_path / "data" / name
    whole = path.read_bytes()
    for place in range(0, len(whole), len(whole) // 37):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DataError, match="--fresh"):
            open_prepared(tmp_path / "data")
    path.write_bytes(whole)
    open_prepared(tmp_path / "data")


@pytest.mark.parametrize("fails_at", ["reading and cleaning", "learning the vocabulary", "tokenising validation text"])
def test_run_that_stops_anywhere_leaves_nothing_and_keeps_what_was_there(tmp_path, fails_at):
    config = config_of(pairs=[write_tsv(tmp_path / "p.tsv", sentences(41))])

    def stop(stage, count):
        if stage == fails_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(config, tmp_path / "run" / "data", on_progress=stop)
    assert os.listdir(tmp_path / "run") == []
    before = prepare(config, tmp_path / "run" / "data").report
    with pytest.raises(KeyboardInterrupt):
        prepare(config, tmp_path / "run" / "data", on_progress=stop)
    assert open_prepared(tmp_path / "run" / "data").report == before


def test_preparing_again_replaces_the_old_data(tmp_path):
    for count in (41, 67):
        config = config_of(pairs=[write_tsv(tmp_path / "p.tsv", sentences(count))])
        prepared = prepare(config, tmp_path / "data")
        assert len(prepared.train) + len(prepared.valid) == count
    reopened = open_prepared(tmp_path / "data")
    assert texts_of(reopened.train) == texts_of(prepared.train)
    assert reopened.report == prepared.report


def test_bad_input_is_named_and_leaves_nothing(tmp_path):
    good = write_tsv(tmp_path / "good.tsv", sentences(41))
    (tmp_path / "latin.tsv").write_bytes("a\tb\nh\u00e9\tc\n".encode("latin-1"))
    (tmp_path / "short").write_text("one\n")
    (tmp_path / "long").write_text("eins\nzwei\n")
    (tmp_path / "folder.tsv").mkdir()
    (tmp_path / "empty.tsv").write_bytes(b"")
    bad = {
        name: [str(tmp_path / name)] for name in ("latin.tsv", "folder.tsv", "gone.tsv", "empty.tsv", "long", "short")
    }
    cases = [
        ({}, ConfigError, "no training text"),
        ({"pairs": bad["gone.tsv"]}, DataError, r"no such file: .*gone\.tsv"),
        ({"pairs": [good], "exclude": bad["gone.tsv"]}, DataError, r"no such file: .*gone\.tsv"),
        ({"pairs": bad["folder.tsv"]}, DataError, r"folder\.tsv is a directory"),
        ({"pairs": bad["latin.tsv"]}, DataError, r"latin\.tsv, line 2: byte 2 \(0xe9\)"),
        ({"pairs": bad["empty.tsv"]}, DataError, r"empty corpus: there is no line in .*empty\.tsv"),
        (
            {"pairs": [good], "valid_pairs": bad["empty.tsv"]},
            DataError,
            r"empty corpus: there is no line in .*empty\.tsv",
        ),
        ({"source": bad["long"], "target": bad["short"]}, DataError, "long has 2 lines but .*short has 1"),
        ({"pairs": bad["short"]}, DataError, "cannot tell the format"),
        (
            {"pairs": [good], "valid_pairs": [good]},
            DataError,
            r"none of the 41 training pairs .*leakage 41 \(.*good\.tsv:1",
        ),
    ]
    before = sorted(os.listdir(tmp_path))
    for data, kind, message in cases:
        with pytest.raises(kind, match=message):
            prepare(config_of(**data), tmp_path / "data")
        assert sorted(os.listdir(tmp_path)) == before


def test_corpus_without_a_usable_pair_names_files_and_reasons(tmp_path):
    path = write_tsv(tmp_path / "p.tsv", [("", "a"), ("x" * 300, "b"), ("b", " "), ("y" * 1_000_003, "c")])
    with pytest.raises(
        DataError, match=r"none of the 4 training pairs of .*p\.tsv is left; dropped: empty 2 \(.*:1, .*:3\)"
    ) as e:
        prepare(config_of(pairs=[path]), tmp_path / "data")
    assert "too_many_characters 1" in str(e.value)
    assert "length_ratio 1" in str(e.value)


def test_corpus_whose_every_pair_has_too_many_tokens_is_refused(tmp_path):
    path = write_tsv(tmp_path / "p.tsv", sentences(41))
    with pytest.raises(DataError, match="too_many_tokens 37"):
        prepare(config_of(pairs=[path], max_length=2), tmp_path / "data")


def test_corpus_that_repeats_one_sentence_cannot_be_divided(tmp_path):
    path = write_tsv(tmp_path / "p.tsv", [(f"Satz {n}", "always the same") for n in range(23)])
    with pytest.raises(DataError, match=r"leakage 21 .*held out for validation 2"):
        prepare(config_of(pairs=[path]), tmp_path / "data")


def test_fewer_than_ten_pairs_need_validation_files(tmp_path):
    path = write_tsv(tmp_path / "p.tsv", sentences(9))
    with pytest.raises(DataError, match="9 usable pairs"):
        prepare(config_of(pairs=[path]), tmp_path / "data")


def test_corpus_smaller_than_the_smallest_vocabulary_is_refused(tmp_path):
    config = config_of(
        pairs=[write_tsv(tmp_path / "p.tsv", sentences(5))],
        valid_pairs=[write_tsv(tmp_path / "v.tsv", sentences(3, seed=2))],
    )
    with pytest.raises(DataError, match=r"the training text \(\d+ bytes\) is smaller than the smallest vocabulary"):
        prepare(config, tmp_path / "data")


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_vocabulary_larger_than_the_corpus_yields_is_refused_with_one_that_fits(tmp_path, kind):
    path = write_tsv(tmp_path / "p.tsv", sentences(61))
    settings = {"kind": kind, "vocab_size": 9_973}
    with pytest.raises(ConfigError, match=r"tokenizer\.vocab_size \(9973\) is more than the \d+ pieces") as error:
        prepare(config_of(pairs=[path], tokenizer=settings), tmp_path / "data")
    if kind == "unigram":
        return  # learned again, it may have a few pieces fewer
    settings["vocab_size"] = int(str(error.value).rpartition(" ")[2])
    prepared = prepare(config_of(pairs=[path], tokenizer=settings), tmp_path / "data")
    assert prepared.tokenizer.vocab_size == settings["vocab_size"]


def test_vocabulary_too_small_for_the_bytes_is_refused(tmp_path):
    path = write_tsv(tmp_path / "p.tsv", sentences(61))
    with pytest.raises(ConfigError, match="must be at least"):
        prepare(config_of(pairs=[path], tokenizer={"vocab_size": 97}), tmp_path / "data")


def test_full_disk_is_a_clear_error_and_leaves_nothing(tmp_path, monkeypatch):
    def fill_up(descriptor):
        raise OSError(28, "No space left on device")

    path = write_tsv(tmp_path / "p.tsv", sentences(41))
    monkeypatch.setattr(os, "fsync", fill_up)
    with pytest.raises(DataError, match=r"cannot write the prepared data .*data: No space left on device"):
        prepare(config_of(pairs=[path]), tmp_path / "data")
    assert os.listdir(tmp_path) == ["p.tsv"]


def test_missing_or_damaged_prepared_data_is_refused_with_the_way_out(tmp_path):
    data = tmp_path / "data"
    with pytest.raises(DataError, match=r"cannot read .*report\.json.*--fresh"):
        open_prepared(data)
    prepare(config_of(pairs=[write_tsv(tmp_path / "p.tsv", sentences(41))]), data)
    whole = {
        path: path.read_bytes() for path in (data / "report.json", data / "valid.arrow", tmp_path / "tokenizer.json")
    }
    other = json.loads(whole[data / "report.json"])
    other["tokenizer"]["sha256"] = "0" * 64
    report = json.loads(whole[data / "report.json"])
    unchecked = {("checksumr" if name == "checksums" else name): value for name, value in report.items()}
    cases = [
        (data / "report.json", b"{", r"report\.json is damaged: .*--fresh"),
        (data / "report.json", b"[]", r"report\.json is damaged: .*--fresh"),
        (data / "report.json", json.dumps(other).encode(), r"was not made with .*tokenizer\.json; .*--fresh"),
        (data / "report.json", json.dumps(unchecked).encode(), r"report\.json is damaged: it has no .*--fresh"),
        (data / "report.json", json.dumps({**report, "checksums": []}).encode(), r"it has no checksums; .*--fresh"),
        (data / "valid.arrow", b"ARROW1", r"valid\.arrow is damaged .*--fresh"),
        (tmp_path / "tokenizer.json", b"{}", r"tokenizer\.json .*--fresh"),
    ]
    for path, content, message in cases:
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            open_prepared(data)
        path.write_bytes(whole[path])
    open_prepared(data)
