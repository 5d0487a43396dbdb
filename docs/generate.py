"""Write the pages that come from the code: `python docs/generate.py` renews them.

A test fails when they are stale.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import typer
from pydantic import BaseModel

from clearhead.cli.main import app
from clearhead.config import Config, ServeConfig
from clearhead.interop.huggingface.state import FAMILIES
from clearhead.interop.import_model import LIBRARIES
from clearhead.paper.errata import errata_page

__all__ = ["PAGES", "commands_page", "settings_page"]


def settings_page() -> str:
    """Return the page of every setting with its type, default and meaning."""
    lines = [
        "# Settings",
        "",
        "Generated from `src/clearhead/config/`. Write them in a TOML file, or give them as "
        "`--set section.key=value`. Where a default is *none*, the meaning says what comes in its place; what is "
        "chosen when a run starts stands in the run's `config.toml`.",
    ]
    top = {name: field for name, field in Config.model_fields.items() if not _is_section(field.annotation)}
    lines += ["", "## Top level", "", *_table(top)]
    for name, field in Config.model_fields.items():
        if _is_section(field.annotation):
            section = field.annotation
            assert isinstance(section, type)
            lines += ["", f"## [{name}]", "", *_table(section.model_fields)]
    said = "Limits of the server, given as `--set name=value` ([serving.md](serving.md))."
    lines += ["", "## clearhead serve", "", said, "", *_table(ServeConfig.model_fields)]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Return the page of every command with its arguments and options."""
    group = typer.main.get_command(app)
    lines = ["# Commands", "", "Generated from `src/clearhead/cli/`; `clearhead COMMAND --help` says the same."]
    lines += _commands(group, "clearhead")
    return "\n".join(lines) + "\n"


