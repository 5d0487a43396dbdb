"""Write the pages that come from the code: `python docs/generate.py` renews them.

A test fails when they are stale.
"""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Mapping
from pathlib import Path

import typer
from api_page import api_page
from babel import Locale, localedata
from babel.core import get_global
from babel.messages.plurals import PLURALS
from paper_pages import (
    anchor_of,
    errata_page,
    exercises_page,
    explain_page,
    glossary_page,
    paper_page,
    statements_page,
)
from pydantic import BaseModel

import clearhead
from clearhead.cli.main import app
from clearhead.config import Config, ServeConfig
from clearhead.config.settings import Settings
from clearhead.inspection.plots import draw
from clearhead.interop.huggingface.state import FAMILIES
from clearhead.interop.import_model import LIBRARIES
from clearhead.paper.concepts import CONCEPTS, Concept, concept_part
from clearhead.paper.errata import ERRATA
from clearhead.paper.errata.part import heading
from clearhead.paper.figures.figure1 import figure1
from clearhead.paper.figures.figure2 import figure2
from clearhead.paper.parts import ModelPart
from clearhead.paper.places import line_of
from clearhead.text import languages
from clearhead.text.languages import LOCALES

LANGUAGE_TABLE = Path(languages.__file__).with_suffix(".json")

SETTINGS = """# Settings

All settings of a training run, of decoding and of the server. Write them in a TOML file, or give them as
`--set section.key=value`. For example, this sets one of the model, which the run then records:

```
$ clearhead train --pairs pairs.tsv --set model.dropout=0.2 --out runs/de-en
$ grep ^dropout runs/de-en/config.toml
dropout = 0.2
```

Where a default is *none*, the meaning says what is used instead; the values chosen when a run starts are in the run's
`config.toml`. This page is generated from `src/clearhead/config/`.
"""
PRECEDENCE = """
## Which value is used

A setting of `clearhead train` may have a value in several places. The last of these is used:

1. its default, as below
2. the preset
3. the plan for the corpus and the time limit ([recipes.md](recipes.md)); a resumed run keeps its plan
4. the model that `--from` names: its decoding settings
5. `config.toml` of the run that `--out` names, if the command names no input files
6. the TOML file of the command
7. `--set`
8. an option of its own, such as `--max-steps`

What cannot be changed: the shape and the tokenizer of the model that `--from` names; the token ids and the vocabulary
size that a run's tokenizer determines; and in a resumed run everything that would make it another run.

`clearhead info RUN --all` names the origin of each setting of an unfinished run: `default`, the preset, `plan`, `saved`
(given for this run, taken from the model of `--from`, or chosen for the corpus), or `fixed` (by the tokenizer or the
model of `--from`).
"""


def settings_page() -> str:
    """Return the page of every setting with its type, default and meaning."""
    lines = [
        *SETTINGS.splitlines(),
        *PRECEDENCE.splitlines(),
    ]
    top = {name: field for name, field in Config.model_fields.items() if not _is_section(field.annotation)}
    lines += ["", "## Top level", "", *_table(Config, top)]
    for name, field in Config.model_fields.items():
        if _is_section(field.annotation):
            section = field.annotation
            assert isinstance(section, type)
            lines += ["", f"## [{name}]", "", *_table(section, section.model_fields)]
    said = "Limits of the server, given as `--set name=value` ([serving.md](serving.md))."
    lines += ["", "## clearhead serve", "", said, "", *_table(ServeConfig, ServeConfig.model_fields)]
    return "\n".join(lines) + "\n"


COMMANDS = """# Commands

Every command with its arguments and options; `clearhead COMMAND --help` says the same. For example:

```
$ clearhead --version
clearhead {version}
```

This page is generated from `src/clearhead/cli/`.
"""


