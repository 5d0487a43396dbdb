"""The programs of the concepts print what NumPy computes in float64, and the table of the concepts is right."""

from __future__ import annotations

import math
import re
import runpy
from collections import Counter
from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import nn

import clearhead
from clearhead.decoding.batched_sampling import seed_of
from clearhead.errors import ClearheadError
from clearhead.interop.huggingface.families import bert, encoder_decoder, gpt2, t5
from clearhead.paper import concepts
from clearhead.paper.concepts import CONCEPTS, Concept, concept_part, find
from clearhead.paper.errata import ERRATA
from clearhead.runtime.installation import pip_install
from every_run import slow

NUMBER = re.compile(r"(?<![\w<.-])-?\d+(?:,\d{3})*(?:\.(\d+))?(?:e([-+]\d+))?(%)?")
"""A number that is not part of a name such as W_1, A<1> or T5."""


@cache
def run(name):
    """Return what a program prints, and its picture."""
    part = concept_part(find(name))
    assert part.failures == []
    return part.data["printed"], part.figures[name]


def agree(text, *expected, digits=None):
    """Compare every number of a text, in its order; `digits` are those to which shorter ones were rounded."""
    numbers = list(NUMBER.finditer(text))
    values = np.concatenate([np.ravel(one).astype(float) for one in expected])
    assert len(numbers) == len(values), text
    for number, value in zip(numbers, values, strict=True):
        fraction, exponent, percent = number.groups()
        printed = float(number[0].replace(",", "").rstrip("%")) / (100 if percent else 1)
        if exponent:
            near = {float(f"{value * slack:.{len(fraction or '')}e}") for slack in (1 - 1e-4, 1, 1 + 1e-4)}
            assert printed in near, (text, number[0], value)
            continue
        unit = 0.01 if percent else 10.0 ** -(digits or len(fraction)) if fraction else 0.0
        assert abs(printed - value) <= unit / 2 + 1e-6 + 2e-7 * abs(value), (text, number[0], value)


def drawn(tensor):
    return tensor.detach().double().numpy()


def linear(columns, rows):
    """Draw a matrix as PyTorch draws the weights of a layer without bias."""
    return drawn(nn.Linear(columns, rows, bias=False).weight)


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention(q, k, v, mask=True):
    weights = softmax(np.where(mask, q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]), -np.inf))
    return weights @ v, weights


def attention_gradients(gradient, q, k, v, weights):
    """Return the gradients of queries, keys and values for that of the output."""
    of_weights = gradient @ v.swapaxes(-1, -2)
    of_scores = weights * (of_weights - (of_weights * weights).sum(axis=-1, keepdims=True)) / math.sqrt(q.shape[-1])
    return of_scores @ k, of_scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ gradient


def multi_head(x, weights, heads):
    """Return self-attention of x [T, D], and a function from the gradient of the output to that of x."""
    w_q, w_k, w_v, w_o = weights

    def split(rows):
        return rows.reshape(len(rows), heads, -1).swapaxes(0, 1)

    def join(rows):
        return rows.swapaxes(0, 1).reshape(len(x), -1)

    q, k, v = (split(x @ w.T) for w in (w_q, w_k, w_v))
    output, shares = attention(q, k, v)

    def back(gradient):
        gradients = attention_gradients(split(gradient @ w_o), q, k, v, shares)
        return sum(join(one) @ w for one, w in zip(gradients, (w_q, w_k, w_v), strict=True))

    return join(output) @ w_o.T, back


def sinusoids(length, width):
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, width)


def test_one_attention_layer():
    torch.manual_seed(0)
    x, _, others = (drawn(torch.rand(16, 32)) for _ in range(3))
    expected = []
    for scores in (x @ x.T * 32**2, x @ x.T / math.sqrt(32)):
        weights = softmax(scores)
        entropy = -(weights * np.log(weights, where=weights > 0, out=np.zeros_like(weights))).sum(axis=-1).mean()
        expected += [16, 32, 1, weights.max(axis=-1).mean(), entropy, math.log(16), 0]  # 0: it ignores the queries
    expected[-1] = abs(attention(others, x, x)[0] - attention(x, x, x)[0]).max()
    agree(run("one-attention-layer")[0], expected)


