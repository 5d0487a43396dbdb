"""Directories that `clearhead export` wrote, in their libraries: the same ids, texts and scores as here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import tokenizers
import torch
import transformers
from test_huggingface_generation import chain

from clearhead.bundle import Bundle
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.data.demo_corpus import generate
from clearhead.interop.ctranslate2 import writer
from clearhead.interop.ctranslate2.attention import other_row
from clearhead.interop.export_model import export_directory
from clearhead.model import Transformer
from clearhead.tokenizers import Tokenizer
from clearhead.translation.translator import Translator
from every_run import slow
from model_forms import T5_FORM
from onnx_search import OnnxSearch

LOCALES = ("de", "en", "fr", "ja")
TEXTS = ["ein Hund rennt", "a dog runs", "zwei Hunde", "two dogs"]
STRANGE = [
    "",
    " ",
    "  zwei  Leerzeichen ",
    "Tab\tund\nZeile",
    "👩‍👩‍👧 ☃ Ελληνικά",
    "</x> 3.141 1984",
    "ﬁ e\u0301",
    "犬が走る。",
]


@pytest.fixture(scope="module", params=["post", slow("pre")])
def exported(request, tmp_path_factory):
    """Return our translator, their tokenizer and model, and sentences; see `chain` for what the model writes."""
    pairs = generate(600, seed=3, num_test=5, locales=LOCALES)
    texts = [text for pair in pairs.train for text in (pair.text, pair.target)]
    tokenizer = Tokenizer.train(texts, vocab_size=500, language_tags=LOCALES)
    sizes = {
        "d_model": 48,
        "d_ff": 96,
        "num_heads": 4,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "max_positions": 128,  # transformers computes sinusoids in loops
    }
    torch.manual_seed(2)
    model = Transformer(ModelConfig(**tokenizer.model_settings, **sizes, norm=request.param))
    # Other libraries know no rule against half a character, which a trained model does not write.
    whole = [
        token for token in range(tokenizer.vocab_size) if "\N{REPLACEMENT CHARACTER}" not in tokenizer.decode([token])
    ]
    chain(model, torch.Generator().manual_seed(2), tokens_of_text=whole, num_tokens=40)
    decode = DecodeConfig(beam_size=4, length_penalty=1.0, length_penalty_form="power", end_loops=False, split="never")
    bundle = Bundle(model.eval(), tokenizer, decode)
    directory = tmp_path_factory.mktemp("exported") / request.param
    sources = [pair.source for pair in pairs.test]
    _, compared, _ = export_directory(bundle, directory, "hf", sources[:4])
    assert compared == "4 sentences have the same tokens, scores and texts in transformers"
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory).eval()
    return Translator(bundle), their_tokenizer, theirs, sources


def test_their_tokenizer_encodes_and_decodes_as_ours(exported):
    translator, their_tokenizer, _, sources = exported
    ours = translator.bundle.tokenizer
    for text in [*sources, *STRANGE]:
        [ids] = ours.encode_sources([text])
        assert their_tokenizer(text)["input_ids"] == ids, text
        assert their_tokenizer.decode(ids, skip_special_tokens=True) == ours.decode(ids)
    for text in STRANGE:
        assert their_tokenizer.decode(their_tokenizer(text)["input_ids"], skip_special_tokens=True) == text


@pytest.mark.parametrize("beam_size", [slow(1), 4])
def test_their_generate_writes_the_same_texts(exported, beam_size):
    translator, their_tokenizer, theirs, sources = exported
    batch = their_tokenizer(sources, return_tensors="pt", padding=True)
    with torch.inference_mode():
        found = theirs.generate(**batch, num_beams=beam_size, max_length=60)
    ended = [row for row, ids in enumerate(found.tolist()) if theirs.config.eos_token_id in ids[1:]]
    expected = their_tokenizer.batch_decode(found, skip_special_tokens=True)
    ours = translator.translate(sources, beam_size=beam_size, raw=True)
    same = [row for row in ended if not ours[row].output_truncated]
    assert [ours[row].text for row in same] == [expected[row] for row in same]
    assert same


def test_minimum_length_and_no_repeated_ngrams_are_exported(exported, tmp_path):
    translator, their_tokenizer, _, sources = exported
    decode = translator.bundle.decode.with_changes({"min_length": 35, "no_repeat_ngram_size": 2})
    ours = Translator(replace(translator.bundle, decode=decode))
    export_directory(ours.bundle, tmp_path / "hf", "hf", sources[:4])
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    batch = their_tokenizer(sources, return_tensors="pt", padding=True)
    with torch.inference_mode():
        found = theirs.generate(**batch, max_length=60).tolist()
    expected = their_tokenizer.batch_decode(found, skip_special_tokens=True)
    ended = [row for row, ids in enumerate(found) if theirs.config.eos_token_id in ids[1:]]
    texts = [one.text for one in ours.translate(sources, raw=True)]
    assert [texts[row] for row in ended] == [expected[row] for row in ended]
    assert ended
    assert texts != [one.text for one in translator.translate(sources, raw=True)]
    _, compared, notes = export_directory(ours.bundle, tmp_path / "ct2", "ctranslate2", sources[:4])
    assert "finds 4 of the same translations" in compared
    assert any(note.endswith("give translate_batch min_decoding_length=34, no_repeat_ngram_size=2") for note in notes)


def test_a_search_over_onnx_files_writes_the_same_texts(exported, tmp_path):
    translator, _, _, sources = exported
    written, compared, _ = export_directory(translator.bundle, tmp_path / "onnx", "onnx", sources[:4])
    assert written == "a model in float32"
    assert compared.startswith("4 sentences: with the cache and without, scores differ by ")
    search = OnnxSearch(tmp_path / "onnx")
    extra_length = translator.bundle.decode.extra_length
    for beam_size, alpha in ((1, 0.0), (4, 0.0), (4, 1.0)):
        ours = translator.translate(sources, beam_size=beam_size, length_penalty=alpha, raw=True)
        texts = [
            search.translate(text, beam_size=beam_size, alpha=alpha, extra_length=extra_length) for text in sources
        ]
        assert texts == [one.text for one in ours]


def test_ctranslate2_writes_the_same_texts(exported, tmp_path):
    translator, _, _, sources = exported
    written, compared, _ = export_directory(translator.bundle, tmp_path / "ct2", "ctranslate2", sources[:4])
    assert written == "a model in float32"
    assert compared.startswith("4 sentences: scores differ by ")
    theirs = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32")
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "ct2" / "tokenizer.json"))
    read = [[tokenizer.id_to_token(number) for number in tokenizer.encode(source).ids] for source in sources]
    # Without a length penalty both searches are exact.
    ways = {"min_decoding_length": 0, "suppress_sequences": [["<s>"], ["<pad>"]], "max_decoding_length": 60}
    found = theirs.translate_batch(read, beam_size=4, length_penalty=0.0, **ways)
    texts = [tokenizer.decode([tokenizer.token_to_id(token) for token in one.hypotheses[0]]) for one in found]
    ours = translator.translate(sources, beam_size=4, length_penalty=0.0, raw=True)
    same = [row for row, one in enumerate(ours) if not one.output_truncated]
    assert [texts[row] for row in same] == [ours[row].text for row in same]
    assert same


@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "pre", "positions": "learned", "embedding_norm": True, "attention_bias": True},
        {"norm": "pre", "gated": True, "activation": "silu", "feed_forward_bias": False},
        {"norm": "pre", "norm_kind": "rms", "tying": "none", "output_bias": True},
        {"positions": "sinusoidal_halves", "activation": "gelu", "tying": "decoder"},
        {"positions": "sinusoidal_t2t", "first_position": 1, "activation": "gelu_tanh", "embedding_scale": False},
    ],
)
def test_every_option_that_ctranslate2_has_gives_the_same_scores(tmp_path, settings):
    bundle = require_same_scores(tmp_path, settings)
    before = {name: weight.clone() for name, weight in bundle.model.named_parameters()}
    export_directory(bundle, tmp_path / "rounded", "ctranslate2", TEXTS, "int8")
    assert all(weight.equal(before[name]) for name, weight in bundle.model.named_parameters())


@pytest.mark.parametrize(
    "settings",
    [
        {**T5_FORM, "output_scale": True, "norm_eps": 0.01, "relative_attention_max_distance": 20},
        {
            **T5_FORM,
            "tying": "embeddings",
            "gated": True,
            "activation": "gelu_tanh",
            "num_heads": 3,
            "d_k": 5,
            "d_v": 5,
        },
        {"positions": "relative", "attention_bias": True, "relative_attention_num_buckets": 8},
        {"norm": "pre", "positions": "rotary", "norm_kind": "rms", "gated": True, "activation": "silu"},
        {"positions": "rotary", "num_heads": 3, "d_k": 10, "d_v": 10, "attention_bias": True},
        {"num_heads": 5, "d_k": 7, "d_v": 7, "attention_bias": True, "output_scale": True},
    ],
)
def test_every_option_of_its_attention_gives_the_same_scores(tmp_path, settings):
    require_same_scores(tmp_path, settings)


def require_same_scores(directory: Path, settings: dict[str, Any]) -> Bundle:
    """Make a model, write it for CTranslate2, and compare scores with it, also of a long text; return the model."""
    tokenizer = Tokenizer.train(TEXTS * 9, vocab_size=300)
    sizes = {"d_model": 24, "d_ff": 40, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 1}
    torch.manual_seed(3)
    model = Transformer(ModelConfig(**{**tokenizer.model_settings, **sizes, "max_positions": 80, **settings})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)  # also biases and norms, so that one that is forgotten shows
    bundle = Bundle(model, tokenizer, DecodeConfig(beam_size=1, split="never"))
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    export_directory(bundle, directory / "theirs", "ctranslate2", TEXTS)
    assert all(weight.equal(before[name]) for name, weight in model.named_parameters())
    theirs = ctranslate2.Translator(str(directory / "theirs"), compute_type="float32")
    names, long = tokenizer.tokens(), "dogs Hunde runs " * 8  # farther than relative positions tell apart
    sources, targets = [*TEXTS, long], [*TEXTS[::-1], long]
    read, written = (
        [[names[token] for token in tokenizer.encode(text)] for text in side] for side in (sources, targets)
    )
    scores = theirs.score_batch([[*tokens, "</s>"] for tokens in read], written)
    expected = Translator(bundle).score(sources, targets)
    assert [sum(one.log_probs) for one in scores] == pytest.approx(expected, abs=1e-3)
    return bundle


@pytest.mark.parametrize(("end", "is_same"), [(440, True), (441, False), (442, True)])
def test_other_row_finds_distances_that_ctranslate2_puts_into_another_bucket(tmp_path, monkeypatch, end, is_same):
    """With 14 rows that end at 441 CTranslate2 rounds the logarithm of 244 up; another row is another score."""
    assert (other_row(14, end) is None) == is_same
    monkeypatch.setattr(writer, "other_row", lambda buckets, distance: None)
    tokenizer = Tokenizer.train(["ein Hund rennt"], vocab_size=270)
    sizes = {"d_model": 24, "d_ff": 40, "num_heads": 4, "num_encoder_layers": 1, "num_decoder_layers": 1}
    ends: Any = {"relative_attention_num_buckets": 14, "relative_attention_max_distance": end}
    torch.manual_seed(3)
    model = Transformer(ModelConfig(**tokenizer.model_settings, **sizes, **T5_FORM, **ends)).eval()
    with torch.no_grad():
        model.decoder.relative_positions.weight.copy_(torch.randn(14, 4) * 20)
    bundle = Bundle(model, tokenizer, DecodeConfig(beam_size=1, split="never"))
    export_directory(bundle, tmp_path / "theirs", "ctranslate2", ["ein Hund"])
    theirs = ctranslate2.Translator(str(tmp_path / "theirs"), compute_type="float32")
    names, ids = tokenizer.tokens(), [*torch.randint(5, 260, (250,)).tolist(), tokenizer.eos_id]
    [found] = theirs.score_batch([[names[7], "</s>"]], [[names[token] for token in ids[:-1]]])
    [logits] = model(torch.tensor([[7, tokenizer.eos_id]]), torch.tensor([[tokenizer.bos_id, *ids[:-1]]]))
    differs = (logits.log_softmax(-1)[range(251), ids] - torch.tensor(found.log_probs)).abs() > 1e-3
    assert differs.any() != is_same
    assert not differs[:244].any()


def test_sinusoidal_positions_of_exports_end_at_the_number_in_the_note(tmp_path):
    texts = ["ein Hund rennt", "a dog runs"]
    tokenizer = Tokenizer.train(texts * 9, vocab_size=280)
    sizes = {"d_model": 24, "d_ff": 40, "num_heads": 4, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(ModelConfig(**tokenizer.model_settings, **sizes, max_positions=60)).eval()
    bundle = Bundle(model, tokenizer, DecodeConfig(beam_size=1, extra_length=5, split="never"))
    for to in ("hf", "ctranslate2"):
        notes = export_directory(bundle, tmp_path / to, to, texts[:1])[2]
        assert any("positions for 60 tokens" in note for note in notes)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    in_ctranslate2 = ctranslate2.Translator(str(tmp_path / "ctranslate2"), compute_type="float32")
    longest, longer = ([7] * (length - 1) + [tokenizer.eos_id] for length in (60, 61))
    names, start = tokenizer.tokens(), torch.tensor([[tokenizer.bos_id]])
    theirs(input_ids=torch.tensor([longest]), decoder_input_ids=start)
    with pytest.raises(IndexError):
        theirs(input_ids=torch.tensor([longer]), decoder_input_ids=start)
    in_ctranslate2.translate_batch([[names[token] for token in longest]], max_decoding_length=2)
    with pytest.raises(RuntimeError, match="position"):
        in_ctranslate2.translate_batch([[names[token] for token in longer]], max_decoding_length=2)
    model(torch.tensor([longer]), start)


@pytest.mark.parametrize(
    "settings", [{"output_scale": True}, {"gated": True, "activation": "gelu_tanh", "tying": "embeddings"}]
)
def test_model_with_t5_settings_is_exported_as_t5(tmp_path, settings):
    texts = ["ein Hund rennt", "a dog runs", "zwei Hunde", "two dogs"]
    tokenizer = Tokenizer.train(texts * 9, vocab_size=300)
    sizes = {"d_model": 24, "d_ff": 40, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 1}
    torch.manual_seed(3)
    model = Transformer(ModelConfig(**tokenizer.model_settings, **sizes, **T5_FORM, **settings)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.5)
    bundle = Bundle(model, tokenizer, DecodeConfig(beam_size=1, split="never"))
    written, compared, _ = export_directory(bundle, tmp_path / "theirs", "hf", texts)
    assert written == "a t5 model"
    assert compared == "4 sentences have the same tokens, scores and texts in transformers"
