"""`clearhead import` of models of fairseq, OpenNMT-py, eole and JoeyNMT gives what their formulas say, text to text.

Each file is one as the toolkit writes it (see `toolkit_models`), imported by the command itself.
"""

from __future__ import annotations

import math
from copy import deepcopy
from functools import partial
from pathlib import Path

import pytest
import torch
from toolkit_models import D, Style, Toolkit, concatenated, eole, fairseq, joeynmt, opennmt
from torch import nn
from torch.nn.functional import gelu, silu
from typer.testing import CliRunner

from clearhead.cli.main import app
from clearhead.files.tensors import model_tensors
from clearhead.interop.toolkits import fairseq as fairseq_tables
from clearhead.interop.toolkits import joeynmt as joeynmt_tables
from clearhead.interop.toolkits import opennmt_layout as opennmt_tables
from clearhead.translation.translator import Translator
from every_run import slow

TABLES = {
    "fairseq": fairseq_tables.key_table,
    "JoeyNMT": joeynmt_tables.key_table,
    "OpenNMT-py": partial(opennmt_tables.key_table, names=opennmt_tables.OPENNMT_PY),
    "eole": partial(opennmt_tables.key_table, names=opennmt_tables.EOLE),
}
LIMIT = 12
"""Maximum target tokens of a translation; longer ones are cut."""