def test_soft_dictionary():
    text, picture = run("soft-dictionary")
    values, scores, never = np.array([10.0, 5.0, 2.0]), np.array([0.6, 0.4, 0.0]), math.log(1e-9)
    expected = [[10, 5, 2, 10], [1, 10, 0, 5, 0, 2, 10], [0.6, 10, 0.4, 5, 0, 2, 8]]
    expected += [[1, 0, never, never, 1, 0, 0, 10], [1, math.log(0.6), math.log(0.4), never, 0.6, 0.4, 0, 8], scores]
    for factor in (0, 1, 10, 100):
        shares = softmax(factor * scores)
        expected.append([factor, *shares, shares @ values])
    sigmoid = 1 / (1 + np.exp(-scores))
    agree(text, *expected, [*sigmoid, sigmoid.sum(), sigmoid @ values], digits=3)
    assert sigmoid @ values > max(values)
    assert (picture.x_names, picture.y_names) == (["apple: 10", "banana: 5", "chair: 2"], ["apple: 10", "fruit: 8"])
    assert "0.6 0.4 0.0 were the scores themselves:\nscores x" in text


def test_self_attention():
    text, figure = run("self-attention")
    torch.manual_seed(2)
    x = drawn(torch.randn(5, 4))[[0, 1, 2, 3, 0, 4]]
    q, k, v, _ = (x @ linear(4, 4).T for _ in range(4))
    a, placed = (attention(rows, rows, rows)[0] for rows in (x, x + sinusoids(6, 4)))
    expected = [[1, 6, 4], x, [1, 6, 4], a, [x[1] @ x[5]] * 2]
    for rows in (q, k, v):
        expected += [[1, 6, 4], rows]
    agree(text, *expected, [1, q[1, :2] @ k[5, :2], q[5, :2] @ k[1, :2], 0, abs(placed[0] - placed[4]).max()])
    assert (a[0] == a[4]).all()
    for half, head in enumerate(figure.maps[2:]):
        own = slice(2 * half, 2 * half + 2)
        np.testing.assert_allclose(head.values, attention(q[:, own], k[:, own], v)[1], atol=1e-5)
    assert re.findall(r"^  (\w+)", text, re.M) == ["the", "cat", "jumped", "over", "the", "fence"] * 5


def test_several_heads():
    text, picture = run("several-heads")
    # With weights w and 1 - w the best factor for the colour is w / (w^2 + (1 - w)^2); what remains is this share.
    missed = {w: (1 - w) ** 2 / (w**2 + (1 - w) ** 2) for w in (0, 0.25, 0.5, 0.75, 1)}
    agree(text, *[[w, lost, 1 - lost, 1] for w, lost in missed.items()], [0, 0, 0], digits=2)
    (panel,) = picture.panels
    assert [one.name for one in panel.series] == ["colour of a", "number of b", "both", "both, two heads"]
    np.testing.assert_allclose([panel.series[0].y[i] for i in range(0, 21, 5)], [*missed.values()], atol=1e-5)


def test_text_to_numbers():
    text, figure = run("text-to-numbers")
    lines = text.splitlines()
    assert lines[0].endswith(" the transformer reads all the words of sentences")
    assert lines[1].endswith(" the trans ##former reads all the words of sentence ##s")
    ids = [7, 8, 1, 5, 3, 7, 9, 4, 6, 2]  # in the order of the alphabet, after [UNK]
    agree(lines[2], ids)
    torch.manual_seed(0)
    table = drawn(torch.empty(10, 512).normal_(std=512**-0.5))
    embedded, positions = table[ids], sinusoids(10, 512)
    x = embedded * math.sqrt(512) + positions
    output, weights = attention(x, x, x)
    steps = {"embedding": embedded, "x sqrt(512)": embedded * math.sqrt(512), "PE": positions, "x = sum": x}
    steps |= {"keys = x^T": x.T, "Q K^T": x @ x.T, "/ sqrt(512)": x @ x.T / math.sqrt(512)}
    steps |= {"softmax": weights, "weights V": output}
    for line, (name, matrix) in zip(lines[3:-1], steps.items(), strict=True):
        assert line[:13].strip() == name
        agree(line[13:], matrix.shape, 2, matrix[1, :4], np.linalg.norm(matrix[1]))
    agree(lines[-1], weights[[0, 0, 5, 5], [0, 5, 0, 5]])
    others = ~np.isin(np.arange(10), (0, 5))
    assert weights.diagonal()[others].min() > 0.995  # all but the two 'the' copy themselves
    assert [shown.title.split(": ")[0] for shown in figure.maps] == [*steps]
    for shown in figure.maps:
        name, shape = shown.title.split(": ")
        assert shape == " x ".join(map(str, steps[name].shape))
        np.testing.assert_allclose(shown.values, steps[name], atol=1e-4)


