"""Small whole models, with random weights or trained for seconds, and all that belongs to a model directory."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from small_runs import FINISHED_SEED, QUICK, tiny_settings, write_numbers

if TYPE_CHECKING:
    from clearhead.bundle import Bundle
    from clearhead.tokenizers import Tokenizer
    from clearhead.translation.translator import Translator

SENTENCES = (
    "Ein kleiner Hund rennt über die Wiese.",
    "A small dog runs across the meadow.",
    "Zwei Männer sitzen auf einer Bank.",
    "Two men are sitting on a bench.",
    "Am 3. Mai 2018 kostete es 12,50 €.",
    "On May 3, 2018 it cost €12.50.",
    "Żółta łódź płynie po rzece.",
    "犬が走る。",
)
ENGLISH = [
    "a dog runs across the field",
    "two children play in the snow",
    "a woman reads a book by the window",
    "the old man sells apples",
    "three birds sit on the roof",
]


@pytest.fixture(scope="session")
def sentences() -> tuple[str, ...]:
    """Return a few sentences in several alphabets; the tokenizers of `make_bundle` know them."""
    return SENTENCES


def settled(text: str) -> str:
    """Return a unigram vocabulary in an order, and with scores, that are the same whenever it is learned.

    Its learner adds up in any order and numbers equal scores as they come, such as those of the bytes of no text.
    """
    values = json.loads(text)
    vocabulary = values["model"]["vocab"]
    tokens = {token["content"] for token in values["added_tokens"]}
    special = [[piece, score] for piece, score in vocabulary if piece in tokens]
    learned = [[piece, max(round(score, 3), -6.8)] for piece, score in vocabulary if piece not in tokens]
    assert vocabulary[: len(special)] == special
    values["model"]["vocab"] = special + sorted(learned, key=lambda one: (-one[1], one[0]))
    return json.dumps(values)


@pytest.fixture(scope="session")
def make_bundle() -> Callable[..., Bundle]:
    """Return a function that makes a model with random weights, sharp enough that no two translations tie."""
    from clearhead.bundle import Bundle
    from clearhead.config import DecodeConfig, ModelConfig
    from clearhead.model import Transformer
    from clearhead.tokenizers import Tokenizer

    @cache
    def trained(kind: Any, vocab_size: int, placeholders: bool, language_tags: tuple[str, ...]) -> str:
        options = {"kind": kind, "vocab_size": vocab_size, "placeholders": placeholders, "language_tags": language_tags}
        text = Tokenizer.train(SENTENCES, **options).text
        return settled(text) if kind == "unigram" else text

    def make(
        seed: int = 7,
        *,
        language_tags: Iterable[str] = (),
        kind: Any = "bpe",
        placeholders: bool = False,
        info: dict[str, Any] | None = None,
        decode: dict[str, Any] | None = None,
        printable: bool = False,
        **settings: object,
    ) -> Bundle:
        tokenizer = Tokenizer(trained(kind, 307 + 32 * placeholders, placeholders, tuple(language_tags)))
        sizes = {"d_model": 22, "num_heads": 11, "d_ff": 17, "num_encoder_layers": 2, "num_decoder_layers": 1}
        shape = {**tokenizer.model_settings, "norm": "pre", **sizes, **settings}
        torch.manual_seed(seed)
        model = Transformer(ModelConfig.model_validate(shape)).eval()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() == 2:
                    weight.mul_(2.0 if weight is model.source_embedding.weight else 4.0)
            if printable:  # a row of zeros has never the highest logit
                texts = [tokenizer.decode([token]) for token in range(tokenizer.vocab_size)]
                model.source_embedding.weight[[not text.isprintable() for text in texts]] = 0.0
        return Bundle(model, tokenizer, DecodeConfig(**{"extra_length": 5, **(decode or {})}), info or {})

    return make


@pytest.fixture(scope="session")
def make_translator(sentences: tuple[str, ...]) -> Callable[..., Translator]:
    """Return a function from settings of the model to a translator whose every weight is random."""
    from clearhead.bundle import Bundle
    from clearhead.config import DecodeConfig, ModelConfig
    from clearhead.model import Transformer
    from clearhead.tokenizers import Tokenizer
    from clearhead.translation.translator import Translator

    trained = Tokenizer.train(sentences, vocab_size=339, placeholders=True).text

    def make(
        *, scale: float = 2.0, decode: dict[str, Any] | None = None, info: dict[str, Any] | None = None, **settings: Any
    ) -> Translator:
        tokenizer = Tokenizer(trained)
        sizes = {"d_model": 22, "num_heads": 11, "d_ff": 17, "num_encoder_layers": 2, "num_decoder_layers": 1}
        torch.manual_seed(3)
        model = Transformer(ModelConfig(**{**tokenizer.model_settings, "norm": "pre", **sizes, **settings})).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.dim() == 1:
                    weight.normal_(mean=float("norm.weight" in name), std=0.3)
                else:
                    weight.mul_(scale)
        return Translator(Bundle(model, tokenizer, DecodeConfig(**{"extra_length": 5, **(decode or {})}), info or {}))

    return make


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> defaultdict[str, Path]:
    """Return where a model with some settings is stored, to be copied: making it takes twenty times as long."""
    return defaultdict(lambda: tmp_path_factory.mktemp("stored") / "model")


@pytest.fixture
def make_model_dir(make_bundle: Callable[..., Bundle], stored: dict[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a model directory; takes what `make_bundle` takes."""
    from clearhead.bundle import save_bundle

    def make(name: str = "model", *, golden: Iterable[dict[str, Any]] = (), **settings: Any) -> Path:
        path, golden = tmp_path / name, list(golden)
        source = path if path.exists() else stored[repr((golden, settings))]
        if source == path or not source.exists():
            save_bundle(source, make_bundle(**settings), golden=golden, card="# A small model\n")
        if source != path:
            shutil.copytree(source, path, copy_function=shutil.copyfile)
        torch.manual_seed(settings.get("seed", 7))  # whether it was made or copied
        return path

    return make


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run of forty steps, for reading, with golden sentences."""
    from clearhead.training.run import train_from_values

    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("finished")
    write_numbers(directory / "numbers.tsv")
    return train_from_values(tiny_settings(directory, {"golden": None, "train": {"seed": FINISHED_SEED}})).run


@pytest.fixture(scope="session")
def quick_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run of four steps, for reading."""
    from clearhead.training.run import train_from_values

    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("quick")
    write_numbers(directory / "numbers.tsv")
    return train_from_values(tiny_settings(directory, {"train": QUICK})).run


