"""The ONNX files of a model compute what the model does: every option, any length, with a cache and without."""

from __future__ import annotations

import onnx
import onnxruntime
import pytest
import torch
from torch.testing import assert_close

from clearhead.config import ModelConfig
from clearhead.interop.onnx.model import decoder_graph, encoder_graph

OPTIONS = [
    {},
    {"norm": "pre", "positions": "learned", "max_positions": 12, "embedding_norm": True, "attention_bias": True},
    {"norm": "pre", "gated": True, "activation": "silu", "feed_forward_bias": False},
    {"norm": "pre", "norm_kind": "rms", "final_norm": False, "tying": "none", "output_bias": True},
    {"positions": "sinusoidal_halves", "activation": "gelu", "tying": "decoder", "source_vocab_size": 41},
    {"positions": "sinusoidal_t2t", "first_position": 2, "activation": "gelu_tanh", "embedding_scale": False},
    {"positions": "rotary", "d_k": 6, "d_v": 10, "num_segments": 2, "norm_kind": "rms", "tying": "embeddings"},
    {"positions": "relative", "relative_attention_num_buckets": 8, "relative_attention_max_distance": 7},
    {"attention_scale": False, "output_scale": True, "num_target_segments": 2},
    {"output_transform": True, "activation": "gelu_tanh", "norm_kind": "rms"},
    {"positions": "none", "final_norm": True, "pad_id": 5, "bos_id": 0, "eos_id": 7, "norm_eps": 0.1},
]


class Files:
    """The three graphs of a model in onnxruntime, torch tensors in and out."""

    def __init__(self, model, *, rounded=False):
        graphs = (
            encoder_graph(model, rounded=rounded),
            decoder_graph(model, with_past=False, rounded=rounded),
            decoder_graph(model, with_past=True, rounded=rounded),
        )
        self.sessions = {}
        for graph in graphs:
            onnx.checker.check_model(graph, full_check=True)
            self.sessions[graph.graph.name] = onnxruntime.InferenceSession(graph.SerializeToString())
        self.pad_id = model.config.pad_id

    def run(self, file, **inputs):
        session = self.sessions[file]
        names = [output.name for output in session.get_outputs()]
        found = session.run(names, {name: value.numpy() for name, value in inputs.items()})
        return dict(zip(names, map(torch.from_numpy, found), strict=True))

    def encode(self, source):
        mask = (source != self.pad_id).long()
        return self.run("encoder_model", input_ids=source, attention_mask=mask)["last_hidden_state"], mask

    def logits(self, source, target, pieces=None):
        """Return the logits of all positions; after the first of `pieces`, numbers of positions, with the cache."""
        memory, mask = self.encode(source)
        first, *rest = target.split(pieces or target.size(1), dim=1)
        given = {"encoder_hidden_states": memory, "encoder_attention_mask": mask}
        found = self.run("decoder_model", input_ids=first, **given)
        logits, past = [found.pop("logits")], {}
        for piece in rest:
            past |= {name.replace("present", "past_key_values"): value for name, value in found.items()}
            found = self.run("decoder_with_past_model", input_ids=piece, encoder_attention_mask=mask, **past)
            logits.append(found.pop("logits"))
        return torch.cat(logits, dim=1)


@pytest.mark.usefixtures("inference")
@pytest.mark.parametrize("settings", OPTIONS)
def test_every_option_gives_the_logits_of_the_model(make_model, make_batch, settings):
    model = make_model(**settings)
    source, target = make_batch(model.config)  # padded
    files = Files(model)
    memory, mask = model.encode(source)
    assert_close(files.encode(source)[0][mask], memory[mask], atol=2e-5, rtol=1e-5)
    expected = model(source, target)
    assert expected.std() > 0.1
    for pieces in (None, 1, [2, 1, 3, 1]):
        assert_close(files.logits(source, target, pieces), expected, atol=5e-5, rtol=1e-5)


def test_every_option_of_a_model_is_among_these():
    sizes = {"vocab_size", "d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers"}
    not_of_a_pass = {"dropout", "attention_dropout", "feed_forward_dropout", "num_placeholders"}
    assert {name for settings in OPTIONS for name in settings} == set(ModelConfig.model_fields) - sizes - not_of_a_pass


