"""The 13 stages from a sentence to the next token, with the numbers of a run of our `Transformer`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from clearhead.decoding.sampling import greedy_search
from clearhead.model.recorder import AttentionWeights, Recorder
from clearhead.paper import plain
from clearhead.paper.places import EQUATIONS, code, read_table
from clearhead.paper.plain import Matrix
from clearhead.paper.recording import Recording
from clearhead.paper.walk.model import CONFIG, EMBEDDING, VOCABULARY, WEIGHTS, small_model
from clearhead.paper.walk.steps import NamedMatrix, Stage, Walk, WalkStep


def walked(words: Sequence[str]) -> Walk:
    """Run the model on a sentence, and return every number."""
    model, tokens = small_model(), [*words, "</s>"]
    with Recording() as search, torch.no_grad():
        ids = [VOCABULARY.index(token) for token in tokens]
        [hypothesis] = greedy_search(model, [ids], max_lengths=[len(tokens) + 2])
    written = [VOCABULARY[token] for token in hypothesis.tokens]
    read = ["<s>", *written[:-1][:1]]
    with Recording() as run, torch.no_grad():
        source = torch.tensor([[VOCABULARY.index(token) for token in tokens]])
        target = torch.tensor([[VOCABULARY.index(token) for token in read]])
        recorder = Recorder(AttentionWeights())
        model.output_proj(model.states(target, *model.encode(source, recorder=recorder), recorder=recorder))
    return Walk(tokens, read, written[len(read) - 1], written, _stages(run, search, tokens, read))


def _stages(run: Recording, search: Recording, tokens: list[str], read: list[str]) -> list[Stage]:
    """Return the stages: 1 to 9 of the encoder, 10 to 12 of the decoder, and 13 from its last state to the token."""
    ids = NamedMatrix("id", _rows(run.tensor(code("embedding.ids"), 0).T), tokens)
    numbers = WalkStep(
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
    steps: list[list[WalkStep]] = [
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


@dataclass(frozen=True)
class _Steps:
    """Makes steps with one result each: what a line computed, with a row for each token."""

    run: Recording
    call: int
    """How often the lines had run before."""
    rows: Sequence[str]
    block: str = ""
    """The block of the model whose weights are used."""

    def step(
        self,
        formula: str,
        places: tuple[str, ...],
        operands: tuple[NamedMatrix, ...],
        name: str,
        replay: Callable[..., list[Matrix]],
        weights: tuple[str, ...] = (),
        function: str = "",
    ) -> WalkStep:
        """Return a step.

        Args:
            formula: Its formula.
            places: The places that compute it; the result is that of the last.
            operands: Its operands.
            name: Name of its result.
            replay: Computes the result from the operands in plain Python.
            weights: Names of the weights of the block that it uses.
            function: Function of PyTorch that computes it; the only one of the last place if not given.
        """
        tensor = self.run.tensor(code(places[-1], function), self.call)
        result = NamedMatrix(name, _rows(tensor if tensor.dim() == 2 else tensor[0]), self.rows)
        used = tuple(NamedMatrix(weight, WEIGHTS[self.block][weight]) for weight in weights)
        return WalkStep(formula, places, operands, (result,), replay, self.block if weights else "", used)


def _embedded(run: Recording, call: int, tokens: list[str], name: str) -> list[WalkStep]:
    """Return the steps from ids to the input of a stack; `call` is 0 for the encoder and 1 for the decoder."""
    width, make = CONFIG.d_model, _Steps(run, call, tokens).step
    embedded = make(
        f"{name}0 = sqrt(d_model) E[id]",
        ("embedding.scaled",),
        (NamedMatrix("E[id]", [EMBEDDING[token] for token in tokens], tokens),),
        f"{name}0",
        lambda rows: [[[math.sqrt(width) * value for value in row] for row in rows]],
    )
    positions = make(
        EQUATIONS["positions"]["formula"],
        ("positions.rows",),
        (NamedMatrix("pos", [[float(place)] for place in range(len(tokens))], tokens),),
        "PE",
        lambda rows: [
            [[plain.position_encoding(int(place), column, width) for column in range(width)] for [place] in rows]
        ],
    )
    operands = (*embedded.results, *positions.results)
    return [embedded, positions, make(f"{name} = {name}0 + PE", ("positions.added",), operands, name, _sum)]


_ATTENTIONS = ("the encoder's self-attention", "the decoder's masked self-attention", "the decoder's cross-attention")
"""Names of their weights, in the order in which they run."""


def _heads(
    run: Recording, call: int, letter: str, place: str, rows: Sequence[str], columns: Sequence[str] = ()
) -> tuple[NamedMatrix, ...]:
    """Return what a place computed for each head."""
    tensor = run.tensor(code(place), call)[0]  # (T, 4) with the heads side by side, or (2, T, columns)
    both = tensor.split(CONFIG.value_dim, dim=-1) if tensor.dim() == 2 else tensor
    return tuple(NamedMatrix(f"{letter}_{head}", _rows(part), rows, columns) for head, part in enumerate(both, start=1))


def _projections(run: Recording, call: int, query: NamedMatrix, memory: NamedMatrix) -> WalkStep:
    """Return the step that computes queries, keys and values; `call` counts the attentions of the model."""
    block = _ATTENTIONS[call]
    weights = {f"W_{head}^{letter}": WEIGHTS[block][f"W_{head}^{letter}"] for letter in "QKV" for head in (1, 2)}
    of_query, of_memory = list(weights.values())[:2], list(weights.values())[2:]
    return WalkStep(
        f"Q_i = {query.name} W_i^Q, K_i = {memory.name} W_i^K, V_i = {memory.name} W_i^V",
        ("heads.queries", "heads.keys", "heads.values"),
        (query,) if memory is query else (query, memory),
        (
            *_heads(run, call, "Q", "heads.queries", query.rows),
            *_heads(run, call, "K", "heads.keys", memory.rows),
            *_heads(run, call, "V", "heads.values", memory.rows),
        ),
        lambda x, y=None: [plain.matmul(side, w) for side, own in ((x, of_query), (y or x, of_memory)) for w in own],
        block,
        tuple(NamedMatrix(name, matrix) for name, matrix in weights.items()),
    )


def _attention(run: Recording, call: int, query: NamedMatrix, memory: NamedMatrix, name: str) -> list[WalkStep]:
    """Return the steps of an attention with its residual connection; `call` counts the attentions of the model."""
    w_o, queries, keys = WEIGHTS[_ATTENTIONS[call]]["W^O"], query.rows, memory.rows
    allowed = [[key <= row for key in range(len(keys))] for row in range(len(queries))]

    def by_head(
        formula: str, place: str, operands: Sequence[NamedMatrix], letter: str, compute: Callable[..., Matrix]
    ) -> WalkStep:
        results = _heads(run, call, letter, place, queries, () if place == "eq1.values" else keys)
        return WalkStep(formula, (place,), tuple(operands), results, _by_head(compute))

    projections = _projections(run, call, query, memory)
    q, k, v = (projections.results[at : at + 2] for at in (0, 2, 4))
    steps = [projections, by_head("S_i = Q_i K_i^T / sqrt(d_k)", "eq1.scores", (*q, *k), "S", _scores)]
    if call == 1:
        formula = "S'_i = S_i, but -inf where the key is after the query"
        operands = steps[-1].results
        steps.append(by_head(formula, "eq1.masked", operands, "S'", lambda rows: plain.masked(rows, allowed)))
    scored = steps[-1].results
    formula = f"A_i = softmax({scored[0].name.replace('1', 'i')})"
    weights = by_head(formula, "eq1.softmax", scored, "A", lambda rows: list(map(plain.softmax, rows)))
    outputs = by_head("head_i = A_i V_i", "eq1.values", (*weights.results, *v), "head", plain.matmul)
    joined = _Steps(run, call, queries, _ATTENTIONS[call]).step(
        "M = Concat(head_1, head_2) W^O",
        ("heads.joined",),
        outputs.results,
        "M",
        lambda left, right: [plain.matmul([a + b for a, b in zip(left, right, strict=True)], w_o)],
        ("W^O",),
    )
    return [*steps, weights, outputs, joined, *_residual(run, (0, 2, 3)[call], query, joined.results[0], name)]


def _residual(run: Recording, call: int, x: NamedMatrix, sublayer: NamedMatrix, name: str) -> list[WalkStep]:
    """Return the steps of a residual connection; `call` counts those of the model."""
    make, place, ones = _Steps(run, call, x.rows).step, ("residual.add",), [1.0] * CONFIG.d_model
    added = make(f"R = {x.name} + {sublayer.name}", place, (x, sublayer), "R", _sum, function="add")
    normed = make(
        f"{name} = LayerNorm(R) = (R - mean) / sqrt(variance + {CONFIG.norm_eps:.5f})",
        place,
        added.results,
        name,
        lambda rows: [plain.layer_norm(rows, ones, [0.0] * CONFIG.d_model, CONFIG.norm_eps)],
        function="layer_norm",
    )
    return [added, normed]


def _feed_forward(run: Recording, residual: int, x: NamedMatrix, name: str) -> list[WalkStep]:
    """Return the steps of a feed-forward network with its residual connection, the one with this number."""
    call = 0 if residual == 1 else 1
    block = f"the {('encoder', 'decoder')[call]}'s feed-forward network"
    make, w = _Steps(run, call, x.rows, block).step, WEIGHTS[block]
    hidden = make(
        f"H = max(0, {x.name} W_1 + b_1)",
        ("eq2.widened", "eq2.hidden"),
        (x,),
        "H",
        lambda rows: [[[max(0.0, value) for value in row] for row in _affine(rows, w["W_1"], w["b_1"])]],
        ("W_1", "b_1"),
    )
    output = make(
        "F = H W_2 + b_2",
        ("eq2.narrowed",),
        hidden.results,
        "F",
        lambda rows: [_affine(rows, w["W_2"], w["b_2"])],
        ("W_2", "b_2"),
    )
    return [hidden, output, *_residual(run, residual, x, output.results[0], name)]


def _output(run: Recording, search: Recording, states: NamedMatrix) -> list[WalkStep]:
    last = NamedMatrix("z", [states.values[-1]], [states.rows[-1]])
    logits = NamedMatrix("logit", _rows(run.tensor(code("output.logits"), 0)[0, -1:].T), VOCABULARY)
    log_probs = search.tensor(code("output.log_probs"), len(states.rows) - 1)[0]
    embedding = list(EMBEDDING.values())
    return [
        WalkStep(
            "logit = E z, z the last row of Z",
            ("output.logits",),
            (last,),
            (logits,),
            lambda z: [plain.matmul(embedding, plain.transpose(z))],
            "the embedding",
            (NamedMatrix("E", embedding, VOCABULARY),),
        ),
        WalkStep(
            "p = softmax(logit)",
            ("output.log_probs", "output.greedy"),
            (logits,),
            (NamedMatrix("p", [[math.exp(value)] for value in log_probs.tolist()], VOCABULARY),),
            lambda column: [[[p] for p in plain.softmax([value for [value] in column])]],
        ),
    ]


def _by_head(compute: Callable[..., Matrix]) -> Callable[..., list[Matrix]]:
    """Return a function of operands, each of head 1 and then of head 2, to what is computed for each head."""
    return lambda *operands: [compute(*operands[::2]), compute(*operands[1::2])]


def _scores(q: Matrix, k: Matrix) -> Matrix:
    return [[value / math.sqrt(len(q[0])) for value in row] for row in plain.matmul(q, plain.transpose(k))]


def _affine(x: Matrix, w: Matrix, b: Matrix) -> Matrix:
    return [[value + bias for value, bias in zip(row, b[0], strict=True)] for row in plain.matmul(x, w)]


def _sum(a: Matrix, b: Matrix) -> list[Matrix]:
    return [[[x + y for x, y in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]]


def _rows(matrix: torch.Tensor) -> Matrix:
    rows: Matrix = matrix.tolist()
    return rows
