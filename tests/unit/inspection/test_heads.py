"""The numbers of a head are what the model used: equation 1 in plain NumPy computes its output from them."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from model_kinds import KINDS

from clearhead.errors import DataError
from clearhead.inspection.explain import explain
from clearhead.inspection.heads import _watching, attentions

TEXT, TARGET = "Ein kleiner Hund rennt.", "A small dog."


def softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def turned(x):
    """Turn pairs of components by position times frequency (Su et al. 2021), as complex numbers."""
    width = x.shape[1]
    angles = np.arange(len(x))[:, None] * 10_000.0 ** (-np.arange(0, width, 2) / width)
    pairs = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * angles)
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)


def keep(outputs, module, inputs, output):
    outputs.append(output[0].double().numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_head_numbers_reproduce_the_attention_output(make_translator, kind):
    translator = make_translator(**KINDS[kind])
    target = None if kind == "encoder" else TARGET
    explained = explain(translator, TEXT, target, search=False)
    model = translator.bundle.model
    for name, weights in explained.attentions.items():
        layer = len(weights) - 1
        module = attentions(model, name)[layer]
        outputs: list[np.ndarray] = []
        handle = module.out_proj.register_forward_hook(partial(keep, outputs))
        heads = [explained.head(name, layer, number) for number in range(module.num_heads)]
        handle.remove()
        total = 0.0
        for head in heads:
            x, memory = head.inputs.astype(np.float64), head.memory.astype(np.float64)
            b_q, b_k, b_v = head.biases or (0.0, 0.0, 0.0)
            q, k, v = x @ head.w_q + b_q, memory @ head.w_k + b_k, memory @ head.w_v + b_v
            if kind == "rotary" and name != "cross":
                q, k = turned(q), turned(k)
            scores = q @ k.T * (1.0 if kind == "relative" else 1 / np.sqrt(q.shape[1]))
            if kind == "relative" and name != "cross":
                assert np.abs(head.position_scores).max() > 0
                scores = scores + head.position_scores
            if name == "decoder":
                scores[np.triu_indices(len(x), 1)] = -np.inf
            expected = softmax(scores)
            np.testing.assert_allclose(head.queries, q, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(head.scores, scores, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(head.weights, expected, atol=1e-5)
            np.testing.assert_array_equal(head.weights, weights[layer, head.head])
            np.testing.assert_allclose(head.outputs, expected @ v, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(head.weighted_values.sum(axis=1), head.outputs, atol=1e-5)
            total = total + head.contributions
        bias = 0.0 if module.out_proj.bias is None else module.out_proj.bias.detach().numpy()
        np.testing.assert_allclose(total + bias, outputs[0], rtol=1e-4, atol=1e-4)


def test_all_heads_at_once_are_the_same(make_translator):
    explained = explain(make_translator(positions="rotary"), TEXT, TARGET, search=False)
    for name in explained.attentions:
        found, head = explained.projections(name)[0], explained.head(name, 0, 3)
        for part in ("queries", "keys", "values"):
            np.testing.assert_array_equal(getattr(found, part)[3], getattr(head, part))


def test_heads_and_sides_that_are_not_there_are_refused(make_translator):
    explained = explain(make_translator(), TEXT, TARGET, search=False)
    with pytest.raises(DataError, match="no head 11 in layer 0 of 'cross': it has 1 layers with 11 heads"):
        explained.head("cross", 0, 11)
    with pytest.raises(DataError, match="no attention 'middle'; it has encoder, decoder, cross"):
        explained.head("middle", 0, 0)
    alone = explain(make_translator(**KINDS["encoder"]), TEXT)
    with pytest.raises(DataError, match="no 'decoder'; it has encoder"):
        alone.residual("decoder")


def test_head_leaves_no_forward_hooks_on_the_model(make_translator):
    translator = make_translator()
    explain(translator, TEXT, TARGET, search=False).head("cross", 0, 0)
    assert not any(module._forward_hooks for module in translator.bundle.model.modules())


def test_the_residual_stream_is_what_each_layer_reads_and_the_last_one_writes(make_translator):
    translator = make_translator(norm="post")
    explained = explain(translator, TEXT, TARGET, search=False)
    stream = explained.residual("encoder")
    assert stream.shape == (3, len(explained.source_tokens), 22)
    np.testing.assert_array_equal(explained.head("encoder", 1, 0).inputs, stream[1])  # post-norm: what is read
    np.testing.assert_array_equal(explained.head("cross", 0, 0).memory, stream[-1])
    np.testing.assert_allclose(explained.norms["encoder"], np.sqrt((stream**2).sum(axis=-1)), rtol=1e-5)
    with torch.inference_mode():
        ids = translator.bundle.tokenizer.encode_sources([TEXT])
        memory, _ = translator.bundle.model.encode(torch.tensor(ids))
    np.testing.assert_allclose(stream[-1], memory[0].numpy(), atol=1e-5)


def test_a_model_can_be_copied_to_another_process_while_another_thread_looks_inside():
    layer = torch.nn.Linear(3, 5)
    inputs = torch.ones(2, 3)
    with _watching([layer]) as seen:
        copied = pickle.loads(pickle.dumps(layer))
        torch.testing.assert_close(copied(inputs), layer(inputs), rtol=0, atol=0)
        assert set(seen) == {layer}
    assert not layer._forward_hooks
