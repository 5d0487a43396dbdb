"""`clearhead import` of a directory of CTranslate2 that is damaged, or that our model cannot express.

What comes in well is compared with CTranslate2 in tests/reference/test_import_ctranslate2.py.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from clearhead.bundle import load_bundle
from clearhead.cli.export import export
from clearhead.cli.import_model import import_model
from clearhead.errors import ClearheadError, ConfigError, ModelError
from clearhead.interop import imported
from clearhead.interop.ctranslate2.model_bin import read_model_bin
from clearhead.interop.export_model import export_directory
from clearhead.interop.import_model import import_path
from every_run import slow

Variables = dict[str, tuple[tuple[int, ...], int, bytes]]
"""Name to shape, number of the type, and bytes."""


def parse(data: bytes) -> tuple[bytes, Variables, dict[str, str]]:
    """Take a model.bin apart, by a plain reading of the loop that writes it."""
    at = 0

    def take(form: str) -> Any:
        nonlocal at
        [value] = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(f"<{form}")
        return value

    def text() -> str:
        size = take("H")
        return take(f"{size}s")[:-1].decode()

    take("I"), text(), take("I")
    head = data[:at]
    variables = {}
    for _ in range(take("I")):
        name = text()
        shape = tuple(take("I") for _ in range(take("B")))
        kind = take("B")
        variables[name] = (shape, kind, take(f"{take('I')}s"))
    return head, variables, {text(): text() for _ in range(take("I"))}


def join(head: bytes, variables: Variables, aliases: dict[str, str]) -> bytes:
    """Put a model.bin together."""

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value.encode()) + 1) + value.encode() + b"\0"

    out = head + struct.pack("<I", len(variables))
    for name, (shape, kind, data) in variables.items():
        out += text(name) + struct.pack(f"<B{len(shape)}IBI", len(shape), *shape, kind, len(data)) + data
    return out + struct.pack("<I", len(aliases)) + b"".join(text(one) + text(two) for one, two in aliases.items())


@pytest.fixture(autouse=True)
def uncompared(monkeypatch):
    monkeypatch.setattr(imported, "can_prove", lambda library="": False)
    monkeypatch.setattr("clearhead.interop.ctranslate2.reader.can_prove", lambda library: False)


@pytest.fixture(scope="module")
def written(make_bundle, tmp_path_factory) -> Path:
    """Return a directory that does not say that it came from here."""
    directory = tmp_path_factory.mktemp("written") / "theirs"
    export_directory(make_bundle(language_tags=("de", "fr")), directory, "ctranslate2", ["<2de> Ein Hund"])
    change_json(directory / "config.json", lambda values: values.pop("clearhead"))
    return directory


@pytest.fixture(scope="module")
def with_own_positions(make_bundle, tmp_path_factory) -> Callable[[str], Path]:
    """Return a function that writes a directory whose attentions know positions: `relative`, as T5, or `rotary`."""

    @cache
    def find(positions: str) -> Path:
        directory = tmp_path_factory.mktemp("written") / positions
        of_t5 = {"attention_scale": False, "output_scale": True, "norm_kind": "rms", "feed_forward_bias": False}
        bundle = make_bundle(positions=positions, **(of_t5 if positions == "relative" else {}))
        export_directory(bundle, directory, "ctranslate2", ["Ein Hund"])
        change_json(directory / "config.json", lambda values: values.pop("clearhead"))
        assert import_path(directory).bundle.model.config.positions == positions
        return directory

    return find


@pytest.fixture
def directory(written, tmp_path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "there"))


def change_json(path: Path, change: Callable[[Any], Any]) -> None:
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def config(**values: Any) -> Callable[[Path], None]:
    return lambda d: change_json(d / "config.json", lambda found: found.update(values))


def edit(change: Callable[[Variables, dict[str, str]], Any]) -> Callable[[Path], None]:
    """Return what changes the variables and aliases of a directory."""

    def apply(directory: Path) -> None:
        path = directory / "model.bin"
        head, variables, aliases = parse(path.read_bytes())
        change(variables, aliases)
        path.write_bytes(join(head, variables, aliases))

    return apply


def numbers(value: int, *names: str) -> Callable[[Path], None]:
    """Return what sets numbers of the type int16."""
    return edit(lambda variables, _: variables.update({name: ((), 2, struct.pack("<h", value)) for name in names}))


def number(name: str, value: int) -> Callable[[Path], None]:
    return numbers(value, name)


def typed(name: str, form: str, value: float) -> Callable[[Path], None]:
    """Return what sets a number of another type: `f` or `i`."""
    kind = {"f": 0, "i": 3}[form]
    return edit(lambda variables, _: variables.update({name: ((), kind, struct.pack(f"<{form}", value))}))


def drop(*names: str) -> Callable[[Path], None]:
    return edit(lambda variables, aliases: [found.pop(name, None) for name in names for found in (variables, aliases)])


def add(name: str, shape: tuple[int, ...] = (2, 3)) -> Callable[[Path], None]:
    data = b"\0" * 4 * shape[0] * shape[-1]
    return edit(lambda variables, _: variables.update({name: (shape, 0, data)}))


def table(name: str, shape: tuple[int, ...], number: float = 0.5) -> Callable[[Path], None]:
    """Return what puts a matrix of one number there, also in the place of another name of a variable."""
    data = struct.pack("<f", number) * math.prod(shape)
    return edit(lambda variables, aliases: (aliases.pop(name, None), variables.update({name: (shape, 0, data)})))


def bytes_of(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(directory: Path) -> None:
        path = directory / "model.bin"
        path.write_bytes(change(path.read_bytes()))

    return apply


def set_nan(variables: Variables, _: dict[str, str]) -> None:
    shape, kind, data = variables["encoder/layer_0/ffn/linear_0/weight"]
    variables["encoder/layer_0/ffn/linear_0/weight"] = (shape, kind, struct.pack("<f", float("nan")) + data[4:])


def reshape(variables: Variables, _: dict[str, str]) -> None:
    (rows, columns), kind, data = variables["encoder/layer_0/ffn/linear_0/weight"]
    variables["encoder/layer_0/ffn/linear_0/weight"] = ((columns, rows), kind, data)


def lie_about_size(variables: Variables, _: dict[str, str]) -> None:
    variables["encoder/layer_0/ffn/linear_0/weight"] = ((2**31, 2**31), 0, b"\0" * 8)


def without_scale(variables: Variables, _: dict[str, str]) -> None:
    variables["encoder/layer_0/ffn/linear_0/weight"] = ((17, 22), 1, b"\1" * 17 * 22)


def unknown_type(variables: Variables, _: dict[str, str]) -> None:
    variables["encoder/num_heads"] = ((), 9, b"\1")


def as_text(value: bytes) -> bytes:
    return struct.pack("<H", len(value) + 1) + value + b"\0"


def list_of_tokens(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    return lambda d: change_json(d / "shared_vocabulary.json", change)


MATRIX = "encoder/layer_0/ffn/linear_0/weight"


DAMAGED = {
    ModelError: [
        (bytes_of(lambda data: b""), "model.bin is damaged, .*it ends where 4 bytes"),
        (bytes_of(lambda data: b"PK\3\4" + data), "version 6 of its format, but begins with 67324752"),
        (bytes_of(lambda data: struct.pack("<I", 5) + data[4:]), "version 6 of its format, but begins with 5"),
        (bytes_of(lambda data: data[:-1]), "it ends where"),
        (bytes_of(lambda data: data[: len(data) // 2]), "it ends where"),
        (bytes_of(lambda data: data + b"more"), "there are 4 bytes behind its end"),
        (edit(lie_about_size), rf"{MATRIX} \(2147483648, 2147483648\) has 8 bytes"),
        (edit(reshape), r"shape     encoder.layers.0.feed_forward.up_proj.weight"),
        (edit(set_nan), f"{MATRIX} has numbers that are not finite"),
        (edit(without_scale), f"{MATRIX} is in int8, in a form that is not known here"),
        (edit(unknown_type), "encoder/num_heads is of the unknown type 9"),
        (edit(lambda v, a: a.update(more="nothing")), "it calls nothing also more, and has none"),
        (edit(lambda v, a: a.update({MATRIX: "encoder/num_heads"})), f"also {MATRIX}, and has both"),
        (drop(MATRIX), f"has no matrix {MATRIX}"),
        (drop("decoder/projection/weight"), "has no matrix decoder/projection/weight|and has none"),
        (drop("decoder/layer_0/attention/linear_1/weight"), "missing   decoder/layer_0/attention/linear_1"),
        (add("encoder/layer_0/self_attention/relative_position_keys"), "unknown .*relative_position"),
        (add("encoder/embeddings_1/weight"), "unknown   encoder/embeddings_1/weight"),
        (add("decoder/layer_0/ffn/moe/gate"), "unknown   decoder/layer_0/ffn/moe/gate"),
        (lambda d: (d / "config.json").unlink(), "cannot read .*config.json"),
        (list_of_tokens(lambda tokens: tokens.pop()), "source vocabulary has .* model.bin rows"),
        (list_of_tokens(lambda tokens: tokens.insert(9, "x")), "source vocabulary has"),
        (list_of_tokens(lambda tokens: tokens.__setitem__(9, "x")), "tokenizer.json is not the model's"),
        (list_of_tokens(lambda tokens: tokens.__setitem__(9, 1)), "must be a list of tokens"),
        (lambda d: (d / "shared_vocabulary.json").unlink(), "cannot read .*source_vocabulary.json"),
        (lambda d: (d / "shared_vocabulary.json").write_text("["), "shared_vocabulary.json is damaged"),
        (lambda d: (d / "tokenizer.json").unlink(), "has no tokenizer, so no text can be encoded"),
        (lambda d: (d / "tokenizer.json").write_text("{}"), "tokenizer.json is damaged"),
        (
            lambda d: change_json(d / "tokenizer.json", lambda v: v["post_processor"].update(single=[{"A": 1}])),
            "tokenizer in .* does not fit",
        ),
    ],
    ConfigError: [
        (
            bytes_of(lambda data: data.replace(as_text(b"TransformerSpec"), as_text(b"WhisperSpec"))),
            "holds a WhisperSpec, and only a TransformerSpec translates",
        ),
        (drop("decoder/layer_norm/gamma"), "encoder/layer_norm/gamma is there, and on the"),
        (number("decoder/layer_0/self_attention/rotary_dim", 0), "rotary_dim is 0, and our model"),
        (number("encoder/activation", 4), "encoder/activation is 4; those we have: 0 RELU"),
        (number("decoder/alibi", 1), "decoder/alibi is 1, but must be 0"),
        (number("encoder/multi_query_attention", 1), "multi_query_attention is 1, but must be 0"),
        (number("decoder/sliding_window", 4), "decoder/sliding_window is 4, but must be 0"),
        (number("decoder/scale_outputs", 2), "decoder/scale_outputs is 2, and our model has"),
        (number("decoder/num_heads", 2), r"encoder/num_heads \(11\) and decoder/num_heads \(2\)"),
        (number("decoder/pre_norm", 0), r"encoder/pre_norm \(1\) and decoder/pre_norm \(0\)"),
        (config(decoder_start_token=None), "decoder_start_token is None, but must be a token"),
        (config(eos_token="</x>"), "eos_token is '</x>', but must be a token of the vocabulary"),
        (config(add_source_eos="yes"), "add_source_eos is 'yes', but must be true or false"),
        (config(layer_norm_epsilon="small"), "config.json: layer_norm_epsilon is 'small'"),
    ],
}


@pytest.mark.parametrize(
    ("error", "damage", "message"), [(error, *case) for error, cases in DAMAGED.items() for case in cases]
)
def test_damaged_ctranslate2_models_are_rejected_and_nothing_is_written(
    directory, reject_import, damage, error, message
):
    damage(directory)
    reject_import(directory, error, message)


ENCODER, DECODER = "encoder/layer_0/self_attention", "decoder/layer_0/self_attention"
SECOND = "encoder/layer_1/self_attention"
BIAS, DISTANCE = "relative_attention_bias", "relative_attention_max_distance"
HEADS = ("encoder/num_heads", "decoder/num_heads")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (typed(f"{ENCODER}/{DISTANCE}", "i", 24), rf"{DISTANCE} \(24\) and {SECOND}/{DISTANCE} \(128\) must be equal"),
        (drop(f"{DECODER}/{DISTANCE}"), f"here: {DECODER}/{DISTANCE} is missing$"),
        (table(f"{DECODER}/{DISTANCE}", (1,)), f"here: {DECODER}/{DISTANCE} is missing$"),
        (drop(f"{DECODER}/{BIAS}"), f"here: {DECODER}/{BIAS} is missing$"),
        (drop(f"{SECOND}/{BIAS}"), f"here: {SECOND}/{BIAS} is missing$"),
        (table(f"{SECOND}/{BIAS}", (32, 11)), f"differs   {SECOND}/{BIAS} from {ENCODER}/{BIAS}, with which it should"),
        (table(f"{DECODER}/{BIAS}", (32, 12)), r"shape     decoder\.relative_positions\.weight"),
        (table(f"{DECODER}/{BIAS}", (16, 11)), r"shape     decoder\.relative_positions\.weight"),
        (table(f"{DECODER}/{BIAS}", (352,)), r"shape     decoder\.relative_positions\.weight"),
        (table(f"{DECODER}/{BIAS}", ()), f"{DECODER}/{BIAS} is missing; {DECODER}/{BIAS} is 0.5"),
        (table(f"{DECODER}/{BIAS}", (32, 11), math.nan), f"{DECODER}/{BIAS} has numbers that are not finite"),
        (table(f"decoder/layer_0/attention/{BIAS}", (32, 11)), f"unknown   decoder/layer_0/attention/{BIAS}"),
        (add("encoder/position_encodings/encodings"), "unknown   encoder/position_encodings/encodings"),
        (drop(f"{DECODER}/queries_scale"), f"{DECODER}/queries_scale is 0.707107, and our model has 1 or"),
        (typed(f"{DECODER}/queries_scale", "f", 0.5), f"{DECODER}/queries_scale is 0.5, and our model has 1 or"),
        (typed(f"{DECODER}/queries_scale", "f", math.nan), f"{DECODER}/queries_scale is nan, and our model has 1"),
        (typed("decoder/scale_outputs", "f", math.nan), "decoder/scale_outputs is nan, and our model has 1 or"),
        (numbers(0, *HEADS), "num_heads"),
        (numbers(4, *HEADS), r"shape     decoder\.layers\.0\.cross_attn\.k_proj"),
    ],
)
def test_relative_positions_are_read_whole_or_refused(with_own_positions, tmp_path, damage, message):
    directory = Path(shutil.copytree(with_own_positions("relative"), tmp_path / "there"))
    damage(directory)
    with pytest.raises(ClearheadError, match=message):
        import_path(directory)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (typed(f"{DECODER}/rotary_base", "f", 5e5), f"{DECODER}/rotary_base is 500000.0, but must be 10000: our"),
        (number(f"{ENCODER}/rotary_interleave", 0), f"{ENCODER}/rotary_interleave is 0, but must be 1: our"),
        (number(f"{ENCODER}/rotary_dim", 1), f"{ENCODER}/rotary_dim is 1, but must be 0 or 2: our"),
        (number(f"{ENCODER}/rotary_scaling_type", 1), f"{ENCODER}/rotary_scaling_type is 1, and our model has no"),
        (drop(f"{DECODER}/rotary_dim"), f"{ENCODER}/rotary_dim is 0, and our model has such positions everywhere"),
        (table(f"{DECODER}/{BIAS}", (32, 11)), f"{ENCODER}/{BIAS}, {SECOND}/{BIAS}, .* are missing"),
    ],
)
def test_rotary_positions_are_read_whole_or_refused(with_own_positions, tmp_path, damage, message):
    directory = Path(shutil.copytree(with_own_positions("rotary"), tmp_path / "there"))
    damage(directory)
    with pytest.raises(ClearheadError, match=message):
        import_path(directory)


@pytest.mark.parametrize("distance", [10**9, 2**31 - 1, 0, -1, 16, math.inf, math.nan, 24.5])
def test_distances_that_no_model_has_are_refused(with_own_positions, tmp_path, distance):
    directory = Path(shutil.copytree(with_own_positions("relative"), tmp_path / "there"))
    for layer in (ENCODER, DECODER, "encoder/layer_1/self_attention"):
        typed(f"{layer}/{DISTANCE}", "i" if isinstance(distance, int) else "f", distance)(directory)
    with pytest.raises(ConfigError, match=DISTANCE):
        import_path(directory)


def test_parts_put_together_again_are_the_same_file(directory):
    data = (directory / "model.bin").read_bytes()
    assert join(*parse(data)) == data


def test_a_file_cut_anywhere_is_refused(directory):
    path = directory / "model.bin"
    data = path.read_bytes()
    for length in [*range(200), *range(200, len(data), 997)]:
        path.write_bytes(data[:length])
        with pytest.raises(ModelError, match=r"model\.bin is damaged"):
            read_model_bin(path)


@pytest.mark.parametrize("positions", ["sinusoidal", slow("relative")])
def test_no_flipped_byte_does_more_than_an_error(written, with_own_positions, tmp_path, positions):
    made = written if positions == "sinusoidal" else with_own_positions(positions)
    directory = Path(shutil.copytree(made, tmp_path / "there"))
    path = directory / "model.bin"
    data, rng, refused = path.read_bytes(), random.Random(5), 0
    for _ in range(100):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.choice([rng.randrange(len(data)), rng.randrange(400)])] = rng.randrange(256)
        path.write_bytes(changed)
        try:
            import_path(directory)
        except ClearheadError:
            refused += 1
    assert refused > 30


def test_a_pipe_is_not_read(directory):
    (directory / "model.bin").unlink()
    os.mkfifo(directory / "model.bin")
    with pytest.raises(ModelError, match=r"cannot read .*model\.bin"):
        import_path(directory)


def test_target_lang_must_be_in_the_ctranslate2_vocabulary(directory, tmp_path, run_command):
    run_command(import_model, directory, "-o", tmp_path / "ours", "--target-lang", "fr")
    bundle = load_bundle(tmp_path / "ours")
    assert bundle.decode.target_lang == "fr"
    assert bundle.tokenizer.language_tags.keys() == {"de", "fr"}
    with pytest.raises(ConfigError, match="unknown target language 'xx'"):
        run_command(import_model, directory, "-o", tmp_path / "other", "--target-lang", "xx")


def test_import_keeps_the_model_card_and_names_ignored_files(make_model_dir, tmp_path, run_command):
    run_command(export, make_model_dir(), "-o", tmp_path / "theirs", "--to", "ctranslate2")
    (tmp_path / "theirs" / "vmap.txt").write_text("")
    (tmp_path / "theirs" / "README.md").write_text("# Their card\n")
    said = run_command(import_model, tmp_path / "theirs", "-o", tmp_path / "ours", "--kind", "ctranslate2")
    assert "of the kind ctranslate2" in said.stdout
    assert "vmap.txt is not taken over" in said.stderr
    assert "# Their card" in (tmp_path / "ours" / "README.md").read_text()
    with pytest.raises(ConfigError, match="kind 'ctranslate' are not known here; did you mean 'ctranslate2'"):
        run_command(import_model, tmp_path / "theirs", "-o", tmp_path / "other", "--kind", "ctranslate")
