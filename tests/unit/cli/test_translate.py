from __future__ import annotations

import gzip
import io
import json
import re

import pytest
from trained_text import counted, info_of

import clearhead.files
from clearhead.cli import translate as translate_module
from clearhead.cli.score import score
from clearhead.cli.translate import translate
from clearhead.config import Sampling
from clearhead.errors import ConfigError, DataError, DeviceError, ModelError
from clearhead.text.quality_flags import KINDS
from clearhead.tokenizers import Tokenizer
from clearhead.translation.quality import QualityEstimator
from clearhead.translation.translator import Translator
from every_run import slow

ODD_LINES = ("Ein Hund.", "", "   ", "a\rb", "a\u2028b \u0085 c", "犬が走る。", "Zwei Männer sitzen.", "</s>")


@pytest.fixture
def speaking(monkeypatch):
    """Make every translation read as given, whatever the model says."""

    def speak(text):
        monkeypatch.setattr(Tokenizer, "decode_batch", lambda _, batch: [text] * len(batch))

    return speak


# Lines in, lines out


def test_every_line_begins_with_the_prefix(run_command, make_model_dir, write_lines):
    model, source = make_model_dir(), write_lines("in.txt", *ODD_LINES)
    lines = run_command(translate, model, source, "--prefix", "A small d").stdout.split("\n")
    assert [line.startswith("A small d") for line in lines] == [bool(line.strip()) for line in (*ODD_LINES, "")]
    assert run_command(translate, model, source, "--prefix", "").stdout == run_command(translate, model, source).stdout
    with pytest.raises(ConfigError, match="a prefix has a line end"):
        run_command(translate, model, source, "--prefix", "a\nb")


def test_lines_can_be_read_as_they_are(run_command, make_model_dir, write_lines):
    info = info_of(counted([("Ein Hund.", "A dog.")]))
    model, source = make_model_dir(info=info), write_lines("in.txt", "EIN HUND.")
    read, as_is = (
        json.loads(run_command(translate, model, source, "--format", "jsonl", *more).stdout)
        for more in ([], ["--as-is"])
    )
    assert read["text"] == read["text"].upper()
    assert read["sentences"][0]["source"] != "EIN HUND."
    assert as_is["text"] == Translator.load(model).translate(["EIN HUND."], familiar=False)[0].text
    assert as_is["sentences"] == []


def test_one_line_in_is_one_line_out_in_order(run_command, make_model_dir, write_lines):
    model, source = make_model_dir(), write_lines("in.txt", *ODD_LINES)
    result = run_command(translate, model, source)
    expected = [translation.text for translation in Translator.load(model).translate(ODD_LINES)]
    assert result.stdout.split("\n") == [*(re.sub("[\r\n]", " ", text) for text in expected), ""]
    assert expected[1] == expected[2] == ""
    assert all(expected[index] for index in (0, 3, 4, 5, 6, 7))
    assert result.exit_code == 0


def test_standard_input_is_read_by_default_and_by_its_name(run_command, make_model_dir, write_lines):
    model, text = make_model_dir(), "".join(line + "\n" for line in ODD_LINES).encode()
    from_file = run_command(translate, model, write_lines("in.txt", *ODD_LINES)).stdout
    assert run_command(translate, model, stdin=text).stdout == from_file
    assert run_command(translate, model, "-", stdin=text).stdout == from_file


def test_translate_output_does_not_depend_on_the_chunk_size(run_command, make_model_dir, write_lines, monkeypatch):
    model, source = make_model_dir(), write_lines("in.txt", *ODD_LINES, *ODD_LINES[::-1])

    def output():
        return run_command(translate, model, source, "--nbest", 2).stdout

    in_one = output()
    monkeypatch.setattr("clearhead.translation.lines.CHUNK_LINES", 3)
    assert output() == in_one


def test_an_input_that_looks_like_a_temporary_file_of_the_output_is_not_touched(run_command, make_model_dir, tmp_path):
    source, output = tmp_path / "x.txt.partial", tmp_path / "x.txt"
    source.write_text("Ein Hund.\nZwei Hunde.\n")
    run_command(translate, make_model_dir(), source, "-o", output, "--as-text")
    assert source.read_text() == "Ein Hund.\nZwei Hunde.\n"
    assert len(output.read_text(encoding="utf-8").splitlines()) == 2


