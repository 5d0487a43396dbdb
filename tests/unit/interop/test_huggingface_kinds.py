"""What is read of and written to `config.json`, without their library; tests/reference compares with it."""

from __future__ import annotations

import json
import re

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, ModelError
from clearhead.files.tensors import load_tensors, model_tensors
from clearhead.interop.huggingface.state import FAMILIES, export_state, exportable_as, import_state
from clearhead.interop.readers.foreign_config import ACTIVATIONS
from clearhead.model import Transformer

SMALL = {"vocab_size": 37, "d_model": 26, "num_heads": 13, "d_ff": 19, "num_encoder_layers": 3, "num_decoder_layers": 2}
BART_LIKE = {
    "vocab_size": 37,
    "d_model": 26,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 13,
    "decoder_attention_heads": 13,
    "encoder_ffn_dim": 19,
    "decoder_ffn_dim": 19,
    "max_position_embeddings": 31,
    "dropout": 0.1,
    "activation_function": "swish",
    "pad_token_id": 36,
    "decoder_start_token_id": 4,
    "eos_token_id": 0,
}
BERT_LIKE = {
    "model_type": "bert-generation",
    "vocab_size": 37,
    "hidden_size": 26,
    "num_hidden_layers": 3,
    "num_attention_heads": 13,
    "intermediate_size": 19,
    "max_position_embeddings": 31,
}
BERT_DECODER = {**BERT_LIKE, "is_decoder": True, "add_cross_attention": True}
GPT2 = {
    "vocab_size": 37,
    "n_embd": 26,
    "n_layer": 3,
    "n_head": 13,
    "n_positions": 31,
    "bos_token_id": 35,
    "eos_token_id": 36,
}
T5 = {
    "vocab_size": 37,
    "d_model": 26,
    "d_kv": 3,
    "d_ff": 19,
    "num_layers": 3,
    "num_heads": 5,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
OURS_OF_T5 = {
    "vocab_size": 37,
    "d_model": 26,
    "d_k": 3,
    "d_v": 3,
    "d_ff": 19,
    "num_heads": 5,
    "num_encoder_layers": 3,
    "num_decoder_layers": 3,
    "attention_dropout": 0.1,
    "feed_forward_dropout": 0.1,
    "norm": "pre",
    "norm_kind": "rms",
    "norm_eps": 1e-6,
    "attention_scale": False,
    "feed_forward_bias": False,
    "positions": "relative",
    "embedding_scale": False,
    "pad_id": 0,
    "bos_id": 0,
    "eos_id": 1,
}
M2M100 = {**BART_LIKE, "max_position_embeddings": 35}
TWO_BERTS = {"encoder": BERT_LIKE, "decoder": BERT_DECODER}
BERT_ALONE = {**BERT_LIKE, "model_type": "bert"}
FILES = {
    **dict.fromkeys(("bart", "marian", "mbart", "pegasus"), BART_LIKE),
    **dict.fromkeys(("t5", "mt5"), T5),
    "m2m_100": M2M100,
    "bert": BERT_ALONE,
    "gpt2": GPT2,
    "encoder-decoder": TWO_BERTS,
}
"""Kind of a model to what such a file holds."""

# What files of the published models hold besides: settings of fairseq, of generation, and of training.
OLD_MARIAN = {
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "bad_words_ids": [[36]],
    "encoder_layerdrop": 0.1,
    "normalize_before": False,
    "normalize_embedding": False,
    "num_beams": 6,
    "scale_embedding": True,
    "static_position_embeddings": True,
}


def test_a_marian_file_is_read():
    config = FAMILIES["marian"].config_from({**BART_LIKE, **OLD_MARIAN})
    assert config == ModelConfig(
        **SMALL,
        positions="sinusoidal_halves",
        activation="silu",
        attention_bias=True,
        output_bias=True,
        max_positions=31,
        pad_id=36,
        bos_id=4,
        eos_id=0,
    )


# What the files of t5-small and of google/t5-v1_1-small hold besides.
OLD_T5 = {
    "architectures": ["T5WithLMHeadModel"],
    "initializer_factor": 1.0,
    "n_positions": 512,
    "output_past": True,
    "relative_attention_num_buckets": 32,
    "task_specific_params": {"translation_en_to_de": {"prefix": "translate English to German: "}},
}


def test_a_t5_file_is_read():
    config = FAMILIES["t5"].config_from({**T5, **OLD_T5})
    assert config == ModelConfig(**OURS_OF_T5, output_scale=True)


def test_a_t5_1_1_file_is_read():
    gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 2}
    config = FAMILIES["t5"].config_from({**T5, **gated})
    differently = {"num_decoder_layers": 2, "activation": "gelu_tanh", "gated": True, "tying": "embeddings"}
    assert config == ModelConfig(**{**OURS_OF_T5, **differently})
    assert FAMILIES["mt5"].config_from({**T5, **gated}) == config
    del gated["feed_forward_proj"]
    assert FAMILIES["mt5"].config_from({**T5, **gated}) == config  # which is its default


