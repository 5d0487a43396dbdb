"""`clearhead import` of Marian's own files: what must stand there, and what is said of what is damaged or not taken.

What comes in well is compared with transformers and CTranslate2 in tests/reference/test_import_marian_npz.py.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import yaml

from clearhead.bundle import load_bundle
from clearhead.cli.import_model import import_model
from clearhead.cli.translate import translate
from clearhead.errors import ConfigError, ModelError
from clearhead.interop.import_model import import_path
from sentencepiece_models import pieces_of, sentencepiece_model

TEXT = ["ein Hund rennt über die Wiese", "zwei Hunde bellen", "a dog runs", "two dogs bark", "der Mann liest"] * 9
D_MODEL, D_FF = 8, 12
OPTIONS: dict[str, Any] = {
    "type": "transformer",
    "dim-emb": D_MODEL,
    "enc-depth": 1,
    "dec-depth": 2,
    "tied-embeddings-all": True,
    "transformer-heads": 2,
    "transformer-dim-ffn": D_FF,
    "transformer-ffn-activation": "swish",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-dropout": 0.2,
    "vocabs": ["/train/vocab.spm", "/train/vocab.spm"],
    "version": "v1.9.0",
}
WEIGHTS = "model.npz"


def parameters(rows: int, suffix: str = "") -> dict[str, np.ndarray]:
    """Return random parameters of such a model, by the names in Marian's source."""
    rng = np.random.default_rng(5)
    found = {"Wemb": (rows, D_MODEL), "decoder_ff_logit_out_b": (1, rows)}
    for layer in ("encoder_l1", "decoder_l1", "decoder_l2"):
        for part in ("self", "context") if layer.startswith("decoder") else ("self",):
            for letter in "qkvo":
                found[f"{layer}_{part}_W{letter}"] = (D_MODEL, D_MODEL)
                found[f"{layer}_{part}_b{letter}"] = (1, D_MODEL)
            for kind in ("scale", "bias"):
                found[f"{layer}_{part}_Wo_ln_{kind}{suffix}"] = (1, D_MODEL)
        found |= {f"{layer}_ffn_W1": (D_MODEL, D_FF), f"{layer}_ffn_W2": (D_FF, D_MODEL)}
        found |= {f"{layer}_ffn_b1": (1, D_FF), f"{layer}_ffn_b2": (1, D_MODEL)}
        found |= {f"{layer}_ffn_ffn_ln_{kind}{suffix}": (1, D_MODEL) for kind in ("scale", "bias")}
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in found.items()}


def as_array(options: object) -> np.ndarray:
    return np.frombuffer(yaml.safe_dump(options).encode() + b"\0", dtype=np.int8)


def write_model(directory: Path, vocabulary: bytes) -> None:
    """Write a sentencepiece vocabulary, and weights that have a row for each of its pieces."""
    (directory / "vocab.spm").write_bytes(vocabulary)
    rows = len(pieces_of(vocabulary))
    np.savez(directory / WEIGHTS, **parameters(rows), **{"special:model.yml": as_array(OPTIONS)})


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    """Return a directory with a vocabulary in sentencepiece, as Marian makes it."""
    directory = tmp_path_factory.mktemp("published") / "de-en"
    directory.mkdir()
    write_model(directory, sentencepiece_model(TEXT, 80, eos_id=0, unk_id=1, bos_id=-1))
    search = {"models": ["/train/model.npz"], "vocabs": ["vocab.spm"] * 2, "beam-size": 3, "normalize": 0.6}
    (directory / "decoder.yml").write_text(yaml.safe_dump(search))
    return directory


@pytest.fixture
def directory(published, tmp_path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "there"))


def edit(change: Callable[[dict[str, np.ndarray]], Any]) -> Callable[[Path], None]:
    """Return what changes the arrays of a directory's .npz."""

    def apply(directory: Path) -> None:
        with np.load(directory / WEIGHTS) as arrays:
            found = dict(arrays)
        change(found)
        np.savez(directory / WEIGHTS, **found)

    return apply


