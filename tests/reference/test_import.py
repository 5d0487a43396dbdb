"""`clearhead import` of whole directories says, text in and text out, what Hugging Face transformers says.

Each directory is one as it is published (see `published`), imported by the command itself; what is compared is the
model directory that it wrote. Their search is asked for what ours does, as test_huggingface_generation.py explains:
`early_stopping="never"`, and neither padding nor the start token is written. Where theirs reaches the length limit, the
two differ by design. Only we read a special token in a text as text, so no text here contains one.
"""

from __future__ import annotations

import gzip
import random
import shutil
import unicodedata
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
import transformers
from published import (
    FORMS,
    OTHER_WEIGHTS,
    PUBLISHED,
    Language,
    Published,
    bert2bert,
    import_it,
    pairs,
    read_model,
    read_tokenizer,
    texts,
)

from clearhead.bundle import load_bundle
from clearhead.errors import ModelError
from clearhead.interop.huggingface.parity import prove_huggingface
from clearhead.interop.import_model import import_path
from clearhead.interop.vocabularies.huggingface_files import their_vocabulary
from clearhead.training.log import read_metrics
from clearhead.training.run import train_from_values
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator
from commands import run
from every_run import slow
from sentencepiece_models import sentencepiece_model

LIMIT = 40
"""Target tokens; few translations come near."""
IN_EVERY_RUN = {"mbart", "bert2bert"}
"""Cases whose labels are made in different ways; the others learn in the slow run."""

TEXTS = [
    "Ein Hund rennt.",
    "Am 5. März 2014, 12:30 Uhr: 1 234,50 € – teuer?",
    "«Où est-il ?» demanda-t-elle… “Nowhere,” he said; ‘never’!",
    "Привет, мир! Γειά σου Κόσμε.",
    "日本語の文章、２０１４年３月５日（水）。",
    "한국어 문장입니다.",
    "שלום עולם, مرحبا بالعالم ١٢٣",
    "नमस्ते दुनिया ไทย",
    "😀 👨‍👩‍👧 ☃ 🇩🇪",
    "𝔘𝔫𝔦 𠀋 ﬁ ① ẞ ǅ",
    "cafe\u0301 café",
    "two  spaces   and    four",
    "  at the beginning",
    "a\ttab",
    "no\u00a0break\u202fthin\u2009space\u3000wide\u200bzero",
    "<not> [a] {token} <2de> | \\ / ~ ^ `",
    "a_b__c @-@ &amp; ▁under",
    "1234567890 3.14159 0x1F -5 +7 1e10",
    "x" * 70,
    "ALL CAPITALS AND camelCase",
    "https://example.org/?q=1&r=%20#top",
    "...?!?!...",
    ".",
    "",
]
ODD_TEXTS = ["behind ", "behind  ", " ", "\u3000", "\u200b", "▁", "e\u0301\u0323", "ｶﾞ", "\u202f5\u202f", "a\nb"]
"""What the library tokenizers normalizes otherwise than sentencepiece: the ends of a text, and marks of letters."""


@dataclass(frozen=True)
class Case:
    """A directory, what their library makes of it, and what ours does."""

    published: Published
    tokenizer: Any
    model: Any
    output: str
    """What the command said."""
    path: Path
    ours: Translator

    def their_sources(self, texts: list[str], language: Language) -> list[list[int]]:
        """Encode texts as they do."""
        lang = self.published
        if lang.source_lang is not None:
            self.tokenizer.src_lang = lang.source_lang
        begin = f"{lang.token.format(language)} " if lang.heads_source else ""
        return self.tokenizer([begin + text for text in texts])["input_ids"]

    def given(self, language: Language) -> list[int]:
        """Return what they begin every translation with, behind the start token."""
        if self.published.token and not self.published.heads_source:
            return [self.tokenizer.convert_tokens_to_ids(self.published.token.format(language))]
        forced = self.model.generation_config.forced_bos_token_id
        return [] if forced is None else [forced]

    def their_text(self, ids: list[int]) -> str:
        """Read ids as they do; a tokenizer that they make of a sentencepiece model leaves spaces at the ends."""
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return text.strip() if self.published.is_converted else text

    @property
    def end(self) -> int:
        """The id that ends a translation; BERT's tokenizer calls it another name."""
        return self.model.generation_config.eos_token_id

    @property
    def text_ids(self) -> list[int]:
        """The ids of pieces that stand for text."""
        special = {*self.tokenizer.all_special_ids, self.tokenizer.unk_token_id}
        codes = {
            self.tokenizer.convert_tokens_to_ids(self.published.token.format(language))
            for language in self.published.target_langs
            if self.published.token
        }
        codes |= set(self.ours.bundle.tokenizer.language_tags.values())  # theirs has tags that no language of its is
        found = set(range(len(self.tokenizer))) - special - codes
        return sorted(found & set(range(self.ours.bundle.tokenizer.vocab_size)))