def commands_page() -> str:
    """Return the page of every command with its arguments and options."""
    group = typer.main.get_command(app)
    lines = COMMANDS.format(version=clearhead.__version__).splitlines()
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
        lines += ["", f"## {called} {name}"]
        for paragraph in (command.help or "").split("\n\n"):
            first, *examples = paragraph.split("\n")
            lines += ["", first, *(["", "```", *(line.strip() for line in examples), "```"] if examples else [])]
        panels: dict[str, list[str]] = {}
        for parameter in command.params:
            is_option = parameter.param_type_name == "option"
            label = ", ".join(parameter.opts) if is_option else (parameter.metavar or parameter.name.upper())
            rows = panels.setdefault(parameter.rich_help_panel or "", [])
            rows.append(f"| `{label}` | {_cell(parameter.help or '')} |")
        for panel, rows in panels.items():
            lines += ["", f"| {panel} | |", "| --- | --- |", *rows]
    return lines


MODELS = """# Models of other libraries

`clearhead import` turns a published model of another library into a model directory; `clearhead export` writes a model
for Hugging Face transformers, CTranslate2 or ONNX. Both compare the two models before anything is written.

```
clearhead import opus-mt-de-en -o models/de-en
clearhead translate models/de-en < input.txt > output.txt
```

This page is generated from `src/clearhead/interop/` by `docs/generate.py`.

## Import

The path is a directory or a file of one of these libraries. The file names show which one; `--kind` overrides that.

{libraries}

The result is a model directory like any other: `translate`, `evaluate`, `score`, `verify`, `info` and `optimize` use
it, and so does `train --from`, which keeps its shape and vocabulary. An existing model at the output is replaced only
with `--force`. A setting, option or variable that our model cannot express is an error that names it.

**Nothing in a directory is run, and nothing is downloaded.** The weights of transformers are `model.safetensors`, whole
or in shards, or `pytorch_model.bin`. Checkpoints of toolkits are pickles, which are programs: PyTorch's weights-only
reader takes tensors and plain values out of them. An object, such as the settings of fairseq and OpenNMT-py, becomes a
record of its arguments; none of its classes and functions is looked up or called. Before anything is built, the names
in a pickle are checked: one that names anything other than tensors, plain containers and the toolkits' own classes is
refused.

**Bounds.** Whoever made the files, an import ends in time and memory about linear in their size. These bounds are far
above every published model, and some hold when a model directory is loaded, too:

| what | at most |
| --- | --- |
| tensors in a safetensors file; axes of a tensor | 100,000; 8 |
| YAML and pickles: nesting; size with repeated parts written out | 64 levels; 16 times the file, and always 1,000,000 |
| `tokenizer.json`: pieces; merges; added tokens | 1,000,000 each |
| `tokenizer.json`: how much its normalization and splitting may lengthen a text | 64 times |
| `tokenizer.json`: patterns | characters and classes, of which the last of an alternative may be repeated without end |

**Tokens in a text.** A token added in fine-tuning (`tokenizer.add_tokens`) is one id where a text contains it, as in
transformers. Tokens that frame a text or name a language, such as `</s>` and `en_XX`, are text in a text, so no text
can set them. Other special tokens (`additional_special_tokens`, such as `<hl>` and `<sep>`) are text as well, unless
the import names them:

```
clearhead import question-generator -o models/questions --markers '<hl>,<sep>'
```

**Generation settings** of transformers come from `generation_config.json`, which counts more than `config.json`, as in
`generate`. Taken over are the start, forced and end token, the beam, the length penalty, `min_length`, `min_new_tokens`
and `no_repeat_ngram_size`. Several end tokens, and a forced token that is no language where the model is told one, are
refused. Every other setting that changes what is written is named by the import (`suppress_tokens`,
`repetition_penalty`, `exponential_decay_length_penalty`, ..), and so is one that is unknown.

**Proof.** If the library is installed (the [extra](install.md#extras) `interop`), the import translates golden
sentences, made of words of the vocabulary, and compares. With transformers it compares the ids of the source, the
log-probability of our translation under their model, the text their tokenizer decodes from its ids, and what their
`generate` finds with its own settings; with CTranslate2, the log-probabilities. From a sentencepiece model alone, the
T5 tokenizer of transformers loses byte pieces (MADLAD); there the rest is compared, and the import says so. The first
difference is an error, and nothing is written.

Marian and the toolkits cannot be run here, so their models are imported unproved; the import says so, and so does the
model's card. The tests compare each kind with its formulas, log-probability by log-probability and text by text. Models
written by fairseq 0.12.2, OpenNMT-py 2.3.0 and 3.5.1, eole 0.6.4 and JoeyNMT 2.3.0 themselves were compared with their
own forward pass once, and differed by 1e-6 at most.

In Python, `clearhead.import_model(path, output)` does the same, and returns the proof and the notes;
`clearhead.export_model(model, output, to="ctranslate2")` is the counterpart.

## Small models

```
$ clearhead export runs/de-en -o de-en-small --to clearhead --precision int8 --source test2016.de --target test2016.en
read     runs/de-en
written  de-en-small, a model in int8, 3.0 MB
compared 873 of 1,000 lines are translated alike
compared BLEU 37.18 before, 37.34 after (nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0)
compared chrF2 55.57 before, 55.72 after (nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0)
```

writes a model directory that every command takes as any other, in about a quarter of the size (`--precision int8`) or
half of it (`bf16`). Neither needs PyTorch. The matrices of all products and the embeddings are rounded; norms, biases
and tables of positions stay in float32.

- **int8.** Each row of a matrix has a scale in float32 and levels from -63 to 63, the same that `--precision int8`
  computes with. So products are those of the original in int8, bit for bit. The embedding is rounded too, which
  `--precision int8` does not do by itself: see below.
- **bf16.** The upper 16 bits of each number, rounded to nearest.
- **Precision of the translation.** `generation_config.json` sets the precision that the model was made for; on another
  device than the CPU an int8 model translates in fp32. Scores, `--precision fp32`, explanations and exports to other
  libraries compute in float32 with the rounded weights. If the compiled core does not compute the model in that
  precision, the export says so, and the precision stays the original's.
- **Training** with `--from` starts from the rounded weights in float32, and says so; the original is the better start.
- **Comparison.** Both models translate the lines of `--source`, each with its own settings; with `--target`, they are
  compared by BLEU and chrF. Without lines they translate the golden sentences. The card has the result. Golden
  sentences are translated anew, in float32, which every processor computes alike. A shortlist and an alignment head are
  copied.

The embedding is a third of the weights in this model of Multi30k German-English (2.9 million weights, 4+4 layers of
width 128, three-way tying; test2016, beam 4; 2 cores with AVX-512). It is rounded because that costs no BLEU:

| translated in | embedding | weights | BLEU | chrF | the same as in fp32 |
| --- | --- | --- | --- | --- | --- |
| fp32 | float32 | 11.5 MB | 37.18 | 55.57 | 1,000 lines |
| int8 | float32 | 6.0 MB | 37.26 | 55.66 | 886 lines |
| int8 | bf16 | 4.0 MB | 37.31 | 55.64 | 882 lines |
| int8 | int8 | 3.0 MB | 37.34 | 55.72 | 873 lines |
| bf16 | float32 | 7.8 MB | 37.19 | 55.57 | 983 lines |
| bf16 | bf16 | 5.8 MB | 37.21 | 55.60 | 970 lines |

A model of paper-base's shape with 8,000 pieces has 193 MB in float32 and 49 MB in int8. Loading it and translating a
first line in int8 without scores takes 430 MB and 2.3 s from float32, 192 MB and 1.7 to 2.0 s from int8.

## Export

```
clearhead export runs/de-en -o de-en-hf --to hf
```

The directory is loaded by `transformers` without any code of ours
([from-transformers.md](from-transformers.md#the-other-way-a-model-of-clearhead-in-transformers-5)). A post-norm model,
as in the paper, becomes a Marian model; a pre-norm one, as in the presets `tiny` and `small`, a Pegasus model; one with
T5's settings ([paper.md](paper.md#where-well-known-code-departs-from-the-paper)) a T5 model.
The vocabulary is exported with its tags: `<2fr> May 3, 2018` is read there as here. If `transformers` is installed, the
directory is loaded and compared as above before it gets its name; after any difference nothing is written.

The paper interleaves sines and cosines, theirs has the sines first. No part of the model depends on the order of its
components, so all of them are reordered alike and every logit stays the same.

Two searches differ. Theirs divides by a power of the length, ours by default by the paper's penalty, so it may choose
the other of two close translations. With `decode.length_penalty_form = "power"` both find the same, except for
repetition loops, which ours ends, and for outputs that reach the length limit. The export names other differences:
sinusoids, computed here for any length, are a table of `model.max_positions` rows there and in CTranslate2; and a model
of several languages with a default target language (`decode.target_lang`) always needs a tag there.

```
clearhead export runs/de-en -o de-en-ct2 --to ctranslate2 --precision int8
```

writes a directory for CTranslate2, in `float32`, `float16`, `bfloat16`, `int16` or `int8`, with a `tokenizer.json` for
its tokens. In float32 the scores of golden sentences must be the same there, or nothing is written. For rounded weights
the export reports how much the scores differ, and how many of our translations its search finds.

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

writes three ONNX files: `encoder_model.onnx`, `decoder_model.onnx` for the first step, and
`decoder_with_past_model.onnx` for the next ones, from cached keys and values; and the files that `--to hf` writes
beside the weights. Every encoder-decoder can be exported, also one transformers does not have, with rotary positions or
RMSNorm: its `config.json` then says `marian`, and only the ONNX files say what is computed. They compute positions for
any length; if positions are learned, a longer text is an error of onnxruntime. Each file holds the weights it needs, a
shared matrix once; one over 2 GiB is refused. They use only standard operators, of opset 20 (onnxruntime 1.17 or
later).

With `--precision int8`, matrices are 8-bit integers, a quarter of the size. Their inputs are rounded row by row as they
are computed, so no sentence changes another. A weight uses seven of the eight bits: processors without VNNI add
products in 16 bits, and more would overflow.

Before the directory gets its name, onnxruntime scores our translations of golden sentences, in one pass and token by
token with the cache. In float32 it must find the same scores; for rounded weights the export reports how much they
differ, and for how many tokens the most probable next one is the same.

Inputs, outputs and dynamic axes are named as in Hugging Face Optimum, which loads the directory:

```python
tokenizer = transformers.AutoTokenizer.from_pretrained("de-en-onnx")
model = optimum.onnxruntime.ORTModelForSeq2SeqLM.from_pretrained("de-en-onnx")
found = model.generate(**tokenizer(["Ein Hund rennt."], return_tensors="pt"))
tokenizer.batch_decode(found, skip_special_tokens=True)
```

This was tried with optimum-onnx 0.1.0. It needs transformers before 4.58, so an environment of its own:
the extra `interop` installs version 5. Without Optimum, a beam search over the files is a page of NumPy:
`bench/onnx_search.py`.

## Export of a fine-tuned import

```
clearhead import opus-mt-de-en -o models/de-en
clearhead train --from models/de-en --source mine.de --target mine.en --out runs/de-en
clearhead export runs/de-en -o de-en-ct2 --to ctranslate2 --precision int8
```

An imported model that was fine-tuned is exported like any other, to `hf`, `ctranslate2` or `onnx`, with the same proof
and the tokenizer it came with. For transformers it keeps its kind, and the files its tokenizer is built from
(`source.spm`, `target.spm` and `vocab.json` of Marian, `spiece.model` of Pegasus and T5, `sentencepiece.bpe.model` of
mBART, NLLB and M2M100, otherwise `tokenizer.json`). For CTranslate2 the files are `source.spm` and `target.spm`, one
`sentencepiece.model`, or `tokenizer.json`. Before anything is written, the files are read back as an import reads them,
and must be the same vocabulary. `info` and the card of the fine-tuned model still name its origin. For an OPUS-MT
model:

```python
source = sentencepiece.SentencePieceProcessor(model_file="de-en-ct2/source.spm")
target = sentencepiece.SentencePieceProcessor(model_file="de-en-ct2/target.spm")
translator = ctranslate2.Translator("de-en-ct2")
[result] = translator.translate_batch([source.encode("Ein Hund rennt.", out_type=str)])
target.decode(result.hypotheses[0])
```

CTranslate2 adds the end token itself (`add_source_eos`) if the files are sentencepiece's, which add none; a
`tokenizer.json` adds it. Languages are given in tokens, and the export says which. For Marian's multilingual models a
source begins with a token such as `>>deu<<`. For NLLB, M2M100 and mBART-50 it begins with the token of its language
(for mBART's 25 languages it ends with the end token and that one), and the translation begins with its own language's
token, given as `target_prefix`; so is BART's `<s>`. In transformers these are the text's first word `>>deu<<`, the
tokenizer's `src_lang`, and `forced_bos_token_id` of `generate`, by default the language set in the model.

What a library does not have is an error that names it, and nothing is written; for transformers it also says how the
nearest kind differs. CTranslate2's Transformer, as we write it, has no segments (BERT), no layer before the output map
(BERT), one width of keys and values, and positions of some kind (sinusoids, learned, relative or rotary). Transformers
has no tokenizer that looks up whole words in a list, as fairseq and JoeyNMT do. As ONNX every encoder-decoder can be
exported, and its tokenizer is copied unchanged.

## Export and import again

`clearhead export` records what the model was made of, under the key `clearhead` of its `config.json`, which
transformers and CTranslate2 keep without reading it. An import of that directory is the same model: the same bits of
weights (of CTranslate2 and ONNX in float32), settings, vocabulary with its guarantee, and way to decode. Changes made
in between are imported: weights trained in transformers, biases that are no longer zero, beams. A vocabulary that grew
there counts as another library's. An imported vocabulary is exported as its own files and, for the way back, as
`clearhead_vocabulary.json`, because their files do not record everything, such as the tokens around a sentence of
CTranslate2's. If one of its own files was changed since, that file counts, and the import says so. Only our own ONNX
files can be imported: other programs' say what is computed but not which model it is, and weights in 8-bit integers
have lost their values.

## Languages

A model of several languages needs to know them: M2M100, NLLB and mBART by a token of the source language and one that
every translation begins with, Marian by a token before the source (`>>deu<<`). The names are the model's own (`de`,
`deu_Latn`, `de_DE`). Give them as `--source-lang` (`translate`, `evaluate`) and `--target-lang`, or as a tag such as
`<2deu_Latn> ` or `>>deu<< ` before a line; otherwise the files' defaults apply. These tokens do not count in scores,
which are those of the text. The codes of mBART's 25 and 50 languages follow the pieces of `sentencepiece.bpe.model`, so
no other file is needed; those of NLLB and M2M100 must be named in `tokenizer.json`, `tokenizer_config.json` or
`special_tokens_map.json`.

T5 and Flan-T5 read their task in the text, such as `translate English to German: `, at the beginning of every line. The
import names the tasks that a directory lists.

## Differences

- **Vocabulary.** It is kept exactly, and what it loses is lost: characters it does not know, letter case, runs of
  spaces. Only vocabularies learned here guarantee that every text is restored from its ids. A special token written in
  a text, such as `</s>`, is text here, also where the vocabulary lists it among its pieces. (The exported tokenizer is
  the original's, so other programs may read it as that token.)
- **Toolkits' words.** Their vocabularies are words between spaces. A file of subword-nmt (versions 0.1 and 0.2),
  fastBPE or sentencepiece beside the checkpoint splits them as the original does (fairseq: `bpecodes`, `code`, `codes`,
  `*.model`, or one for each language, such as `codes.de`; JoeyNMT and eole: the files named in their configuration).
  Without one, the words of a line are looked up unchanged, and `@@ ` is joined in the output. The files mostly do not
  record whether a model was trained on text tokenized by Moses. The import then says so; such text must be tokenized
  before, and detokenized after.
- **Search.** The number of beams and the length penalty are imported, in their form (`power`). The import names
  settings without a counterpart here, such as `repetition_penalty` and `clean_up_tokenization_spaces`: spaces that
  the model wrote stay. Our search stops when no hypothesis can win any more (their `early_stopping="never"`), and ends
  repetition loops (`decode.end_loops`).
- **Normalization.** Case and white space are not normalized (`decode.familiar`), because the training text is not
  known; the Unicode form is ([translation.md](translation.md#the-same-text-in-another-unicode-form)). Only lines longer
  than the model's positions are split.

## CTranslate2

`model.bin` is read without CTranslate2, in version 6 of its format (CTranslate2 3 and 4): an encoder and a decoder of
OPUS-MT, OpenNMT, fairseq or transformers. Weights in 8 or 16 bits are imported as float32, as CTranslate2 itself reads
them when it computes in float32; what the rounding lost is lost. Tables of sinusoids are recognized by their numbers;
other tables are kept as learned positions. T5, Flan-T5 and mT5 are imported with their relative positions, and so are
models with rotary ones. A layer without the table of the others, or with another one (UMT5), is refused. With
transformers 5, CTranslate2's converter (4.8.5) divides the output of T5 1.1, Flan-T5 and mT5 by sqrt(d_model), which
those models do not. The import takes what the file says, so import such a model from transformers and export it from
here.

A directory of CTranslate2 has a list of tokens and no tokenizer, so the tokenizer the model was made with must be put
beside it: `tokenizer.json`, `source.spm` and `target.spm`, or one `sentencepiece.bpe.model`, `sentencepiece.model` or
`spiece.model`. It decides which tokens surround a source. If it does not say, a source ends with the end token, except
for models of OpenNMT (their padding is called `<blank>`), whose `config.json` says. The search settings are the
defaults of `translate_batch`: two beams, and the length penalty 1.

## Marian

```
clearhead import opus-2020-02-26 -o models/de-en
```

reads Marian's own files: the `.npz` file, from which only arrays of numbers are read, the vocabularies (`.spm`, or
`.yml` with `source.spm` and `target.spm`, as published by OPUS-MT) and `decoder.yml`, which names them; without
`decoder.yml`, the file itself names them. Marian's sinusoids have tensor2tensor's wavelengths, and its softmax has no
padding token. The conversions of transformers and CTranslate2 use the paper's wavelengths, and that of transformers
adds a token, so a model imported through them gives slightly different scores.

## Same translations, measured

Multi30k, German to English, a `tiny` model after 1,527 steps, the 1,000 lines of test2016, beam 4, each library's
search beside ours with the same power of the length:

| library | length penalty 0.6 | no penalty |
| --- | --- | --- |
| transformers | the same text for all 1,000 lines | |
| CTranslate2 | 983 | 1,000 |
| ONNX, search of the benchmark (0.6 also in Optimum) | 1,000 | 1,000 |

In 8-bit integers the ONNX files write the same text for 871 and 867 lines, with BLEU 39.4 beside 39.3. CTranslate2
stops as soon as four hypotheses have ended, while a longer one may still be better.

```
clearhead train --source train.de.gz --target train.en.gz --valid-source val.de.gz --valid-target val.en.gz \\
    --out runs/de-en --max-steps 1527
python bench/exports.py runs/de-en --source test2016.de.gz
```

## Kinds of models

Weights of transformers' models can be converted in both directions in Python (`clearhead.interop`: `import_state`,
`export_state`, `exportable_as`). `clearhead import` reads whole directories; `clearhead export --to hf` writes them as
the kind they were imported as, or else as the first kind that can hold the model and its vocabulary.

An encoder alone does not translate: `translator.bundle.model.hidden_states` returns the states of every layer, and
[masked_word.py](../examples/masked_word.py) fills in a `[MASK]`. A decoder alone continues a text: `translate` takes
its beginning, and returns what the model writes next, up to `decode.extra_length` tokens. Both share the model's
positions: if a beginning leaves too little room, only its end is read, at least half of the positions, and the line is
flagged.

| kind (`model_type`) | what it is |
| --- | --- |
"""


