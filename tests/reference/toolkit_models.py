"""Small models of fairseq, OpenNMT-py, eole and JoeyNMT, in plain PyTorch, and their files as they write them.

None of these toolkits can be installed beside our pins, so each forward pass is written down here from its public
source, with its own names for modules, so that `state_dict` gives its keys; nothing of ours is used. The same files,
written by the toolkits themselves (fairseq 0.12.2, OpenNMT-py 2.3.0 and 3.5.1, eole 0.6.4, JoeyNMT 2.3.0), were
compared once with the toolkits' own log-probabilities: they differ by less than 1e-6.
"""

from __future__ import annotations

import json
import math
import sys
import types
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import yaml
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

D, HEADS, FF = 24, 3, 20
ENCODER_LAYERS, DECODER_LAYERS = 3, 2
STEPS = 30
WORDS = [f"wort{number}" for number in range(23)]
OTHER_WORDS = [f"word{number}" for number in range(17)]


@dataclass
class Toolkit:
    """A model of a toolkit, and where its files stand."""

    path: Path
    """What the command is given."""
    log_probs: Callable[[Tensor, Tensor], Tensor]
    """From source ids and target ids, shifted right and padded, to the log-probabilities of what comes next."""
    source_ids: Callable[[str], list[int]]
    target_text: Callable[[list[int]], str]
    start: int
    end: int
    pad: int
    sizes: tuple[int, int]
    """Words of the source and of the target."""
    texts: Sequence[str] = field(default_factory=lambda: [" ".join(WORDS[at : at + 4]) for at in range(0, 18, 2)])


def taught(model: nn.Module, *, start: int, end: int, first: int, sizes: tuple[int, int]) -> nn.Module:
    """Teach a model to write the numbers of a source backwards, so that it says something and comes to an end.

    Args:
        model: Gives log-probabilities from source ids and target ids.
        start: Id that a target starts from.
        end: Id that ends it.
        first: The first id of a word.
        sizes: Words of both sides.
    """
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:  # so that a norm or a bias in the wrong place shows
                weight += 0.2 * torch.randn_like(weight)
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                module.weight /= math.sqrt(D)
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    for _ in range(STEPS):
        words = torch.randint(first, min(sizes), (16, 4))
        ends = torch.full((16, 1), end)
        source = torch.cat([words, ends], dim=1)
        target = torch.cat([ends * 0 + start, words.flip(1), ends], dim=1)
        log_probs = model(source, target[:, :-1])
        optimizer.zero_grad()
        functional.nll_loss(log_probs.flatten(0, 1), target[:, 1:].flatten()).backward()
        optimizer.step()
    return model.eval().requires_grad_(False)


