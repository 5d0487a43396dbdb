"""`clearhead.pipeline`: translation by the pipelines of transformers 4, which version 5 no longer has.

Arguments and results are those of its pipelines `translation` and `text2text-generation`; docs/from-transformers.md
lists the differences.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, overload

from pydantic import Field, NonNegativeInt, PositiveInt

from clearhead.bundle.model_directory import model_directory
from clearhead.config import Sampling
from clearhead.config.decode import Length
from clearhead.config.settings import Settings
from clearhead.config.words import SameAs
from clearhead.errors import ConfigError, DataError, ModelError, nearest_name
from clearhead.files import read_json
from clearhead.formats.languages import is_variant
from clearhead.runtime.device import resolve_device
from clearhead.runtime.pytorch import needing_pytorch
from clearhead.tokenizers import require_texts
from clearhead.tokenizers.foreign import ForeignVocabulary
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator

Record = dict[str, str]

_TRANSLATION = re.compile(r"translation(?:_(\w+)_to_(\w+))?")
_MOST_AT_ONCE = 1_000
_MODELS = "By default the model's."
_TASKS = "By default that of the task's name."


class PipelineArguments(Settings):
    """Arguments of a pipeline, given when it is made or when it is called."""

    num_beams: Annotated[PositiveInt | None, SameAs("decode.beam_size", _MODELS)] = None
    num_return_sequences: PositiveInt = 1
    """Translations of each text; fewer if the search finds fewer different texts."""
    length_penalty: float | None = None
    """Exponent of the length by which log-probabilities are divided; by default the model's penalty."""
    max_length: PositiveInt | None = None
    """Maximum tokens of a translation, counting the start token; a longer one is cut."""
    max_new_tokens: PositiveInt | None = None
    """Maximum tokens of a translation without the start token; takes precedence over `max_length`."""
    min_length: Annotated[Length | None, SameAs("decode.min_length", _MODELS)] = None
    min_new_tokens: Annotated[NonNegativeInt, Field(le=9_999)] | None = None
    """Minimum tokens of a translation without the end token; takes precedence over `min_length`."""
    no_repeat_ngram_size: Annotated[Length | None, SameAs("decode.no_repeat_ngram_size", _MODELS)] = None
    do_sample: bool = False
    """Draw translations at random instead of searching."""
    temperature: Annotated[float, SameAs("sampling.temperature")] = 1.0
    top_k: Annotated[int, SameAs("sampling.top_k")] = 50
    top_p: Annotated[float, SameAs("sampling.top_p")] = 1.0
    src_lang: Annotated[str | None, SameAs("decode.source_lang", _TASKS)] = None
    tgt_lang: Annotated[str | None, SameAs("decode.target_lang", _TASKS)] = None
    truncation: bool = False
    """Cut a text that is longer than the model reads, instead of refusing it."""
    batch_size: Annotated[PositiveInt, Field(le=1_000_000)] | None = None
    """Texts of a generator that are translated at once. Results do not depend on it."""
    num_workers: int | None = None
    """Has no effect."""