def test_positions():
    rates, expected = 10_000 ** (-np.arange(0, 16, 2) / 16), []
    for i, rate in enumerate(rates):
        waves = [wave(pos * rate) for pos in range(4) for wave in (math.sin, math.cos)]
        expected.append([2 * i, 2 * i + 1, 2 * math.pi / rate, 0, 3, *waves])
    table = sinusoids(48, 16)
    waves = table[:, 1::2] + 1j * table[:, ::2]  # cosine and sine as one number, which a shift turns
    for k in (1, 5, 20):
        assert abs(waves[:-k] * np.exp(1j * k * rates) - waves[k:]).max() < 1e-5
        expected.append([k, 48 - k, 1e-5])
    # sin a sin b + cos a cos b = cos(a - b)
    expected += [[distance, np.cos(distance * rates).sum()] for distance in (0, 1, 3, 6, 20)]
    torch.manual_seed(0)
    layer, words = [linear(16, 16) for _ in range(4)], drawn(torch.randn(3, 16))
    for added in (np.zeros((3, 16)), table[:3]):
        one, other = (multi_head(rows + added, layer, heads=4)[0] for rows in (words, words[::-1]))
        expected.append([abs(one[::-1] - other).max()])
    agree(run("positions")[0], *expected)


def test_masks():
    text, _ = run("masks")
    torch.manual_seed(1)
    x, y, past = drawn(torch.randn(5, 8)), drawn(torch.randn(4, 8)), np.tri(4, dtype=bool)
    padded = attention(x, x, x, np.array([True, True, True, False, False]))[1]
    causal = attention(y, y, y, past)[1]
    zeroed = softmax(np.where(past, y @ y.T / math.sqrt(8), 0.0))
    offset = attention(*[y[:3]] * 3, past[:3, :3])[1]
    expected = [[0, zeroed[~past].sum(), 1, 2, 3], padded]
    for weights in (causal, zeroed):
        expected += [[1, 2, 3, 4], np.c_[1:5, weights]]
    agree(text, *expected, offset)
    reads = [("<s>", "le"), ("<s> le", "chat"), ("<s> le chat", "dort")]
    assert re.findall(r"reads (.*?) +and must write (\w+)", text) == reads
    table = text.splitlines()[-4:]
    assert [line[:7].strip() for line in table] == ["", "le", "chat", "dort"]
    assert table[0].split() == ["<s>", "le", "chat"]


def test_three_uses_of_attention():
    text, picture = run("three-uses-of-attention")
    assert [line.split() for line in text.splitlines()[1:-1]] == [
        ["encoder", "self-attention", "source", "source", "source", "[4,", "4]"],
        ["decoder", "self-attention", "target", "target", "target", "[3,", "3]"],
        ["cross-attention", "target", "source", "source", "[3,", "4]"],
    ]
    assert "W^K and W^V read the encoder's output, and W^Q reads the decoder's states" in text.splitlines()[-1]
    torch.manual_seed(1)
    sizes = {"vocab_size": 9, "d_model": 16, "d_ff": 32, "num_heads": 1, "num_encoder_layers": 1}
    model = clearhead.Transformer(clearhead.ModelConfig(**sizes, num_decoder_layers=1))
    matrix = {name: drawn(weight) for name, weight in model.named_parameters()}

    def attend(name, x, read, mask=True):
        w_q, w_k, w_v, w_o = (matrix[f"{name}.{part}_proj.weight"] for part in ("q", "k", "v", "out"))
        output, weights = attention(x @ w_q.T, read @ w_k.T, read @ w_v.T, mask)
        return layer_norm(x + output @ w_o.T)[0], weights

    table = matrix["source_embedding.weight"] * 4  # sqrt(16)
    source, target = (table[ids] + sinusoids(len(ids), 16) for ids in ([4, 5, 6, 2], [1, 7, 8]))
    read, encoder = attend("encoder.layers.0.self_attn", source, source)
    parts = (f"encoder.layers.0.feed_forward.{part}" for part in ("up_proj", "down_proj"))
    memory, _ = layer_norm(
        read + feed_forward(read, [matrix[f"{part}.{kind}"] for part in parts for kind in ("weight", "bias")])[0]
    )
    written, decoder = attend("decoder.layers.0.self_attn", target, target, np.tri(3, dtype=bool))
    _, cross = attend("decoder.layers.0.cross_attn", written, memory)
    for shown, weights in zip(picture.maps, (encoder, decoder, cross), strict=True):
        np.testing.assert_allclose(shown.values, weights, atol=1e-5)