@pytest.mark.usefixtures("inference")
@pytest.mark.parametrize("positions", ["sinusoidal", "sinusoidal_t2t", "rotary", "relative"])
def test_positions_that_are_computed_have_no_end(make_model, positions):
    model = make_model(positions=positions, num_heads=1, max_positions=8, num_encoder_layers=1, num_decoder_layers=1)
    source, target = torch.randint(3, 37, (1, 700)), torch.randint(3, 37, (1, 600))
    assert_close(Files(model).logits(source, target, [599, 1]), model(source, target), atol=5e-5, rtol=1e-5)


@pytest.mark.usefixtures("inference")
def test_learned_positions_end_in_an_error(make_model, make_batch):
    model = make_model(positions="learned", max_positions=10)
    source, target = make_batch(model.config)  # 11 tokens
    files = Files(model)
    with pytest.raises(Exception, match=r"ONNXRuntimeError.*10 by 11"):
        files.encode(source)
    target = torch.cat([target, target], dim=1)
    assert files.logits(source[:, :10], target[:, :10], 1).isfinite().all()
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        files.logits(source[:, :10], target[:, :11], 1)


@pytest.mark.usefixtures("inference")
def test_a_source_without_a_token_gives_numbers(make_model):
    source = torch.tensor([[3, 4, 2], [0, 0, 0]])
    assert Files(make_model()).logits(source, torch.tensor([[1, 5], [1, 5]])).isfinite().all()


def test_inputs_and_outputs_have_the_names_that_optimum_reads(make_model):
    files = Files(make_model(num_decoder_layers=2, d_k=6, d_v=10))
    found = {
        name: (
            {one.name: one.shape for one in session.get_inputs()},
            {one.name: one.shape for one in session.get_outputs()},
        )
        for name, session in files.sessions.items()
    }
    batch, source, target, past = (
        "batch_size",
        "encoder_sequence_length",
        "decoder_sequence_length",
        "past_decoder_sequence_length",
    )

    def cache(start, sides):
        return {
            f"{start}.{layer}.{side}.{kind}": [batch, 13, length, width]
            for layer in (0, 1)
            for side, length in sides.items()
            for kind, width in (("key", 6), ("value", 10))
        }

    mask = {"encoder_attention_mask": [batch, source]}
    assert found["encoder_model"] == (
        {"input_ids": [batch, source], "attention_mask": [batch, source]},
        {"last_hidden_state": [batch, source, 26]},
    )
    assert found["decoder_model"] == (
        {"input_ids": [batch, target], **mask, "encoder_hidden_states": [batch, source, 26]},
        {"logits": [batch, target, 37], **cache("present", {"decoder": target, "encoder": source})},
    )
    assert found["decoder_with_past_model"] == (
        {"input_ids": [batch, target], **mask, **cache("past_key_values", {"decoder": past, "encoder": source})},
        {"logits": [batch, target, 37], **cache("present", {"decoder": f"{past} + {target}"})},
    )
    # Optimum gives its cache by the order of the names, layer by layer.
    names = [name for name in found["decoder_with_past_model"][0] if name.startswith("past_key_values")]
    assert names == list(cache("past_key_values", {"decoder": past, "encoder": source}))


@pytest.mark.parametrize(("tying", "matrices"), [("three-way", 1), ("none", 2)])
def test_shared_matrix_is_stored_once_in_an_onnx_file(make_model, tying, matrices):
    graph = decoder_graph(make_model(tying=tying), with_past=True).graph
    assert sum(list(weight.dims) == [37, 26] for weight in graph.initializer) == matrices


@pytest.mark.usefixtures("inference")
@pytest.mark.parametrize(
    "settings", [{"norm": "pre"}, {"norm": "pre", "gated": True, "tying": "none", "positions": "rotary", "d_k": 4}]
)
def test_8_bit_integers_are_near_and_no_row_changes_another(make_model, make_batch, settings):
    model = make_model(**settings)
    source, target = make_batch(model.config)
    files = Files(model, rounded=True)
    expected, found = model(source, target), files.logits(source, target)
    assert 1e-4 < (found - expected).square().mean() / expected.var() < 0.01
    assert_close(files.logits(source, target, 1), found, atol=1e-5, rtol=1e-5)
    alone = files.logits(source[1:2, :5], target[1:2])
    assert_close(alone, found[1:2], atol=1e-5, rtol=1e-5)
