"""`clearhead.pipeline`: the arguments and results of the pipelines of transformers 4."""

from __future__ import annotations

import json

import pytest
import torch

import clearhead as ch
from clearhead.errors import ConfigError, DataError, ModelError
from clearhead.translation.translator import Translator

TEXTS = ["Ein Hund rennt.", "Zwei Hunde", "A dog"]
AS_IS = {"split": "never", "familiar": False, "place_markup": False}


@pytest.fixture
def directory(make_model_dir):
    return make_model_dir()


@pytest.fixture
def texts_of(directory):
    """Return a function from lines and settings to the texts that a translator finds."""
    translator = Translator.load(directory, device="cpu")
    return lambda lines, **how: [one.text for one in translator.translate(lines, **AS_IS, **how)]


def test_a_text_a_list_and_a_generator_give_what_version_4_gave(directory, texts_of):
    pipe = ch.pipeline("translation_de_to_en", model=str(directory), device="cpu")
    expected = [{"translation_text": text} for text in texts_of(TEXTS)]
    assert pipe(TEXTS[0]) == expected[:1]
    assert pipe(TEXTS) == expected
    assert pipe(TEXTS[:1]) == expected[:1]
    assert pipe([]) == []
    assert list(pipe((text for text in TEXTS), batch_size=2)) == [[one] for one in expected]
    assert repr(pipe).startswith(f"<TranslationPipeline translation_de_to_en: <Translator {directory}: ")


def test_several_sequences_are_lists_of_lists(directory):
    pipe = ch.pipeline("translation", model=directory, device=-1, num_beams=3)
    [found] = Translator.load(directory, device="cpu").translate(TEXTS[:1], num_best=2, beam_size=3, **AS_IS)
    expected = [{"translation_text": one.text} for one in found.alternatives]
    assert len(expected) == 2
    assert pipe(TEXTS[0], num_return_sequences=2) == expected
    assert pipe(TEXTS[:1], num_return_sequences=2) == [expected]


def test_the_key_follows_the_task_and_arguments_of_a_call_take_precedence(directory, texts_of):
    pipe = ch.pipeline("text2text-generation", directory, device="cpu", num_beams=1, length_penalty=2.0)
    how = {"length_penalty": 2.0, "length_penalty_form": "power"}
    assert pipe(TEXTS) == [{"generated_text": text} for text in texts_of(TEXTS, beam_size=1, **how)]
    assert pipe(TEXTS, num_beams=5) == [{"generated_text": text} for text in texts_of(TEXTS, beam_size=5, **how)]


@pytest.mark.parametrize(("argument", "tokens"), [("max_length", 3), ("max_new_tokens", 2)])
def test_a_translation_is_cut_at_the_maximum_length(directory, texts_of, argument, tokens):
    pipe = ch.pipeline("translation", directory, device="cpu", num_beams=1)
    tokenizer = pipe.model.bundle.tokenizer
    whole = tokenizer.encode_targets(texts_of(TEXTS, beam_size=1))
    assert all(len(ids) > 2 for ids in whole)
    assert pipe(TEXTS, **{argument: tokens}) == [{"translation_text": tokenizer.decode(ids[:2])} for ids in whole]
    assert pipe(TEXTS, **{argument: 500}) == [
        {"translation_text": text} for text in texts_of(TEXTS, beam_size=1, extra_length=500 - (argument[4] == "l"))
    ]


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"min_length": 8}, {"min_length": 8}),
        ({"min_new_tokens": 8, "min_length": 2}, {"min_length": 9}),
        ({"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 1}),
    ],
)
def test_minimum_lengths_and_repetition_are_settings_of_the_search(directory, monkeypatch, given, settings):
    pipe = ch.pipeline("translation", directory, device="cpu", num_beams=1)
    expected = pipe.model.translate(TEXTS, **AS_IS, **settings, beam_size=1)
    asked = {}

    def translate(lines, **how):
        asked.update(how)
        return Translator.translate(pipe.model, lines, **how)

    monkeypatch.setattr(pipe.model, "translate", translate)
    assert [one["translation_text"] for one in pipe(TEXTS, **given)] == [one.text for one in expected]
    assert asked.items() >= settings.items()


def test_other_arguments_of_version_4_are_taken_where_they_change_nothing(directory):
    harmless = {
        "framework": "pt",
        "use_fast": True,
        "torch_dtype": torch.float32,
        "revision": None,
        "device_map": "auto",
        "trust_remote_code": False,
        "use_cache": True,
        "num_beam_groups": 1,
        "repetition_penalty": 1.0,
        "early_stopping": False,
        "return_text": True,
        "clean_up_tokenization_spaces": False,
        "model_kwargs": {},
    }
    plain = ch.pipeline("translation", directory, device="cpu")
    pipe = ch.pipeline("translation", str(directory), str(directory), device=torch.device("cpu"), **harmless)
    assert pipe(TEXTS) == plain(TEXTS) == plain(TEXTS, use_cache=True, num_beam_groups=1)


@pytest.mark.parametrize(
    ("given", "counterpart"),
    [
        ({"num_beam_groups": 4}, "diversity=0.5"),
        ({"torch_dtype": torch.bfloat16}, "decode.precision"),
        ({"device_map": {"": 0}}, "use device"),
        ({"revision": "main"}, "hf download"),
        ({"framework": "tf"}, "compiled core or PyTorch"),
        ({"repetition_penalty": 1.2}, "no_repeat_ngram_size"),
        ({"force_words_ids": [[3]]}, "terms="),
        ({"forced_bos_token_id": 250004}, "tgt_lang"),
        ({"early_stopping": True}, "as with 'never'"),
        ({"trust_remote_code": True}, "never run"),
    ],
)
def test_an_argument_of_version_4_that_is_not_taken_names_its_counterpart(directory, given, counterpart):
    for asked in (
        lambda: ch.pipeline("translation", directory, device="cpu", **given),
        lambda: ch.pipeline("translation", directory, device="cpu")(TEXTS, **given),
    ):
        with pytest.raises(ConfigError, match=f"{next(iter(given))}=.* cannot be given: .*{counterpart}"):
            asked()