def sigmoid(z):
    return (1 + np.tanh(z / 2)) / 2


def lstm(given, recalled, _, cell):
    i, f, g, o = np.split(given + recalled, 4, axis=-1)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


def gru(given, recalled, state, _):
    (r, z, n), (r_state, z_state, n_state) = np.split(given, 3, axis=-1), np.split(recalled, 3, axis=-1)
    update = sigmoid(z + z_state)
    return (1 - update) * np.tanh(n + sigmoid(r + r_state) * n_state) + update * state, None


CELLS = {"RNN": lambda given, recalled, *_: (np.tanh(given + recalled), None), "GRU": gru, "LSTM": lstm}
CELLS["LSTM, open"] = lstm


def length_of_gradient(kind, distance, step=1e-30):
    """Return the mean of ten lengths: the imaginary part of f(x + i step) / step is f'(x), however small it is."""
    lengths = []
    for seed in range(10):
        torch.manual_seed(seed)
        if kind == "attention":
            layer = [linear(32, 32) for _ in range(4)]
        else:
            layer = [drawn(weight) for weight in getattr(nn, kind.removesuffix(", open"))(32, 32).parameters()]
            if kind == "LSTM, open":
                layer[2][32:64] = 5
        output, embedding = nn.Linear(32, 8), drawn(torch.randn(8, 32))
        symbols = torch.randint(8, (distance + 1,)).numpy()
        x = embedding[symbols] + sinusoids(distance + 1, 32)
        first = x[0] + 1j * step * np.eye(32)  # a row for each number of the first symbol
        if kind == "attention":
            w_q, w_k, w_v, w_o = layer
            rows = np.stack([first, *(np.tile(one, (32, 1)) for one in x[1:])], axis=1)  # (32, T, D)
            projected = rows[:, -1:] @ w_q.T, rows @ w_k.T, rows @ w_v.T
            heads, _ = attention(*(one.reshape(32, -1, 4, 8).swapaxes(1, 2) for one in projected))
            state = heads.reshape(32, 32) @ w_o.T
        else:
            w_x, w_h, b_x, b_h = layer
            state = cell = np.zeros((32, 32))
            for rows in (first, *x[1:]):
                recalled = np.einsum("nd,gd->ng", state, w_h) + b_h  # `@` would wait for threads at every step
                state, cell = CELLS[kind](rows @ w_x.T + b_x, recalled, state, cell)
        logits = state @ drawn(output.weight).T + drawn(output.bias)
        loss = np.log(np.exp(logits).sum(axis=-1)) - logits[:, symbols[0]]
        lengths.append(np.linalg.norm(loss.imag / step))
    return np.mean(lengths)


@pytest.mark.parametrize("distance", [slow(1), slow(2), 5, slow(10), slow(20), slow(50), slow(100), slow(200)])
def test_why_not_recurrent(distance):
    header, *lines = run("why-not-recurrent")[0].splitlines()
    kinds = [*CELLS, "attention"]
    assert re.split("  +", header)[1:6] == kinds
    assert [int(line.split()[0]) for line in lines] == [1, 2, 5, 10, 20, 50, 100, 200]
    (line,) = (line for line in lines if line.split()[0] == str(distance))
    agree(line, distance, [length_of_gradient(kind, distance) for kind in kinds], distance + 1, 1)


def test_the_steps_and_gradients_over_a_distance_are_drawn():
    gradients, steps = run("why-not-recurrent")[1].panels
    assert {one.name: list(one.y) for one in steps.series} == {
        "recurrent": [2, 3, 6, 11, 21, 51, 101, 201],  # a step for each symbol
        "attention": [1] * 8,
    }
    (shared,) = (one.y for one in gradients.series if one.name == "attention")
    assert 0.5 < shared[-1] * 200 / (shared[-3] * 50) < 2  # like 1 / distance
    assert f"{shared[-1]:.3f}" == "0.001"