@pytest.mark.parametrize("kind", ["t5", "mt5"])
@pytest.mark.parametrize(
    ("values", "output_scale"),
    [
        ({}, True),
        ({"tie_word_embeddings": True}, True),
        ({"tie_word_embeddings": False}, False),
        ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, False),  # written by version 5
        ({"tie_word_embeddings": False, "scale_decoder_outputs": True}, True),
    ],
)
@pytest.mark.parametrize("output", ["none", "a copy", "its own"])
def test_whether_t5_has_an_output_matrix_of_its_own_its_tensors_tell(kind, values, output_scale, output):
    config = ModelConfig(**OURS_OF_T5, tying="embeddings" if output == "its own" else "three-way")
    tensors = model_tensors(Transformer(config))
    state = FAMILIES[kind].key_table(config).to_theirs(tensors)
    if output == "a copy":
        state["lm_head.weight"] = state["shared.weight"].clone()
    found, back = import_state(kind, {**T5, **values, "feed_forward_proj": "relu"}, state)
    assert found == config.model_copy(update={"output_scale": output_scale and kind == "t5"})
    assert back.keys() == tensors.keys()


def test_a_table_that_old_t5_files_have_for_cross_attention_is_left_out(make_model):
    model = make_model(**{**OURS_OF_T5, "dropout": 0.1})
    fields, state = export_state("t5", model.config, model_tensors(model))
    assert "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight" in state
    unread = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    config, tensors = import_state("t5", fields, {**state, unread: torch.randn(32, 5)})
    assert config == model.config
    assert tensors.keys() == model_tensors(model).keys()


@pytest.mark.parametrize(
    ("theirs", "ours", "gated"),
    [
        ("relu", "relu", False),
        ("gelu", "gelu", False),
        ("gelu_new", "gelu_tanh", False),
        ("silu", "silu", False),
        ("gated-gelu", "gelu_tanh", True),  # not "gelu" itself
        ("gated-gelu_new", "gelu_tanh", True),
        ("gated-silu", "silu", True),
        ("gated-relu", "relu", True),
    ],
)
def test_every_feed_forward_network_of_t5_is_read_and_written(theirs, ours, gated):
    family = FAMILIES["t5"]
    config = family.config_from({**T5, "feed_forward_proj": theirs})
    assert (config.activation, config.gated) == (ours, gated)
    assert family.config_from(family.config_to(config)) == config


def test_gpt2_needs_no_padding_and_a_default_width():
    config = FAMILIES["gpt2"].config_from(GPT2)
    assert (config.pad_id, config.bos_id, config.eos_id, config.d_ff) == (0, 35, 36, 104)
    assert (config.activation, config.norm, config.final_norm) == ("gelu_tanh", "pre", None)


@pytest.mark.parametrize(
    ("kind", "values", "ids"),
    [
        ("marian", {"pad_token_id": 36, "decoder_start_token_id": 36, "eos_token_id": 0}, (36, 36, 0)),  # opus-mt
        ("pegasus", {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1}, (0, 0, 1)),
        ("bart", {"pad_token_id": 1, "decoder_start_token_id": 2, "eos_token_id": 2}, (1, 2, 2)),
        ("m2m_100", {"pad_token_id": 1, "decoder_start_token_id": 2, "eos_token_id": 2}, (1, 2, 2)),  # NLLB
        ("gpt2", {"bos_token_id": 36, "eos_token_id": 36}, (0, 36, 36)),
    ],
)
def test_special_tokens_of_published_models_are_read_and_written(kind, values, ids):
    family = FAMILIES[kind]
    config = family.config_from({**FILES[kind], **values})
    assert (config.pad_id, config.bos_id, config.eos_id) == ids
    assert family.config_from(family.config_to(config)) == config


