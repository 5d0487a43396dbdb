"""Requirements on files of fairseq, OpenNMT-py, eole and JoeyNMT, and the errors for files that lack them.

Of a file that is damaged one line names it and the key; nothing is written. What splits words is that of its own
library.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import toolkit_models
import torch
import yaml
from safetensors.torch import load_file, save_file
from sentencepiece import sentencepiece_model_pb2
from toolkit_models import Style, eole, fairseq, joeynmt, opennmt
from typer.testing import CliRunner

from clearhead.cli.main import app
from clearhead.errors import ConfigError, ModelError
from clearhead.interop.import_model import import_path
from clearhead.interop.readers.foreign_config import read_yaml
from clearhead.translation.translator import Translator
from every_run import one_in
from sentencepiece_models import pieces_of, sentencepiece_model

BIASES = {"attention_bias": True, "network_bias": True}


class RunsCode:
    def __reduce__(self):
        return os.system, ("touch was_run",)


@pytest.fixture(autouse=True)
def untaught(monkeypatch, tmp_path):
    """Take models as they are drawn, for here nothing is translated well."""
    monkeypatch.setattr(toolkit_models, "STEPS", 0)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def there(tmp_path) -> Path:
    path = tmp_path / "there"
    path.mkdir()
    return path


def change_checkpoint(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    checkpoint = torch.load(path, weights_only=False)
    change(checkpoint)
    torch.save(checkpoint, path)


def args(**values: object) -> Callable[[Path], None]:
    """Change arguments of fairseq, or options of OpenNMT-py; None takes one away."""

    def change(directory: Path) -> None:
        [path] = directory.glob("*.pt")

        def update(checkpoint):
            held = vars(checkpoint["args" if "args" in checkpoint else "opt"])
            held.update(values)
            for name in [name for name, value in values.items() if value is None]:
                del held[name]

        change_checkpoint(path, update)

    return change


def tensors(key: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(directory: Path) -> None:
        [path] = [path for path in directory.iterdir() if path.suffix in (".pt", ".ckpt")]
        change_checkpoint(path, lambda checkpoint: change(checkpoint[key]))

    return apply


def lines(name: str, change: Callable[[list[str]], object]) -> Callable[[Path], None]:
    def apply(directory: Path) -> None:
        found = (directory / name).read_text().splitlines()
        change(found)
        (directory / name).write_text("".join(f"{line}\n" for line in found))

    return apply


def settings(name: str, **changes: object) -> Callable[[Path], None]:
    """Change a JSON or YAML file at places such as `model__encoder__type`."""

    def apply(directory: Path) -> None:
        path = directory / name
        is_json = path.suffix == ".json"
        values = json.loads(path.read_text()) if is_json else yaml.safe_load(path.read_text())
        for place, value in changes.items():
            *within, last = place.split("__")
            group = values
            for key in within:
                group = group.setdefault(key, {})
            group[last] = value
        path.write_text(json.dumps(values) if is_json else yaml.safe_dump(values))

    return apply


def spoil(name: str) -> Callable[[dict[str, torch.Tensor]], None]:
    def apply(state: dict[str, torch.Tensor]) -> None:
        state[name].view(-1)[0] = float("nan")

    return apply


def copy_checkpoint(directory: Path) -> None:
    (directory / "checkpoint_best.pt").rename(directory / "model1.pt")
    (directory / "model2.pt").write_bytes(b"")


FAIRSEQ = {
    "no dictionary": (lambda d: (d / "dict.en.txt").unlink(), ModelError, r"cannot read .*dict\.en\.txt"),
    "no dictionaries": (
        lambda d: [path.unlink() for path in d.glob("dict.*")],
        ModelError,
        r"checkpoint_best\.pt is no checkpoint of OpenNMT-py.*one of fairseq needs dict\.<language>\.txt beside it",
    ),
    "too many words": (
        lines("dict.en.txt", lambda words: words.append("more 1")),
        ModelError,
        r"dict\.en\.txt makes 25 words, special ones included, and the embedding in .*checkpoint_best\.pt has 24 rows",
    ),
    "no count": (lines("dict.en.txt", lambda words: words.insert(2, "word")), ModelError, r"line 3: 'word' is no word"),
    "a word twice": (lines("dict.en.txt", lambda words: words.insert(2, words[0])), ModelError, "is in it twice"),
    "not text": (lambda d: (d / "dict.en.txt").write_bytes(b"\xff\xfe 1\n"), ModelError, r"dict\.en\.txt is damaged"),
    "a convolution": (
        args(arch="fconv_iwslt_de_en"),
        ConfigError,
        "arch is 'fconv_iwslt_de_en', but must be",
    ),
    "no size": (args(encoder_layers=None), ConfigError, r"checkpoint_best\.pt cannot .*: encoder_layers is missing"),
    "two widths": (
        args(decoder_ffn_embed_dim=8),
        ConfigError,
        r"encoder_ffn_embed_dim \(20\) and decoder_ffn",
    ),
    "two norms": (args(encoder_normalize_before=True), ConfigError, "decoder_normalize_before"),
    "a softmax of parts": (args(adaptive_softmax_cutoff=[9]), ConfigError, r"adaptive_softmax_cutoff is \[9\]"),
    "layers left out": (args(encoder_layers_to_keep="0,1"), ConfigError, "encoder_layers_to_keep is '0,1'"),
    "heads that do not fit": (
        args(encoder_attention_heads=5, decoder_attention_heads=5),
        ConfigError,
        r"checkpoint_best\.pt cannot .* multiple",
    ),
    "a language elsewhere": (args(target_lang="../en"), ModelError, "does not say its languages"),
    "no languages": (args(source_lang=None), ModelError, "does not say its languages, which name its dictionaries"),
    "no settings": (
        lambda d: change_checkpoint(d / "checkpoint_best.pt", lambda c: c.update(args=None, cfg=[1])),
        ModelError,
        r"says nothing of its model: neither args nor cfg\.model",
    ),
    "no model": (
        lambda d: change_checkpoint(d / "checkpoint_best.pt", lambda c: c.pop("model")),
        ModelError,
        r"checkpoint_best\.pt has no 'model' with tensors",
    ),
    "no number": (
        tensors("model", spoil("encoder.layers.0.fc1.weight")),
        ModelError,
        r"checkpoint_best\.pt: model: the tensor encoder\.layers\.0\.fc1\.weight has numbers that are not finite",
    ),
    "no weight": (
        tensors("model", lambda state: state.pop("decoder.layers.1.fc2.weight")),
        ModelError,
        r"missing   decoder\.layers\.1\.fc2\.weight",
    ),
    "experts": (
        tensors("model", lambda state: state.update({"encoder.layers.0.moe_layer.gate": torch.ones(2, 2)})),
        ModelError,
        r"unknown   encoder\.layers\.0\.moe_layer\.gate",
    ),
    "an embedding without rows": (
        tensors("model", lambda state: state.update({"encoder.embed_tokens.weight": torch.tensor(1.0)})),
        ModelError,
        "has 0 rows",
    ),
    "a program": (args(user_dir=RunsCode()), ModelError, r"checkpoint_best\.pt holds more than tensors and settings"),
    "nothing": (lambda d: (d / "checkpoint_best.pt").write_bytes(b""), ModelError, "cannot read the checkpoint"),
    "several": (copy_checkpoint, ModelError, r"holds 2 checkpoints: name one, such as .*there/model1\.pt"),
    "several codes": (
        lambda d: [(d / name).write_text("a b\n") for name in ("code", "bpecodes")],
        ModelError,
        r"several files that may split text into subwords \(bpecodes, code\)",
    ),
    "damaged codes": (lambda d: (d / "bpecodes").write_text("abc\n"), ModelError, "its pair of codes 1 is 'abc'"),
    "no sentencepiece": (lambda d: (d / "spm.model").write_bytes(b"noise"), ModelError, "tokenizer in .* does not fit"),
}

OPENNMT = {
    "another encoder": (args(encoder_type="brnn"), ConfigError, "encoder_type is 'brnn', but must be 'transformer'"),
    "relative positions": (args(max_relative_positions=20), ConfigError, "max_relative_positions is 20, but must be 0"),
    "average attention": (args(self_attn_type="average"), ConfigError, "self_attn_type is 'average'; those we have"),
    "experts": (args(num_experts=4), ConfigError, "num_experts is 4"),
    "another activation": (args(pos_ffn_activation_fn=["relu"]), ConfigError, "pos_ffn_activation_fn is"),
    "another width": (args(tgt_word_vec_size=8), ConfigError, "tgt_word_vec_size"),
    "no settings": (
        lambda d: change_checkpoint(d / "model_step_7.pt", lambda c: c.pop("opt")),
        ModelError,
        "is no checkpoint of OpenNMT-py: opt holds no settings by name$",
    ),
    "no vocabulary": (
        lambda d: change_checkpoint(d / "model_step_7.pt", lambda c: c.pop("vocab")),
        ModelError,
        r"model_step_7\.pt: vocab\.src holds no list of words",
    ),
    "a vocabulary of something else": (
        tensors("vocab", lambda vocab: vocab.update(src=Namespace(fields=[("src", Namespace(vocab=3))]))),
        ModelError,
        r"vocab\.src holds no list of words",
    ),
    "too few words": (
        tensors("vocab", lambda vocab: vocab["tgt"].pop()),
        ModelError,
        "makes 20 words, .* 21 rows",
    ),
    "no start": (
        tensors("vocab", lambda vocab: vocab.update(decoder_start_token="<go>")),
        ModelError,
        "vocab lacks the special token '<go>'",
    ),
    "two paddings": (
        tensors("vocab", lambda vocab: vocab["src"].reverse()),
        ModelError,
        "<blank> has another number in the source than in the target",
    ),
    "no number": (
        tensors("generator", spoil("bias")),
        ModelError,
        "generator: the tensor bias has numbers",
    ),
    "no weights": (
        lambda d: change_checkpoint(d / "model_step_7.pt", lambda c: c.pop("model")),
        ModelError,
        r"cannot read the weights .*model_step_7\.safetensors",
    ),
    "other sinusoids": (
        tensors("model", lambda state: state["encoder.embeddings.make_embedding.pe.pe"].add_(0.5)),
        ModelError,
        r"differs   encoder\.embeddings\.make_embedding\.pe\.pe from what this model computes",
    ),
}


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def apply(directory: Path) -> None:
        path = directory / "model.00.safetensors"
        state = load_file(path)
        change(state)
        save_file(state, path)

    return apply


EOLE = {
    "a decoder alone": (
        settings("config.json", model__architecture="transformer_lm"),
        ConfigError,
        "must be 'transformer'",
    ),
    "rotary positions": (
        settings("config.json", model__embeddings__position_encoding_type="Rotary"),
        ConfigError,
        r"config\.json cannot be expressed here: position_encoding_type is 'Rotary'",
    ),
    "fewer keys": (settings("config.json", model__decoder__heads_kv=1), ConfigError, r"model\.decoder\.heads_kv is 1"),
    "two widths": (
        settings("config.json", model__decoder__transformer_ff=9),
        ConfigError,
        r"model\.encoder\.transformer_ff",
    ),
    "no model": (settings("config.json", model=[]), ConfigError, r"config\.json: model must hold settings by name"),
    "no settings": (lambda d: (d / "config.json").unlink(), ModelError, r"cannot read .*config\.json"),
    "no vocabulary": (lambda d: (d / "vocab.json").unlink(), ModelError, r"cannot read .*vocab\.json"),
    "a damaged vocabulary": (settings("vocab.json", src=[1]), ModelError, "must hold src and tgt as lists of words"),
    "a vocabulary of noise": (lambda d: (d / "vocab.json").write_text("{"), ModelError, r"vocab\.json is damaged"),
    "too few words": (settings("vocab.json", tgt=["<s>"]), ModelError, r"vocab\.json makes 1 words, .* tgt_emb"),
    "a scale": (
        weights(lambda state: state["decoder.transformer_layers.1.layer_scalar"].mul_(2)),
        ModelError,
        r"differs   decoder\.transformer_layers\.1\.layer_scalar",
    ),
    "a part of the weights": (
        weights(lambda state: state.pop("encoder.layer_norm.weight")),
        ModelError,
        r"missing   encoder\.layer_norm\.weight",
    ),
    "no number": (
        weights(spoil("generator.bias")),
        ModelError,
        r"model\.00\.safetensors: the tensor generator\.bias has numbers",
    ),
}

JOEYNMT = {
    "a recurrent encoder": (
        settings("config.yaml", model__encoder__type="recurrent"),
        ConfigError,
        r"config\.yaml cannot .* model\.encoder\.type is 'recurrent', but must be 'transformer'",
    ),
    "norms that mix": (
        settings("config.yaml", model__encoder__layer_norm=None, model__decoder__layer_norm=None),
        ConfigError,
        r"model\.encoder\.layer_norm is None, but must be 'pre' or 'post'",
    ),
    "two scales": (
        settings("config.yaml", model__decoder__embeddings__scale=False),
        ConfigError,
        r"model\.encoder\.scale is True, and model\.decoder\.scale False",
    ),
    "another residual": (settings("config.yaml", model__encoder__alpha=1.5), ConfigError, "alpha is 1.5"),
    "letters": (settings("config.yaml", data__src__level="char"), ConfigError, r"data\.src is split by 'char'"),
    "no codes": (
        settings("config.yaml", data__trg__level="bpe", data__trg__tokenizer_type="subword-nmt"),
        ConfigError,
        r"data\.trg\.tokenizer_cfg\.codes is missing",
    ),
    "codes that are elsewhere": (
        settings(
            "config.yaml",
            data__trg__level="bpe",
            data__trg__tokenizer_type="subword-nmt",
            data__trg__tokenizer_cfg={"codes": "data/codes.en"},
        ),
        ModelError,
        r"cannot read .*there/codes\.en",
    ),
    "another mark": (
        settings("config.yaml", data__src__tokenizer_cfg={"separator": "~"}),
        ConfigError,
        "separator is '~', but must be '@@'",
    ),
    "languages": (
        settings("config.yaml", data__special_symbols={"lang_tags": ["<de>"]}),
        ConfigError,
        r"data\.special_symbols has prompts or languages",
    ),
    "no settings": (
        settings("config.yaml", model=None),
        ConfigError,
        r"config\.yaml: model must hold settings",
    ),
    "a list": (lambda d: (d / "config.yaml").write_text("- 1\n"), ModelError, "must hold settings by name"),
    "damaged settings": (lambda d: (d / "config.yaml").write_text("a: [1"), ModelError, r"config\.yaml is damaged"),
    "a program in the settings": (
        lambda d: (d / "config.yaml").write_text("a: !!python/object/apply:os.system ['touch was_run']\n"),
        ModelError,
        r"config\.yaml is damaged: could not determine a constructor",
    ),
    "deep settings": (lambda d: (d / "config.yaml").write_text("[" * 1_999), ModelError, r"config\.yaml is damaged"),
    "no vocabulary": (lambda d: (d / "src_vocab.txt").unlink(), ModelError, r"cannot read .*src_vocab\.txt"),
    "too few words": (
        lines("trg_vocab.txt", lambda words: words.pop()),
        ModelError,
        r"trg_vocab\.txt makes 20 words, special ones included, and trg_embed\.lut\.weight in .* has 21 rows",
    ),
    "no number": (
        tensors("model_state", spoil("src_embed.lut.weight")),
        ModelError,
        r"best\.ckpt: model_state: the tensor src_embed\.lut\.weight",
    ),
    "a program": (
        lambda d: change_checkpoint(d / "best.ckpt", lambda c: c.update(more=RunsCode())),
        ModelError,
        r"best\.ckpt holds more than tensors and settings",
    ),
}

WRITERS = {
    "fairseq": (fairseq, {}, FAIRSEQ),
    "OpenNMT-py": (opennmt, {"style": Style(network_bias=True)}, OPENNMT),
    "eole": (eole, {"style": Style(norm=lambda: torch.nn.LayerNorm(24)), "named": {}}, EOLE),
    "JoeyNMT": (joeynmt, {"style": Style(**BIASES, pre=False, output_bias=False)}, JOEYNMT),
}


@pytest.mark.parametrize(
    "damaged", one_in(2, [(toolkit, damage) for toolkit, (_, _, damages) in WRITERS.items() for damage in damages])
)
def test_damaged_toolkit_models_are_rejected_and_nothing_is_written(there, tmp_path, damaged):
    toolkit, damage = damaged
    write, how, damages = WRITERS[toolkit]
    spoil_it, error, message = damages[damage]
    write(there, **how)
    spoil_it(there)
    before = sorted(tmp_path.iterdir())
    kind = ["--kind", toolkit.lower()] if damage == "no settings" else []
    with pytest.raises(error, match=message) as raised:
        run_import(there, tmp_path / "ours", *kind)
    assert sorted(tmp_path.iterdir()) == before  # neither a model nor the mark of a program
    is_list = "does not fit this kind of model" in str(raised.value)
    assert is_list or "\n" not in str(raised.value)


def run_import(path: Path, output: Path, *options: str) -> str:
    """Run the import command and return its output; exceptions propagate."""
    result = CliRunner().invoke(app, ["import", str(path), "-o", str(output), *options])
    if result.exception is not None:
        raise result.exception
    return result.output


def trained_on(words: list[str]) -> bytes:
    """Return a sentencepiece model."""
    return sentencepiece_model([" ".join(words)] * 9, 60)


def with_words(monkeypatch, *lists: list[str]) -> None:
    """Give the models other words for source and target."""
    monkeypatch.setattr(toolkit_models, "WORDS", lists[0])
    monkeypatch.setattr(toolkit_models, "OTHER_WORDS", lists[-1])


CODES = "#version: 0.2\nl o\nlo w</w>\nlo w\ne r</w>\n"
PARTS = ["lo@@", "low@@", "low", "er", "e@@", "h", "w"]


@pytest.mark.parametrize("name", ["bpecodes", "code", "codes.de"])
def test_codes_beside_a_checkpoint_of_fairseq_split_its_words(there, tmp_path, monkeypatch, name):
    with_words(monkeypatch, PARTS)
    fairseq(there)
    (there / name).write_text(CODES)
    said = run_import(there, tmp_path / "ours")
    tokenizer = Translator.load(tmp_path / "ours").bundle.tokenizer
    assert tokenizer.encode_sources(["low lower eh x"]) == [[6, 5, 7, 8, 9, 3, 2]]
    if name != "codes.de":  # which is for one side alone
        assert tokenizer.encode_targets(["low lower"]) == [[6, 5, 7, 2]]
        assert "no file of codes" not in said
    assert tokenizer.decode([5, 7, 8, 9, 2]) == "lower eh"
    assert "such as tokenized by Moses" in said


def test_codes_of_fastbpe_are_taken_too(there, tmp_path, monkeypatch):
    with_words(monkeypatch, PARTS)
    fairseq(there)
    (there / "bpecodes").write_text("".join(f"{line} 9\n" for line in CODES.splitlines()[1:]))
    run_import(there, tmp_path / "ours")
    assert Translator.load(tmp_path / "ours").bundle.tokenizer.encode("low lower eh") == [6, 5, 7, 8, 9]


def test_each_side_of_fairseq_may_have_a_sentencepiece_model(there, tmp_path, monkeypatch):
    sides = {"de": trained_on(["Hund", "Hunde", "rennt"]), "en": trained_on(["dog", "dogs", "runs"])}
    own = {name: sentencepiece.SentencePieceProcessor(model_proto=model) for name, model in sides.items()}
    pieces = {name: pieces_of(model)[3:] for name, model in sides.items()}
    with_words(monkeypatch, pieces["de"], pieces["en"])
    fairseq(there)
    for name, model in sides.items():
        (there / f"spm.{name}.model").write_bytes(model)
    said = run_import(there, tmp_path / "ours")
    tokenizer = Translator.load(tmp_path / "ours").bundle.tokenizer
    expected = [4 + pieces["de"].index(piece) for piece in own["de"].encode("Hunde rennt", out_type=str)]
    assert tokenizer.encode_sources(["Hunde rennt"]) == [[*expected, 2]]
    [target] = tokenizer.encode_targets(["dogs runs"])
    assert target[:-1] == [4 + pieces["en"].index(piece) for piece in own["en"].encode("dogs runs", out_type=str)]
    assert tokenizer.decode(target) == "dogs runs"
    assert "Moses" not in said


def test_a_dictionary_that_was_written_before_it_was_filled_up_is_filled_up(there, tmp_path):
    fairseq(there)
    lines("dict.en.txt", lambda words: words.__delitem__(slice(-3, None)))(there)
    run_import(there, tmp_path / "ours")
    pieces = Translator.load(tmp_path / "ours").bundle.tokenizer.pieces(range(24))
    assert pieces[-4:] == ["word16 ", "madeupword0000 ", "madeupword0001 ", "madeupword0002 "]


def test_languages_name_the_dictionaries_of_fairseq(there, tmp_path):
    fairseq(there)
    for old, new in (("de", "nds"), ("en", "sco")):
        (there / f"dict.{old}.txt").rename(there / f"dict.{new}.txt")
    path = there / "checkpoint_best.pt"  # which may be named itself
    with pytest.raises(ModelError, match=r"cannot read .*dict\.de\.txt"):
        import_path(path)
    imported = import_path(path, source_lang="nds", target_lang="sco")
    assert imported.bundle.decode.source_lang == "nds"
    joeynmt(there, **WRITERS["JoeyNMT"][1])
    with pytest.raises(ConfigError, match=r"'fr' has no meaning: the model in .* is told no language"):
        import_path(there / "best.ckpt", kind="joeynmt", target_lang="fr")


def joey_level(there: Path, kind: str, file: str, **more: object) -> None:
    key = "model_file" if kind == "sentencepiece" else "codes"
    for side in ("src", "trg"):
        values = {"level": "bpe", "tokenizer_type": kind, "tokenizer_cfg": {key: f"elsewhere/{file}", **more}}
        settings("config.yaml", **{f"data__{side}__{name}": value for name, value in values.items()})(there)


def test_joeynmt_splits_into_parts_that_its_vocabulary_has(there, tmp_path, monkeypatch):
    with_words(monkeypatch, [part for part in PARTS if part != "low"])
    joeynmt(there, **WRITERS["JoeyNMT"][1])
    joey_level(there, "subword-nmt", "codes.txt", pretokenizer="moses")
    settings("config.yaml", data__trg__normalize=True)(there)
    (there / "codes.txt").write_text(CODES)
    said = run_import(there, tmp_path / "ours")
    tokenizer = Translator.load(tmp_path / "ours").bundle.tokenizer
    assert tokenizer.encode_sources(["LOW lower eh"]) == [[4, 9, 5, 6, 7, 8, 3]]  # in small letters; low is lo@@ w
    assert "it learned text that was tokenized by Moses (pretokenizer)" in said
    assert "in Unicode's form NFKC" in said


def test_joeynmt_keeps_sentencepiece_to_its_vocabulary(there, tmp_path, monkeypatch):
    model = trained_on(["hund", "hunde", "rennt"])
    own, pieces = sentencepiece.SentencePieceProcessor(model_proto=model), pieces_of(model)[3:]
    longest = max(own.encode("hunde rennt", out_type=str), key=len)
    pieces.remove(longest)
    with_words(monkeypatch, pieces)
    joeynmt(there, **WRITERS["JoeyNMT"][1])
    joey_level(there, "sentencepiece", "sp.model")
    (there / "sp.model").write_bytes(model)
    run_import(there, tmp_path / "ours")
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    for piece in proto.pieces:
        if piece.piece == longest:
            piece.type = piece.UNUSED
    expected = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString()).encode(
        "hunde rennt", out_type=str
    )
    assert longest not in expected
    tokenizer = Translator.load(tmp_path / "ours").bundle.tokenizer
    assert tokenizer.encode("hunde rennt") == [4 + pieces.index(piece) for piece in expected]
    assert tokenizer.decode(tokenizer.encode("hunde rennt")) == "hunde rennt"


def test_opennmt_names_what_splits_its_text(there, tmp_path, monkeypatch):
    model = trained_on(["hund", "hunde", "rennt"])
    own, pieces = sentencepiece.SentencePieceProcessor(model_proto=model), pieces_of(model)[3:]
    with_words(monkeypatch, pieces)
    names = {"src_subword_model": "data/one.model", "tgt_subword_model": "data/one.model"}
    opennmt(there, style=Style(network_bias=True), **names, transforms=["sentencepiece", "prefix"])
    for name in ("one.model", "other.model"):
        (there / name).write_bytes(model)
    said = run_import(there, tmp_path / "ours")
    expected = [4 + pieces.index(piece) for piece in own.encode("hunde rennt", out_type=str)]
    assert Translator.load(tmp_path / "ours").bundle.tokenizer.encode_sources(["hunde rennt"]) == [expected]
    assert "its transforms prefix are not made here" in said


def test_opennmt_weights_in_safetensors_are_imported(there, tmp_path):
    opennmt(there, **WRITERS["OpenNMT-py"][1])
    whole = import_path(there).bundle.model.state_dict()
    path = there / "model_step_7.pt"
    checkpoint = torch.load(path, weights_only=False)
    state = checkpoint.pop("model") | {f"generator.{name}": one for name, one in checkpoint.pop("generator").items()}
    save_file({name: tensor.clone() for name, tensor in state.items()}, there / "model_step_7.safetensors")
    torch.save(checkpoint, path)
    apart = import_path(path)
    assert all(torch.equal(apart.bundle.model.state_dict()[name], tensor) for name, tensor in whole.items())
    assert set(apart.bundle.info["imported_from"]["weights_sha256"]) == {"model_step_7.pt", "model_step_7.safetensors"}


def test_a_directory_of_transformers_may_hold_what_training_left(there):
    (there / "config.json").write_text('{"model_type": "martian"}')
    torch.save({"state": {}}, there / "optimizer.pt")
    with pytest.raises(ConfigError, match=r"config\.json: models of the kind 'martian'"):
        import_path(there)


def test_a_library_that_is_missing_is_named(there, monkeypatch):
    joeynmt(there, **WRITERS["JoeyNMT"][1])
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ModelError, match=r"config\.yaml is read by PyYAML, which is not installed: pip install"):
        read_yaml(there / "config.yaml")