def test_widths():
    text, picture = run("widths")
    expected = [[512, 64, 8, 2048, 4, 512], [768, 64, 12, 3072, 4, 768], [1024, 64, 16, 4096, 4, 1024]]
    expected += [[768, 768, 1, 768, 64], [1, 64, 768, 64, 64], [1, 4, 768, 768, 3072, 3072, 768]]
    torch.manual_seed(1)
    w_q, w_k, w_v, _ = (linear(768, 768)[:64] for _ in range(4))  # head 1
    x, up = drawn(torch.randn(4, 768)), nn.Linear(768, 3072)
    q, k, v = x @ w_q.T, x @ w_k.T, x @ w_v.T
    _, weights = attention(q, k, v)
    felt = []
    for word in range(4):
        of_q, of_k, of_v = attention_gradients(np.eye(4)[:, [word]] * np.ones(64), q, k, v, weights)
        felt.append(((of_q @ w_q + of_k @ w_k + of_v @ w_v) != 0).sum(axis=-1))
    assert np.array(felt).tolist() == [[768] * 4] * 4
    whole, part = (np.array(one.values) for one in picture.maps)
    assert (whole == 1).all()
    assert (part == (np.arange(768) < 64)).all()
    assert whole.shape == part.shape == (4, 768)
    hidden = x @ drawn(up.weight).T + drawn(up.bias)
    assert hidden.min() > -5  # GELU is 0 where its erf is -1, below -5
    agree(text, *expected, [(hidden <= 0).mean(), 0, 0, 0])


def layer_norm(x):
    scale = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    y = (x - x.mean(axis=-1, keepdims=True)) / scale
    return y, lambda g: (g - g.mean(axis=-1, keepdims=True) - y * (g * y).mean(axis=-1, keepdims=True)) / scale


def feed_forward(x, weights):
    w_1, b_1, w_2, b_2 = weights
    hidden = x @ w_1.T + b_1
    return np.maximum(hidden, 0) @ w_2.T + b_2, lambda g: (g @ w_2 * (hidden > 0)) @ w_1


def test_add_and_norm():
    expected = []
    for has_sum, has_norm in ((True, True), (False, True), (False, False)):
        torch.manual_seed(1)
        sublayers = []
        for _ in range(12):
            sublayers.append(partial(multi_head, weights=[linear(64, 64) for _ in range(4)], heads=4))
            networks = nn.Linear(64, 256), nn.Linear(256, 64)
            sublayers.append(partial(feed_forward, weights=[drawn(one) for at in networks for one in at.parameters()]))
        states, backs, gradients = [drawn(torch.randn(8, 64))], [], [drawn(torch.randn(8, 64))]
        for sublayer in sublayers:
            y, back = sublayer(states[-1])
            y, back_of_norm = layer_norm(states[-1] * has_sum + y) if has_norm else (y, lambda g: g)
            states.append(y)
            backs.append((back, back_of_norm))
        for back, back_of_norm in reversed(backs):
            gradient = back_of_norm(gradients[0])
            gradients.insert(0, gradient * has_sum + back(gradient))
        expected += [12, 8, 4, 1, *(np.linalg.norm(gradients[2 * i]) for i in (11, 7, 3, 0)), 1, 5, 9, 12]
        for i in (0, 4, 8, 12):
            units = states[2 * i] / np.linalg.norm(states[2 * i], axis=-1, keepdims=True)
            expected.append((units @ units.T)[~np.eye(8, dtype=bool)].mean())  # of two different words
    agree(run("add-and-norm")[0], expected)


def test_versions():
    text, _ = run("versions")
    agree(text, [1, 5, 32], [1, 5, 20], *[[1, 3, 20, 3, 6]] * 3)
    sees_all, sees_the_past = re.findall(r"depends on (\[.*\])", text)
    assert sees_all == "['xxxxx', 'xxxxx', 'xxxxx', 'xxxxx', 'xxxxx']"
    assert sees_the_past == "['x....', 'xx...', 'xxx..', 'xxxx.', 'xxxxx']"
    assert re.findall(r"\(([\w-]+|the paper)\)", text) == ["BERT", "GPT-2", "the paper", "T5", "BertGeneration"]