def test_translations_are_out_before_the_next_chunk_is_read(run_command, make_model_dir, tmp_path, monkeypatch):
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"Ein Hund.\n" * 5 + b"\xff\n")
    monkeypatch.setattr("clearhead.translation.lines.CHUNK_LINES", 2)
    seen = []
    read = clearhead.files.read_lines

    def watched(path):
        for number, line in enumerate(read(path)):
            if number % 2 == 0:
                (temporary,) = output.parent.glob(".out.txt.*.partial")
                seen.append(len(temporary.read_text(encoding="utf-8").splitlines()))
            yield line

    monkeypatch.setattr("clearhead.files.read_lines", watched)
    with pytest.raises(DataError, match=r"line 6: byte 1 \(0xff\) is not valid UTF-8"):
        run_command(translate, make_model_dir(), source, "-o", output)
    assert seen == [0, 2, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "model"]  # nothing half-written


@pytest.mark.parametrize("is_terminal", [True, False])
def test_is_typed_is_true_for_standard_input_from_a_terminal(monkeypatch, is_terminal):
    stdin = io.StringIO("a")
    monkeypatch.setattr(stdin, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr("sys.stdin", stdin)
    assert (translate_module._is_typed("-"), translate_module._is_typed("-.txt")) == (is_terminal, False)


def test_several_files_are_translated_one_after_the_other(run_command, make_model_dir, write_lines, tmp_path):
    model = make_model_dir()
    first = write_lines("a.txt", "Ein Hund.", "")
    second = tmp_path / "b.txt.gz"
    second.write_bytes(gzip.compress("Zwei Männer".encode()))  # no line end: still a line
    alone = [run_command(translate, model, path).stdout for path in (first, second)]
    output = tmp_path / "out.txt.gz"
    result = run_command(translate, model, first, second, first, "--output", output)
    assert result.stdout == ""
    assert gzip.decompress(output.read_bytes()).decode() == alone[0] + alone[1] + alone[0]


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\u2028b"])
def test_a_line_end_in_a_translation_is_written_as_a_space(run_command, make_model_dir, write_lines, speaking, text):
    model, source = make_model_dir(), write_lines("in.txt", "x", "y")
    speaking(text)
    assert run_command(translate, model, source).stdout == "a b\na b\n"
    score = Translator.load(model).score(["x"], ["a b"])[0]
    assert run_command(translate, model, source, "--nbest", 2).stdout.split("\n")[0] == f"0 ||| a b ||| {score:.6f}"
    lines = run_command(translate, model, source, "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == [text, text]


def test_an_empty_file_gives_an_empty_output(run_command, make_model_dir, write_lines, tmp_path):
    run_command(translate, make_model_dir(), write_lines("in.txt"), "-o", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_bytes() == b""


# Forms of output


def test_json_lines_hold_exactly_the_promised_keys(run_command, make_model_dir, write_lines):
    model, source = make_model_dir(), write_lines("in.txt", *ODD_LINES)
    lines = run_command(translate, model, source, "--format", "jsonl").stdout.split("\n")
    assert lines.pop() == ""
    expected = Translator.load(model).translate(ODD_LINES)
    cut = ["truncated", "source_truncated", "output_truncated"]
    for line, translation in zip(lines, expected, strict=True):
        found = json.loads(line)
        looks = ["sentences", "warnings", "warning_details"]
        assert list(found) == ["source", "text", "score", "tokens", "alternatives", *cut, *looks]
        assert (found["source"], found["text"]) == (translation.source, translation.text)
        assert found["score"] == (None if translation.score is None else round(translation.score, 6))
        assert found["tokens"] == list(translation.tokens)
        assert found["alternatives"] == []
        assert [found[name] for name in cut] == [getattr(translation, name) for name in cut]
        assert found["sentences"] == []
        assert found["warnings"] == list(found["warning_details"]) == [flag.kind for flag in translation.warnings]
        assert found["warning_details"] == {flag.kind: flag.detail for flag in translation.warnings}


@pytest.mark.parametrize("arguments", [slow([]), ["--precision", "bf16"], ["--sample"], slow(["--beam", 1])])
@pytest.mark.parametrize("shape", [{}, {"d_model": 64, "num_heads": 2, "d_ff": 64}], ids=["in PyTorch", "compiled"])
def test_score_prints_the_digits_that_translate_reported(
    run_command, make_model_dir, write_lines, sentences, arguments, shape
):
    model, source = make_model_dir(seed=11, **shape), write_lines("in.txt", "", *sentences)
    best = run_command(translate, model, source, *arguments).stdout.split("\n")
    lines = [
        json.loads(line)
        for line in run_command(translate, model, source, *arguments, "--format", "jsonl").stdout.split("\n")[:-1]
    ]
    # A text with a NUL or of more than one line has no place in a text file.
    single = [index for index, line in enumerate(lines) if line["text"] == best[index] and "\0" not in best[index]]
    assert len(single) >= 5
    files = write_lines("a", *(lines[i]["source"] for i in single)), write_lines("b", *(best[i] for i in single))
    scores = run_command(score, model, "--source", files[0], "--target", files[1], "--batch-tokens", 37).stdout
    assert scores.split() == [f"{lines[index]['score']:.6f}" for index in single]


def test_plain_text_is_not_scored(run_command, make_model_dir, write_lines, monkeypatch):
    monkeypatch.setattr("clearhead.translation.search.score", lambda *_, **__: pytest.fail("scored for nothing"))
    source = write_lines("in.txt", *ODD_LINES)
    assert run_command(translate, make_model_dir(), source, "--precision", "bf16").exit_code == 0


def test_json_lines_hold_the_alternatives(run_command, make_model_dir, write_lines):
    source = write_lines("in.txt", "Ein Hund.")
    found = json.loads(run_command(translate, make_model_dir(), source, "--format", "jsonl", "--nbest", 3).stdout)
    assert [list(alternative) for alternative in found["alternatives"]] == [["text", "score"]] * 3
    assert found["alternatives"][0] == {"text": found["text"], "score": found["score"]}


def test_nbest_output_has_the_format_of_moses(run_command, make_model_dir, write_lines):
    model = make_model_dir()
    paths = write_lines("a.txt", "Ein Hund.", ""), write_lines("b.txt", "Zwei Männer.")
    lines = run_command(translate, model, *paths, "--nbest", 3, "--beam", 5).stdout.split("\n")
    assert lines.pop() == ""
    found = [re.fullmatch(r"(\d+) \|\|\| (.*) \|\|\| (-?\d+\.\d{6})", line) for line in lines]
    assert all(found), lines
    # Counted from 0 over all files; a blank line has one translation, the empty one.
    assert [int(match[1]) for match in found] == [0, 0, 0, 1, 2, 2, 2]
    assert found[3].groups() == ("1", "", "0.000000")
    expected = Translator.load(model).translate(["Ein Hund."], num_best=3, beam_size=5)[0].alternatives
    assert [float(match[3]) for match in found[:3]] == pytest.approx([a.score for a in expected], abs=1e-4)


# Settings


def test_search_settings_reach_the_search(run_command, make_model_dir, write_lines, sentences):
    sentences = sentences[:4]
    model, source = make_model_dir(), write_lines("in.txt", *sentences)
    translator = Translator.load(model)
    for arguments, settings in [
        (["--beam", 1], {"beam_size": 1}),
        (["--beam", 3, "--length-penalty", 4], {"beam_size": 3, "length_penalty": 4.0}),
        (["--batch-tokens", 1, "--threads", 1, "--device", "cpu"], {}),
    ]:
        expected = [
            re.sub("[\r\n\v\f\x85\u2028\u2029]", " ", t.text) for t in translator.translate(sentences, **settings)
        ]
        assert run_command(translate, model, source, *arguments).stdout.split("\n")[:-1] == expected
    assert run_command(translate, model, source, "--beam", 1).stdout != run_command(translate, model, source).stdout


def test_samples_follow_their_seed(run_command, make_model_dir, write_lines, sentences):
    sentences = sentences[:4]
    model, source = make_model_dir(), write_lines("in.txt", *sentences)
    sampled = ["--sample", "--temperature", 3]

    def output(*arguments):
        return run_command(translate, model, source, *arguments).stdout

    assert output(*sampled, "--seed", 5) == output(*sampled, "--seed", 5)
    assert output(*sampled) == output(*sampled, "--seed", 1)
    assert output(*sampled, "--seed", 5) != output(*sampled, "--seed", 6)
    assert output(*sampled, "--top-k", 1) == output(*sampled, "--top-p", 1e-9) == output("--beam", 1)


def test_a_long_line_is_translated_in_part_and_named(run_command, make_model_dir, write_lines):
    model = make_model_dir(decode={"max_input_tokens": 17})
    long = "Zwei Männer sitzen auf einer Bank. " * 3
    paths = write_lines("a.txt", "Ein Hund."), write_lines("b.txt", "", "Ein Hund.", long)
    result = run_command(translate, model, *paths, "--format", "jsonl")
    flags = [json.loads(line)["source_truncated"] for line in result.stdout.splitlines()]
    assert flags == [False, False, False, True]
    notices = [line for line in result.stderr.splitlines() if "longer" in line]
    where, limit = f"{paths[1]}, line 3", "17 tokens (decode.max_input_tokens)"
    assert notices == [f"clearhead: {where}: longer than {limit}; only the beginning is translated"]


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"decode": {"extra_length": 3}}, r"decode.extra_length \(3\)"),
        (
            {"positions": "learned", "max_positions": 60},
            r"decode.extra_length \(5\) or model.max_positions \(60\)",
        ),
    ],
)
def test_a_translation_ended_by_the_length_limit_is_named(run_command, make_model_dir, write_lines, settings, limit):
    source = write_lines("in.txt", "Zwei Männer sitzen auf einer Bank.", "")
    result = run_command(translate, make_model_dir(**settings), source, "--format", "jsonl")
    assert [json.loads(line)["output_truncated"] for line in result.stdout.splitlines()] == [True, False]
    message = (
        rf"clearhead: .*in.txt, line 1: the translation was ended by the length limit, {limit}, "
        rf"or as a repetition loop \(decode.end_loops\), not by the model"
    )
    assert re.fullmatch(message, result.stderr.splitlines()[0])


