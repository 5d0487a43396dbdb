"""Files and models that the calls of bench/outputs.py read: texts, pairs, documents, tables of terms, trained models.

Everything is made by this file and by the clearhead that is recorded, through its commands alone, so that it can be
made with any commit. Nothing here is random: the corpus is drawn with a fixed seed, and training is repeatable.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
FRENCH = ["zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf"]

TEXTS: Mapping[str, str] = {
    "empty": "",
    "blank": "\n \n\t\n\u3000\n",
    "words": "drei null eins\nneun acht sieben sechs\nzwei\n",
    "sentence": "Drei null eins. Sieben acht!\nVier fünf? Sechs, sieben: acht; neun.\n",
    "upper": "DREI NULL EINS\nNEUN ACHT. SIEBEN SECHS!\n",
    "titles": "Drei Null Eins\nNeun acht SIEBEN sechs\n",
    "long": "drei null eins vier " * 30 + "\n" + "Acht neun. " * 40 + "\n",
    "repeated": "acht acht acht acht acht acht acht acht acht acht acht acht\n" * 2,
    "abbreviations": "Dr. Eins, z. B. zwei, usw. und drei am 3. Mai. Nr. 5 ist acht.\n",
    "unknown": "Ein Hund rennt über die Wiese.\nThe quick brown fox\n",
    "accents": "Żółta łódź płynie.\nÇa coûte fünf œufs à Besançon\n",
    "combining": "fu\u0308nf x\u0301\u0323 zwo\u0308lf\nA\u030angstro\u0308m\n",
    "cjk": "犬が走る。猫も走る。\n三只猫在跑。\n두 마리의 개\n",
    "thai": "สุนัขวิ่ง\n",
    "rtl": "שלושה כלבים eins\nثلاثة كلاب \u202bzwei\u202c drei\n",
    "emoji": "drei 👩‍👩‍👧‍👦 eins 🇩🇪 👍🏽\n😀\n",
    "numbers": "7 8 9\n1.234,50 € am 03.05.2018\nzwei 3 vier 55\n٣ drei\n",
    "placeholders": "Öffne {name} und %s\n%1$d von {{count}} drei\n$HOME ${x} :id\n%(eins)s\n",
    "icu": "{n, plural, one {eins} other {# zwei}}\n{x, select, a {drei} other {vier}} fünf\n",
    "markup": "<b>drei</b> null <a href='x'>eins</a>\n<g1>vier <x2/></g1> fünf &amp; sechs\n",
    "broken_markup": "<b>drei </i> eins\n</p> zwei <br\nacht < neun > sieben\n",
    "addresses": "https://example.org/a?b=1 eins\nmail@example.org zwei README.txt\n",
    "tabs": "drei\tnull\teins\n\tvier\t\n",
    "controls": "drei\x01null\x1b[31m eins\x07\nzwei\x7fdrei\n",
    "spaces": "  drei   null \u00a0eins\u2009 \nzwei\u200bdrei\ufeff vier\n",
    "line_ends": "drei\r\nnull\u2028eins\x85zwei\rvier\n",
    "special": "<s> drei </s> <pad> <unk>\n<2en> eins\n▁zwei ## @@ drei\n",
    "quotes": "„drei“ «null» \"eins\" ‚zwei‘ 'vier' — fünf…\n- acht\n* neun\n1. sieben\n",
    "no_end": "drei null eins\nvier",
}  # fmt: skip
"""Texts of all kinds by name; each is a file of texts/."""

DOCUMENTS: Mapping[str, str] = {
    "page.html": (
        "<!DOCTYPE html>\n<html lang='de'><head><title>Drei null</title><meta name='description' content='Eins zwei'>\n"
        "<script>var drei = 'null';</script></head><body><h1>Vier <em>fünf</em> sechs</h1>\n"
        "<p title=\"acht\">Drei <a href='x'>null <b>eins</b></a>.<br>Zwei &amp; drei &copy; &#8364;</p>\n"
        "<ul><li>eins<li>zwei</ul><pre>drei null</pre><p translate=no>vier</p><img alt='neun acht'>\n"
        "<p>Drei 犬 %s {name} <code>x</code> sieben</body></html>\n"
    ),
    "fragment.htm": "drei <b>null</b> eins\n<p>vier\n",
    "strict.html": (
        '<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml"><body><p>Drei <br/> null</p></body></html>\n'
    ),
    "readme.md": (
        "---\ntitle: drei\n---\n# Drei null\n\nEins **zwei** und _drei_, `code` [vier](https://x.org 'fünf').\n\n"
        "- sechs\n- [ ] sieben\n  1. acht\n\n> [!NOTE]\n> neun null\n\n| eins | zwei |\n| --- | --- |\n| drei | 4 |\n\n"
        '```\nfünf\n```\n\n!!! note "Acht"\n    neun\n\n:::tip[Sechs]\nsieben\n:::\n\n<p>Acht <b>neun</b></p>\n\n'
        "Wort[^1]\n\n[^1]: drei null\n\n[eins](#drei-null) $$x$$ {{ y }} ![bild drei](a.png)\\\nvier *\n"
    ),
    "strings.json": (
        '{"title": "Drei null", "id": 7, "list": ["eins", "zwei", null],'
        '"button": {"label": "Vier {name}", "key": "x"},\n'
        ' "empty": "", "title": "acht", "code": "$1", "half": "\\ud83d", "escaped": "f\\u00fcnf"}\n'
    ),
    "messages.po": (
        'msgid ""\nmsgstr ""\n"Language: en\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
        '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n# Kommentar\n#: a.c:1\nmsgid "drei null"\nmsgstr ""\n\n'
        'msgid "eins"\nmsgstr "one"\n\n#, fuzzy\nmsgid "zwei\\n"\nmsgstr "old\\n"\n\n#, c-format\nmsgid "%d acht %s"\n'
        'msgstr ""\n\nmsgctxt "menu"\nmsgid "vier"\nmsgid_plural "%d fünf"\nmsgstr[0] ""\nmsgstr[1] ""\n\n'
        '#~ msgid "alt"\n#~ msgstr "old"\n'
    ),
    "template.pot": (
        'msgid ""\nmsgstr ""\n"Language: \\n"\n"Content-Type: text/plain; charset=CHARSET\\n"\n'
        '"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"\n\nmsgid "drei null"\nmsgstr ""\n'
    ),
    "units.xlf": (
        '<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n'
        '<file original="a" source-language="de" target-language="en" datatype="plaintext"><body>\n'
        '<trans-unit id="1"><source>drei <g id="1">null</g> eins</source></trans-unit>\n'
        '<trans-unit id="2"><source>zwei</source><target state="final">two</target></trans-unit>\n'
        '<trans-unit id="3"><source>vier<x id="2"/> fünf</source><target state="needs-translation">x</target>'
        '</trans-unit>\n<trans-unit id="4" translate="no"><source>sechs</source></trans-unit>\n'
        '<trans-unit id="5" maxwidth="4" size-unit="char"><source>sieben acht</source></trans-unit>\n'
        '<trans-unit id="6"><source>a b</source><seg-source><mrk mtype="seg" mid="1">eins.</mrk> '
        '<mrk mtype="seg" mid="2">zwei.</mrk></seg-source></trans-unit>\n</body></file></xliff>\n'
    ),
    "units2.xliff": (
        '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="de" trgLang="en">\n<file id="f">'
        '<unit id="u1"><segment id="s1"><source>drei <pc id="1">null</pc></source></segment>\n'
        '<segment id="s2" state="final"><source>eins</source><target>one</target></segment></unit>\n'
        '<unit id="u2"><segment><source>vier <ph id="2"/> <mrk id="m" translate="no">fünf</mrk></source></segment>'
        "</unit></file></xliff>\n"
    ),
    "trados.sdlxliff": (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" '
        'xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0">\n<file original="a" source-language="de" '
        'target-language="en" datatype="x"><body><trans-unit id="1"><source>eins. zwei.</source>'
        '<seg-source><mrk mtype="seg" mid="1">eins.</mrk> <mrk mtype="seg" mid="2">zwei.</mrk></seg-source>'
        '<target><mrk mtype="seg" mid="1"/> <mrk mtype="seg" mid="2"/></target>'
        '<sdl:seg-defs><sdl:seg id="1" locked="true"/><sdl:seg id="2"/></sdl:seg-defs>'
        "</trans-unit></body></file></xliff>\n"
    ),
    "memory.tmx": (
        '<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="de" datatype="plaintext" segtype="sentence" '
        'o-tmf="x" adminlang="en" creationtool="x" creationtoolversion="1"/><body>\n'
        '<tu><tuv xml:lang="de"><seg>drei null</seg></tuv><tuv xml:lang="en"><seg>three zero</seg></tuv></tu>\n'
        '<tu><tuv xml:lang="de"><seg>vier <ph x="1">&lt;br/&gt;</ph> fünf</seg></tuv></tu>\n'
        '<tu><tuv xml:lang="de"><seg>acht <bpt i="1"/>neun<ept i="1"/></seg></tuv></tu>\n</body></tmx>\n'
    ),
    "film.srt": (
        "1\n00:00:01,000 --> 00:00:02,000\nDrei null\neins zwei.\n\n2\n00:00:03,000 --> 00:00:04,500\n"
        "<i>- Vier fünf?</i>\n- Sechs!\n\n3\n00:00:05,000 --> 00:00:06,000\n{\\an8}MARIA: acht neun\n"
    ),
    "film.vtt": (
        "WEBVTT\n\nNOTE drei\n\n1\n00:01.000 --> 00:02.000 align:left\n<v Maria>Drei <c.red>null</c></v>\n\n"
        "00:03.000 --> 00:04.000\nvier &amp; <00:03.500>fünf\n"
    ),
    "table.csv": 'id;name;text\n1;"drei; null";\n2;vier;four\n3;;\n4;"fünf ""sechs""";\n',
    "table.tsv": "de\ten\ndrei null\t\neins\tone\nzwei\t\n",
    "letter.txt": "Drei null eins\nzwei drei.\n\n> vier fünf\n> sechs\n\n- sieben\n- acht\n  neun\n\n1. eins\n\n***\n",
    "plural.json": '{"n": "{n, plural, one {eins Hund} other {# zwei}}", "plain": "drei %d {x} <b>vier</b>"}\n',
}
"""Documents by name; each is a file of documents/."""

