"""`clearhead import` of directories with an encoder or a decoder alone: BERT and GPT-2 as transformers has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
import torch
import transformers
from published import D_MODEL, read_tokenizer, texts, write_json

import clearhead as ch
from clearhead.bundle import load_bundle
from clearhead.errors import ConfigError, DataError, ModelError
from clearhead.files.tensors import model_tensors
from commands import run

PROMPTS = ["3 days", "in 5 Stunden", "a", "日本語 and", "le 12 mars 2014 à", "Hello! No 0!"]
NUM_TOKENS = 8  # so many pieces of text follow each other; the tests search up to 12 tokens


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> Path:
    """Return the directory of a GPT-2 with vocab.json and merges.txt; see `chain` for what it writes."""
    directory = tmp_path_factory.mktemp("published") / "gpt2"
    directory.mkdir()
    end = "<|endoftext|>"
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(texts(), vocab_size=500, min_frequency=2, special_tokens=[end], show_progress=False)
    made.save_model(str(directory))
    write_json(directory / "config.json", {"model_type": "gpt2"})
    shape = {"vocab_size": 500, "n_embd": D_MODEL, "n_layer": 2, "n_head": 4, "n_positions": 64}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    torch.manual_seed(1)
    number = made.token_to_id(end)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**shape, **dropout, bos_token_id=number, eos_token_id=number)
    )
    order = dict.fromkeys(token for text in texts()[:20] for token in made.encode(text).ids)
    chain(model, [*list(order)[:NUM_TOKENS], number])
    model.eval().save_pretrained(directory)
    return directory


@torch.no_grad()
def chain(model: transformers.GPT2LMHeadModel, row: list[int]) -> None:
    """Set weights such that tokens follow each other in a row, behind whose last, the end, nothing is written.

    Their embeddings are orthogonal, and longer than others, so that none but they are likely. The last feed-forward
    network is a linear map, f(x) - f(-x) = x of GELU, from each to the next. The text before, as attention is strong,
    decides where an output enters the row. So outputs end, and differ, however a processor rounds.
    """
    tokens = 0.25 * torch.nn.functional.normalize(torch.randn_like(model.transformer.wte.weight))
    tokens[row] = torch.linalg.qr(torch.randn(D_MODEL, len(row)))[0].T
    following = tokens[row[:-1]].T @ tokens[row[1:]]
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            weight.add_(0.02 * torch.randn_like(weight))  # one that is forgotten shows
        elif "attn" in name:
            weight.normal_(std=0.3 * D_MODEL**-0.5)
    last, unit = model.transformer.h[-1].mlp, torch.eye(D_MODEL)
    last.c_fc.weight.zero_()[:, : 2 * D_MODEL] = torch.cat([unit, -unit], dim=1)
    last.c_proj.weight.zero_()[: 2 * D_MODEL] = 3.0 * torch.cat([following, -following])
    model.transformer.wte.weight.copy_(2.0 * tokens)


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    """Return the directory of a BERT as published, with the heads of pre-training and vocab.txt."""
    directory = tmp_path_factory.mktemp("published") / "bert"
    directory.mkdir()
    made = tokenizers.BertWordPieceTokenizer(lowercase=False)
    made.train_from_iterator(texts(), vocab_size=500, min_frequency=2, show_progress=False)
    made.save_model(str(directory))
    write_json(directory / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "do_lower_case": False})
    shape = {"hidden_size": D_MODEL, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96}
    torch.manual_seed(1)
    config = transformers.BertConfig(vocab_size=made.get_vocab_size(), max_position_embeddings=128, **shape)
    transformers.BertForPreTraining(config).eval().save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def our_gpt2(gpt2, tmp_path_factory) -> Path:
    """Return what the command makes of the GPT-2."""
    path = tmp_path_factory.mktemp("imported") / "gpt2"
    assert "8 sentences have the same tokens, scores and texts as in Hugging Face" in run("import", gpt2, "-o", path)
    return path


@pytest.mark.parametrize("beam_size", [1, 4])
def test_gpt2_continuations_equal_those_of_generate(gpt2, our_gpt2, beam_size):
    tokenizer, model = read_tokenizer(gpt2), transformers.GPT2LMHeadModel.from_pretrained(gpt2).eval()
    how = {"beam_size": beam_size, "extra_length": 12, "end_loops": False, "length_penalty": 1.0}
    ours = ch.Translator.load(our_gpt2, device="cpu").translate(PROMPTS, one_line=False, **how)
    for prompt, found in zip(PROMPTS, ours, strict=True):
        ids = torch.tensor([tokenizer(prompt)["input_ids"]])
        [theirs] = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            num_beams=beam_size,
            early_stopping="never" if beam_size > 1 else None,
            max_new_tokens=12,
            do_sample=False,
            pad_token_id=tokenizer.eos_token_id,
        ).tolist()
        written = theirs[ids.size(1) :]
        assert written.index(tokenizer.eos_token_id) < 11  # where it is not yet the limit that ends ours
        assert found.text == tokenizer.decode(written[: written.index(tokenizer.eos_token_id)]), prompt
        assert not found.output_truncated
        assert found.warnings == ()


def test_at_the_length_limit_ours_end_where_generate_stops(gpt2, our_gpt2):
    tokenizer, model = read_tokenizer(gpt2), transformers.GPT2LMHeadModel.from_pretrained(gpt2).eval()
    translator = ch.Translator.load(our_gpt2, device="cpu")
    [whole] = translator.translate([PROMPTS[0]], one_line=False, beam_size=1, extra_length=12, end_loops=False)
    limit = len(whole.tokens)
    assert limit > 1
    [found] = translator.translate([PROMPTS[0]], one_line=False, beam_size=1, extra_length=limit, end_loops=False)
    ids = torch.tensor([tokenizer(PROMPTS[0])["input_ids"]])
    how = {"max_new_tokens": limit, "do_sample": False, "pad_token_id": tokenizer.eos_token_id}
    [theirs] = model.generate(ids, attention_mask=torch.ones_like(ids), **how).tolist()
    assert found.text == tokenizer.decode(theirs[ids.size(1) : -1])  # the last token within the limit ends ours
    assert found.output_truncated


def test_scores_are_their_log_probabilities(gpt2, our_gpt2):
    tokenizer, model = read_tokenizer(gpt2), transformers.GPT2LMHeadModel.from_pretrained(gpt2).eval()
    targets = [" ago", " 2014", "", "!", " 12 Uhr", " 0"]
    expected = []
    for prompt, target in zip(PROMPTS, targets, strict=True):
        begun, rest = tokenizer(prompt)["input_ids"], tokenizer(target)["input_ids"] + [tokenizer.eos_token_id]
        with torch.inference_mode():
            log_probs = model(torch.tensor([begun + rest])).logits[0].double().log_softmax(-1)
        expected.append(sum(log_probs[len(begun) - 1 + place, token].item() for place, token in enumerate(rest)))
    assert ch.Translator.load(our_gpt2, device="cpu").score(PROMPTS, targets) == pytest.approx(expected, abs=1e-3)


def test_attention_of_imported_gpt2_equals_that_of_transformers(gpt2, our_gpt2):
    tokenizer = read_tokenizer(gpt2)
    eager = transformers.GPT2LMHeadModel.from_pretrained(gpt2, attn_implementation="eager").eval()
    explained = ch.explain(ch.Translator.load(our_gpt2, device="cpu"), "3 days", " ago", search=False)
    begun, rest = tokenizer("3 days")["input_ids"], tokenizer(" ago")["input_ids"]
    with torch.inference_mode():
        theirs = eager(torch.tensor([begun + rest]), output_attentions=True)
    assert_same_attention(explained.decoder, theirs.attentions)
    probs = theirs.logits[0, len(begun) - 1 :].softmax(dim=-1)
    expected = [probs[place, token].item() for place, token in enumerate([*rest, tokenizer.eos_token_id])]
    assert [step.probability for step in explained.steps] == pytest.approx(expected, rel=1e-3)


def assert_same_attention(ours, theirs):
    torch.testing.assert_close(torch.from_numpy(ours), torch.cat(theirs).detach(), atol=1e-5, rtol=1e-4)


def test_translate_continues_each_line_with_gpt2(our_gpt2, tmp_path):
    lines = ["3 days", "", "One sentence. And another one. And", "x" * 500]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    run("translate", our_gpt2, tmp_path / "in.txt", "-o", tmp_path / "out.txt")
    written = (tmp_path / "out.txt").read_text(encoding="utf-8").split("\n")
    assert len(written) == len(lines) + 1
    assert written[1] == written[-1] == ""
    assert "all 8 are translated as when the model was made" in run("verify", our_gpt2)


def test_a_text_that_is_longer_than_the_positions_is_read_from_its_end(our_gpt2):
    translator = ch.Translator.load(our_gpt2, device="cpu")
    tail = translator.bundle.tokenizer.encode_batch(["day " * 100])[0][-52:]
    [long], [short] = (
        translator.translate([text], extra_length=12, one_line=False)
        for text in ("day " * 100, translator.bundle.tokenizer.decode(tail))
    )
    assert long.source_truncated
    assert not short.source_truncated
    assert long.text == short.text


def test_pairs_that_cannot_be_scored_are_named(our_gpt2):
    translator = ch.Translator.load(our_gpt2, device="cpu")
    assert translator.score(["a", ""], ["b", ""], name="f")[1] == 0.0
    with pytest.raises(DataError, match="f, pair 2 has no source, and this model, a decoder alone"):
        translator.score(["a", ""], ["b", "c"], name="f")
    with pytest.raises(DataError, match=r"f, pair 1 has \d+ tokens, and this model has positions for 64"):
        translator.score(["day " * 12], ["day " * 12], name="f")


@pytest.mark.parametrize("words", [20, 45])
def test_gpt2_prefix_longer_than_extra_length_cuts_the_text_before_it(our_gpt2, words):
    translator, prefix = ch.Translator.load(our_gpt2, device="cpu"), " 3" * words
    tokens = len(translator.bundle.tokenizer.encode_prefixes([prefix])[0])
    assert 12 < tokens < 63
    [found] = translator.translate(["day " * 100], prefix=prefix, extra_length=12, one_line=False)
    assert found.text.startswith(prefix)
    assert found.source_truncated
    with pytest.raises(DataError, match=r"a prefix has .* tokens; this model writes at most 63"):
        translator.translate(["day"], prefix=" 3" * 63)


def test_train_and_optimize_reject_decoder_only_models(our_gpt2, tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\n" * 50, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"needs an encoder and a decoder; model\.num_encoder_layers is 0"):
        run("train", "--pairs", tmp_path / "pairs.tsv", "--from", our_gpt2, "--out", tmp_path / "run", "--max-steps", 2)
    with pytest.raises((ConfigError, ModelError)):
        run("optimize", our_gpt2, "--source", tmp_path / "pairs.tsv", "--target", tmp_path / "pairs.tsv")


def test_a_bert_gives_the_states_of_every_layer(bert, tmp_path):
    output = run("import", bert, "-o", tmp_path / "ours")
    assert "8 sentences have the same tokens and hidden states as in Hugging Face transformers" in output
    translator = ch.Translator.load(tmp_path / "ours", device="cpu")
    tokenizer, model = read_tokenizer(bert), transformers.BertModel.from_pretrained(bert).eval()
    for text in PROMPTS:
        ids = tokenizer(text)["input_ids"]
        assert translator.bundle.tokenizer.encode_sources([text]) == [ids]
        with torch.inference_mode():
            theirs = model(torch.tensor([ids]), output_hidden_states=True)
            ours = translator.bundle.model.hidden_states(torch.tensor([ids])).encoder
        torch.testing.assert_close(ours[-1], theirs.last_hidden_state, atol=1e-5, rtol=1e-5)
        for layer, expected in zip(ours, theirs.hidden_states, strict=True):
            torch.testing.assert_close(layer, expected, atol=1e-5, rtol=1e-5)
    eager = transformers.BertModel.from_pretrained(bert, attn_implementation="eager").eval()
    explained = ch.explain(translator, PROMPTS[1])
    theirs = eager(torch.tensor([tokenizer(PROMPTS[1])["input_ids"]]), output_attentions=True)
    assert_same_attention(explained.encoder, theirs.attentions)
    assert explained.source_tokens[0] == "[CLS]"
    assert [word.text for word in explained.source_words] == ["in", "5", "Stunden"]
    assert "hidden_states" in (tmp_path / "ours" / "README.md").read_text(encoding="utf-8")
    assert "none    golden sentences" in run("verify", tmp_path / "ours")
    with pytest.raises(ConfigError, match="an encoder alone, which writes nothing"):
        translator.translate(["a"])


def test_import_of_bert_fails_if_hidden_states_differ_from_transformers(bert, tmp_path, monkeypatch):
    from clearhead.interop.huggingface import reader

    read = reader.read_their_weights

    def changed(directory):
        tensors, files = read(directory)
        return {**tensors, "bert.embeddings.LayerNorm.bias": tensors["bert.embeddings.LayerNorm.bias"] + 0.1}, files

    monkeypatch.setattr(reader, "read_their_weights", changed)
    with pytest.raises(ModelError, match=r"golden sentence 1 .*: the states after layer 0 differ by"):
        run("import", bert, "-o", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
    assert json.loads((bert / "config.json").read_text())["model_type"] == "bert"


def test_exported_gpt2_may_write_the_text_piece_used_as_pad_id(our_gpt2, tmp_path):
    """The id used for padding, which GPT-2 lacks, is that of a piece of text."""
    bundle = load_bundle(our_gpt2)
    text = bundle.tokenizer.pieces([bundle.tokenizer.pad_id])[0]
    assert text == "!"
    run("export", our_gpt2, "-o", tmp_path / "theirs", "--to", "hf")
    tokenizer = read_tokenizer(tmp_path / "theirs")
    assert tokenizer.pad_token is None
    model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "theirs").eval()
    end = tokenizer.eos_token_id
    assert model.generation_config.pad_token_id == end

    def only_text(module, given, output):
        output.logits[..., bundle.tokenizer.pad_id] += 1e4
        return output

    model.register_forward_hook(only_text)
    ids = torch.tensor([tokenizer("No")["input_ids"]])
    [written] = model.generate(ids, max_new_tokens=3, max_length=None).tolist()
    assert tokenizer.decode(written, skip_special_tokens=True) == "No!!!"


def test_gpt2_and_bert_survive_import_and_export(our_gpt2, bert, tmp_path):
    run("import", bert, "-o", tmp_path / "bert")
    for ours, kind in ((our_gpt2, "gpt2"), (tmp_path / "bert", "bert")):
        said = run("export", ours, "-o", tmp_path / f"{kind}-hf", "--to", "hf")
        assert f"a {kind} model" in said
        same = "tokens, scores and texts" if kind == "gpt2" else "tokens and hidden states"
        assert f"8 sentences have the same {same} in transformers" in said
        run("import", tmp_path / f"{kind}-hf", "-o", tmp_path / f"{kind}-back")
        expected, found = load_bundle(ours), load_bundle(tmp_path / f"{kind}-back")
        assert (found.model.config, found.decode) == (expected.model.config, expected.decode)
        assert found.tokenizer.sha256 == expected.tokenizer.sha256
        tensors, back = model_tensors(expected.model), model_tensors(found.model)
        assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())
        for to in ("ctranslate2", "onnx"):
            with pytest.raises(ConfigError, match="an encoder or a decoder alone"):
                run("export", ours, "-o", tmp_path / "none", "--to", to)
        assert not (tmp_path / "none").exists()