def test_a_line_beyond_the_last_position_is_named(run_command, make_model_dir, write_lines):
    model = make_model_dir(positions="learned", max_positions=9)
    result = run_command(translate, model, write_lines("in.txt", "Zwei Männer sitzen auf einer Bank."))
    assert "line 1: longer than 9 tokens (model.max_positions); only the beginning is translated" in result.stderr


# Lines of several sentences, and flags


def test_a_line_is_split_where_it_is_asked_for(run_command, make_model_dir, write_lines):
    model, lines = make_model_dir(), ["Am 3. Mai rennt ein Hund. Zwei Männer sitzen.", "Ein Hund."]
    source, translator = write_lines("in.txt", *lines), Translator.load(model)

    def found(*arguments):
        return run_command(translate, model, source, *arguments).stdout.split("\n")[:-1]

    def expected(**settings):
        return [translation.text for translation in translator.translate(lines, one_line=True, **settings)]

    for language in ("en", "de"):
        split = expected(split="always", source_lang=language)
        assert found("--split", "always", "--source-lang", language) == split
    assert found("--split", "never") == found() == expected(split="never")
    assert len({str(found("--split", mode, "--source-lang", "en")) for mode in ("always", "never")}) == 2
    assert len({str(found("--split", "always", "--source-lang", language)) for language in ("de", "en")}) == 2