def models_page() -> str:
    """Return the page of other libraries' models."""
    rows = [
        f"| `{name}` | {_cell(_first_paragraph(family.config_from).removeprefix('Return our settings of '))} |"
        for name, family in FAMILIES.items()
    ]
    libraries = [
        f"| {name} | {', '.join(f'`{kind}`' for kind in library.kinds)} | {_cell(library.layout)} | "
        f"{_cell(_first_paragraph(inspect.getmodule(library.read)))} |"
        for name, library in LIBRARIES.items()
    ]
    table = ["| library | `--kind` | the path | its models |", "| --- | --- | --- | --- |", *libraries]
    return MODELS.replace("{libraries}", "\n".join(table)) + "\n".join(rows) + "\n"


def _first_paragraph(documented: object) -> str:
    """Return the first paragraph of a docstring."""
    text = inspect.getdoc(documented)
    assert text is not None
    return text.split("\n\n")[0]


CONCEPTS_PAGE = """# Concepts

What notes on *Attention Is All You Need* explain, each with a picture, a short program, and what it prints in a few
seconds. For example, `clearhead paper concepts soft-dictionary` prints

```
a dictionary: {{'apple': 10.0, 'banana': 5.0, 'chair': 2.0}} -> apple is 10.0 and fruit is an error
a soft dictionary: apple is 1.0 x 10 + 0.0 x 5 + 0.0 x 2 = 10
a soft dictionary: fruit is 0.6 x 10 + 0.4 x 5 + 0.0 x 2 = 8
```

Find a concept by the words that you know:

{index}

`clearhead paper concepts NAME` shows the program and runs it; `-o DIR` also draws the picture (it needs the
[extra](install.md#extras) `plots`), and `--json` prints everything as one object. NAME may be any of the words above.
The programs are in [examples/](../examples/README.md); run or change them there. [build-up.md](build-up.md) measures
what each part is good for, on two small tasks, and [the glossary](glossary.md) has more words, each in a sentence or
two.

A colour bar with 0, 0.05, 0.25, 0.5 and 1 is not linear: half of its colours are for values below 0.25, so that small
weights can be told apart. This page is generated from `src/clearhead/paper/concepts.toml` by `docs/generate.py`.
"""