# Others are theirs with other settings, or in every run of test_import_ctranslate2 or test_exported_imports.
KINDS = ("marian", "bart", "pegasus", "t5", "mbart", "bert2bert")


@pytest.fixture(scope="module", params=[name if name in KINDS else slow(name) for name in (*PUBLISHED, *FORMS)])
def case(request, directories, imports) -> Case:
    """Return each directory beside what the command makes of it."""
    published = directories(request.param)
    path, output = imports(request.param)
    tokenizer, model = read_tokenizer(published.directory), read_model(published.directory)
    return Case(published, tokenizer, model, output, path, Translator.load(path, device="cpu"))


def sources_of(case: Case) -> list[str]:
    """Return texts of its locale, and some of others."""
    read, written = case.published.reads
    known = [source for source, _ in pairs(read, written)[:10]]
    return [*known, *(source for source, _ in pairs("tr", "de")[:3]), "Ein Hund 𐍈 rennt.", "日本語"]


def test_the_command_proves_the_model_and_writes_a_directory_that_verifies(case):
    assert "8 sentences have the same tokens, scores and texts as in Hugging Face transformers" in case.output
    assert f"written  {case.path}" in case.output
    settings, theirs = case.ours.bundle.decode, case.model.generation_config
    assert settings.beam_size == (theirs.num_beams or 1)
    assert (settings.length_penalty, settings.length_penalty_form) == (theirs.length_penalty or 1.0, "power")
    assert "all 8 are translated as when the model was made" in run("verify", case.path)


def test_texts_are_encoded_in_the_same_ids(case):
    for language in case.published.target_langs:
        theirs = case.their_sources(TEXTS, language)
        ours = case.ours.bundle.tokenizer.encode_sources(TEXTS, language, case.published.source_lang)
        for text, expected, found in zip(TEXTS, theirs, ours, strict=True):
            assert found == expected, text


def test_odd_texts_are_encoded_as_by_the_library_that_the_model_learned_with(case):
    language, tokenizer = case.published.target_langs[0], case.ours.bundle.tokenizer
    if not case.published.is_converted:
        found = tokenizer.encode_sources(ODD_TEXTS, language, case.published.source_lang)
        assert found == case.their_sources(ODD_TEXTS, language)
        return
    [model] = case.published.directory.glob("*.model")
    encoded = sentencepiece.SentencePieceProcessor(model_file=str(model)).encode(ODD_TEXTS, out_type=str)
    theirs = [case.tokenizer.convert_tokens_to_ids(pieces) for pieces in encoded]
    assert tokenizer.encode_batch(ODD_TEXTS) == theirs


@pytest.mark.parametrize("corpus", [slow("newstest-wmt"), "tanaka-en-ja", slow("python-docs-en-fr")])
def test_lines_of_real_text_are_encoded_in_the_same_ids(case, corpus, data_dir):
    language = case.published.target_langs[0]
    for path in sorted(data_dir(corpus).glob("*.gz")):
        if path.name.startswith("train"):
            continue
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            texts = [line.rstrip() for line in islice(lines, 150)]
        theirs = case.their_sources(texts, language)
        ours = case.ours.bundle.tokenizer.encode_sources(texts, language, case.published.source_lang)
        for text, expected, found in zip(texts, theirs, ours, strict=True):
            assert found == expected, text


def test_ids_are_read_as_the_same_text(case):
    rng = random.Random(3)
    ids = case.text_ids
    rows = [[], *([one] for one in ids), *(rng.choices(ids, k=rng.randrange(2, 15)) for _ in range(300))]
    special = [case.end, case.tokenizer.pad_token_id, case.tokenizer.unk_token_id]
    rows += [[*row[:2], rng.choice(special), *row[2:], case.end] for row in rows[-60:]]
    ours = case.ours.bundle.tokenizer.decode_batch(rows)
    for row, found in zip(rows, ours, strict=True):
        assert found == case.their_text(row), row


