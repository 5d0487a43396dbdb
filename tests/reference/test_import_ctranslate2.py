"""`clearhead import` of directories of CTranslate2: tokens, scores and texts equal those of CTranslate2 itself.

The directories are models of Hugging Face transformers (see `published`) that CTranslate2's own converter has made
some of its own of, and specifications filled in by hand in the form of OpenNMT and fairseq.
"""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import sentencepiece
import test_import
import tokenizers
import torch
import transformers
from ctranslate2.specs import TransformerSpec, common_spec
from published import Published, pairs, read_model, read_tokenizer, texts, write_json
from test_added_tokens import grow
from typer.testing import CliRunner

from clearhead.cli.main import app
from clearhead.inspection.explain import explain
from clearhead.interop.import_model import import_path
from clearhead.translation.translator import Translator
from commands import run
from every_run import slow
from sentencepiece_models import pieces_of, sentencepiece_model

LIMIT = 40
TOKENIZERS = ("tokenizer.json", "source.spm", "target.spm", "sentencepiece.bpe.model", "spiece.model")
CONVERTED = ("marian into several languages", "bart with tokenizer.json", "pegasus", "nllb", "t5")
SLOW = list(map(slow, ("marian", "m2m100", "t5 1.1", "t5 1.1 with tokenizer.json")))


@dataclass(frozen=True)
class Case:
    """A directory of CTranslate2, what it was converted from, and what our command makes of it."""

    published: Published
    directory: Path
    output: str
    path: Path
    ours: Translator

    @property
    def tokenizer(self) -> Any:
        return read_tokenizer(self.published.directory)

    @property
    def vocabulary(self) -> list[str]:
        return json.loads((self.directory / "shared_vocabulary.json").read_text(encoding="utf-8"))

    def their_sources(self, sources: list[str], language: str | None) -> list[list[str]]:
        """Encode texts in tokens as a user of CTranslate2 does, with the tokenizer of transformers."""
        tokenizer, lang = self.tokenizer, self.published
        if lang.source_lang is not None:
            tokenizer.src_lang = lang.source_lang
        begin = f"{lang.token.format(language)} " if lang.heads_source else ""
        return [tokenizer.convert_ids_to_tokens(tokenizer(begin + source)["input_ids"]) for source in sources]

    def prefix(self, language: str | None) -> list[str]:
        return (
            [self.published.token.format(language)] if self.published.token and not self.published.heads_source else []
        )


def convert(published: Published, directory: Path, quantization: str | None = None) -> Path:
    """Convert by their converter, the tokenizer beside the model."""
    files = [name for name in TOKENIZERS if (published.directory / name).exists()]
    converter = ctranslate2.converters.TransformersConverter(str(published.directory), copy_files=files)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Marian's tokenizer asks for a library that it never uses
        converter.convert(str(directory), quantization=quantization)
    return directory


def import_it(directory: Path, path: Path, published: Published | None = None) -> str:
    options = []
    if published is not None and published.source_lang is not None:
        options += ["--source-lang", published.source_lang]
    if published is not None and published.target_langs[0] is not None:
        options += ["--target-lang", published.target_langs[0]]
    return run("import", directory, "-o", path, *options)


@pytest.fixture(scope="module")
def find_case(directories, tmp_path_factory) -> Callable[[str], Case]:
    """Return a function from the name of a directory to its case, which is made when first asked for."""

    @cache
    def find(name: str) -> Case:
        published = directories(name)
        directory = convert(published, tmp_path_factory.mktemp("converted") / "ct2")
        path = tmp_path_factory.mktemp("imported") / "model"
        output = import_it(directory, path, published)
        return Case(published, directory, output, path, Translator.load(path, device="cpu"))

    return find


@pytest.fixture(scope="module", params=[*CONVERTED, *SLOW])
def case(request, find_case) -> Case:
    return find_case(request.param)


def sources_of(case: Case) -> list[str]:
    return [*(source for source, _ in pairs(*case.published.reads)[:10]), "Ein Hund 𐍈 rennt.", "日本語"]


