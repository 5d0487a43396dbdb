"""The page that `export --to web` writes, in a real browser: from disk, over HTTP, without a network, and damaged."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Error, Page, expect

from browsers import listen, serious, served
from clearhead.browser.writer import write_web
from clearhead.bundle import load_bundle, save_bundle
from clearhead.translation.golden import make_golden
from clearhead.translation.small_model import export_small
from clearhead.translation.translator import Translator

MOST_MILLISECONDS = 60_000
expect.set_options(timeout=MOST_MILLISECONDS)
SIZES = {"d_model": 64, "num_heads": 2, "d_ff": 128, "num_encoder_layers": 1, "num_decoder_layers": 2}
INFO = {"data": {"languages": ["de", "en"]}}


@pytest.fixture(scope="module")
def model(make_bundle, tmp_path_factory) -> Path:
    """Return the directory of a small model with golden sentences, in 8 bits."""
    directory = tmp_path_factory.mktemp("model")
    bundle = make_bundle(info=INFO, **SIZES)
    save_bundle(directory / "whole", bundle, golden=make_golden(Translator(bundle)), card="# A small model\n")
    export_small(load_bundle(directory / "whole"), directory / "de-en", "int8")
    return directory / "de-en"


@pytest.fixture(scope="module")
def translator(model) -> Translator:
    return Translator(load_bundle(model), model)


@pytest.fixture(scope="module")
def single(model, tmp_path_factory) -> Path:
    """Return the model as one HTML file, in 8 bits."""
    page = tmp_path_factory.mktemp("single") / "page.html"
    write_web(load_bundle(model), page, "de-en", "int8", single_file=True)
    return page


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory) -> Path:
    """Return the model as a folder, in 8 bits."""
    directory = tmp_path_factory.mktemp("folder") / "page"
    write_web(load_bundle(model), directory, "de-en", "int8", single_file=False)
    return directory


@pytest.fixture
def context(browser, complaints) -> Iterator[BrowserContext]:
    context = browser.new_context()
    context.set_default_timeout(MOST_MILLISECONDS)
    context.on("page", lambda page: listen(page, complaints))
    yield context
    context.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Return a function that serves a directory, whose files a browser keeps, and returns its address."""
    with ExitStack() as stack:
        yield lambda directory: stack.enter_context(served(directory, is_kept=True))