def test_json_lines_hold_the_sentences_of_a_split_line_as_score_knows_them(run_command, make_model_dir, write_lines):
    model = make_model_dir(language_tags=("de", "fr"))
    source = write_lines("in.txt", "<2fr> Ein Hund rennt. Zwei Männer sitzen.", "<2de> Ein Hund.")
    arguments = ["--format", "jsonl", "--split", "always"]
    found = [json.loads(line) for line in run_command(translate, model, source, *arguments).stdout.split("\n")[:-1]]
    sentences = found[0]["sentences"]
    assert [one["source"] for one in sentences] == ["<2fr> Ein Hund rennt.", "<2fr> Zwei Männer sitzen."]
    assert found[0]["score"] == pytest.approx(sum(one["score"] for one in sentences), abs=2e-6)
    assert found[1]["sentences"] == []
    own = Translator.load(model).score([one["source"] for one in sentences], [one["text"] for one in sentences])
    assert [f"{one['score']:.6f}" for one in sentences] == [f"{score:.6f}" for score in own]


def test_warnings_are_counted_by_kind_with_the_first_line_numbers(
    run_command, make_model_dir, write_lines, speaking, monkeypatch
):
    monkeypatch.setattr("clearhead.translation.lines.CHUNK_LINES", 5)
    speaking("two dogs")
    paths = write_lines("a.txt", *["Zwei Hunde.", "2018 Hunde, %s."] * 12), write_lines("b.txt", "", "", "<b>Hund</b>")
    model = make_model_dir(decode={"place_markup": False})
    result = run_command(translate, model, *paths, "--format", "jsonl")
    lines = "lines 2, 4, 6, 8, 10, 12, 14, 16, 18, 20 and 2 more"
    numbers = "a number of the source is missing, or a number is invented"
    placeholders = KINDS["placeholders"].meaning
    assert [line for line in result.stderr.splitlines() if "length limit" not in line] == [
        f"clearhead: {paths[0]}: 12 with numbers ({numbers}): {lines}",
        f"clearhead: {paths[0]}: 12 with placeholders ({placeholders}): {lines}",
        f"clearhead: {paths[1]}: 1 with placeholders ({placeholders}): line 3",
    ]
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["warnings"] for line in found[:2]] == [[], ["numbers", "placeholders"]]
    assert found[-1]["warning_details"] == {"placeholders": "<b> </b>"}