BROKEN: Mapping[str, bytes] = {
    "broken.json": b'{"a": "drei"',
    "broken.po": b'msgid "drei"\n',
    "broken.xlf": b'<xliff version="1.2"><file>',
    "broken.tmx": b"<tmx><body><tu>\x00</tu></body></tmx>",
    "forbidden.xlf": b'<xliff version="1.2"><file original="a" source-language="de" datatype="x"><body>'
    b'<trans-unit id="1"><source>drei &#x1E;</source></trans-unit>'
    b'<trans-unit id="2"><source>eins</source></trans-unit></body></file></xliff>',
    "broken.srt": b"1\n00:00:xx --> 00:00:02,000\ndrei\n",
    "broken.docx": b"PK\x03\x04 not a zip",
    "notes.yml": b"title: drei\n",
    "not_utf8.txt": b"drei \xff\xfe null\n",
    "markup.txt": b"<?xml version='1.0'?><a>drei</a>\n",
    "utf16.html": "<p>drei f\u00fcnf</p>".encode("utf-16"),
    "latin1.html": '<meta charset="iso-8859-1"><p>f\u00fcnf drei \u732b</p>'.encode("latin-1", "xmlcharrefreplace"),
    "entities.xlf": b'<!DOCTYPE x [<!ENTITY e "drei">]><xliff version="1.2"><file original="a" source-language="de" '
    b'datatype="x"><body><trans-unit id="1"><source>&e;</source></trans-unit></body></file></xliff>',
    "text.txt.gz": gzip.compress(b"drei null\neins\n", mtime=0),
    "text.txt.xz": b"no xz",
}
"""Damaged documents, and others that are no UTF-8, by name."""