def test_the_command_compares_with_ctranslate2_and_says_what_it_found(case):
    assert "of the kind ctranslate2" in case.output
    assert "8 sentences: scores differ by" in case.output
    verified = CliRunner().invoke(app, ["verify", str(case.path)])
    assert verified.exit_code == 0, verified.output
    decode = case.ours.bundle.decode
    assert (decode.beam_size, decode.length_penalty, decode.length_penalty_form) == (2, 1.0, "power")


def test_frame_and_language_tokens_in_a_text_are_text(case):
    file, published = case.ours.bundle.tokenizer, case.published
    framed = {part for part in (*file.file.source_frame, *file.file.target_frame) if isinstance(part, int)}
    control = {*file.languages.values(), file.pad_id, file.bos_id, file.eos_id, *framed}
    names = [name for name in file.source_pieces(sorted(control)) if name.strip()]
    for name in [*names, "<s>", "</s>", "<pad>", "en_XX", ">>deu<<", "__de__", "deu_Latn"]:
        [plain], [ids] = (
            file.encode_sources([text], published.target_langs[0], published.source_lang)
            for text in ("x", f"x {name} x")
        )
        assert [token for token in ids if token in control] == [token for token in plain if token in control], name


def test_texts_are_encoded_in_the_same_tokens(case):
    for language in case.published.target_langs:
        theirs = case.their_sources(sources_of(case), language)
        found = case.ours.bundle.tokenizer.encode_sources(sources_of(case), language, case.published.source_lang)
        unk = case.tokenizer.unk_token
        for source, tokens, ids in zip(sources_of(case), theirs, found, strict=True):
            expected = [token if token in case.vocabulary else unk for token in tokens]
            assert [case.vocabulary[token] for token in ids] == expected, source


def test_scores_are_those_of_ctranslate2(case):
    theirs = ctranslate2.Translator(str(case.directory), compute_type="float32")
    sources, targets = map(list, zip(*pairs(*case.published.reads)[:8], ("Ein Hund", "A"), strict=True))
    for language in case.published.target_langs:
        read = case.their_sources(sources, language)
        tokenizer = case.tokenizer
        if case.published.source_lang is not None:
            tokenizer.tgt_lang = language
        end, begin = tokenizer.eos_token, case.prefix(language)
        written = []
        for row in tokenizer(text_target=targets)["input_ids"]:
            tokens = tokenizer.convert_ids_to_tokens(row)
            written.append([*begin, *(one for one in tokens if one not in (end, *begin, tokenizer.bos_token))])
        expected = [sum(one.log_probs[len(begin) :]) for one in theirs.score_batch(read, written)]
        found = case.ours.score(sources, targets, target_lang=language)
        assert found == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_are_those_of_ctranslate2(case, beam_size):
    theirs = ctranslate2.Translator(str(case.directory), compute_type="float32")
    sources, tokenizer = sources_of(case), case.tokenizer
    start = json.loads((case.directory / "config.json").read_text())["decoder_start_token"]
    forbidden = {tokenizer.pad_token, start} - {tokenizer.eos_token}  # which our search never writes
    for language in case.published.target_langs:
        read = case.their_sources(sources, language)
        begin = case.prefix(language)
        found = theirs.translate_batch(
            read,
            target_prefix=[begin] * len(read),
            beam_size=beam_size,
            length_penalty=0.0,  # without one both searches are exact
            min_decoding_length=0,
            suppress_sequences=[[token] for token in forbidden & set(case.vocabulary)],
            max_decoding_length=LIMIT,
            return_end_token=True,
        )
        rows = [one.hypotheses[0] for one in found]
        how: Any = {"length_penalty": 0.0, "end_loops": False, "split": "never", "target_lang": language}
        ours = test_import.within_limit(case.ours, sources, list(map(len, read)), beam_size=beam_size, **how)
        ended = [number for number, row in enumerate(rows) if row[-1] == tokenizer.eos_token]
        assert ended
        for number in ended:
            ids = tokenizer.convert_tokens_to_ids(rows[number][len(begin) : -1])
            text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            assert ours[number].text.strip() == text.strip(), sources[number]


