"""The server under load from another process: what it gives at once, and what it says when there is too much.

python bench/serving.py MODEL --source test2016.de --seconds 20 --libretranslate-way --memory-requests 20000

Every text is a line with a number of its own, and every answer must be the translation that the model gives of that
very text, so an answer that is lost, swapped or changed shows. First clients that wait for their answers measure how
much the server can do. Then requests come at random times (Poisson) at a rate that does not wait for answers. What the
engine does without a server is measured beside it: what a batch saves there, times the CPUs, is all that a server can
gain by sharing one (with --threads 1; more threads help each other with one text, and wait for each other). Where other
work runs on the machine, CPU time says more than time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from clearhead.bundle import load_bundle
from clearhead.files import read_lines
from clearhead.interop.export_model import export_directory
from clearhead.runtime.threads import num_threads, set_num_threads
from clearhead.translation.translator import Translator

DOCUMENTED = {200, 400, 413, 429, 503, 504}
PATIENCE = 60.0
"""Seconds that a client waits for an answer; more, and it is lost."""


@dataclass
class Load:
    """What came of some requests."""

    statuses: Counter[int] = field(default_factory=Counter)
    served: list[float] = field(default_factory=list)
    """Seconds of the requests that were answered with a translation."""
    refused: list[float] = field(default_factory=list)
    wrong: int = 0
    """Answers that are the translation of something else."""
    lost: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of the server, meanwhile."""

    @property
    def goodput(self) -> float:
        """Translations a second."""
        return len(self.served) / self.seconds if self.seconds else 0.0

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of the server's CPU a translation."""
        return self.cpu_seconds / max(1, len(self.served)) * 1e3

    def row(self, name: str) -> str:
        """Return a row of the table."""

        def ms(values: Sequence[float], share: float) -> str:
            return f"{percentile_ms(values, share):.0f}" if values else "-"

        strange = sum(count for status, count in self.statuses.items() if status not in DOCUMENTED)
        cells = [
            name,
            f"{sum(self.statuses.values()):,}",
            f"{self.goodput:.0f}",
            f"{self.cpu_ms:.1f}",
            *(ms(times, share) for times in (self.served, self.refused) for share in (0.5, 0.99)),
            dict(sorted(self.statuses.items())),
            strange,
            self.wrong,
            dict(self.lost) or 0,
        ]
        return f"| {' | '.join(map(str, cells))} |"


def percentile_ms(values: Sequence[float], share: float) -> float:
    """Return the milliseconds that a share of some times, in seconds, are below; NaN of none."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] * 1e3 if values else math.nan


COLUMNS = [
    *("load", "answers", "translations a second", "server CPU ms a translation", "p50 ms", "p99 ms", "refusal p50 ms"),
    *("refusal p99 ms", "statuses", "undocumented", "wrong", "lost"),
]
HEADER = f"| {' | '.join(COLUMNS)} |\n| --- |{' ---: |' * (len(COLUMNS) - 1)}"


class Client:
    """Connections to the server, each used again when its answer is there."""

    def __init__(self, port: int, pair: tuple[str, str], wanted: dict[str, str]) -> None:
        self._port = port
        self._pair = pair
        self._wanted = wanted
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, text: str, load: Load) -> None:
        """Send a text, and note what came of it."""
        begin = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                status, body = await self._post({"q": text, "source": self._pair[0], "target": self._pair[1]})
        except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError) as error:
            load.lost[type(error).__name__] += 1
            return
        seconds = time.monotonic() - begin
        load.statuses[status] += 1
        if status == 200:
            load.served.append(seconds)
            load.wrong += json.loads(body)["translatedText"] != self._wanted[text]
        else:
            load.refused.append(seconds)

    async def _post(self, fields: dict[str, str]) -> tuple[int, bytes]:
        body = json.dumps(fields).encode()
        head = "POST /translate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json"
        while self._idle and self._idle[-1][0].at_eof():  # which the server closed as idle
            self._idle.pop()[1].close()
        connection = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = connection
        try:
            writer.write(f"{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(answer.split("content-length:")[1].split("\r\n")[0])
            found = await reader.readexactly(length)
        except BaseException:
            writer.close()
            raise
        if "connection: close" in answer:
            writer.close()
        else:
            self._idle.append(connection)
        return int(answer.split(" ", 2)[1]), found


async def closed(client: Client, texts: Sequence[str], count: int, seconds: float, most: int = sys.maxsize) -> Load:
    """Let some clients ask, each again when it has its answer, for so long or so many times in all."""
    load, until, begin = Load(), time.monotonic() + seconds, time.monotonic()
    waiting = islice(cycle(texts), most)

    async def go_on() -> None:
        for text in waiting:
            await client.ask(text, load)
            if time.monotonic() >= until:
                return

    await asyncio.gather(*(go_on() for _ in range(count)))
    load.seconds = time.monotonic() - begin
    return load


async def opened(client: Client, texts: Sequence[str], rate: float, seconds: float) -> Load:
    """Ask at random times, so often a second, whether there are answers or not."""
    load, begin, drawn = Load(), time.monotonic(), random.Random(1)
    at, asked, number = begin, set(), 0
    while (at := at + drawn.expovariate(rate)) < begin + seconds:
        if (pause := at - time.monotonic()) > 0:
            await asyncio.sleep(pause)
        task = asyncio.create_task(client.ask(texts[number % len(texts)], load))
        asked.add(task)
        task.add_done_callback(asked.discard)
        number += 1
    await asyncio.gather(*asked)
    load.seconds = time.monotonic() - begin
    return load


def with_children(pid: int) -> list[int]:
    """Return a process and its child processes."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [pid, *(found for one in lists for child in one.read_text().split() for found in with_children(int(child)))]