TABLES: Mapping[str, str] = {
    "terms/terms.tsv": "drei\ttrio\nnull eins\tnil-one\nacht\teight\tocto\n",
    "terms/none.tsv": "",
    "terms/malformed.tsv": "drei\nnull\t\n",
    "terms/hard.tsv": "犬\t狗\nNull\tZERO\nzwei drei\ttwothree\nzwei\ttwain\n",
    "pairs/few.tsv": "drei null\tthree zero\neins\tone\nvier fünf sechs\tfour five six\nneun\tnine\n",
    "pairs/few.csv": 'source,target\n"drei, null",three zero\neins,"one ""1"""\n',
    "pairs/named.csv": "fr;en;de\nun;one;eins\ndeux;two;zwei\n",
    "pairs/few.jsonl": '{"translation": {"de": "eins", "en": "one"}}\n{"translation": {"de": "zwei", "en": "two"}}\n',
    "pairs/anki.txt": "#separator:tab\n#html:true\n#columns:Front\tBack\n<b>eins</b>\tone&nbsp;1\n",
    "pairs/few.po": 'msgid ""\nmsgstr "Language: en\\n"\n\nmsgid "eins"\nmsgstr "one"\n\n#, fuzzy\nmsgid "zwei"\n'
    'msgstr "x"\n\nmsgid "drei"\nmsgstr ""\n',
    "pairs/few.de": "eins\nzwei drei\n\nvier\n",
    "pairs/few.en": "one\ntwo three\n\nfour\n",
    "pairs/short.en": "one\n",
    "pairs/few.links": "0-0\n0-0 1-1\n\n0-0\n",
    "pairs/gold.links": "0-0\n0-0 1?1\n\n0-0\n",
    "pairs/malformed.tsv": "drei null\nvier\tfour\n",
    "pairs/film.de.srt": "1\n00:00:01,000 --> 00:00:02,000\ndrei null\n\n2\n00:00:03,000 --> 00:00:04,000\neins\n",
    "pairs/film.en.vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\nthree zero\n\n00:03.100 --> 00:04.000\none\n",
    "pairs/three.tmx": '<tmx version="1.4"><header srclang="de"/><body>'
    + "".join(
        "<tu>" + "".join(f'<tuv xml:lang="{name}"><seg>{one}</seg></tuv>' for name, one in unit.items()) + "</tu>"
        for unit in (
            {"de": "eins", "en": "one", "fr": "un"},
            {"de": "zwei", "en": "two"},
            {"de": "drei <ph/>", "en": "three"},
        )
    )
    + "</body></tmx>",
    "pairs/messy.tsv": "".join(
        f"{source}\t{target}\n"
        for source, target in (
            *((f"drei {GERMAN[n]} vier", f"three {ENGLISH[n]} four") for n in range(10)),
            ("eins", "eins"),
            ("eins", "one"),
            ("eins", "one"),
            ("fÃ¼nf KÃ¶nige und sechs MÃ¤nner", "five kings and six men"),
            ("vier &amp; fünf", "four &amp; five"),
            ("Das ist ein ziemlich langer deutscher Satz über den Hund.", "7"),
            ("", "blank source"),
            ("Öffne {name}", "Open it"),
            ("The weather is nice today, and we are going out.", "Das Wetter ist heute schön, und wir gehen raus."),
            ("привет мир как дела", "hello"),
            ("zwei\u00adfel", "dou\u200bbt"),
            ("7 8 9", "7 8"),
        )
    ),
    "pairs/held_out.tsv": "drei vier vier\tthree four four\neins\tone\n",
}
"""Tables of terms, files of pairs and others by path."""