_NO_SEARCH = "it is not a setting of the search here"
_COUNTERPARTS: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "early_stopping": ((False, "never"), "beam search ends when nothing better can be found, as with 'never'"),
    "clean_up_tokenization_spaces": ((False,), "translations are as the model wrote them"),
    "return_text": ((True,), "results are texts; Translator.translate gives tokens as well"),
    "return_tensors": ((False,), "results are texts; Translator.translate gives tokens as well"),
    "num_beam_groups": (
        (1,),
        "write Translator.translate(texts, diversity=0.5, num_best=4); each beam is a group",
    ),
    "diversity_penalty": ((0.0,), "write Translator.translate(texts, diversity=0.5, num_best=4)"),
    "repetition_penalty": ((1.0,), "use no_repeat_ngram_size; repetition loops are ended anyway (decode.end_loops)"),
    "encoder_repetition_penalty": ((1.0,), _NO_SEARCH),
    "encoder_no_repeat_ngram_size": ((0,), _NO_SEARCH),
    "bad_words_ids": ((), _NO_SEARCH),
    "force_words_ids": ((), "write Translator.translate(texts, terms=...), for words that translations must have"),
    "constraints": ((), "write Translator.translate(texts, terms=...), for words that translations must have"),
    "prefix_allowed_tokens_fn": ((), "write Translator.translate(texts, prefix=...), for how translations begin"),
    "decoder_input_ids": ((), "write Translator.translate(texts, prefix=...), for how translations begin"),
    "forced_bos_token_id": ((), "use tgt_lang, the target language by its name"),
    "decoder_start_token_id": ((), "the model's own token is used"),
    "bos_token_id": ((), "the model's own token is used"),
    "eos_token_id": ((), "the model's own token is used"),
    "pad_token_id": ((), "the model's own token is used"),
    "generation_config": ((), "the model's own is read; give what differs by name, such as num_beams=4"),
    "max_time": ((), "a translation has no time limit here; requests of clearhead serve have one (request_seconds)"),
    "typical_p": ((1.0,), "there are temperature, top_k and top_p, and Sampling(epsilon=...) in Translator.translate"),
    "epsilon_cutoff": ((0.0,), "write Translator.translate(texts, sampling=Sampling(epsilon=0.02))"),
    "eta_cutoff": ((0.0,), "write Translator.translate(texts, sampling=Sampling(epsilon=0.02))"),
    "penalty_alpha": ((), "there is no contrastive search; there are beam search and samples"),
    "min_p": ((), "there are temperature, top_k and top_p"),
    "output_scores": ((False,), "results are texts; Translator.translate gives the score of each"),
    "output_attentions": ((False,), "clearhead.explain gives the attention of a translation"),
    "return_dict_in_generate": ((False,), "results are texts; Translator.translate gives more of each"),
    "use_cache": ((True,), "keys and values are always cached, which changes no result"),
    "framework": (("pt",), "the compiled core or PyTorch computes"),
    "use_fast": ((True, False), "the model's tokenizer is used"),
    "config": ((), "the model's own is read"),
    "feature_extractor": ((), "translation needs none"),
    "image_processor": ((), "translation needs none"),
    "processor": ((), "translation needs none"),
    "pipeline_class": ((), "write a class of your own around a Translator"),
    "revision": ((), "nothing is downloaded; choose it when you fetch the model: hf download NAME --revision ..."),
    "token": ((), "nothing is downloaded; hf download takes it"),
    "use_auth_token": ((), "nothing is downloaded; hf download takes it"),
    "trust_remote_code": ((False,), "code of a model is never run"),
    "device_map": (("auto",), "use device, such as device='cuda:1'; a model is on one device"),
    "torch_dtype": (("auto", "float32"), "set decode.precision, such as Translator.translate(texts, precision='int8')"),
    "dtype": (("auto", "float32"), "set decode.precision, such as Translator.translate(texts, precision='int8')"),
    "model_kwargs": (({},), "give arguments by their names"),
}
"""Other arguments of version 4: the values that change nothing here, besides None, and what to do for any other."""


