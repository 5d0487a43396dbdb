"""What `explain` returns, against forced scoring, the search, and what attention must be."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from unpacking import unpacked

import clearhead as ch
from clearhead.bundle import Bundle, save_bundle
from clearhead.bundle.side_files import add_side_files
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.decoding.step import token_log_probs
from clearhead.errors import ConfigError, DataError
from clearhead.inspection.explain import explain
from clearhead.inspection.explanation import Explanation
from clearhead.inspection.summary import summary_lines
from clearhead.inspection.token_steps import Candidate
from clearhead.model import Transformer
from clearhead.tokenizers import Tokenizer
from clearhead.translation.alignment import save_head
from clearhead.translation.translator import Translator

TEXT = "a dog runs across the field"
TARGET = "ein Hund rennt"
LAYERS_IN, LAYERS_OUT, HEADS = 3, 2, 5


@pytest.fixture
def translator() -> Translator:
    return _translator()


@pytest.fixture
def tagged() -> Translator:
    return _translator("de", "fr")


def _translator(*language_tags: str) -> Translator:
    torch.manual_seed(13)
    tokenizer = Tokenizer.train([TEXT, TARGET] * 3, vocab_size=331, language_tags=language_tags)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        d_model=10 * HEADS,
        d_ff=31,
        num_heads=HEADS,
        num_encoder_layers=LAYERS_IN,
        num_decoder_layers=LAYERS_OUT,
    )
    return Translator(Bundle(Transformer(config).eval(), tokenizer, DecodeConfig(beam_size=3, extra_length=4)))


@pytest.fixture
def forced(translator) -> Explanation:
    return explain(translator, TEXT, TARGET)


def test_the_arrays_have_the_shapes_of_the_tokens(forced):
    num_source, num_target = len(forced.source_tokens), len(forced.target_tokens)
    assert num_source != num_target
    assert forced.encoder.shape == (LAYERS_IN, HEADS, num_source, num_source)
    assert forced.decoder.shape == (LAYERS_OUT, HEADS, num_target, num_target)
    assert forced.cross.shape == (LAYERS_OUT, HEADS, num_target, num_source)
    assert len(forced.steps) == num_target
    for weights in (forced.encoder, forced.decoder, forced.cross):
        assert weights.dtype == np.float32


def test_every_row_is_a_distribution_and_the_heads_differ(forced):
    for weights in (forced.encoder, forced.decoder, forced.cross):
        assert (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-5)
        assert np.abs(weights[0, 0] - weights[1, 0]).max() > 1e-3
        assert np.abs(weights[0, 0] - weights[0, 1]).max() > 1e-3


def test_explained_decoder_attention_is_causal(forced):
    above = np.triu(np.ones(forced.decoder.shape[-2:], dtype=bool), k=1)
    assert (forced.decoder[..., above] == 0).all()
    assert (forced.decoder[..., ~above] > 0).all()


def test_each_attention_has_the_statistics_that_have_a_meaning_for_it(forced):
    # The decoder sees no last and no next key; what queries read is not what keys are in cross-attention.
    of_all = {"entropy", "peak", "distance", "diagonality", "first_share"}
    assert {name: set(found) - of_all for name, found in forced.head_statistics.items()} == {
        "encoder": {"last_share", "same_share", "previous_share", "next_share"},
        "decoder": {"same_share", "previous_share"},
        "cross": {"last_share"},
    }


def test_the_weights_are_those_of_the_given_tokens_shifted_right(translator, forced):
    tokenizer, model = translator.bundle.tokenizer, translator.bundle.model
    source = torch.tensor([[*tokenizer.encode(TEXT), tokenizer.eos_id]])
    read = torch.tensor([[tokenizer.bos_id, *tokenizer.encode(TARGET)]])
    expected = model.attention_weights(source, read)
    for layer in range(LAYERS_OUT):
        np.testing.assert_allclose(forced.cross[layer], expected.cross[layer][0].detach().numpy(), atol=1e-6)
        np.testing.assert_allclose(forced.decoder[layer], expected.decoder[layer][0].detach().numpy(), atol=1e-6)
    for layer in range(LAYERS_IN):
        np.testing.assert_allclose(forced.encoder[layer], expected.encoder[layer][0].detach().numpy(), atol=1e-6)


def test_the_tokens_are_those_read_and_those_predicted(forced):
    assert "".join(forced.source_tokens) == f" {TEXT}</s>"
    assert "".join(forced.target_tokens) == f" {TARGET}</s>"
    assert forced.decoder_tokens == ["<s>", *forced.target_tokens[:-1]]
    assert [step.token for step in forced.steps] == forced.target_tokens


def test_a_given_target_scores_as_scoring_says(translator, forced):
    assert forced.translation == TARGET
    assert forced.score == translator.score([TEXT], [TARGET])[0]
    assert sum(math.log(step.probability) for step in forced.steps) == pytest.approx(forced.score, abs=1e-4)


def test_each_step_has_the_probability_that_forced_scoring_gives_its_token(translator, forced):
    tokenizer = translator.bundle.tokenizer
    target = [*tokenizer.encode(TARGET), tokenizer.eos_id]
    with torch.inference_mode():
        log_probs = token_log_probs(translator.bundle.model, [[*tokenizer.encode(TEXT), tokenizer.eos_id]], [target])
    np.testing.assert_allclose([step.probability for step in forced.steps], log_probs[0].exp().numpy(), rtol=1e-4)


def test_the_candidates_are_the_five_most_probable_best_first(translator, forced):
    tokenizer, model = translator.bundle.tokenizer, translator.bundle.model
    source = torch.tensor([[*tokenizer.encode(TEXT), tokenizer.eos_id]])
    read = torch.tensor([[tokenizer.bos_id, *tokenizer.encode(TARGET)]])
    with torch.inference_mode():
        probs = model(source, read)[0].softmax(dim=-1)
    for step, row in zip(forced.steps, probs, strict=True):
        order = sorted(range(len(row)), key=lambda index: -row[index].item())[:5]
        assert [candidate.token for candidate in step.candidates] == tokenizer.pieces(order)
        values = [candidate.probability for candidate in step.candidates]
        assert values == sorted(values, reverse=True)
        np.testing.assert_allclose(values, [row[index].item() for index in order], rtol=1e-4)


def test_a_searched_translation_is_the_translators_own(translator):
    found = explain(translator, TEXT)
    assert found.translation == translator.translate([TEXT])[0].text
    assert found.target_tokens == translator.bundle.tokenizer.pieces(list(found.search.hypothesis.tokens))
    assert found.score == pytest.approx(found.search.hypothesis.log_prob, abs=1e-4)
    assert sum(math.log(step.probability) for step in found.steps) == pytest.approx(found.score, abs=1e-4)


def test_explain_keeps_the_searched_tokens_that_the_tokenizer_would_merge():
    tokenizer = Tokenizer.train(["sss sss"] * 3, vocab_size=300)
    [*_, letter] = tokenizer.encode("s")
    assert len(tokenizer.encode("sss")) < 3
    settings = {"d_model": 6, "num_heads": 2, "d_ff": 4, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(ModelConfig(**{**tokenizer.model_settings, **settings, "output_bias": True})).eval()
    with torch.no_grad():
        model.output_proj.weight.zero_()
        model.output_proj.bias.zero_()[letter] = 9.0  # whatever it reads, it writes one letter after the other
    translator = Translator(Bundle(model, tokenizer, DecodeConfig(beam_size=2, extra_length=1, end_loops=False)))
    found = explain(translator, "s")
    assert found.target_tokens == ["s"] * len(found.translation) + ["</s>"]
    assert len(found.translation) > 1
    assert found.score == pytest.approx(sum(math.log(step.probability) for step in found.steps), abs=1e-4)
    assert found.score == pytest.approx(found.to_search()["finished"][0]["score"])
    assert [span for span in found.target_spans if span] == [(at, at + 1) for at in range(len(found.translation))]
    assert len(explain(translator, "s", found.translation).target_tokens) < len(found.target_tokens)


def test_the_search_uses_the_models_own_decode_settings(translator):
    translator.bundle.decode = DecodeConfig(beam_size=1, extra_length=1)
    greedy = explain(translator, TEXT)
    assert greedy.translation == translator.translate([TEXT], beam_size=1, extra_length=1)[0].text
    translator.bundle.decode = DecodeConfig(beam_size=1, extra_length=4)
    assert len(explain(translator, TEXT).translation) > len(greedy.translation)  # random weights seldom end


def test_a_language_tag_is_a_source_token_of_its_own(tagged):
    explained = explain(tagged, f"<2de> {TEXT}", TARGET)
    assert explained.source_tokens[0] == "<2de>"
    assert "".join(explained.source_tokens[1:]) == f" {TEXT}</s>"
    assert explained.source == f"<2de> {TEXT}"
    assert explained.score == tagged.score([f"<2de> {TEXT}"], [TARGET])[0]
    tagged.bundle.decode = DecodeConfig(target_lang="fr")
    assert explain(tagged, TEXT, TARGET).source_tokens[0] == "<2fr>"


def test_no_language_or_an_unknown_one_is_refused(tagged):
    with pytest.raises(DataError, match=r"unknown language tag <2xx>; the model's tags are <2de>, <2fr>"):
        explain(tagged, f"<2xx> {TEXT}", TARGET)
    with pytest.raises(ConfigError, match=r"into which language\?"):
        explain(tagged, TEXT, TARGET)


def test_an_empty_target_is_the_end_token_alone(translator):
    nothing = explain(translator, TEXT, "")
    assert nothing.target_tokens == ["</s>"]
    assert nothing.decoder_tokens == ["<s>"]
    assert nothing.decoder.shape == (LAYERS_OUT, HEADS, 1, 1)


@pytest.mark.parametrize("text", ["", "  \t", "<2de>", "<2de>  "])
def test_empty_text_is_refused(tagged, text):
    with pytest.raises(DataError, match="the text is empty"):
        explain(tagged, text)


def test_a_side_over_the_limit_is_refused_with_both_numbers(translator):
    num_tokens = len(translator.bundle.tokenizer.encode(TEXT)) + 1
    translator.bundle.decode = DecodeConfig(max_input_tokens=num_tokens, beam_size=1)
    assert len(explain(translator, TEXT, TARGET).source_tokens) == num_tokens
    with pytest.raises(DataError, match=f"the text has {num_tokens + 1} tokens; at most {num_tokens}"):
        explain(translator, TEXT + "!")
    with pytest.raises(DataError, match=f"the target has .* tokens; at most {num_tokens}"):
        explain(translator, TEXT, TEXT + "!")


def test_explaining_leaves_nothing_on_the_model(translator):
    before = {name: dict(vars(module)) for name, module in translator.bundle.model.named_modules()}
    explain(translator, TEXT, TARGET)
    for name, module in translator.bundle.model.named_modules():
        assert vars(module).keys() == before[name].keys()


def test_an_explanation_is_plain_json(forced):
    values = json.loads(json.dumps(forced.to_dict(), allow_nan=False))
    assert values == forced.to_dict()
    assert values["decoder_tokens"] == forced.decoder_tokens
    assert values["steps"][0]["candidates"][0] == {
        "token": forced.steps[0].candidates[0].token,
        "probability": forced.steps[0].candidates[0].probability,
    }
    for name in ("encoder", "decoder", "cross"):
        np.testing.assert_allclose(values[name], getattr(forced, name), atol=1e-6)


def test_steps_have_the_entropy_and_rank_of_their_whole_distribution(translator, forced):
    with torch.inference_mode():
        probs = translator.bundle.model(*_read(translator))[0].double().softmax(dim=-1)
    for step, row, token in zip(forced.steps, probs, _target_ids(translator), strict=True):
        assert step.entropy == pytest.approx(-(row * row.log()).sum().item(), abs=1e-4)
        assert step.rank == 1 + sum(value > row[token] for value in row)


def test_the_logit_lens_reads_every_layer_through_the_output_matrix(translator, forced):
    model = translator.bundle.model  # post-norm: there is no final norm on the way
    with torch.inference_mode():
        states = model.hidden_states(*_read(translator)).decoder
        expected = [(state[0] @ model.output_proj.weight.T).softmax(dim=-1) for state in states]
    assert len(forced.lens) == LAYERS_OUT + 1
    for layer, probs in zip(forced.lens, expected, strict=True):
        for step, row, token in zip(layer, probs, _target_ids(translator), strict=True):
            assert step.probability == pytest.approx(row[token].item(), rel=1e-4)
            assert step.candidates[0].probability == pytest.approx(row.max().item(), rel=1e-4)
    for step, last in zip(forced.steps, forced.lens[-1], strict=True):
        assert (step.probability, step.rank) == pytest.approx((last.probability, last.rank))


def test_the_search_is_recorded_also_where_a_translation_is_given(translator, forced):
    found = explain(translator, TEXT)
    assert not found.is_given
    assert forced.is_given
    for one in (found, forced):
        assert translator.bundle.tokenizer.decode(one.search.hypothesis.tokens) == found.translation
    assert found.to_search()["is_translation"]
    assert not forced.to_search()["is_translation"]
    assert explain(translator, TEXT, search=False).search is None
    assert explain(translator, TEXT, beam_size=1).search.beam_size == 1


def test_a_model_that_is_one_side_alone_gives_what_it_has(make_translator):
    encoder = explain(make_translator(num_decoder_layers=0), TEXT)
    assert (encoder.kind, encoder.translation, encoder.steps, encoder.decoder_tokens) == ("encoder", "", [], [])
    assert list(encoder.attentions) == ["encoder"]
    with pytest.raises(ConfigError, match="an encoder alone writes nothing"):
        explain(make_translator(num_decoder_layers=0), TEXT, TARGET)
    translator = make_translator(num_encoder_layers=0, tying="decoder")
    decoder = explain(translator, TEXT, TARGET)
    assert decoder.kind == "decoder"
    assert list(decoder.attentions) == ["decoder"]
    assert decoder.decoder_tokens == [*decoder.source_tokens, *decoder.target_tokens[:-1]]
    assert decoder.decoder.shape[-1] == len(decoder.decoder_tokens)
    assert sum(math.log(step.probability) for step in decoder.steps) == pytest.approx(decoder.score, abs=1e-3)
    assert decoder.score == translator.score([TEXT], [TARGET])[0]
    for one in (encoder, decoder):
        values = json.loads(json.dumps(one.to_dict(packed=True), allow_nan=False))
        assert values["cross"] is None
        assert values["vectors"].keys() == one.attentions.keys()


def test_explained_tokens_show_placeholders_as_their_text(make_translator):
    text, target = "Lösche <b>%s</b>!", "Delete <b>%s</b>!"
    explained = explain(make_translator(), text, target)
    for tokens, spans, whole in (
        (explained.source_tokens, explained.source_spans, text),
        (explained.target_tokens, explained.target_spans, target),
    ):
        start, end = spans[tokens.index("%s")]
        assert whole[start:end] == "%s"
    assert "%s" in explained.to_search()["text"]  # what the source has, the search writes


def test_words_and_spans_are_those_of_the_line_with_its_tag(tagged):
    line = f"<2de> {TEXT}"
    explained = explain(tagged, line, TARGET, search=False)
    assert explained.source_spans[0] is None
    assert [word.text for word in explained.source_words] == TEXT.split()
    assert all(line[start:end] == word.text for word in explained.source_words for start, end in [word.span])


def test_label_smoothing_says_how_sure_a_perfect_model_is(make_translator):
    info = {"settings": {"train": {"label_smoothing": 0.1}}}
    translator = make_translator(info=info)
    model = explain(translator, TEXT, TARGET, search=False).model
    size = translator.bundle.tokenizer.vocab_size
    # What minimises the loss: the smoothed distribution itself (section 5.4).
    assert model["highest_probability"] == pytest.approx(0.9 + 0.1 / size)
    unknown = explain(make_translator(), TEXT, TARGET, search=False).model
    assert (unknown["label_smoothing"], unknown["highest_probability"]) == (None, None)


def test_scores_on_a_page_are_the_logarithms_of_weights_and_their_sums(forced):
    values = forced.to_dict(packed=True)
    head = forced.head("decoder", 1, 2)
    log_sum = unpacked(values["vectors"]["decoder"]["log_sums"])[1, 2]
    seen = head.mask
    with np.errstate(divide="ignore"):
        scores = np.log(unpacked(values["decoder"])[1, 2]) + log_sum[:, None]
    np.testing.assert_allclose(scores[seen], head.scores[seen], atol=1e-3)
    queries = unpacked(values["vectors"]["decoder"]["queries"])[1, 2]
    np.testing.assert_allclose(queries, head.queries, rtol=1e-4)


def test_an_explanation_without_its_model_says_so():
    bare = Explanation("a", "b", 0.0, [], [], *[np.zeros((1, 1, 1, 1), np.float32)] * 3, [])
    for ask in (lambda: bare.head("cross", 0, 0), lambda: bare.residual("encoder")):
        with pytest.raises(DataError, match="does not hold its model"):
            ask()


def _target_ids(translator):
    return [*translator.bundle.tokenizer.encode(TARGET), translator.bundle.tokenizer.eos_id]


def _read(translator):
    tokenizer = translator.bundle.tokenizer
    source = torch.tensor([[*tokenizer.encode(TEXT), tokenizer.eos_id]])
    return source, torch.tensor([[tokenizer.bos_id, *tokenizer.encode(TARGET)]])


def test_explain_and_explanation_are_exported_by_the_package(translator, forced):
    assert ch.explain is explain
    assert ch.Explanation is Explanation
    assert isinstance(forced.steps[0].candidates[0], Candidate)
    assert len(repr(forced)) < 500  # the arrays do not flood a terminal


def test_markup_that_is_put_into_translations_is_not_what_the_model_wrote(make_translator):
    translator = make_translator()
    text = "<b>Ein</b> Hund"
    translator.bundle.tokenizer.num_placeholders = 0
    found = explain(translator, text)
    assert found.to_search()["is_translation"]
    assert found.translation != translator.translate([text])[0].text


def test_the_alignment_is_that_of_the_head_that_was_chosen_for_the_model(make_bundle, tmp_path):
    bundle = make_bundle(num_heads=2)
    save_bundle(tmp_path, bundle, card="# A small model\n")
    translator = Translator.load(tmp_path)
    assert explain(translator, "Ein Hund", "A").alignment_head == AlignmentHead()
    head = partial(save_head, head=AlignmentHead(0, 1, is_reading=True), agreement=0.5)
    add_side_files(tmp_path, {"alignment.json": head}, translator.bundle.identity())
    translator = Translator.load(tmp_path)
    found = explain(translator, "Ein Hund", "A dog")
    cross = found.cross[0, 1]
    np.testing.assert_array_equal(found.alignment, [*cross[1:], cross[-1]])
    assert found.to_dict()["alignment_head"]["name"] == "head 2 of layer 1, at the step that reads a word"
    # By hand, as docs/alignment.md says: each word's share, over what the source word gets and a tenth.
    looks = np.array(
        [
            [found.alignment[np.ix_(row.tokens, column.tokens)].sum() for column in found.source_words]
            for row in found.target_words
        ]
    )
    looks /= looks.sum(axis=1, keepdims=True)
    looks /= looks.sum(axis=0) + 0.1
    assert found.links == sorted((int(row.argmax()), target) for target, row in enumerate(looks))


def test_summary_lines_show_control_characters_as_codes(make_translator):
    lines = summary_lines(explain(make_translator(), "Ein\x1b[2J Hund", "A\ndog\x07"))
    assert lines[:2] == ["source       Ein[001B][2J Hund", "translation  A↵dog[0007]"]
    assert not any(set(line) & set(map(chr, range(32))) for line in lines)


def test_a_model_that_translates_in_int8_is_explained_in_float32_as_its_search_is(make_bundle, sentences):
    bundle = make_bundle(d_model=64, num_heads=2, d_ff=64, decode={"precision": "int8"})
    whole = replace(bundle, decode=bundle.decode.with_changes({"precision": "fp32"}))
    words = [" ".join(line.split()[:number]) for line in sentences for number in range(1, 6)]
    in_int8, in_float32 = ([one.text for one in Translator(made).translate(words)] for made in (bundle, whole))
    differing = [text for text, one, other in zip(words, in_int8, in_float32, strict=True) if one != other][:3]
    assert differing
    found, expected = ([explain(Translator(one), text).translation for text in differing] for one in (bundle, whole))
    assert found == expected
