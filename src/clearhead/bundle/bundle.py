"""A model with its tokenizer, settings and metadata: written as a model directory, and read from one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from clearhead.bundle.model_directory import (
    CHECKED_FILES,
    FORMAT_VERSION,
    ROUNDED_FORMAT,
    directory_identity,
    model_directory,
    read_config,
    refuse_foreign,
    verify_checksums,
    write_config,
)
from clearhead.bundle.side_files import SIDE_FILE_NAMES, SideFiles, read_side_files
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.config.choices import StoredPrecision
from clearhead.errors import ConfigError, ModelError
from clearhead.files import (
    file_sha256,
    keep_others,
    new_directory,
    os_error_as,
    read_json,
    read_json_lines,
    read_text,
    write_json,
    write_text,
)
from clearhead.files.arrays import TensorHeader, read_arrays, read_headers, require_fit, write_arrays
from clearhead.model.rounded_weights import RoundedWeights, stored_headers
from clearhead.model.stored import StoredModel, module_arrays, require_finite
from clearhead.runtime.lazy import cached_property
from clearhead.runtime.version import NUMBER, full_version
from clearhead.text.line_statistics import LineStatistics
from clearhead.tokenizers import Vocabulary, load_vocabulary

if TYPE_CHECKING:
    from clearhead.model.own_model import OwnModel
    from clearhead.model.transformer import Transformer

T = TypeVar("T", ModelConfig, DecodeConfig)

_MOST_REPLACEMENTS = 20
"""Maximum attempts to read a model that is replaced during reading."""

_OWN_NAMES = {*CHECKED_FILES, "config.json", "README.md", *SIDE_FILE_NAMES}


@dataclass
class Bundle:
    """A model with its tokenizer, settings and metadata."""

    weights: StoredModel | Transformer
    """The model: as it was read, without PyTorch, or as a module; see `model`."""
    tokenizer: Vocabulary
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    info: Mapping[str, Any] = field(default_factory=dict)
    """How the model was made: data, settings, metrics; plain JSON values."""
    model_sha256: str | None = None
    """SHA-256 of the model.safetensors it was read from; None for a model not read from a file."""
    golden: Sequence[Any] = ()
    """The golden sentences. They are read with the rest because another model may replace the directory later; empty
    for a model that was not read."""
    format_version: int = FORMAT_VERSION
    """Format version of the directory it was read from."""
    clearhead_version: str = field(default_factory=full_version)
    """Version of clearhead that wrote the directory."""
    directory: Path | None = None
    """The model directory it was read from."""
    side_files: Mapping[str, Any] = field(default_factory=dict)
    """The side files that it has, with the contents of those in JSON, read with the rest; None of others."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: a model that was changed in memory as its module, hooks and other parts included.

        Raises:
            ModelError: If a part of the module cannot be pickled.
        """
        state = self._copied_state()
        if not isinstance(state["weights"], StoredModel):
            from clearhead.model.module_state import require_picklable

            require_picklable(state["weights"])
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> Bundle:
        """Return a copy with all hooks, including unpicklable ones."""
        memo[id(self)] = copied = object.__new__(type(self))
        copied.__dict__.update(deepcopy(self._copied_state(), memo))
        return copied

    def _copied_state(self) -> dict[str, Any]:
        weights = self.weights
        if isinstance(weights, StoredModel) and weights.is_changed:
            weights = weights.own_module
        return {**self.__dict__, "weights": weights}

    def side_file(self, name: str) -> dict[str, Any] | None:
        """Return the content of a JSON side file; None if the model has none."""
        return self.side_files.get(name)

    def leftovers(self) -> list[str]:
        """Return the names of side files in the directory that are not part of the model, and ignored."""
        if self.directory is None:
            return []
        return [name for name in SIDE_FILE_NAMES if name not in self.side_files and (self.directory / name).exists()]

    @property
    def model(self) -> Transformer:
        """The model as a module of PyTorch, whose weights may be changed; made when first asked for."""
        return self.weights.module if isinstance(self.weights, StoredModel) else self.weights

    @property
    def own_module(self) -> Transformer:
        """The same module, for code of the package, which changes nothing in it; see `StoredModel.own_module`."""
        return self.weights.own_module if isinstance(self.weights, StoredModel) else self.weights

    @property
    def config(self) -> ModelConfig:
        """The settings of the model."""
        return self.weights.config

    @property
    def precision(self) -> StoredPrecision | None:
        """Precision in which the matrices are stored; None for float32."""
        return self.weights.precision if isinstance(self.weights, StoredModel) else None

    @cached_property
    def line_statistics(self) -> LineStatistics | None:
        """Statistics of the training lines; None for a model that was not trained by clearhead.

        Raises:
            ValueError: If the statistics in `info` are damaged.
        """
        data = self.info.get("data")
        values = data.get("line_statistics") if isinstance(data, Mapping) else None
        return None if values is None else LineStatistics.from_dict(values)

    @property
    def device(self) -> str:
        """The device of the weights, as PyTorch names it."""
        return "cpu" if isinstance(self.weights, StoredModel) else str(next(self.weights.parameters()).device)

    @property
    def languages(self) -> tuple[list[str], list[str]]:
        """The source and target languages, by the settings, the language tags and the training or imported files.

        Empty where they are unknown. A model with language tags but without a known source language accepts any of its
        languages.
        """
        return _languages(self.info, self.tokenizer, self.decode)

    def identity(self) -> dict[str, str]:
        """Return the hashes that identify this model: those of its weights file and of its tokenizer."""
        return {"model_sha256": self.model_sha256 or "", "tokenizer_sha256": self.tokenizer.sha256}

    @property
    def imported_from(self) -> dict[str, Any] | None:
        """The origin of an imported model, from `info`: at least `library`, `kind` and `name`.

        None for a model that was trained here from scratch.
        """
        return _imported_from(self.info)


def _imported_from(info: Mapping[str, Any]) -> dict[str, Any] | None:
    said = info.get("imported_from")
    names = ("library", "kind", "name")
    return said if isinstance(said, dict) and all(isinstance(said.get(name), str) for name in names) else None


def _languages(info: Mapping[str, Any], tokenizer: Vocabulary, decode: DecodeConfig) -> tuple[list[str], list[str]]:
    data = info.get("data")
    imported = _imported_from(info) or {}
    data = data if isinstance(data, Mapping) else {}
    match data.get("languages", imported.get("languages")):
        case [source, target]:
            trained = [[language] if isinstance(language, str) else [] for language in (source, target)]
        case _:
            trained = [[], []]
    tags = list(tokenizer.language_tags)
    sources = [decode.source_lang] if decode.source_lang else trained[0]
    return sources or tags, tags or trained[1]


def read_languages(path: str | Path) -> tuple[list[str], list[str]]:
    """Return `Bundle.languages` of a model directory or run directory, whose files are checked, but not loaded.

    Raises:
        ModelError: If the directory is missing, damaged, or in another format.
    """
    config = read_config(directory := model_directory(path))
    verify_checksums(directory, config)
    return _languages(config["info"], load_vocabulary(directory / "tokenizer.json"), _read_decode(directory))


def _read_decode(directory: Path) -> DecodeConfig:
    path = directory / "generation_config.json"
    return _parse(DecodeConfig, read_json(path, ModelError), path)


def save_bundle(
    directory: str | Path,
    bundle: Bundle,
    *,
    golden: Sequence[Mapping[str, Any]] = (),
    card: str = "",
    side_files: SideFiles | None = None,
    check: Callable[[Bundle], None] | None = None,
) -> None:
    """Write a model directory, completely or not at all; an older model of that name is replaced.

    What was written is read again before it is put in its place.

    Args:
        directory: Path of the model directory.
        bundle: The model to write.
        golden: Objects with `source`, `text` and `score`, which `verify` translates again.
        card: The text of README.md.
        side_files: Side files to write; those of the older model are not kept. Other files in its directory are.
        check: Called with the model as it was read again; raises an error if it must not be published.

    Raises:
        ModelError: If the path holds something other than a model, model and tokenizer do not belong together, or it
            cannot be written, or read again.
    """
    refuse_foreign(Path(directory))
    require_same_vocabulary(bundle.config, bundle.tokenizer, origin=str(directory))  # or loading would fail
    with (
        os_error_as(ModelError, f"cannot write the model directory {directory}"),
        new_directory(directory, refuse=refuse_foreign) as temporary,
    ):
        _write_files(temporary, bundle, golden, card, side_files or {})
        own = bundle.own_module if "model" in own_parts(bundle.info) else None
        try:
            written = _load(temporary, "cpu", True, own)
            if check is not None:
                check(written)
        except ModelError as error:
            said = str(error).replace(str(temporary), str(directory))
            raise ModelError(f"the model was not written, because what was to be written is no good: {said}") from error
        keep_others(Path(directory), temporary, _OWN_NAMES)


def load_bundle(path: str | Path, *, device: str = "cpu", verify: bool = True, model: OwnModel | None = None) -> Bundle:
    """Read a model directory, or the model of a run directory; nothing in it is executed.

    If the model is replaced during reading, by a run that has found a better one, it is read again.

    Args:
        path: A model directory or a run directory.
        device: Device for the weights, as PyTorch names it. On the CPU, PyTorch is imported when it is needed.
        verify: Compare every file with its checksum.
        model: The program's own model, which gets the weights; a model that was trained so needs it.

    Raises:
        ConfigError: If `model` is no Transformer, or one of other settings.
        ModelError: If the directory is missing, damaged, mixed from two models, or in another format; or its
            settings, tokenizer and weights contradict each other.
    """
    for _ in range(_MOST_REPLACEMENTS):
        before = directory_identity(path)
        try:
            bundle = _load(path, device, verify, model)
        except Exception:  # a mix of two models' files can fail in any way
            if directory_identity(path) == before:
                raise
        else:
            if directory_identity(path) == before:  # otherwise the weights may be the new ones and the settings the old
                return bundle
    raise ModelError(f"{path} is replaced by another model again and again; try once more when it is not")


def _load(path: str | Path, device: str, verify: bool, own: OwnModel | None) -> Bundle:
    directory = model_directory(path)
    config = read_config(directory)
    if verify:
        verify_checksums(directory, config)
    tokenizer = load_vocabulary(directory / "tokenizer.json")
    settings = _parse(ModelConfig, config.get("model"), directory / "config.json")
    require_same_vocabulary(settings, tokenizer, origin=str(directory))
    weights, precision = directory / "model.safetensors", config.get("precision")
    if own is None and "model" in own_parts(config["info"]):
        raise ModelError(
            f"{directory} was trained with a model of a program's own, whose code is not in it; load it in Python: "
            f"clearhead.Translator.load({str(path)!r}, model=...)"
        )
    if own is not None:
        from clearhead.files.tensors import load_weights
        from clearhead.model.own_model import make_model

        module = make_model(own, settings).eval()
        metadata, arrays = load_weights(module, weights), module_arrays(module)
        model: StoredModel | Transformer = module
    else:
        require_fitting_weights(settings, weights, origin=str(directory / "config.json"), precision=precision)
        # Checked again: the file may have changed.
        arrays, metadata = read_arrays(weights, stored_headers(settings, precision))
        model = StoredModel(
            settings, arrays if precision is None else RoundedWeights(precision, arrays, origin=str(weights))
        )
    require_finite(arrays, origin=str(weights))
    if metadata.get("tokenizer_sha256") != tokenizer.sha256:
        raise ModelError(
            f"{directory}: tokenizer.json is not the tokenizer that model.safetensors was trained with; "
            f"copy both from the same model"
        )
    decode = _read_decode(directory)
    if precision == "int8" and device != "cpu" and decode.precision == "int8":
        decode = decode.with_changes({"precision": "fp32"})  # other devices do not compute in 8 bits
    bundle = Bundle(
        model if device == "cpu" else (model.own_module if isinstance(model, StoredModel) else model).to(device),
        tokenizer,
        decode,
        config["info"],
        model_sha256=config["checksums"]["model.safetensors"],
        golden=read_golden(directory),
        format_version=config["format_version"],
        clearhead_version=config["clearhead_version"],
        directory=directory,
        side_files=read_side_files(directory, config),
    )
    try:
        bundle.line_statistics  # noqa: B018 - read here, where the file name is known
    except ValueError as error:
        raise ModelError(f"{directory / 'config.json'} is damaged: info.data.line_statistics: {error}") from None
    return bundle


def own_parts(info: Mapping[str, Any]) -> list[str]:
    """Return the parts of a run whose code is not in its model, from `Bundle.info`; see `train.own_parts`."""
    value: Any = info
    for name in ("settings", "train", "own_parts"):
        value = value.get(name) if isinstance(value, Mapping) else None
    return [str(name) for name in value] if isinstance(value, list | tuple) else []


def require_same_vocabulary(config: ModelConfig, tokenizer: Vocabulary, *, origin: str) -> None:
    """Compare a model's settings with its tokenizer, which determines the ids of its tokens.

    Raises:
        ModelError: If they differ in the number of tokens or in a special token.
    """
    owned = {name: (getattr(config, name), value) for name, value in tokenizer.model_settings.items()}
    different = [f"{name} {ours}, tokenizer {theirs}" for name, (ours, theirs) in owned.items() if ours != theirs]
    if different:
        raise ModelError(
            f"{origin}: the model's settings and its tokenizer do not belong together (settings {'; '.join(different)})"
        )


def require_fitting_weights(
    config: ModelConfig,
    path: Path,
    *,
    origin: str,
    precision: StoredPrecision | None = None,
    headers: Mapping[str, TensorHeader] | None = None,
) -> None:
    """Compare a model's settings with a weights file before anything is built, because settings may be arbitrary.

    Args:
        config: The settings.
        path: A safetensors file.
        origin: Source of the settings, for the message.
        precision: Precision of the matrices in the file; None for float32.
        headers: Shapes and types of the tensors; None to read them from the file.

    Raises:
        ModelError: If the file cannot be read, or does not hold the tensors of such a model.
    """
    headers = read_headers(path) if headers is None else headers
    for side, number in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        layers = {match[1] for name in headers if (match := re.match(rf"{side}\.layers\.(\d+)\.", name))}
        if len(layers) != number:
            raise ModelError(f"{origin} has model.num_{side}_layers = {number}, but {path} holds {len(layers)}")
    require_fit(stored_headers(config, precision), headers, origin=str(path))


def read_card(directory: Path) -> str:
    """Return the text of the README.md in a model directory; empty if there is none.

    Raises:
        ModelError: If it cannot be read, or is too large.
    """
    path = directory / "README.md"
    try:
        with os_error_as(ModelError, f"cannot read {path}"):
            return read_text(path, errors="replace") if path.is_file() else ""
    except ValueError as error:
        raise ModelError(f"{path} is no card of a model: {error}; leave it out") from None


def read_golden(directory: Path) -> list[dict[str, Any]]:
    """Return the golden sentences of a model directory.

    Raises:
        ModelError: If the file is missing or damaged.
    """
    path = directory / "golden.jsonl"
    golden = []
    with os_error_as(ModelError, f"cannot read {path}"):
        for number, line in read_json_lines(path):
            if isinstance(line, ValueError):
                raise ModelError(f"cannot read {path}: line {number}: {line}")
            golden.append(line)
    return golden


def _write_files(
    directory: Path, bundle: Bundle, golden: Sequence[Mapping[str, Any]], card: str, side_files: SideFiles
) -> None:
    model_settings, is_own = bundle.config.model_dump(mode="json"), "model" in own_parts(bundle.info)
    arrays = module_arrays(bundle.model) if is_own else StoredModel.of(bundle.weights).arrays
    precision = arrays.precision if isinstance(arrays, RoundedWeights) else None
    write_arrays(
        directory / "model.safetensors",
        arrays.stored if isinstance(arrays, RoundedWeights) else arrays,
        {"format": "pt", "tokenizer_sha256": bundle.tokenizer.sha256, "clearhead_version": NUMBER},
    )
    bundle.tokenizer.save(directory / "tokenizer.json")
    write_json(directory / "generation_config.json", bundle.decode.model_dump(mode="json"))
    write_text(directory / "golden.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in golden))
    write_text(directory / "README.md", card)
    config = {
        "model_type": "clearhead",
        "format_version": FORMAT_VERSION if precision is None else ROUNDED_FORMAT,
        "clearhead_version": full_version(),
        **({} if precision is None else {"precision": precision}),
        "model": model_settings,
        "info": dict(bundle.info),
    }
    model = {
        "model_sha256": file_sha256(directory / "model.safetensors"),
        "tokenizer_sha256": bundle.tokenizer.sha256,
    }
    for name, write in side_files.items():
        write(directory / name, model)
    write_config(directory, config, side_files)


def _parse(kind: type[T], values: Any, path: Path) -> T:
    try:
        return kind(**values)
    except (ConfigError, TypeError) as error:
        raise ModelError(f"{path} is damaged or from another version: {error}") from None
