"""A head that is switched off gives nothing, and all else is as it was."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ConfigError, DataError
from clearhead.evaluation import judge
from clearhead.inspection.ablation import ablate, num_heads, without_head
from clearhead.inspection.heads import attentions
from clearhead.translation.translator import Translator

TEXT, TARGET = "Ein kleiner Hund rennt.", "A small dog."
SMALL = {"d_model": 12, "num_heads": 3, "d_v": 5}
SOURCES, REFERENCES = ["Ein Hund.", "Zwei Männer."], ["A dog.", "Two men sit."]


@pytest.fixture(scope="module")
def translator(make_translator):
    return make_translator(**SMALL, decode={"beam_size": 2, "extra_length": 2})


@pytest.fixture(scope="module")
def ablation(translator):
    done = []
    found = ablate(translator, TEXT, sources=SOURCES, references=REFERENCES, on_progress=done.append)
    assert done == [1] * 12
    return found


def silenced(model, attention, layer, head):
    """Zero a head's output on its way into W^O."""

    def hook(module, inputs):
        heads = inputs[0].unflatten(-1, (3, 5)).clone()
        heads[..., head, :] = 0.0
        return (heads.flatten(-2),)

    return attentions(model, attention)[layer].out_proj.register_forward_pre_hook(hook)


def scored(translator, source, target):
    bundle = translator.bundle
    ids = torch.tensor(bundle.tokenizer.encode_sources([source]))
    [target_ids] = bundle.tokenizer.encode_targets([target])
    with torch.inference_mode():
        shifted = torch.tensor([[bundle.tokenizer.bos_id, *target_ids[:-1]]])
        log_probs = bundle.model(ids, shifted)[0].log_softmax(dim=-1)
    return sum(log_probs[place, token].item() for place, token in enumerate(target_ids))


def test_every_head_is_scored_as_with_its_output_zeroed(translator, ablation):
    assert len(ablation.heads) == num_heads(translator.bundle.model) == 12
    assert {(one.attention, one.layer, one.head) for one in ablation.heads} == {
        (name, layer, head)
        for name, layers in (("encoder", 2), ("decoder", 1), ("cross", 1))
        for layer in range(layers)
        for head in range(3)
    }
    assert ablation.score == pytest.approx(scored(translator, TEXT, ablation.translation), abs=1e-4)
    num_tokens = sum(map(len, translator.bundle.tokenizer.encode_targets(REFERENCES)))
    for one in ablation.heads[::3]:
        handle = silenced(translator.bundle.model, one.attention, one.layer, one.head)
        total = sum(scored(translator, *pair) for pair in zip(SOURCES, REFERENCES, strict=True))
        expected = scored(translator, TEXT, ablation.translation)
        handle.remove()
        assert one.score == pytest.approx(expected, abs=1e-4)
        assert one.test_set.loss == pytest.approx(-total / num_tokens, abs=1e-4)


def test_texts_are_those_of_the_model_without_the_head(translator, ablation):
    one = ablation.heads[0]
    with without_head(translator.bundle.model, one.attention, one.layer, one.head):
        assert translator.translate([TEXT])[0].text == one.translation
        texts = [found.text for found in translator.translate(SOURCES, beam_size=1)]
    assert one.test_set.bleu == judge(texts, REFERENCES).bleu
    assert translator.translate([TEXT])[0].text == ablation.translation


def test_the_model_itself_is_never_changed(translator):
    before = {name: tensor.clone() for name, tensor in translator.bundle.model.state_dict().items()}
    versions = [parameter._version for parameter in translator.bundle.model.parameters()]
    given = ablate(translator, TEXT, TARGET)
    assert given.translation == TARGET
    assert given.written == translator.translate([TEXT])[0].text  # which a head that changes nothing still writes
    assert given.lines()[1].endswith(given.written)
    scores = [one.score for one in given.heads]
    assert scores == sorted(scores)  # without a test set the sentence ranks
    assert versions == [parameter._version for parameter in translator.bundle.model.parameters()]
    with without_head(translator.bundle.model, "cross", 0, 1):
        assert (attentions(translator.bundle.model, "cross")[0].out_proj.weight[:, 5:10] == 0).all()
    for name, tensor in translator.bundle.model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_ablated_heads_are_ordered_by_loss(ablation):
    losses = [one.test_set.loss for one in ablation.heads]
    assert losses == sorted(losses, reverse=True)


def test_ablation_has_lines_of_a_table_and_plain_values(ablation):
    lines = ablation.lines()
    assert len(lines) == 2 + 12
    assert lines[0].split() == ["head", "score", "change", "loss", "change", "BLEU", "change", "translation"]
    assert lines[2].startswith(ablation.heads[0].name)
    values = ablation.to_dict()
    first = values["heads"][0]
    assert first["loss_change"] == pytest.approx(first["test_set"]["loss"] - values["test_set"]["loss"])
    assert first["is_changed"] == (first["translation"] != ablation.translation)
    assert values["bleu_signature"].startswith("nrefs:1")


def test_ablate_rejects_empty_text_unequal_lines_encoders_and_ensembles(translator, make_translator):
    with pytest.raises(DataError, match="the text is empty"):
        ablate(translator, "  ")
    with pytest.raises(DataError, match="1 source lines but 2 references"):
        ablate(translator, TEXT, sources=["a"], references=["b", "c"])
    with pytest.raises(ConfigError, match="no ensemble, and no encoder alone"):
        ablate(make_translator(num_decoder_layers=0), TEXT)
    with pytest.raises(ConfigError, match="no ensemble"):
        ablate(Translator(translator.bundle, ensemble=(translator.bundle,)), TEXT)
