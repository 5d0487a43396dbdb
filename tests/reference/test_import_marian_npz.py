"""`clearhead import` of Marian's own files: logits, tokens and texts are those of transformers, scores CTranslate2's.

An .npz is written here from a random model of transformers, by the names and transpositions of its published conversion
(`convert_marian_to_pytorch.py`) read backwards. Both libraries take the paper's wavelengths for Marian's, whose
positions (`sinusoidalPositionEmbeddings` in marian-dev) are put into them here.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
import transformers
from ctranslate2.converters import marian as marian_converter
from published import pairs, read_tokenizer, texts
from torch import nn
from typer.testing import CliRunner

from clearhead.bundle import load_bundle, save_bundle
from clearhead.cli.main import app
from clearhead.errors import ConfigError
from clearhead.files.tensors import model_tensors
from clearhead.interop.import_model import import_path
from clearhead.interop.rewrites import resolved
from clearhead.translation.translator import Translator
from every_run import slow
from sentencepiece_models import pieces_of, sentencepiece_model

LIMIT = 40
SHAPE = {
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 128,
    "scale_embedding": True,
}
# As marian 1.10 writes them, but for what is of training alone.
OPTIONS = """bert-train-type-embeddings: true
dec-cell: gru
dec-depth: 2
dim-emb: 32
dim-vocabs:
  - {source}
  - {target}
enc-depth: 3
enc-type: bidirectional
factors-combine: sum
input-types:
  []
layer-normalization: false
lemma-dim-emb: 0
output-omit-bias: {no_bias}
right-left: false
skip: false
tied-embeddings: {tied}
tied-embeddings-all: {all}
tied-embeddings-src: {src}
transformer-aan-activation: swish
transformer-decoder-autoreg: self-attention
transformer-dim-ffn: 48
transformer-ffn-activation: {activation}
transformer-ffn-depth: 2
transformer-guided-alignment-layer: last
transformer-heads: 4
transformer-no-projection: false
transformer-pool: false
transformer-postprocess: {behind}
transformer-postprocess-emb: d
transformer-postprocess-top: {top}
transformer-preprocess: {before}
transformer-tied-layers:
  []
transformer-train-position-embeddings: false
type: transformer
ulr: false
version: v1.10.0 6f6d4846 2021-02-06 15:35:16 -0800
vocabs:
  - /fs/train/opus.src.vocab.yml
  - /fs/train/opus.trg.vocab.yml
