"""The translation engines: each lives in a process of its own and answers requests, one JSON line each way.

Run as a script this is such a process. It imports next to nothing before its engine does, so that the time until the
first translation is the engine's own.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

__all__ = ["ENGINES", "ISAS", "ON_GPU", "Ended", "Engine", "EngineProcess", "Search", "Window", "why_missing"]


@dataclass(frozen=True)
class Search:
    """What every engine searches for: the output with the best log-probability / length ** length_penalty."""

    beam_size: int
    """1 is greedy search."""
    length_penalty: float
    extra_length: int
    """Most output tokens beyond those of the source, the end token included."""
    batch_size: int
    """Sentences decoded at once."""
    end_loops: bool
    """Whether clearhead may end a repetition loop. Peers cannot, and random weights repeat themselves often."""


class Clearhead:
    """What `clearhead translate` runs, from ids to ids."""

    has_shortlist = False
    device = "cpu"

    def __init__(self, directory: Path, threads: int, precision: str) -> None:
        from clearhead.config import ModelConfig
        from clearhead.decoding import NativeEngine, Shortlist, make_engine
        from clearhead.files.arrays import read_arrays
        from clearhead.kernels.library import form
        from clearhead.model.rounded_weights import stored_headers
        from clearhead.model.stored import StoredModel
        from clearhead.runtime.threads import set_num_threads

        set_num_threads(threads)
        config = ModelConfig(**_read_json(directory / "clearhead" / "config.json"))
        model = StoredModel(
            config, read_arrays(directory / "clearhead" / "model.safetensors", stored_headers(config))[0]
        )
        forms: dict[str, Any] = {"float32": "fp32", "bfloat16 x3": "bf16x3", "bfloat16": "bf16", "float16": "fp16"}
        placed = model if self.device == "cpu" else model.own_module.to(self.device)
        self.model = make_engine(placed, forms.get(precision, precision))
        path = directory / "clearhead" / "shortlist.safetensors"
        self.shortlist = Shortlist.load(path, {}) if self.has_shortlist else None
        # The compiled core's threads are workers, each with a batch of its own.
        self.workers = threads if isinstance(self.model, NativeEngine) else 1
        self.computes_in = f"{precision}, {form() if isinstance(self.model, NativeEngine) else 'PyTorch'}"

    def read(self, sources: list[list[int]]) -> list[list[int]]:
        return sources

    def translate(self, sources: list[list[int]], search: Search) -> list[Sequence[int]]:
        from clearhead.config import DecodeConfig
        from clearhead.decoding import SearchOptions, decode

        mean = sum(map(len, sources)) // len(sources)
        config = DecodeConfig(
            beam_size=search.beam_size,
            length_penalty=search.length_penalty,
            length_penalty_form="power",
            extra_length=search.extra_length,
            end_loops=search.end_loops,
            # As many sentences at once as the others, on average: it counts tokens, in each worker.
            batch_tokens=max(1, search.batch_size * search.beam_size * mean // self.workers // self.model.batch_factor),
        )
        options = SearchOptions(config, scores=False, shortlist=self.shortlist)  # as for plain text
        return [hypotheses[0].tokens for hypotheses in decode(self.model, sources, options)]

    def ids(self, outputs: list[Sequence[int]]) -> list[list[int]]:
        return [list(tokens) for tokens in outputs]


class ClearheadShortlist(Clearhead):
    """The same, written in the tokens of a shortlist alone."""

    has_shortlist = True


class ClearheadGpu(Clearhead):
    """The same in PyTorch on a GPU."""

    device = "cuda"


class ClearheadGpuScored(ClearheadGpu):
    """The same with the scores of its translations, by another pass over them."""

    def translate(self, sources: list[list[int]], search: Search) -> list[Sequence[int]]:
        from clearhead.decoding import make_engine, score

        found = super().translate(sources, search)
        self.scorer = getattr(self, "scorer", None) or make_engine(self.model.model)
        tokens = search.batch_size * sum(map(len, sources)) // len(sources)
        score(self.scorer, sources, list(map(list, found)), batch_tokens=tokens)
        return found


class HuggingFace:
    """`generate` of transformers."""

    device = "cpu"

    def __init__(self, directory: Path, threads: int, precision: str) -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()
        directory = directory / "huggingface"
        config = _read_json(directory / "config.json")
        kind = getattr(transformers, config["architectures"][0])
        self.model = kind.from_pretrained(directory, dtype=getattr(torch, precision)).eval().to(self.device)
        self.pad_id, self.bos_id, self.eos_id = (config[f"{name}_token_id"] for name in ("pad", "bos", "eos"))
        instructions = torch.backends.cpu.get_cpu_capability() if self.device == "cpu" else "CUDA"
        self.computes_in = f"{precision}, {instructions}"

    def read(self, sources: list[list[int]]) -> list[list[int]]:
        return sources

    def translate(self, sources: list[list[int]], search: Search) -> list[list[int]]:
        import torch
        import transformers

        beams: dict[str, Any] = {"length_penalty": search.length_penalty, "early_stopping": "never"}
        results: list[list[int]] = [[]] * len(sources)
        for rows in _batches(sources, search.batch_size):
            longest = max(len(sources[row]) for row in rows)
            padded = [[*sources[row], *[self.pad_id] * (longest - len(sources[row]))] for row in rows]
            source = torch.tensor(padded, device=self.device)
            options = transformers.GenerationConfig(
                max_new_tokens=_most_tokens(longest, search),
                num_beams=search.beam_size,
                do_sample=False,
                pad_token_id=self.pad_id,
                bos_token_id=self.bos_id,
                eos_token_id=self.eos_id,
                decoder_start_token_id=self.bos_id,
                **(beams if search.beam_size > 1 else {}),
            )
            found = self.model.generate(
                source, attention_mask=(source != self.pad_id).long(), generation_config=options
            )
            for row, tokens in zip(rows, found[:, 1:].tolist(), strict=True):
                results[row] = tokens
        return results

    def ids(self, outputs: list[list[int]]) -> list[list[int]]:
        def until_end(tokens: list[int]) -> list[int]:
            return tokens[: tokens.index(self.eos_id) + 1] if self.eos_id in tokens else tokens

        return [until_end(tokens) for tokens in outputs]


class HuggingFaceGpu(HuggingFace):
    """The same on a GPU."""

    device = "cuda"


class CTranslate2:
    """CTranslate2's `Translator`, which sorts and cuts the sentences into batches itself."""

    device = "cpu"
    has_workers = False
    """Whether each thread translates batches of its own; if not, all share each product."""

    def __init__(self, directory: Path, threads: int, precision: str) -> None:
        import ctranslate2

        path = directory / f"ctranslate2-{precision}"
        self.workers = threads if self.has_workers else 1
        self.translator = ctranslate2.Translator(
            str(path),
            device=self.device,
            compute_type=precision,
            inter_threads=self.workers,
            intra_threads=threads // self.workers,
        )
        self.pieces: list[str] = _read_json(path / "shared_vocabulary.json")
        self.numbers = {piece: number for number, piece in enumerate(self.pieces)}
        self.computes_in = self.translator.compute_type

    def read(self, sources: list[list[int]]) -> list[list[str]]:
        return [[self.pieces[number] for number in ids] for ids in sources]

    def translate(self, sources: list[list[str]], search: Search) -> list[Any]:
        return self.translator.translate_batch(
            sources,
            max_batch_size=max(1, search.batch_size // self.workers),
            beam_size=search.beam_size,
            length_penalty=search.length_penalty,
            max_decoding_length=_most_tokens(max(map(len, sources)), search),
            min_decoding_length=0,
            return_end_token=True,  # and so counts it in the length, as the others do
        )

    def ids(self, outputs: list[Any]) -> list[list[int]]:
        return [[self.numbers[piece] for piece in output.hypotheses[0]] for output in outputs]


class CTranslate2Workers(CTranslate2):
    """CTranslate2 with as many batches at once as threads, and as many sentences in all."""

    has_workers = True


class CTranslate2Gpu(CTranslate2):
    """CTranslate2 on a GPU."""

    device = "cuda"

    def __init__(self, directory: Path, threads: int, precision: str) -> None:
        super().__init__(directory, 1, precision)  # threads would be workers on the one GPU


class Marian:
    """Marian's decoder, as pymarian: every thread translates batches of its own."""

    def __init__(self, directory: Path, threads: int, precision: str) -> None:
        self.files, self.threads = directory / "marian", threads
        self.translators: dict[tuple[Search, float], Any] = {}
        self.computes_in = precision

    def read(self, sources: list[list[int]]) -> list[str]:
        return [" ".join(map(str, ids[:-1])) for ids in sources]  # it adds the end token itself

    def translate(self, sources: list[str], search: Search) -> list[str]:
        longest = max(source.count(" ") + 2 for source in sources)
        factor = _most_tokens(longest, search) / longest
        if (search, factor) not in self.translators:
            self.translators[search, factor] = self._translator(search, factor)
        return self.translators[search, factor].translate(sources)

    def _translator(self, search: Search, factor: float) -> Any:
        import _pymarian  # by itself: the package around it needs others that have no part in this

        vocabulary = self.files / "vocab.yml"
        return _pymarian.Translator(
            f"--models {self.files / 'model.bin'} --vocabs {vocabulary} {vocabulary} --cpu-threads {self.threads} "
            f"--beam-size {search.beam_size} --normalize {search.length_penalty} --max-length-factor {factor} "
            f"--mini-batch {max(1, search.batch_size // self.threads)} --maxi-batch 1000 --maxi-batch-sort src "
            f"{'--skip-cost' if search.beam_size == 1 else ''} --quiet --quiet-translation"
        )

    def ids(self, outputs: list[str]) -> list[list[int]]:
        return [[int(name) for name in output.split()] for output in outputs]


class Slimt:
    """slimt's greedy search, in batches of about 1,000 tokens that it chooses itself; each thread has its own."""

    def __init__(self, directory: Path, threads: int, precision: str) -> None:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # in each worker
        package = find_spec("slimt")  # not imported, because the package downloads lists of models then
        assert package is not None
        assert package.submodule_search_locations
        (path,) = Path(package.submodule_search_locations[0]).glob("_slimt*.so")
        spec = spec_from_file_location("_slimt", path)
        assert spec is not None
        assert spec.loader is not None
        slimt = module_from_spec(spec)
        spec.loader.exec_module(slimt)
        sizes, config = _read_json(directory / "clearhead" / "config.json"), slimt.Config()
        config.encoder_layers, config.decoder_layers = sizes["num_encoder_layers"], sizes["num_decoder_layers"]
        config.num_heads, config.feed_forward_depth = sizes["num_heads"], 2
        names = {"model": "model.bin", "vocabulary": "vocab.spm", "shortlist": "lex.bin"}
        files = slimt.Package(**{name: str(directory / "slimt" / file) for name, file in names.items()})
        self.model = slimt.Model(config, files)
        self.service = slimt.Service(workers=threads, cache_size=0)
        self.computes_in = precision

    def read(self, sources: list[list[int]]) -> list[str]:
        return [" ".join(map(str, ids[:-1])) for ids in sources]  # it adds the end token itself

    def translate(self, sources: list[str], _: Search) -> list[Any]:
        return list(self.service.translate(self.model, sources))

    def ids(self, outputs: list[Any]) -> list[list[int]]:
        return [[int(name) for name in output.target.text.split()] for output in outputs]


@dataclass(frozen=True)
class Engine:
    """How to have one."""

    kind: type[Clearhead] | type[HuggingFace] | type[CTranslate2] | type[Marian] | type[Slimt]
    modules: tuple[str, ...]
    """What must be installed, also to convert the weights."""
    install: str
    precision: str = "float32"

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""
        return getattr(self.kind, "device", "cpu")

    @property
    def limit(self) -> str:
        """The key of its limit in `limits.PRECISIONS`."""
        return self.precision + ("" if self.device == "cpu" else " on the GPU")


PEERS = ".venv/bin/pip install -c constraints.txt -e '.[interop]'"
CONVERTED = ("ctranslate2", "transformers")

ENGINES: Mapping[str, Engine] = {
    "clearhead": Engine(Clearhead, ("clearhead",), "make setup"),
    "clearhead-bf16x3": Engine(Clearhead, ("clearhead",), "make setup", "bfloat16 x3"),
    "clearhead-bf16": Engine(Clearhead, ("clearhead",), "make setup", "bfloat16"),
    "clearhead-int8": Engine(Clearhead, ("clearhead",), "make setup", "int8"),
    "clearhead-shortlist": Engine(ClearheadShortlist, ("clearhead",), "make setup"),
    "clearhead-gpu": Engine(ClearheadGpu, ("clearhead",), "make setup"),
    "clearhead-gpu-bf16": Engine(ClearheadGpu, ("clearhead",), "make setup", "bfloat16"),
    "clearhead-gpu-fp16": Engine(ClearheadGpu, ("clearhead",), "make setup", "float16"),
    "clearhead-gpu-fp16-scored": Engine(ClearheadGpuScored, ("clearhead",), "make setup", "float16"),
    "huggingface": Engine(HuggingFace, ("transformers",), PEERS),
    "huggingface-gpu": Engine(HuggingFaceGpu, ("transformers",), PEERS),
    "huggingface-gpu-fp16": Engine(HuggingFaceGpu, ("transformers",), PEERS, "float16"),
    "ctranslate2": Engine(CTranslate2, CONVERTED, PEERS),
    "ctranslate2-workers": Engine(CTranslate2Workers, CONVERTED, PEERS),
    "ctranslate2-int8": Engine(CTranslate2, CONVERTED, PEERS, "int8"),
    "ctranslate2-int8-workers": Engine(CTranslate2Workers, CONVERTED, PEERS, "int8"),
    "ctranslate2-gpu-fp16": Engine(CTranslate2Gpu, CONVERTED, PEERS, "float16"),
    "marian-int8": Engine(Marian, ("_pymarian",), ".venv/bin/pip install --no-deps pymarian", "int8"),
    "slimt-int8": Engine(
        Slimt, ("_pymarian", "slimt"), ".venv/bin/pip install --no-deps pymarian slimt==0.1.0", "int8"
    ),
}


ON_GPU = tuple(name for name, engine in ENGINES.items() if engine.device != "cpu")
"""Engines that need a GPU."""

ISAS: Mapping[str, Mapping[str, str]] = {
    "avx2": {
        "CLEARHEAD_ISA": "avx2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "CT2_FORCE_CPU_ISA": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "INTGEMM_CPUID": "AVX2",  # Marian's 8-bit products
    },
}
"""Instruction sets that engines can be held to, and the environment variables that do it, of all engines and theirs."""


def why_missing(name: str) -> str | None:
    """Return what an engine lacks, and how to have it; None if it can start."""
    engine = ENGINES[name]
    if not all(find_spec(module) for module in engine.modules):
        return f"skipped: {name} is not installed; to have it: {engine.install}"
    if name in ON_GPU and not has_gpu():
        return f"skipped: {name} needs a GPU"
    if name == "clearhead-bf16x3":
        from clearhead.kernels.library import library

        if library() is None:
            return f"skipped: {name} needs a C compiler at make setup"
    return None


@dataclass(frozen=True)
class Window:
    """A measured stretch of work."""

    seconds: float
    outputs: list[list[int]]
    """Ids, the end token included where there is one."""
    peak_mib: float
    """Most memory the process has held so far; of the GPU, what it holds now, unused memory of its pool included."""
    computes_in: str


class Ended(Exception):
    """An engine's process ended before its work was done."""


class EngineProcess:
    """An engine at work in another process; a context manager, so that none is left over."""

    def __init__(
        self, name: str, directory: Path, threads: int, first: list[int], search: Search, isa: str | None = None
    ) -> None:
        """Start it and let it translate one sentence.

        Args:
            name: Of the engine.
            directory: Of all its forms of the weights, see `conversion`.
            threads: Of the engine.
            first: The ids of that sentence.
            search: How.
            isa: The instructions that it is held to, of `ISAS`; None for all of the processor's.

        Raises:
            Ended: If it cannot.
        """
        environment = {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        self.name = name
        start = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, __file__, name, str(directory), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, **environment, **ISAS.get(isa or "", {})},
        )
        self.translate([first], search)
        self.start_up_seconds = time.perf_counter() - start

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its input ends it

    def translate(self, sources: list[list[int]], search: Search) -> Window:
        """Let it translate sentences; the clock runs in its process, from ids (CTranslate2: pieces) to as many.

        Raises:
            Ended: If its process ends instead.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"sources": sources, "search": asdict(search)}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died, and so does not answer
        answer = self._process.stdout.readline()
        if not answer:
            raise Ended(f"the process of {self.name} ended (status {self._process.wait()}); see its error above")
        return Window(**json.loads(answer))


def _batches(sources: Sequence[Sequence[int]], batch_size: int) -> Iterator[list[int]]:
    """Cut the numbers of the sentences, longest first, into batches."""
    order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def _most_tokens(longest: int, search: Search) -> int:
    """Return the length limit of engines that need no end token at the limit, like clearhead."""
    return longest + search.extra_length - 1


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _peak_mib() -> float:
    status = Path("/proc/self/status")
    if status.is_file():
        # Unlike the ru_maxrss of getrusage this leaves out what the parent had used when it forked.
        values = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
        return int(values["VmHWM"].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def has_gpu() -> bool:
    """Return whether PyTorch sees a GPU."""
    import torch

    return torch.cuda.is_available()


def _gpu_mib() -> float:
    """Return the GPU's memory that this process holds, of which PyTorch does not know all; NaN if it is unknown."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
    except FileNotFoundError:
        return math.nan
    used = dict(line.split(", ") for line in lines)
    own = used.get(str(os.getpid()), "")
    return float(own) if own.isdecimal() else math.nan


def _serve(name: str, directory: Path, threads: int) -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not get among the answers
    engine = ENGINES[name].kind(directory, threads, ENGINES[name].precision)
    for line in sys.stdin:
        request = json.loads(line)
        search = Search(**request["search"])
        sources: Any = engine.read(request["sources"])
        start = time.perf_counter()
        if search.batch_size == 1:  # one call a sentence, or engines with several workers would take several at once
            outputs: Any = [output for source in sources for output in engine.translate([source], search)]
        else:
            outputs = engine.translate(sources, search)
        seconds = time.perf_counter() - start
        memory = _gpu_mib() if name in ON_GPU else _peak_mib()
        window = Window(seconds, engine.ids(outputs), memory, engine.computes_in)
        answers.write(json.dumps(asdict(window)) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