# Beside transformers 5 their converter divides the output of T5 1.1 as well, which changes what a beam finds.
@pytest.mark.parametrize(
    ("name", "beam_size"), [("t5", 1), ("t5", 4), pytest.param("t5 1.1", 1, marks=pytest.mark.slow)]
)
def test_t5_writes_what_transformers_writes(find_case, name, beam_size):
    case = find_case(name)
    model = read_model(case.published.directory)
    theirs = test_import.Case(case.published, case.tokenizer, model, case.output, case.path, case.ours)
    sources = test_import.sources_of(theirs)
    rows = test_import.generate(theirs, None, sources, beam_size)
    found = test_import.translate(theirs, None, sources, beam_size)
    ended = [number for number, ids in enumerate(rows) if ids[-1] == theirs.end]
    assert ended
    for number in ended:
        assert found[number].tokens == tuple(case.ours.bundle.tokenizer.pieces(rows[number][:-1])), sources[number]
    sentinels = [number for number, token in enumerate(case.vocabulary) if token.startswith("<extra_id_")]
    assert len(sentinels) > 100
    assert case.ours.bundle.tokenizer.decode(sentinels) == case.tokenizer.decode(sentinels, skip_special_tokens=True)


@pytest.mark.parametrize("is_gated", [slow(False), True])
def test_a_t5_of_an_own_shape_scores_as_in_both_libraries(directories, tmp_path, is_gated):
    """Its heads together are wider than the model, and texts reach farther than its relative positions."""
    published = directories("t5")
    shutil.copytree(published.directory, tmp_path / "theirs")
    torch.manual_seed(5)
    config = transformers.T5Config(
        vocab_size=json.loads((tmp_path / "theirs" / "config.json").read_text())["vocab_size"],
        d_model=20,
        d_kv=7,
        num_heads=4,
        d_ff=30,
        num_layers=2,
        num_decoder_layers=3,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        feed_forward_proj="gated-gelu" if is_gated else "relu",
        initializer_factor=2.0,
        decoder_start_token_id=0,
    )
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path / "theirs")
    directory = convert(replace(published, directory=tmp_path / "theirs"), tmp_path / "ct2")
    ours = Translator(import_path(directory).bundle)
    shape = ours.bundle.model.config
    assert (shape.key_dim, shape.value_dim, shape.max_length, shape.gated) == (7, 7, None, is_gated)
    assert (shape.relative_attention_num_buckets, shape.relative_attention_max_distance) == (8, 20)
    tokenizer, long = read_tokenizer(tmp_path / "theirs"), " ".join(source for source, _ in pairs("en", "fr")[:20])
    sources, targets = [long, "May 3", long], ["le 3 mai", long, long]
    read, written = (tokenizer(texts)["input_ids"] for texts in (sources, targets))
    assert len(read[0]) > 100
    there = ctranslate2.Translator(str(directory), compute_type="float32").score_batch(
        *([tokenizer.convert_ids_to_tokens(ids) for ids in rows] for rows in (read, [ids[:-1] for ids in written]))
    )
    found, model = ours.score(sources, targets), read_model(tmp_path / "theirs")
    assert found == pytest.approx([sum(one.log_probs) for one in there], abs=1e-2)
    for score, source, target in zip(found, read, written, strict=True):
        labels = torch.tensor([target])
        mean = model(input_ids=torch.tensor([source]), labels=labels).loss.item()
        assert score == pytest.approx(-mean * labels.numel(), abs=1e-2)