def test_the_report_has_all_lines(run_command, make_model_dir, write_lines, tmp_path):
    files = write_lines("a.de", "ja", "ja", "ja"), write_lines("b.de", "nein", "")
    page = tmp_path / "page.html"
    out = run_command(translate, make_model_dir(), *files, "--beam", 1, "--report", page).stdout
    assert out.count("\n") == 5
    written = page.read_text(encoding="utf-8")
    assert f"<li>{files[0]}: 3 lines</li>\n<li>{files[1]}: 2 lines</li>" in written
    assert '<td class="number">5</td><td class="number">4</td>' in written  # a blank line is counted, and not shown


def test_warnings_are_printed_after_each_typed_line(monkeypatch, make_model_dir, run_command, speaking):
    monkeypatch.setattr(translate_module, "_is_typed", lambda path: True)
    speaking("a dog")
    model = make_model_dir(decode={"place_markup": False})
    stderr = run_command(translate, model, stdin="%s Hund\nHund\n%d Hund\n").stderr
    assert re.findall(r": 1 with placeholders .*: (line \d)\n", stderr) == ["line 1", "line 3"]


def test_lines_of_low_quality_stay_blank_and_are_counted(run_command, make_model_dir, write_lines, monkeypatch):
    source, model = write_lines("a.txt", "Hund", "Katze", "12", "", "Maus"), make_model_dir()
    qualities = {"Hund": 0.4, "Katze": 0.6, "Maus": 0.2}
    monkeypatch.setattr(QualityEstimator, "__call__", lambda self, source, text, score: qualities[source])
    plain = run_command(translate, model, source, "--beam", 1)
    result = run_command(translate, model, source, "--beam", 1, "--only-if", 0.5)
    assert result.stdout.split("\n") == ["", plain.stdout.split("\n")[1], "12", "", "", ""]
    left = f"clearhead: {source}: 2 left untranslated, with a quality below --only-if: lines 1, 5"
    assert left in result.stderr
    asked = "--beam", 1, "--format", "jsonl", "--quality"
    found = [json.loads(line) for line in run_command(translate, model, source, *asked).stdout.splitlines()]
    assert [one.get("quality") for one in found] == [0.4, 0.6, None, None, 0.2]
    assert found[0]["text"] == plain.stdout.split("\n")[0]
    found = [
        json.loads(line) for line in run_command(translate, model, source, *asked, "--only-if", 0.5).stdout.splitlines()
    ]
    assert [(one["text"] == "", one["score"]) for one in found[:1]] == [(True, None)]
    assert "quality" not in run_command(translate, model, source, "--format", "jsonl").stdout


