"""Translation in several processes on one machine: on several GPUs, or on the CPUs.

`runtime.ray_shards` does the same on many machines; Ray takes about ten seconds to start, and documents and translation
memories stay in the process of the command.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.config import DecodeChanges
from clearhead.errors import ClearheadError, DeviceError, ModelError
from clearhead.model.stored import StoredModel
from clearhead.runtime.device import num_gpus, resolve_device
from clearhead.runtime.threads import num_threads, set_num_threads
from clearhead.tokenizers import require_texts
from clearhead.tokenizers.vocabulary import refuse_surrogates
from clearhead.translation.memory import Retrieve
from clearhead.translation.options import TranslateOptions
from clearhead.translation.result import Translation
from clearhead.translation.retrieval import consults
from clearhead.translation.translator import Translator

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from clearhead.bundle import Bundle
    from clearhead.decoding.shortlist import Shortlist


class TranslatorTeam(Translator):
    """A translator that distributes lines over worker processes; see `of`.

    Its translations are those of a single translator, in the same order.
    """

    def __init__(
        self,
        bundle: Bundle,
        path: Path | None,
        shortlist: Shortlist | None,
        ensemble: tuple[Bundle, ...],
        members: Iterable[tuple[BaseProcess, Connection]] = (),
    ) -> None:
        super().__init__(bundle, path, shortlist, ensemble)
        self._members = list(members)

    @classmethod
    @contextmanager
    def of(
        cls, path: str | Path, count: int, *, device: str = "auto", ensemble: Sequence[str | Path] = ()
    ) -> Iterator[Translator]:
        """Load a translator in each of `count` processes, which end with the block; if 1, in this process.

        Args:
            path: A model directory or a run directory.
            count: Number of processes. With CUDA, each gets its own GPU; on a CPU, they share the threads of this
                process.
            device: `auto`, `cpu` or `cuda`.
            ensemble: Further models with the same vocabulary, as for `Translator.load`.

        Raises:
            ModelError: If a model cannot be loaded.
            ConfigError: If `ensemble` is not a list.
            DeviceError: If there are fewer GPUs than processes, or the device is a single GPU.
        """
        if count == 1:
            yield Translator.load(path, device=device, ensemble=ensemble)
            return
        import multiprocessing

        devices = _devices(resolve_device(device), count)
        here = Translator.load(path, device="cpu", ensemble=ensemble)
        team = cls(here.bundle, here.path, here.shortlist, here.ensemble)
        spawn = multiprocessing.get_context("spawn")
        threads = max(1, num_threads() // count)
        try:
            for own in devices:
                ours, theirs = spawn.Pipe()
                member: BaseProcess = spawn.Process(
                    target=_work, args=(theirs, path, own, ensemble, threads), daemon=True
                )
                with _ignoring_interrupts():  # the worker ignores Ctrl-C from its start; this process ends it
                    member.start()
                theirs.close()
                team._members.append((member, ours))
            team._answers(None)  # wait until all have loaded the model
            yield team
        finally:
            for member, connection in team._members:
                connection.close()  # makes the process end
                member.kill()
            for member, _ in team._members:
                member.join()

    def _translate(
        self, lines: list[str], prefix: str | Sequence[str], options: TranslateOptions, settings: DecodeChanges
    ) -> list[Translation]:
        """Translate lines, each process a share of them; see `Translator.translate`.

        Raises:
            ClearheadError: As `Translator.translate`; or if a process was ended.
            ModelError: If the model was changed in memory: the processes have the one that was read.
        """
        weights = (bundle.weights for bundle in (self.bundle, *self.ensemble))
        if any(isinstance(model, StoredModel) and model.is_changed for model in weights):
            raise ModelError("the model was changed in this process, and the others have it as it was; use one worker")
        refuse_surrogates(lines)
        if not isinstance(prefix, str):
            prefix = require_texts(prefix, "prefix")
        # Reject bad arguments here and at once: impossible settings, or the wrong number of prefixes.
        super()._translate([], prefix if isinstance(prefix, str) or not lines else "", options, settings)
        if not isinstance(prefix, str) and len(prefix) != len(lines):
            return super()._translate(lines, prefix, options, settings)
        neighbours = self._retrieved(lines, prefix, options, settings)
        starts = _starts(lines, len(self._members))
        for (_, connection), start, end in zip(self._members, starts, [*starts[1:], len(lines)], strict=True):
            own_prefix = prefix if isinstance(prefix, str) else prefix[start:end]
            own_options = replace(
                options, first=options.first + start, memory=None, neighbours=neighbours, on_progress=None
            )
            with suppress(ConnectionError):  # the process has ended; reading its answer reports that
                connection.send((lines[start:end], own_prefix, own_options, settings))
        answers = self._answers(options.on_progress)
        return [translation for answer in answers for translation in answer]

    def _retrieved(
        self, lines: list[str], prefix: str | Sequence[str], options: TranslateOptions, settings: DecodeChanges
    ) -> Retrieve | None:
        """Return the neighbours of all texts that a search will ask for; the memory stays in this process."""
        search_options = self._search_options(options, settings)
        engine = self._text_search(search_options, options.one_line).engine
        if (retrieve := options.neighbours) is None or not consults(engine, search_options.config):
            return None
        read = self.preprocessor(lines, search_options.config, prefix, options)
        texts = dict.fromkeys(segment.original for line in read for segment in line.to_translate)
        return {text: retrieve(text) for text in texts}.get

    def _answers(self, on_progress: Callable[[int], None] | None) -> list[list[Translation]]:
        from multiprocessing.connection import Connection, wait

        answers: dict[int, list[Translation] | ClearheadError] = {}
        while len(answers) < len(self._members):
            waiting = {connection: n for n, (_, connection) in enumerate(self._members) if n not in answers}
            for connection in wait(list(waiting)):
                assert isinstance(connection, Connection)
                number = waiting[connection]
                try:
                    answer = answers[number] = connection.recv()
                except (EOFError, ConnectionError):
                    raise ClearheadError(
                        f"process {number} of {len(self._members)} that translate was ended, perhaps because the "
                        f"memory was full; try a smaller --workers"
                    ) from None
                if on_progress is not None and isinstance(answer, list):
                    on_progress(len(answer))
        results = [answers[number] for number in range(len(self._members))]
        for answer in results:  # of several errors, raise that of the first lines
            if isinstance(answer, ClearheadError):
                raise answer
        return [answer for answer in results if isinstance(answer, list)]


def _devices(device: str, count: int) -> list[str]:
    if device == "cpu":
        return ["cpu"] * count
    if device != "cuda":
        raise DeviceError(f"device {device!r} is one GPU; several workers need --device cuda")
    if count > (gpus := num_gpus()):
        raise DeviceError(f"this machine has {gpus} GPUs, too few for {count} workers; --device cpu shares its CPUs")
    return [f"cuda:{number}" for number in range(count)]


def _starts(lines: Sequence[str], count: int) -> list[int]:
    """Return the first line of each share; the shares have about equally many characters."""
    starts, total, passed = [0], sum(map(len, lines)) + len(lines), 0
    for number, line in enumerate(lines):
        while passed >= total * len(starts) / count:
            starts.append(number)
        passed += len(line) + 1
    return [*starts, *[len(lines)] * (count - len(starts))]


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Make processes that are started in the block ignore Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set a handler
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(connection: Connection, path: str | Path, device: str, ensemble: Sequence[str | Path], threads: int) -> None:
    """Translate lines from a connection until it is closed."""
    set_num_threads(threads)
    answer: list[Translation] | ClearheadError = []
    translator = None
    with suppress(EOFError, ConnectionError):
        try:
            translator = Translator.load(path, device=device, ensemble=ensemble)
        except ClearheadError as error:
            answer = error
        connection.send(answer)
        while translator is not None:
            lines, prefix, options, settings = connection.recv()
            try:
                answer = translator._translate(lines, prefix, options, settings)
            except ClearheadError as error:
                answer = error
            connection.send(answer)
