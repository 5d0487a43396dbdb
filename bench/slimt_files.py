"""Files of slimt for a model of a given shape with random weights, and a decoder that only Marian's students have.

slimt reads the 8-bit binary files of Marian whose decoder has a recurrence (SSRU) for self-attention, so it cannot have
our weights. Sizes are equal, but the recurrence has 2 d_model^2 weights, where self-attention has 4 d_model^2.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from clearhead.config import ModelConfig
from conversion import convert_by_marian

__all__ = ["write_slimt"]

FLOAT32, INTGEMM8 = 0x0404, 0x4101
"""Marian's numbers of the types."""
ALIGNMENT = 256  # bytes
EOS_ID, UNK_ID = 0, 1
NEVER = -1e4
"""Bias of tokens that must not win, so that all outputs have the length of the limit."""


class _Items:
    """Named arrays in Marian's binary format."""

    def __init__(self, config: ModelConfig) -> None:
        self._config, self._random = config, np.random.default_rng(1)
        self._items: list[tuple[bytes, int, tuple[int, ...], bytes]] = []

    def add(self, name: str, kind: int, shape: tuple[int, ...], data: bytes) -> None:
        self._items.append((name.encode() + b"\0", kind, shape, data + b"\0" * (-len(data) % ALIGNMENT)))

    def add_row(self, name: str, row: np.ndarray) -> None:
        self.add(name, FLOAT32, (1, len(row)), row.astype(np.float32).tobytes())

    def add_matrix(self, name: str, inputs: int, outputs: int) -> None:
        """Add random levels, the factor that made them, and the factor of the numbers that they meet."""
        levels = self._random.integers(-127, 128, (inputs, outputs)).astype(np.int8)
        factor = np.float32(127 / np.sqrt(6 / (inputs + outputs)))
        self.add(name, INTGEMM8, levels.shape, levels.tobytes() + factor.tobytes())
        self.add_row(f"{'none' if name == 'Wemb' else name}_QuantMultA", np.array([32.0]))

    def add_linear(self, prefix: str, letter: str, inputs: int, outputs: int) -> None:
        self.add_matrix(f"{prefix}_W{letter}", inputs, outputs)
        self.add_row(f"{prefix}_b{letter}", np.zeros(outputs))

    def add_norm(self, prefix: str) -> None:
        self.add_row(f"{prefix}_ln_scale", np.ones(self._config.d_model))
        self.add_row(f"{prefix}_ln_bias", np.zeros(self._config.d_model))

    def add_attention(self, prefix: str) -> None:
        for letter in "qkvo":
            self.add_linear(prefix, letter, self._config.d_model, self._config.d_model)
        self.add_norm(f"{prefix}_Wo")

    def add_feed_forward(self, prefix: str) -> None:
        self.add_linear(f"{prefix}_ffn", "1", self._config.d_model, self._config.d_ff)
        self.add_linear(f"{prefix}_ffn", "2", self._config.d_ff, self._config.d_model)
        self.add_norm(f"{prefix}_ffn_ffn")

    def content(self) -> bytes:
        """Return the file."""
        parts = [struct.pack("<QQ", 1, len(self._items))]
        parts += [struct.pack("<4Q", len(name), kind, len(shape), len(data)) for name, kind, shape, data in self._items]
        parts += [name for name, *_ in self._items]
        parts += [struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in self._items]
        gap = -(sum(map(len, parts)) + 8) % ALIGNMENT
        return b"".join([*parts, struct.pack("<Q", gap), b"\0" * gap, *(data for *_, data in self._items)])


def write_slimt(directory: Path, config: ModelConfig) -> None:
    """Write the model, a vocabulary whose words are the ids, and a shortlist of all tokens, which Marian makes."""
    from sentencepiece import sentencepiece_model_pb2

    items = _Items(config)
    items.add_matrix("Wemb", config.vocab_size, config.d_model)
    bias = np.zeros(config.vocab_size)
    bias[[EOS_ID, UNK_ID]] = NEVER
    items.add_row("decoder_ff_logit_out_b", bias)
    for number in range(config.num_encoder_layers):
        items.add_attention(f"encoder_l{number + 1}_self")
        items.add_feed_forward(f"encoder_l{number + 1}")
    for number in range(config.num_decoder_layers):
        prefix = f"decoder_l{number + 1}"
        items.add_matrix(f"{prefix}_rnn_W", config.d_model, config.d_model)
        items.add_linear(f"{prefix}_rnn", "f", config.d_model, config.d_model)
        items.add_norm(f"{prefix}_rnn_ffn")
        items.add_attention(f"{prefix}_context")
        items.add_feed_forward(prefix)
    directory.mkdir()
    (directory / "model.bin").write_bytes(items.content())
    model = sentencepiece_model_pb2.ModelProto()
    spec = model.trainer_spec
    spec.model_type = spec.WORD
    spec.vocab_size, spec.eos_id, spec.unk_id, spec.bos_id, spec.pad_id = config.vocab_size, EOS_ID, UNK_ID, -1, -1
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    names = {EOS_ID: ("</s>", kinds.CONTROL), UNK_ID: ("<unk>", kinds.UNKNOWN)}
    for number in range(config.vocab_size):
        piece, kind = names.get(number, (f"\u2581{number}", kinds.NORMAL))
        model.pieces.add(piece=piece, score=-float(number), type=kind)
    model.normalizer_spec.name = "identity"
    (directory / "vocab.spm").write_bytes(model.SerializeToString())
    plain = (f'"{names[number][0] if number in names else number}": {number}\n' for number in range(config.vocab_size))
    (directory / "vocab.yml").write_text("".join(plain))
    (directory / "lex.txt").write_text("".join(f"{number} {number} 0.5\n" for number in range(2, config.vocab_size)))
    size = str(config.vocab_size)  # of the frequent tokens in every shortlist: all, as slimt needs one
    lex, vocabulary = str(directory / "lex"), str(directory / "vocab.yml")
    convert_by_marian("-s", f"{lex}.txt", size, size, "0", "-d", f"{lex}.bin", "-V", vocabulary, vocabulary)