def test_bert_gets_free_ids_for_what_its_file_does_not_name():
    config = FAMILIES["bert"].config_from(BERT_ALONE)
    assert (config.pad_id, config.eos_id, config.bos_id, config.num_segments) == (0, 1, 2, 2)
    assert config.norm_eps == 1e-12


@pytest.mark.parametrize(
    ("kind", "changed", "message"),
    [
        ("marian", {"decoder_ffn_dim": 23}, r"encoder_ffn_dim \(19\) and decoder_ffn_dim \(23\) must be equal"),
        ("marian", {"decoder_attention_heads": 2}, "encoder_attention_heads .* must be equal"),
        ("marian", {"activation_function": "quick_gelu"}, "activation_function is 'quick_gelu'; activations"),
        ("marian", {"decoder_vocab_size": 41}, r"decoder_vocab_size \(41\) and vocab_size \(37\) must be equal"),
        ("marian", {"eos_token_id": [0, 7]}, r"eos_token_id is \[0, 7\], but must be the id of one token"),
        ("marian", {"pad_token_id": None}, "pad_token_id is None, but must be the id of one token"),
        ("marian", {"decoder_layers": 0}, "decoder_layers is 0, but such a model has both"),
        ("marian", {"d_model": "wide"}, "d_model = 'wide'"),
        ("m2m_100", {"decoder_start_token_id": 36}, "decoder_start_token_id is pad_token_id, which has no"),
        (
            "m2m_100",
            {"max_position_embeddings": 34},
            r"pad_token_id is 36, but has a row among M2M100's max_position_embeddings \+ 2 = 36 positions",
        ),
        ("bart", {"eos_token_id": 36}, "model.pad_id and model.eos_id must differ, both are 36"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ("bert", {"is_decoder": True}, "is_decoder is True, but must be False"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights is False, but must be True"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True, but must"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True, but must be False"),
        ("t5", {"feed_forward_proj": "gated-elu"}, "feed_forward_proj is 'gated-elu'; activations we have: relu,"),
        ("t5", {"feed_forward_proj": "double-relu"}, "feed_forward_proj is 'double-relu'; activations we have"),
        ("t5", {"feed_forward_proj": None}, "feed_forward_proj is None; activations we have"),
        ("t5", {"is_encoder_decoder": False}, "is_encoder_decoder is False, but must be True"),
        ("t5", {"num_layers": 0}, "num_layers is 0, but such a model has both"),
        ("t5", {"num_decoder_layers": 0}, "num_decoder_layers is 0, but such a model has both"),
        ("mt5", {"relative_attention_num_buckets": 7}, "relative_attention_num_buckets .7. must be even"),
        ("mt5", {"eos_token_id": 0}, "model.pad_id and model.eos_id must differ, both are 0"),
        ("encoder-decoder", {"encoder": {**BERT_LIKE, "model_type": "vit"}}, "encoder.model_type is 'vit'"),
        ("encoder-decoder", {"decoder": BERT_LIKE}, "decoder.is_decoder is False, but must be True"),
        (
            "encoder-decoder",
            {"decoder": {**BERT_DECODER, "hidden_size": 52}},
            r"encoder and decoder must agree in d_model \(26 and 52\)",
        ),
        ("encoder-decoder", {"pad_token_id": 9}, "pad_token_id is 9, but must be 0"),
        ("encoder-decoder", {"encoder": None}, "encoder is None, but must be an object"),
        ("encoder-decoder", {"decoder": "bert"}, "decoder is 'bert', but must be an object"),
    ],
)
def test_config_from_rejects_unsupported_settings_by_name(kind, changed, message):
    FAMILIES[kind].config_from(FILES[kind])
    with pytest.raises(ConfigError, match=message):
        FAMILIES[kind].config_from({**FILES[kind], **changed})


@pytest.mark.parametrize(
    ("kind", "before", "embedding", "final", "computed"),
    [
        ("bart", False, True, False, False),
        ("marian", False, False, False, True),
        ("mbart", True, True, True, False),
        ("pegasus", True, False, True, True),
        ("m2m_100", True, False, None, None),
    ],
)
def test_every_form_that_a_kind_does_not_have_is_refused(kind, before, embedding, final, computed):
    forms = {"normalize_before": before, "normalize_embedding": embedding, "add_final_layer_norm": final}
    for name, form in {**forms, "static_position_embeddings": computed, "tie_word_embeddings": True}.items():
        if form is not None:
            FAMILIES[kind].config_from({**FILES[kind], name: form})
            with pytest.raises(ConfigError, match=f"{name} is {not form}, but must be {form}"):
                FAMILIES[kind].config_from({**FILES[kind], name: not form})


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("values", [None, [], ["vocab_size"], "marian"])
def test_a_file_that_holds_no_fields_is_refused(kind, values):
    with pytest.raises(ConfigError, match=r"config\.json is .*, but must be an object with fields"):
        import_state(kind, values, {})


@pytest.mark.parametrize("values", [["x"] * 10_000, {**BART_LIKE, "activation_function": "x" * 10_000}])
def test_import_state_shortens_file_contents_in_messages(values):
    with pytest.raises(ConfigError) as error:
        import_state("marian", values, {})
    assert len(str(error.value)) < 1_000


@pytest.mark.parametrize(
    ("kind", "values", "problems"),
    [
        (
            "marian",
            {**BART_LIKE, "normalize_before": True, "encoder_ffn_dim": 23, "encoder_layers": 0, "pad_token_id": None},
            ["normalize_before is True", "encoder_ffn_dim", "encoder_layers is 0", "pad_token_id is None"],
        ),
        (
            "m2m_100",
            {"tie_word_embeddings": False, "normalize_before": False, "max_position_embeddings": 4, "pad_token_id": 7}
            | {"normalize_embedding": True, "activation_function": "elu", "decoder_start_token_id": 7},
            [
                *("tie_word_embeddings is False", "normalize_before is False", "normalize_embedding is True"),
                *("decoder_layers is missing", "activation_function is 'elu'", "vocab_size is missing"),
                *("decoder_start_token_id is pad_token_id", "pad_token_id is 7, but has a row"),
            ],
        ),
    ],
)
def test_config_from_names_all_problems_of_a_file_in_the_order_of_its_checks(kind, values, problems):
    with pytest.raises(ConfigError) as error:
        FAMILIES[kind].config_from(values)
    assert re.search(".*; ".join(problems), str(error.value))


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "silu", "swish"])
def test_every_activation_is_read_and_written(name):
    family = FAMILIES["marian"]
    config = family.config_from({**BART_LIKE, "activation_function": name})
    assert config.activation == ACTIVATIONS[name]
    assert family.config_from(family.config_to(config)) == config


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({}, ["marian"]),
        ({"norm": "pre"}, ["pegasus"]),
        ({"positions": "sinusoidal_halves", "tying": "decoder", "source_vocab_size": 41}, ["marian"]),
        ({"norm": "pre", "positions": "sinusoidal_t2t", "first_position": 1}, ["m2m_100"]),
        ({"norm": "pre", "positions": "sinusoidal_t2t"}, []),
        ({"positions": "learned", "embedding_norm": True}, ["bart"]),
        (
            {"positions": "learned", "embedding_norm": True, "embedding_scale": False, "tying": "decoder"},
            ["encoder-decoder"],
        ),
        ({"norm": "pre", "final_norm": False}, []),
        ({"norm_kind": "rms"}, []),
        ({"norm_eps": 1e-6}, []),
        ({"gated": True}, []),
        ({"positions": "rotary"}, []),
        ({"positions": "relative"}, []),
        ({"attention_scale": False}, []),
        ({"output_scale": True}, []),
        (OURS_OF_T5, ["t5", "mt5"]),
        ({**OURS_OF_T5, "output_scale": True}, ["t5"]),
        ({**OURS_OF_T5, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 5}, ["t5", "mt5"]),
        ({**OURS_OF_T5, "gated": True, "activation": "gelu_tanh", "tying": "embeddings"}, ["t5", "mt5"]),
        ({**OURS_OF_T5, "gated": True, "activation": "gelu"}, []),  # its name means another behind a gate
        ({**OURS_OF_T5, "tying": "none"}, []),
        ({**OURS_OF_T5, "d_v": 4}, []),
        ({**OURS_OF_T5, "attention_scale": True}, []),
        ({"d_k": 3}, []),
        ({"tying": "embeddings"}, []),
        (
            {
                "num_decoder_layers": 0,
                "positions": "learned",
                "embedding_norm": True,
                "embedding_scale": False,
                "num_segments": 3,
            },
            ["bert"],
        ),
        ({"num_encoder_layers": 0, "norm": "pre", "positions": "learned", "embedding_scale": False}, ["gpt2"]),
        ({"num_encoder_layers": 0}, []),
        ({"num_decoder_layers": 0}, []),
    ],
)
def test_exportable_as_lists_the_kinds_that_export_state_accepts(settings, kinds):
    config = ModelConfig(**{**SMALL, "num_encoder_layers": 1, "num_decoder_layers": 2, **settings})
    assert exportable_as(config) == kinds
    tensors = model_tensors(Transformer(config))
    for kind in FAMILIES:
        if kind in kinds:
            fields, state = export_state(kind, config, tensors)
            assert json.loads(json.dumps(fields)) == fields
            import_state(kind, fields, state)
        else:
            with pytest.raises(ConfigError):
                export_state(kind, config, tensors)