def test_quality_is_for_objects_and_a_line_left_blank_has_no_alternatives(run_command, make_model_dir, write_lines):
    source, model = write_lines("a.txt", "Hund"), make_model_dir()
    with pytest.raises(ConfigError, match="--quality needs --format jsonl"):
        run_command(translate, model, source, "--quality")
    with pytest.raises(ConfigError, match="--nbest cannot be used with --only-if"):
        run_command(translate, model, source, "--only-if", 0.5, "--nbest", 2)


# Languages


def test_target_language_comes_from_tag_option_or_model(run_command, make_model_dir, write_lines):
    model = make_model_dir(language_tags=("de", "fr"))
    french = run_command(translate, model, write_lines("a.txt", "<2fr> Ein Hund.", "", "<2fr>x")).stdout
    untagged = write_lines("b.txt", "Ein Hund.", "", "x")
    assert run_command(translate, model, untagged, "--target-lang", "fr").stdout == french
    assert run_command(translate, model, untagged, "--target-lang", "de").stdout != french
    by_default = make_model_dir("default", language_tags=("de", "fr"), decode={"target_lang": "fr"})
    assert run_command(translate, by_default, untagged).stdout == french


@pytest.mark.parametrize("arguments", [[], ["--target-lang", "de"]])
def test_a_line_with_an_unknown_tag_is_named_with_the_tags(run_command, make_model_dir, write_lines, arguments):
    source = write_lines("in.txt", "<2fr> Ein Hund.", "<2DE> Ein Hund.")
    with pytest.raises(DataError) as caught:
        run_command(translate, make_model_dir(language_tags=("de", "fr")), source, *arguments)
    assert str(caught.value) == f"{source}, line 2: unknown language tag <2DE>; the model's tags are <2de>, <2fr>"
    assert run_command(translate, make_model_dir("plain"), source).stdout.count("\n") == 2