@pytest.mark.parametrize("quantization", ["int8", "int16", slow("float16"), slow("int8_float16")])
def test_rounded_weights_score_as_ctranslate2_reads_them(directories, tmp_path, quantization):
    published = directories("marian")
    directory = convert(published, tmp_path / "ct2", quantization)
    output = import_it(directory, tmp_path / "ours")
    stored = quantization.partition("_")[0]
    assert f"the weights were stored in {stored}; here they are in float32" in output
    ours = Translator.load(tmp_path / "ours", device="cpu")
    theirs = ctranslate2.Translator(str(directory), compute_type="float32")  # which divides by the scales as well
    sources, targets = map(list, zip(*pairs(*published.reads)[:6], strict=True))
    tokenizer = read_tokenizer(published.directory)
    read = [tokenizer.convert_ids_to_tokens(tokenizer(source)["input_ids"]) for source in sources]
    written = [tokenizer.convert_ids_to_tokens(ids)[:-1] for ids in tokenizer(text_target=targets)["input_ids"]]
    expected = [sum(one.log_probs) for one in theirs.score_batch(read, written)]
    assert ours.score(sources, targets) == pytest.approx(expected, abs=5e-3)


# Specifications filled in by hand: what other converters write.


def fill(directory: Path, *, tokens: list[str], config: dict[str, Any], positions: np.ndarray | None, **settings: Any):
    """Write a model with random variables, all of them that a specification has."""
    spec = TransformerSpec.from_config((2, 1), 4, **settings)
    rng = np.random.default_rng(3)

    def draw(owner, name, value):
        if value is None:
            leaf, d_model, d_ff = name.rpartition("/")[2], 16, 24
            if "embeddings" in name or "projection" in name:
                shape: tuple[int, ...] = (len(tokens), d_model)
            elif leaf in ("gamma", "beta"):
                shape = (d_model,)
            elif "ffn" in name:
                shape = (d_model, d_ff) if name.endswith("linear_1/weight") else (d_ff, d_model)
            else:
                fused = 3 if "self_attention/linear_0" in name else 2 if "/attention/linear_1" in name else 1
                shape = (fused * d_model, d_model)
            setattr(owner, leaf, rng.normal(0, 0.4, shape).astype(np.float32) + (leaf == "gamma"))

    spec._visit(draw)
    spec.decoder.layer[0].attention.linear[1].bias = rng.normal(size=32).astype(np.float32)  # the others have none
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = 1.0
        if positions is not None:
            side.position_encodings.encodings = positions
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    for key, value in config.items():
        spec.config.add_attribute(key, value)
    directory.mkdir()
    spec.validate()
    spec.optimize()
    spec.save(str(directory))


@pytest.fixture(scope="module")
def model_file() -> bytes:
    return sentencepiece_model(texts(), 300)


@pytest.mark.parametrize(
    ("pre_norm", "positions"),
    [
        (True, "computed there"),
        (True, "learned"),
        (True, "fairseq"),
        (False, "opennmt"),
        slow(False, "computed there"),
        slow(False, "learned"),
        slow(False, "fairseq"),
        slow(True, "opennmt"),
    ],
)
def test_scores_of_opennmt_and_fairseq_models_equal_those_of_ctranslate2(tmp_path, model_file, positions, pre_norm):
    own, pieces = sentencepiece.SentencePieceProcessor(model_proto=model_file), pieces_of(model_file)[3:]
    is_fairseq = positions == "fairseq"
    special = ["<s>", "<blank>", "</s>", "<unk>"] if is_fairseq else ["<unk>", "<blank>", "<s>", "</s>"]
    config = {"decoder_start_token": "</s>", "add_source_eos": True} if is_fairseq else {}
    table = {
        "computed there": lambda: None,
        "learned": lambda: np.random.default_rng(5).normal(size=(70, 16)).astype(np.float32),
        "fairseq": lambda: fairseq_positions(90, 16),
        "opennmt": lambda: opennmt_positions(80, 16),
    }[positions]()
    tokens = [*special, *pieces]
    fill(tmp_path / "ct2", tokens=tokens, config=config, positions=table, pre_norm=pre_norm)
    (tmp_path / "ct2" / "sentencepiece.model").write_bytes(model_file)
    found = import_path(tmp_path / "ct2")
    expected = {
        "computed there": ("sinusoidal_t2t", 1),
        "learned": ("learned", 0),
        "fairseq": ("sinusoidal_t2t", 2),
        "opennmt": ("sinusoidal", 0),
    }
    shape = found.bundle.model.config
    assert (shape.positions, shape.first_position) == expected[positions]
    assert (shape.attention_bias, shape.feed_forward_bias, shape.output_bias) == (True, False, False)
    assert (shape.tying, shape.embedding_scale, shape.pad_id) == ("none", False, 1)
    ours, theirs = Translator(found.bundle), ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32")
    sources, targets = ["Ein Hund rennt.", "日本語 🐕"], ["a dog", "5. März"]
    read, written = ([own.encode(text, out_type=str) for text in side] for side in (sources, targets))
    scores = [sum(one.log_probs) for one in theirs.score_batch(read, written)]
    assert ours.score(sources, targets) == pytest.approx(scores, abs=1e-3)
    assert found.prove is not None
    assert "2 sentences: scores differ by" in (found.prove(sources) or "")