def test_a_kind_that_cannot_hold_a_model_says_why_and_which_can():
    config = ModelConfig(norm="pre")
    with pytest.raises(ConfigError) as error:
        export_state("marian", config, {})
    assert str(error.value) == (
        "a marian model cannot hold this one: model.norm is 'pre' ('post' there); model.final_norm is True (False "
        "there); kinds that can: pegasus"
    )
    with pytest.raises(ConfigError, match="no kind of model we write can"):
        export_state("marian", ModelConfig(gated=True), {})


def test_dropout_rates_do_not_prevent_export():
    config = ModelConfig(positions="learned", embedding_norm=True, feed_forward_dropout=0.2, dropout=0.3)
    assert FAMILIES["bart"].config_to(config)["activation_dropout"] == 0.2
    assert "encoder-decoder" in exportable_as(
        ModelConfig(
            positions="learned",
            embedding_norm=True,
            embedding_scale=False,
            tying="none",
            feed_forward_dropout=0.2,
        )
    )


def test_umt5_is_refused_with_the_reason():
    with pytest.raises(ConfigError, match="'umt5' cannot be expressed here: every layer has relative positions of its"):
        import_state("umt5", T5, {})


def test_an_unknown_kind_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="'mariam' are not known here; did you mean 'marian'"):
        import_state("mariam", {}, {})


@pytest.mark.parametrize(("settings", "kind"), [({}, "marian"), ({"norm": "pre"}, "pegasus")])
def test_export_state_and_import_state_keep_the_logits(make_model, make_batch, settings, kind):
    model = make_model(**settings)
    fields, state = export_state(kind, model.config, model_tensors(model))
    config, tensors = import_state(kind, fields, state)
    again = Transformer(config).eval()
    load_tensors(again, tensors, origin=kind)
    source, target = make_batch(model.config)
    seen = target != 0
    torch.testing.assert_close(again(source, target)[seen], model(source, target)[seen], rtol=0.0, atol=1e-5)


def test_tensors_of_another_model_are_listed(make_model):
    model = make_model()
    fields, state = export_state("marian", model.config, model_tensors(model))
    del state["model.decoder.layers.1.fc2.bias"]
    state["model.decoder.layer_norm.weight"] = torch.zeros(26)
    with pytest.raises(ModelError) as error:
        import_state("marian", fields, state)
    assert str(error.value).splitlines() == [
        "this marian model does not fit this kind of model:",
        "  missing   model.decoder.layers.1.fc2.bias",
        "  unknown   model.decoder.layer_norm.weight  (26,)",
    ]