def old_names(state):
    """Return tensors as fairseq named them in 2017: projections in one matrix, norms by number, another output."""
    norms = {"self_attn_layer_norm": 0, "encoder_attn_layer_norm": 1, "final_layer_norm": 2}
    old = {}
    for name, tensor in state.items():
        for norm, number in norms.items():
            last = 1 if "encoder.layers" in name and norm == "final_layer_norm" else number
            name = name.replace(f".{norm}.", f".layer_norms.{last}.")
        if name.endswith(("q_proj.weight", "q_proj.bias")):
            whole = torch.cat([state[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")])
            old[name.replace("q_proj.", "in_proj_")] = whole
        elif not name.endswith(("k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias", "_float_tensor")):
            old["decoder.embed_out" if name == "decoder.output_projection.weight" else name] = tensor
    return old


def with_copies(state):
    """Return tensors as fairseq 0.12 has them: every encoder layer holds copies of its own, which are not kept up."""
    copies = {
        f"encoder.layers.{number}.{name}": torch.zeros(3)
        for number in range(3)
        for name in ("in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias", "fc1_weight", "fc2_bias")
    }
    return {**state, **copies}


BIASES = {"attention_bias": True, "network_bias": True}
LEARNED = {"position_encoding_type": "Learned", "n_positions": 40}


def rms():
    return nn.RMSNorm(D, eps=1e-5)


PRE = {"encoder_normalize_before": True}
CASES = {
    "fairseq": (fairseq, {}),
    "fairseq pre-norm": (fairseq, {**PRE, "share_decoder_input_output_embed": True, "form": "cfg"}),
    "fairseq learned": (
        fairseq,
        {"encoder_learned_pos": True, "layernorm_embedding": True, "no_scale_embedding": True, "activation_fn": "gelu"},
    ),
    "fairseq shared": (fairseq, {**PRE, "share_all_embeddings": True, "form": "nested"}),
    "fairseq of 2017": (fairseq, {"change": old_names, "is_zip": False}),
    "fairseq 0.12": (fairseq, {"change": with_copies, "is_zip": False}),
    "OpenNMT-py": (opennmt, {"style": Style(network_bias=True), "add_qkvbias": False}),
    "OpenNMT-py gated": (
        opennmt,
        {
            "style": Style(attention_bias=True, gated=True, act=silu, positions=concatenated, tied=(False, True)),
            "pos_ffn_activation_fn": "silu",
            "position_encoding_type": "SinusoidalConcat",
        },
    ),
    "OpenNMT-py rms": (
        opennmt,
        {
            "style": Style(norm=lambda: nn.RMSNorm(24, eps=1e-5), tied=(True, True)),
            "layer_norm": "rms",
            "norm_eps": 1e-5,
        },
    ),
    "OpenNMT-py 2": (opennmt, {"style": Style(**BIASES), "version": 2}),
    "OpenNMT-py 2 shared": (opennmt, {"style": Style(**BIASES, tied=(True, False)), "version": 2}),
    "eole": (eole, {"style": Style(norm=lambda: nn.LayerNorm(D)), "named": {}}),
    "eole gated": (
        eole,
        {
            "style": Style(**BIASES, gated=True, act=gelu, tied=(True, True)),
            "named": {"mlp_activation_fn": "gated-gelu", "norm_eps": 1e-6, "add_qkvbias": True},
        },
    ),
    "eole learned": (
        eole,
        {
            "style": Style(positions=None, norm=rms, network_bias=True),
            "named": {"layer_norm": "rms"},
            "parts": dict.fromkeys(("encoder", "decoder", "embeddings"), LEARNED),
        },
    ),
    "JoeyNMT": (joeynmt, {"style": Style(**BIASES, pre=False, output_bias=False)}),
    "JoeyNMT pre-norm": (joeynmt, {"style": Style(**BIASES, output_bias=False, tied=(True, True))}),
    "JoeyNMT embeddings": (joeynmt, {"style": Style(**BIASES, output_bias=False, tied=(True, False))}),
    "JoeyNMT 1": (joeynmt, {"style": Style(**BIASES, output_bias=False), "is_first_version": True}),
}


# One of each toolkit and each of its layouts of a file; the others differ in settings of the model.
IN_EVERY_RUN = ("fairseq shared", "fairseq 0.12", "OpenNMT-py gated", "OpenNMT-py 2", "eole learned", "JoeyNMT 1")


@pytest.fixture(scope="module", params=[name if name in IN_EVERY_RUN else slow(name) for name in CASES])
def case(request, tmp_path_factory) -> tuple[Toolkit, Translator, str, Path]:
    """Return each model, what the command made of it, what it said, and where that is."""
    write, settings = CASES[request.param]
    directory = tmp_path_factory.mktemp("there")
    torch.manual_seed(3)
    toolkit = write(directory, **settings)
    output = tmp_path_factory.mktemp("here") / "model"
    result = CliRunner().invoke(app, ["import", str(toolkit.path), "-o", str(output)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return toolkit, Translator.load(output, device="cpu"), result.output, output


def batch(toolkit: Toolkit) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw source and target ids, shifted right, both padded."""
    rows = []
    for size, first, lengths in ((toolkit.sizes[0], None, (9, 4, 2)), (toolkit.sizes[1], toolkit.start, (5, 7, 1))):
        ids = torch.randint(4, size, (3, max(lengths)))
        for row, length in zip(ids, lengths, strict=True):
            row[length:] = toolkit.pad
        if first is not None:
            ids[:, 0] = first
        rows.append(ids)
    return rows[0], rows[1]


@torch.inference_mode()
def test_log_probabilities_are_those_of_the_formulas(case):
    toolkit, ours, *_ = case
    source, target = batch(toolkit)
    found = deepcopy(ours.bundle.model).double()(source, target).log_softmax(-1)
    expected = deepcopy(toolkit.log_probs).double()(source, target)
    real = target != toolkit.pad
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-5)
    assert expected[real].std() > 0.5  # one like another would show nothing


@torch.inference_mode()
def greedy(toolkit: Toolkit, text: str) -> tuple[str, bool]:
    """Return a translation by the most probable next word, and whether it came to an end."""
    source, target = torch.tensor([toolkit.source_ids(text)]), [toolkit.start]
    while True:
        scores = toolkit.log_probs(source, torch.tensor([target]))[0, -1]
        scores[[toolkit.pad] + [toolkit.start] * (toolkit.start != toolkit.end)] = -math.inf
        best = int(scores.argmax())
        if best == toolkit.end or len(target) == LIMIT:
            return toolkit.target_text(target[1:]), len(target) < LIMIT  # a translation of that length was ended there
        target.append(best)


def test_translations_equal_greedy_search_with_the_toolkit_formulas(case):
    toolkit, ours, *_ = case
    written = set()
    for text in [*toolkit.texts, "wort1 unbekannt wort2"]:
        extra = LIMIT - len(toolkit.source_ids(text))
        [found] = ours.translate([text], beam_size=1, extra_length=extra, end_loops=False, raw=True)
        expected, is_ended = greedy(toolkit, text)
        assert (found.text, not found.output_truncated) == (expected, is_ended), text
        written.add(expected)
    assert len(written) > 1


def test_frame_tokens_in_a_text_are_text(case):
    vocabulary = case[1].bundle.tokenizer
    source, target = vocabulary.file.source, vocabulary.file.target or vocabulary.file.source
    for side, encode in ((source, vocabulary.encode_batch), (target, vocabulary.encode_prefixes)):
        assert side.special
        for name in ("<s>", "</s>", "<pad>", "<blank>", *(side.pieces[number] for number in side.special)):
            assert not set(side.special) & set(encode([f"wort1 {name} wort2"])[0]), name


@torch.inference_mode()
def test_scores_are_their_log_probabilities(case):
    toolkit, ours, *_ = case
    targets = [toolkit.target_text([4, 9, 7]), toolkit.target_text([11, 5])]
    sources = toolkit.texts[:2]
    found = ours.score(sources, targets)
    for source, ids, score in zip(sources, ([4, 9, 7], [11, 5]), found, strict=True):
        begun = torch.tensor([[toolkit.start, *ids]])
        log_probs = toolkit.log_probs(torch.tensor([toolkit.source_ids(source)]), begun)[0]
        assert score == pytest.approx(log_probs[range(len(ids) + 1), [*ids, toolkit.end]].sum().item(), abs=1e-4)


def test_the_command_says_what_it_cannot_prove_and_writes_a_directory_that_verifies(case):
    _, ours, said, path = case
    assert "not compared with its own library: clearhead does not run" in said
    assert ours.bundle.info["imported_from"]["weights_sha256"]
    assert ours.bundle.info["imported_from"]["kind"].startswith("transformer")
    assert ours.bundle.decode.source_lang == (None if "eole" in said else "de")
    verified = CliRunner().invoke(app, ["verify", str(path)], catch_exceptions=False)
    assert (verified.exit_code, "all 8 are translated as when the model was made" in verified.output) == (0, True)


def test_tables_of_names_are_read_in_both_directions(case):
    _, ours, *_ = case
    config, tensors = ours.bundle.model.config, model_tensors(ours.bundle.model)
    table = TABLES[ours.bundle.info["imported_from"]["library"]](config)
    back = table.from_theirs(table.to_theirs(tensors))
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)


def test_import_takes_search_settings_from_toolkit_files_or_toolkit_defaults(case):
    _, ours, *_ = case
    settings, library = ours.bundle.decode, ours.bundle.info["imported_from"]["library"]
    expected = {"JoeyNMT": [(5, 0.8, "gnmt")], "fairseq": [(5, 1.0, "power"), (3, 0.7, "power")]}
    found = (settings.beam_size, settings.length_penalty, settings.length_penalty_form)
    assert found in expected.get(library, [(5, 1.0, "power")])
