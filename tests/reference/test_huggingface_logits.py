"""Models of Hugging Face transformers and ours give the same logits and gradients from the same weights.

The weights, and the gradients back, go through the key tables of `clearhead.interop`. Everything is in float32. Theirs
compute attention step by step ("eager"), ours with PyTorch's fused kernel.
"""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from huggingface_models import KINDS, as_ours, logits, our_logits, random_state, t5, t5_untied, their_output
from torch.nn import functional
from transformers.activations import ACT2FN

from clearhead.files.tensors import model_tensors, read_weights, write_weights
from clearhead.interop.huggingface.state import FAMILIES, export_state, import_state
from clearhead.interop.readers.foreign_config import ACTIVATIONS
from clearhead.model import feed_forward

SOURCE_LENGTHS, TARGET_LENGTHS = (11, 5, 2), (4, 7, 1)

IN_EVERY_RUN = {
    "marian",
    "marian with two vocabularies",
    "marian with nothing tied",
    "pegasus",
    "bart",
    "mbart",
    "m2m100",
    "bert",
    "bert-generation",
    "bert2bert",
    "gpt2",
    "t5",
    "t5 1.1",
}
"""Every kind of model, and every tying of one; the slow run takes other special ids and libraries' twins of kinds."""
every_kind = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=name, marks=() if name in IN_EVERY_RUN else pytest.mark.slow)
        for name, kind in KINDS.items()
    ],
)


@pytest.fixture
def batch(make_batch):
    """Return a function from settings to source, target and segments, padded and with both segments."""

    def make(config):
        source, target = make_batch(config, SOURCE_LENGTHS, TARGET_LENGTHS)
        return source, target, torch.randint(2, source.shape)

    return make


def real_positions(config, source, target):
    lengths = SOURCE_LENGTHS if config.num_decoder_layers == 0 else TARGET_LENGTHS
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@every_kind
def test_logits_are_equal(kind, batch, record_property):
    theirs = random_state(kind.make())
    ours = as_ours(kind.model_type, theirs)
    assert ours.config.activation == kind.activation
    source, target, segments = batch(ours.config)
    real = real_positions(ours.config, source, target)
    with torch.no_grad():
        expected = logits(theirs, ours.config, source, target, segments)[real]
        actual = our_logits(ours, source, target, segments)[real]
    record_property("largest difference", (actual - expected).abs().max().item())
    assert expected.std() > 0.3
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=1e-5)


@every_kind
def test_hidden_states_are_equal(kind, batch):
    theirs = random_state(kind.make())
    ours = as_ours(kind.model_type, theirs)
    source, target, segments = batch(ours.config)
    has_encoder, has_decoder = ours.config.num_encoder_layers > 0, ours.config.num_decoder_layers > 0
    with torch.no_grad():
        found = ours.hidden_states(
            source if has_encoder else None, target if has_decoder else None, segments if not has_decoder else None
        )
        expected = their_output(theirs, ours.config, source, target, segments, output_hidden_states=True)
    names = (
        "encoder_hidden_states" if has_decoder else "hidden_states",
        "decoder_hidden_states" if has_encoder else "hidden_states",
    )
    for states, name, lengths in zip(
        (found.encoder, found.decoder), names, (SOURCE_LENGTHS, TARGET_LENGTHS), strict=True
    ):
        if states:
            real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
            assert len(states) == len(expected[name])
            for state, other in zip(states, expected[name], strict=True):
                torch.testing.assert_close(state[real], other[real], rtol=0.0, atol=1e-5)
    assert len(found.encoder) == (ours.config.num_encoder_layers + 1) * has_encoder
    assert len(found.decoder) == (ours.config.num_decoder_layers + 1) * has_decoder


@pytest.mark.parametrize("name", ["t5", "t5 1.1"])
def test_logits_are_equal_in_sentences_longer_than_any_distance_of_t5(make_batch, name, record_property):
    usual = {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}
    theirs = random_state({"t5": t5, "t5 1.1": t5_untied}[name](**usual))
    ours = as_ours("t5", theirs)
    lengths = (301, 140, 7)
    source, target = make_batch(ours.config, lengths, lengths[::-1])
    seen = torch.arange(301) < torch.tensor(lengths[::-1])[:, None]
    with torch.no_grad():
        expected = logits(theirs, ours.config, source, target, source)[seen]
        actual = ours(source, target)[seen]
    record_property("largest difference", (actual - expected).abs().max().item())
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_equal(name):
    x = torch.linspace(-5.0, 5.0, 101, dtype=torch.float64)
    ours = feed_forward.ACTIVATIONS[ACTIVATIONS[name]]
    torch.testing.assert_close(ours(x), ACT2FN[name](x), rtol=0.0, atol=1e-12)