def test_a_line_without_a_language_is_named_with_the_languages(run_command, make_model_dir, write_lines, tmp_path):
    source = write_lines("in.txt", "<2fr> Ein Hund.", "", "Ein Hund.")
    with pytest.raises(ConfigError) as caught:
        run_command(translate, make_model_dir(language_tags=("de", "fr")), source, "-o", tmp_path / "out.txt")
    message = str(caught.value)
    assert f"{source}, line 3: into which language?" in message
    assert "de, fr" in message
    assert "--target-lang de" in message
    assert "<2de>" in message
    assert not (tmp_path / "out.txt").exists()


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--temperature", 2, "--top-k", 5], r"--temperature, --top-k need --sample or --mbr N"),
        (["--top-p", 0.5], r"--top-p needs --sample or --mbr N"),
        (["--seed", 7], r"--seed needs --sample or --mbr N"),
        (["--sample", "--beam", 3], r"--beam cannot be used with --sample"),
        (["--sample", "--length-penalty", 0], r"--length-penalty cannot be used with --sample"),
        (["--sample", "--temperature", 0], r"temperature = 0.0: Input should be greater"),
        (["--sample", "--top-p", 1.5], r"top_p = 1.5"),
        (["--nbest", 5], r"nbest \(5\) must not be more than the beam size \(4\); use --beam 5"),
        (["--nbest", 0], r"nbest \(0\) must be at least 1"),
        (["--beam", 0], r"decode.beam_size = 0"),
        (["--length-penalty", -1], r"decode.length_penalty = -1.0"),
        (["--batch-tokens", 0], r"decode.batch_tokens = 0"),
        (["--target-lang", "xx"], r"unknown target language 'xx'; the model has no tags"),
    ],
)
def test_impossible_settings_are_refused_before_anything_is_read(
    run_command, make_model_dir, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.setattr("clearhead.files.read_lines", lambda path: pytest.fail("the input was read"))
    with pytest.raises(ConfigError, match=message):
        run_command(translate, make_model_dir(), "-o", tmp_path / "out.txt", *arguments, stdin="x\n")
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("arguments", [["--threads", 0], ["--format", "xml"], ["--beam", "wide"], ["--nonsense"], []])
def test_wrong_usage_exits_with_status_2(run_command, arguments):
    assert run_command(translate, *(["model", *arguments] if arguments else [])).exit_code == 2


def test_a_missing_file_is_named_before_the_first_is_translated(run_command, make_model_dir, write_lines, tmp_path):
    model, source = make_model_dir(), write_lines("in.txt", "Ein Hund.")
    with pytest.raises(DataError, match=r"nowhere.txt: there is no such file"):
        run_command(translate, model, source, tmp_path / "nowhere.txt", "-o", tmp_path / "out.txt")
    with pytest.raises(DataError, match=r"model is a directory"):
        run_command(translate, model, source, model)
    assert not (tmp_path / "out.txt").exists()


def test_an_input_is_not_overwritten(run_command, make_model_dir, write_lines, tmp_path):
    source = write_lines("in.txt", "Ein Hund.")
    (tmp_path / "link.txt").symlink_to(source)
    for output in (source, tmp_path / "link.txt", tmp_path / "model" / ".." / "in.txt"):
        with pytest.raises(DataError, match="is an input as well, and would be overwritten"):
            run_command(translate, make_model_dir(), write_lines("other.txt", "x"), source, "-o", output)
    assert source.read_text(encoding="utf-8") == "Ein Hund.\n"


@pytest.mark.parametrize("output", ["in.txt/out.txt", "model"])
def test_an_output_that_cannot_be_written_is_named(run_command, make_model_dir, write_lines, tmp_path, output):
    with pytest.raises(DataError, match=f"cannot write .*{output}"):
        run_command(translate, make_model_dir(), write_lines("in.txt", "x"), "-o", tmp_path / output)


def test_a_model_or_device_that_is_not_there_is_named(run_command, make_model_dir, write_lines, tmp_path):
    source = write_lines("in.txt", "x")
    with pytest.raises(ModelError, match=r"no model at .*nowhere: there is no such directory"):
        run_command(translate, tmp_path / "nowhere", source)
    with pytest.raises(DeviceError, match="unknown device 'gpu'"):
        run_command(translate, make_model_dir(), source, "--device", "gpu")


def test_many_cut_lines_are_one_notice(run_command, make_model_dir, write_lines):
    lines = write_lines("in.txt", *["Ein kleiner Hund rennt über die Wiese."] * 30)
    result = run_command(translate, make_model_dir(decode={"max_input_tokens": 5, "extra_length": 1}), lines)
    told = [line for line in result.stderr.splitlines() if "longer than" in line]
    assert told == [
        f"clearhead: {lines}, lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 20 more: longer than 5 tokens "
        "(decode.max_input_tokens); only the beginning is translated"
    ]


# Ensembles


def test_several_models_translate_together(run_command, make_model_dir, write_lines, sentences):
    models = [make_model_dir(f"model-{seed}", seed=seed) for seed in (7, 8, 9)]
    source = write_lines("in.txt", *(line for line in sentences if "\r" not in line))
    given = ["--ensemble", models[1], "--ensemble", models[2]]
    result = run_command(translate, models[0], source, *given, "--format", "jsonl")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    expected = Translator.load(models[0], ensemble=models[1:]).translate([one["source"] for one in found])
    assert [one["text"] for one in found] == [one.text for one in expected]
    assert result.stdout != run_command(translate, models[0], source, "--format", "jsonl").stdout
    texts = write_lines("out.txt", *(one["text"].replace("\n", " ").replace("\r", " ") for one in found))
    scores = run_command(score, models[0], "--source", source, "--target", texts, *given).stdout.splitlines()
    kept = [number for number, one in enumerate(found) if "\n" not in one["text"] and "\r" not in one["text"]]
    assert len(kept) > 3
    assert [float(scores[number]) for number in kept] == [found[number]["score"] for number in kept]
    with pytest.raises(ConfigError, match="an ensemble translates without --shortlist"):
        run_command(translate, models[0], source, *given, "--shortlist")


# Minimum Bayes risk


def test_mbr_prints_what_python_finds(run_command, make_model_dir, write_lines, sentences):
    model, source = make_model_dir(), write_lines("in.txt", "Ein Hund.", "", *sentences[:3])
    given = ["--mbr", 9, "--epsilon", 0.01, "--temperature", 1.3, "--seed", 5]
    sampling = Sampling(epsilon=0.01, temperature=1.3, seed=5)
    lines = source.read_text(encoding="utf-8").split("\n")[:-1]
    expected = Translator.load(model).translate(lines, mbr=9, sampling=sampling, num_best=2, one_line=True)
    texts = run_command(translate, model, source, *given).stdout
    assert texts == "".join(one.text + "\n" for one in expected)
    assert texts == run_command(translate, model, source, *given).stdout
    assert texts != run_command(translate, model, source, *given[:-1], 6).stdout
    ranked = run_command(translate, model, source, *given, "--nbest", 2).stdout.split("\n")[:-1]
    best = [(number, one) for number, line in enumerate(expected) for one in line.alternatives or [line]]
    assert ranked == [f"{number} ||| {one.text} ||| {one.score:.6f}" for number, one in best]
    values = [
        json.loads(line)
        for line in run_command(translate, model, source, *given, "--format", "jsonl").stdout.splitlines()
    ]
    assert [value.get("utility") for value in values] == [
        None if one.utility is None else round(one.utility, 4)
        for one in Translator.load(model).translate(lines, mbr=9, sampling=sampling)
    ]
    assert "utility" not in values[1]  # a blank line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mbr", 4, "--sample"], "--sample cannot be used with --mbr, which draws samples itself"),
        (["--mbr", 4, "--beam", 4], "--beam cannot be used with --mbr, which draws"),
        (
            ["--mbr", 4, "--length-penalty", 1, "--shortlist"],
            "--length-penalty, --shortlist cannot be used with --mbr",
        ),
        (["--mbr", 4, "--precision", "bf16"], "--precision cannot be used with --mbr"),
        (["--mbr", 0], r"mbr \(0\) must be at least 2"),
        (["--mbr", 4, "--nbest", 5], r"nbest \(5\) must not be more than the samples"),
        (["--epsilon", 0.1], "--epsilon needs --sample or --mbr N"),
    ],
)
def test_options_that_contradict_mbr_are_refused(run_command, make_model_dir, write_lines, options, message):
    with pytest.raises(ConfigError, match=message):
        run_command(translate, make_model_dir(), write_lines("in.txt", "x"), *options)