def generate(
    case: Case, language: Language, sources: list[str], num_beams: int, *, may_start: bool = False
) -> list[list[int]]:
    """Return what they write, from behind the start token to the end token; the start token only if it may."""
    config = case.model.generation_config
    rows = [torch.tensor(ids) for ids in case.their_sources(sources, language)]
    start = case.model.config.decoder_start_token_id
    pad, end = config.pad_token_id, config.eos_token_id
    source = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
    given = case.given(language)
    found = case.model.generate(
        source,
        attention_mask=(source != pad).long(),
        num_beams=num_beams,
        early_stopping="never" if num_beams > 1 else None,
        length_penalty=1.0,
        max_new_tokens=LIMIT,
        max_length=None,
        do_sample=False,
        forced_bos_token_id=given[0] if given else None,
        forced_eos_token_id=None,
        bad_words_ids=None,
        no_repeat_ngram_size=0,
        suppress_tokens=sorted({pad, start} - {end, *([start] if may_start else [])}),
    ).tolist()
    assert all(row[0] == start for row in found)
    return [row[1 : row.index(end, 1) + 1] if end in row[1:] else row[1:] for row in found]


def translate(case: Case, language: Language, sources: list[str], beam_size: int) -> list[Translation]:
    """Return what we write, each within the same limit, which here goes by the length of the source."""
    how: Any = {"length_penalty": 1.0, "end_loops": False, "split": "never", "target_lang": language}
    if beam_size == 1:  # where what ends within a limit ends so within a later one
        return case.ours.translate(sources, beam_size=1, extra_length=LIMIT, raw=True, **how)
    encoded = case.ours.bundle.tokenizer.encode_sources(sources, language, case.published.source_lang)
    return within_limit(case.ours, sources, list(map(len, encoded)), beam_size=beam_size, **how)


def within_limit(ours: Translator, sources: list[str], lengths: list[int], **how: Any) -> list[Translation]:
    """Translate within `LIMIT` tokens, sources of one length together."""
    found: dict[str, Translation] = {}
    for length in set(lengths):
        alike = [source for source, own in zip(sources, lengths, strict=True) if own == length]
        found |= zip(alike, ours.translate(alike, extra_length=LIMIT - length, raw=True, **how), strict=True)
    return [found[source] for source in sources]


def require_same_beginnings(case: Case, ours: list[Translation], theirs: list[list[int]], given: list[int]) -> None:
    """Compare what greedy search writes up to their limit, whether it has ended by then or not."""
    for one, ids in zip(ours, theirs, strict=True):
        expected = case.ours.bundle.tokenizer.pieces([token for token in ids[len(given) :] if token != case.end])
        assert one.tokens[: len(expected)] == tuple(expected)


@pytest.mark.parametrize("beam_size", [1, slow(4)])
def test_translations_equal_what_generate_finds(case, beam_size):
    sources, end = sources_of(case), case.end
    for language in case.published.target_langs:
        theirs, given = generate(case, language, sources, beam_size), case.given(language)
        ours = translate(case, language, sources, beam_size)
        ended = [row for row, ids in enumerate(theirs) if ids[-1] == end]
        for row in ended:
            assert theirs[row][: len(given)] == given
            text_ids = theirs[row][len(given) : -1]
            assert ours[row].tokens == tuple(case.ours.bundle.tokenizer.pieces(text_ids)), sources[row]
            assert ours[row].text == case.their_text(theirs[row]), sources[row]
        if beam_size == 1:
            require_same_beginnings(case, ours, theirs, given)
        assert ended
        if case.published.token and beam_size == 1:  # a tag decides what is searched for, not how
            tagged = translate(case, None, [f"<2{language}> {source}" for source in sources], beam_size)
            assert [one.tokens for one in tagged] == [one.tokens for one in ours]


def test_scores_are_their_log_probabilities(case):
    sources, targets = zip(*pairs(*case.published.reads)[:8], ("Ein Hund", "A"), ("日本語 𐍈", "ẞ  β"), strict=True)
    start, end = case.model.config.decoder_start_token_id, case.end
    for language in case.published.target_langs:
        given = case.given(language)
        if case.published.token and not case.published.heads_source:
            case.tokenizer.tgt_lang = language
        theirs = []
        labels = case.tokenizer(text_target=list(targets))["input_ids"]
        for source, ids in zip(case.their_sources(list(sources), language), labels, strict=True):
            # BERT's begin with the start; mBART's go on behind the end, to start with the language there;
            # BertGeneration's have no end.
            ids = ids[1:] if ids[0] == start else ids
            ids = [*ids[: ids.index(end)], end] if end in ids else [*ids, end]
            assert ids[: len(given)] == given
            begun = torch.tensor([[start, *ids[:-1]]])
            with torch.inference_mode():
                logits = case.model(input_ids=torch.tensor([source]), decoder_input_ids=begun).logits[0]
            log_probs = logits.double().log_softmax(-1)[torch.arange(len(ids)), ids]
            theirs.append(log_probs[len(given) :].sum().item())
        told = {"source_lang": case.published.source_lang, "target_lang": language}
        ours = case.ours.score(list(sources), list(targets), **told)
        assert ours == pytest.approx(theirs, abs=1e-3)


