from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from searches import assert_same, find

from clearhead.config import DecodeConfig
from clearhead.decoding import PyTorchEngine, Sampling, SearchOptions, Shortlist, decode, shortlist_learning
from clearhead.decoding.native.engine import NativeEngine
from clearhead.decoding.scheduler import search
from clearhead.decoding.shortlist_learning import learn_shortlist
from clearhead.errors import ConfigError, ModelError
from clearhead.files.tensors import write_weights
from clearhead.kernels.library import library
from clearhead.model import AttentionWeights
from every_run import slow

LENGTHS = (7, 1, 13, 3, 5, 1, 29, 2, 11)
LIMITS = [17, 11, 1, 13, 7, 3, 23, 2, 19]
PAD, START, END = 0, 1, 2
MODEL = {"model_sha256": "5" * 64, "tokenizer_sha256": "7" * 64}


pytestmark = pytest.mark.usefixtures("inference")


def int32(*numbers):
    return np.array(numbers, dtype=np.int32)


def everything(vocab_size: int, num_common: int) -> Shortlist:
    """Return a shortlist of all tokens, the first of them common and the rest in every row."""
    tokens = [END, *range(3, vocab_size)]
    return Shortlist(int32(*tokens[:num_common]), int32(*[tokens[num_common:]] * vocab_size))


def sparse(vocab_size: int, width: int = 4) -> Shortlist:
    """Return a shortlist of the end and a few tokens, other ones and other numbers of them for every source token."""
    random = np.random.default_rng(11)
    rows = random.integers(5, vocab_size, (vocab_size, width), dtype=np.int32)
    rows[random.random(rows.shape) < 0.3] = -1
    return Shortlist(int32(4, END, 3), rows)


# The search


@pytest.mark.parametrize(("beam_size", "num_best"), [(1, 1), slow(4, 1), (4, 3)])
@pytest.mark.parametrize("batch_tokens", [1, slow(60), 4_096])
@pytest.mark.parametrize("num_common", [slow(1), 13, slow(35)])
def test_a_shortlist_that_allows_everything_changes_nothing(
    make_sharp_model, make_sources, beam_size, num_best, batch_tokens, num_common
):
    model, sources = make_sharp_model(output_bias=True), make_sources(LENGTHS)
    config = DecodeConfig(beam_size=beam_size, batch_tokens=batch_tokens)
    found = find(model, sources, LIMITS, config, num_best, everything(37, num_common))
    assert_same(found, find(model, sources, LIMITS, config, num_best))


@pytest.mark.parametrize("special", [{"bos_id": 2}, {"bos_id": 0}, {"pad_id": 1, "bos_id": 0}])
def test_shortlist_of_all_tokens_changes_nothing_with_other_special_ids(make_sharp_model, make_sources, special):
    model, sources = make_sharp_model(**special), make_sources((7, 2, 11))
    config = DecodeConfig(beam_size=3)
    elsewhere = {model.config.pad_id, model.config.bos_id, END, 5}
    tokens = [token for token in range(37) if token not in elsewhere]
    shortlist = Shortlist(int32(5, END), int32(*[tokens] * 37))
    assert_same(find(model, sources, [9] * 3, config, 3, shortlist), find(model, sources, [9] * 3, config, 3))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_hold_only_what_their_own_sources_allow(make_sharp_model, make_sources, beam_size):
    model, sources, shortlist = make_sharp_model(), make_sources(LENGTHS), sparse(37)
    config = DecodeConfig(beam_size=beam_size)
    found = find(model, sources, LIMITS, config, beam_size, shortlist)
    for source, limit, hypotheses in zip(sources, LIMITS, found, strict=True):
        allowed = {END, 3, 4, *shortlist.rows[source].flatten().tolist()}
        assert hypotheses
        for hypothesis in hypotheses:
            assert hypothesis.tokens[-1] == END
            assert len(hypothesis.tokens) <= limit
            assert allowed.issuperset(hypothesis.tokens)
    assert len({h.tokens for hypotheses in found for h in hypotheses}) >= len(LENGTHS)
    free = find(model, sources, LIMITS, config, beam_size)
    assert [h[0].tokens for h in free] != [h[0].tokens for h in found]


