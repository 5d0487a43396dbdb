"""Models that came from another library and learned more go out again: each library writes there what ours does here.

Each is a directory as it is published (see `published`), imported by the command, changed a little as fine-tuning
would, and exported by the command. Their library reads it without any code of ours, and writes token for token the
same, as in test_import; imported again, it is the same model bit for bit.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import onnxruntime
import pytest
import sentencepiece
import test_import_ctranslate2
import tokenizers
import torch
import transformers
from published import FORMS, PUBLISHED, Language, Published, import_it, pairs, read_model, read_tokenizer
from test_import import LIMIT, TEXTS, Case, generate, require_same_beginnings, sources_of, translate
from toolkit_models import fairseq

from clearhead.bundle import Bundle, load_bundle, save_bundle
from clearhead.errors import ConfigError, ModelError
from clearhead.files.tensors import model_tensors
from clearhead.interop.ctranslate2 import parity as ctranslate2_proof
from clearhead.interop.ctranslate2.model_bin import read_model_bin
from clearhead.interop.ctranslate2.writer import write_ctranslate2
from clearhead.interop.huggingface import parity as huggingface_proof
from clearhead.interop.import_model import import_path
from clearhead.translation.golden import make_golden
from clearhead.translation.translator import Translator
from commands import run

NOISE = 0.003
"""Added to every weight, as a little learning would; translations still end."""

NAMES = [*PUBLISHED, *FORMS]
NOT_IN_CTRANSLATE2 = {"bert2bert": "num_segments = 2"}
"""Name of a case to what CTranslate2 is said not to have."""
CODES_BEHIND = {"mbart"}
"""Cases whose source ends with the token of its language."""
KINDS = {"m2m100": "m2m_100", "nllb": "m2m_100", "bert2bert": "encoder-decoder", "bert-generation": "encoder-decoder"}


def cases(found: Iterable[str | tuple[str, str]], in_every_run: Container[str] = ()) -> list[Any]:
    """Return names of cases, or tuples that begin with one; all except the named ones are marked slow."""
    rows = [(case,) if isinstance(case, str) else case for case in found]
    return [pytest.param(*row, marks=() if row[0] in in_every_run else pytest.mark.slow) for row in rows]


@dataclass(frozen=True)
class Tuned:
    """A model of ours that came in and learned more."""

    name: str
    published: Published
    path: Path

    @property
    def kind(self) -> str:
        """Their name of the kind of model."""
        return KINDS.get(self.name, re.split(r"[ -]", self.name)[0])


@pytest.fixture(scope="module")
def tuned(directories, imports, tmp_path_factory) -> Callable[[str], Tuned]:
    """Return a function from the name of a case to its model, which is made when first asked for."""

    @cache
    def find(name: str) -> Tuned:
        path = tmp_path_factory.mktemp("tuned") / "model"
        bundle = load_bundle(imports(name)[0])
        torch.manual_seed(4)
        with torch.no_grad():
            for weight in bundle.model.parameters():
                weight.add_(torch.randn_like(weight) * NOISE)
        # As of a model that was trained here: nothing says which kind it was.
        learned = replace(bundle, info={}, golden=())
        save_bundle(path, learned, golden=make_golden(Translator(learned)))
        return Tuned(name, directories(name), path)

    return find


@pytest.fixture(scope="module")
def exported(tuned, tmp_path_factory) -> Callable[[str, str], tuple[Path, str]]:
    """Return a function from a case and a library to the directory that the command writes, and what it says."""

    @cache
    def find(name: str, to: str) -> tuple[Path, str]:
        directory = tmp_path_factory.mktemp("exported") / f"{name.replace(' ', '-')}-{to}"
        return directory, run("export", tuned(name).path, "-o", directory, "--to", to)

    return find


def require_same(found: Bundle, expected: Bundle) -> None:
    """Compare models, of weights every bit."""
    assert found.model.config == expected.model.config
    assert found.decode == expected.decode
    assert found.tokenizer.sha256 == expected.tokenizer.sha256
    tensors, back = model_tensors(expected.model), model_tensors(found.model)
    assert tensors.keys() == back.keys()
    assert all(torch.equal(back[key], tensor) for key, tensor in tensors.items())


def case_of(model: Tuned, directory: Path) -> Case:
    """Return an exported directory as transformers reads it, beside the model that was exported."""
    ours = Translator.load(model.path, device="cpu")
    published = replace(model.published, directory=directory)
    return Case(published, read_tokenizer(directory), read_model(directory), "", model.path, ours)


def require_same_from_everywhere(
    path: Path, directory: Path, libraries: tuple[str, ...] = ("hf", "ctranslate2", "onnx")
) -> None:
    """Export a model to every library, import it from there, and compare."""
    expected = load_bundle(path)
    for to in libraries:
        run("export", path, "-o", directory / to, "--to", to)
        run("import", directory / to, "-o", directory / f"{to}-back")
        found = load_bundle(directory / f"{to}-back")
        require_same(found, expected)
        assert found.line_statistics == expected.line_statistics


@pytest.mark.parametrize("name", cases(NAMES, {"m2m100"}))
def test_exported_directory_gives_the_same_search_results_in_transformers(tuned, exported, name):
    model, (directory, said) = tuned(name), exported(name, "hf")
    assert "8 sentences have the same tokens, scores and texts in transformers" in said
    case = case_of(model, directory)
    assert case.model.config.model_type == model.kind
    is_begun = bool(model.published.token) and not model.published.heads_source
    assert ("as forced_bos_token_id" in said) == is_begun
    assert ("as src_lang" in said) == (model.published.source_lang is not None)
    assert ("begin each text with the token of its target language" in said) == model.published.heads_source
    sources, ours = sources_of(case), case.ours.bundle
    for language in model.published.target_langs:
        encoded = ours.tokenizer.encode_sources(TEXTS, language, model.published.source_lang)
        assert case.their_sources(TEXTS, language) == encoded
        theirs, found = generate(case, language, sources, 1), translate(case, language, sources, 1)
        ended = [row for row, ids in enumerate(theirs) if ids[-1] == case.end]
        given = case.given(language)
        for row in ended:
            assert found[row].tokens == tuple(ours.tokenizer.pieces(theirs[row][len(given) : -1])), sources[row]
            assert found[row].text == case.their_text(theirs[row]), sources[row]
        require_same_beginnings(case, found, theirs, given)
        assert ended


@pytest.mark.parametrize("name", cases(NAMES, {"m2m100"}))
def test_generate_with_exported_defaults_equals_our_search(tuned, exported, name):
    model, (directory, _) = tuned(name), exported(name, "hf")
    case = case_of(model, directory)
    language, settings = model.published.target_langs[0], case.model.generation_config
    assert settings.num_beams == case.ours.bundle.decode.beam_size
    begun = case.ours.bundle.tokenizer.given(language)
    assert settings.forced_bos_token_id == (begun[0] if begun else None)
    sources = sources_of(case)[:6]
    batch = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(ids) for ids in case.their_sources(sources, language)],
        batch_first=True,
        padding_value=case.model.config.pad_token_id,
    )
    mask = (batch != case.model.config.pad_token_id).long()
    rows = case.model.generate(batch, attention_mask=mask).tolist()
    found = case.ours.translate(sources, end_loops=False, split="never", raw=True)
    same = [
        ours.text == case.their_text(row[1 : row.index(case.end, 1) + 1])
        for ours, row in zip(found, rows, strict=True)
        if case.end in row[1:] and not ours.output_truncated
    ]
    assert same
    assert all(same)


def encoded_as_documented(model: Tuned, directory: Path, text: str, language: Language) -> list[str]:
    """Return the tokens that a user of CTranslate2 gives it: of the tokenizer beside it, and what the export said."""
    file = directory / "tokenizer.json"
    if is_whole := file.is_file():
        is_told = model.published.source_lang is not None
        pieces = tokenizers.Tokenizer.from_file(str(file)).encode(text, add_special_tokens=not is_told).tokens
    else:
        [path] = [*directory.glob("source.spm"), *directory.glob("sentencepiece.model")]
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(path)).encode(text, out_type=str)
    if model.published.heads_source:
        return [model.published.token.format(language), *pieces]
    if model.published.source_lang is None:
        return pieces
    code = (model.published.token or "{}").format(model.published.source_lang)
    if model.name in CODES_BEHIND:
        return [*pieces, "</s>", code]
    return [code, *pieces, *(["</s>"] if is_whole else [])]  # else CTranslate2 is told to add it


@pytest.mark.parametrize("name", cases((name for name in NAMES if name not in NOT_IN_CTRANSLATE2), {"marian"}))
def test_ctranslate2_search_of_the_export_equals_ours(tuned, exported, name):
    model, (directory, said) = tuned(name), exported(name, "ctranslate2")
    assert "8 sentences: scores differ by" in said
    ours, case = Translator.load(model.path, device="cpu"), case_of(model, model.published.directory)
    translator = ctranslate2.Translator(str(directory), device="cpu", compute_type="float32")
    [path] = [*directory.glob("shared_vocabulary.json"), *directory.glob("target_vocabulary.json")]
    names = json.loads(path.read_text(encoding="utf-8"))
    config, tokenizer = ours.bundle.model.config, ours.bundle.tokenizer
    sources = sources_of(case)
    never = [[names[number]] for number in {config.pad_id, config.bos_id} - {config.eos_id}]
    for language in model.published.target_langs:
        # bart begins every translation with <s>.
        is_begun = bool(model.published.token) and not model.published.heads_source
        begin = [model.published.token.format(language)] if is_begun else ["<s>"] if name[:4] == "bart" else []
        assert ("as target_prefix" in said) == bool(begin)
        assert ("give CTranslate2 each source as" in said) == (
            model.published.heads_source or model.published.source_lang is not None
        )
        results = translator.translate_batch(
            [encoded_as_documented(model, directory, source, language) for source in sources],
            target_prefix=[begin] * len(sources),
            beam_size=1,
            max_decoding_length=LIMIT - 1,
            suppress_sequences=never or None,
        )
        found, num_ended = translate(case, language, sources, 1), 0
        for source, one, result in zip(sources, found, results, strict=True):
            written = [names.index(token) for token in result.hypotheses[0][len(begin) :]]
            if len(written) + len(begin) < LIMIT - 1:
                assert one.tokens == tuple(tokenizer.pieces(written)), source
                assert one.text == tokenizer.decode(written)
                num_ended += 1
        assert num_ended


@pytest.mark.parametrize("name", cases(NAMES, {"marian"}))
def test_search_over_the_exported_onnx_files_equals_ours(tuned, exported, name):
    model, (directory, said) = tuned(name), exported(name, "onnx")
    assert "8 sentences: with the cache and without, scores differ by" in said
    ours = Translator.load(model.path, device="cpu")
    config, settings = ours.bundle.model.config, json.loads((directory / "generation_config.json").read_text())
    case = Case(model.published, read_tokenizer(directory), None, "", model.path, ours)
    language, sources = model.published.target_langs[0], sources_of(case)[:6]
    found, num_ended = translate(case, language, sources, 1), 0
    encoder, decoder = (
        onnxruntime.InferenceSession(str(directory / f"{part}_model.onnx")) for part in ("encoder", "decoder")
    )
    for source, one in zip(sources, found, strict=True):
        [ids] = case.their_sources([source], language)
        mask = np.ones((1, len(ids)), np.int64)
        [memory] = encoder.run(["last_hidden_state"], {"input_ids": np.array([ids]), "attention_mask": mask})
        begin = settings.get("forced_bos_token_id")
        written = [settings["decoder_start_token_id"], *([] if begin is None else [begin])]
        first = len(written)
        while (len(written) < LIMIT and written[-1] != config.eos_id) or len(written) == first:
            inputs = {"input_ids": np.array([written]), "encoder_hidden_states": memory, "encoder_attention_mask": mask}
            [logits] = decoder.run(["logits"], inputs)
            logits[..., settings["suppress_tokens"]] = -np.inf
            written.append(int(logits[0, -1].argmax()))
        if written[-1] == config.eos_id:
            assert one.tokens == tuple(ours.bundle.tokenizer.pieces(written[first:-1])), source
            num_ended += 1
    assert num_ended


def exports() -> list[tuple[str, str]]:
    libraries = ("hf", "ctranslate2", "onnx")
    return [(name, to) for name in NAMES for to in libraries if to != "ctranslate2" or name not in NOT_IN_CTRANSLATE2]


@pytest.mark.parametrize(("name", "to"), cases(exports(), {"marian"}))
def test_export_and_import_return_the_model_bit_for_bit(tuned, exported, tmp_path, name, to):
    said = run("import", exported(name, to)[0], "-o", tmp_path / "back")
    assert "8 sentences" in said
    assert "not taken over" not in said  # of what ours wrote itself
    expected, found = load_bundle(tuned(name).path), load_bundle(tmp_path / "back")
    require_same(found, expected)
    if to == "hf":
        assert found.info["imported_from"]["kind"] == tuned(name).kind


SAID_BY_FILES = [
    (name, to)
    for name, to in exports()
    # Files of CTranslate2 do not tell a source that nothing ends from one that the tokenizer ends.
    if to != "onnx" and (name, to) != ("bert-generation", "ctranslate2")
]


def without_our_words(directory: Path, target: Path) -> Path:
    """Return a copy without anything that other programs would not have written."""
    shutil.copytree(directory, target)
    (target / "clearhead_vocabulary.json").unlink()
    values = json.loads((target / "config.json").read_text())
    del values["clearhead"]
    (target / "config.json").write_text(json.dumps(values))
    return target


@pytest.mark.parametrize(("name", "to"), cases(SAID_BY_FILES, {"m2m100"}))
def test_vocabulary_without_our_record_in_the_export_is_the_same(tuned, exported, tmp_path, name, to):
    model = tuned(name)
    languages = {"source_lang": model.published.source_lang, "target_lang": model.published.target_langs[0]}
    found = import_path(without_our_words(exported(name, to)[0], tmp_path / "theirs"), **languages).bundle
    expected = load_bundle(model.path)
    for language in model.published.target_langs:
        told = {"target_lang": language, "source_lang": model.published.source_lang}
        assert found.tokenizer.encode_sources(TEXTS, **told) == expected.tokenizer.encode_sources(TEXTS, **told)
        targets = [
            codec.encode_targets(TEXTS, [language] * len(TEXTS)) for codec in (found.tokenizer, expected.tokenizer)
        ]
        if to == "hf" or not name.startswith("bart"):  # CTranslate2's files do not say what all begin with
            assert targets[0] == targets[1]
        assert found.tokenizer.decode_batch(targets[1]) == expected.tokenizer.decode_batch(targets[1])


@pytest.mark.slow
def test_imported_model_fine_tuned_by_train_is_exported(tuned, tmp_path):
    """The whole way: import, train --from, export, import."""
    model = tuned("marian")
    for name, lines in (("train", pairs("en", "de")[10:]), ("valid", pairs("en", "de")[:10])):
        text = "".join(f"{source}\t{target}\n" for source, target in lines)
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
    files = ["--pairs", tmp_path / "train.tsv", "--valid-pairs", tmp_path / "valid.tsv"]
    run("train", *files, "--from", model.path, "--out", tmp_path / "run", "--max-steps", 3)
    require_same_from_everywhere(tmp_path / "run", tmp_path, ("hf",))


@pytest.mark.parametrize("name", cases(["marian", "m2m100"], {"m2m100"}))
def test_model_imported_from_ctranslate2_exports_to_every_format(tuned, tmp_path, name):
    published = tuned(name).published
    converted = test_import_ctranslate2.convert(published, tmp_path / "converted")
    test_import_ctranslate2.import_it(converted, tmp_path / "ours", published)
    require_same_from_everywhere(tmp_path / "ours", tmp_path)


@pytest.mark.parametrize(("name", "reason"), NOT_IN_CTRANSLATE2.items())
def test_models_that_ctranslate2_cannot_hold_are_rejected_with_the_reason(imports, tmp_path, name, reason):
    with pytest.raises(ConfigError, match=f"CTranslate2 cannot hold this model: .*{reason}.*; --to onnx writes it"):
        run("export", imports(name)[0], "-o", tmp_path / "theirs", "--to", "ctranslate2")
    assert not list(tmp_path.iterdir())


def test_export_to_any_format_does_not_replace_an_existing_directory(tuned, tmp_path):
    (tmp_path / "mine").mkdir()
    for to in ("hf", "ctranslate2", "onnx"):
        with pytest.raises(ModelError, match="mine is there already; choose another name"):
            run("export", tuned("marian").path, "-o", tmp_path / "mine", "--to", to)
    assert not list((tmp_path / "mine").iterdir())


@pytest.mark.parametrize(
    ("to", "proof", "which"),
    [("hf", huggingface_proof, "log-probability"), ("ctranslate2", ctranslate2_proof, "another score")],
)
def test_export_beyond_the_tolerance_of_the_proof_is_not_written(tuned, tmp_path, monkeypatch, to, proof, which):
    path = tuned("marian").path
    monkeypatch.setattr(proof, "TOLERANCE", -1.0)
    with pytest.raises(ModelError, match=which):
        run("export", path, "-o", tmp_path / "theirs", "--to", to)
    assert not list(tmp_path.iterdir())


def test_rounded_weights_are_those_of_ctranslate2(tuned, tmp_path):
    said = run("export", tuned("marian").path, "-o", tmp_path / "theirs", "--to", "ctranslate2", "--precision", "int8")
    assert "a model in int8" in said
    run("import", tmp_path / "theirs", "-o", tmp_path / "back")
    expected, found = load_bundle(tuned("marian").path), load_bundle(tmp_path / "back")
    assert found.tokenizer.sha256 == expected.tokenizer.sha256
    assert found.decode == expected.decode


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16", "int16", "int8"])
@pytest.mark.parametrize("name", cases(["t5", "t5 1.1"]))
def test_write_ctranslate2_writes_the_weights_of_the_converter(directories, tmp_path, name, precision):
    published = directories(name)
    import_it(published, tmp_path / "ours")
    (tmp_path / "written").mkdir()
    write_ctranslate2(load_bundle(tmp_path / "ours"), tmp_path / "written", precision)
    quantization = None if precision == "float32" else precision
    test_import_ctranslate2.convert(published, tmp_path / "theirs", quantization)
    ours, theirs = (read_model_bin(tmp_path / made / "model.bin") for made in ("written", "theirs"))
    assert ours.stored_in == theirs.stored_in
    assert all(
        torch.equal(tensor, theirs.tensors[key]) for key, tensor in ours.tensors.items() if key in theirs.tensors
    )
    # Marian's starts from zeros, which is a token more here.
    assert len(ours.tensors.keys() & theirs.tensors.keys()) >= 40


def test_vocabulary_file_changed_after_export_is_read(exported, tmp_path):
    directory = Path(shutil.copytree(exported("marian", "hf")[0], tmp_path / "changed"))
    values = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
    first, second = [piece for piece in values if piece.isalpha()][:2]
    values[first], values[second] = values[second], values[first]
    (directory / "vocab.json").write_text(json.dumps(values), encoding="utf-8")
    found = import_path(directory)
    assert "the vocabulary is read anew from their files; changed since: vocab.json" in found.notes
    assert found.bundle.tokenizer.source_pieces([values[first]]) == [first]


def test_import_rejects_vocabulary_lists_that_differ_from_the_clearhead_record(exported, tmp_path):
    directory = Path(shutil.copytree(exported("marian", "ctranslate2")[0], tmp_path / "changed"))
    path = directory / "shared_vocabulary.json"
    tokens = json.loads(path.read_text(encoding="utf-8"))
    tokens[5], tokens[6] = tokens[6], tokens[5]
    path.write_text(json.dumps(tokens), encoding="utf-8")
    with pytest.raises(ModelError, match=r"the lists of tokens are not those of clearhead_vocabulary\.json"):
        import_path(directory)


def test_export_saved_again_by_transformers_imports_as_the_same_model(tuned, exported, tmp_path):
    directory, _ = exported("marian into several languages", "hf")
    transformers.AutoModelForSeq2SeqLM.from_pretrained(directory).save_pretrained(tmp_path / "again")
    read_tokenizer(directory).save_pretrained(tmp_path / "again")
    found = import_path(tmp_path / "again")
    assert any("changed since: clearhead_vocabulary.json" in note for note in found.notes)
    expected = load_bundle(tuned("marian into several languages").path)
    assert found.bundle.decode == expected.decode
    tensors, back = model_tensors(expected.model), model_tensors(found.bundle.model)
    assert all(torch.equal(back[key], tensor) for key, tensor in tensors.items())
    for language in ("deu", "jpn"):
        encoded = found.bundle.tokenizer.encode_sources(TEXTS, language)
        assert encoded == expected.tokenizer.encode_sources(TEXTS, language)


def test_word_vocabularies_of_toolkits_export_to_ctranslate2_and_onnx_only(tmp_path):
    (tmp_path / "there").mkdir()
    torch.manual_seed(3)
    of_bart = {"encoder_learned_pos": True, "layernorm_embedding": True, "share_all_embeddings": True}
    toolkit: Any = fairseq(tmp_path / "there", activation_fn="gelu", **of_bart)
    ours = tmp_path / "ours"
    run("import", toolkit.path, "-o", ours)
    with pytest.raises(ConfigError, match=r"no tokenizer of words .*; write it with --to ctranslate2 or --to onnx"):
        run("export", ours, "-o", tmp_path / "hf", "--to", "hf")
    assert not (tmp_path / "hf").exists()
    expected = load_bundle(ours)
    for to in ("ctranslate2", "onnx"):
        said = run("export", ours, "-o", tmp_path / to, "--to", to)
        assert "words" in said
        run("import", tmp_path / to, "-o", tmp_path / f"{to}-back")
        found = load_bundle(tmp_path / f"{to}-back")
        require_same(found, expected)
    translator = ctranslate2.Translator(str(tmp_path / "ctranslate2"), device="cpu", compute_type="float32")
    results = translator.translate_batch(
        [text.split(" ") for text in toolkit.texts], beam_size=1, min_decoding_length=0, max_decoding_length=9
    )
    how: Any = {"beam_size": 1, "end_loops": False, "split": "never"}
    found = Translator.load(ours, device="cpu").translate(list(toolkit.texts), raw=True, **how)
    for one, result in zip(found, results, strict=True):
        if len(result.hypotheses[0]) < 9 and not one.output_truncated:
            assert one.text == " ".join(result.hypotheses[0])
