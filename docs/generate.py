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
from clearhead.runtime.version import NUMBER
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
    lines = COMMANDS.format(version=NUMBER).splitlines()
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
            rows.append(f"| `{_cell(label)}` | {_cell(parameter.help or '')} |")
        for panel, rows in panels.items():
            lines += ["", f"| {panel} | |", "| --- | --- |", *rows]
    return lines


MODELS = """# Models of other libraries

`clearhead import` turns a published model of another library into a model directory; `clearhead export` writes a
model for Hugging Face transformers, CTranslate2 or ONNX, as a [web page](web.md), or in a quarter of its size. If the
other library is installed, both compare the two models first. This page is generated by
`docs/generate.py`.

```
clearhead import opus-mt-de-en -o models/de-en
clearhead translate models/de-en < input.txt > output.txt
```

## Import

The path is a directory or a file of one of these libraries. The file names show which one; `--kind` overrides that.

{libraries}

The result is a model directory like any other, also for `train --from`, which keeps its shape and vocabulary. A
setting or variable that our model cannot express is an error that names it. In Python,
`clearhead.import_model(path, output)` and `clearhead.export_model(model, output, to="ctranslate2")` do the same and
return the proof and the notes.

**Nothing in a directory is run, and nothing is downloaded.** Weights of transformers are `model.safetensors`, whole
or in shards, or `pytorch_model.bin`. A pickle (`.pt`, `.bin`, `.ckpt`) that names anything but tensors, plain
containers and the toolkits' own classes is refused, and these classes become plain records. An import takes time and
memory about linear in the size of the files:

| what | at most |
| --- | --- |
| tensors in a safetensors file; axes of a tensor | 100,000; 8 |
| YAML and pickles: nesting; size with repeated parts written out | 64 levels; 16 times the file, or 1,000,000 if more |
| `tokenizer.json`: pieces; merges; added tokens | 1,000,000 each |
| `tokenizer.json`: how much its normalization and splitting may lengthen a text | 64 times |
| `tokenizer.json`: patterns | characters and classes, of which the last of an alternative may be repeated without end |

**Proof.** With the [extra](install.md#extras) `interop`, the import translates golden sentences, made of the
vocabulary's words, and compares with the library. With transformers these are the ids of the source, the
log-probability of our translation, the text of its ids, and what `generate` finds; with CTranslate2, the
log-probabilities. The first difference is an error, and nothing is written. Models of Marian and the toolkits are
imported unproved, and their card says so; those of fairseq 0.12.2, OpenNMT-py 2.3.0 and 3.5.1, eole 0.6.4 and JoeyNMT
2.3.0 were within 1e-6 of their own forward pass.

### What an imported model does

- **Languages.** M2M100, NLLB and mBART have a token of each language, Marian one before the source (`>>deu<<`). Use
  the model's own names (`de`, `deu_Latn`, `de_DE`) in `--source-lang` and `--target-lang`, or in a tag before a line,
  such as `<2deu_Latn> ` or `>>deu<< `. These tokens do not count in scores. NLLB and M2M100 must name theirs in
  `tokenizer.json`, `tokenizer_config.json` or `special_tokens_map.json`.
- **Tasks.** T5 and Flan-T5 read their task at the beginning of every line (`translate English to German: `). The import
  names the tasks that a directory lists.
- **Vocabulary.** It is kept exactly, with what it loses: unknown characters, letter case, runs of spaces. A special
  token written in a text, such as `</s>` or `en_XX`, is text (but for other programs that read the exported tokenizer).
  A token added in fine-tuning (`tokenizer.add_tokens`) is one id where a text has it; other special tokens are so only
  if the import names them: `--markers '<hl>,<sep>'`.
- **Search.** The number of beams and the length penalty are imported, in their form (`power`). From transformers also
  the start, forced and end tokens, `min_length`, `min_new_tokens` and `no_repeat_ngram_size`, from
  `generation_config.json` before `config.json`. Several end tokens are refused, and so is a forced token that is no
  language where the model needs one. Other settings that change the output are named by the import
  (`repetition_penalty`, `suppress_tokens`, `clean_up_tokenization_spaces`, ..). Our search stops as with
  `early_stopping="never"`, and ends [repetition loops](decoding.md).
- **Normalization.** The [Unicode form](translation.md#the-same-text-in-another-unicode-form) is normalized, case and
  white space are not. Only lines longer than the model's positions are split.
- **An encoder alone** does not translate: `translator.bundle.model.hidden_states` returns the states of every layer,
  and [masked_word.py](../examples/masked_word.py) fills in a `[MASK]`.
- **A decoder alone** continues a text, by up to `decode.extra_length` tokens. If a beginning leaves too few positions,
  only its end is read, at least half of the positions, and the line is flagged.

### Notes on single libraries

- **Toolkits** have vocabularies of words between spaces. A file of subword-nmt (0.1 and 0.2), fastBPE or sentencepiece
  beside the checkpoint splits them (fairseq: `bpecodes`, `code`, `codes`, `*.model`, or one for each language, such as
  `codes.de`; JoeyNMT and eole: the files that their configuration names). Without one, words are looked up unchanged,
  and `@@ ` is joined in the output. If the files do not say whether the training text was tokenized by Moses, the
  import says so: such text must be tokenized before and detokenized after.
- **CTranslate2.** Version 6 of `model.bin` (CTranslate2 3 and 4) of OPUS-MT, OpenNMT, fairseq or transformers, T5 and
  rotary positions included. Weights in 8 or 16 bits become float32. Put the tokenizer beside it: `tokenizer.json`;
  `source.spm` and `target.spm`; or `sentencepiece.bpe.model`, `sentencepiece.model` or `spiece.model`. If it does not
  say which tokens surround a source, a source ends with the end token (models of OpenNMT: as `config.json` says). The
  search is the default of `translate_batch`: two beams, length penalty 1. UMT5 is refused. CTranslate2's converter
  (4.8.5) with transformers 5 wrongly divides the output of T5 1.1, Flan-T5 and mT5 by sqrt(d_model): import these from
  transformers.
- **Marian.** The `.npz` file, the vocabularies (`.spm`, or `.yml` with `source.spm` and `target.spm`) and
  `decoder.yml`. Through transformers or CTranslate2, scores differ slightly.
- **ONNX.** Only files that clearhead exported, in float32.

## Small models

```
$ clearhead export runs/de-en -o de-en-small --to clearhead --precision int8 --source test2016.de --target test2016.en
read     runs/de-en
written  de-en-small, a model in int8, 3.0 MB
compared 873 of 1,000 lines are translated alike
compared BLEU 37.18 before, 37.34 after (nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0)
compared chrF2 55.57 before, 55.72 after (nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0)
```

writes a model directory in about a quarter (`--precision int8`) or half (`bf16`) of the size, for every command.
Neither needs PyTorch. Matrices and embeddings are rounded; norms, biases and tables of positions stay in float32.

- **Translation** uses the precision that the model was made for (in `generation_config.json`); on another device than
  the CPU, int8 translates in fp32. Scores, `--precision fp32`, explanations and exports compute in float32 with the
  rounded weights. If the compiled core does not compute the model in that precision, the export says so and keeps the
  original's.
- **Training** (`--from`) starts from the rounded weights: give it the original.
- **Comparison.** The card has the result. Without `--source`, golden sentences are compared.

Multi30k German to English (2.9 million weights, 4+4 layers of width 128; test2016, beam 4), where the embedding is a
third of the weights:

| translated in | weights | BLEU | chrF | the same as in fp32 |
| --- | --- | --- | --- | --- |
| fp32 | 11.5 MB | 37.18 | 55.57 | 1,000 lines |
| int8 (with the embedding in float32: 6.0 MB) | 3.0 MB | 37.34 (37.26) | 55.72 (55.66) | 873 (886) |
| bf16 (with the embedding in float32: 7.8 MB) | 5.8 MB | 37.21 (37.19) | 55.60 (55.57) | 970 (983) |

A model of paper-base's shape with 8,000 pieces has 193 MB in float32 and 49 MB in int8; loading it and translating a
line in int8 takes 430 MB and 192 MB of memory.

## Export

The library loads the new directory, and its results on golden sentences are compared with ours. In float32 a
difference is an error, and nothing is written; for rounded weights the export reports how much the scores differ. The
vocabulary keeps its tags: `<2fr> May 3, 2018` is read there as here. What a library cannot express is an error that
names it.

- `--to hf` (or `transformers`) writes post-norm models as Marian, pre-norm ones (`tiny`, `small`) as Pegasus, those
  with [T5's settings](paper.md#where-well-known-code-departs-from-the-paper) as T5, imported ones as the kind they
  were, with their tokenizer. It has no tokenizer for words looked up whole (fairseq, JoeyNMT).
- `--to ctranslate2` has the precisions `float32`, `float16`, `bfloat16`, `int16` and `int8`. BERT, and keys and values
  of several widths, are refused.
- `--to onnx` takes every encoder-decoder, rotary positions and RMSNorm included, in `float32` or `int8`.

Their searches divide by a power of the length, ours by the paper's penalty unless
`decode.length_penalty_form = "power"`; and ours ends repetition loops. Sinusoids become a table of
`model.max_positions` rows in transformers and CTranslate2. A model with a default target language
(`decode.target_lang`) always needs a tag there.

**transformers**: [from-transformers.md](from-transformers.md#the-other-way-a-model-of-clearhead-in-transformers-5)
loads the result.

**CTranslate2**, here for a model trained by clearhead:

```
clearhead export runs/de-en -o de-en-ct2 --to ctranslate2 --precision int8
```

```python
tokenizer = tokenizers.Tokenizer.from_file("de-en-ct2/tokenizer.json")
translator = ctranslate2.Translator("de-en-ct2")
tokens = [tokenizer.id_to_token(number) for number in tokenizer.encode("Ein Hund rennt.").ids]
[result] = translator.translate_batch([tokens])
tokenizer.decode([tokenizer.token_to_id(token) for token in result.hypotheses[0]])
```

**ONNX**:

```
clearhead export runs/de-en -o de-en-onnx --to onnx
```

writes `encoder_model.onnx`, `decoder_model.onnx` for the first step and `decoder_with_past_model.onnx` for the next
ones, for opset 20 (onnxruntime 1.17 or later). A file over 2 GiB is refused; with learned positions, a longer text is
an error of onnxruntime. A beam search over the files is `bench/onnx_search.py`; Hugging Face Optimum loads the
directory too (optimum-onnx 0.1.0, in an environment of its own, as it needs transformers before 4.58):

```python
tokenizer = transformers.AutoTokenizer.from_pretrained("de-en-onnx")
model = optimum.onnxruntime.ORTModelForSeq2SeqLM.from_pretrained("de-en-onnx")
found = model.generate(**tokenizer(["Ein Hund rennt."], return_tensors="pt"))
tokenizer.batch_decode(found, skip_special_tokens=True)
```

### A fine-tuned import

```
clearhead import opus-mt-de-en -o models/de-en
clearhead train --from models/de-en --source mine.de --target mine.en --out runs/de-en
clearhead export runs/de-en -o de-en-ct2 --to ctranslate2 --precision int8
```

It is exported with the tokenizer files it came with. For an OPUS-MT model:

```python
source = sentencepiece.SentencePieceProcessor(model_file="de-en-ct2/source.spm")
target = sentencepiece.SentencePieceProcessor(model_file="de-en-ct2/target.spm")
translator = ctranslate2.Translator("de-en-ct2")
[result] = translator.translate_batch([source.encode("Ein Hund rennt.", out_type=str)])
target.decode(result.hypotheses[0])
```

CTranslate2 adds the end token itself to sentencepiece's pieces. It takes languages as tokens, which the export prints:
before the source for Marian, NLLB, M2M100 and mBART-50 (mBART's 25 languages: after it and the end token), and the
target language as `target_prefix`, as is BART's `<s>`. In transformers these are the text's first word `>>deu<<`, the
tokenizer's `src_lang`, and `forced_bos_token_id` of `generate`.

### Export and import again

Importing an export gives the same model: weights bit for bit (CTranslate2 and ONNX: in float32), settings,
vocabulary. Changes made in between are imported, such as weights trained in transformers; a vocabulary that grew
there counts as another library's.

## Same translations, measured

Multi30k, German to English, a `tiny` model, the 1,000 lines of test2016, beam 4, each library's search beside ours with
the same power of the length; lines with the same text:

| library | length penalty 0.6 | no penalty |
| --- | --- | --- |
| transformers | 1,000 | |
| CTranslate2, which stops as soon as four hypotheses have ended | 983 | 1,000 |
| ONNX, search of the benchmark (0.6 also in Optimum) | 1,000 | 1,000 |
| ONNX in int8, with BLEU 39.4 beside 39.3 | 871 | 867 |

```
clearhead train --source train.de.gz --target train.en.gz --valid-source val.de.gz --valid-target val.en.gz \\
    --out runs/de-en --max-steps 1527
python bench/exports.py runs/de-en --source test2016.de.gz
```

## Kinds of models

`clearhead import` and `clearhead export --to hf` know these kinds of transformers; an export keeps the kind of an
import, or else takes the first that can hold the model and its vocabulary. In Python, `import_state`, `export_state`
and `exportable_as` of `clearhead.interop` convert weights alone.

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
