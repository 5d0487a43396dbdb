from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from model_files import contents, edit_config, message_of
from safetensors import SafetensorError

from clearhead.bundle import bundle as bundle_module
from clearhead.bundle import load_bundle, read_golden, save_bundle
from clearhead.errors import ModelError
from clearhead.files import arrays as weights_module
from clearhead.files.tensors import average_weights, load_weights, model_tensors, read_weights, write_weights
from clearhead.tokenizers import Tokenizer

FILES = {"config.json", "generation_config.json", "golden.jsonl", "model.safetensors", "tokenizer.json", "README.md"}
CHECKED = sorted(FILES - {"README.md"})
GOLDEN = [{"source": "Ein Hund.", "text": "A dog – ‘犬’.", "score": -1.25}]


@pytest.fixture
def model_dir(make_model_dir) -> Path:
    return make_model_dir(golden=GOLDEN, info={"preset": "tiny", "metrics": {"valid_bleu": 31.5}})


# Round trip


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_load_bundle_reads_what_save_bundle_wrote_bit_for_bit(make_bundle, tmp_path, sentences, kind, norm):
    info = {"preset": None, "data": {"files": [{"path": "ü.de", "lines": 7}]}, "loss": 1e-9}
    written = make_bundle(kind=kind, norm=norm, language_tags=("de", "en"), info=info, decode={"beam_size": 3})
    save_bundle(tmp_path / "model", written, golden=GOLDEN)
    read = load_bundle(tmp_path / "model")
    before, after = written.model.state_dict(), read.model.state_dict()
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert tensor.dtype == after[name].dtype
        assert torch.equal(tensor.view(torch.int32), after[name].view(torch.int32)), name
    assert read.model.config == written.model.config
    assert not read.model.training
    assert read.decode == written.decode
    assert read.info == info
    assert read.tokenizer.text == written.tokenizer.text
    assert read.tokenizer.encode_batch(sentences) == written.tokenizer.encode_batch(sentences)
    assert read_golden(tmp_path / "model") == GOLDEN


def test_a_model_directory_holds_the_six_files_and_nothing_stays_beside_it(model_dir):
    assert {path.name for path in model_dir.iterdir()} == FILES
    assert [path.name for path in model_dir.parent.iterdir()] == ["model"]


def test_writing_what_was_read_gives_the_same_bytes(model_dir, tmp_path):
    save_bundle(tmp_path / "again", load_bundle(model_dir), golden=GOLDEN, card="# A small model\n")
    assert contents(tmp_path / "again") == contents(model_dir)


def test_a_model_without_golden_sentences_has_none(make_model_dir):
    assert read_golden(make_model_dir()) == []


# Damage


def test_the_card_may_be_edited_or_removed(model_dir):
    (model_dir / "README.md").write_text("Ours is the best.\n", encoding="utf-8")
    load_bundle(model_dir)
    (model_dir / "README.md").unlink()
    load_bundle(model_dir)


@pytest.mark.parametrize("verify", [True, False])
def test_a_tokenizer_of_another_model_is_refused(model_dir, move_tokens, verify):
    other = move_tokens(load_bundle(model_dir).tokenizer, {"a": 200})  # special tokens and size are the same
    other.save(model_dir / "tokenizer.json")
    message = message_of(load_bundle, model_dir, verify=verify)
    assert "another model" in message if verify else "is not the tokenizer that model.safetensors" in message


def test_weights_of_another_model_are_refused(make_model_dir):
    first, second = make_model_dir("first", seed=7), make_model_dir("second", seed=11)
    shutil.copy(second / "model.safetensors", first / "model.safetensors")
    assert "belongs to another model" in message_of(load_bundle, first)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": ...}, "ModelConfig"),
        ({"model": "big"}, "ModelConfig"),
        ({"model": {"d_model": "wide"}}, "d_model"),
        ({"model": {"num_headz": 3}}, "num_headz"),
        ({"model": {"d_model": 22, "num_heads": 7}}, "must be a multiple of model.num_heads"),
        ({"info": None}, "'info' is not an object"),
    ],
)
def test_a_configuration_with_wrong_values_is_refused(model_dir, changes, reason):
    edit_config(model_dir, **changes)
    message = message_of(load_bundle, model_dir, verify=False)
    assert reason in message
    assert str(model_dir / "config.json") in message