def opened(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    page.goto(address)
    page.wait_for_function("() => globalThis.clearhead?.ready")
    return page


def wait_until_kept(page: Page, title: str) -> None:
    """Wait until the service worker keeps the page of this title, and no other."""
    # wait_for_function takes the promise of an asynchronous function for true.
    found = page.evaluate(
        """async ([title, most]) => {
          for (const start = performance.now(); performance.now() - start < most; ) {
            await new Promise((resolve) => setTimeout(resolve, 50));
            const { active, installing, waiting } = (await navigator.serviceWorker.getRegistration()) ?? {};
            const names = await caches.keys();
            const page = active?.state === "activated" && !installing && !waiting && (await caches.match("./"));
            if (names.length === 1 && page && (await page.text()).includes(`<title>${title}</title>`)) return true;
          }
          return false;
        }""",
        [title, MOST_MILLISECONDS],
    )
    assert found, f"the page {title} was not kept alone"


def test_a_single_file_translates_by_double_click(context, complaints, single, translator, sentences):
    asked: list[str] = []
    context.on("request", lambda one: asked.append(one.url))
    page = opened(context, single.as_uri())
    texts = list(sentences[:4])
    found = [page.evaluate("(text) => clearhead.translate(text, { nbest: 3 })", text) for text in texts]
    own = translator.translate(texts, num_best=3)
    assert [one["text"] for one in found] == [one.text for one in own]
    assert [one["score"] for one in found] == pytest.approx([one.score for one in own], abs=1e-4)
    assert [[other["text"] for other in one["alternatives"]] for one in found] == [
        [other.text for other in one.alternatives] for one in own
    ]
    page.fill("#source", texts[0])
    expect(page.locator("#translation")).to_have_text(own[0].text)
    assert {url for url in asked if not url.startswith("blob:")} == {single.as_uri()}
    assert complaints == []


def test_a_folder_works_without_a_network_once_it_was_open(context, complaints, folder, translator, sentences, serve):
    address = serve(folder)
    asked: list[str] = []
    context.on("request", lambda one: asked.append(one.url))
    page = opened(context, address)
    wait_until_kept(page, "de-en: translate")
    context.set_offline(True)
    page.reload()
    page.wait_for_function("() => globalThis.clearhead?.ready")
    [own] = translator.translate([sentences[0]])
    assert page.evaluate("(text) => clearhead.translate(text)", sentences[0])["text"] == own.text
    assert {url for url in asked if not url.startswith((address, "blob:"))} == set()
    assert complaints == []


@pytest.mark.slow
def test_a_new_export_takes_the_place_of_a_kept_one(context, folder, model, tmp_path, serve):
    site = tmp_path / "site"
    shutil.copytree(folder, site)
    address = serve(site)
    page = opened(context, address)
    wait_until_kept(page, "de-en: translate")
    shutil.rmtree(site)
    write_web(load_bundle(model), site, "newer", "int8", single_file=False)
    weights = (site / "model.safetensors").read_bytes()
    truncate(site)  # as by an upload that is not done
    page.reload()
    wait_until_kept(page, "newer: translate")
    page.reload()
    expect(page).to_have_title("newer: translate")
    with pytest.raises(Error, match="was not loaded whole"):
        page.evaluate("() => clearhead.translate('a')")
    (site / "model.safetensors").write_bytes(weights)
    page.reload()
    page.wait_for_function("() => globalThis.clearhead?.ready")
    context.set_offline(True)
    page.goto(f"{address}index.html")
    page.wait_for_function("() => globalThis.clearhead?.ready")


def test_an_incomplete_file_says_so(browser, single, tmp_path):
    cut = tmp_path / "cut.html"
    cut.write_bytes(single.read_bytes()[:-1_000])
    page = browser.new_page()
    page.goto(cut.as_uri())
    expect(page.locator("body")).to_contain_text("the page was not loaded whole")
    page.goto(single.as_uri())
    expect(page.locator("body")).not_to_contain_text("the page was not loaded whole")
    page.close()


WRONG_CALLS = {
    "translate(null)": "a text must be a string, not null",
    "translate(['a'])": "a text must be a string, not object",
    "translate('a', { beam: 0 })": "beam must be a whole number from 1 to 1000, not 0",
    "translate('a', { beam: '4' })": "beam must be a whole number from 1 to 1000, not 4",
    "translate('a', { target: 'xx' })": "unknown target language 'xx'; choose en",
    "translate('a', { signal: {} })": "signal must be an AbortSignal",
    "translate('a', { beams: 4 })": "unknown option 'beams'; the options are beam, nbest, target, signal",
    "explain('a', { beam: 4 })": "unknown option 'beam'",
    "explain()": "a text must be a string, not undefined",
    "explain('a', { translation: 5 })": "a text must be a string, not number",
    "explain('a', { target: {} })": "unknown target language",
}


def test_wrong_arguments_of_a_program_are_refused(context, single):
    page = opened(context, single.as_uri())
    for call, says in WRONG_CALLS.items():
        with pytest.raises(Error, match=says):
            page.evaluate(f"() => clearhead.{call}")
    assert page.evaluate("() => clearhead.translate('a', null)")["text"]


def test_a_page_opens_with_the_languages_of_its_model_and_an_example(context, complaints, make_bundle, tmp_path):
    languages = {"language_tags": ("ar_AR", "de"), "decode": {"target_lang": "ar_AR"}}
    bundle = make_bundle(**languages, **SIZES)
    translator = Translator(bundle)
    save_bundle(tmp_path / "model", bundle, golden=make_golden(translator), card="# A small model\n")
    write_web(load_bundle(tmp_path / "model"), tmp_path / "page.html", "ar", "float32", single_file=True)
    page = opened(context, (tmp_path / "page.html").as_uri())
    expect(page.locator("#into")).to_have_value("ar_AR")
    expect(page.locator("#from")).to_have_value("de")
    expect(page.locator("#translation")).to_have_attribute("dir", "rtl")
    expect(page.locator("#source")).to_have_attribute("dir", "ltr")
    page.locator("#example").click()
    source = page.locator("#source").input_value()
    assert source.strip()
    [own] = translator.translate([source], target_lang="ar_AR")
    expect(page.locator("#translation")).to_have_text(own.text)
    assert complaints == []


def test_text_above_max_input_tokens_has_source_truncated(context, make_bundle, tmp_path):
    bundle = make_bundle(info=INFO, decode={"max_input_tokens": 7, "split": "never"}, **SIZES)
    save_bundle(tmp_path / "model", bundle, golden=make_golden(Translator(bundle)), card="# A small model\n")
    write_web(load_bundle(tmp_path / "model"), tmp_path / "page.html", "de-en", "float32", single_file=True)
    page = opened(context, (tmp_path / "page.html").as_uri())
    told = [
        page.evaluate("(text) => clearhead.translate(text)", text)["source_truncated"] for text in ("a", "a dog " * 9)
    ]
    assert told == [False, True]


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("Worker", "this browser has no web workers"),
        ("WebAssembly", "this browser has no WebAssembly"),
        ("DecompressionStream", "this browser is too old"),
    ],
)
def test_a_browser_without_what_the_page_needs_says_so(browser, single, tmp_path, sentences, missing, says):
    text = single.read_text()
    changed = tmp_path / "page.html"
    # The worker is not a script of the page, whose policy allows those alone that were not changed.
    changed.write_text(text.replace('id="worker">"', f'id="worker">"delete self.{missing}; ', 1))
    page = browser.new_page()
    page.add_init_script(f"delete globalThis.{missing}")
    page.goto(changed.as_uri())
    page.fill("#source", sentences[0])
    expect(page.locator("#message")).to_contain_text(says, ignore_case=True)
    page.close()