def test_the_score_is_the_probability_among_the_allowed_tokens(make_sharp_model, make_sources):
    model, (source,), shortlist = make_sharp_model(output_bias=True), make_sources((7,)), sparse(37)
    (hypothesis,) = find(model, [source], [11], DecodeConfig(beam_size=1), 1, shortlist)[0]
    shifted = torch.tensor([[START, *hypothesis.tokens[:-1]]])
    logits = model(torch.tensor([source]), shifted)[0]
    counted = torch.full((37,), float("-inf"))
    counted[[PAD, START, END, 3, 4, *shortlist.own_tokens(source).tolist()]] = 0.0  # the first two are never written
    log_probs = (logits + counted).log_softmax(dim=-1)
    expected = log_probs.gather(1, torch.tensor(hypothesis.tokens)[:, None]).sum()
    assert hypothesis.log_prob == pytest.approx(expected.item(), abs=1e-4)
    full = logits.log_softmax(dim=-1).gather(1, torch.tensor(hypothesis.tokens)[:, None]).sum()
    assert hypothesis.log_prob > full.item() + 1e-2


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("batch_tokens", [40, 120, 4_096])
def test_neighbours_and_order_change_nothing(make_sharp_model, make_sources, beam_size, batch_tokens):
    model, sources, shortlist = make_sharp_model(), make_sources(LENGTHS), sparse(37, width=9)
    config = DecodeConfig(beam_size=beam_size, batch_tokens=batch_tokens)
    alone = [find(model, [s], [limit], config, 1, shortlist)[0] for s, limit in zip(sources, LIMITS, strict=True)]
    assert_same(find(model, sources, LIMITS, config, 1, shortlist), alone)
    assert_same(find(model, sources[::-1], LIMITS[::-1], config, 1, shortlist), alone[::-1])


def test_later_sentences_may_be_allowed_more_than_earlier_ones(make_sharp_model, make_sources):
    # The longest come first: here they own nothing, and the shortest more than there is room for at first.
    rows = np.full((37, 31), -1, dtype=np.int32)
    rows[3:20] = np.arange(5, 36)
    shortlist = Shortlist(int32(END), rows)
    model, config = make_sharp_model(), DecodeConfig(beam_size=3, batch_tokens=70)
    sources = [[*[30] * 12, END], [*[31] * 9, END], [3, 4, END], [5, END], [6, 7, 8, END]]
    found = find(model, sources, [9] * 5, config, 1, shortlist)
    assert [len(h[0].tokens) for h in found[:2]] == [1, 1]
    assert_same(found, [find(model, [source], [9], config, 1, shortlist)[0] for source in sources])
    assert any(len(h[0].tokens) > 1 for h in found[2:])


def test_a_shortlist_of_the_end_alone_gives_empty_translations(make_sharp_model, make_sources):
    nothing = Shortlist(int32(END), np.full((37, 2), -1, dtype=np.int32))
    found = find(make_sharp_model(), make_sources((7, 2)), [5, 5], DecodeConfig(beam_size=3), 1, nothing)
    assert [[h.tokens for h in hypotheses] for hypotheses in found] == [[(END,)], [(END,)]]


def test_decode_takes_the_shortlist_of_its_options_and_none_for_samples(make_sharp_model, make_sources):
    model, sources, shortlist = make_sharp_model(), make_sources((7, 2, 11)), sparse(37)
    config = DecodeConfig(beam_size=2, extra_length=5, shortlist=True)
    limits = [len(source) + 5 for source in sources]
    found = decode(model, sources, SearchOptions(config, shortlist=shortlist))
    assert_same(found, find(model, sources, limits, config, 1, shortlist))
    with pytest.raises(ConfigError, match="a shortlist has no meaning for samples"):
        SearchOptions(config, sampling=Sampling())
    with pytest.raises(ConfigError, match="a shortlist has no meaning for samples"):
        SearchOptions(DecodeConfig(), sampling=Sampling(), shortlist=shortlist)


