"""The 13 stages from a sentence to the next token, with the numbers of a run of our `Transformer`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.decoding.sampling import greedy_search
from clearhead.model.recorder import AttentionWeights, Recorder
from clearhead.paper import plain
from clearhead.paper.places import code, read_table
from clearhead.paper.plain import Matrix
from clearhead.paper.recording import Recording
from clearhead.paper.walk.model import CONFIG, EMBEDDING, VOCABULARY, WEIGHTS, small_model
from clearhead.paper.walk.steps import Stage, Step, Table, Walk


def walked(words: Sequence[str]) -> Walk:
    """Run the model on a sentence, and return every number."""
    model, tokens = small_model(), [*words, "</s>"]
    with Recording() as search, torch.no_grad():
        ids = [VOCABULARY.index(token) for token in tokens]
        [found] = greedy_search(model, [ids], max_lengths=[len(tokens) + 2])
    written = [VOCABULARY[token] for token in found.tokens]
    read = ["<s>", *written[:-1][:1]]
    with Recording() as run, torch.no_grad():
        source = torch.tensor([[VOCABULARY.index(token) for token in tokens]])
        target = torch.tensor([[VOCABULARY.index(token) for token in read]])
        recorder = Recorder(AttentionWeights())
        model.output_proj(model.states(target, *model.encode(source, recorder=recorder), recorder=recorder))
    return Walk(tokens, read, written[len(read) - 1], written, _stages(run, search, tokens, read))


def _stages(run: Recording, search: Recording, tokens: list[str], read: list[str]) -> list[Stage]:
    """Return the stages: 1 to 9 of the encoder, 10 to 12 of the decoder, and 13 from its last state to the token."""
    ids = Table("id", _rows(run.tensor(code("embedding.ids"), 0).T), tokens)
    numbers = Step(
        "id = place of the token in the vocabulary, from 0",
        ("embedding.ids",),
        (),
        (ids,),
        lambda: [[[float(VOCABULARY.index(token))] for token in tokens]],
    )
    embedded, *placed = _embedded(run, 0, tokens, "X")
    x = placed[-1].results[0]
    projected, scores, softmax, heads, joined, added, normed = _attention(run, 0, x, x, "N")
    network = _feed_forward(run, 1, normed.results[0], "memory")
    memory = network[-1].results[0]
    decoder_input = _embedded(run, 1, read, "Y")
    y = decoder_input[-1].results[0]
    self_attention = _attention(run, 1, y, y, "Y'")
    cross_attention = _attention(run, 2, self_attention[-1].results[0], memory, "Y''")
    decoder_network = _feed_forward(run, 4, cross_attention[-1].results[0], "Z")
    output = _output(run, search, decoder_network[-1].results[0])
    steps: list[list[Step]] = [
        [numbers],
        [embedded],
        placed,
        [projected],
        [scores],
        [softmax],
        [heads, joined],
        [added, normed],
        network,
        [*decoder_input, *self_attention],
        cross_attention,
        decoder_network,
        output,
    ]
    captions = read_table("walk/walk.toml")["stage"]
    return [Stage(**caption, steps=own) for caption, own in zip(captions, steps, strict=True)]


def _embedded(run: Recording, call: int, tokens: list[str], name: str) -> list[Step]:
    """Return the steps from ids to the input of a stack; `call` is 0 for the encoder and 1 for the decoder."""
    width = CONFIG.d_model
    embedded = Table(f"{name}0", _rows(run.tensor(code("embedding.scaled"), call)[0]), tokens)
    positions = Table("PE", _rows(run.tensor(code("positions.rows"), call)), tokens)
    return [
        Step(
            f"{name}0 = sqrt(d_model) E[id]",
            ("embedding.scaled",),
            (Table("E[id]", [EMBEDDING[token] for token in tokens], tokens),),
            (embedded,),
            lambda rows: [[[math.sqrt(width) * value for value in row] for row in rows]],
        ),
        Step(
            "PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))",
            ("positions.rows",),
            (Table("pos", [[float(place)] for place in range(len(tokens))], tokens),),
            (positions,),
            lambda rows: [
                [[plain.position_encoding(int(place), column, width) for column in range(width)] for [place] in rows]
            ],
        ),
        Step(
            f"{name} = {name}0 + PE",
            ("positions.added",),
            (embedded, positions),
            (Table(name, _rows(run.tensor(code("positions.added"), call)[0]), tokens),),
            lambda x, other: [_sum(x, other)],
        ),
    ]


def _attention(run: Recording, call: int, query: Table, memory: Table, name: str) -> list[Step]:
    """Return the steps of an attention with its residual connection; `call` counts the attentions of the model."""
    block = ("the encoder's self-attention", "the decoder's masked self-attention", "the decoder's cross-attention")[
        call
    ]
    weights = WEIGHTS[block]
    is_masked, is_self = call == 1, memory is query
    queries, keys = query.rows, memory.rows

    def heads(letter: str, name: str, rows: Sequence[str], columns: Sequence[str] = ()) -> tuple[Table, ...]:
        tensor = run.tensor(code(name), call)[0]  # (T, 4) with the heads side by side, or (2, T, columns)
        both = tensor.split(CONFIG.value_dim, dim=-1) if tensor.dim() == 2 else tensor
        return tuple(Table(f"{letter}_{head}", _rows(one), rows, columns) for head, one in enumerate(both, start=1))

    def named(*letters: str) -> tuple[Table, ...]:
        return tuple(
            Table(f"W_{head}^{letter}", weights[f"W_{head}^{letter}"]) for letter in letters for head in (1, 2)
        )

    q, k, v = heads("Q", "heads.queries", queries), heads("K", "heads.keys", keys), heads("V", "heads.values", keys)
    scores, masked = heads("S", "eq1.scores", queries, keys), heads("S'", "eq1.masked", queries, keys)
    attended, outputs = heads("A", "eq1.softmax", queries, keys), heads("head", "eq1.values", queries)
    joined = Table("M", _rows(run.tensor(code("heads.joined"), call)[0]), queries)
    w_q, w_k, w_v = ([weights[f"W_{head}^{letter}"] for head in (1, 2)] for letter in "QKV")
    allowed = [[key <= row for key in range(len(keys))] for row in range(len(queries))]
    scored = masked if is_masked else scores
    mask_step = Step(
        "S'_i = S_i, but -inf where the key is after the query",
        ("eq1.masked",),
        scores,
        masked,
        lambda *both: [plain.masked(one, allowed) for one in both],
    )
    return [
        Step(
            f"Q_i = {query.name} W_i^Q, K_i = {memory.name} W_i^K, V_i = {memory.name} W_i^V",
            ("heads.queries", "heads.keys", "heads.values"),
            (query,) if is_self else (query, memory),
            (*q, *k, *v),
            lambda x, y=None: [
                plain.matmul(side, w)
                for side, matrices in ((x, w_q), (x if y is None else y, w_k), (x if y is None else y, w_v))
                for w in matrices
            ],
            block,
            named("Q", "K", "V"),
        ),
        Step(
            "S_i = Q_i K_i^T / sqrt(d_k)",
            ("eq1.scores",),
            (*q, *k),
            scores,
            lambda q_1, q_2, k_1, k_2: [_scores(q_1, k_1), _scores(q_2, k_2)],
        ),
        *([mask_step] if is_masked else []),
        Step(
            f"A_i = softmax({scored[0].name.replace('1', 'i')})",
            ("eq1.softmax",),
            scored,
            attended,
            lambda *both: [[plain.softmax(row) for row in one] for one in both],
        ),
        Step(
            "head_i = A_i V_i",
            ("eq1.values",),
            (*attended, *v),
            outputs,
            lambda a_1, a_2, v_1, v_2: [plain.matmul(a_1, v_1), plain.matmul(a_2, v_2)],
        ),
        Step(
            "M = Concat(head_1, head_2) W^O",
            ("heads.joined",),
            outputs,
            (joined,),
            lambda left, right: [plain.matmul([a + b for a, b in zip(left, right, strict=True)], weights["W^O"])],
            block,
            (Table("W^O", weights["W^O"]),),
        ),
        *_residual(run, (0, 2, 3)[call], query, joined, name),
    ]


def _residual(run: Recording, call: int, x: Table, sublayer: Table, name: str) -> list[Step]:
    """Return the steps of a residual connection; `call` counts those of the model."""
    added = Table("R", _rows(run.tensor(code("residual.add", "add"), call)[0]), x.rows)
    ones, zeros = [1.0] * CONFIG.d_model, [0.0] * CONFIG.d_model
    return [
        Step(
            f"R = {x.name} + {sublayer.name}",
            ("residual.add",),
            (x, sublayer),
            (added,),
            lambda a, b: [_sum(a, b)],
        ),
        Step(
            f"{name} = LayerNorm(R) = (R - mean) / sqrt(variance + {CONFIG.norm_eps:.5f})",
            ("residual.add",),
            (added,),
            (Table(name, _rows(run.tensor(code("residual.add", "layer_norm"), call)[0]), x.rows),),
            lambda rows: [plain.layer_norm(rows, ones, zeros, CONFIG.norm_eps)],
        ),
    ]


def _feed_forward(run: Recording, residual: int, x: Table, name: str) -> list[Step]:
    """Return the steps of a feed-forward network with its residual connection, the one with this number."""
    call = 0 if residual == 1 else 1
    block = f"the {('encoder', 'decoder')[call]}'s feed-forward network"
    w = WEIGHTS[block]
    hidden = Table("H", _rows(run.tensor(code("eq2.hidden"), call)[0]), x.rows)
    output = Table("F", _rows(run.tensor(code("eq2.narrowed"), call)[0]), x.rows)
    return [
        Step(
            f"H = max(0, {x.name} W_1 + b_1)",
            ("eq2.widened", "eq2.hidden"),
            (x,),
            (hidden,),
            lambda rows: [[[max(0.0, value) for value in row] for row in _affine(rows, w["W_1"], w["b_1"])]],
            block,
            (Table("W_1", w["W_1"]), Table("b_1", w["b_1"])),
        ),
        Step(
            "F = H W_2 + b_2",
            ("eq2.narrowed",),
            (hidden,),
            (output,),
            lambda rows: [_affine(rows, w["W_2"], w["b_2"])],
            block,
            (Table("W_2", w["W_2"]), Table("b_2", w["b_2"])),
        ),
        *_residual(run, residual, x, output, name),
    ]


def _output(run: Recording, search: Recording, states: Table) -> list[Step]:
    last = Table("z", [states.values[-1]], [states.rows[-1]])
    logits = Table("logit", _rows(run.tensor(code("output.logits"), 0)[0, -1:].T), VOCABULARY)
    log_probs = search.tensor(code("output.log_probs"), len(states.rows) - 1)[0]
    embedding = list(EMBEDDING.values())
    return [
        Step(
            "logit = E z, z the last row of Z",
            ("output.logits",),
            (last,),
            (logits,),
            lambda z: [plain.matmul(embedding, plain.transpose(z))],
            "the embedding",
            (Table("E", embedding, VOCABULARY),),
        ),
        Step(
            "p = softmax(logit)",
            ("output.log_probs", "output.greedy"),
            (logits,),
            (Table("p", [[math.exp(value)] for value in log_probs.tolist()], VOCABULARY),),
            lambda column: [[[p] for p in plain.softmax([value for [value] in column])]],
        ),
    ]


def _scores(q: Matrix, k: Matrix) -> Matrix:
    return [[value / math.sqrt(len(q[0])) for value in row] for row in plain.matmul(q, plain.transpose(k))]


def _affine(x: Matrix, w: Matrix, b: Matrix) -> Matrix:
    return [[value + bias for value, bias in zip(row, b[0], strict=True)] for row in plain.matmul(x, w)]


def _sum(a: Matrix, b: Matrix) -> Matrix:
    return [[x + y for x, y in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]


def _rows(matrix: Tensor) -> Matrix:
    rows: Matrix = matrix.tolist()
    return rows