def corpus(count: int = 400, target: list[str] = ENGLISH, mark: str = "") -> str:
    """Return pairs of numbers in words, tab-separated: bare, as sentences, with digits and with a placeholder."""
    choose, lines = random.Random(20170612), {}
    while len(lines) < count:
        digits = [choose.randrange(10) for _ in range(choose.randrange(1, 6))]
        sides = [" ".join(words[digit] for digit in digits) for words in (GERMAN, target)]
        match choose.randrange(8):
            case 0:
                sides = [side.capitalize() + "." for side in sides]
            case 1:
                sides = [f"{side.capitalize()}! {side.capitalize()}." for side in sides]
            case 2:
                sides = [f"{side} {digits[0]}" for side in sides]
            case 3:
                sides = [f"{side} {{name}}" for side in sides]
        lines[f"{mark}{sides[0]}\t{sides[1]}\n"] = None
    return "".join(lines)


SHAPE = (
    "model.d_model=64 model.d_ff=64 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=2 "
    "model.dropout=0.0 tokenizer.vocab_size=320 train.batch_tokens=128 train.learning_rate=1e-2 train.warmup_steps=10 "
    "train.precision='fp32' train.checkpoint_every=2 train.keep_checkpoints=2 train.average_last=2 data.valid_size=20 "
    "data.augment=false decode.extra_length=8"
)
"""Settings of a very small model, for which `SHAPE` stands in a call."""
RUNS: Mapping[str, tuple[str, int, str]] = {
    "words": ("numbers", 300, "decode.source_lang='de' tokenizer.placeholders=false"),
    "second": ("numbers", 120, "model.dropout=0.3 tokenizer.placeholders=false"),  # whose vocabulary is the same
    "tagged": ("tagged", 160, "tokenizer.language_tags='[\"en\",\"fr\"]'"),
    "marked": ("numbers", 160, "tokenizer.placeholders=true train.seed=3"),
    "wordpiece": ("numbers", 60, "tokenizer.kind='wordpiece' model.norm='post' model.positions='learned' "
        "model.max_positions=64 data.max_length=60 model.tying='none' train.optimizer='adam'"),
    "gated": ("numbers", 60, "model.gated=true model.activation='silu' model.norm_kind='rms' model.positions='rotary'"),
    "paper": ("numbers", 60, "model.d_model=20 model.d_ff=28 model.norm='post' "
        "train.optimizer='adam' train.schedule='noam' tokenizer.placeholders=false"),
}  # fmt: skip
"""Training runs by name: corpus, steps, and settings. The compiled core does not compute the last, for its widths."""
COMMANDS = (
    "export models/words -o models/int8 --to clearhead --precision int8",
    "export models/words -o models/bf16 --to clearhead --precision bf16",
    "optimize models/shortlist --source pairs/numbers.de --target pairs/numbers.en",
    "export models/words -o foreign/pegasus --to hf",
    "export models/paper -o foreign/marian --to hf",
    "export models/words -o foreign/ctranslate2 --to ctranslate2",
    "export models/gated -o foreign/onnx --to onnx",
    "import foreign/bert -o models/bert",
    "import foreign/gpt2 -o models/gpt2",
)
"""Further commands that make models, after the runs."""
KEYS = {"anna": 600, "bob": 1}
"""Requests per minute of the API keys; each key is a file of keys/."""


