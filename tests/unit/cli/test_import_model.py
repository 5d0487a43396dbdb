"""`clearhead import`: what a directory must hold, and what is said of one that is damaged; nothing is written then.

What comes in is compared with its own library in tests/reference/test_import.py.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from clearhead.bundle import load_bundle
from clearhead.cli.import_model import import_model
from clearhead.cli.translate import translate
from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, ModelError
from clearhead.files.tensors import model_tensors
from clearhead.inspection.explain import explain
from clearhead.interop import export_state
from clearhead.interop.import_model import import_path
from clearhead.interop.vocabularies.huggingface_files import their_vocabulary
from clearhead.model import Transformer
from clearhead.runtime.installation import pip_install
from clearhead.translation.translator import Translator
from every_run import slow
from model_forms import T5_FORM
from sentencepiece_models import pieces_of, sentencepiece_model

TEXT = ["ein Hund rennt über die Wiese", "zwei Hunde bellen", "a dog runs", "two dogs bark", "der Mann liest"] * 9


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    """Return a directory as a Marian model is published in."""
    directory = tmp_path_factory.mktemp("published") / "opus-mt-de-en"
    directory.mkdir()
    file = sentencepiece_model(TEXT, 80)
    pieces = ["</s>", "<unk>", *pieces_of(file)[3:], "<pad>"]
    for name in ("source.spm", "target.spm"):
        (directory / name).write_bytes(file)
    (directory / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    settings = {"vocab_size": len(pieces), "pad_id": len(pieces) - 1, "bos_id": len(pieces) - 1, "eos_id": 0}
    sizes = {"d_model": 32, "d_ff": 48, "num_heads": 4, "num_encoder_layers": 1, "num_decoder_layers": 1}
    torch.manual_seed(5)
    model = Transformer(ModelConfig(**settings, **sizes))
    values, tensors = export_state("marian", model.config, model_tensors(model))
    (directory / "config.json").write_text(json.dumps({**values, "num_beams": 3, "no_repeat_ngram_size": 2}))
    (directory / "README.md").write_text("# The original's card\n")
    save_file(tensors, directory / "model.safetensors")
    return directory


@pytest.fixture
def directory(published, tmp_path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "there"))


@pytest.fixture(scope="module")
def published_t5(tmp_path_factory) -> Path:
    """Return a directory as a T5 is published in: more rows than pieces, copies of matrices, and several tasks."""
    directory = tmp_path_factory.mktemp("published") / "t5-tiny"
    directory.mkdir()
    spiece = sentencepiece_model(TEXT, 80, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (directory / "spiece.model").write_bytes(spiece)
    (directory / "tokenizer_config.json").write_text('{"extra_ids": 20}')
    shape = {"d_model": 32, "d_k": 16, "d_v": 16, "d_ff": 64, "num_heads": 2, "vocab_size": 128}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    torch.manual_seed(5)
    model = Transformer(ModelConfig(**shape, **layers, **T5_FORM, output_scale=True, pad_id=0, bos_id=0, eos_id=1))
    values, tensors = export_state("t5", model.config, model_tensors(model))
    unread = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    tasks = {
        "summarization": {"prefix": "summarize: "},
        "other": {"num_beams": 4},
        "en_to_de": {"prefix": "to German: "},
    }
    (directory / "config.json").write_text(json.dumps({**values, "task_specific_params": tasks}))
    state = {**tensors, **{name: tensors["shared.weight"].clone() for name in copies}, unread: torch.ones(32, 2)}
    torch.save(state, directory / "pytorch_model.bin")
    return directory


@pytest.mark.usefixtures("without_their_library")
def test_import_of_a_published_directory_writes_a_model(directory, tmp_path, run_command):
    output = tmp_path / "one of ours"
    (directory / "tokenizer_config.json").write_text('{"source_lang": "nl", "target_lang": "fr"}')
    said = run_command(import_model, directory, "-o", output)
    assert "of the kind marian" in said.stdout
    assert f"not compared with its own library: {pip_install('interop')}, and import again" in said.stdout
    bundle = load_bundle(output)
    assert bundle.decode.no_repeat_ngram_size == 2
    assert (bundle.decode.beam_size, bundle.decode.length_penalty_form, bundle.decode.familiar) == (3, "power", False)
    assert bundle.info["imported_from"]["kind"] == "marian"
    assert bundle.languages == (["nl"], ["fr"])
    assert str(tmp_path) not in (output / "config.json").read_text()  # a model may be given away
    card = (output / "README.md").read_text()
    assert "pieces, exactly the original's: what that loses is lost" in card
    assert "# The original's card" in card
    assert "    clearhead translate 'one of ours' < input.txt" in card
    assert len(run_command(translate, output, stdin="ein Hund\n\nzwei\n").stdout.splitlines()) == 3
    assert explain(Translator.load(output), "ein Hund").decoder_tokens[0] == "<pad>"  # from which Marian starts


@pytest.mark.usefixtures("without_their_library")
def test_clean_up_tokenization_spaces_is_reported_as_not_taken_over(directory, tmp_path, run_command):
    for asked in (True, False):
        (directory / "tokenizer_config.json").write_text(json.dumps({"clean_up_tokenization_spaces": asked}))
        said = run_command(import_model, directory, "-o", tmp_path / str(asked))
        assert ("clean_up_tokenization_spaces is not taken over" in said.stderr) is asked


@pytest.mark.usefixtures("without_their_library")
def test_import_replaces_an_existing_model_only_with_force(directory, tmp_path, run_command):
    output = tmp_path / "ours"
    run_command(import_model, directory, "-o", output)
    (output / "README.md").write_text("mine\n")
    with pytest.raises(ModelError, match=r"there is a model at .*ours; give -o another name, or --force to replace it"):
        run_command(import_model, directory, "-o", output)
    assert (output / "README.md").read_text() == "mine\n"
    run_command(import_model, directory, "-o", output, "--force")
    assert (output / "README.md").read_text() != "mine\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("is_there", [slow(False), True])
@pytest.mark.usefixtures("without_their_library")
def test_a_killed_import_leaves_the_older_model_or_none(
    directory, tmp_path, run_command, monkeypatch, killed_at_flushes, is_there
):
    output = tmp_path / "ours"
    translated = [{"source": "Hund", "text": "dog", "score": -1.0}]
    monkeypatch.setattr("clearhead.conversion.make_golden", lambda _: translated)  # each takes a while
    if is_there:
        run_command(import_model, directory, "-o", output)
    ended = []
    for status in killed_at_flushes(lambda: run_command(import_model, directory, "-o", output, "--force"), every=4):
        ended.append(status)
        if output.exists():
            assert load_bundle(output).golden == translated  # whole, or a checksum would not fit
        assert output.exists() or (not is_there and status)
    assert len(ended) > 3


@pytest.mark.usefixtures("without_their_library")
def test_an_interrupted_import_leaves_nothing_and_can_be_run_again(directory, tmp_path, run_command, monkeypatch):
    before = sorted(tmp_path.iterdir())

    def interrupt(*_):
        raise KeyboardInterrupt

    for at in ("clearhead.conversion.make_golden", "clearhead.bundle.bundle._write_files"):
        with monkeypatch.context() as patched:
            patched.setattr(at, interrupt)
            assert run_command(import_model, directory, "-o", tmp_path / "ours").exit_code == 130
        assert sorted(tmp_path.iterdir()) == before
    assert run_command(import_model, directory, "-o", tmp_path / "ours").exit_code == 0


@pytest.mark.usefixtures("without_their_library")
def test_import_of_t5_notes_its_task_prefixes(published_t5, tmp_path, run_command):
    said = run_command(import_model, published_t5, "-o", tmp_path / "ours")
    note = "a text begins with the one that is asked for: 'summarize: ', 'to German: '"
    assert note in said.stderr
    assert note in (tmp_path / "ours" / "README.md").read_text()
    bundle = load_bundle(tmp_path / "ours")
    assert bundle.model.config.vocab_size == 128
    assert bundle.tokenizer.pieces([0, 1, 2]) == ["<pad>", "</s>", "<unk>"]
    last = bundle.tokenizer.pieces(range(128)).index("<extra_id_0>")
    assert bundle.tokenizer.pieces([last - 19, last + 1, 127]) == ["<extra_id_19>", "", ""]
    assert bundle.tokenizer.decode([last + 1, 127, last, 1]) == ""
    assert len(run_command(translate, tmp_path / "ours", stdin="to German: a dog\n\nx\n").stdout.splitlines()) == 3


INVALID_T5 = {
    ConfigError: [
        ("config.json", {"model_type": "umt5"}, "config.json: .*'umt5' cannot be expressed here: every layer"),
        ("config.json", {"feed_forward_proj": "gated-elu"}, "feed_forward_proj is 'gated-elu'; activations"),
        ("config.json", {"relative_attention_max_distance": 9}, "relative_attention_max_distance .9. must be"),
    ],
    ModelError: [
        ("config.json", {"relative_attention_num_buckets": 16}, "shape     decoder.relative_positions.weight"),
        ("config.json", {"num_decoder_layers": 2}, "missing   decoder.block.1.layer.0.SelfAttention.q.weight"),
        ("config.json", {"vocab_size": 64}, "shape     source_embedding.weight"),
        ("tokenizer_config.json", {"extra_ids": "all"}, "extra_ids is 'all', not a number of ids"),
        ("tokenizer_config.json", {"extra_ids": 999}, "does not fit the model: it has the id"),
    ],
}


@pytest.mark.parametrize(
    ("error", "name", "values", "message"), [(error, *case) for error, cases in INVALID_T5.items() for case in cases]
)
@pytest.mark.usefixtures("without_their_library")
def test_import_rejects_invalid_t5_models(published_t5, tmp_path, run_command, name, values, error, message):
    directory = Path(shutil.copytree(published_t5, tmp_path / "there"))
    (directory / name).write_text(json.dumps({**json.loads((directory / name).read_text()), **values}))
    with pytest.raises(error, match=message):
        run_command(import_model, directory, "-o", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


@pytest.mark.usefixtures("without_their_library")
def test_weights_in_shards_and_of_pickle_are_the_same_weights(directory, tmp_path, run_command):
    whole = load_file(directory / "model.safetensors")
    run_command(import_model, directory, "-o", tmp_path / "whole")
    (directory / "model.safetensors").unlink()
    torch.save(whole, directory / "pytorch_model.bin")
    run_command(import_model, directory, "-o", tmp_path / "pickle")
    (directory / "pytorch_model.bin").unlink()
    names = sorted(whole)
    shards = {"one.safetensors": names[:9], "two.safetensors": names[9:]}
    for file, some in shards.items():
        save_file({name: whole[name].half() for name in some}, directory / file)
    index = {"weight_map": {name: file for file, some in shards.items() for name in some}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    run_command(import_model, directory, "-o", tmp_path / "shards")
    files = [tmp_path / name / "model.safetensors" for name in ("whole", "pickle", "shards")]
    ours = [load_file(file) for file in files]
    assert all(torch.equal(ours[0][name], ours[1][name]) for name in ours[0])
    assert all(torch.equal(ours[0][name].half().float(), ours[2][name]) for name in ours[0])


class RunsCode:
    def __reduce__(self):
        return os.system, ("touch was_run",)


def break_kind(directory: Path) -> None:
    change_config(directory, model_type="martian")


def change_config(directory: Path, **values: object) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def change_weights(directory: Path, change) -> None:
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")


def store_pickle(directory: Path, value: object) -> None:
    (directory / "model.safetensors").unlink()
    torch.save(value, directory / "pytorch_model.bin")


def store_index(directory: Path, text: str) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors.index.json").write_text(text)


def add_piece(directory: Path) -> None:
    path = directory / "vocab.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "more": len(values)}))


def empty_pickle(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").touch()


def pack_pickle(directory: Path) -> None:
    store_pickle(directory, {"a": torch.zeros(99_999)})
    path = directory / "pytorch_model.bin"
    stored = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in stored.namelist():
            packed.writestr(name, stored.read(name))


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def set_nan(tensors):
    tensors["model.encoder.layers.0.fc1.weight"][0, 0] = float("nan")


DAMAGED = {
    ConfigError: [
        (break_kind, "config.json: models of the kind 'martian' are not known here; did you mean 'marian'"),
        (lambda d: change_config(d, model_type=["marian"]), "are not known here"),
        (lambda d: change_config(d, normalize_before=True), "normalize_before is True"),
        (lambda d: change_config(d, num_beams="many"), "beam_size"),
        (lambda d: change_config(d, d_model="wide"), "d_model"),
        (
            lambda d: change_config(d, max_position_embeddings=10**9),
            r"config\.json: .* max_position_embeddings is 1,000,000,000, but must be at most 1,000,000",
        ),
    ],
    ModelError: [
        (lambda d: (d / "config.json").unlink(), "cannot read .*config.json"),
        (lambda d: (d / "config.json").write_text("{"), "config.json is damaged"),
        (lambda d: (d / "config.json").write_text("[]"), "must hold a JSON object"),
        (lambda d: change_config(d, d_model=64), "shape"),
        (lambda d: os.truncate(d / "README.md", 9 * 2**20), "README.md is no card .*larger than 8,388,608"),
        (lambda d: (d / "model.safetensors").unlink(), "holds no weights"),
        (lambda d: (d / "model.safetensors").write_bytes(b"x" * 99), "cannot read the weights"),
        (lambda d: change_weights(d, lambda t: t.pop("model.shared.weight")), "missing   model.shared"),
        (lambda d: change_weights(d, lambda t: t.update(moe=torch.ones(2))), "unknown   moe"),
        (lambda d: change_weights(d, set_nan), "layers.0.fc1.weight has numbers that are not finite"),
        (lambda d: store_pickle(d, {"a": RunsCode()}), "it could run code or fill the memory when read, and is not"),
        (lambda d: store_pickle(d, ["a"]), "must hold tensors by name"),
        (lambda d: store_index(d, '{"weight_map": {"a": "one.safetensors"}}'), "one.safetensors"),
        (lambda d: store_index(d, '{"weight_map": {"a": "../one.safetensors"}}'), "outside its directory"),
        (lambda d: store_index(d, "{}"), "weight_map must give every tensor its file"),
        (lambda d: (d / "source.spm").unlink(), "cannot read .*source.spm"),
        (lambda d: (d / "source.spm").write_bytes(b"no model"), "source.spm is damaged: "),
        (lambda d: os.truncate(d / "target.spm", 0), "target.spm is damaged: it is no sentencepiece model"),
        (lambda d: (d / "vocab.json").unlink(), "cannot read .*vocab.json"),
        (lambda d: (d / "vocab.json").write_text('{"<unk>": "one"}'), "the number of its row"),
        (lambda d: (d / "vocab.json").write_text("{}"), "has no piece <unk>"),
        (lambda d: change_config(d, d_model=400_000), "shape"),
        (lambda d: store_pickle(d, {1: torch.ones(2)}), "must hold tensors by name"),
        (lambda d: store_pickle(d, {"a": torch.ones(2).to_sparse()}), r"and settings \(torch\.Size, torch\._util"),
        (
            lambda d: store_pickle(d, {"a": torch.ones(1).expand(10**6, 10**5)}),  # 400 GB of one number
            r"pytorch_model.bin: the tensor a is of shape \(1000000, 100000\), and the file holds fewer numbers of it",
        ),
        (pack_pickle, "pytorch_model.bin is damaged: it would be more than 16 times as long unpacked"),
        (empty_pickle, "cannot read the weights .*pytorch_model.bin"),
        (lambda d: replace_by_pipe(d / "source.spm"), "cannot read .*source.spm"),
        (lambda d: (d / "vocab.json").write_text('{"<unk>": 10000000000000}'), "the number of its row"),
        (lambda d: (d / "vocab.json").write_text('{"<unk>": 1, "</s>": 0}'), "tokenizer in .* does not fit"),
        (add_piece, "does not fit the model: it has the id"),
        (lambda d: (d / "tokenizer_config.json").write_text("nothing"), "tokenizer_config.json is damaged"),
        (lambda d: os.mkfifo(d / "tokenizer_config.json"), "cannot read .*tokenizer_config.json: it is a pipe"),
        (
            lambda d: (d / "generation_config.json").symlink_to("nowhere"),  # as of a download that broke off
            "cannot read .*generation_config.json: No such file",
        ),
    ],
    None: [
        (lambda d: change_config(d, max_position_embeddings=10**6), None),  # of which no table is made
        (lambda d: change_weights(d, lambda t: t.pop("final_logits_bias")), None),  # zeros, by their default
    ],
}


@pytest.mark.parametrize(
    ("error", "damage", "message"), [(error, *case) for error, cases in DAMAGED.items() for case in cases]
)
@pytest.mark.usefixtures("without_their_library")
def test_damaged_huggingface_models_are_rejected_and_nothing_is_written(
    directory, tmp_path, run_command, reject_import, damage, error, message
):
    damage(directory)
    if error is None:
        run_command(import_model, directory, "-o", tmp_path / "ours")
    else:
        reject_import(directory, error, message)


def test_import_checks_output_then_rejects_missing_paths_and_hub_names(tmp_path, run_command, write_lines):
    write_lines("notes.txt", "mine")
    with pytest.raises(ModelError, match="exists and is not a model directory"):
        run_command(import_model, tmp_path / "nowhere", "-o", tmp_path)
    with pytest.raises(ModelError, match=r"there is no such file or directory, and nothing is downloaded from a name$"):
        run_command(import_model, tmp_path / "nowhere", "-o", tmp_path / "new")
    with pytest.raises(
        ModelError, match=r"fetch it first: hf download Helsinki-NLP/opus-mt-de-en --local-dir opus-mt-de-en$"
    ):
        run_command(import_model, "Helsinki-NLP/opus-mt-de-en", "-o", tmp_path / "new")


@pytest.mark.usefixtures("without_their_library")
def test_other_files_do_not_matter_and_safetensors_count_first(directory, tmp_path, run_command):
    torch.save({"model.shared.weight": torch.ones(2)}, directory / "pytorch_model.bin")
    torch.save({"anything": 1}, directory / "training_args.bin")
    (directory / "old.safetensors").symlink_to("nowhere")
    (directory / "extra.bin").mkdir()
    run_command(import_model, directory, "-o", tmp_path / "ours")
    assert list(load_bundle(tmp_path / "ours").info["imported_from"]["weights_sha256"]) == ["model.safetensors"]
    with pytest.raises(ConfigError, match=r"'fr' has no meaning: the model in .* is told no language"):
        run_command(import_model, directory, "-o", tmp_path / "other", "--target-lang", "fr")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"model": {}}', '{"model": {"vocab": {}}, "added_tokens": [1]}', "[" * 9_999]
)
def test_a_damaged_tokenizer_json_is_named(tmp_path, text):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ModelError, match=r"tokenizer\.json is damaged"):
        their_vocabulary(tmp_path, "bart", ModelConfig(vocab_size=10))


def test_code_in_a_directory_is_never_run(directory, tmp_path, run_command):
    marker = tmp_path / "was_run"
    (directory / "tok.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Evil:\n    pass\n")
    named = {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["tok.Evil", "tok.Evil"]}}
    (directory / "tokenizer_config.json").write_text(json.dumps(named))
    (directory / "config.json").write_text(
        json.dumps({**json.loads((directory / "config.json").read_text()), "auto_map": {"AutoConfig": "tok.Evil"}})
    )
    with pytest.raises(ModelError, match="transformers cannot read"):
        run_command(import_model, directory, "-o", tmp_path / "ours", stdin="y\ny\n")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("adapter_config.json", r"there is an adapter of PEFT: .*merge_and_unload\(\)"),
        ("model.deen.intgemm.alphas.bin", r"there is a model of Bergamot: .*import the \.npz file"),
    ],
)
def test_import_recognizes_and_rejects_peft_adapters_and_bergamot_models(tmp_path, name, message):
    there = tmp_path / "there"
    there.mkdir()
    (there / name).write_bytes(b"{}")
    with pytest.raises(ModelError, match=message):
        import_path(there)
    with pytest.raises(ModelError, match=message.replace("there", name)):
        import_path(there / name)


@pytest.mark.usefixtures("without_their_library")
def test_markers_that_a_text_may_contain_are_named_by_an_option(directory, tmp_path, run_command):
    number = json.loads((directory / "config.json").read_text(encoding="utf-8"))["pad_token_id"] - 1
    pieces = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
    pieces = {piece: row for piece, row in pieces.items() if row != number}
    (directory / "vocab.json").write_text(json.dumps(pieces), encoding="utf-8")
    marker = {"content": "<hl>", "special": True}
    added = {"added_tokens_decoder": {str(number): marker}, "additional_special_tokens": ["<hl>"]}
    (directory / "tokenizer_config.json").write_text(json.dumps(added), encoding="utf-8")
    run_command(import_model, directory, "-o", tmp_path / "text")
    run_command(import_model, directory, "-o", tmp_path / "read", "--markers", "<hl>")
    text, read = (load_bundle(tmp_path / name).tokenizer.encode("ein <hl> Hund") for name in ("text", "read"))
    assert (text.count(number), read.count(number)) == (0, 1)
    with pytest.raises(ConfigError, match=r"--markers: '</s>' frames a text or names a language"):
        run_command(import_model, directory, "-o", tmp_path / "none", "--markers", "</s>")