def test_decode_settings_with_wrong_values_are_refused(model_dir):
    (model_dir / "generation_config.json").write_text('{"beam_size": 0}', encoding="utf-8")
    message = message_of(load_bundle, model_dir, verify=False)
    assert str(model_dir / "generation_config.json") in message
    assert "beam_size" in message


UNREADABLE = [b'{"source": "x"', b"\xff", b"[" * 100_000, b"1" * 5_000, b'"\\ud800"']


@pytest.mark.parametrize("line", UNREADABLE, ids=lambda line: f"{line!r:.12}")
def test_golden_sentences_that_cannot_be_read_are_refused_with_their_line(model_dir, line):
    (model_dir / "golden.jsonl").write_bytes(b"{}\n\n" + line + b"\n")
    message = message_of(read_golden, model_dir)
    assert message.startswith(f"cannot read {model_dir / 'golden.jsonl'}: line 3: ")


# Settings, vocabulary and weights that contradict each other


def in_seconds(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run code in another process, which must end and must not take the memory that lies ask for."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (2 * 2**30, 2 * 2**30))\n"
    command = [sys.executable, "-c", limit + textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


LOADS = """
    import json, sys
    from clearhead.bundle import load_bundle, read_golden
    from clearhead.bundle.model_directory import model_directory
    from clearhead.errors import ModelError
    for path in sys.argv[1:]:
        for verify in (True, False):
            try:
                load_bundle(path, verify=verify)
                read_golden(model_directory(path))
                print(json.dumps("no error"))
            except ModelError as error:
                print(json.dumps(str(error)))
"""


def messages_of(directories: list[Path]) -> list[tuple[str, str]]:
    """Return what is said of each model directory, with and without its checksums looked at."""
    done = in_seconds(LOADS, *directories)
    assert (done.returncode, done.stderr) == (0, "")
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return list(zip(said[::2], said[1::2], strict=True))


def shaped(directory: Path, **settings: object) -> None:
    """Change settings of the model in config.json."""
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    edit_config(directory, model={**config["model"], **settings})


LIES: list[tuple[dict[str, object], str]] = [
    ({"d_model": 10**6, "num_heads": 10}, "does not fit this model"),
    ({"d_ff": 10**6}, "does not fit this model"),
    ({"num_encoder_layers": 1_000}, "config.json has model.num_encoder_layers = 1000, but"),
    ({"num_decoder_layers": 0}, "config.json has model.num_decoder_layers = 0, but"),
    ({"num_decoder_layers": 10**6}, "num_decoder_layers = 1000000: Input should be less than"),
    ({"vocab_size": 10**9}, "vocab_size = 1000000000: Input should be less than"),
    ({"vocab_size": 10**7}, "the model's settings and its tokenizer do not belong together (settings vocab_size"),
    ({"positions": "learned", "max_positions": 10**7}, "missing   source_embedding.positions.weight"),
    ({"tying": "none"}, "missing   output_proj.weight"),
]


@pytest.fixture(scope="module")
def refused(make_bundle, tmp_path_factory) -> dict[str, tuple[Path, tuple[str, str]]]:
    """Return damaged model directories by name, with what is said of each; all are read in one other process."""
    directory = tmp_path_factory.mktemp("refused")
    save_bundle(directory / "model", make_bundle(), golden=GOLDEN, card="# A small model\n")
    found = {}

    def copied(name: str) -> Path:
        found[name] = Path(shutil.copytree(directory / "model", directory / name))
        return found[name]

    for number, (settings, _) in enumerate(LIES):
        shaped(copied(str(number)), **settings)
    for name in CHECKED:
        for kind in ("pipe", "device"):
            path = copied(f"{kind} for {name}") / name
            path.unlink()
            if kind == "pipe":
                os.mkfifo(path)
            else:
                path.symlink_to("/dev/zero")
    said = messages_of(list(found.values()))
    return {name: (path, texts) for (name, path), texts in zip(found.items(), said, strict=True)}


def test_settings_that_are_not_those_of_the_weights_are_refused_before_anything_is_built(refused):
    for number, (_, reason) in enumerate(LIES):
        directory, said = refused[str(number)]
        assert "does not match its own checksum" in said[0]
        assert reason in said[1]
        assert str(directory) in said[1]


@pytest.mark.parametrize("ids", [{"pad_id": 5}, {"bos_id": 0}, {"eos_id": 7}, {"pad_id": 1, "bos_id": 0}])
def test_special_ids_that_are_not_the_tokenizers_are_refused(model_dir, ids):
    shaped(model_dir, **ids)
    message = message_of(load_bundle, model_dir, verify=False)
    for name, value in ids.items():
        assert f"{name} {value}, tokenizer {load_tokenizer(model_dir).model_settings[name]}" in message


def load_tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.load(directory / "tokenizer.json")


def test_special_ids_beyond_the_vocabulary_are_refused(model_dir):
    shaped(model_dir, pad_id=9_999)
    assert "must lie below model.vocab_size" in message_of(load_bundle, model_dir, verify=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_weights_in_another_type_are_refused(model_dir, dtype):
    path = model_dir / "model.safetensors"
    tensors, metadata = read_weights(path)
    name = "decoder.layers.0.cross_attn.q_proj.weight"
    write_weights(path, {**tensors, name: tensors[name].to(dtype)}, metadata)
    assert f"type      {name}  file " in message_of(load_bundle, model_dir, verify=False)
    with pytest.raises(ModelError, match="must hold float32 tensors"):
        average_weights([path])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc of Linux")
def test_loading_takes_less_than_twice_the_file_and_half_a_gigabyte(tmp_path, make_bundle):
    bundle = make_bundle(d_model=2_048, num_heads=8, d_ff=8_192)  # 300 MB
    save_bundle(tmp_path / "large", bundle)
    code = """
        import re, sys
        from pathlib import Path
        from clearhead.bundle import load_bundle
        load_bundle(sys.argv[1])
        print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
    """  # what getrusage says includes the memory of the process that started this one
    done = in_seconds(code, tmp_path / "large")
    assert done.stderr == ""
    size = (tmp_path / "large" / "model.safetensors").stat().st_size
    assert size > 250 * 2**20
    assert int(done.stdout) * 2**10 < 2 * size + 500 * 2**20


# What is no regular file


def test_a_pipe_or_a_device_in_the_place_of_a_file_is_refused(refused):
    for name in CHECKED:
        for kind in ("pipe", "device"):
            directory, said = refused[f"{kind} for {name}"]
            for message in said:
                assert str(directory) in message
                is_named = name == "config.json"
                assert ("it holds no config.json" if is_named else "it must be a regular file") in message


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "it is nested deeper than 32 levels"),
        ('{"a":' * 100_000, "it is nested deeper than 32 levels"),
        ('{"a":' * 40 + "0" + "}" * 40, "it is nested deeper than 32 levels"),
        ("1" * 5_000, "damaged"),
        ('{"a": "\\ud800"}', "a string holds half of a surrogate pair"),
        (" " * 9_000_000, "it is larger than 8,388,608 bytes"),
    ],
    ids=lambda text: f"{text:.12}",
)
def test_json_without_bounds_is_refused(model_dir, name, text, reason):
    (model_dir / name).write_text(text, encoding="utf-8")
    message = message_of(load_bundle, model_dir, verify=False)
    assert reason in message
    assert str(model_dir / name) in message


