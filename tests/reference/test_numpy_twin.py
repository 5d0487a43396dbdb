"""The model gives the numbers of the slow NumPy twin, padding or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy_twin import NumpyTransformer, positional_encoding

# vocab_size, d_model, num_heads, d_ff, encoder layers, decoder layers, pad_id; source and target lengths
SHAPES = {
    "wide heads": ({"vocab_size": 37, "d_model": 22, "num_heads": 2, "d_ff": 19}, (3, 2), 0, (13, 5, 1), (4, 7, 1)),
    "narrow heads": ({"vocab_size": 29, "d_model": 26, "num_heads": 13, "d_ff": 7}, (1, 3), 0, (3, 11), (5, 2)),
    "one head": (
        {"vocab_size": 23, "d_model": 14, "num_heads": 1, "d_ff": 31},
        (2, 1),
        0,
        (2, 7, 3, 5, 7),
        (3,) * 4 + (1,),
    ),
    "padding is not 0": ({"vocab_size": 41, "d_model": 6, "num_heads": 3, "d_ff": 13}, (2, 5), 11, (7, 2), (3, 5)),
}


def build(make_model, make_batch, shape, norm, dtype):
    sizes, (encoder_layers, decoder_layers), pad_id, source_lengths, target_lengths = SHAPES[shape]
    layers = {"num_encoder_layers": encoder_layers, "num_decoder_layers": decoder_layers}
    model = make_model(**sizes, **layers, pad_id=pad_id, norm=norm).to(dtype)
    twin = NumpyTransformer(
        {name: weight.numpy() for name, weight in model.state_dict().items()},
        **layers,
        num_heads=sizes["num_heads"],
        norm=norm,
        pad_id=pad_id,
        position_dtype=np.float32,  # the model keeps its table in float32
    )
    return model, twin, *make_batch(model.config, source_lengths, target_lengths)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=["f64", "f32"])
def test_logits_equal_the_twin_at_every_position(make_model, make_batch, shape, norm, dtype, tolerance):
    model, twin, source, target = build(make_model, make_batch, shape, norm, dtype)
    with torch.no_grad():
        logits = model(source, target).double().numpy()
    expected = np.stack([twin.logits(s, t) for s, t in zip(source.tolist(), target.tolist(), strict=True)])
    assert logits.shape == expected.shape == (*target.shape, model.config.vocab_size)
    assert np.abs(logits - expected).max() <= tolerance * np.abs(expected).max()
    assert twin.read == set(model.state_dict())  # no weight is left unused, on either side


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_padded_batch_equals_the_twin_reading_each_sentence_alone(make_model, make_batch, norm):
    model, twin, source, target = build(make_model, make_batch, "wide heads", norm, torch.float64)
    with torch.no_grad():
        logits = model(source, target).numpy()
    for row, (source_ids, target_ids) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        source_ids = [token for token in source_ids if token != 0]
        target_ids = [token for token in target_ids if token != 0]
        expected = twin.logits(source_ids, target_ids)
        np.testing.assert_allclose(logits[row, : len(target_ids)], expected, rtol=1e-10, atol=1e-10)


def test_the_twin_tells_post_from_pre_and_notices_a_changed_weight(make_model, make_batch):
    model, twin, source, target = build(make_model, make_batch, "wide heads", "post", torch.float64)
    source_ids, target_ids = source[0].tolist(), target[1].tolist()
    before = twin.logits(source_ids, target_ids)
    for name in sorted(twin.weights):
        twin.weights[name] = -twin.weights[name]
        assert np.abs(twin.logits(source_ids, target_ids) - before).max() > 1e-4, name
        twin.weights[name] = -twin.weights[name]
    pre = make_model(norm="pre")
    assert {"encoder.final_norm.weight", "decoder.final_norm.bias"} <= set(pre.state_dict())
    assert not [name for name in model.state_dict() if "final_norm" in name]


def test_positional_encoding_of_a_hand_worked_case():
    # d_model 4: angles 3 / 10000^0 and 3 / 10000^(1/2)
    np.testing.assert_allclose(
        positional_encoding(3, 4), [0.1411200, -0.9899925, 0.0299955, 0.9995500], rtol=0, atol=1e-7
    )