def concepts_page(parts: Mapping[Concept, ModelPart]) -> str:
    """Return the page of the concepts, with what their programs printed."""
    index = ["| words | concept |", "| --- | --- |"]
    index += [
        f"| {_in_markdown(_cell('; '.join(one.words)))} | [{one.title}](#{anchor_of(one.title)}) |" for one in CONCEPTS
    ]
    sections = [concept_section(concept, part) for concept, part in parts.items()]
    return "\n".join([CONCEPTS_PAGE.format(index="\n".join(index)), *sections])


def concept_section(concept: Concept, part: ModelPart) -> str:
    """Return the section of a concept, with what its program printed."""
    line = line_of(concept.place)
    errata = {one.number: anchor_of(heading(one)) for one in ERRATA if one.number in concept.errata}
    listed = ", ".join(f"[{number}](errata.md#{anchor})" for number, anchor in sorted(errata.items()))
    mistakes = f"- Mistakes in notes: errata {listed}\n" if errata else ""
    return f"""## {concept.title}

{_in_markdown(textwrap.fill(concept.about, 120))}

![{concept.title}](concepts/{concept.name}.svg)

```
clearhead paper concepts {concept.name}
```

prints the program, [{concept.program.name}](../examples/{concept.program.name}), and

```
{part.data["printed"]}```

- In the code: [`{line.text}`](../src/clearhead/{line.file}#L{line.number})
{mistakes}- Test: `tests/unit/paper/test_concepts.py`, `test_{concept.program.stem}`
"""