@pytest.mark.parametrize("settings", [{"beam_size": 10**6}, {"extra_length": 10**9}, {"length_penalty": 1e9}])
def test_decode_settings_beyond_all_reason_are_refused(model_dir, settings):
    (model_dir / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    assert "Input should be less than" in message_of(load_bundle, model_dir, verify=False)


# Weights


def test_weights_that_do_not_fit_are_listed(make_bundle, tmp_path):
    model = make_bundle().model
    tensors = model_tensors(model)
    missing, misshapen = "encoder.layers.0.self_attn.q_proj.weight", "source_embedding.weight"
    del tensors[missing]
    tensors[misshapen] = torch.zeros(5, 22)
    tensors["decoder.layers.7.norm"] = torch.zeros(3, 2)
    write_weights(tmp_path / "w.safetensors", tensors, {})
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    message = message_of(load_weights, model, tmp_path / "w.safetensors")
    vocab_size = model.config.vocab_size
    assert message.splitlines() == [
        f"{tmp_path / 'w.safetensors'} does not fit this model:",
        f"  missing   {missing}  (22, 22)",
        f"  shape     {misshapen}  file (5, 22), model ({vocab_size}, 22)",
        "  unknown   decoder.layers.7.norm  (3, 2)",
    ]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_long_list_of_misfits_is_cut(make_bundle, tmp_path):
    model = make_bundle().model
    write_weights(tmp_path / "w.safetensors", {"w": torch.zeros(3)}, {})
    lines = message_of(load_weights, model, tmp_path / "w.safetensors").splitlines()
    assert len(lines) == 1 + 8 + 1
    assert lines[-1] == f"  and {len(model_tensors(model)) + 1 - 8} more"


class Bomb:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("write", [pickle.dump, torch.save], ids=["pickle", "torch"])
@pytest.mark.parametrize("verify", [True, False])
def test_a_pickle_is_refused_and_not_executed(model_dir, tmp_path, write, verify):
    with open(model_dir / "model.safetensors", "wb") as file:
        write(Bomb(tmp_path / "mark"), file)
    assert str(model_dir / "model.safetensors") in message_of(load_bundle, model_dir, verify=verify)
    assert not (tmp_path / "mark").exists()


def test_read_weights_rejects_files_that_are_not_safetensors(tmp_path):
    path = tmp_path / "model.safetensors"
    assert str(path) in message_of(read_weights, path)
    for content in (b"", b"weights", b"\xff" * 64):
        path.write_bytes(content)
        assert f"cannot read the weights {path}" in message_of(read_weights, path)


def test_write_weights_and_read_weights_keep_metadata(tmp_path):
    weights = {"a": torch.randn(3, 2), "b": torch.tensor([1, 2**40])}
    write_weights(tmp_path / "w.safetensors", weights, {"step": "7"})
    tensors, metadata = read_weights(tmp_path / "w.safetensors")
    assert metadata == {"step": "7"}
    assert tensors.keys() == weights.keys()
    assert all(torch.equal(tensors[name], weights[name]) for name in weights)


# Averaging


def test_the_average_is_the_mean(tmp_path):
    paths = [tmp_path / f"{number}.safetensors" for number in range(3)]
    first, second, third = ({"w": torch.randn(5, 3), "b": torch.randn(7)} for _ in paths)
    for path, tensors in zip(paths, (first, second, third), strict=True):
        write_weights(path, tensors, {})
    mean = average_weights(paths)
    assert mean.keys() == {"w", "b"}
    for name in mean:
        exact = torch.stack([first[name], second[name], third[name]]).double().mean(dim=0)
        assert mean[name].dtype == torch.float32
        torch.testing.assert_close(mean[name].double(), exact, rtol=1e-7, atol=1e-9)
    assert all(torch.equal(average_weights(paths[:1])[name], first[name]) for name in first)


@pytest.mark.parametrize("other", [{"w": torch.zeros(3, 5)}, {"w": torch.zeros(5, 3), "b": torch.zeros(1)}, {}])
def test_different_tensors_cannot_be_averaged(tmp_path, other):
    write_weights(tmp_path / "1.safetensors", {"w": torch.zeros(5, 3)}, {})
    write_weights(tmp_path / "2.safetensors", other, {})
    message = message_of(average_weights, [tmp_path / "1.safetensors", tmp_path / "2.safetensors"])
    assert str(tmp_path / "2.safetensors") in message


def test_average_weights_rejects_no_checkpoints():
    assert "no checkpoints" in message_of(average_weights, [])


# Where it is written


def test_a_new_model_replaces_an_old_one(make_bundle, model_dir):
    newer = make_bundle(seed=13)
    save_bundle(model_dir, newer, golden=[])
    assert torch.equal(load_bundle(model_dir).model.source_embedding.weight, newer.model.source_embedding.weight)
    assert read_golden(model_dir) == []
    assert [path.name for path in model_dir.parent.iterdir()] == ["model"]


def test_an_empty_directory_is_filled_and_missing_parents_are_made(make_bundle, tmp_path):
    (tmp_path / "empty").mkdir()
    for directory in (tmp_path / "empty", tmp_path / "a" / "b" / "model"):
        save_bundle(directory, make_bundle())
        load_bundle(directory)


def test_a_directory_made_while_a_model_is_written_is_kept(make_bundle, tmp_path, monkeypatch):
    write = bundle_module._write_files

    def write_slowly(*given):
        write(*given)
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "thesis.txt").write_text("precious")

    monkeypatch.setattr("clearhead.bundle.bundle._write_files", write_slowly)
    assert "is not a model directory" in message_of(save_bundle, tmp_path / "model", make_bundle())
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "thesis.txt"]