# Diversity


def test_diversity_option_gives_the_alternatives_of_translate(run_command, make_model_dir, write_lines):
    model, source = make_model_dir(), write_lines("in.txt", "Ein Hund.", "Zwei Männer sitzen.")
    given = ["--nbest", 3, "--beam", 4, "--format", "jsonl"]
    plain, none, diverse = (
        run_command(translate, model, source, *given, *more).stdout
        for more in ([], ["--diversity", 0], ["--diversity", 9])
    )
    assert plain == none != diverse
    expected = Translator.load(model).translate(
        ["Ein Hund.", "Zwei Männer sitzen."], num_best=3, beam_size=4, diversity=9.0
    )
    found = [[one["text"] for one in json.loads(line)["alternatives"]] for line in diverse.splitlines()]
    assert found == [[one.text for one in line.alternatives] for line in expected]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--diversity", 0.5], "ask for several"),
        (["--diversity", 0.5, "--sample", "--nbest", 2], "--diversity cannot be used with --sample"),
        (["--diversity", 0.5, "--mbr", 4, "--nbest", 2], "--diversity cannot be used with --mbr"),
        (["--diversity", 0.5, "--shortlist", "--nbest", 2], "it has no shortlist"),
        (["--diversity", -1, "--nbest", 2], r"diversity \(-1.0\) must be at least 0"),
    ],
)
def test_translate_rejects_invalid_uses_of_diversity(run_command, make_model_dir, write_lines, options, message):
    with pytest.raises(ConfigError, match=message):
        run_command(translate, make_model_dir(), write_lines("in.txt", "x"), *options)