def language_table() -> str:
    """Return the table of `clearhead.text.languages`, from Unicode CLDR as Babel has it."""
    codes = {name.casefold(): code for locale in LOCALES for code, name in Locale.parse(locale).languages.items()}
    names: dict[str, list[str]] = {code: [] for code in sorted(Locale.parse("en").languages)}
    for name, code in sorted(codes.items()):
        names.setdefault(code, []).append(name)
    aliases = {alias: code for alias, code in sorted(get_global("language_aliases").items()) if alias.isalpha()}
    two_letter_codes = sorted(name for name in localedata.locale_identifiers() if len(name) == 2)
    lines = {code: "; ".join(all_names) for code, all_names in names.items()}
    plurals = {code: f"nplurals={number}; plural={rule};" for code, (number, rule) in sorted(PLURALS.items())}
    locales = map(Locale.parse, localedata.locale_identifiers())
    # Those with a country alone are written as their language is.
    right_to_left = sorted({str(one) for one in locales if one.text_direction == "rtl" and not one.territory})
    table = {
        "aliases": aliases,
        "names": lines,
        "plural_forms": plurals,
        "right_to_left": right_to_left,
        "two_letter_codes": two_letter_codes,
    }
    return json.dumps(table, ensure_ascii=False, indent=0) + "\n"