def test_commands_tell_the_model_which_language_they_read(imports, tmp_path):
    shutil.copytree(imports("mbart")[0], tmp_path / "ours")
    for path, side in zip((tmp_path / "a", tmp_path / "b"), zip(*pairs("en", "de")[:3], strict=True), strict=True):
        path.write_text("\n".join(side) + "\n", encoding="utf-8")
    asked = [tmp_path / "ours", "--source", tmp_path / "a", "--target", tmp_path / "b"]
    scores = {}
    for language in ("en_XX", "tr_TR", None):
        told = [] if language is None else ["--source-lang", language]
        scores[language] = run("score", *asked, *told)
        run("optimize", *asked, *told)
    assert scores["en_XX"] == scores[None] != scores["tr_TR"]


def test_a_bert2bert_whose_labels_began_with_the_start_token_writes_what_it_learned(tmp_path):
    (tmp_path / "theirs").mkdir()
    torch.manual_seed(1)
    published = bert2bert(tmp_path / "theirs", labels_begin=True)
    said = import_it(published, tmp_path / "ours")
    assert "every translation begins with that twice" in said
    assert "8 sentences have the same tokens, scores and texts" in said
    run("export", tmp_path / "ours", "-o", tmp_path / "back", "--to", "hf")
    for directory, beam_size in ((published.directory, 4), (tmp_path / "back", 1)):
        tokenizer, model = read_tokenizer(directory), read_model(directory)
        case = Case(published, tokenizer, model, said, tmp_path / "ours", Translator.load(tmp_path / "ours"))
        sources, start = sources_of(case)[::3], model.config.decoder_start_token_id
        theirs = generate(case, None, sources, beam_size, may_start=True)
        ours = translate(case, None, sources, beam_size)
        assert all(ids[0] == start for ids in theirs)
        ended = [row for row, ids in enumerate(theirs) if ids[-1] == case.end]
        assert ended
        for row in ended:
            assert ours[row].text == case.their_text(theirs[row])


@pytest.mark.parametrize("name", ["mbart", "mbart-50"])
def test_an_mbart_with_its_sentencepiece_model_alone_has_the_same_ids(directories, tmp_path, name):
    for file in ("config.json", "generation_config.json", "model.safetensors", "sentencepiece.bpe.model"):
        shutil.copy(directories(name).directory / file, tmp_path)
    theirs, imported = read_tokenizer(tmp_path), import_path(tmp_path, source_lang="en_XX")
    ours = imported.bundle.tokenizer
    assert ours.languages == theirs.lang_code_to_id
    assert len(ours.languages) == {"mbart": 25, "mbart-50": 52}[name]
    # Their tokenizer of mBART-25 lost its normalization in version 5; sentencepiece has it.
    plain = [text for text in (*TEXTS, "日本語の文章") if unicodedata.is_normalized("NFKC", text)]
    assert len(plain) > 15
    theirs.src_lang = "en_XX"
    assert ours.encode_sources(plain, None, "en_XX") == theirs(plain)["input_ids"]
    imported.prove(["Ein Hund rennt."])
    config = imported.bundle.model.config
    another = config.model_copy(update={"vocab_size": config.vocab_size + 1})  # which has other languages
    with pytest.raises(ModelError, match=r"does not name the tokens .*from_pretrained\(NAME\)\.save_pretrained"):
        their_vocabulary(tmp_path, "mbart", another)


