"""A translation memory of any size read in bounded memory: peak resident memory, and pairs a second.

python bench/memory_files.py --megabytes 1000
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LANGUAGES = ("en", "de-DE")
WORDS = (
    "the",
    "red house",
    "file menu",
    "opens",
    "every window",
    "quickly",
    "before it is",
    "saved",
    "nobody sees what",
)
UNITS_AT_ONCE = 10_000


def write_memory(path: Path, megabytes: int) -> int:
    """Write a TMX of generated units, one in four with inline elements, and return how many there are."""
    choose = random.Random(1)
    units = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(
            '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n<header creationtool="bench" '
            'creationtoolversion="1" segtype="sentence" o-tmf="none" adminlang="en" srclang="en" datatype="html"/>\n'
            "<body>\n"
        )
        while file.tell() < megabytes * 1_000_000:
            file.writelines(_unit(choose, units + place) for place in range(UNITS_AT_ONCE))
            units += UNITS_AT_ONCE
        file.write("</body>\n</tmx>\n")
    return units


def _unit(choose: random.Random, number: int) -> str:
    texts = []
    for language in LANGUAGES:
        words = choose.choices(WORDS, k=choose.randint(3, 30))
        if number % 4 == 0:
            words[1] = f'<bpt i="1">&lt;b&gt;</bpt>{words[1]}<ept i="1">&lt;/b&gt;</ept>'
        texts.append(f'<tuv xml:lang="{language}"><seg>{" ".join(words)} &amp; {number}.</seg></tuv>')
    return f'<tu tuid="{number}"><prop type="project">bench</prop>\n{texts[0]}\n{texts[1]}\n</tu>\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--megabytes", type=int, default=1_000, help="of the file, which is deleted afterwards")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "generated.tmx"
        units = write_memory(path, options.megabytes)
        print(f"{path.stat().st_size / 1e6:,.0f} MB, {units:,} units")
        for command in (["stats", str(path), "--json"], ["convert", str(path), str(path.with_suffix(".tsv"))]):
            began = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, "-m", "clearhead", "corpus", *command], stdout=subprocess.DEVNULL
            )
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.monotonic() - began
            peak = usage.ru_maxrss * 1024 / 1e6
            print(
                f"corpus {command[0]}: exit status {os.waitstatus_to_exitcode(status)}, {seconds:,.0f} s, "
                f"{units / seconds:,.0f} pairs a second, at most {peak:,.0f} MB resident"
            )


if __name__ == "__main__":
    main()