def test_an_unreadable_model_does_not_replace_a_model(make_bundle, tmp_path, monkeypatch):
    save_bundle(tmp_path / "model", make_bundle())
    before, write = contents(tmp_path / "model"), bundle_module._write_files

    def damaged(directory, *given):
        write(directory, *given)
        path = directory / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")

    monkeypatch.setattr("clearhead.bundle.bundle._write_files", damaged)
    message = message_of(save_bundle, tmp_path / "model", make_bundle(8))
    assert message.startswith("the model was not written, because")
    assert f"{tmp_path / 'model' / 'model.safetensors'} is damaged" in message
    assert contents(tmp_path / "model") == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("No space left on device")])
def test_a_full_disk_leaves_the_old_model_and_no_rest(make_bundle, model_dir, monkeypatch, error):
    before = contents(model_dir)

    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(weights_module, "save_file", full)
    assert "No space left on device" in message_of(save_bundle, model_dir, make_bundle(seed=13))
    assert contents(model_dir) == before
    assert [path.name for path in model_dir.parent.iterdir()] == ["model"]


def test_a_link_stays_a_link(make_bundle, model_dir):
    link = model_dir.parent / "latest"
    link.symlink_to(model_dir)
    for seed in (13, 17):
        save_bundle(link, make_bundle(seed=seed))
        assert link.is_symlink()
        assert torch.equal(
            load_bundle(model_dir).model.source_embedding.weight, make_bundle(seed=seed).model.source_embedding.weight
        )
    assert sorted(path.name for path in model_dir.parent.iterdir()) == ["latest", "model"]


