"""Processes that translate together: what one makes of the lines, in their order."""

from __future__ import annotations

from multiprocessing import Pipe

import pytest

from clearhead.bundle import save_bundle
from clearhead.decoding import Sampling
from clearhead.errors import ClearheadError, ConfigError, DataError, ModelError
from clearhead.translation.memory import TranslationMemory
from clearhead.translation.translator import Translator
from clearhead.translation.worker_pool import TranslatorTeam, _starts
from every_run import slow


@pytest.fixture(scope="module")
def model(make_bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("team") / "model"
    shape = {"d_model": 64, "num_heads": 2, "d_ff": 64}  # that the compiled core supports
    bundle = make_bundle(language_tags=["de", "fr"], decode={"target_lang": "de"}, **shape)
    save_bundle(path, bundle, golden=[], card="# A small model\n")
    return path


@pytest.fixture(scope="module")
def team(model):
    with TranslatorTeam.of(model, 2, device="cpu") as found:
        yield found


def printed(translations):
    """Return all that is said of lines, scores in the digits that are printed."""
    return [
        (
            *(one.source, one.text, one.tokens, one.alignment, [flag.kind for flag in one.warnings]),
            [(other.text, other.score and f"{other.score:.6f}") for other in (one, *one.alternatives)],
        )
        for one in translations
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"beam_size": 2, "num_best": 2, "alignments": True},
        {"sampling": Sampling(seed=3), "num_best": 2},
        slow({"prefix": "A "}),
        slow({"mbr": 3}),
    ],
    ids=lambda settings: " ".join(settings),
)
def test_team_translates_as_a_single_translator(team, model, sentences, settings):
    lines = [*sentences, "", *reversed(sentences)]
    seen = []
    found = team.translate(lines, **settings, on_progress=seen.append)
    assert printed(found) == printed(Translator.load(model).translate(lines, **settings))
    assert sum(seen) == len(lines)


def test_prefixes_go_with_their_lines(team, model, sentences):
    prefixes = ["A", "", "Two", "On", "", "A", "A", ""]
    wanted = Translator.load(model).translate(sentences, prefix=prefixes)
    assert printed(team.translate(sentences, prefix=prefixes)) == printed(wanted)
    with pytest.raises(DataError, match="prefix"):
        team.translate(sentences, prefix=["A"])
    with pytest.raises(DataError, match="prefix must be a list of texts, not int"):
        team.translate(sentences, prefix=3)
    with pytest.raises(ConfigError, match="first must be a whole number, not str"):
        team.translate(sentences, first="2")
    with pytest.raises(ConfigError, match="no argument 'num_bets'; did you mean 'num_best'"):
        team.translate(sentences, num_bets=2)


@pytest.mark.parametrize("lines", [[], ["Ein Hund."], [""]])
def test_team_translates_fewer_lines_than_processes(team, model, lines):
    assert printed(team.translate(lines)) == printed(Translator.load(model).translate(lines))


def test_a_memory_is_asked_here_and_the_processes_translate_the_rest(team, model, sentences):
    memory = TranslationMemory([(line, f"{line}!\u2028") for line in sentences[::2]]).match
    for one_line in (False, True):
        wanted = Translator.load(model).translate(sentences, memory=memory, one_line=one_line)
        assert printed(team.translate(sentences, memory=memory, one_line=one_line)) == printed(wanted)
        assert [one.memory is not None and one.memory.is_reused for one in wanted][:4] == [True, False, True, False]


def test_similar_pairs_are_looked_up_here_and_consulted_by_the_processes(team, model, sentences):
    memory = TranslationMemory([(f"{line} now", sentences[0]) for line in sentences[::2]])
    options = {"neighbours": memory.nearest, "memory_weight": 0.9}
    wanted = Translator.load(model).translate(sentences, **options)
    assert printed(team.translate(sentences, **options)) == printed(wanted)
    assert printed(wanted) != printed(Translator.load(model).translate(sentences))


def test_similar_pairs_are_looked_up_for_the_texts_that_the_processes_search(team, model, sentences):
    """A line whose translation begins with several sentences is not split."""
    lines = [" ".join(sentences[:2]), " ".join(sentences[1:3])]

    def texts_asked_of(translator):
        asked = []
        translator.translate(lines, prefix=["One. Two.", ""], split="always", neighbours=asked.append)
        return asked

    assert texts_asked_of(team) == texts_asked_of(Translator.load(model)) == [lines[0], *sentences[1:3]]


def test_a_bad_line_is_named_by_its_number(team):
    with pytest.raises(DataError, match="text 26 holds an unpaired surrogate"):
        team.translate([*["a"] * 25, "\ud800"])
    assert team.translate(["a"])  # it still works
    lines = ["<2de> a"] * 30
    for bad in (25, 3):
        lines[bad] = "<2xx> a"
        with pytest.raises(DataError, match=rf"notes\.txt.*line {bad + 101}\b"):
            team.translate(lines, name="notes.txt", first=101)


def test_ended_translation_process_is_reported(model):
    here, (ours, theirs) = Translator.load(model), Pipe()
    theirs.close()
    with ours, pytest.raises(ClearheadError, match="process 0 of 1 that translate was ended"):
        TranslatorTeam(here.bundle, here.path, here.shortlist, here.ensemble, members=[(None, ours)]).translate(["a"])


@pytest.mark.slow
def test_killed_translation_process_is_reported(model):
    with TranslatorTeam.of(model, 2, device="cpu") as team:
        assert isinstance(team, TranslatorTeam)
        member, _ = team._members[1]
        member.kill()
        member.join()
        with pytest.raises(ClearheadError, match="process 1 of 2 that translate was ended"):
            team.translate(["a", "b", "c"])
    assert not any(process.is_alive() for process, _ in team._members)


def test_a_model_that_is_not_there_starts_nothing(tmp_path):
    with pytest.raises(ModelError, match="nothing"), TranslatorTeam.of(tmp_path / "nothing", 2, device="cpu"):
        pass


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_shares_are_neighbours_of_as_many_characters(count):
    lines = ["x" * length for length in (1, 50, 3, 2, 2, 40, 7, 0, 0)]
    starts = _starts(lines, count)
    assert len(starts) == count
    assert starts[0] == 0
    assert starts == sorted(starts)
    assert _starts(["x"] * 60, count) == [60 * number // count + (60 * number % count > 0) for number in range(count)]