def test_a_t5_with_byte_pieces_in_its_sentencepiece_model_alone_is_proved_but_for_the_bytes(tmp_path):
    made = sentencepiece_model(texts(), 700, byte_fallback=True, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (tmp_path / "spiece.model").write_bytes(made)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer", "extra_ids": 0}')
    shape = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_heads": 2, "num_layers": 1, "decoder_start_token_id": 0}
    torch.manual_seed(3)
    transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=700, **shape)).save_pretrained(tmp_path)
    own = sentencepiece.SentencePieceProcessor(model_proto=made)
    imported = import_path(tmp_path)
    text = "Ein Hund 🐕 rennt"
    assert imported.bundle.tokenizer.encode_sources([text]) == [[*own.encode(text), 1]]
    assert imported.bundle.tokenizer.decode(own.encode(text)) == text
    assert imported.prove is not None
    assert "but for bytes in 1 of 1 sentences" in (imported.prove([text]) or "")
    other = replace(imported.bundle, tokenizer=import_path(tmp_path).bundle.tokenizer)
    other.tokenizer.encode_parts = lambda parts, source_lang=None: [[*own.encode(text)[1:], 1]]
    with pytest.raises(ModelError, match="is encoded"):
        prove_huggingface(tmp_path, "t5", other, [text])


@pytest.mark.parametrize("form", OTHER_WEIGHTS)
def test_weights_in_other_files_are_the_same_model(directories, form, tmp_path):
    change, places = OTHER_WEIGHTS[form]
    published = directories("marian")
    other = replace(published, directory=Path(shutil.copytree(published.directory, tmp_path / "other")))
    change(other.directory)
    assert not (other.directory / "model.safetensors").exists()
    assert "8 sentences have the same tokens" in import_it(other, tmp_path / "imported")
    expected = import_path(published.directory).bundle.model.state_dict()
    found = Translator.load(tmp_path / "imported", device="cpu").bundle.model.state_dict()
    torch.testing.assert_close(found, expected, rtol=places, atol=places)


def their_labels(case: Case, text: str) -> list[int]:
    """Encode a target as they do for learning, from behind the start token to the end token."""
    tokenizer, start = case.tokenizer, case.model.config.decoder_start_token_id
    if case.published.source_lang is not None:
        tokenizer.tgt_lang = case.published.target_langs[0] or tokenizer.convert_ids_to_tokens(start)
    ids = tokenizer(text_target=text)["input_ids"]
    if isinstance(case.model, transformers.EncoderDecoderModel):  # whose tokenizer puts BERT's own tokens around all
        ids = [token for token in ids if token not in tokenizer.all_special_ids] + [case.end]
    return ids[: ids.index(case.end) + 1]  # mBART has the language behind that, which moves to the start


@torch.inference_mode()
def their_loss(case: Case, examples: list[tuple[str, str]]) -> float:
    """Return the negative log-likelihood per target token that their model gives pairs of text."""
    start, total, tokens = case.model.config.decoder_start_token_id, 0.0, 0
    for source, target in examples:
        labels = torch.tensor([their_labels(case, target)])
        inputs = torch.tensor(case.their_sources([source], case.published.target_langs[0]))
        shifted = torch.nn.functional.pad(labels[:, :-1], (1, 0), value=start)
        logits = case.model(input_ids=inputs, decoder_input_ids=shifted).logits
        total += torch.nn.functional.cross_entropy(logits[0].double(), labels[0], reduction="sum").item()
        tokens += labels.size(1)
    return total / tokens


@pytest.mark.parametrize(
    "case",
    [name if name in IN_EVERY_RUN else slow(name) for name in PUBLISHED],
    indirect=True,
)
def test_fine_tuning_an_imported_model_starts_at_the_loss_of_their_library(case, tmp_path):
    """The loss of the first validation is the one that their library finds, so texts are encoded as for training."""
    lines = pairs(*case.published.reads)
    files = {"train": lines[10:], "valid": lines[:10]}
    for name, some in files.items():
        text = "".join(f"{source}\t{target}\n" for source, target in some)
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
    data = {"pairs": [str(tmp_path / "train.tsv")], "valid_pairs": [str(tmp_path / "valid.tsv")], "augment": False}
    train = {"max_steps": 1, "validate_every": 1, "batch_tokens": 64, "validate_sentences": 1, "average_last": 1}
    values = {"from_model": str(case.path), "out": str(tmp_path / "run"), "data": data, "train": train}
    run = train_from_values(values).run
    first = next(record for record in read_metrics(run / "metrics.jsonl") if record["split"] == "valid")
    assert first["step"] == 0
    assert first["nll"] == pytest.approx(their_loss(case, files["valid"]), rel=1e-4)
    theirs, ours = (load_bundle(path).tokenizer for path in (case.path, run))
    assert theirs.sha256 == ours.sha256
    assert Translator.load(run, device="cpu").translate([lines[0][0]])[0].tokens