"""
LAYER = {  # the published table, from Marian's name to that of transformers
    "self_Wq": "self_attn.q_proj.weight",
    "self_Wk": "self_attn.k_proj.weight",
    "self_Wv": "self_attn.v_proj.weight",
    "self_Wo": "self_attn.out_proj.weight",
    "self_bq": "self_attn.q_proj.bias",
    "self_bk": "self_attn.k_proj.bias",
    "self_bv": "self_attn.v_proj.bias",
    "self_bo": "self_attn.out_proj.bias",
    "self_Wo_ln_scale": "self_attn_layer_norm.weight",
    "self_Wo_ln_bias": "self_attn_layer_norm.bias",
    "ffn_W1": "fc1.weight",
    "ffn_b1": "fc1.bias",
    "ffn_W2": "fc2.weight",
    "ffn_b2": "fc2.bias",
    "ffn_ffn_ln_scale": "final_layer_norm.weight",
    "ffn_ffn_ln_bias": "final_layer_norm.bias",
    "context_Wk": "encoder_attn.k_proj.weight",
    "context_Wo": "encoder_attn.out_proj.weight",
    "context_Wq": "encoder_attn.q_proj.weight",
    "context_Wv": "encoder_attn.v_proj.weight",
    "context_bk": "encoder_attn.k_proj.bias",
    "context_bo": "encoder_attn.out_proj.bias",
    "context_bq": "encoder_attn.q_proj.bias",
    "context_bv": "encoder_attn.v_proj.bias",
    "context_Wo_ln_scale": "encoder_attn_layer_norm.weight",
    "context_Wo_ln_bias": "encoder_attn_layer_norm.bias",
}


def marian_positions(rows: int, d_model: int) -> np.ndarray:
    """Return the table of marian-dev, `node_initializers.cpp`, as its loop computes it."""
    table = np.zeros((rows, d_model), dtype=np.float32)
    scales = d_model / 2
    increment = np.log(10000.0) / (scales - 1)
    for p in range(rows):
        for i in range(int(scales)):
            v = p * np.exp(i * -increment)
            table[p, i], table[p, int(scales) + i] = np.sin(v), np.cos(v)
    return table


@dataclass(frozen=True)
class Case:
    directory: Path
    theirs: Any
    tokenizer: Any
    ours: Translator
    output: str


def make_theirs(sizes: tuple[int, int], tying: str, *, is_pre: bool, activation: str) -> nn.Module:
    """Return a random model of transformers that computes as Marian does."""
    pad = max(sizes)
    ids = {"pad_token_id": pad, "decoder_start_token_id": pad, "bos_token_id": 0, "eos_token_id": 0}
    rows = pad + 1
    settings = {**SHAPE, **ids, "vocab_size": rows, "activation_function": activation, "forced_eos_token_id": None}
    torch.manual_seed(3)
    if is_pre:
        theirs = transformers.PegasusForConditionalGeneration(transformers.PegasusConfig(**settings))
    else:
        theirs = transformers.MarianMTModel(
            transformers.MarianConfig(
                **settings,
                decoder_vocab_size=rows,
                share_encoder_decoder_embeddings=tying == "all",
                tie_word_embeddings=tying != "none",
            )
        )
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if "embed_positions" in name:
                weight.copy_(torch.from_numpy(marian_positions(*weight.shape)))
            elif weight.dim() == 1:
                weight.normal_(mean=float("norm.weight" in name), std=0.3)
            elif "embed_tokens" in name or "shared" in name or "lm_head" in name:
                weight.normal_(std=0.3)
            else:
                weight.normal_(std=0.25)
        for matrix in (theirs.model.encoder.embed_tokens, theirs.model.decoder.embed_tokens, theirs.lm_head):
            matrix.weight[pad] = 0.0  # from which it starts
        theirs.final_logits_bias.normal_(std=0.3)
        theirs.final_logits_bias[0, 0] += 2.0  # so that translations end
    for module in theirs.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-6  # Marian's
    return theirs.eval()


def write_npz(path: Path, theirs: nn.Module, sizes: tuple[int, int], tying: str, options: str, *, is_pre: bool) -> None:
    """Write their weights as Marian does."""
    state = {name: tensor.numpy() for name, tensor in theirs.state_dict().items()}
    arrays: dict[str, np.ndarray] = {}
    for side, count in (("encoder", SHAPE["encoder_layers"]), ("decoder", SHAPE["decoder_layers"])):
        for number in range(count):
            for name, there in LAYER.items():
                found = state.get(f"model.{side}.layers.{number}.{there}")
                if found is not None:
                    suffix = "_pre" if is_pre and "_ln_" in name else ""
                    arrays[f"{side}_l{number + 1}_{name}{suffix}"] = found.T if found.ndim == 2 else found[None]
        if is_pre:
            arrays[f"{side}_top_ln_scale"] = state[f"model.{side}.layer_norm.weight"][None]
            arrays[f"{side}_top_ln_bias"] = state[f"model.{side}.layer_norm.bias"][None]
    embeddings = {side: state[f"model.{side}.embed_tokens.weight"] for side in ("encoder", "decoder")}
    if tying == "all":
        arrays["Wemb"] = embeddings["encoder"][: sizes[0]]
    else:
        arrays["encoder_Wemb"] = embeddings["encoder"][: sizes[0]]
        arrays["decoder_Wemb"] = embeddings["decoder"][: sizes[1]]
    if tying == "none":
        arrays["decoder_ff_logit_out_Wt"] = state["lm_head.weight"][: sizes[1]]
    arrays["decoder_ff_logit_out_b"] = state["final_logits_bias"][:, : sizes[1]]
    arrays["special:model.yml"] = np.frombuffer(options.encode() + b"\0", dtype=np.int8)
    np.savez(path, **arrays)


def write_yml(path: Path, pieces: list[str]) -> None:
    """Write a vocabulary as yaml-cpp does: quoted where a name would be read as something else."""
    path.write_text(
        "".join(f"{json.dumps(piece, ensure_ascii=False)}: {number}\n" for number, piece in enumerate(pieces))
    )


CASES = {
    "post, all tied, one vocabulary": ("all", False, "swish", "yml"),
    "post, the output tied, two vocabularies": ("output", False, "relu", "spm"),
    "post, nothing tied, two vocabularies": ("none", False, "swish", "yml"),
    "pre, all tied, one vocabulary": ("all", True, "relu", "spm"),
}
IN_EVERY_RUN = {"post, nothing tied, two vocabularies", "pre, all tied, one vocabulary"}


@pytest.fixture(scope="module", params=[name if name in IN_EVERY_RUN else slow(name) for name in CASES])
def case(request, tmp_path_factory) -> Case:
    tying, is_pre, activation, kind = CASES[request.param]
    directory = tmp_path_factory.mktemp("marian") / "opus"
    directory.mkdir()
    numbered = {"eos_id": 0, "unk_id": 1, "bos_id": -1}  # as Marian trains them
    lines = list(zip(*pairs("en", "de"), strict=True))
    source = sentencepiece_model([*lines[0], *texts()[:400]], 260, **numbered)
    target = (
        source
        if tying == "all" and kind == "spm"
        else sentencepiece_model([*lines[1], *texts()[:400]], 280, **numbered)
    )
    (directory / "source.spm").write_bytes(source)
    (directory / "target.spm").write_bytes(target)
    vocabularies = [pieces_of(source), pieces_of(target)]
    if tying == "all" and kind == "yml":
        both = [*vocabularies[0], *(piece for piece in vocabularies[1] if piece not in vocabularies[0])]
        vocabularies = [both, both]
    names = ["source.spm", "target.spm"]
    if kind == "yml":
        names = ["opus.src.vocab.yml", "opus.trg.vocab.yml"]
        for name, pieces in zip(names, vocabularies, strict=True):
            write_yml(directory / name, pieces)
    sizes = (len(vocabularies[0]), len(vocabularies[1]))
    theirs = make_theirs(sizes, tying, is_pre=is_pre, activation=activation)
    flags = {"tied": tying == "output", "all": tying == "all", "src": False, "no_bias": False}
    options = OPTIONS.format(
        source=sizes[0],
        target=sizes[1],
        activation=activation,
        before="n" if is_pre else '""',
        behind="da" if is_pre else "dan",
        top="n" if is_pre else '""',
        **{name: str(flag).lower() for name, flag in flags.items()},
    )
    write_npz(directory / "opus.model1.npz", theirs, sizes, tying, options, is_pre=is_pre)
    search = {"models": ["opus.model1.npz"], "vocabs": [f"/fs/train/{name}" for name in names]}
    lines_of_yml = [f"{key}:\n" + "".join(f"  - {name}\n" for name in value) for key, value in search.items()]
    (directory / "decoder.yml").write_text(
        "relative-paths: true\nbeam-size: 6\nnormalize: 0.8\n" + "".join(lines_of_yml)
    )
    path = tmp_path_factory.mktemp("imported") / "model"
    result = CliRunner().invoke(app, ["import", str(directory), "-o", str(path)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    tokenizer = None
    if kind == "yml":
        as_hugging_face = tmp_path_factory.mktemp("tokenizer")
        for name in ("source.spm", "target.spm"):
            shutil.copy(directory / name, as_hugging_face)
        asked: dict[str, Any] = {"source_lang": "en", "target_lang": "de", "tokenizer_class": "MarianTokenizer"}
        for file, pieces in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=True):
            ids = {piece: number for number, piece in enumerate(pieces)} | {"<pad>": max(sizes)}
            (as_hugging_face / file).write_text(json.dumps(ids))
        if tying != "all":
            asked["separate_vocabs"] = True
        (as_hugging_face / "tokenizer_config.json").write_text(json.dumps(asked))
        tokenizer = read_tokenizer(as_hugging_face)
    return Case(directory, theirs, tokenizer, Translator.load(path, device="cpu"), result.output)


def test_the_command_reads_what_decoder_yml_names(case):
    assert "of the kind marian-nmt" in case.output
    assert "not compared with its own library: it has no Python" in case.output
    decode = case.ours.bundle.decode
    assert (decode.beam_size, decode.length_penalty, decode.length_penalty_form) == (6, 0.8, "power")
    config = case.ours.bundle.model.config
    assert (config.positions, config.first_position, config.norm_eps) == ("sinusoidal_t2t", 0, 1e-6)
    assert config.bos_id == config.pad_id == config.vocab_size - 1


def test_logits_are_those_of_transformers(case):
    config = case.ours.bundle.model.config
    generator = torch.Generator().manual_seed(4)
    source, target = (torch.randint(2, 200, (3, length), generator=generator) for length in (9, 7))
    source[1, 5:], target[:, 0] = config.pad_id, config.bos_id
    with torch.inference_mode():
        mask = (source != config.pad_id).long()
        expected = case.theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
        found = case.ours.bundle.model(source, target)
    # Theirs has a logit for padding, which Marian has not.
    torch.testing.assert_close(found[..., : config.pad_id], expected[..., : config.pad_id], rtol=0.0, atol=1e-5)
    assert found.softmax(-1)[..., config.pad_id].max() == 0.0


def test_texts_are_encoded_and_decoded_as_by_transformers(case):
    vocabulary = case.ours.bundle.tokenizer
    lines = ["Ein Hund rennt.", "two  spaces", "日本語 🐕", "", "5. März 2014", "</s> is text"]
    if case.tokenizer is not None:
        for line in lines[:-1]:
            assert vocabulary.encode_sources([line]) == [case.tokenizer(line)["input_ids"]]
        ids = vocabulary.encode_targets(lines)
        assert ids[:-1] == case.tokenizer(text_target=lines[:-1])["input_ids"]
        assert vocabulary.decode_batch(ids[:-1]) == case.tokenizer.batch_decode(ids[:-1], skip_special_tokens=True)
    assert all(row[-1] == 0 and 0 not in row[:-1] for row in vocabulary.encode_sources(lines))


def test_greedy_translations_are_those_of_transformers(case):
    config, ours = case.ours.bundle.model.config, case.ours
    sources = [source for source, _ in pairs("en", "de")[:3]]
    for source, row in zip(sources, ours.bundle.tokenizer.encode_sources(sources), strict=True):
        settings: dict[str, Any] = {"num_beams": 1, "do_sample": False, "max_length": None, "max_new_tokens": LIMIT}
        found = case.theirs.generate(torch.tensor([row]), bad_words_ids=[[config.pad_id]], **settings)[0].tolist()[1:]
        expected = found[: found.index(config.eos_id)] if config.eos_id in found else found[: LIMIT - 1]
        how: Any = {"beam_size": 1, "end_loops": False, "split": "never", "extra_length": LIMIT - len(row)}
        [translation] = ours.translate([source], raw=True, **how)
        assert translation.tokens == tuple(ours.bundle.tokenizer.pieces(expected))


def test_scores_are_those_of_ctranslate2s_reader_of_such_files(case, tmp_path, monkeypatch):
    monkeypatch.setattr(
        marian_converter, "_make_sinusoidal_position_encodings", lambda dim: marian_positions(2048, dim)
    )
    names = [case.directory / name for name in ("opus.src.vocab.yml", "opus.trg.vocab.yml")]
    if not names[0].exists():
        names = [tmp_path / "source.yml", tmp_path / "target.yml"]
        for name, model in zip(names, ("source.spm", "target.spm"), strict=True):
            write_yml(name, pieces_of((case.directory / model).read_bytes()))
    converter = marian_converter.MarianConverter(str(case.directory / "opus.model1.npz"), list(map(str, names)))
    converter.convert(str(tmp_path / "ct2"))
    config = json.loads((tmp_path / "ct2" / "config.json").read_text())
    (tmp_path / "ct2" / "config.json").write_text(json.dumps({**config, "layer_norm_epsilon": 1e-6}))
    theirs = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32")
    sources, targets = map(list, zip(*pairs("en", "de")[:8], strict=True))
    vocabulary = case.ours.bundle.tokenizer
    read = [[vocabulary._source.token(token) for token in row[:-1]] for row in vocabulary.encode_sources(sources)]
    written = [[vocabulary._target.token(token) for token in row[:-1]] for row in vocabulary.encode_targets(targets)]
    expected = [sum(one.log_probs) for one in theirs.score_batch(read, written)]
    assert case.ours.score(sources, targets) == pytest.approx(expected, abs=1e-3)
    for name in ("source.spm", "target.spm"):
        shutil.copy(case.directory / name, tmp_path / "ct2")
    converted, direct = import_path(tmp_path / "ct2").bundle, case.ours.bundle  # two ways, one model
    unsaid = {"max_positions": 1_024, "dropout": 0.0}
    assert resolved(converted.model.config).model_copy(update=unsaid) == resolved(direct.model.config)
    tensors = converted.model.state_dict()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in direct.model.state_dict().items())
    assert converted.tokenizer.encode_sources(sources) == vocabulary.encode_sources(sources)
    assert converted.tokenizer.decode_batch(vocabulary.encode_targets(targets)) == targets


def test_npz_file_with_its_own_decoder_yml_beside_it_is_imported(case, tmp_path):
    directory = Path(shutil.copytree(case.directory, tmp_path / "other"))
    (directory / "decoder.yml").rename(directory / "opus.model1.npz.decoder.yml")
    shutil.copy(directory / "opus.model1.npz", directory / "opus.model2.npz")
    found = import_path(directory / "opus.model1.npz").bundle
    assert found.tokenizer.text == case.ours.bundle.tokenizer.text
    assert found.decode.beam_size == 6


@pytest.mark.parametrize(
    "case",
    ["pre, all tied, one vocabulary", *map(slow, list(CASES)[:3])],
    indirect=True,
)
def test_marian_models_return_from_ctranslate2_and_onnx_bit_for_bit(case, tmp_path):
    expected, path = case.ours.bundle, tmp_path / "ours"
    save_bundle(path, expected)
    for to in ("ctranslate2", "onnx"):
        for arguments in (
            ["export", path, "-o", tmp_path / to, "--to", to],
            ["import", tmp_path / to, "-o", tmp_path / f"{to}-back"],
        ):
            result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
            assert result.exit_code == 0, result.output
        assert (tmp_path / to / "source.spm").exists() != (tmp_path / to / "sentencepiece.model").exists()
        found = load_bundle(tmp_path / f"{to}-back")
        assert (found.model.config, found.decode) == (expected.model.config, expected.decode)
        assert found.tokenizer.sha256 == expected.tokenizer.sha256
        tensors, back = model_tensors(expected.model), model_tensors(found.model)
        assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())
    exported = ["export", str(path), "-o", str(tmp_path / "hf"), "--to", "hf"]
    with pytest.raises(ConfigError, match=r"can hold this one; of the nearest, \w+, differs: .+; --to onnx writes it$"):
        CliRunner().invoke(app, exported, catch_exceptions=False)
    assert not (tmp_path / "hf").exists()