def options(**changed: Any) -> Callable[[Path], None]:
    values = {name.replace("_", "-"): value for name, value in changed.items()}
    return edit(lambda arrays: arrays.update({"special:model.yml": as_array({**OPTIONS, **values})}))


def search(**changed: Any) -> Callable[[Path], None]:
    values = {name.replace("_", "-"): value for name, value in changed.items()}

    def apply(directory: Path) -> None:
        path = directory / "decoder.yml"
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **values}))

    return apply


def bytes_of(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(directory: Path) -> None:
        (directory / WEIGHTS).write_bytes(change((directory / WEIGHTS).read_bytes()))

    return apply


def with_pickle(arrays: dict[str, np.ndarray]) -> None:
    arrays["more"] = np.array([{"a": 1}], dtype=object)


def pack_zeros(directory: Path) -> None:
    with zipfile.ZipFile(directory / WEIGHTS, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Wemb.npy", b"\0" * 4_000_000)


def as_yml(directory: Path, change: Callable[[dict[str, int]], Any] = lambda ids: None) -> None:
    """Give the vocabulary as OPUS does: numbers of pieces, and a sentencepiece model for each side."""
    data = (directory / "vocab.spm").read_bytes()
    own = sentencepiece.SentencePieceProcessor(model_proto=data)
    ids = {own.id_to_piece(number): number for number in range(own.get_piece_size())}
    change(ids)
    (directory / "vocab.yml").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    for name in ("source.spm", "target.spm"):
        (directory / name).write_bytes(data)
    search(vocabs=["vocab.yml", "vocab.yml"])(directory)


def test_a_vocabulary_of_nematus_names_end_and_unknown_pieces_otherwise(directory):
    as_yml(directory, lambda ids: ids.update({"eos": ids.pop("</s>"), "UNK": ids.pop("<unk>")}))
    tokenizer = import_path(directory).bundle.tokenizer
    [ids] = tokenizer.encode_sources(["☃"])
    assert ids[-2:] == [1, 0]
    assert tokenizer.decode([1, 0]) == ""


def test_end_and_unknown_pieces_of_a_sentencepiece_model_have_any_name(directory):
    ids = {"eos_id": 5, "unk_id": 3, "bos_id": -1, "pad_id": -1, "eos_piece": "[END]", "unk_piece": "[UNK]"}
    write_model(directory, sentencepiece_model(TEXT, 60, **ids))
    tokenizer = import_path(directory).bundle.tokenizer
    [ids] = tokenizer.encode_sources(["☃"])
    assert ids[-2:] == [3, 5]
    assert tokenizer.eos_id == 5
    assert tokenizer.decode([3, 5]) == ""


def with_gap(ids: dict[str, int]) -> None:
    ids["</s>"] = 999


def without_a_model(directory: Path) -> None:
    as_yml(directory)
    (directory / "target.spm").unlink()


def test_import_of_a_marian_directory_writes_a_model(directory, tmp_path, run_command):
    search(word_penalty=0.3)(directory)
    (directory / "README.md").write_text("# The original's card\n")
    output = tmp_path / "ours"
    said = run_command(import_model, directory, "-o", output)
    assert "of the kind marian-nmt" in said.stdout
    assert "not compared with its own library: it has no Python" in said.stdout
    assert "word-penalty = 0.3 is not taken over" in said.stderr
    bundle = load_bundle(output)
    assert (bundle.decode.beam_size, bundle.decode.length_penalty, bundle.decode.familiar) == (3, 0.6, False)
    assert (bundle.model.config.dropout, bundle.model.config.activation) == (0.2, "silu")
    assert bundle.info["imported_from"]["weights_sha256"].keys() == {WEIGHTS}
    assert "# The original's card" in (output / "README.md").read_text()
    assert len(run_command(translate, output, stdin="ein Hund\n\nzwei\n").stdout.splitlines()) == 3


def test_marian_import_without_decoder_yml_uses_defaults_and_the_vocabulary_beside_it(directory):
    (directory / "decoder.yml").unlink()
    bundle = import_path(directory).bundle
    assert (bundle.decode.beam_size, bundle.decode.length_penalty) == (12, 0.0)  # of marian-decoder
    assert bundle.tokenizer.encode("ein Hund") == import_path(directory / WEIGHTS).bundle.tokenizer.encode("ein Hund")


def test_target_lang_selects_a_language_tag_of_a_multilingual_vocabulary(directory):
    as_yml(directory, lambda ids: ids.update({">>deu<<": ids.pop("M"), ">>fra<<": ids.pop("k")}))
    bundle = import_path(directory, target_lang="fra").bundle
    assert bundle.decode.target_lang == "fra"
    [plain] = bundle.tokenizer.encode_sources(["ein Hund"])
    [told] = bundle.tokenizer.encode_sources(["<2deu> ein Hund"])
    assert told == [bundle.tokenizer.language_tags["deu"], *plain]
    with pytest.raises(ConfigError, match="unknown target language 'xx'"):
        import_path(directory, target_lang="xx")


def test_pieces_that_yaml_would_read_as_something_else_are_pieces(directory):
    names = ["null", "~", "1", "no", "<<", "1.5", "0x1F"]

    def rename(ids: dict[str, int]) -> None:
        for name, old in zip(names, list(ids)[-len(names) :], strict=True):
            ids[name] = ids.pop(old)

    as_yml(directory, rename)
    ids = json.loads((directory / "vocab.yml").read_text(encoding="utf-8"))
    plain = "".join(f"{piece if piece in names else json.dumps(piece)}: {number}\n" for piece, number in ids.items())
    (directory / "vocab.yml").write_text(plain, encoding="utf-8")
    tokenizer = import_path(directory).bundle.tokenizer
    assert [tokenizer.pieces([ids[name]])[0] for name in names] == names


DAMAGED = {
    ModelError: [
        (bytes_of(lambda data: b""), "model.npz is damaged"),
        (bytes_of(lambda data: b"no archive" * 9), "model.npz is damaged"),
        (bytes_of(lambda data: data[: len(data) // 2]), "model.npz is damaged"),
        (bytes_of(lambda data: data.replace(b"NUMPY", b"DUMPY", 1)), "model.npz is damaged"),
        (edit(with_pickle), "model.npz is damaged.*allow_pickle=False"),
        (pack_zeros, "would be more than 16 times as long unpacked"),
        (edit(lambda a: a.pop("special:model.yml")), "has no special:model.yml, and is no model of Marian"),
        (edit(lambda a: a.update({"special:model.yml": as_array([1])})), "must hold settings by name"),
        (edit(lambda a: a.update({"special:model.yml": np.zeros(3, np.int8)})), "special:model.yml is damaged"),
        (edit(lambda a: a["Wemb"].__setitem__((0, 0), np.nan)), "Wemb has numbers that are not finite"),
        (edit(lambda a: a.update(Wemb=a["Wemb"].astype(np.int8))), "Wemb is in int8"),
        (edit(lambda a: a.update(Wemb=a["Wemb"][:, 0])), r"Wemb  \(36,\), not of 2 axes"),
        (edit(lambda a: a.update(Wemb=a["Wemb"][:9])), "for 9 pieces, and vocab.spm belongs to"),
        (edit(lambda a: a.update(Wemb=a["Wemb"][0, 0])), r"Wemb  \(\), not of 2 axes"),
        (edit(lambda a: a.pop("encoder_l1_ffn_W1")), "missing   encoder_l1_ffn_W1"),
        (edit(lambda a: a.update(encoder_l1_ffn_W3=a["Wemb"])), "unknown   encoder_l1_ffn_W3"),
        (edit(lambda a: a.update(encoder_l1_ffn_W1=a["encoder_l1_ffn_W1"].T)), "shape .*up_proj.weight"),
        (options(enc_depth=2), "missing   encoder_l2_"),
        (options(tied_embeddings_all=False), "missing   encoder_Wemb"),
        (search(vocabs=["other.spm"] * 2), "cannot read .*other.spm"),
        (search(models=["one.npz", "two.npz"]), "does not hold one model of Marian"),
        (search(models=["other.npz"]), "cannot read .*other.npz"),
        (lambda d: (d / "decoder.yml").write_text("a: [1"), "decoder.yml is damaged"),
        (lambda d: (d / "decoder.yml").write_text("- !!python/object/apply:os.system [ls]"), "is damaged"),
        (lambda d: (d / "vocab.spm").write_bytes(b"no model"), "vocab.spm is damaged"),
        (without_a_model, "has no target.spm, the sentencepiece model that gives the pieces of"),
        (lambda d: as_yml(d, with_gap), "vocab.yml is damaged: it must give every piece a number"),
        (lambda d: as_yml(d, lambda ids: ids.update(more=len(ids))), "has rows for"),
        (lambda d: as_yml(d, lambda ids: ids.update({"no": ids.pop("<unk>")})), "has no piece <unk>"),
    ],
    ConfigError: [
        (options(type="amun"), "type is 'amun', but must be 'transformer'"),
        (options(type="s2s"), "type is 's2s'"),
        (
            options(transformer_decoder_autoreg="average-attention"),
            "decoder-autoreg is 'average-attention', but must be 'self-attention'",
        ),
        (options(transformer_decoder_autoreg="rnn"), "transformer-decoder-autoreg is 'rnn'"),
        (options(transformer_ffn_activation="gelu"), "ffn-activation is 'gelu'; those we have"),
        (options(transformer_tied_layers=[1, 1]), "transformer-tied-layers is"),
        (options(transformer_postprocess="dhn"), "'', 'hn'"),
        (options(transformer_postprocess="da"), "our norms stand before"),
        (options(transformer_postprocess_top="a"), "our norms stand before"),
        (options(transformer_train_position_embeddings=True), "train-position-embeddings is True"),
        (options(lemma_dim_emb=4), "lemma-dim-emb is 4.*factored vocabularies are not supported"),
        (options(dim_emb="wide"), "d_model"),
        (options(dim_emb=None), "there: .*d_model"),
        (options(transformer_ffn_activation=["swish"]), "ffn-activation is"),
        (options(enc_depth=0), "enc-depth is 0"),
        (options(transformer_heads=3), "num_heads"),
        (search(vocabs=["vocab.fsv", "vocab.fsv"]), "vocab.fsv is none of .spm, .yml and .json"),
        (search(vocabs=["vocab.spm"]), "must name two vocabularies"),
        (search(beam_size="many"), "beam_size"),
    ],
}


@pytest.mark.parametrize(
    ("error", "damage", "message"), [(error, *case) for error, cases in DAMAGED.items() for case in cases]
)
def test_damaged_or_unsupported_marian_models_are_rejected_and_nothing_is_written(
    directory, reject_import, damage, error, message
):
    damage(directory)
    reject_import(directory, error, message)


def test_every_option_that_cannot_be_expressed_is_named_at_once(directory):
    options(transformer_ffn_depth=3, transformer_pool=True, right_left=True)(directory)
    with pytest.raises(ConfigError, match=r"right-left is True.*transformer-ffn-depth is 3.*transformer-pool is True"):
        import_path(directory)


def test_norms_before_the_sub_layers_may_end_without_one(directory):
    with np.load(directory / WEIGHTS) as arrays:
        rows = len(arrays["Wemb"])
    values = {**OPTIONS, "transformer-preprocess": "n", "transformer-postprocess": "da"}
    np.savez(directory / WEIGHTS, **parameters(rows, "_pre"), **{"special:model.yml": as_array(values)})
    config = import_path(directory).bundle.model.config
    assert (config.norm, config.final_norm, config.embedding_norm) == ("pre", False, False)