def _own_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without those of version 4 that change nothing.

    Raises:
        ConfigError: Naming the counterpart of one that would.
    """
    for name, value in arguments.items():
        harmless, instead = _COUNTERPARTS.get(name, ((), ""))
        if instead and value is not None and str(value).removeprefix("torch.") not in map(str, harmless):
            raise ConfigError(f"{name}={value!r:.60} cannot be given: {instead}")
    return {name: value for name, value in arguments.items() if name not in _COUNTERPARTS}


class TranslationPipeline:
    """A model to be called with texts; made by `pipeline`.

    Args:
        task: Name of the task.
        model: The model.
        prefix: Text that the model expects before every text.
        **arguments: Fields of `PipelineArguments` for every call.
    """

    def __init__(self, task: str, model: Translator, prefix: str = "", **arguments: Any) -> None:
        self.task, self.model = task, model
        self._prefix = prefix
        self._given = _own_arguments(arguments)
        matched = _TRANSLATION.fullmatch(task)
        self._key = "translation_text" if matched else "generated_text"
        self._languages = matched.groups() if matched else (None, None)
        self._read(self._given)  # refuses what is impossible at once

    def __repr__(self) -> str:
        return f"<TranslationPipeline {self.task}: {self.model!r}>"

    @overload
    def __call__(self, texts: str, **arguments: Any) -> list[Record]: ...

    @overload
    def __call__(self, texts: list[str], **arguments: Any) -> list[Record] | list[list[Record]]: ...

    @overload
    def __call__(self, texts: Iterator[str], **arguments: Any) -> Iterator[list[Record]]: ...

    def __call__(self, texts: Any, **arguments: Any) -> Any:
        """Translate a text, a list of texts, or the texts of a generator.

        Args:
            texts: The texts.
            **arguments: Fields of `PipelineArguments`, which take precedence over those given to `pipeline`.

        Returns:
            For a text a list of dicts, one for each returned sequence, with `translation_text` (or `generated_text`).
            For a list of texts a list of dicts or, with several returned sequences, of such lists. For a generator an
            iterator over such lists.

        Raises:
            ConfigError: If an argument is unknown or impossible.
            DataError: If the texts are something else, or one is longer than the model reads.
        """
        asked = self._read({**self._given, **_own_arguments(arguments)})
        if isinstance(texts, str):
            return self._records([texts], asked)[0]
        if isinstance(texts, Iterator):
            return self._stream(texts, asked)
        if not isinstance(texts, list):
            raise DataError(f"a pipeline takes a text, a list of texts or a generator, not {type(texts).__name__}")
        records = self._records(require_texts(texts, "texts"), asked)
        return records if asked.num_return_sequences > 1 else [record for [record] in records]

    def _stream(self, texts: Iterator[str], asked: PipelineArguments) -> Iterator[list[Record]]:
        while chunk := list(islice(texts, asked.batch_size or 1)):
            yield from self._records(require_texts(chunk, "texts"), asked)

    def _read(self, arguments: dict[str, Any]) -> PipelineArguments:
        """Return the arguments, checked; the languages are the model's own names of them, or None."""
        asked = PipelineArguments.from_dict(arguments, origin=f"pipeline {self.task}")
        beams = asked.num_beams or self.model.bundle.decode.beam_size
        if asked.num_return_sequences > beams and not asked.do_sample:
            raise ConfigError(
                f"num_return_sequences ({asked.num_return_sequences}) must not be more than num_beams ({beams})"
            )
        told = (asked.src_lang, asked.tgt_lang)
        source, target = self._languages if told == (None, None) else told
        tokenizer = self.model.bundle.tokenizer
        told_of = list(tokenizer.languages) if isinstance(tokenizer, ForeignVocabulary) else []
        own = {"src_lang": _own_name(source, told_of), "tgt_lang": _own_name(target, list(tokenizer.language_tags))}
        return asked.model_copy(update=own)

    def _records(self, texts: Sequence[str], asked: PipelineArguments) -> list[list[Record]]:
        records: list[list[Record]] = []
        for start in range(0, len(texts), _MOST_AT_ONCE):
            lines = [self._prefix + text for text in texts[start : start + _MOST_AT_ONCE]]
            for number, translation in enumerate(self._translated(lines, asked), start=start + 1):
                if translation.source_truncated and not asked.truncation:
                    most = self.model.decode_config({}).max_input_tokens
                    raise DataError(
                        f"text {number} has more than {most:,} tokens, the most that this model reads; divide it, or "
                        f"cut it with truncation=True"
                    )
                alternatives = [alternative.text for alternative in translation.alternatives or [translation]]
                records.append([{self._key: self._cut(text, asked)} for text in alternatives])
        return records

    def _translated(self, lines: list[str], asked: PipelineArguments) -> list[Translation]:
        how: dict[str, Any] = {"split": "never", "familiar": False, "place_markup": False}  # a text as it is, whole
        if asked.do_sample:
            how["sampling"] = Sampling(epsilon=0.0, temperature=asked.temperature, top_k=asked.top_k, top_p=asked.top_p)
        if asked.length_penalty is not None:
            how |= {"length_penalty": asked.length_penalty, "length_penalty_form": "power"}
        if (limit := _most_tokens(asked)) is not None:
            how["extra_length"] = min(10_000, max(limit, self.model.bundle.decode.extra_length))
        if asked.min_new_tokens is not None:
            how["min_length"] = asked.min_new_tokens + 1  # the end token
        return self.model.translate(
            lines,
            num_best=asked.num_return_sequences,
            scores=False,
            **{
                "beam_size": asked.num_beams,
                "source_lang": asked.src_lang,
                "target_lang": asked.tgt_lang,
                "min_length": asked.min_length,
                "no_repeat_ngram_size": asked.no_repeat_ngram_size,
                **how,
            },
        )

    def _cut(self, text: str, asked: PipelineArguments) -> str:
        limit, tokenizer = _most_tokens(asked), self.model.bundle.tokenizer
        if limit is None or not text:
            return text
        [ids] = tokenizer.encode_targets([text], [asked.tgt_lang])
        return text if len(ids) <= limit else tokenizer.decode(ids[:limit])