def memory_mb(pid: int) -> float:
    """Return the memory of a process and its child processes; shared memory is divided among them."""
    lines = [line for one in with_children(pid) for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its child processes."""
    stats = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in with_children(pid)]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")


def numbered(lines: Sequence[str], count: int) -> list[str]:
    """Return lines with a number of their own each."""
    return [f"{lines[number % len(lines)].strip()} {number}" for number in range(count)]


@dataclass
class Alone:
    """What the translator does without a server."""

    one_ms: float
    """Median time of one text."""
    one_cpu_ms: float
    """CPU of a text, one after the other."""
    batch_cpu_ms: float
    """CPU of a text, all in one call."""

    @classmethod
    def measured(cls, translator: Translator, texts: Sequence[str]) -> Alone:
        """Measure it, by a few hundred texts; the first are for warmth."""
        translator.translate(texts[:20], one_line=True, scores=False)
        cpu, times = time.process_time(), []
        for text in texts[:100]:
            begin = time.monotonic()
            translator.translate([text], one_line=True, scores=False)
            times.append(time.monotonic() - begin)
        one_cpu = (time.process_time() - cpu) / len(times)
        cpu = time.process_time()
        translator.translate(texts, one_line=True, scores=False)
        return cls(median(times) * 1e3, one_cpu * 1e3, (time.process_time() - cpu) / len(texts) * 1e3)

    def __str__(self) -> str:
        cpu = f"CPU a text {self.one_cpu_ms:.1f} ms one by one, {self.batch_cpu_ms:.1f} ms all at once"
        return f"the translator alone: {self.one_ms:.1f} ms for one text; {cpu}"


def libretranslate_way(model: str, texts: Sequence[str], seconds: float) -> float | None:
    """Return how many texts a second CTranslate2 translates one by one, with the same weights and beam.

    So LibreTranslate does it. Its own splitting and tokenizing are left out, as is HTTP. Of one thread and all of them
    the faster counts: threads that wait for each other busily are slower where CPUs are shared.
    """
    try:
        import ctranslate2
    except ModuleNotFoundError:
        print("LibreTranslate's way is left out: pip install ctranslate2")
        return None
    bundle = load_bundle(model)
    pieces = [bundle.tokenizer.pieces(ids) for ids in bundle.tokenizer.encode_sources(list(texts))]
    with tempfile.TemporaryDirectory() as directory:
        exported = Path(directory) / "model"
        export_directory(bundle, exported, "ctranslate2", list(texts[:4]), "float32")
        rates = []
        for threads in sorted({1, num_threads()}):
            engine = ctranslate2.Translator(str(exported), inter_threads=1, intra_threads=threads)
            engine.translate_batch([pieces[0]], beam_size=bundle.decode.beam_size)
            begin, cpu, count = time.monotonic(), time.process_time(), 0
            while time.monotonic() < begin + seconds:
                engine.translate_batch([pieces[count % len(pieces)]], beam_size=bundle.decode.beam_size)
                count += 1
            rates.append(count / (time.monotonic() - begin))
            spent = (time.process_time() - cpu) / count * 1e3
            print(f"LibreTranslate's way, {threads} threads: {rates[-1]:.0f} a second, {spent:.1f} ms of CPU a text")
    return max(rates)


async def measure(
    arguments: argparse.Namespace, port: int, pid: int, wanted: dict[str, str], alone: Alone, other: float | None
) -> None:
    """Print what the server does under each load, and then the figures that matter."""
    texts, client = list(wanted), Client(port, tuple(arguments.pair.split("-")), wanted)

    async def told(name: str, running: Awaitable[Load]) -> Load:
        begin = cpu_seconds(pid)
        load = await running
        load.cpu_seconds = cpu_seconds(pid) - begin
        print(load.row(name), flush=True)
        return load

    await closed(client, texts, 8, min(3.0, arguments.seconds))  # for warmth
    print(HEADER, flush=True)
    one = await told("1 client", closed(client, texts, 1, arguments.seconds))
    many = await told(f"{arguments.clients} clients", closed(client, texts, arguments.clients, arguments.seconds))
    opens = []
    for factor in arguments.factors:
        name, is_last = f"{factor:g} times what {arguments.clients} clients got", factor == arguments.factors[-1]
        seconds = arguments.last_seconds if is_last and arguments.last_seconds else arguments.seconds
        opens.append(await told(name, opened(client, texts, factor * many.goodput, seconds)))
    below, above = opens[0], opens[-1]
    print()
    figure(f"{arguments.clients} clients as many times what one got", many.goodput / one.goodput, 5.0)
    if other is not None:
        figure("as many times what LibreTranslate's way gives", many.goodput / other, 3.0)
    waits = percentile_ms(one.served, 0.5) - alone.one_ms
    figure("ms that one client waits beside the translator's own", waits, 5.0, at_most=True)
    figure(f"share of that goodput at {arguments.factors[-1]:g} times the rate", above.goodput / many.goodput, 0.9)
    ratio = percentile_ms(above.served, 0.99) / percentile_ms(below.served, 0.99)
    figure(f"p99 there as many times that at {arguments.factors[0]:g} times the rate", ratio, 2.0, at_most=True)
    figure("ms until a refusal, p99", percentile_ms(above.refused, 0.99), 50.0, at_most=True)
    cpus = f"CPU a translation {one.cpu_ms:.1f} ms for one client, {many.cpu_ms:.1f} ms for {arguments.clients}"
    print(f"{cpus}, of which the search of a batch takes {alone.batch_cpu_ms:.1f} ms")
    if arguments.memory_requests:
        most, first = arguments.memory_requests, arguments.memory_requests // 10
        asked = partial(closed, client, texts, arguments.clients, arguments.memory_seconds)
        begun = await told(f"{first:,} requests", asked(first))
        before = memory_mb(pid)
        rest = await told(f"{most - first:,} more", asked(most - first))
        done = sum(sum(load.statuses.values()) for load in (begun, rest))
        name = f"memory after {done:,} requests as many times that after {sum(begun.statuses.values()):,}"
        figure(f"{name} ({before:.0f} MB)", memory_mb(pid) / before, 1.05, at_most=True)


def figure(name: str, value: float, bound: float, *, at_most: bool = False) -> None:
    """Print a figure and whether it keeps to its bound."""
    is_kept = value <= bound if at_most else value >= bound
    sign = "at most" if at_most else "at least"
    print(f"{'ok    ' if is_kept else 'MISSED'} {value:8.2f}  {name} (wanted: {sign} {bound:g})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--source", required=True, help="a line a text")
    parser.add_argument("--pair", default="de-en", help="languages of the model")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    parser.add_argument("--last-seconds", type=float, help="of the last of the open loads, if not as of the others")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--texts", type=int, default=1_000, help="different texts")
    parser.add_argument("--factors", type=float, nargs="+", default=[0.8, 4.0], help="of the open loads, rising")
    parser.add_argument(
        "--libretranslate-way", action="store_true", help="compare with CTranslate2, one text at a time"
    )
    parser.add_argument("--memory-requests", type=int, default=0, help="see how memory grows from a tenth of them on")
    parser.add_argument("--memory-seconds", type=float, default=1_800.0, help="that each part of them takes at most")
    parser.add_argument("--set", action="append", default=[], help="as of clearhead serve")
    parser.add_argument("--threads", type=int, help="of everything that is measured (default: all CPUs)")
    arguments = parser.parse_args()
    if arguments.threads is not None:
        set_num_threads(arguments.threads)
    texts = numbered(list(read_lines(arguments.source)), arguments.texts)
    translator = Translator.load(arguments.model)
    wanted = {one.source: one.text for one in translator.translate(texts, one_line=True, scores=False)}
    alone = Alone.measured(translator, texts)
    print(alone, flush=True)
    other = libretranslate_way(arguments.model, texts, arguments.seconds) if arguments.libretranslate_way else None
    print()
    # All clients have one address.
    limits = [f"max_requests_per_client={max(arguments.clients, 64)}", *arguments.set]
    options = [part for limit in limits for part in ("--set", limit)] + ["--threads", str(num_threads())]
    served = f"{arguments.pair}={arguments.model}"
    command = [sys.executable, "-m", "clearhead", "serve", "--port", "0", served, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        port = 0
        for line in server.stderr:
            event = json.loads(line)
            port = event.get("port", port)
            if event["event"] == "ready":
                break
        # Its log is read and thrown away, as a system's journal would take it.
        drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)
        try:
            asyncio.run(measure(arguments, port, server.pid, wanted, alone, other))
        finally:
            server.send_signal(signal.SIGTERM)
            print(f"it ended with status {server.wait()}")
            drain.wait()


if __name__ == "__main__":
    main()
