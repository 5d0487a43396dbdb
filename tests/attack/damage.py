"""Ways to damage a model directory by accident, and ways to craft one.

Every function takes the directory and a source of choices, changes the directory, and returns in words what it did.
After those of `CRAFTED` the checksums are computed anew; after those of `DAMAGED` they are left to tell.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from signing import read_tensors_file, write_tensors_file

Change = Callable[[Path, Random], str]

WRONG_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 7, 1_000_000, 2**31 - 1, 2**31, 2**32, 2**63, 10**30, -(2**31), -(2**63)),
    *(0.5, -0.5, 1e-300, 1e308, float("nan"), float("inf"), float("-inf"), "", "x", "1", "\ud800", "a" * 100_000),
    *([], {}, [1], {"a": 1}, ["x"] * 1_000, [[[[]]]]),
)
SMALL_SIZES = (0, 1, 7, 8, 9)


# Damage


def flip_bits(directory: Path, choose: Random) -> str:
    path = _any_file(directory, choose)
    raw = bytearray(path.read_bytes())
    bits = [choose.randrange(8 * len(raw)) for _ in range(choose.choice((1, 1, 2, 8, 64)))]
    for bit in bits:
        raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)
    return f"bits {bits[:3]} of {path.name}"


def truncate(directory: Path, choose: Random) -> str:
    path = _any_file(directory, choose)
    size = path.stat().st_size
    left = choose.choice([*SMALL_SIZES, size - 1, choose.randrange(size)])
    os.truncate(path, max(0, min(left, size)))
    return f"{path.name} cut to {left} bytes"


def lengthen(directory: Path, choose: Random) -> str:
    path = _any_file(directory, choose)
    more = choose.choice((b"\0", b"\n", b"}", b"x", b"\xff", choose.randbytes(100), b"\0" * 10_000))
    path.write_bytes(path.read_bytes() + more)
    return f"{len(more)} bytes {more[:4]!r} after {path.name}"


def overwrite_range(directory: Path, choose: Random) -> str:
    path = _any_file(directory, choose)
    raw = bytearray(path.read_bytes())
    start = choose.randrange(len(raw))
    end = min(len(raw), start + choose.choice((1, 16, 512, 4_096)))
    filling = choose.choice((b"\0", b"\xff", b"7"))
    raw[start:end] = filling * (end - start)
    path.write_bytes(raw)
    return f"{path.name} bytes {start} to {end} are {filling!r}"


def swap_files(directory: Path, choose: Random) -> str:
    first, second = choose.sample(_files(directory), 2)
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    return f"{first.name} and {second.name} swapped"


def take_from_other_model(directory: Path, choose: Random) -> str:
    other = directory.parent / "other"
    path = choose.choice([path for path in _files(other) if path.name != "README.md"])
    shutil.copy(path, directory / path.name)
    return f"{path.name} of another model"


def remove_file(directory: Path, choose: Random) -> str:
    path = _any_file(directory, choose)
    path.unlink()
    return f"{path.name} missing"


def add_file(directory: Path, choose: Random) -> str:
    name = choose.choice(("notes.txt", ".partial", "model.safetensors.old", "shortlist.safetensors.partial", "x\udcff"))
    (directory / name).write_bytes(choose.randbytes(50))
    return f"{name!a} added"


def special_file(directory: Path, choose: Random) -> str:
    path = _any_file(directory, choose)
    kind = choose.choice(("directory", "fifo", "zero", "null", "random", "terminal", "loop", "dangling", "socket"))
    path.unlink()
    match kind:
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path)
        case "dangling":
            path.symlink_to(directory / "nowhere")
        case "socket":
            os.mknod(path, 0o140600)
        case _:
            path.symlink_to({"zero": "/dev/zero", "null": "/dev/null", "random": "/dev/urandom"}.get(kind, "/dev/ptmx"))
    return f"{path.name} is a {kind}"


def special_directory(directory: Path, choose: Random) -> str:
    kind = choose.choice(("fifo", "file", "zero", "null", "loop", "empty", "link"))
    aside = directory.with_name("aside")
    directory.rename(aside)
    match kind:
        case "fifo":
            os.mkfifo(directory)
        case "file":
            directory.write_bytes(b"{}")
        case "loop":
            directory.symlink_to(directory)
        case "empty":
            directory.mkdir()
        case "link":
            directory.symlink_to(aside)
        case _:
            directory.symlink_to(f"/dev/{kind}")
    return f"the directory is a {kind}"


def strange_json(directory: Path, choose: Random) -> str:
    path = _json_file(directory, choose)
    text = choose.choice(
        (
            b"[]",
            b"3",
            b'"x"',
            b"null",
            b"",
            b"{",
            b"{}",
            b"{}{}",
            b"NaN",
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
            b"[" * 100_000 + b"]" * 100_000,
            b"1" * 10_000,
            b'{"model_type": "clearhead", "format_version": ' + b"9" * 5_000 + b"}",
            b"\xff\xfe" + "{}".encode("utf-16-le"),
            b"\xef\xbb\xbf" + path.read_bytes(),
            path.read_bytes().replace(b"e", b"\xe9"),
            path.read_bytes().decode().encode("utf-16"),
            b" " * 30_000_000 + path.read_bytes(),
            path.read_bytes().replace(b": ", b":"),
        )
    )
    path.write_bytes(text)
    return f"{path.name} is {text[:20]!r}, {len(text)} bytes"


# Crafted directories


def unchanged(directory: Path, choose: Random) -> str:
    return "nothing changed, signed anew"


def wrong_value(directory: Path, choose: Random) -> str:
    """One value of a JSON file, and one of its numbers, lists or names as likely as a deep one."""
    path = _json_file(directory, choose)
    return _change_value(path, choose, lambda place: True)


def wrong_model_setting(directory: Path, choose: Random) -> str:
    return _change_value(directory / "config.json", choose, lambda place: place[0] == "model" and len(place) > 1)


def wrong_decode_setting(directory: Path, choose: Random) -> str:
    return _change_value(directory / "generation_config.json", choose, lambda place: True)


def missing_key(directory: Path, choose: Random) -> str:
    path = _json_file(directory, choose)
    value = _first_json(path)
    place = choose.choice([place for place in _places(value) if isinstance(place[-1], str)])
    parent = _at(value, place[:-1])
    del parent[place[-1]]
    _write_json(path, value)
    return f"{path.name} without {_shown(place)}"


def unknown_key(directory: Path, choose: Random) -> str:
    path = _json_file(directory, choose)
    value = _first_json(path)
    places = [(), *(place for place in _places(value) if isinstance(_at(value, place), dict))]
    place = choose.choice(places)
    key = choose.choice(("x", "", "__class__", "__init__", "self", "model_config", "d_modell", "\ud800", "a" * 10_000))
    _at(value, place)[key] = choose.choice(WRONG_VALUES)
    _write_json(path, value)
    return f"{path.name}: {_shown((*place, key))} added"


def repeated_key(directory: Path, choose: Random) -> str:
    path = directory / "config.json"
    text = path.read_text(encoding="utf-8")
    key = choose.choice(("model", "info", "checksums", "format_version", "model_type"))
    value = json.dumps(choose.choice(WRONG_VALUES[:-1]))
    last = choose.random() < 0.5
    text = text.rstrip()[:-1] + f', "{key}": {value}}}' if last else text.replace("{", f'{{"{key}": {value},', 1)
    path.write_text(text, encoding="utf-8")
    return f"{key} twice, {'last' if last else 'first'} {value[:30]}"


def deep_value(directory: Path, choose: Random) -> str:
    path = _json_file(directory, choose)
    value = _first_json(path)
    place = choose.choice(_places(value))
    depth = choose.choice((50, 300, 900, 3_000, 100_000))
    text = json.dumps(_with(value, place, "HERE"))
    path.write_text(text.replace('"HERE"', "[" * depth + "]" * depth), encoding="utf-8")
    return f"{path.name}: {_shown(place)} nested {depth} deep"


def special_ids(directory: Path, choose: Random) -> str:
    config = _first_json(directory / "config.json")
    ids = {
        name: choose.choice((0, 1, 2, 3, 4, 5, 7, 200, 299, 308, 309, 310)) for name in ("pad_id", "bos_id", "eos_id")
    }
    config["model"] |= ids
    _write_json(directory / "config.json", config)
    return f"model: {ids}"


def huge_model(directory: Path, choose: Random) -> str:
    config = _first_json(directory / "config.json")
    name = choose.choice(
        (
            *("d_model", "vocab_size", "num_encoder_layers", "num_decoder_layers", "d_ff", "d_k", "d_v"),
            *("max_positions", "num_segments", "num_heads", "first_position", "source_vocab_size"),
        )
    )
    value = choose.choice((10**5, 10**6, 10**9, 2**31, 2**40, 2**63 - 1))
    config["model"][name] = value
    if name == "d_model":
        config["model"]["num_heads"] = choose.choice((1, 4))
    _write_json(directory / "config.json", config)
    return f"model.{name} = {value}"


def other_format(directory: Path, choose: Random) -> str:
    config = _first_json(directory / "config.json")
    config["format_version"] = choose.choice((0, 1, 2, 3, 10**9, True, 1.0, "2", -1))
    _write_json(directory / "config.json", config)
    return f"format_version = {config['format_version']!r}"


def wrong_golden(directory: Path, choose: Random) -> str:
    path = directory / "golden.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    choice = choose.randrange(8)
    match choice:
        case 0:
            lines += lines * 200
        case 1:
            lines = [json.dumps(choose.choice(WRONG_VALUES)) for _ in range(5)]
        case 2:
            lines = [lines[0], "", " ", lines[1]]
        case 3:
            lines[0] = json.dumps({**json.loads(lines[0]), "score": choose.choice(WRONG_VALUES)})
        case 4:
            lines[0] = json.dumps({**json.loads(lines[0]), "source": choose.choice(WRONG_VALUES)})
        case 5:
            lines[0] = json.dumps({**json.loads(lines[0]), "source": "drei " * 50_000})
        case 6:
            lines = ["[" * 50_000 + "]" * 50_000]
        case _:
            lines = [lines[0].replace("e", "\0"), '{"source": "x\u2028y", "text": "z", "score": 1}']
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    return f"golden.jsonl, way {choice}"


# Weights


def tensor_lie(directory: Path, choose: Random) -> str:
    return _lie_about_a_tensor(directory / "model.safetensors", choose)


def tensor_names(directory: Path, choose: Random) -> str:
    path = directory / "model.safetensors"
    header, body = read_tensors_file(path)
    name = choose.choice([name for name in header if name != "__metadata__"])
    way = choose.choice(("missing", "renamed", "extra", "swapped", "repeated", "all missing"))
    match way:
        case "missing":
            del header[name]
        case "renamed":
            header[name + "x"] = header.pop(name)
        case "extra":
            header["x" * choose.choice((1, 100_000))] = header[name]
        case "swapped":
            other = choose.choice([other for other in header if other not in (name, "__metadata__")])
            header[name], header[other] = header[other], header[name]
        case "all missing":
            header = {"__metadata__": header["__metadata__"]}
        case "repeated":
            text = json.dumps(header)[:-1] + f', "{name}": {json.dumps(header[name])}}}'
            path.write_bytes(len(text.encode()).to_bytes(8, "little") + text.encode() + body)
            return f"tensor {name} repeated"
    write_tensors_file(path, header, body)
    return f"tensor {name} {way}"


def header_lie(directory: Path, choose: Random) -> str:
    path = directory / choose.choice(_with_shortlist(directory, "model.safetensors"))
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    lies = (0, 1, size - 1, size + 1, size * 2, len(raw), 2**31, 2**32, 2**40, 2**63 - 1, 2**64 - 1, 99_999_999)
    length = choose.choice(lies)
    path.write_bytes(length.to_bytes(8, "little") + raw[8:])
    return f"header of {path.name} is {length} long, it says"


def header_text(directory: Path, choose: Random) -> str:
    path = directory / choose.choice(_with_shortlist(directory, "model.safetensors"))
    header, body = read_tensors_file(path)
    text = choose.choice(
        (
            b"[]",
            b"{}",
            b"null",
            b"{" * 50_000,
            b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
            b"\xff" * 50,
            json.dumps(header).encode().replace(b"F32", b"F\xff2"),
            json.dumps({**header, "__metadata__": {"a": 1}}).encode(),
            json.dumps({**header, "__metadata__": [1]}).encode(),
            json.dumps({**header, "__metadata__": None}).encode(),
            json.dumps({name: value for name, value in header.items() if name != "__metadata__"}).encode(),
            b" " * 10_000 + json.dumps(header).encode(),
        )
    )
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return f"header of {path.name} is {text[:30]!r}"


def wrong_numbers(directory: Path, choose: Random) -> str:
    path = directory / "model.safetensors"
    header, body = read_tensors_file(path)
    name = choose.choice([name for name in header if name != "__metadata__"])
    start, end = header[name]["data_offsets"]
    value = choose.choice((float("nan"), float("inf"), float("-inf"), 3e38, -3e38, 1e-45, 0.0))
    data = bytearray(body)
    if choose.random() < 0.5:
        data[start:end] = struct.pack("<f", value) * ((end - start) // 4)
    else:
        data[start : start + 4] = struct.pack("<f", value)
    write_tensors_file(path, header, bytes(data))
    return f"{value} in {name}"


# Shortlists


def shortlist_numbers(directory: Path, choose: Random) -> str:
    path = directory / "shortlist.safetensors"
    if not path.exists():
        return wrong_numbers(directory, choose)
    header, body = read_tensors_file(path)
    name = choose.choice(("common", "rows"))
    start, end = header[name]["data_offsets"]
    size = 8 if header[name]["dtype"] == "I64" else 4
    values = (-1, -2, -3, -2_000_000_000, -(2**31), 2**31 - 1, 310, 309, 308, 0, 1, 2, 3, 5, 100_000)
    value = choose.choice(values)
    data = bytearray(body)
    number = value.to_bytes(size, "little", signed=True)
    count = (end - start) // size
    if not count:
        return unchanged(directory, choose)
    places = choose.choice((range(count), [choose.randrange(count)], range(min(30, count)), range(count // 2, count)))
    for place in places:
        data[start + place * size : start + (place + 1) * size] = number
    write_tensors_file(path, header, bytes(data))
    return f"shortlist: {len(places)} of {name} are {value}"


def shortlist_shape(directory: Path, choose: Random) -> str:
    path = directory / "shortlist.safetensors"
    if not path.exists():
        return tensor_lie(directory, choose)
    kind = choose.choice(("floats", "bytes", "no rows", "no columns", "few rows", "many rows", "flat", "cube", "empty"))
    kind = choose.choice((kind, "no end", "twice", "scalar", "I64", "bool"))
    common, rows = list(range(2, 30)), [40, 41] * 310
    tensors: dict[str, tuple[str, list[int], bytes]] = {
        "common": ("I64", [len(common)], struct.pack(f"<{len(common)}q", *common)),
        "rows": ("I32", [310, 2], struct.pack("<620i", *rows)),
    }
    match kind:
        case "floats":
            name = choose.choice(("common", "rows"))
            _, shape, _ = tensors[name]
            tensors[name] = ("F32", shape, struct.pack("<f", 7.5) * (shape[0] * (shape[1] if len(shape) > 1 else 1)))
        case "bytes":
            tensors["rows"] = ("I8", [310, 2], b"\x28" * 620)
        case "bool":
            tensors["common"] = ("BOOL", [310], b"\1" * 310)
        case "I64":
            tensors["rows"] = ("I64", [310, 2], struct.pack("<620q", *rows))
        case "no rows":
            tensors["rows"] = ("I32", [0, 2], b"")
        case "no columns":
            tensors["rows"] = ("I32", [310, 0], b"")
        case "few rows":
            tensors["rows"] = ("I32", [7, 2], tensors["rows"][2][:56])
        case "many rows":
            tensors["rows"] = ("I32", [620, 2], tensors["rows"][2] * 2)
        case "flat":
            tensors["rows"] = ("I32", [620], tensors["rows"][2])
        case "cube":
            tensors["rows"] = ("I32", [310, 1, 2], tensors["rows"][2])
        case "scalar":
            tensors["common"] = ("I64", [], struct.pack("<q", 2))
        case "empty":
            tensors["common"] = ("I64", [0], b"")
        case "no end":
            tensors["common"] = ("I64", [3], struct.pack("<3q", 10, 11, 12))
        case "twice":
            tensors["common"] = ("I64", [6], struct.pack("<6q", 2, 2, 5, 5, 40, 41))
    header, _ = read_tensors_file(path)
    new: dict[str, Any] = {"__metadata__": header["__metadata__"]}
    body = b""
    for name, (dtype, shape, data) in tensors.items():
        new[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    write_tensors_file(path, new, body)
    return f"shortlist: {kind}"


def shortlist_lie(directory: Path, choose: Random) -> str:
    path = directory / "shortlist.safetensors"
    return _lie_about_a_tensor(path if path.exists() else directory / "model.safetensors", choose)


# Tokenizers


def tokenizer_ids(directory: Path, choose: Random) -> str:
    path = directory / "tokenizer.json"
    tokenizer = _first_json(path)
    vocab = tokenizer["model"]["vocab"]
    way = choose.choice(("swapped", "shifted", "doubled", "huge", "missing", "more", "empty", "negative"))
    if isinstance(vocab, list):  # Unigram: pieces with their log-probabilities, in the order of their ids
        one, other = choose.sample(range(len(vocab)), 2)
        match way:
            case "swapped":
                vocab[one], vocab[other] = vocab[other], vocab[one]
            case "shifted":
                vocab.insert(0, ["xx", -3.0])
            case "doubled":
                vocab[one] = vocab[other]
            case "huge" | "negative":
                vocab[one][1] = choose.choice((1e308, -1e308, 5.0, "x", None))
            case "missing":
                del vocab[one]
            case "more":
                vocab += [[f"x{number}", -5.0] for number in range(1_000)]
            case "empty":
                vocab.clear()
    else:
        one, other = choose.sample(sorted(vocab), 2)
        match way:
            case "swapped":
                vocab[one], vocab[other] = vocab[other], vocab[one]
            case "shifted":
                for piece in vocab:
                    vocab[piece] += 1
            case "doubled":
                vocab[one] = vocab[other]
            case "huge":
                vocab[one] = choose.choice((310, 1_000, 2**31 - 1, 2**32 - 1, 2**32, 2**70))
            case "missing":
                del vocab[one]
            case "more":
                vocab |= {f"x{number}": 310 + number for number in range(1_000)}
            case "empty":
                vocab.clear()
            case "negative":
                vocab[one] = -1
    _write_json(path, tokenizer)
    return f"tokenizer ids {way}"


def tokenizer_specials(directory: Path, choose: Random) -> str:
    path = directory / "tokenizer.json"
    tokenizer = _first_json(path)
    added = tokenizer["added_tokens"]
    token = choose.choice(added)
    match choose.randrange(7):
        case 0:
            token["content"] = choose.choice(("", "x", "<2de>", "</s>", "a" * 10_000, "drei"))
        case 1:
            token["id"] = choose.choice((0, 2, 5, 309, 310, 10_000, 2**32 - 1))
        case 2:
            added.remove(token)
        case 3:
            added.append({**token, "id": choose.choice((310, 311, 5_000)), "content": "<extra>"})
        case 4:
            added += [{**token, "id": 310 + number, "content": f"<2x{number}>"} for number in range(500)]
        case 5:
            token |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), True)
        case _:
            token["special"] = False
    _write_json(path, tokenizer)
    return f"tokenizer: {str(token)[:100]} among the special tokens"


def tokenizer_parts(directory: Path, choose: Random) -> str:
    path = directory / "tokenizer.json"
    tokenizer = _first_json(path)
    split = {"type": "Split", "behavior": "Removed", "invert": False}
    changes: tuple[tuple[str, Any], ...] = (
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": ""}),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "/////w=="}),
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "("}, "content": "x"}),
        ("normalizer", {"type": "Replace", "pattern": {"String": ""}, "content": "x"}),
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}),
        ("normalizer", {"type": "Lowercase"}),
        ("normalizer", None),
        ("normalizer", {"type": "Prepend", "prepend": ""}),
        ("pre_tokenizer", None),
        ("pre_tokenizer", {**split, "pattern": {"Regex": ""}}),
        ("pre_tokenizer", {**split, "pattern": {"Regex": ".*"}}),
        ("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}),
        ("decoder", None),
        ("decoder", {"type": "Strip", "content": " ", "start": 2**40, "stop": 2**63}),
        ("decoder", {"type": "Replace", "pattern": {"String": ""}, "content": "x"}),
        ("post_processor", {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}),
        ("truncation", {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}),
        ("truncation", {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 5}),
        ("truncation", {"direction": "Right", "max_length": 0, "strategy": "OnlyFirst", "stride": 0}),
        ("padding", {"strategy": {"Fixed": 300}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 9,
                     "pad_type_id": 0, "pad_token": "x"}),
        ("padding", {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                     "pad_type_id": 0, "pad_token": "x"}),
    )  # fmt: skip
    name, value = choose.choice(changes)
    tokenizer[name] = value
    _write_json(path, tokenizer)
    return f"tokenizer: {name} = {str(value)[:100]}"


def tokenizer_model(directory: Path, choose: Random) -> str:
    path = directory / "tokenizer.json"
    tokenizer = _first_json(path)
    model = tokenizer["model"]
    changes: tuple[dict[str, Any], ...] = (
        {"type": "WordLevel", "unk_token": "<unk>"},
        {"type": "BPE"},
        {"type": "Unigram", "unk_id": 10**6},
        {"type": "nothing"},
        {"unk_id": 10**9},
        {"unk_id": None},
        {"unk_token": "nowhere"},
        {"unk_token": None},
        {"dropout": 0.5},
        {"dropout": 5.0},
        {"merges": []},
        {"merges": ["nowhere else"]},
        {"merges": ["a"]},
        {"merges": [["a", "b", "c"]]},
        {"merges": [["Ġ", "Ġ"]] * 2},
        {"byte_fallback": True},
        {"fuse_unk": True},
        {"ignore_merges": True},
        {"continuing_subword_prefix": "##"},
        {"end_of_word_suffix": "x"},
        {"max_input_chars_per_word": 1},
    )
    change = choose.choice(changes)
    model |= change
    _write_json(path, tokenizer)
    return f"tokenizer: model {change}"


DAMAGED: tuple[Change, ...] = (
    flip_bits,
    truncate,
    lengthen,
    overwrite_range,
    swap_files,
    take_from_other_model,
    remove_file,
    add_file,
    special_file,
    special_directory,
    strange_json,
)
CRAFTED: tuple[Change, ...] = (
    unchanged,
    shortlist_numbers,
    huge_model,
    special_ids,
    tokenizer_ids,
    tensor_lie,
    wrong_model_setting,
    wrong_decode_setting,
    tokenizer_model,
    header_text,
    shortlist_shape,
    wrong_value,
    tokenizer_parts,
    tokenizer_specials,
    missing_key,
    unknown_key,
    repeated_key,
    deep_value,
    other_format,
    wrong_golden,
    tensor_names,
    header_lie,
    wrong_numbers,
    shortlist_lie,
)


# Helpers


def _lie_about_a_tensor(path: Path, choose: Random) -> str:
    header, body = read_tensors_file(path)
    name = choose.choice([name for name in header if name != "__metadata__"])
    tensor = header[name]
    start, end = tensor["data_offsets"]
    lies: tuple[dict[str, Any], ...] = (
        {"shape": [*reversed(tensor["shape"])]},
        {"shape": [1, *tensor["shape"]]},
        {"shape": []},
        {"shape": [-1]},
        {"shape": [2**63, 2]},
        {"shape": [2**32, 2**32]},
        {"shape": [0]},
        {"shape": [1.5]},
        {"shape": "x"},
        {"shape": [1] * 10_000},
        *({"dtype": dtype} for dtype in ("F64", "F16", "BF16", "I32", "I64", "I8", "U8", "BOOL", "F8_E4M3", "X", 3)),
        {"dtype": "F16", "shape": [*tensor["shape"][:-1], 2 * tensor["shape"][-1]]},
        {"dtype": "I32"},
        {"data_offsets": [start, end + 4]},
        {"data_offsets": [0, end - start]},
        {"data_offsets": [end, start]},
        {"data_offsets": [-4, end]},
        {"data_offsets": [start, 2**63]},
        {"data_offsets": [len(body), len(body) + end - start]},
        {"data_offsets": []},
        {"data_offsets": None},
        {"more": 1},
    )
    lie = choose.choice(lies)
    tensor |= lie
    if set(lie) == {"dtype"} and choose.random() < 0.7 and lie["dtype"] in ("F64", "F16", "BF16", "I64", "I8", "U8"):
        # A file that is sound in itself, with another type of numbers.
        width = {"F64": 8, "I64": 8, "F16": 2, "BF16": 2}.get(lie["dtype"], 1)
        data = b"\x01" * ((end - start) // 4 * width)
        moved = len(data) - (end - start)
        body = body[:start] + data + body[end:]
        for other, entry in header.items():
            if other not in (name, "__metadata__") and entry["data_offsets"][0] >= end:
                entry["data_offsets"] = [offset + moved for offset in entry["data_offsets"]]
        tensor["data_offsets"] = [start, start + len(data)]
    write_tensors_file(path, header, body)
    return f"{path.name}: {name} {str(lie)[:80]}"


def _change_value(path: Path, choose: Random, suits: Callable[[tuple[Any, ...]], bool]) -> str:
    value = _first_json(path)
    place = choose.choice([place for place in _places(value) if suits(place)])
    wrong = choose.choice(WRONG_VALUES)
    _write_json(path, _with(value, place, wrong))
    return f"{path.name}: {_shown(place)} = {repr(wrong)[:40]}"


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return where values stand, few of those in long lists, so that they do not drown the others."""

    def inner() -> Iterator[tuple[Any, ...]]:
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        for key, child in items[:5] + items[5:][:: max(1, len(items) // 10)]:
            yield (*place, key)
            if isinstance(child, dict | list):
                yield from _places(child, (*place, key))

    return list(inner())


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def _with(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    _at(value, place[:-1])[place[-1]] = new
    return value


def _shown(place: tuple[Any, ...]) -> str:
    return ".".join(str(key)[:30] for key in place).encode("ascii", "backslashreplace").decode()


def _first_json(path: Path) -> Any:
    """Return what a JSON file holds; of golden.jsonl the first line."""
    return json.loads(
        path.read_text(encoding="utf-8").split("\n")[0] if path.suffix == ".jsonl" else path.read_text("utf-8")
    )


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value) + "\n", encoding="utf-8")


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_file())


def _any_file(directory: Path, choose: Random) -> Path:
    return choose.choice(_files(directory))


def _json_file(directory: Path, choose: Random) -> Path:
    names = ("config.json", "config.json", "generation_config.json", "tokenizer.json", "golden.jsonl")
    return directory / choose.choice(names)


def _with_shortlist(directory: Path, name: str) -> list[str]:
    return [name, "shortlist.safetensors"] if (directory / "shortlist.safetensors").exists() else [name]
