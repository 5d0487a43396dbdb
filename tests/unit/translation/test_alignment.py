from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from clearhead.bundle import load_bundle
from clearhead.bundle.side_files import ALIGNMENT_FILE, add_side_files
from clearhead.decoding import NativeEngine, PyTorchEngine, make_engine
from clearhead.decoding.cross_attention import AlignmentHead, attended
from clearhead.decoding.occlusion import occluded
from clearhead.decoding.pytorch import weights as pytorch_weights
from clearhead.errors import ConfigError, DataError, ModelError
from clearhead.files import write_json
from clearhead.kernels.library import library
from clearhead.text.word_links import link_words, words_of
from clearhead.translation.alignment import (
    Aligner,
    alignment_head,
    choose_head,
    guided_head_of,
    save_head,
)
from clearhead.translation.translator import Translator

SHAPE = {"num_decoder_layers": 2, "d_model": 24, "num_heads": 2}
CORES = {**SHAPE, "d_model": 64, "d_k": 16, "d_v": 16, "d_ff": 96}
"""A shape that the compiled core supports."""
HEADS = [
    AlignmentHead(),
    AlignmentHead(1),
    AlignmentHead(1, None, True),
    AlignmentHead(0, 1),
    AlignmentHead(0, 1, True),
]


@pytest.fixture(scope="module")
def translator(make_bundle):
    return Translator(make_bundle(**SHAPE))


@pytest.fixture
def pairs(translator, sentences):
    return translator.pair_encoder.pairs(sentences[:-2:2], sentences[1:-2:2], translator.decode_config({}))


def shown(translator, pair, head):
    """Return what a head looked at, from a pass over the pair alone."""
    start = [translator.model.config.bos_id, *pair.target_ids]
    cross = translator.model.attention_weights(torch.tensor([pair.source_ids]), torch.tensor([start])).cross
    layers = range(len(cross)) if head.layer is None else [head.layer]
    heads = range(cross[0].size(1)) if head.head is None else [head.head]
    weights = np.mean([cross[layer][0, one].detach().numpy() for layer in layers for one in heads], axis=0)
    return weights[1:] if head.is_reading else weights[:-1]


def test_each_batch_is_computed_within_passes(translator, pairs):
    entered = []

    class Counting:
        def __enter__(self):
            entered.append("begin")

        def __exit__(self, *_):
            entered.append("end")

    aligner = Aligner((translator.bundle,), lambda: make_engine(translator.bundle.model))
    aligner.passes = Counting()
    aligner(pairs, by="attention", batch_tokens=1)
    assert entered == ["begin", "end"] * len(pairs)


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("form", [PyTorchEngine, NativeEngine])
def test_attention_of_a_batch_is_that_of_each_pair_alone(make_bundle, sentences, form, head):
    if form is NativeEngine and library() is None:
        pytest.skip("needs the compiled core")
    translator = Translator(make_bundle(**(CORES if form is NativeEngine else SHAPE)))
    pairs = translator.pair_encoder.pairs(sentences[:-2:2], sentences[1:-2:2], translator.decode_config({}))
    sides = [pair.source_ids for pair in pairs], [pair.target_ids for pair in pairs]
    done = []
    found = attended(form(translator.model), *sides, head, batch_tokens=80, on_progress=done.append)
    assert len(done) > 1
    assert sum(done) == len(pairs)
    for pair, weights in zip(pairs, found, strict=True):
        expected = shown(translator, pair, head)
        # A pass that only writes never reads the end token; it links no word.
        # The model is so sure of itself that float32 keeps no more digits of its own engine's weights either.
        np.testing.assert_allclose(weights[:-1], expected[:-1], rtol=0, atol=1e-6 if form is PyTorchEngine else 3e-4)
        assert weights.base is None  # nothing is kept of other heads


