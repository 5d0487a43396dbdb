"""Constrained search, shortlists and alignment in a process that cannot import PyTorch: the same outputs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from clearhead.bundle import load_bundle
from clearhead.bundle.side_files import SHORTLIST_FILE, add_side_files
from clearhead.decoding import learn_shortlist
from clearhead.kernels.library import library

pytestmark = pytest.mark.skipif(library() is None, reason="without the compiled core PyTorch does the work")

PROGRAM = """
import json, sys
import clearhead
from clearhead.translation.terminology import Term
lines = ["Ein kleiner Hund rennt.", "Zwei <b>Männer</b> sitzen <i>hier</i>."]
translations = ["A small dog runs.", "Two <b>men</b> sit <i>here</i>."]
translator = clearhead.Translator.load(sys.argv[1])
terms = clearhead.Terms([Term("Hund", ("dog",)), Term("Männer", ("men", "guys"))])
ways = [{"alignments": True}, {"terms": terms}, {"terms": terms, "beam_size": 3, "num_best": 2}, {"shortlist": True},
        {"place_markup": True}, {"sampling": clearhead.Sampling(seed=3, top_p=0.9, top_k=30), "num_best": 20}]
found = [[repr((one.text, one.score, one.alignment)) for one in translator.translate(lines, **way)] for way in ways]
both = clearhead.Translator.load(sys.argv[1], ensemble=[sys.argv[1]])
found += [translator.align(lines, translations), both.align(lines, translations)]
print(json.dumps(found))
"""


def outputs(before, directory):
    ran = subprocess.run(
        [sys.executable, "-c", before + PROGRAM, directory], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.slow
def test_outputs_are_the_same_without_pytorch(make_model_dir, sentences):
    directory = make_model_dir(d_model=64, num_heads=2, d_ff=64)
    bundle = load_bundle(directory)
    sides = bundle.tokenizer.encode_sources(sentences[::2]), bundle.tokenizer.encode_targets(sentences[1::2])
    shortlist = learn_shortlist(bundle.model, *sides, batch_tokens=500)
    add_side_files(directory, {SHORTLIST_FILE: shortlist.save}, bundle.identity())
    missing = "import sys; sys.modules['torch'] = None"
    found = outputs(missing, directory)
    assert found == outputs("import torch", directory)
    assert all(found)