@pytest.mark.parametrize("name", ["BERT", "GPT", "T5", "BERT_GENERATION"])
def test_versions_are_built_as_their_models_are(name):
    models = pytest.importorskip("transformers")
    if name == "BERT_GENERATION":
        kind = models.BertGenerationConfig
        parts = kind(), kind(is_decoder=True, add_cross_attention=True)
        theirs = models.EncoderDecoderConfig.from_encoder_decoder_configs(*parts)
        theirs = encoder_decoder.config_from(theirs.to_dict())
    else:
        kind, family = {"BERT": ("Bert", bert), "GPT": ("GPT2", gpt2), "T5": ("T5", t5)}[name]
        theirs = family.config_from(getattr(models, f"{kind}Config")().to_dict())
    settings = runpy.run_path(str(find("versions").program))[name]
    left = {"activation", "gated", "attention_scale", "attention_bias", "feed_forward_bias", "output_bias", "norm"}
    left |= {"norm_kind", "output_scale", "positions", "embedding_scale", "embedding_norm"}
    ours = clearhead.ModelConfig(**settings)
    assert {field: getattr(ours, field) for field in left} == {field: getattr(theirs, field) for field in left}
    assert name == "BERT" or ours.tying == theirs.tying  # an encoder alone ties nothing


@pytest.mark.slow
def test_patches_and_frames():
    text, picture = run("patches-and-frames")
    shares = re.findall(r"^(\w+): the (.*) is named right for (\d+)% of 200 new ones", text, re.M)
    assert [(name, what) for name, what, _ in shares] == [("images", "bright corner"), ("sounds", "pitch")]
    assert all(90 < int(share) <= 100 for *_, share in shares)
    image = np.array(picture.maps[0].values)
    assert image[8:, :8].min() >= 1 > max(image[:8].max(), image[8:, 8:].max())  # lower left: 1 and more