def test_scores_of_an_argos_translate_package_equal_those_of_ctranslate2(tmp_path, model_file):
    own, pieces = sentencepiece.SentencePieceProcessor(model_proto=model_file), pieces_of(model_file)[3:]
    package = tmp_path / "translate-de_en-1_9"
    package.mkdir()
    fill(package / "model", tokens=["<unk>", "<blank>", "<s>", "</s>", *pieces], config={}, positions=None)
    (package / "sentencepiece.model").write_bytes(model_file)
    (package / "metadata.json").write_text(json.dumps({"from_code": "de", "to_code": "en", "argos_version": "1.9"}))
    (package / "README.md").write_text("of Argos")
    found = import_path(package)
    assert (found.bundle.languages, found.their_card) == ((["de"], ["en"]), "of Argos")
    assert found.bundle.info["imported_from"]["name"] == "translate-de_en-1_9"
    theirs = ctranslate2.Translator(str(package / "model"), compute_type="float32")
    read, written = ([own.encode(text, out_type=str)] for text in ("Ein Hund rennt.", "a dog"))
    [score] = [sum(one.log_probs) for one in theirs.score_batch(read, written)]
    assert Translator(found.bundle).score(["Ein Hund rennt."], ["a dog"]) == pytest.approx([score], abs=1e-3)
    assert found.prove is not None
    assert "1 sentence" in (found.prove(["Ein Hund rennt."]) or "")


def fairseq_positions(rows: int, d_model: int) -> np.ndarray:
    """Return fairseq's sinusoids in float32, as it computes them, behind its row of padding (id 1)."""
    half = d_model // 2
    frequencies = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10_000) / (half - 1)))
    angles = torch.arange(rows + 2, dtype=torch.float32)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)[2:].numpy()


def opennmt_positions(rows: int, d_model: int) -> np.ndarray:
    """Return OpenNMT-py's sinusoids, sines and cosines in turn."""
    terms = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10_000.0) / d_model))
    angles = torch.arange(rows)[:, None].float() * terms
    table = torch.zeros(rows, d_model)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
    return table.numpy()


def test_a_translation_that_starts_from_zeros_starts_from_padding(converted):
    bundle = import_path(converted).bundle
    config = bundle.model.config
    assert config.bos_id == config.pad_id == len(json.loads((converted / "shared_vocabulary.json").read_text()))
    assert not bundle.model.target_embedding.weight[config.bos_id].any()
    assert explain(Translator(bundle), "ein Hund").decoder_tokens[0] == "<pad>"