def test_the_working_directory_may_be_the_target(make_bundle, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    save_bundle(".", make_bundle())
    load_bundle(tmp_path / "here")


# Replaced while it is read


@pytest.mark.parametrize("error", [ModelError("another checksum"), KeyError("a tensor"), RuntimeError("too short")])
def test_load_bundle_retries_when_the_model_is_replaced_while_reading(make_bundle, tmp_path, monkeypatch, error):
    """The old files vanish amid the reading, as they do when a run that is being trained publishes a better model."""
    first, second = make_bundle(seed=1), make_bundle(seed=2)
    save_bundle(tmp_path / "model", first)
    times = iter(range(3))
    read = bundle_module.read_arrays

    def replaced_meanwhile(path, shapes):
        if next(times, None) is not None:
            save_bundle(tmp_path / "model", second)
            save_bundle(tmp_path / "model", first)
            save_bundle(tmp_path / "model", second)
            raise error
        return read(path, shapes)

    monkeypatch.setattr(bundle_module, "read_arrays", replaced_meanwhile)
    found = load_bundle(tmp_path / "model")
    assert next(times, None) is None
    for (name, weight), other in zip(found.model.named_parameters(), second.model.parameters(), strict=True):
        assert torch.equal(weight, other), name


def test_settings_of_one_model_and_weights_of_another_are_never_mixed(make_bundle, tmp_path, monkeypatch):
    first, second = make_bundle(seed=1, info={"number": 1}), make_bundle(seed=2, info={"number": 2})
    save_bundle(tmp_path / "model", first)
    read = bundle_module.read_arrays

    def replaced_before(path, shapes):
        monkeypatch.undo()
        save_bundle(tmp_path / "model", second)
        return read(path, shapes)  # fits as well, and no checksum is looked at any more

    monkeypatch.setattr(bundle_module, "read_arrays", replaced_before)
    found = load_bundle(tmp_path / "model")
    assert found.info == {"number": 2}
    assert torch.equal(found.model.output_proj.weight, second.model.output_proj.weight)


def test_a_model_that_stays_damaged_is_refused_at_once(make_bundle, tmp_path, monkeypatch):
    save_bundle(tmp_path / "model", make_bundle())
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    calls = []
    verify = bundle_module.verify_checksums
    monkeypatch.setattr(bundle_module, "verify_checksums", lambda *arguments: (calls.append(1), verify(*arguments)))
    with pytest.raises(ModelError, match="is damaged or belongs to another model"):
        load_bundle(tmp_path / "model")
    assert calls == [1]


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_save_bundle_writes_files_of_mode_644_under_umask_022(make_bundle, tmp_path):
    before = os.umask(0o022)
    try:
        save_bundle(tmp_path / "model", make_bundle())
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()} == dict.fromkeys(
        ("README.md", "config.json", "generation_config.json", "golden.jsonl", "model.safetensors", "tokenizer.json"),
        0o644,
    )