SETS: Mapping[str, Sequence[str]] = {"texts": [*TEXTS], "broken": [*BROKEN]}
"""Alternatives by the name that a line of a table uses, such as `«@texts»`."""


NEEDS = {"runs/words": "pairs/numbers.tsv", "train.toml": "pairs/numbers.tsv"}
"""Files that others name, by theirs."""


def write_files(root: Path) -> None:
    """Write everything that needs no model."""
    for name, text in TEXTS.items():
        _write(root / "texts" / f"{name}.txt", text.encode())
    firsts = [text.splitlines()[0] for text in TEXTS.values() if text.strip()]
    _write(root / "texts" / "mixed.txt", "".join(line[:80] + "\n" for line in firsts).encode())
    for name, text in DOCUMENTS.items():
        _write(root / "documents" / name, text.encode())
    for name, content in BROKEN.items():
        _write(root / "broken" / name, content)
    for name, text in TABLES.items():
        _write(root / name, text.encode())
    numbers = corpus()
    _write(root / "pairs" / "numbers.tsv", numbers.encode())
    for column, name in enumerate(("numbers.de", "numbers.en")):
        lines = [line.split("\t")[column] for line in numbers.splitlines()]
        _write(root / "pairs" / name, "".join(f"{line}\n" for line in lines).encode())
    links = [
        " ".join(f"{word}-{word}" for word in range(len(line.split("\t")[0].split()))) for line in numbers.splitlines()
    ]
    _write(root / "pairs" / "numbers.links", "".join(f"{line}\n" for line in links).encode())
    _write(root / "pairs" / "tagged.tsv", (corpus(300, mark="<2en> ") + corpus(300, FRENCH, "<2fr> ")).encode())
    _write(
        root / "train.toml",
        b'preset = "tiny"\nout = "run"\n[data]\npairs = ["pairs/numbers.tsv"]\n[train]\nmax_steps = 2\n',
    )
    _write_word_file(root / "documents" / "letter.docx")


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _write_word_file(path: Path) -> None:
    """Write a Word file with a paragraph of several runs, a table, a line break and a header-less style sheet."""
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{word}"><w:body><w:p><w:r><w:t>Drei </w:t></w:r><w:r><w:rPr><w:b/>'
        "</w:rPr><w:t>null</w:t></w:r><w:r><w:t> eins.</w:t><w:br/><w:t>Zwei</w:t></w:r></w:p><w:tbl><w:tr><w:tc><w:p>"
        "<w:r><w:t>vier fünf</w:t></w:r></w:p></w:tc></w:tr></w:tbl><w:p/></w:body></w:document>",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), text)


