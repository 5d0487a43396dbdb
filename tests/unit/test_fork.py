"""A process forked from one that has used clearhead; each test is a process of its own, which may hang or crash."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

BEGIN = """
import multiprocessing, os, signal, sys, threading

import torch

from clearhead.runtime import threads
from clearhead.bundle import Bundle
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.model import Transformer
from clearhead.tokenizers import Tokenizer
from clearhead.translation.translator import Translator

threads.usable_cpus = lambda: 2
torch.set_num_threads(2)
torch.manual_seed(1)
LINES = ["Ein kleiner Hund rennt.", "A small dog runs across the meadow.", "Zwei Männer sitzen auf einer Bank."] * 2
tokenizer = Tokenizer.train(LINES, kind="bpe", vocab_size=280)
# Wide enough for PyTorch and the compiled core to share products among threads.
sizes = {"d_model": %d, "num_heads": 8, "d_ff": 1024, "num_encoder_layers": 1, "num_decoder_layers": 1}
model = Transformer(ModelConfig(vocab_size=tokenizer.vocab_size, dropout=0.0, norm="pre", **sizes)).eval()
translator = Translator(Bundle(model, tokenizer, DecodeConfig(extra_length=2), {}))


def work():
    texts = [translation.text for translation in translator.translate(LINES)]
    texts += [translator.translate(LINES[:1])[0].text]
    scores = translator.score(LINES, texts[:-1])
    fresh = Translator(translator.bundle).translate(LINES[:2])  # packs the model anew
    return texts, scores, [translation.text for translation in fresh]


def work_in_child(_=None):
    signal.alarm(200)  # whatever becomes of the parent, no child is left behind
    texts, scores, fresh = work()
    assert (texts, fresh) == (expected[0], expected[2])
    assert max(abs(a - b) for a, b in zip(scores, expected[1], strict=True)) < 1e-3
    return len(texts)


def work_in_fork():
    process = os.fork()
    if not process:
        os._exit(7 if work_in_child() == 7 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7


expected = work()
"""

AFTER_USE = """
work_in_fork()
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(work_in_child, range(2)) == [7] * 2
assert work()[0] == expected[0]
"""

AMID_A_TRANSLATION = """
is_wanted, has_some = True, threading.Event()

def translate_on():
    while is_wanted:
        translator.translate(LINES, on_progress=lambda count: has_some.set())

thread = threading.Thread(target=translate_on)
thread.start()
for _ in range({times}):
    has_some.clear()
    assert has_some.wait(100.0)
    work_in_fork()
is_wanted = False
thread.join()
"""

COMPILED_CORE, PYTORCH = 256, 264
"""Widths of models that are translated by the one or the other."""


def run(script: str) -> None:
    """Run a script to its end; it must succeed and say nothing."""
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


THREADS = """
import os
import torch
from clearhead.runtime import threads
threads.usable_cpus = lambda: 8
torch.set_num_threads(3)
torch.ones(600, 600) @ torch.ones(600, 600)
assert threads.num_threads() == 3
process = os.fork()
if process:
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert (torch.get_num_threads(), threads.num_threads()) == (3, 3)
else:
    found = [torch.get_num_threads(), threads.num_threads()]
    threads.set_num_threads(2)
    found += [torch.get_num_threads(), threads.num_threads()]
    if not os.fork():
        os._exit(0 if (torch.get_num_threads(), threads.num_threads()) == (1, 2) else 1)
    found.append(os.waitstatus_to_exitcode(os.wait()[1]))
    os._exit(0 if found == [1, 3, 1, 2, 0] else 1)
"""


def test_a_forked_process_has_one_thread_for_pytorch_and_translates_also_if_its_parent_was_amid_a_translation():
    run(THREADS + BEGIN % COMPILED_CORE + AFTER_USE + AMID_A_TRANSLATION.format(times=1))


@pytest.mark.slow
@pytest.mark.parametrize("width", [COMPILED_CORE, PYTORCH], ids=["compiled core", "PyTorch"])
def test_several_processes_forked_amid_a_translation_translate_and_score(width):
    run(BEGIN % width + AFTER_USE + AMID_A_TRANSLATION.format(times=3))