def test_a_model_of_transformers_in_memory_is_not_a_path():
    with pytest.raises(ConfigError, match="not a Linear; write a model of transformers to a directory with save_pre"):
        ch.pipeline("translation", torch.nn.Linear(1, 1))


def test_languages_are_those_of_the_call_or_of_the_tasks_name(make_model_dir):
    directory = make_model_dir(language_tags=("de_DE", "fr", "pt-BR", "pt-PT"))
    translator = Translator.load(directory, device="cpu")

    def expected(language):
        return [{"translation_text": translator.translate(TEXTS[:1], target_lang=language, **AS_IS)[0].text}]

    assert expected("de_DE") != expected("fr")
    pipe = ch.pipeline("translation_en_to_de", directory, device="cpu")
    assert pipe(TEXTS[0]) == expected("de_DE")
    assert pipe(TEXTS[0], src_lang="en", tgt_lang="fr") == expected("fr")
    assert ch.pipeline("translation", directory, device="cpu", tgt_lang="fr")(TEXTS[0]) == expected("fr")
    with pytest.raises(ConfigError, match=r"has no language 'pt'; there are pt-BR, pt-PT; name it with src_lang and"):
        pipe(TEXTS[0], tgt_lang="pt")
    with pytest.raises(ConfigError, match="has no language 'xy'"):
        ch.pipeline("translation_en_to_xy", directory)


def test_samples_are_drawn_as_asked(directory, texts_of):
    pipe = ch.pipeline("translation", directory, device="cpu", do_sample=True, temperature=2.0, top_k=7)
    sampling = ch.Sampling(epsilon=0.0, temperature=2.0, top_k=7)
    assert [one["translation_text"] for one in pipe(TEXTS)] == texts_of(TEXTS, sampling=sampling)


def test_a_text_that_is_too_long_is_refused_or_cut(make_model_dir):
    directory = make_model_dir(decode={"max_input_tokens": 7})
    pipe = ch.pipeline("translation", directory, device="cpu")
    with pytest.raises(DataError, match="text 2 has more than 7 tokens, the most that this model reads; divide it"):
        pipe(["a", "a dog " * 9])
    [found] = pipe.model.translate(["a dog " * 9], **AS_IS)
    assert pipe("a dog " * 9, truncation=True) == [{"translation_text": found.text}]


def test_mistakes_are_named_before_a_model_is_loaded(directory, monkeypatch, tmp_path):
    monkeypatch.setattr(Translator, "load", lambda *_, **__: pytest.fail("loaded for nothing"))
    (tmp_path / "empty").mkdir()
    for arguments, error, message in [
        (
            ("summarization", directory),
            ConfigError,
            "unknown task 'summarization'; there are translation, translation_",
        ),
        (("translation_de_en", directory), ConfigError, "unknown task 'translation_de_en'"),
        (("translation",), ConfigError, "name a model, such as model='runs/de-en'"),
        (("translation", "t5-small"), ModelError, "no model at t5-small: there is no such file or directory, and"),
        (("translation", directory, "t5"), ConfigError, "leave out tokenizer"),
        (("translation", tmp_path / "empty"), ModelError, "empty"),
    ]:
        with pytest.raises(error, match=message):
            ch.pipeline(*arguments)
    with pytest.raises(ConfigError, match="pipeline translation: unknown setting 'num_beam'; did you mean 'num_beams'"):
        ch.pipeline("translation", directory, num_beam=3)


def test_pipeline_rejects_texts_and_settings_of_wrong_types(directory):
    pipe = ch.pipeline("translation", Translator.load(directory, device="cpu"))
    for texts in (("a", "b"), {"a": 1}, None, 3):
        with pytest.raises(DataError, match="a pipeline takes a text, a list of texts or a generator, not "):
            pipe(texts)
    with pytest.raises(DataError, match="texts"):
        pipe([["a"], ["b"]])
    with pytest.raises(ConfigError, match="num_beams = 0"):
        pipe("a", num_beams=0)
    with pytest.raises(ConfigError, match=r"num_return_sequences \(3\) must not be more than num_beams \(2\)"):
        pipe("a", num_beams=2, num_return_sequences=3)
    assert len(pipe("A dog", num_beams=1, num_return_sequences=3, do_sample=True)) == 3


def test_a_prefix_of_the_task_heads_every_text(directory, tmp_path, monkeypatch):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    tasks = {"translation_en_to_de": {"prefix": "translate English to German: "}}
    (theirs / "config.json").write_text(json.dumps({"model_type": "t5", "task_specific_params": tasks}))
    monkeypatch.setattr("clearhead.pipelines._imported", lambda *_: Translator.load(directory, device="cpu"))
    pipe = ch.pipeline("translation_en_to_de", theirs)
    [found] = pipe.model.translate(["translate English to German: A dog"], **AS_IS)
    assert pipe("A dog") == [{"translation_text": found.text}]
    [found] = pipe.model.translate(["A dog"], **AS_IS)
    assert ch.pipeline("translation", theirs)("A dog") == [{"translation_text": found.text}]