@every_kind
def test_gradients_are_equal(kind, batch, record_property):
    theirs = random_state(kind.make())
    ours = as_ours(kind.model_type, theirs)
    source, target, segments = batch(ours.config)
    real = real_positions(ours.config, source, target)
    labels = torch.randint(ours.config.d_model, real.shape)[real]  # an encoder alone has no wider output
    for values in (our_logits(ours, source, target, segments), logits(theirs, ours.config, source, target, segments)):
        functional.cross_entropy(values[real], labels, reduction="sum").backward()

    gradients = {name: weight.grad for name, weight in theirs.named_parameters() if weight.grad is not None}
    expected = FAMILIES[kind.model_type].key_table(ours.config).from_theirs(gradients)
    if "final_logits_bias" in dict(theirs.named_buffers()):
        del expected["output_proj.bias"]  # not trained there
    else:
        assert expected.keys() == dict(ours.named_parameters()).keys()
    actual = {name: ours.get_parameter(name).grad for name in expected}
    if ours.config.bos_id == ours.config.pad_id:  # theirs never train the padding's embedding, not even as a start
        for gradients in (actual, expected):
            gradients["source_embedding.weight"][ours.config.pad_id] = 0.0
    record_property("largest difference", max((actual[n] - expected[n]).abs().max().item() for n in expected))
    for name in expected:
        # A bias on all keys alike cannot change a softmax over them.
        assert expected[name].abs().max() > 1e-4 or name.endswith("k_proj.bias"), name
        # Gradients of one weight are sums of terms of all sizes; float32 is as exact as the largest of them allows.
        torch.testing.assert_close(
            actual[name],
            expected[name],
            rtol=0.0,
            atol=1e-5 * max(1.0, expected[name].abs().max().item()),
            msg=lambda text, n=name: n + text,
        )


@every_kind
def test_export_state_writes_the_imported_state(kind):
    theirs = random_state(kind.make())
    state = theirs.state_dict()
    config, tensors = import_state(kind.model_type, theirs.config.to_dict(), state)
    fields, written = export_state(kind.model_type, config, tensors)
    assert set(state) - set(written) == set(kind.not_written)
    for name, tensor in written.items():
        torch.testing.assert_close(tensor, state[name], rtol=0.0, atol=0.0)
    again, tensors_again = import_state(kind.model_type, fields, written)
    assert again == config
    assert tensors_again.keys() == tensors.keys()


@every_kind
def test_their_library_loads_what_we_write(kind, batch, tmp_path):
    theirs = random_state(kind.make())
    ours = as_ours(kind.model_type, theirs)
    fields, written = export_state(kind.model_type, ours.config, model_tensors(ours))
    (tmp_path / "config.json").write_text(json.dumps(fields))
    write_weights(tmp_path / "model.safetensors", written, {"format": "pt"})
    model_class = getattr(transformers, fields["architectures"][0])
    loaded, info = model_class.from_pretrained(tmp_path, output_loading_info=True, attn_implementation="eager")
    assert set(info["missing_keys"]) <= set(kind.not_written)
    assert (set(info["unexpected_keys"]), info["mismatched_keys"]) == (set(), set())
    source, target, segments = batch(ours.config)
    real = real_positions(ours.config, source, target)
    with torch.no_grad():
        actual = logits(loaded.eval(), ours.config, source, target, segments)[real]
        expected = logits(theirs, ours.config, source, target, segments)[real]
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=0.0)


@every_kind
def test_we_load_what_their_library_writes(kind, batch, tmp_path):
    theirs = random_state(kind.make())
    theirs.save_pretrained(tmp_path)
    ours = as_ours(kind.model_type, theirs)
    state, _ = read_weights(tmp_path / "model.safetensors")
    fields = json.loads((tmp_path / "config.json").read_text())
    config, tensors = import_state(kind.model_type, fields, state)
    assert fields["model_type"] == kind.model_type
    assert config == ours.config
    for name, tensor in model_tensors(ours).items():
        torch.testing.assert_close(tensors[name], tensor, rtol=0.0, atol=0.0)