def test_bert_generation():
    transformers = pytest.importorskip("transformers")
    first, second, *rows = run("bert-generation")[0].splitlines()
    target = "bonjour , mon chien est mignon"
    assert first.endswith(f"reads [CLS] {target} and must write {target} [SEP]")
    agree(second, [1, 7, 30522], [1, 8, 64, 1, 7, 64], [1, 4, 8, 8, 1, 4, 7, 7, 1, 4, 7, 8])
    torch.manual_seed(1)
    sizes = {"vocab_size": 30_522, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = transformers.BertGenerationConfig
    encoder = transformers.BertGenerationEncoder(config(**sizes))
    decoder = transformers.BertGenerationDecoder(config(**sizes, is_decoder=True, add_cross_attention=True))
    both = transformers.EncoderDecoderModel(encoder=encoder, decoder=decoder).eval()
    words = ["[PAD]", "[CLS]", "[SEP]", "hello", ",", "my", "dog", "is", "cute", *target.replace(", ", "").split()]
    read = [1, 9, 4, 10, 11, 12, 13]
    with torch.inference_mode():
        source = torch.tensor([[1, 3, 4, 5, 6, 7, 8, 2]])
        probs = softmax(drawn(both(input_ids=source, decoder_input_ids=torch.tensor([read])).logits[0]))
    for token, row, shares in zip(read, rows, probs, strict=True):
        best = int(shares.argmax())
        written = words[best] if best < len(words) else f"[unused{best - len(words)}]"
        assert re.fullmatch(rf"after {re.escape(words[token])} +logits .* {best} -> {re.escape(written)}  \(.*\)", row)
        agree(row.split()[-1], shares[best])


def test_logits_to_text():
    text, picture = run("logits-to-text")
    follows = runpy.run_path(str(find("logits-to-text").program))["NEXT_WORD"]
    words = ["<pad>", "<s>", "</s>", *list(follows)[1:]]
    table = np.array([[follows.get(last, {}).get(word, 0.0) for word in words] for last in words])
    assert list(picture.y_names) == [*follows]  # nothing follows </s>
    np.testing.assert_allclose(picture.values, [table[words.index(last), 2:] for last in follows], atol=1e-6)
    logits = np.log(table, where=table > 0, out=np.full_like(table, -1e4)) + 3
    expected = [logits[1, 3:5]]
    for temperature in (0.1, 1.0, 10.0):
        shares = softmax(logits[1] / temperature)
        expected.append([temperature, shares[3], shares[4]])
    sentences = {(): 1.0}
    for _ in range(3):  # all of three words, with their probabilities
        longer = [(one, each, p) for one, p in sentences.items() for each in follows[one[-1] if one else "<s>"].items()]
        sentences = {(*one, word): p * share for one, (word, share), p in longer}
    greedy, best = ("the", "dog", "barks"), max(sentences, key=sentences.get)
    for beam, sentence in ((1, greedy), (2, best)):
        shares = [follows[last][word] for last, word in zip(("<s>", *sentence), sentence, strict=False)]
        expected.append([beam, *shares, sentences[sentence]])
    assert re.findall(r"argmax (\w+)", text) == ["the"] * 3
    assert re.findall(r"beam .: ([\w ]+),", text) == [" ".join(greedy), " ".join(best)]
    for temperature, line in zip((0.01, 1.0, 3.0), text.splitlines()[6:], strict=True):
        shares = softmax(np.where(np.arange(11) < 2, -np.inf, logits) / temperature)  # never writes <pad> and <s>
        counts = Counter()
        for number in range(200):
            generator, at, sentence = torch.Generator().manual_seed(seed_of(1, number, [2])), 1, []
            while at != 2:
                at = int(np.searchsorted(shares[at].cumsum(), torch.rand(1, generator=generator).item(), side="right"))
                sentence.append(words[at])
            counts[" ".join(sentence[:-1])] += 1
        assert all(counts[sentence] == int(count) for sentence, count in re.findall(r"'([^']+)': (\d+)", line))
        expected.append([200, temperature, *sorted(counts.values())[:-4:-1], len(counts)])
    agree(text, *expected)


@pytest.mark.slow
def test_masked_word():
    pytest.importorskip("transformers")
    assert run("masked-word")[0].splitlines() == [
        "the [MASK] swims in the sea: fish",
        "the bird [MASK] in the tree: sings",
        "the horse runs in the [MASK]: field",
    ]


@pytest.mark.slow
def test_reverse_digits():
    text, _ = run("reverse-digits")
    share, strings = map(int, re.search(r"(\d+)% of (\d+) held-out", text).groups())
    assert 95 < share <= 100
    assert abs(strings - 3000 / 7) < 80  # four standard deviations
    assert "looked at, to write each digit: [6, 5, 4, 3, 2, 1]\n" in text


def test_what_attention_shows():
    text, picture = run("what-attention-shows")
    own, before = (softmax(36 / math.sqrt(8) * np.roll(np.eye(6), shift, axis=1)) for shift in (0, -1))
    uniform, off = np.full((6, 6), 1 / 6), np.zeros((6, 6))
    np.testing.assert_allclose([one.values for one in picture.maps], [own, before, uniform], atol=1e-6)
    assert own.max() == before.max() > uniform.max()
    titles = [f"head {head}; without it: {text}" for head, text in enumerate(("??????", "TEACH!", "teach!"), start=1)]
    assert [one.title for one in picture.maps] == titles
    assert all("".join(one.x_names) == "".join(one.y_names) == "teach!" for one in picture.maps)
    *lines, last = text.splitlines()
    assert last.startswith("head 2 has a map as sharp as head 1's, and writes nothing; head 3 has the dullest")
    changed = {"nothing changed": (own, uniform), "head 1 off": (off, uniform)}
    changed |= {"map of head 1 uniform": (uniform, uniform), "head 2 off": (own, uniform)}
    changed |= {"map of head 2 uniform": (own, uniform)}
    changed |= {"head 3 off": (own, off), "map of head 3 uniform": (own, uniform)}
    for line, (change, (letters, loud)) in zip(lines, changed.items(), strict=True):
        word = ["?" if np.ptp(row) == 0 else "teach!"[row.argmax()] for row in letters]
        is_loud = 6 * loud[:, 5] > 0.5  # it hears the exclamation mark
        written = "".join(one.upper() if up else one for one, up in zip(word, is_loud, strict=True))
        assert line == f"{change:<24}{written}"


@pytest.mark.parametrize("concept", CONCEPTS, ids=lambda concept: concept.name)
class TestConcept:
    def test_every_word_leads_to_it(self, concept: Concept):
        for words in (concept.name, concept.title, *concept.words):
            assert find(words) is find(f" {words.upper()} ") is find(words.replace(" ", "").replace("_", "")) is concept

    def test_its_errata_exist(self, concept: Concept):
        assert {*concept.errata} <= {erratum.number for erratum in ERRATA}
        assert len({*concept.errata}) == len(concept.errata)

    def test_its_program_is_short(self, concept: Concept):
        text = concept.program.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 60
        assert f"python examples/{concept.program.name}" in text


def test_every_erratum_is_about_a_concept():
    assert {number for concept in CONCEPTS for number in concept.errata} == {erratum.number for erratum in ERRATA}


def test_the_text_says_how_to_draw_the_picture():
    assert concept_part(find("masks")).text.endswith("\nThe picture: clearhead paper concepts masks -o DIR\n")


def test_no_words_have_two_concepts():
    words = Counter()
    for concept in CONCEPTS:
        words.update({phrase.casefold() for phrase in (concept.name, concept.title, *concept.words)})
    assert max(words.values()) == 1, words.most_common(3)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        *[(words, "one-attention-layer") for words in ("16x32", "Q K V = X", "SDPA picture", "Q=K=V=X")],
        *[("soft dictionary", "soft-dictionary"), ("masking", "masks"), ("positional encoding", "positions")],
        *[("motivation", "why-not-recurrent"), ("PAD", "masks"), ("A<1>..A<6>", "self-attention")],
        *[("Wq Wk Wv", "self-attention"), ("WordPiece", "text-to-numbers"), ("10 × 512", "text-to-numbers")],
        *[("N=6", "versions"), ("applications", "patches-and-frames"), ("versions", "versions")],
        *[("BERT base and large", "widths"), ("FFN", "widths"), ("add and norm", "add-and-norm")],
        *[("cross-attention", "three-uses-of-attention"), ("Bert Generation", "bert-generation")],
        *[("logits to token", "logits-to-text"), ("logits to tokens", "logits-to-text"), ("argmax", "logits-to-text")],
        *[(f"A<{t}>", "self-attention") for t in range(1, 7)],
        *[("Wo", "self-attention"), ("multi-head", "self-attention"), ("padding", "masks"), ("[PAD]", "masks")],
        *[("word pieces", "text-to-numbers"), ("embedding", "text-to-numbers"), ("residual", "add-and-norm")],
        *[("d_k", "widths"), ("GELU", "widths"), ("W_1", "widths"), ("d_model", "widths")],
    ],
)
def test_the_words_of_notes_lead_to_concepts(words, name):
    assert find(words).name == name