@pytest.mark.parametrize("batch_tokens", [1, 4_096])
def test_occlusion_is_what_is_lost_without_a_token(translator, pairs, batch_tokens, inference):
    pair = pairs[0]
    (weights,) = occluded(translator.model, [pair.source_ids], [pair.target_ids], batch_tokens=batch_tokens)
    target = torch.tensor([[translator.model.config.bos_id, *pair.target_ids]])

    def log_probs(source):
        rows = translator.model(torch.tensor([source]), target[:, :-1])[0].log_softmax(-1)
        return rows.gather(1, target[0, 1:, None])[:, 0]

    for place in (0, 2, len(pair.source_ids) - 1):
        hidden = list(pair.source_ids)
        hidden[place] = translator.model.config.pad_id
        lost = (log_probs(pair.source_ids) - log_probs(hidden)).clamp(min=0)
        torch.testing.assert_close(torch.from_numpy(weights[:, place]), lost, rtol=0, atol=1e-5)


def test_the_head_is_chosen_that_agrees_best_with_occlusion(translator, pairs):
    def links(weights):
        return {(n, link) for n, (pair, one) in enumerate(zip(pairs, weights, strict=True)) for link in pair.links(one)}

    sides = [pair.source_ids for pair in pairs], [pair.target_ids for pair in pairs]
    wanted = links(occluded(translator.model, *sides, batch_tokens=4_096))
    found = {}
    for head in (
        AlignmentHead(),
        *(AlignmentHead(a, b, c) for a in (0, 1) for b in (None, 0, 1) for c in (False, True)),
    ):
        own = links([shown(translator, pair, head) for pair in pairs])
        found[head] = 2 * len(own & wanted) / (len(own) + len(wanted))
    head, agreement = choose_head(translator.model, pairs, batch_tokens=4_096)
    assert agreement == pytest.approx(max(found.values()))
    assert found[head] == pytest.approx(agreement)
    assert choose_head(translator.model, [], batch_tokens=4_096) == (AlignmentHead(), 0.0)
    for guided in HEADS[1:]:
        expected = guided, pytest.approx(found[guided])
        assert choose_head(translator.model, pairs, batch_tokens=4_096, guided=guided) == expected
    assert choose_head(translator.model, [], batch_tokens=4_096, guided=guided) == (guided, 0.0)


def test_guided_head_of_rejects_a_head_that_the_model_lacks(make_bundle):
    head = AlignmentHead(1, 0, is_reading=True)
    bundle = make_bundle(**SHAPE)
    for values, message in (
        (head._asdict(), None),
        ({**head._asdict(), "layer": 2}, "is damaged"),
        ("x", "is damaged"),
    ):
        named = replace(bundle, info={"guided_alignment": values})
        if message is None:
            assert guided_head_of(named) == alignment_head(named) == head
        else:
            with pytest.raises(ModelError, match=message):
                guided_head_of(named)


def test_alignment_head_beside_the_model_is_used_and_validated(make_model_dir, sentences):
    path = make_model_dir(**SHAPE)
    bundle = load_bundle(path)
    assert alignment_head(bundle) == AlignmentHead()
    texts = sentences[0], sentences[1]
    for head in (AlignmentHead(1, 1, True), AlignmentHead(0)):
        add_side_files(path, {ALIGNMENT_FILE: partial(save_head, head=head, agreement=0.5)}, bundle.identity())
        assert alignment_head(load_bundle(path)) == head
        translator = Translator.load(path, device="cpu")
        (pair,) = translator.pair_encoder.pairs([texts[0]], [texts[1]], translator.decode_config({}))
        (links,) = translator.align([texts[0]], [texts[1]])
        spans = pair.source_tokens, pair.target_tokens, words_of(texts[0]), words_of(texts[1])
        weights = np.vstack([shown(translator, pair, head)[:-1], np.zeros((1, len(pair.source_ids)))])
        assert links == link_words(weights, *spans)
    values = json.loads((path / ALIGNMENT_FILE).read_text())
    for change, message in (
        ({"layer": 2}, "the model has no such head"),
        ({"head": True}, "the model has no such head"),
        ({"layer": None, "head": 1}, "the model has no such head"),
        ({"agreement": 10**400}, "agreement must be a number from 0 to 1"),
        ({"agreement": "0.5"}, "agreement must be a number from 0 to 1"),
    ):
        damaged = {**values, **change}
        add_side_files(path, {ALIGNMENT_FILE: lambda file, _, of=damaged: write_json(file, of)}, bundle.identity())
        with pytest.raises(ModelError, match=message):
            Translator.load(path, device="cpu").translate([texts[0]], alignments=True)
        Translator.load(path, device="cpu").translate([texts[0]])


