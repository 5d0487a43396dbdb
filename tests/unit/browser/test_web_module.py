"""The package for npm that `export --to web --module` writes, in Node.js and in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import commands
from browsers import served
from clearhead.bundle import load_bundle, save_bundle
from clearhead.translation.golden import make_golden
from clearhead.translation.translator import Translator

SIZES = {"d_model": 64, "num_heads": 2, "d_ff": 128, "num_encoder_layers": 1, "num_decoder_layers": 2}
LINES = ["", "Delete <b>%s</b>? {count} of %s", "Żółta łódź 😆 12,50 €", "... 12345", "犬が走る。"]
CALLS = """import { load } from "./de-en/index.js";
import { readFileSync } from "node:fs";

const caught = (promise) => promise.then(() => null, ({ message }) => message);
const translator = await load();
const lines = readFileSync("lines.txt", "utf8").split("\\n").slice(0, -1);
const [answers, again] = await Promise.all([translator.translate(lines), translator.translate(lines[0], { nbest: 3 })]);
const [{ text: around }] = await translator.translate([` \\t${lines[0]}\\n${lines[1]}\\n`]);
const unscored = await translator.translate(lines, { beam: 1, scores: false });
const greedy = await translator.translate(lines, { beam: 1, alignments: true });
const ended = new AbortController();
setTimeout(() => ended.abort(new Error("enough")));
const errors = [
  await caught(translator.translate(["a", null])),
  await caught(translator.translate("a", { beams: 2 })),
  await caught(translator.translate("a", { beam: 0 })),
  await caught(translator.translate(lines, { beam: 64, signal: ended.signal })),
  await caught(load({ base: "file:///nowhere/" })),
  await caught(load({ base: new URL("damaged/", import.meta.url) })),
];
translator.dispose();
errors.push(await caught(translator.translate("a")));
const isKept = around === ` \\t${answers[0].text}\\n${answers[1].text}\\n`;
const isSame = greedy.every(({ text }, at) => text === unscored[at].text && unscored[at].score === null);
const own = { module: await import("./de-en/index.js"), Translator: translator, Translation: greedy[0] };
const names = Object.fromEntries(Object.entries(own).map(([name, value]) => [name, Object.keys(value)]));
process.stdout.write(JSON.stringify({ answers, again, errors, isKept, isSame, names }));
"""
ERRORS = (
    "^a text must be a string, not null$",
    "^unknown option 'beams'; the options are ",
    "^beam must be a whole number from 1 to 1000, not 0$",
    "^enough$",
    "no such file or directory.*nowhere",
    r"^the file model\.safetensors is damaged \(its checksum is wrong\)$",
    "^the translator was disposed of",
)
PAGE = """<script type="module">
import { load } from "./index.js";
window.shares = [];
window.translator = await load({ base: new URL("./", location), onProgress: (share) => shares.push(share) });
</script>"""


@pytest.fixture(scope="module")
def model(make_bundle, tmp_path_factory) -> Path:
    """Return the directory of a small model with golden sentences."""
    directory = tmp_path_factory.mktemp("models") / "de-en"
    bundle = make_bundle(placeholders=True, info={"data": {"languages": ["de", "en"]}}, **SIZES)
    save_bundle(directory, bundle, golden=make_golden(Translator(bundle)), card="# A small model\n")
    return directory


@pytest.fixture(scope="module")
def lines(sentences) -> list[str]:
    return [*sentences, *LINES]


@pytest.fixture(scope="module")
def project(model, lines, tmp_path_factory) -> Path:
    """Return the folder of a project with the package, and with lines to translate."""
    directory = tmp_path_factory.mktemp("project")
    (directory / "lines.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    printed = commands.run("export", model, "-o", directory / "de-en", "--to", "web", "--module")
    assert f'use      npm install {directory / "de-en"}, then import {{ load }} from "de-en"' in printed
    return directory


@pytest.fixture
def node(project) -> Callable[[str], str]:
    """Return a function that runs a module in the project and returns what it prints."""
    path = shutil.which("node")
    if path is None:
        pytest.skip("there is no node on the PATH")

    def run(text: str) -> str:
        (project / "main.mjs").write_text(text, encoding="utf-8")
        done = subprocess.run([path, "main.mjs"], cwd=project, capture_output=True, text=True, encoding="utf-8")
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


def test_the_package_holds_what_its_package_json_says(project):
    package = json.loads((project / "de-en" / "package.json").read_text(encoding="utf-8"))
    files = {path.name for path in (project / "de-en").iterdir()}
    assert {*package["files"], "package.json"} == files
    assert {path.removeprefix("./") for path in package["exports"]["."].values()} == {"index.js", "index.d.ts"} & files
    assert package.items() >= {"name": "de-en", "type": "module", "license": "Apache-2.0"}.items()
    assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
    assert "Apache License" in (project / "de-en" / "LICENSE").read_text()


def test_the_example_of_the_readme_prints_what_it_says(project, node):
    (project / "node_modules").mkdir()
    (project / "node_modules" / "de-en").symlink_to(project / "de-en", target_is_directory=True)
    [example] = re.findall("```js\n(.*?)```", (project / "de-en" / "README.md").read_text("utf-8"), re.DOTALL)
    [said] = re.findall(r'// (".*")\n', example)
    assert node(example) == json.loads(said) + "\n"


def test_node_translates_as_the_command_and_throws_errors(model, project, node, lines):
    damaged = shutil.copytree(project / "de-en", project / "damaged", dirs_exist_ok=True)
    content = (damaged / "model.safetensors").read_bytes()
    (damaged / "model.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    found = json.loads(node(CALLS))
    commands.run("translate", model, project / "lines.txt", "-o", project / "out.txt")
    written = "".join(f"{answer['text']}\n" for answer in found["answers"])
    assert written.encode() == (project / "out.txt").read_bytes()
    [best] = Translator(load_bundle(model)).translate(lines[:1], num_best=3)
    assert [one["text"] for one in found["again"]["alternatives"]] == [one.text for one in best.alternatives]
    assert found["again"]["score"] == pytest.approx(best.score, abs=1e-3)
    assert found["isKept"]
    assert found["isSame"]
    for said, wanted in zip(found["errors"], ERRORS, strict=True):
        assert re.search(wanted, said), said
    assert_types((project / "de-en" / "index.d.ts").read_text(), found["names"], found["errors"][1])


def assert_types(types: str, names: dict[str, list[str]], options: str) -> None:
    """Compare the names in index.d.ts with those of the running module, and with the options it lists."""
    interfaces = dict(re.findall(r"export interface (\w+) \{\n(.*?)\n\}", types, re.DOTALL))
    named = {name: re.findall(r"^  (?:readonly )?(\w+)\??[:(]", body, re.M) for name, body in interfaces.items()}
    assert re.findall(r"export (?:function|const|class) (\w+)", types) == names.pop("module") == ["load"]
    names["TranslateOptions"] = options.partition("are ")[2].split(", ")
    assert {name: set(named[name]) for name in names} == {name: set(own) for name, own in names.items()}


def test_a_browser_translates_as_python_to_the_last_bit(browser, model, project, lines):
    shutil.copytree(project / "de-en", project / "site")
    (project / "site" / "index.html").write_text(PAGE)
    page, asked = browser.new_page(), []
    page.on("request", lambda one: asked.append(one.url))
    with served(project / "site") as address:
        page.goto(address)
        page.wait_for_function("() => globalThis.translator")
        found = page.evaluate("(lines) => translator.translate(lines)", lines)
        assert page.evaluate("shares.at(-1)") == 1
        assert {url for url in asked if not url.startswith(address)} == set()
    page.close()
    own = Translator(load_bundle(model)).translate(lines, one_line=True)
    assert [(one["text"], one["score"]) for one in found] == [
        (one.text, None if one.score is None else round(one.score, 6)) for one in own
    ]