def _commands(group: typer.core.TyperGroup, called: str) -> list[str]:
    """Return a section for each command of a group, and for those of groups within it."""
    lines: list[str] = []
    context = group.make_context(called, [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, typer.core.TyperGroup):
            lines += _commands(command, f"{called} {name}")
            continue
        lines += ["", f"## {called} {name}", "", " ".join((command.help or "").split()), "", "| | |", "| --- | --- |"]
        for parameter in command.params:
            if parameter.name == "help":
                continue
            is_option = parameter.param_type_name == "option"
            label = ", ".join(parameter.opts) if is_option else (parameter.metavar or parameter.name.upper())
            lines.append(f"| `{label}` | {_cell(parameter.help or '')} |")
    return lines


MODELS = """# Models of other libraries

Generated from `src/clearhead/interop/` by `docs/generate.py`.

```
clearhead import opus-mt-de-en -o models/de-en
clearhead translate models/de-en < input.txt > output.txt
```

The path is a directory or a file of one of the libraries below; which one, the names of the files say, or `--kind`.

{libraries}

The weights of transformers are `model.safetensors`, whole or in shards, or `pytorch_model.bin`, of which tensors alone
are read. Checkpoints of toolkits are pickles, which are programs: PyTorch's own reader of weights takes tensors and
plain values out of them, and an object, such as the settings that fairseq and OpenNMT-py keep, becomes a record of what
it would be made of. No class and no function that such a file names is looked up or called; one that names anything but
the toolkits' own is refused. Nothing in a directory is run, and nothing is downloaded.

What comes out is a model directory like any other: `translate`, `evaluate`, `score`, `verify`, `info` and `optimize`
take it, and so does `train --from`, which keeps its shape and its vocabulary. A model that stands at the output is
replaced only with `--force`. What our model cannot express is an error that names the setting, option or variable.

## Proof

Where its library is installed (`pip install 'clearhead[interop]'`), the import translates golden sentences, made of
words of the vocabulary, and compares with it. With transformers: the ids of the source, the log-probability of our
translation under their model, and the text that their tokenizer reads from its ids. With CTranslate2: the
log-probabilities. The first difference is an error, and nothing is written. Marian has no Python to compare with.

## CTranslate2

`model.bin` is read without CTranslate2, in version 6 of its format (CTranslate2 3 and 4): an encoder and a decoder, of
OPUS-MT, OpenNMT, fairseq or transformers. Weights in 8 or 16 bits come in as float32, as CTranslate2 itself reads them
when it computes in that; what the rounding lost is lost. Tables of sinusoids are known by their numbers, and kept as
learned positions if they are none. T5, Flan-T5 and mT5 come in with their relative positions, and so do models with
rotary ones. A layer that lacks the table of the others, or has another (UMT5), is refused. Beside transformers 5,
CTranslate2's converter (4.8.5) divides the output of T5 1.1, Flan-T5 and mT5 by sqrt(d_model), which those do not. The
import takes what the file says: import such a model from transformers, and export it from here.

A directory of CTranslate2 has a list of tokens and no tokenizer, so what the model was made with must stand beside it:
`tokenizer.json`, `source.spm` and `target.spm`, or one `sentencepiece.bpe.model`, `sentencepiece.model` or
`spiece.model`. What stands around a source is what the tokenizer says; where it does not, a source ends with the end
token, but for models of OpenNMT (their padding is called `<blank>`), which say it in `config.json`. The search is the
one of `translate_batch` if nothing else is asked for: two beams, and the length penalty 1.

## Marian

```
clearhead import opus-2020-02-26 -o models/de-en
```

reads what Marian itself writes: the `.npz` file, of which arrays of numbers alone are read, the vocabularies (`.spm`,
or `.yml` with `source.spm` and `target.spm`, as OPUS-MT publishes them) and `decoder.yml`, which names them; without it
the file says itself what they are called. Marian's sinusoids have tensor2tensor's wavelengths, and its softmax has no
padding. The conversions of transformers and CTranslate2 take the paper's wavelengths, and that of transformers adds a
token, so a model that came through them gives scores that differ a little.

## There and back

What `clearhead export` writes says what it was made of, under the key `clearhead` of its `config.json`, which
transformers and CTranslate2 keep without reading it. Its import is the model again: the same bits of weights (of
CTranslate2 and ONNX in float32), settings, vocabulary with its promise, and way to decode. What was changed meanwhile
comes back changed: weights that learned in transformers, biases that are no longer zero, beams. A vocabulary that grew
there is taken as another library's. A vocabulary that came from another library stands beside as its own files and, for
the way back, as `clearhead_vocabulary.json`, which is ours: their files do not say everything, such as what stands
around a sentence of CTranslate2's. Where one of its own files was changed since, those count, and the import says so.
ONNX files come back alone: those of other programs say what is computed, not which model that is, and weights in 8-bit
integers have lost what they were.

The toolkits cannot be run beside this, so their models come in unproved: that is said, and stands on the model's card.
The tests compare each kind with its formulas, log-probability by log-probability and text by text; models that fairseq
0.12.2, OpenNMT-py 2.3.0 and 3.5.1, eole 0.6.4 and JoeyNMT 2.3.0 wrote themselves were compared with their own forward
pass once, and differed by 1e-6 at most.

## Languages

A model of several languages is told them: M2M100, NLLB and mBART by a token of the source's language and one that every
translation begins with, Marian by a token before the source (`>>deu<<`). Their names are the model's own (`de`,
`deu_Latn`, `de_DE`), in `--source-lang` (`translate`, `evaluate`) and `--target-lang`, in a tag such as `<2deu_Latn> `
before a line, and by default what the files say. What a model is told costs nothing: scores are those of the text.
The codes of mBART's 25 and 50 languages stand behind the pieces of `sentencepiece.bpe.model`, which needs no other file
beside it; those of NLLB and M2M100 must be named, by `tokenizer.json`, `tokenizer_config.json` or
`special_tokens_map.json`.

T5 and Flan-T5 are told in the text itself what to do with it, such as `translate English to German: `. That stands
before every line that is given; the import names what a directory says of it.

## What is otherwise

- A vocabulary of another library is kept exactly, and what it loses is lost: characters it does not know, letter case,
  runs of spaces. Our own promise, that every text comes back from its ids, holds for vocabularies learned here alone. A
  special token that stands in a text, such as `</s>`, is text here.
- Toolkits know words between spaces. A file of subword-nmt (versions 0.1 and 0.2), fastBPE or sentencepiece beside the
  checkpoint splits them as the original does (fairseq: `bpecodes`, `code`, `codes`, `*.model`, or one for each
  language, such as `codes.de`; JoeyNMT and eole: what their configuration names); without one a line is looked up as
  it stands, and `@@ ` is joined in what is written. Whether a model learned text that Moses had tokenized, its files
  mostly do not say: the import says so then, and text must be prepared and put together outside.
- Of their search the number of beams and the length penalty are taken over, in their form (`power`). What has no
  counterpart here, such as `no_repeat_ngram_size`, is named when the model is imported, and so is
  `clean_up_tokenization_spaces`: spaces that the model wrote stay. Our search stops when no hypothesis can win any more
  (their `early_stopping="never"`), and ends repetition loops (`decode.end_loops`).
- Lines are read as they are: no line is brought to the case of a training text that nobody knows (`decode.familiar`),
  and only lines longer than the model's positions are split.

## Out

```
clearhead export runs/de-en -o de-en-hf --to hf
```

writes a directory that `transformers` loads without any code of ours (`AutoTokenizer`, `AutoModelForSeq2SeqLM`): a
post-norm model, as the paper's, as Marian, a pre-norm one, as the presets `tiny` and `small`, as Pegasus, and one with
T5's settings ([paper.md](paper.md#where-well-known-code-departs-from-the-paper)) as T5. The paper's
sinusoids take turns, theirs have sines before cosines; as no part of the model knows the order of its components, they
are reordered everywhere alike, and every logit stays. The vocabulary goes along, tags included: `<2fr> May 3, 2018` is
read there as here. Where `transformers` is installed, the directory is loaded and compared as above before it gets its
name; if anything differs, nothing is written.

Their search divides by a power of the length, ours by default by the paper's penalty, so it may choose the other of two
close translations; with `decode.length_penalty_form = "power"` both find the same, but for repetition loops, which ours
ends, and for outputs that reach the length limit. What else is otherwise there the export says: sinusoids, computed
here for any length, are a table of `model.max_positions` rows there and in CTranslate2, and a model of several
languages that writes one of them unless told otherwise (`decode.target_lang`) must be told always, by a tag.

```
clearhead export runs/de-en -o de-en-ct2 --to ctranslate2 --precision int8
```

writes one for CTranslate2, in `float32`, `float16`, `bfloat16`, `int16` or `int8`, with a `tokenizer.json` beside it
whose tokens it takes and gives. In float32 the scores of golden sentences must be the same there, or nothing is
written; of rounded weights it is said how much the scores differ, and how many of our translations its search finds.

```python
tokenizer = tokenizers.Tokenizer.from_file("de-en-ct2/tokenizer.json")
translator = ctranslate2.Translator("de-en-ct2")
tokens = [tokenizer.id_to_token(number) for number in tokenizer.encode("Ein Hund rennt.").ids]
[result] = translator.translate_batch([tokens])
tokenizer.decode([tokenizer.token_to_id(token) for token in result.hypotheses[0]])
```

```
clearhead export runs/de-en -o de-en-onnx --to onnx
```

writes three ONNX files, `encoder_model.onnx`, `decoder_model.onnx` and `decoder_with_past_model.onnx`, which goes on
from cached keys and values, and beside them what `--to hf` writes beside the weights. Every encoder-decoder goes out,
also one that transformers has not, with rotary positions or RMSNorm: its `config.json` says `marian`, and the files
alone what is computed. Positions are computed in them, for any length; where they are learned, a longer text ends in an
error of onnxruntime. Each file holds the weights it needs, a shared matrix once, and one of more than 2 GiB is refused.
They have standard operators alone, of opset 20 (onnxruntime 1.17 or later).

With `--precision int8` matrices are 8-bit integers, a quarter of the size, and their inputs are rounded as they come,
each row by itself, so that no sentence changes another. A weight takes seven of the eight bits: processors without VNNI
add products in 16 bits, and more would not fit.

Before the directory gets its name, onnxruntime scores our translations of golden sentences, in one pass and token by
token with the cache: in float32 it must find the same scores; of rounded weights it is said how much they differ, and
for how many tokens the most probable next one is the same.

Inputs, outputs and free axes have the names that Hugging Face Optimum gives them, and it takes the directory as it is:

```python
tokenizer = transformers.AutoTokenizer.from_pretrained("de-en-onnx")
model = optimum.onnxruntime.ORTModelForSeq2SeqLM.from_pretrained("de-en-onnx")
found = model.generate(**tokenizer(["Ein Hund rennt."], return_tensors="pt"))
tokenizer.batch_decode(found, skip_special_tokens=True)
```

This was tried with optimum-onnx 0.1.0, which needs transformers before 4.58 and so an environment of its own, for
`clearhead[interop]` brings version 5. Without Optimum, a beam search over the files is a page of NumPy:
`bench/onnx_search.py`.

Multi30k, German to English, a `tiny` model after 1,527 steps, the 1,000 lines of test2016, beam 4, each library's
search beside ours with the same power of the length: transformers writes the same text for all 1,000 lines with 0.6,
CTranslate2 for all 1,000 without a penalty, and for 983 with 0.6, for it stops as soon as four hypotheses have ended,
while a longer one may still be better. The ONNX files write the same for all 1,000 with either penalty, in the search
beside the benchmark and, with 0.6, in Optimum's; in 8-bit integers for 871 and 867, with BLEU 39.4 beside 39.3.

```
clearhead train --source train.de.gz --target train.en.gz --valid-source val.de.gz --valid-target val.en.gz \\
    --out runs/de-en --max-steps 1527
python bench/exports.py runs/de-en --source test2016.de.gz
```

## A fine-tuned model goes on

```
clearhead import opus-mt-de-en -o models/de-en
clearhead train --from models/de-en --source mine.de --target mine.en --out runs/de-en
clearhead export runs/de-en -o de-en-ct2 --to ctranslate2 --precision int8
```

A model that came in and learned from your pairs goes out like one that was made here, to `hf`, `ctranslate2` or `onnx`,
with the same proof and with the tokenizer it came with: to transformers as the kind it was, with the files from which
its tokenizer is made there (`source.spm`, `target.spm` and `vocab.json` of Marian, `spiece.model` of Pegasus and T5,
`sentencepiece.bpe.model` of mBART, NLLB and M2M100, else `tokenizer.json`); to CTranslate2 with `source.spm` and
`target.spm`, one `sentencepiece.model`, or `tokenizer.json`. Before anything is written the files are read back as an
import reads them, and must be the same vocabulary. Where the model came from, `info` and the card of the fine-tuned one
still say. For an OPUS-MT model:

```python
source = sentencepiece.SentencePieceProcessor(model_file="de-en-ct2/source.spm")
target = sentencepiece.SentencePieceProcessor(model_file="de-en-ct2/target.spm")
translator = ctranslate2.Translator("de-en-ct2")
[result] = translator.translate_batch([source.encode("Ein Hund rennt.", out_type=str)])
target.decode(result.hypotheses[0])
```

What ends a text CTranslate2 adds itself (`add_source_eos`) where the files are sentencepiece's, for those add nothing;
a `tokenizer.json` does it. Languages it is told in tokens, and the export says which: a source of Marian's models of
several languages begins with one such as `>>deu<<`; with NLLB, M2M100 and mBART-50 it begins with the token of its
language (mBART's of 25 languages ends with the end token and that), and a translation begins with the token of its
own, which is given as `target_prefix`, as is BART's `<s>`. In transformers these are the text's first word `>>deu<<`,
the tokenizer's `src_lang`, and `forced_bos_token_id` of `generate`, which is by default the language that the model
was told to write.

What a library has not is an error that names it, and nothing is written (of transformers' kinds, what the nearest has
otherwise): CTranslate2's Transformer, as it is written here, has no segments (BERT), no layer before the output map
(BERT), one width of keys and values, and positions of some kind (sinusoids, learned, relative or rotary), and
transformers no tokenizer of words that are looked up in a list, as those of fairseq and JoeyNMT. As ONNX every encoder
with a decoder goes out, and the tokenizer is copied beside it unchanged.

## What can come in, and go out

Of transformers' models, weights go both ways in Python (`clearhead.interop`: `import_state`, `export_state`,
`exportable_as`); whole directories come in by `clearhead import`, and go out by `clearhead export --to hf` as the kind
that they came as, or else the first that holds the model and its vocabulary.

An encoder alone writes nothing; `translator.bundle.model.hidden_states` gives the states of every layer, and
[masked_word.py](../examples/masked_word.py) fills in a `[MASK]`. A decoder alone goes on with a text: `translate` takes
its beginning, and gives what the model writes after it, in so many tokens as `decode.extra_length` says. Both share the
model's positions: of a beginning that leaves too little room, the end is read, up to half of them at least, and it is
flagged.

| kind (`model_type`) | what it is |
| --- | --- |
"""


def models_page() -> str:
    """Return the page of other libraries' models."""
    rows = [f"| `{name}` | {_cell(_about(family.config_from))} |" for name, family in FAMILIES.items()]
    libraries = [
        f"| {name} | {', '.join(f'`{kind}`' for kind in library.kinds)} | {_cell(library.layout)} | "
        f"{_cell(_about(library.read))} |"
        for name, library in LIBRARIES.items()
    ]
    table = ["| library | `--kind` | the path | its models |", "| --- | --- | --- | --- |", *libraries]
    return MODELS.replace("{libraries}", "\n".join(table)) + "\n".join(rows) + "\n"


def _about(function: Callable[..., object]) -> str:
    """Return what the module of a function says of itself."""
    module = inspect.getmodule(function)
    assert module is not None
    assert module.__doc__ is not None
    return module.__doc__.split("\n\n")[0]


PAGES = {
    "commands.md": commands_page,
    "errata.md": errata_page,
    "models.md": models_page,
    "settings.md": settings_page,
}


def _is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _table(fields: dict[str, object]) -> list[str]:
    rows = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for name, field in fields.items():
        default = "*none*" if field.default is None else f"`{field.default!r}`"
        rows.append(f"| `{name}` | {default} | {_cell(field.description or '')} |")
    return rows


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    for name, page in PAGES.items():
        (Path(__file__).parent / name).write_text(page(), encoding="utf-8")