LINES = ["Ein kleiner Hund rennt. Zwei Männer sitzen.", "", "犬が走る。犬が走る。", "  Am  3. Mai "]


@pytest.mark.parametrize("by", ["attention", "occlusion"])
@pytest.mark.parametrize("placeholders", [False, True])
def test_a_translation_is_aligned_as_if_it_were_given(make_bundle, by, placeholders):
    translator = Translator(make_bundle(placeholders=placeholders, **SHAPE))
    lines = [*LINES, "Drücke <b>%s</b> jetzt."] if placeholders else LINES
    how = {"split": "always", "source_lang": "de", "align_by": by}
    for line in translator.translate(lines, alignments=True, num_best=2, **how):
        sizes = len(words_of(line.source)), len(words_of(line.text))
        assert all(0 <= a < sizes[0] and 0 <= b < sizes[1] for a, b in line.alignment)
        assert list(line.alignment) == sorted(set(line.alignment))
        for one in line.sentences or (line,):
            assert list(one.alignment) == translator.align([one.source], [one.text], align_by=by)[0]
        if line.sentences:
            first = line.sentences[0]
            count = len(words_of(first.source))
            assert [link for link in line.alignment if link[0] < count][: len(first.alignment)] == list(first.alignment)
    assert [line.alignment for line in translator.translate(lines)] == [None] * len(lines)


def test_the_words_behind_a_language_tag_are_counted(make_bundle):
    translator = Translator(make_bundle(language_tags=("de", "fr"), **SHAPE))
    tagged, told = (
        translator.translate([line], alignments=True, target_lang=language)[0]
        for line, language in (("<2de> Ein Hund", None), ("Ein Hund", "de"))
    )
    assert tagged.alignment == told.alignment
    assert {source for source, _ in told.alignment} <= {0, 1}


def test_ensemble_alignment_adds_up_attention_weights(make_bundle, pairs):
    one, other = Translator(make_bundle(**SHAPE)), Translator(make_bundle(8, **SHAPE))
    both = Translator(one.bundle, ensemble=(other.bundle,))
    texts = ["Ein kleiner Hund rennt."], ["A small dog runs."]
    ((pair,),) = [both.pair_encoder.pairs(*texts, both.decode_config({}))]
    weights = sum(shown(each, pair, AlignmentHead()) for each in (one, other))
    assert both.align(*texts) == [pair.links(weights)]


@pytest.mark.skipif(library() is None, reason="needs the compiled core")
def test_the_compiled_core_aligns_without_the_module(make_bundle, monkeypatch):
    one, other = Translator(make_bundle(**CORES)), Translator(make_bundle(8, **SHAPE))
    both = Translator(one.bundle, ensemble=(other.bundle,))
    texts = ["Ein kleiner Hund rennt."], ["A small dog runs."]
    (pair,) = both.pair_encoder.pairs(*texts, both.decode_config({}))
    weights = [shown(each, pair, AlignmentHead()) for each in (one, other)]
    assert both.align(*texts) == [pair.links(sum(weights))]  # one by the core, one by PyTorch
    monkeypatch.setattr(pytorch_weights, "cross_attention_weights", None)
    assert one.align(*texts) == [pair.links(weights[0])]


def test_encoder_only_models_long_pairs_and_unequal_line_counts_are_not_aligned(make_bundle):
    with pytest.raises(ConfigError, match="which an encoder or a decoder alone has not"):
        Translator(make_bundle(num_decoder_layers=0)).translate(["Ein"], alignments=True)
    translator = Translator(make_bundle(**SHAPE))
    with pytest.raises(DataError, match=r"pair 2 has .* at most 5 are scored or aligned"):
        translator.align(["a", "Ein kleiner Hund"], ["a", "b"], max_input_tokens=5)
    with pytest.raises(DataError, match="1 source lines but 2 target lines"):
        translator.align(["a"], ["a", "b"])
