"""Our own models give the same logits in Hugging Face transformers, written to disk and loaded by their library."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

from clearhead.files.tensors import model_tensors, write_weights
from clearhead.interop.huggingface.state import export_state
from model_forms import T5_FORM

FEW_BUCKETS = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 7}
T5 = {**T5_FORM, **FEW_BUCKETS, "num_heads": 5, "d_k": 3, "d_v": 3}
POST_NORM_FORMS = [
    {},  # the paper
    {"tying": "decoder", "source_vocab_size": 41, "output_bias": True},
    {"tying": "none", "feed_forward_bias": False, "embedding_scale": False},
]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *(("marian", settings) for settings in POST_NORM_FORMS),
        ("pegasus", {"norm": "pre"}),  # our presets `tiny` and `small`
        ("m2m_100", {"norm": "pre", "positions": "sinusoidal_t2t", "first_position": 1}),
        ("bart", {"positions": "learned", "embedding_norm": True}),
        ("t5", {**T5, "output_scale": True}),
        ("t5", {**T5, "gated": True, "activation": "gelu_tanh", "tying": "embeddings"}),
        ("t5", T5),  # tied and not divided
        ("t5", {**T5, "tying": "embeddings", "output_scale": True}),
        ("mt5", {**T5, "gated": True, "activation": "silu", "tying": "embeddings"}),
        (
            "encoder-decoder",
            {"positions": "learned", "embedding_norm": True, "embedding_scale": False, "tying": "decoder"},
        ),
    ],
)
def test_our_model_gives_the_same_logits_in_their_library(
    make_model, make_batch, tmp_path, record_property, kind, settings
):
    ours = make_model(max_positions=31, **settings)
    fields, tensors = export_state(kind, ours.config, model_tensors(ours))
    (tmp_path / "config.json").write_text(json.dumps(fields))
    write_weights(tmp_path / "model.safetensors", tensors, {"format": "pt"})
    model_class = getattr(transformers, fields["architectures"][0])
    theirs = model_class.from_pretrained(tmp_path, attn_implementation="eager").eval()

    source, target = make_batch(ours.config)
    seen = target != ours.config.pad_id
    with torch.no_grad():
        expected = ours(source, target)[seen]
        mask = (source != ours.config.pad_id).long()
        actual = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits[seen]
    record_property("largest difference", (actual - expected).abs().max().item())
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=1e-5)