# Learning


def shift(token: int) -> int:
    """Return the translation of a token in the planted language."""
    return 3 + (token - 3 + 5) % 34


@pytest.fixture
def planted(make_model, monkeypatch):
    """Return a model that looks at the source token a target token translates, and some pairs in backward order."""
    model = make_model()

    def attention_weights(source, target):
        weights = torch.full((len(source), 13, target.size(1), source.size(1)), 1e-3)
        for row, ids in enumerate(source.tolist()):
            length = ids.index(END)
            for position in range(length):
                weights[row, :, position, length - 1 - position] = 0.7
            weights[row, :, :, length] = 0.9  # where attention rests
        weights.masked_fill_((source == PAD)[:, None, None], 0.0)
        return AttentionWeights([], [], [weights, weights / 2])

    monkeypatch.setattr(model, "attention_weights", attention_weights)
    generator = torch.Generator().manual_seed(3)
    sources = [torch.randint(3, 37, (length,), generator=generator).tolist() for length in (3, 7, 5, 11, 2) * 40]
    targets = [[shift(token) for token in reversed(source)] for source in sources]
    return model, [[*ids, END] for ids in sources], [[*ids, END] for ids in targets]


@pytest.mark.parametrize("batch_tokens", [13, 10_000])
@pytest.mark.parametrize("buffer", [100, 1 << 22])
def test_a_planted_alignment_is_found(planted, batch_tokens, buffer, monkeypatch):
    monkeypatch.setattr(shortlist_learning, "BUFFER", buffer)
    done = []
    model, sources, targets = planted
    shortlist = learn_shortlist(
        model, sources, targets, per_token=2, common=1, batch_tokens=batch_tokens, on_progress=done.append
    )
    assert shortlist.common.tolist() == [END]
    assert [sorted(row) for row in shortlist.rows[3:].tolist()] == [sorted([t, shift(t)]) for t in range(3, 37)]
    assert shortlist.rows[:3].tolist() == [[-1, -1]] * 3
    assert sum(done) == len(sources)
    assert shortlist.coverage(sources, targets)[0] == 1.0


def test_a_token_counts_as_its_own_translation_only_in_a_joint_vocabulary(planted):
    model, sources, targets = planted
    object.__setattr__(model.config, "source_vocab_size", 41)
    rows = learn_shortlist(model, sources, targets, per_token=1, common=1, batch_tokens=99).rows
    assert rows.shape == (41, 1)
    assert rows[3:37, 0].tolist() == [shift(token) for token in range(3, 37)]
    assert rows[37:].tolist() == [[-1]] * 4


def test_the_most_frequent_tokens_are_common_and_take_no_place_in_a_row(planted):
    model, sources, targets = planted
    counts = torch.tensor([token for ids in targets for token in ids]).bincount(minlength=37)
    shortlist = learn_shortlist(model, sources, targets, per_token=3, common=6, batch_tokens=99)
    frequent = shortlist.common.tolist()
    assert frequent[0] == END
    assert len(set(frequent)) == 6
    assert counts[frequent].min() >= counts[[t for t in range(3, 37) if t not in frequent]].max()
    assert not set(shortlist.rows.flatten().tolist()) & {PAD, START, *frequent}


def test_learn_shortlist_has_no_more_common_tokens_than_seen(make_model):
    shortlist = learn_shortlist(make_model(), [[5, END]], [[7, 9, END]], common=100, per_token=20, batch_tokens=9)
    assert sorted(shortlist.common.tolist()) == [END, 7, 9]


@pytest.mark.parametrize("source", [[END], [5, END]])
def test_learn_shortlist_accepts_pairs_of_empty_sides(make_model, source):
    shortlist = learn_shortlist(make_model(), [source], [[END]], per_token=2, batch_tokens=9)
    assert shortlist.common.tolist() == [END]
    assert shortlist.rows[5].tolist() == [5, -1]