@pytest.mark.parametrize("name", ["t5", slow("mbart-50")])
def test_added_tokens_beside_a_sentencepiece_model_are_read(directories, tmp_path, name):
    published = directories(name)
    directory = Path(shutil.copytree(published.directory, tmp_path / "theirs"))
    tokenizer = read_tokenizer(directory)
    tokenizer.add_tokens(["BRANDX", tokenizers.AddedToken("BRANDY", lstrip=True)])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<hl>"]}, replace_extra_special_tokens=False)
    tokenizer.save_pretrained(directory)
    grow(directory, tokenizer.convert_tokens_to_ids("<hl>") + 1)
    converted = convert(Published(directory, *list(vars(published).values())[1:]), tmp_path / "ct2")
    (converted / "tokenizer.json").unlink(missing_ok=True)
    beside = {"tokenizer_class": type(tokenizer).__name__, "extra_special_tokens": ["<hl>"]}
    write_json(converted / "tokenizer_config.json", beside)
    write_json(
        converted / "added_tokens.json",
        {name: tokenizer.convert_tokens_to_ids(name) for name in ("BRANDX", "BRANDY", "<hl>")},
    )
    asked = {"source_lang": published.source_lang, "target_lang": published.target_langs[0]}
    found = import_path(converted, **asked, markers=["<hl>"]).bundle.tokenizer
    assert found.added_tokens.keys() == {"BRANDX", "BRANDY", "<hl>"}
    if published.source_lang is not None:
        tokenizer.src_lang = published.source_lang
    for line in ("Ein BRANDX rennt.", "<hl> Hund <hl>", "aBRANDXb"):
        expected = tokenizer.convert_ids_to_tokens(tokenizer(line)["input_ids"])
        [ids] = found.encode_sources([line], asked["target_lang"], asked["source_lang"])
        listed = json.loads((converted / "shared_vocabulary.json").read_text(encoding="utf-8"))
        assert [listed[number] for number in ids] == expected
    [text] = import_path(converted, **asked).bundle.tokenizer.encode_sources(["<hl>"], *reversed(asked.values()))
    assert listed.index("<hl>") not in text


def test_an_older_list_of_tokens_is_read(directories, tmp_path):
    published = directories("marian")
    directory = convert(published, tmp_path / "ct2")
    expected = import_path(directory).bundle
    list_of_tokens = directory / "shared_vocabulary.json"
    tokens = json.loads(list_of_tokens.read_text(encoding="utf-8"))
    list_of_tokens.unlink()
    (directory / "shared_vocabulary.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    assert import_path(directory).bundle.tokenizer.text == expected.tokenizer.text


def test_two_vocabularies_are_kept_apart(tmp_path, model_file):
    tokens = ["<unk>", "<blank>", "<s>", "</s>", *"abcdefgh"]
    fill(tmp_path / "ct2", tokens=tokens, config={}, positions=None, activation=common_spec.Activation.GELU)
    (tmp_path / "ct2" / "shared_vocabulary.json").unlink()
    for side, some in (("source", tokens), ("target", [*tokens[:4], *tokens[:3:-1]])):
        (tmp_path / "ct2" / f"{side}_vocabulary.json").write_text(json.dumps(some))
    for name in ("source.spm", "target.spm"):
        (tmp_path / "ct2" / name).write_bytes(model_file)
    bundle = import_path(tmp_path / "ct2").bundle
    assert bundle.model.config.activation == "gelu"
    assert bundle.tokenizer.source_pieces([4, 11]) == ["a", "h"]
    assert bundle.tokenizer.pieces([4, 11]) == ["h", "a"]


@pytest.fixture(scope="module")
def converted(directories, tmp_path_factory) -> Path:
    return convert(directories("marian"), tmp_path_factory.mktemp("converted") / "ct2")


def test_a_directory_without_a_tokenizer_says_which_files_are_looked_for(converted, tmp_path):
    directory = Path(shutil.copytree(converted, tmp_path / "there"))
    for name in ("source.spm", "target.spm"):
        (directory / name).unlink()
    with pytest.raises(
        Exception, match=r"no tokenizer.* tokenizer\.json, source\.spm and target\.spm, or sentencepiece"
    ):
        import_path(directory)