def test_every_program_has_a_concept():
    programs = {*concepts.EXAMPLES.glob("*.py")} - {concepts.EXAMPLES / "build_up.py"}  # docs/build-up.md is its page
    assert sorted(programs) == sorted(concept.program for concept in CONCEPTS)


@pytest.mark.parametrize(("words", "nearest"), [("soft dictonary", "did you mean soft-dictionary"), ("zzzz", None)])
def test_an_unknown_concept_names_the_nearest_and_lists_all(words, nearest):
    with pytest.raises(ClearheadError, match=f"there is no concept '{words}'") as caught:
        find(words)
    message, names = str(caught.value).split("\n")
    assert nearest in message if nearest else "did you mean" not in message
    assert names == "The concepts: " + ", ".join(concept.name for concept in CONCEPTS)


@pytest.fixture
def concept_of(monkeypatch, tmp_path):
    """Return a function from the text of a program to a concept that has it."""

    def make(program):
        monkeypatch.setattr(concepts, "EXAMPLES", tmp_path)
        (tmp_path / "two_words.py").write_text(program, encoding="utf-8")
        return Concept(name="two-words", title="Two words", words=["two"], about="", place="eq1.scores")

    return make


@pytest.mark.parametrize(
    ("assertion", "evidence"), [("1 == 2, 'not so'", "not so"), ("1 == 2", "an assertion of the program failed")]
)
def test_a_false_claim_of_a_program_is_a_failed_check(concept_of, assertion, evidence):
    part = concept_part(concept_of(f"def main():\n    print('before')\n    assert {assertion}\n"))
    assert part.failures == [f"what the program asserts: {evidence}"]
    assert part.data["printed"] == "before\n"
    assert part.figures == {}


def test_a_missing_package_is_one_clear_line(concept_of):
    with pytest.raises(ClearheadError) as caught:
        concept_part(concept_of("import no_such_package\n"))
    assert str(caught.value) == f"the concept two-words needs no_such_package: {pip_install('interop')}"


def test_a_program_runs_on_one_thread_and_leaves_threads_and_random_state_alone(concept_of, monkeypatch):
    threads: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[-1] if threads else 7)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    before = torch.get_rng_state()
    part = concept_part(
        concept_of("import torch\ndef main():\n    print(torch.get_num_threads(), torch.rand(1) < 2)\n")
    )
    assert part.data["printed"] == "1 tensor([True])\n"
    assert threads == [1, 7]
    assert torch.equal(torch.get_rng_state(), before)