def test_a_real_model_gives_what_its_own_attention_says(make_model):
    model = make_model()
    source, target = [5, 7, 11, END], [13, 17, END]
    cross = model.attention_weights(torch.tensor([source]), torch.tensor([[START, 13, 17]])).cross
    weights = torch.stack([layer.mean(dim=1) for layer in cross]).mean(dim=0)[0, :2, :3]
    rows = learn_shortlist(model, [source], [target], per_token=3, common=1, batch_tokens=9).rows
    for place, token in enumerate(source[:3]):
        by_weight = [target[i] for i in weights[:, place].argsort(descending=True).tolist()]
        assert rows[token].tolist() == [token, *by_weight]


def test_coverage_counts_each_sentence_by_itself():
    rows = np.full((9, 2), -1, dtype=np.int32)
    rows[5], rows[6, 0] = [7, 8], 7
    shortlist = Shortlist(int32(END, 3), rows)
    covered, allowed = shortlist.coverage([[5, END], [6, 6, END]], [[7, 8, 3, END], [7, 8, 4, END]])
    assert covered == 6 / 8
    assert allowed == 3.5


# The file


def test_shortlist_save_and_load_are_exact_and_leave_no_other_file(tmp_path):
    written = sparse(37)
    written.save(tmp_path / "list.safetensors", MODEL)
    first = (tmp_path / "list.safetensors").read_bytes()
    read = Shortlist.load(tmp_path / "list.safetensors", MODEL)
    assert np.array_equal(read.common, written.common)
    assert np.array_equal(read.rows, written.rows)
    assert read.rows.dtype == np.int32
    read.save(tmp_path / "list.safetensors", MODEL)
    assert [path.name for path in tmp_path.iterdir()] == ["list.safetensors"]
    assert (tmp_path / "list.safetensors").read_bytes() == first


def test_a_file_written_with_pytorch_is_read_and_written_byte_for_byte(tmp_path):
    # The hash is over names, types, shapes and contents, with types as PyTorch names them.
    sha256 = "05d46bb5746299cdd990a47881c232b27496419d5c5746eae7ec65b5cda85874"
    tensors = {"common": torch.tensor([2, 3], dtype=torch.int32), "rows": torch.tensor([[4, -1], [5, 6]]).int()}
    metadata = {**MODEL, "sha256": sha256}
    write_weights(tmp_path / "earlier.safetensors", tensors, metadata)
    read = Shortlist.load(tmp_path / "earlier.safetensors", MODEL)
    assert (read.common.tolist(), read.rows.tolist()) == ([2, 3], [[4, -1], [5, 6]])
    read.save(tmp_path / "list.safetensors", MODEL)
    assert (tmp_path / "list.safetensors").read_bytes() == (tmp_path / "earlier.safetensors").read_bytes()


@pytest.mark.parametrize("part", MODEL)
def test_another_models_file_is_refused(tmp_path, part):
    path = tmp_path / "list.safetensors"
    sparse(37).save(path, {**MODEL, part: "3" * 64})
    with pytest.raises(ModelError, match="learned with another model; learn one with `clearhead optimize MODEL"):
        Shortlist.load(path, MODEL)