@pytest.fixture
def quick(quick_run: Path, tmp_path: Path) -> dict[str, Any]:
    """Return the settings of a finished run of four steps, which is there as if it had been made there."""
    from clearhead.files import json_sha256

    run = Path(shutil.copytree(quick_run, tmp_path / "run"))
    for path in (run / "config.toml", run / "data" / "report.json"):
        text = path.read_text(encoding="utf-8").replace(str(quick_run.parent), str(tmp_path))
        path.write_text(text, encoding="utf-8")
    report = json.loads(text)
    checksums = report.pop("checksums")
    checksums["report.json"] = json_sha256(report)
    path.write_text(json.dumps({**report, "checksums": checksums}), encoding="utf-8")
    write_numbers(tmp_path / "numbers.tsv")
    return tiny_settings(tmp_path, {"train": QUICK})


@pytest.fixture(scope="session")
def move_tokens() -> Callable[[Tokenizer, dict[str, int]], Tokenizer]:
    """Return a function that gives tokens other ids; each changes places with the token that had the id."""
    from clearhead.tokenizers import Tokenizer

    def move(tokenizer: Tokenizer, ids: dict[str, int]) -> Tokenizer:
        values = json.loads(tokenizer.text)
        model = values["model"]
        pieces = dict(model["vocab"])  # to ids or, in a unigram model, to scores
        is_unigram = model["type"] == "Unigram"
        order = list(pieces) if is_unigram else sorted(pieces, key=pieces.__getitem__)
        for token, to in ids.items():
            at = order.index(token)
            order[at], order[to] = order[to], order[at]
        places = {token: number for number, token in enumerate(order)}
        model["vocab"] = [[token, pieces[token]] for token in order] if is_unigram else places
        if is_unigram:
            model["unk_id"] = places["<unk>"]
        for added in values["added_tokens"]:
            added["id"] = places[added["content"]]
        return Tokenizer(json.dumps(values))

    return move


@pytest.fixture
def english_sentences() -> list[str]:
    """Return the text that `english_translator` knows."""
    return list(ENGLISH)


@pytest.fixture
def english_translator() -> Translator:
    """Return a tiny random translator whose answers differ from sentence to sentence."""
    from clearhead.bundle import Bundle
    from clearhead.config import DecodeConfig, ModelConfig
    from clearhead.model import Transformer
    from clearhead.tokenizers import Tokenizer
    from clearhead.translation.translator import Translator

    torch.manual_seed(7)
    tokenizer = Tokenizer.train(ENGLISH * 3, vocab_size=397)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        d_model=22,
        d_ff=31,
        num_heads=11,
        num_encoder_layers=1,
        num_decoder_layers=2,
    )
    model = Transformer(config).eval()
    return Translator(Bundle(model, tokenizer, DecodeConfig(beam_size=2, extra_length=3)))


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a text file from its name and lines."""

    def write(name: str, *lines: str) -> Path:
        path = tmp_path / name
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
        return path

    return write


class SwitchWatcher(TorchDispatchMode):
    """Notes PyTorch's process-wide switches for products at every operation inside."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = {self.read()}
        self.operations: set[str] = set()

    @staticmethod
    def read() -> tuple[str | None, str]:
        onednn = getattr(torch.backends.mkldnn, "matmul", None)  # newer than the oldest PyTorch we take
        return getattr(onednn, "fp32_precision", None), torch.get_float32_matmul_precision()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(self.read())
        self.operations.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def switches() -> SwitchWatcher:
    """Return a context whose `seen` has one element if no process-wide switch for products changed in it."""
    return SwitchWatcher()


@pytest.fixture(scope="module")
def all_complaints() -> list[str]:
    return []


@pytest.fixture
def complaints(all_complaints) -> list[str]:
    """Return what `browsers.listen` noted in this test."""
    all_complaints.clear()
    return all_complaints


@pytest.fixture(scope="session")
def web_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the compiled core as WebAssembly, in its three forms."""
    from clearhead.browser.writer import core_modules

    directory = tmp_path_factory.mktemp("web_core")
    for name, content in core_modules().items():
        (directory / name).write_bytes(content)
    return directory


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, web_core: Path) -> Path:
    """Return a directory with the compiled core, for a page and models."""
    return Path(shutil.copytree(web_core, tmp_path_factory.mktemp("web") / "site"))