def make_materials(root: Path, command: Callable[[str], str]) -> None:
    """Write all files, and train and convert all models.

    Args:
        root: Directory to write to.
        command: Runs a command of clearhead in `root`, and returns its output.
    """
    write_files(root)
    _save_foreign(root / "foreign")
    for name, (pairs, steps, settings) in RUNS.items():
        every = f"train.validate_every={steps} train.checkpoint_every={steps // 2}"
        flags = f"--preset tiny --device cpu --threads 1 --max-steps {steps}"
        command(f"train -o runs/{name} --pairs pairs/{pairs}.tsv {flags} --set {SHAPE} {every} {settings}")
        shutil.copytree(root / "runs" / name / "model", root / "models" / name)
    shutil.copytree(root / "models" / "words", root / "models" / "shortlist")
    for line in COMMANDS:
        command(line)
    for owner, rate in KEYS.items():
        key = command(f"api-key {owner} --keys keys.jsonl --requests-per-minute {rate}")
        _write(root / "keys" / owner, key.encode())
    for name in ("pegasus", "marian"):  # without our key, it is another library's model
        _changed(root / "foreign" / name, root / "foreign" / f"{name}-own", clearhead=None)
    _damage(root / "models")


def _damage(models: Path) -> None:
    """Write damaged copies of a model."""
    words = models / "words"
    for name in ("cut", "no_tokenizer", "no_config", "mixed", "edited"):
        shutil.copytree(words, models / f"broken_{name}")
    weights = models / "broken_cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    (models / "broken_no_tokenizer" / "tokenizer.json").unlink()
    (models / "broken_no_config" / "config.json").unlink()
    shutil.copy(models / "wordpiece" / "tokenizer.json", models / "broken_mixed" / "tokenizer.json")
    golden = models / "broken_edited" / "golden.jsonl"
    golden.write_text(golden.read_text(encoding="utf-8").replace("three", "3"), encoding="utf-8")
    _changed(words, models / "broken_newer", format_version=99)
    (models / "broken_json").mkdir()
    (models / "broken_json" / "config.json").write_text('{"model_type": ', encoding="utf-8")


def _changed(source: Path, target: Path, **values: Any) -> None:
    """Copy a directory with other values in its config.json; None removes one."""
    shutil.copytree(source, target)
    config = json.loads((target / "config.json").read_text(encoding="utf-8")) | values
    kept = {name: value for name, value in config.items() if value is not None}
    (target / "config.json").write_text(json.dumps(kept, indent=2), encoding="utf-8")


def _save_foreign(root: Path) -> None:
    """Write an encoder alone and a decoder alone of transformers, with random weights and the plainest vocabularies."""
    import tokenizers
    import torch
    import transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GERMAN, *ENGLISH, "Ein", "Hund", "."]
    characters = ["<|endoftext|>", *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())]
    bert = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    gpt2 = {"n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    models = {
        "bert": (transformers.BertForMaskedLM, transformers.BertConfig(vocab_size=len(words), **bert)),
        "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config(vocab_size=len(characters), **gpt2)),
    }
    for name, (kind, config) in models.items():
        torch.manual_seed(1)
        model = kind(config).eval()
        with torch.no_grad():
            for weight in model.parameters():  # sharp enough that no two continuations tie
                weight.mul_(8.0 if weight.dim() == 2 else 1.0)
        model.save_pretrained(root / name)
    _write(root / "bert" / "vocab.txt", "".join(f"{word}\n" for word in words).encode())
    _write(root / "bert" / "tokenizer_config.json", b'{"tokenizer_class": "BertTokenizer", "do_lower_case": false}')
    numbered = {character: number for number, character in enumerate(characters)}
    _write(root / "gpt2" / "vocab.json", json.dumps(numbered).encode())
    _write(root / "gpt2" / "merges.txt", b"#version: 0.2\n")