@pytest.mark.parametrize("damage", ["cut", "flip", "other tensors", "a type that NumPy lacks", "text"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "list.safetensors"
    sparse(37).save(path, MODEL)
    content = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(content[:-3])
        case "flip":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "other tensors":
            save_file({"rows": torch.zeros(3, 2, dtype=torch.int32)}, path, MODEL)
        case "a type that NumPy lacks":
            save_file({"common": torch.zeros(3).bfloat16(), "rows": torch.zeros(3, 2, dtype=torch.int32)}, path, MODEL)
        case "text":
            path.write_text("no tensors", encoding="utf-8")
    with pytest.raises(ModelError, match="is damaged; learn one with `clearhead optimize MODEL --source FILE"):
        Shortlist.load(path, MODEL)


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(ModelError, match=r"has no shortlist: there is no .*list; learn one with `clearhead optimize"):
        Shortlist.load(tmp_path / "list", MODEL)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"cannot write the shortlist .*nowhere"):
        sparse(37).save(tmp_path / "nowhere" / "list.safetensors", MODEL)


# Numbers that the model cannot use


FORMS = {PyTorchEngine: {}, NativeEngine: {"d_model": 64, "num_heads": 2, "d_k": 16, "d_ff": 96}}


@pytest.fixture(params=FORMS)
def packed(request, make_sharp_model):
    """Return a model that is ready to decode: in PyTorch, or for the compiled core."""
    if request.param is NativeEngine and library() is None:
        pytest.skip("needs the compiled core")
    return request.param(make_sharp_model(output_bias=True, **FORMS[request.param]))


WRONG = {
    "common below": ("common", int32(END, -1), "`common` holds -1,"),
    "common far below": ("common", int32(END, -2_000_000_000), "`common` holds -2000000000,"),
    "common above": ("common", int32(END, 37), "`common` holds 37, which is no token of a vocabulary of 37"),
    "rows below": ("rows", np.full((37, 2), -2, dtype=np.int32), "`rows` holds -2,"),
    "rows far below": ("rows", np.full((37, 2), -2_000_000_000, dtype=np.int32), "`rows` holds -2000000000,"),
    "rows above": ("rows", np.full((37, 2), 37, dtype=np.int32), "`rows` holds 37,"),
    "too few rows": ("rows", np.full((36, 2), 5, dtype=np.int32), "shape (36, 2), not (37, any)"),
    "too many rows": ("rows", np.full((38, 2), 5, dtype=np.int32), "shape (38, 2), not (37, any)"),
    "rows of one axis": ("rows", int32(*range(37)), "shape (37,), not (37, any)"),
    "common of two axes": ("common", int32([3, END]), "shape (1, 2), not (any)"),
    "wide integers": ("rows", np.full((37, 2), 5), "`rows` is int64, not an array of int32"),
    "floats": ("common", np.array([2.0], dtype=np.float32), "`common` is float32, not an array of int32"),
    "half floats": ("rows", np.full((37, 2), 5.0, dtype=np.float16), "`rows` is float16, not"),
    "a list": ("common", [END], "`common` is list, not an array"),
    "a tensor": ("common", torch.tensor([END]), "`common` is Tensor, not an array"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_shortlist_that_the_model_cannot_use_is_refused(packed, case, tmp_path):
    name, array, fault = WRONG[case]
    shortlist, config = sparse(37), DecodeConfig(beam_size=2)
    setattr(shortlist, name, array)
    with pytest.raises(ModelError, match="^the shortlist does not fit the model: .*" + re.escape(fault)):
        list(search(packed, [[5, 7, END]], [5], SearchOptions(config, shortlist=shortlist)))
    if isinstance(array, np.ndarray):  # a file whose checksum is right
        path = tmp_path / "list.safetensors"
        shortlist.save(path, MODEL)
        with pytest.raises(ModelError, match=re.escape(f"the shortlist {path} does not fit the model: ")):
            list(search(packed, [[5, 7, END]], [5], SearchOptions(config, shortlist=Shortlist.load(path, MODEL))))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_shortlists_without_the_end_token_or_with_duplicates_find_the_same(packed, beam_size):
    rows = sparse(37).rows
    config, sources = DecodeConfig(beam_size=beam_size), [[5, 7, 11, END], [3, END]]
    expected = find_in(packed, sources, config, Shortlist(int32(4, END, 3), rows))
    rows = np.concatenate([rows, rows, np.full((37, 1), 3, dtype=np.int32)], axis=1)
    found = find_in(packed, sources, config, Shortlist(int32(4, 3, 4, 3), rows))
    assert_same(found, expected)


def find_in(packed, sources, config, shortlist):
    return find(packed, sources, [9, 9], config, 1, shortlist)


def test_empty_shortlist_allows_the_end_token_alone(packed):
    nothing = Shortlist(int32(), np.zeros((37, 0), dtype=np.int32))
    found = list(search(packed, [[5, END]], [5], SearchOptions(DecodeConfig(beam_size=2), shortlist=nothing)))
    assert found[0][1][0].tokens == (END,)