def attend(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    """Multi-head attention; `hidden` is true where nothing may be looked at."""
    q, k, v = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (q, k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(D // HEADS)
    weights = scores.masked_fill(hidden[:, None], -math.inf).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def future(length: int) -> Tensor:
    return torch.ones(1, length, length, dtype=torch.bool).triu(1)


def interleaved(length: int) -> Tensor:
    """Section 3.5, as OpenNMT-py, eole and JoeyNMT compute it."""
    table = torch.zeros(length, D)
    step = torch.exp(torch.arange(0, D, 2).float() * -(math.log(10000.0) / D))
    table[:, 0::2] = torch.sin(torch.arange(length)[:, None] * step)
    table[:, 1::2] = torch.cos(torch.arange(length)[:, None] * step)
    return table


def concatenated(length: int) -> Tensor:
    """Sines before cosines, as fairseq and OpenNMT-py's `SinusoidalConcat`."""
    step = torch.exp(torch.arange(D // 2).float() * -(math.log(10000) / (D // 2 - 1)))
    angle = torch.arange(length).float()[:, None] * step
    return torch.cat([angle.sin(), angle.cos()], dim=1)


class FairseqAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.k_proj, self.v_proj, self.q_proj, self.out_proj = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x, memory, hidden):
        return self.out_proj(attend(self.q_proj(x), self.k_proj(memory), self.v_proj(memory), hidden))


class FairseqLayer(nn.Module):
    def __init__(self, args: Namespace, *, is_decoder: bool):
        super().__init__()
        self.pre, self.act = args.encoder_normalize_before, getattr(functional, args.activation_fn)
        self.self_attn, self.self_attn_layer_norm = FairseqAttention(), nn.LayerNorm(D)
        if is_decoder:
            self.encoder_attn, self.encoder_attn_layer_norm = FairseqAttention(), nn.LayerNorm(D)
        self.fc1, self.fc2, self.final_layer_norm = nn.Linear(D, FF), nn.Linear(FF, D), nn.LayerNorm(D)

    def forward(self, x, hidden, memory=None, memory_hidden=None):
        def around(x, norm, part):
            return x + part(norm(x)) if self.pre else norm(x + part(x))

        x = around(x, self.self_attn_layer_norm, lambda y: self.self_attn(y, y, hidden))
        if memory is not None:
            x = around(x, self.encoder_attn_layer_norm, lambda y: self.encoder_attn(y, memory, memory_hidden))
        return around(x, self.final_layer_norm, lambda y: self.fc2(self.act(self.fc1(y))))


class FairseqSide(nn.Module):
    def __init__(self, args: Namespace, size: int, *, is_decoder: bool):
        super().__init__()
        self.args = args
        self.register_buffer("version", torch.Tensor([3]))
        self.embed_tokens = nn.Embedding(size, D)
        if args.encoder_learned_pos:
            self.embed_positions = nn.Embedding(args.max_source_positions + 2, D)
        if args.layernorm_embedding:
            self.layernorm_embedding = nn.LayerNorm(D)
        count = DECODER_LAYERS if is_decoder else ENCODER_LAYERS
        self.layers = nn.ModuleList(FairseqLayer(args, is_decoder=is_decoder) for _ in range(count))
        if args.encoder_normalize_before:
            self.layer_norm = nn.LayerNorm(D)
        if is_decoder:
            self.output_projection = nn.Linear(D, size, bias=False)

    def embed(self, ids):
        # Positions count from the id of the padding on, 1, and leave padding out.
        places = torch.cumsum(ids != 1, dim=1) * (ids != 1) + 1
        x = self.embed_tokens(ids) * (1.0 if self.args.no_scale_embedding else math.sqrt(D))
        table = self.embed_positions.weight if self.args.encoder_learned_pos else concatenated(100)
        x = x + table[places]
        return self.layernorm_embedding(x) if self.args.layernorm_embedding else x


class Fairseq(nn.Module):
    def __init__(self, args: Namespace, source_size: int, target_size: int):
        super().__init__()
        self.encoder = FairseqSide(args, source_size, is_decoder=False)
        self.decoder = FairseqSide(args, target_size, is_decoder=True)
        if args.share_all_embeddings:
            self.decoder.embed_tokens = self.encoder.embed_tokens
        if args.share_decoder_input_output_embed or args.share_all_embeddings:
            self.decoder.output_projection.weight = self.decoder.embed_tokens.weight

    def forward(self, source, target):
        hidden = (source == 1)[:, None]
        x = self.encoder.embed(source)
        for layer in self.encoder.layers:
            x = layer(x, hidden)
        memory = getattr(self.encoder, "layer_norm", nn.Identity())(x)
        x = self.decoder.embed(target)
        for layer in self.decoder.layers:
            x = layer(x, future(target.size(1)), memory, hidden)
        x = getattr(self.decoder, "layer_norm", nn.Identity())(x)
        return self.decoder.output_projection(x).log_softmax(-1)


FAIRSEQ_ARGS = {
    "arch": "transformer_iwslt_de_en",
    "task": "translation",
    "source_lang": "de",
    "target_lang": "en",
    "activation_fn": "relu",
    "encoder_layers": ENCODER_LAYERS,
    "decoder_layers": DECODER_LAYERS,
    "layernorm_embedding": False,
    "max_source_positions": 64,
    "max_target_positions": 64,
    "no_scale_embedding": False,
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": False,
    "adaptive_softmax_cutoff": None,
    "dropout": 0.1,
    "relu_dropout": 0.0,
    **{f"{side}_embed_dim": D for side in ("encoder", "decoder")},
    **{f"{side}_ffn_embed_dim": FF for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": HEADS for side in ("encoder", "decoder")},
    **{f"{side}_{field}": False for side in ("encoder", "decoder") for field in ("normalize_before", "learned_pos")},
}


def fairseq(directory: Path, *, form: str = "args", is_zip: bool = True, change=None, **settings: Any) -> Toolkit:
    """Write a checkpoint of fairseq with its dictionaries.

    Args:
        directory: Where they go.
        form: Where the arguments stand: `args`, `cfg` with a namespace, `nested` with groups for both sides.
        is_zip: In the form that PyTorch writes since 1.6.
        change: Changes the state before it is written, as older versions had it.
        settings: Arguments other than those above; those of the encoder are the decoder's too.
    """
    both = {name.replace("encoder", "decoder"): value for name, value in settings.items()}
    args = Namespace(**{**FAIRSEQ_ARGS, **both, **settings})
    lists = []
    for language, words in (("de", WORDS), ("en", WORDS if args.share_all_embeddings else OTHER_WORDS)):
        words = [*words, *(f"madeupword{number:04d}" for number in range(-(len(words) + 4) % 8))]
        lists.append(["<s>", "<pad>", "</s>", "<unk>", *words])
        lines = (f"{word} {0 if 'madeup' in word else 90}\n" for word in words)
        (directory / f"dict.{language}.txt").write_text("".join(lines))
    sizes = (len(lists[0]), len(lists[1]))
    model = taught(Fairseq(args, *sizes), start=2, end=2, first=4, sizes=sizes)
    state = dict(model.state_dict())
    if not args.encoder_learned_pos:
        state |= {f"{side}.embed_positions._float_tensor": torch.zeros(1) for side in ("encoder", "decoder")}
    if change is not None:
        state = change(state)
    groups = None
    if form != "args":
        values = vars(args)
        if form == "nested":
            sides = {
                side: {name.removeprefix(f"{side}_"): value for name, value in values.items() if name.startswith(side)}
                for side in ("encoder", "decoder")
            }
            rest = {name: value for name, value in values.items() if not name.startswith(("encoder", "decoder"))}
            model_values = {"_name": "transformer", **rest, **sides}
        groups = {
            "model": args if form == "cfg" else model_values,
            "task": {"_name": "translation", "source_lang": "de", "target_lang": "en"},
            "generation": {"beam": 3, "lenpen": 0.7},
        }
    checkpoint = {
        "args": args if form == "args" else None,
        "cfg": groups,
        "model": state,
        "optimizer_history": [{"optimizer_name": "FairseqAdam", "num_updates": 9}],
        "extra_state": {"val_loss": 2.5},
    }
    torch.save(checkpoint, directory / "checkpoint_best.pt", _use_new_zipfile_serialization=is_zip)
    source, target = lists
    return Toolkit(
        directory,
        model,
        lambda text: [*(source.index(word) if word in source else 3 for word in text.split()), 2],
        lambda ids: " ".join(target[number] for number in ids),
        start=2,
        end=2,
        pad=1,
        sizes=sizes,
    )


@dataclass(frozen=True)
class Style:
    """What the models of OpenNMT-py, eole and JoeyNMT differ in."""

    pre: bool = True
    norm: Callable[[], nn.Module] = lambda: nn.LayerNorm(D, eps=1e-6)
    attention_bias: bool = False
    network_bias: bool = False
    output_bias: bool = True
    gated: bool = False
    act: Callable[[Tensor], Tensor] = functional.relu
    positions: Callable[[int], Tensor] | None = interleaved
    """None if they are learned."""
    tied: tuple[bool, bool] = (False, False)
    """Whether the embeddings are one matrix, and whether the target's is the output's."""


class PlainLayer(nn.Module):
    """A layer of the paper, with every sub-layer's norm before or behind it."""

    def __init__(self, style: Style, *, is_decoder: bool):
        super().__init__()
        self.style = style
        for name in ["self", "cross"][: 1 + is_decoder]:
            for part in "qkvo":
                setattr(self, f"{name}_{part}", nn.Linear(D, D, bias=style.attention_bias))
            setattr(self, f"{name}_norm", style.norm())
        self.inner = nn.Linear(D, FF, bias=style.network_bias)
        if style.gated:
            self.gated = nn.Linear(D, FF, bias=style.network_bias)
        self.outer, self.outer_norm = nn.Linear(FF, D, bias=style.network_bias), style.norm()

    def around(self, x, norm, part):
        return x + part(norm(x)) if self.style.pre else norm(x + part(x))

    def network(self, x):
        inner = self.style.act(self.inner(x))
        return self.outer(inner * self.gated(x) if self.style.gated else inner)

    def forward(self, x, hidden, memory=None, memory_hidden=None):
        def look(name, y, there, mask):
            q, k, v, o = (getattr(self, f"{name}_{part}") for part in "qkvo")
            return o(attend(q(y), k(there), v(there), mask))

        x = self.around(x, self.self_norm, lambda y: look("self", y, y, hidden))
        if memory is not None:
            x = self.around(x, self.cross_norm, lambda y: look("cross", y, memory, memory_hidden))
        return self.around(x, self.outer_norm, self.network)


class Plain(nn.Module):
    """The paper's model in a style; its padding has the id 1."""

    def __init__(self, style: Style, sizes: tuple[int, int]):
        super().__init__()
        self.style = style
        self.source, self.target = nn.Embedding(sizes[0], D), nn.Embedding(sizes[1], D)
        self.output = nn.Linear(D, sizes[1], bias=style.output_bias)
        if style.tied[0]:
            self.target = self.source
        if style.tied[1]:
            self.output.weight = self.target.weight
        if style.positions is None:
            self.source_places, self.target_places = nn.Embedding(40, D), nn.Embedding(40, D)
        self.encoder = nn.ModuleList(PlainLayer(style, is_decoder=False) for _ in range(ENCODER_LAYERS))
        self.decoder = nn.ModuleList(PlainLayer(style, is_decoder=True) for _ in range(DECODER_LAYERS))
        if style.pre:
            self.encoder_norm, self.decoder_norm = style.norm(), style.norm()

    def embed(self, side, ids):
        x = getattr(self, side)(ids)
        if self.style.positions is None:
            return x + getattr(self, f"{side}_places").weight[: ids.size(1)]
        return x * math.sqrt(D) + self.style.positions(ids.size(1))

    def forward(self, source, target):
        hidden = (source == 1)[:, None]
        x = self.embed("source", source)
        for layer in self.encoder:
            x = layer(x, hidden)
        memory = self.encoder_norm(x) if self.style.pre else x
        x = self.embed("target", target)
        for layer in self.decoder:
            x = layer(x, future(target.size(1)), memory, hidden)
        return self.output(self.decoder_norm(x) if self.style.pre else x).log_softmax(-1)

    def state_as(self, names: dict[str, str], layers: dict[str, str], parts: dict[str, str]) -> dict[str, Tensor]:
        """Return all tensors under a toolkit's names.

        Args:
            names: Names that occur once, such as `source`.
            layers: Of the lists of layers.
            parts: Of the parts of a layer; `encoder.self_norm` counts before `self_norm`.
        """
        state = {}
        for name, tensor in self.state_dict().items():
            first, *rest = name.split(".")
            if first not in layers:
                state[f"{names[first]}.{rest[0]}"] = tensor
                continue
            number, part, kind = rest
            state[f"{layers[first]}.{number}.{parts.get(f'{first}.{part}', parts.get(part))}.{kind}"] = tensor
        return state


def plain_toolkit(path: Path, style: Style, lists: Sequence[list[str]], start: int, end: int, **ends: int) -> Toolkit:
    """Teach a model in a style, whose specials are the first four words.

    Args:
        path: What the command is given.
        style: Of the model.
        lists: Words of both sides by number.
        start: Id that a target starts from.
        end: Id that ends it.
        ends: `source_end`, the id that ends a source, if any does.
    """
    sizes = (len(lists[0]), len(lists[1]))
    return Toolkit(
        path,
        taught(Plain(style, sizes), start=start, end=end, first=4, sizes=sizes),
        lambda text: [lists[0].index(word) if word in lists[0] else 0 for word in text.split()] + list(ends.values()),
        lambda ids: " ".join(lists[1][number] for number in ids),
        start=start,
        end=end,
        pad=1,
        sizes=sizes,
    )


def opennmt(directory: Path, *, version: int = 3, style: Style, **options: Any) -> Toolkit:
    """Write a checkpoint of OpenNMT-py.

    Args:
        directory: Where it goes.
        version: 3 has its vocabularies as lists, 2 in objects of torchtext.
        style: Of the model.
        options: Of the model, beside its sizes.
    """
    first = ["<unk>", "<blank>", "<s>", "</s>"]
    lists = [[*first, *WORDS], [*first, *(WORDS if style.tied[0] else OTHER_WORDS)]]
    if version == 2:  # a source of its own has no start and no end
        lists[0] = lists[0] if style.tied[0] else [*first[:2], *WORDS]
    toolkit = plain_toolkit(directory / "model_step_7.pt", style, lists, start=2, end=3)
    state = toolkit.log_probs.state_as(
        {
            "source": "encoder.embeddings.make_embedding.emb_luts.0",
            "target": "decoder.embeddings.make_embedding.emb_luts.0",
            "output": "generator",
            "encoder_norm": "encoder.layer_norm",
            "decoder_norm": "decoder.layer_norm",
        },
        {"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"},
        {
            **{f"{name}_{part}": f"{module}.{linear}" for name, module in ATTENTIONS for part, linear in LINEARS},
            "encoder.self_norm": "layer_norm",
            "self_norm": "layer_norm_1",
            "cross_norm": "layer_norm_2",
            "inner": "feed_forward.w_1",
            "gated": "feed_forward.w_3",
            "outer": "feed_forward.w_2",
            "outer_norm": "feed_forward.layer_norm",
        },
    )
    table = style.positions(5000)[:, None]
    state |= {f"{side}.embeddings.make_embedding.pe.pe": table for side in ("encoder", "decoder")}
    head = {name.removeprefix("generator."): state.pop(name) for name in list(state) if name.startswith("generator.")}
    width = {2: "rnn_size", 3: "hid_size"}[version]
    values = {
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "model_type": "text",
        "enc_layers": ENCODER_LAYERS,
        "dec_layers": DECODER_LAYERS,
        f"enc_{width}": D,
        f"dec_{width}": D,
        "src_word_vec_size": D,
        "tgt_word_vec_size": D,
        "heads": HEADS,
        "transformer_ff": FF,
        "position_encoding": True,
        "max_relative_positions": 0,
        "self_attn_type": "scaled-dot",
        "copy_attn": False,
        "dropout": [0.1],
        "attention_dropout": [0.1],
        "share_embeddings": style.tied[0],
        "share_decoder_embeddings": style.tied[1],
        "transforms": ["onmt_tokenize", "filtertoolong"],
        "src_lang": "de",
        **options,
    }
    checkpoint = {"model": state, "generator": head, "opt": Namespace(**values), "optim": {"step": 3}}
    if version == 3:
        checkpoint["vocab"] = {"src": lists[0], "tgt": lists[1], "data_task": "seq2seq", "decoder_start_token": "<s>"}
        torch.save(checkpoint, toolkit.path)
        return toolkit
    checkpoint["generator"] = {f"0.{name}": tensor for name, tensor in head.items()}
    with mock.patch.dict(sys.modules):
        fields = zip(("src", "tgt"), lists, strict=True)
        checkpoint["vocab"] = {side: torchtext_field(side, words) for side, words in fields}
        torch.save(checkpoint, toolkit.path)
    return toolkit


ATTENTIONS = (("self", "self_attn"), ("cross", "context_attn"))
LINEARS = (("q", "linear_query"), ("k", "linear_keys"), ("v", "linear_values"), ("o", "final_linear"))


def torchtext_field(side: str, words: list[str]) -> object:
    """Return what OpenNMT-py 2 keeps of a side: a field of several, each with its vocabulary.

    Their classes are made within modules of their names, which `torch.save` looks for.
    """

    def make(module: str, name: str, **state: object) -> object:
        parts = module.split(".")
        for count in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:count]), types.ModuleType(".".join(parts[:count])))
        kind = getattr(sys.modules[module], name, None) or type(name, (), {"__module__": module})
        setattr(sys.modules[module], name, kind)
        one = kind()
        one.__dict__.update(state)
        return one

    numbers = {word: number for number, word in enumerate(words)}
    vocab = make("torchtext.vocab", "Vocab", freqs=Counter(words), itos=words, stoi=numbers, unk_index=0, vectors=None)
    one = make("torchtext.data.field", "Field", vocab=vocab, pad_token="<blank>", dtype=torch.int64, lower=False)
    return make("onmt.inputters.text_dataset", "TextMultiField", fields=[(side, one)], is_target=False)


def eole(directory: Path, *, style: Style, named: dict[str, Any], parts: dict[str, Any] | None = None) -> Toolkit:
    """Write a directory of eole.

    Args:
        directory: Where it goes.
        style: Of the model.
        named: Settings of the section `model` beside its sizes.
        parts: Of its sections for the encoder, the decoder and the embeddings.
    """
    first = ["<unk>", "<blank>", "<s>", "</s>"]
    lists = [[*first, *WORDS], [*first, *(WORDS if style.tied[0] else OTHER_WORDS)]]
    toolkit = plain_toolkit(directory, style, lists, start=2, end=3)
    state = toolkit.log_probs.state_as(
        {
            "source": "src_emb.embeddings",
            "target": "tgt_emb.embeddings",
            "source_places": "src_emb.pe",
            "target_places": "tgt_emb.pe",
            "output": "generator",
            "encoder_norm": "encoder.layer_norm",
            "decoder_norm": "decoder.layer_norm",
        },
        {side: f"{side}.transformer_layers" for side in ("encoder", "decoder")},
        {
            **{f"{name}_{part}": f"{module}.{linear}" for name, module in ATTENTIONS for part, linear in LINEARS},
            "self_norm": "input_layernorm",
            "cross_norm": "precontext_layernorm",
            "outer_norm": "post_attention_layernorm",
            "inner": "mlp.gate_up_proj",
            "gated": "mlp.up_proj",
            "outer": "mlp.down_proj",
        },
    )
    state |= {f"decoder.transformer_layers.{number}.layer_scalar": torch.ones(1) for number in range(DECODER_LAYERS)}
    if style.positions is not None:
        state |= {f"{side}_emb.pe.pe": style.positions(5000)[:, None].clone() for side in ("src", "tgt")}
    for is_one, name in zip(style.tied, ("tgt_emb.embeddings.weight", "generator.weight"), strict=True):
        if is_one:  # what is one is written once
            del state[name]
    save_file(state, directory / "model.00.safetensors")
    model = {
        "architecture": "transformer",
        "hidden_size": D,
        "heads": HEADS,
        "transformer_ff": FF,
        "share_embeddings": style.tied[0],
        "share_decoder_embeddings": style.tied[1],
        **named,
        "encoder": {"encoder_type": "transformer", "layers": ENCODER_LAYERS, "src_word_vec_size": D},
        "decoder": {"decoder_type": "transformer", "layers": DECODER_LAYERS, "tgt_word_vec_size": D, "heads": HEADS},
        "embeddings": {"word_vec_size": D, "position_encoding_type": "SinusoidalInterleaved"},
    }
    for part, values in (parts or {}).items():
        model[part] = {**model[part], **values}
    (directory / "config.json").write_text(json.dumps({"transforms": ["filtertoolong"], "model": model}))
    specials = dict(zip(("unk_token", "pad_token", "bos_token", "eos_token"), first, strict=True))
    vocab = {"src": lists[0], "tgt": lists[1], "decoder_start_token": "<s>", "specials": specials}
    (directory / "vocab.json").write_text(json.dumps(vocab))
    return toolkit


def joeynmt(directory: Path, *, style: Style, is_first_version: bool = False) -> Toolkit:
    """Write a directory of JoeyNMT.

    Args:
        directory: Where it goes.
        style: Of the model.
        is_first_version: Say nothing of norms, and name the languages alone, as version 1 does.
    """
    first = ["<unk>", "<pad>", "<s>", "</s>"]
    lists = [[*first, *WORDS], [*first, *(WORDS if style.tied[0] else OTHER_WORDS)]]
    toolkit = plain_toolkit(directory, style, lists, start=2, end=3, source_end=3)
    attentions = (("encoder.self", "src_src_att"), ("self", "trg_trg_att"), ("cross", "src_trg_att"))
    linears = (("q", "q_layer"), ("k", "k_layer"), ("v", "v_layer"), ("o", "output_layer"))
    state = toolkit.log_probs.state_as(
        {
            "source": "src_embed.lut",
            "target": "trg_embed.lut",
            "output": "decoder.output_layer",
            "encoder_norm": "encoder.layer_norm",
            "decoder_norm": "decoder.layer_norm",
        },
        {side: f"{side}.layers" for side in ("encoder", "decoder")},
        {
            **{f"{name}_{part}": f"{module}.{linear}" for name, module in attentions for part, linear in linears},
            "encoder.self_norm": "layer_norm",
            "self_norm": "x_layer_norm",
            "cross_norm": "dec_layer_norm",
            "inner": "feed_forward.pwff_layer.0",
            "outer": "feed_forward.pwff_layer.3",
            "outer_norm": "feed_forward.layer_norm",
        },
    )
    state |= {f"{side}.pe.pe": interleaved(5000)[None] for side in ("encoder", "decoder")}
    torch.save({"model_state": state, "optimizer_state": {}, "stats_state": {"steps": 7}}, directory / "best.ckpt")
    for side, words in zip(("src", "trg"), lists, strict=True):
        (directory / f"{side}_vocab.txt").write_text("".join(f"{word}\n" for word in words))
    part = {
        "type": "transformer",
        "num_heads": HEADS,
        "embeddings": {"embedding_dim": D, "scale": True, "dropout": 0.0},
        "hidden_size": D,
        "ff_size": FF,
        "dropout": 0.1,
    }
    data: dict[str, Any] = {"src": "de", "trg": "en", "level": "bpe", "lowercase": False}
    if not is_first_version:
        part["layer_norm"] = "pre" if style.pre else "post"
        data = {
            side: {"lang": lang, "level": "word", "lowercase": True} for side, lang in (("src", "de"), ("trg", "en"))
        }
    values = {
        "name": "small",
        "data": {"train": "elsewhere", **data},
        "testing": {"beam_size": 5, "alpha" if is_first_version else "beam_alpha": 0.8},
        "model": {
            "tied_embeddings": style.tied[0],
            "tied_softmax": style.tied[1],
            "encoder": {**deepcopy(part), "num_layers": ENCODER_LAYERS},
            "decoder": {**deepcopy(part), "num_layers": DECODER_LAYERS},
        },
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(values))
    return toolkit