def pipeline(
    task: str,
    model: str | Path | Translator | None = None,
    tokenizer: str | Path | None = None,
    *,
    device: int | str | None = None,
    **arguments: Any,
) -> TranslationPipeline:
    """Return a function from texts to translations, as `pipeline` of transformers 4 did.

    Args:
        task: `translation_de_to_en` or the like, `translation` or `text2text-generation`.
        model: Path of a model directory or a run directory, or of a model that `clearhead import` reads, such as a
            directory of transformers; or a translator. Nothing is downloaded.
        tokenizer: The path of the model again; there is no other.
        device: `auto` (the default), `cpu`, `cuda` or `cuda:1`; or the number of a GPU, where -1 is the CPU.
        **arguments: Fields of `PipelineArguments`, such as `num_beams=4`, for every call. Of the other arguments of
            version 4 those values are taken that change nothing here.

    Raises:
        ConfigError: If the task or an argument is unknown or impossible.
        ModelError: If there is no such model, or it is damaged.
        DeviceError: If the device is not available.
    """
    if task != "text2text-generation" and not _TRANSLATION.fullmatch(task):
        raise ConfigError(
            f"unknown task {task!r:.60}; there are translation, translation_XX_to_YY (such as translation_de_to_en) "
            f"and text2text-generation"
        )
    if tokenizer is not None and not (isinstance(tokenizer, str | Path) and str(tokenizer) == str(model)):
        raise ConfigError("leave out tokenizer: the one in the model's directory is used")
    if isinstance(model, Translator):
        if device is not None:
            raise ConfigError("leave out device: the translator has one already")
        return TranslationPipeline(task, model, **arguments)
    if model is None:
        raise ConfigError("name a model, such as model='runs/de-en'; there is no default, and nothing is downloaded")
    if not isinstance(model, str | Path):
        raise ConfigError(
            f"model is the path of a model, or a Translator, not a {type(model).__name__}; write a model of "
            f"transformers to a directory with save_pretrained, and its tokenizer too"
        )
    PipelineArguments.from_dict(_own_arguments(arguments), origin=f"pipeline {task}")  # before a model is loaded
    path, named = Path(model), str(device)
    if isinstance(device, int):
        named = "cpu" if device < 0 else f"cuda:{device}"
    where = "auto" if device is None else named
    if not path.exists():
        from clearhead.interop.import_model import missing_model

        raise missing_model(path)
    if _is_ours(path):
        return TranslationPipeline(task, Translator.load(path, device=where), **arguments)
    return TranslationPipeline(task, _imported(path, where), _task_prefix(path, task), **arguments)


def _is_ours(path: Path) -> bool:
    """Return whether a path is a model directory or a run; a damaged one is, too."""
    if (path / "config.toml").exists():
        return True
    try:
        directory = model_directory(path)
    except ModelError:
        return False
    return read_json(directory / "config.json", ModelError).get("model_type") == "clearhead"


def _imported(path: Path, device: str) -> Translator:
    resolved = resolve_device(device)
    with needing_pytorch("reading models of other libraries"):
        from clearhead.interop.import_model import import_path
    imported = import_path(path)
    for note in imported.notes:
        warnings.warn(f"{path}: {note}", stacklevel=3)
    bundle = imported.bundle
    return Translator(bundle if resolved == "cpu" else replace(bundle, weights=bundle.model.to(resolved)), path)


def _task_prefix(path: Path, task: str) -> str:
    """Return the text that a model of several tasks, such as T5, expects before every text of this one."""
    if not (path / "config.json").is_file():
        return ""
    values = read_json(path / "config.json", ModelError)
    tasks = values.get("task_specific_params")
    own = tasks.get(task) if isinstance(tasks, dict) else None
    prefix = (own if isinstance(own, dict) and "prefix" in own else values).get("prefix")
    return prefix if isinstance(prefix, str) else ""


def _own_name(language: str | None, known: Sequence[str]) -> str | None:
    """Return a model's own name of a language, which may be a variant, such as `de_DE`; None without languages.

    Raises:
        ConfigError: If it has another language, or several variants.
    """
    if language is None or not known or language in known:
        return language if known else None
    variants = [name for name in known if is_variant(name, language)]
    if len(variants) == 1:
        return variants[0]
    near = f"; there are {', '.join(variants)}" if variants else nearest_name(language, known)
    raise ConfigError(f"this model has no language {language!r:.40}{near}; name it with src_lang and tgt_lang")


def _most_tokens(asked: PipelineArguments) -> int | None:
    if asked.max_new_tokens is not None:
        return asked.max_new_tokens
    return None if asked.max_length is None else max(1, asked.max_length - 1)