def _in_markdown(text: str) -> str:
    """Return a text that names tokens such as `<pad>`, which Markdown would take for a tag of HTML."""
    return text.replace("<", r"\<")


def pictures() -> dict[str, str]:
    """Return figures 1 and 2 of the base model as SVG, by the name of their file in `pictures/`."""
    parts = (figure1(), figure2())
    return {f"{name}.svg": drawn.svg("../../src/clearhead") for part in parts for name, drawn in part.diagrams.items()}


PAGES = {
    "api.md": api_page,
    "commands.md": commands_page,
    "errata.md": errata_page,
    "exercises.md": exercises_page,
    "explain.md": explain_page,
    "glossary.md": glossary_page,
    "models.md": models_page,
    "paper.md": paper_page,
    "settings.md": settings_page,
    "statements.md": statements_page,
}


def _is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _table(section: type[Settings], fields: dict[str, object]) -> list[str]:
    rows = ["| setting | default | meaning |", "| --- | --- | --- |"]
    descriptions = section.descriptions()
    for name, field in fields.items():
        default = "*none*" if field.default is None else f"`{field.default!r}`"
        rows.append(f"| `{name}` | {default} | {_cell(descriptions[name])} |")
    return rows


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    for name, page in PAGES.items():
        (Path(__file__).parent / name).write_text(page(), encoding="utf-8")
    for name, picture in pictures().items():
        (Path(__file__).parent / "pictures" / name).write_text(picture, encoding="utf-8")
    LANGUAGE_TABLE.write_text(language_table(), encoding="utf-8")
    parts = {concept: concept_part(concept) for concept in CONCEPTS}
    (Path(__file__).parent / "concepts.md").write_text(concepts_page(parts), encoding="utf-8")
    for concept, part in parts.items():
        file = Path(__file__).parent / "concepts" / f"{concept.name}.svg"
        file.write_bytes(draw(part.figures[concept.name], "svg"))