def test_a_tab_shows_the_inside_of_a_sentence(context, complaints, single, sentences):
    page = opened(context, single.as_uri())
    page.fill("#source", sentences[1])
    expect(page.locator("#translation")).not_to_be_empty()
    with context.expect_page() as found:
        page.locator("#inside").click()
    inside = found.value
    expect(inside.locator("#page")).to_be_visible()
    expect(inside.locator("#source-words")).to_contain_text(sentences[1].split()[0])
    assert serious(Axe().run(inside)) == []
    assert complaints == []


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_accessible_and_fits(browser, single, sentences, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(single.as_uri())
    page.fill("#source", sentences[0])
    expect(page.locator("#translation")).not_to_be_empty()
    assert serious(Axe().run(page)) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_a_new_text_ends_the_translation_of_the_last(context, single, sentences, translator):
    page = opened(context, single.as_uri())
    long = "\n".join(f"{number} {sentence}" for number in range(30) for sentence in sentences)
    page.fill("#source", long[:19_000])
    page.wait_for_timeout(400)
    page.fill("#source", sentences[0])
    [own] = translator.translate([sentences[0]])
    expect(page.locator("#translation")).to_have_text(own.text)


WITH_ANSWERS = """globalThis.answers = [];
globalThis.Worker = class extends Worker {
  constructor(address) {
    super(address);
    this.addEventListener("message", ({ data }) => answers.push(data));
  }
};"""
WITHOUT_ANSWERS = "globalThis.Worker = class extends EventTarget { postMessage() {} };"


def test_a_program_ends_a_translation(context, single, sentences, translator):
    context.add_init_script(WITH_ANSWERS)
    page = opened(context, single.as_uri())
    ended = """async ([text, isEarly]) => {
      const control = new AbortController();
      if (isEarly) control.abort();
      else setTimeout(() => control.abort());
      return clearhead.translate(text, { signal: control.signal }).catch((error) => error.name);
    }"""
    for is_early in (True, False):
        assert page.evaluate(ended, ["\n".join(sentences * 40), is_early]) == "AbortError"
    [own] = translator.translate([sentences[0]])
    assert page.evaluate("(text) => clearhead.translate(text)", sentences[0])["text"] == own.text
    # Opening, what was ended, and the last; what was ended early never came to the worker.
    found = page.evaluate("answers.filter(({ part }) => part === undefined).map(({ found }) => found !== null)")
    assert found == [True, False, True]


@pytest.mark.parametrize("name", ["translate", "explain"])
def test_a_program_ends_what_waits_for_the_model(context, single, name):
    context.add_init_script(WITHOUT_ANSWERS)
    page = context.new_page()
    page.goto(single.as_uri())
    ended = """(name) => Promise.race([
      clearhead[name]("a", { signal: AbortSignal.timeout(10) }).catch((error) => error.name),
      new Promise((resolve) => setTimeout(resolve, 10_000, "it waits")),
    ])"""
    assert page.evaluate(ended, name) == "TimeoutError"


@pytest.mark.parametrize(("missing", "notice"), [("relaxed", "takes longer"), ("simd", "several times as long")])
def test_older_browsers_take_a_slower_form(context, single, tmp_path, sentences, translator, missing, notice):
    page_without = tmp_path / "page.html"
    # The names of the forms, as the worker tries them; validation fails for the missing ones.
    text = single.read_text()
    refuse = {"relaxed": "name === 'simd' && ", "simd": "false && "}[missing]
    changed = text.replace("const takes = (name) =>", f"const takes = (name) => {refuse}", 1)
    assert changed != text
    page_without.write_text(changed.replace('id="worker">"', 'id="worker">"delete Uint8Array.fromBase64; ', 1))
    page = opened(context, page_without.as_uri())
    expect(page.locator("#notice")).to_contain_text(notice)
    found = page.evaluate("(text) => clearhead.translate(text)", sentences[0])
    [own] = translator.translate([sentences[0]])
    assert found["text"] == own.text


def damage(folder: Path, at: Path, change: Callable[[Path], Any]) -> Path:
    for file in folder.iterdir():
        (at / file.name).write_bytes(file.read_bytes())
    change(at)
    return at


def truncate(at: Path) -> None:
    (at / "model.safetensors").write_bytes((at / "model.safetensors").read_bytes()[:-5])


def flip(at: Path) -> None:
    content = bytearray((at / "model.safetensors").read_bytes())
    content[-7] ^= 1
    (at / "model.safetensors").write_bytes(content)


def other_golden(at: Path) -> None:
    page = (at / "index.html").read_text()
    changed = re.sub(r'("golden":\[\{"source":"[^"]*","text":")', r"\1something else ", page)
    assert changed != page
    (at / "index.html").write_text(changed)


def remove(at: Path) -> None:
    (at / "tokenizer.json").unlink()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (truncate, "it was not loaded whole"),
        (flip, "model.safetensors is damaged"),
        (other_golden, "nothing is translated, because other numbers are computed here"),
        (remove, "tokenizer.json cannot be read"),
    ],
    ids=["truncated", "flipped", "golden", "missing"],
)
def test_damaged_model_files_are_reported_and_disable_translation(
    browser, folder, tmp_path, serve, sentences, change, says
):
    address = serve(damage(folder, tmp_path, change))
    page = browser.new_page()
    page.goto(address)
    page.fill("#source", sentences[0])
    expect(page.locator("#message")).to_contain_text(says, ignore_case=True)
    expect(page.locator("#translation")).to_be_empty()
    assert page.evaluate("clearhead.ready") is False
    with pytest.raises(Error, match=says):
        page.evaluate("() => clearhead.translate('a')")
    page.close()


@pytest.mark.parametrize("change", [lambda piece: "!" + piece[1:], lambda piece: piece[: len(piece) // 2]])
def test_a_damaged_single_file_says_so(browser, single, tmp_path, sentences, change):
    damaged = tmp_path / "page.html"
    pattern = r'(data-file="model.safetensors" value=")([^"]*)'
    damaged.write_text(re.sub(pattern, lambda found: found[1] + change(found[2]), single.read_text(), count=1))
    page = browser.new_page()
    page.goto(damaged.as_uri())
    page.fill("#source", sentences[0])
    expect(page.locator("#message")).to_contain_text("safetensors is damaged (it cannot be unpacked)")
    assert page.evaluate("clearhead.ready") is False
    page.close()


def test_the_explanation_for_programs_has_the_keys_of_python(context, single, sentences, translator):
    from clearhead.inspection.explain import explain

    page = opened(context, single.as_uri())
    found = page.evaluate("(text) => clearhead.explain(text)", sentences[2])
    own = json.loads(json.dumps(explain(translator, sentences[2]).to_dict(packed=True)))
    assert found.keys() == {*own, "computation"}
    assert found["source_tokens"] == own["source_tokens"]
