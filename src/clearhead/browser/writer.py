"""The export of a model to a page: a folder for any web server, or one HTML file that opens by double click."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from zlib import compress, crc32

from clearhead.browser.engine import FORMS, PAGE, engine_settings
from clearhead.browser.rules import RULES, rules_module
from clearhead.browser.text import text_settings
from clearhead.bundle import Bundle
from clearhead.bundle.model_directory import require_new
from clearhead.config.known import unknown_settings
from clearhead.decoding import NativeEngine, SearchOptions, decode
from clearhead.errors import ConfigError, ModelError
from clearhead.files import keep_others, new_directory, new_file, os_error_as
from clearhead.files.arrays import array_bytes
from clearhead.inspection.explain import model_facts
from clearhead.inspection.explanation import MOST_EXACT, MOST_ROUNDED, SCHEMA_VERSION
from clearhead.inspection.head_roles import role_rules
from clearhead.inspection.head_statistics import STATISTICS
from clearhead.inspection.page import MAX_PAGE_WEIGHTS, TEXT_RULES, explain_view, text_rules_module, view_scripts
from clearhead.inspection.token_steps import NUM_CANDIDATES, NUM_LENS_CANDIDATES
from clearhead.model.rounded_weights import RoundedWeights
from clearhead.model.stored import StoredModel
from clearhead.pages import Html, content_policy, data_block, fill, joined, picture, script, style
from clearhead.text.languages import english_name, split_tag
from clearhead.text.quality_flags import KINDS
from clearhead.tokenizers import Tokenizer
from clearhead.translation.alignment import alignment_head
from clearhead.translation.golden import make_golden
from clearhead.translation.translator import Translator

MOST_BYTES = 200_000_000
"""Most bytes of the weights: more is a long download, and several times as much memory of a tab."""

MOST_CHARACTERS = 20_000
"""Most characters of a text that is translated as it is typed."""

MOST_GOLDEN = 4
"""Most golden sentences of a page, which it translates before it is ready."""

PIECE = 2**16
"""Characters of an attribute with a part of a file: Chromium reads pieces faster than one long text."""

_SETTINGS = {
    "max_texts": 50,
    "max_characters": MOST_CHARACTERS,
    "max_alternatives": 8,
    "max_file_bytes": 0,
    "takes_files": False,
    "takes_reviews": False,
    "key_required": False,
    "extensions": [],
    "warnings": {name: kind.meaning for name, kind in KINDS.items()},
}
"""What the translation page needs to know, as of a server."""

_MARK = b'<script type="application/json" id="exported-model">'
"""What every page of a model contains, and no other page."""

_FOLDER = {
    *("index.html", "model.safetensors", "tokenizer.json", "icon.svg", "manifest.webmanifest", "service-worker.js"),
    *(f"core-{form}.wasm" for form in FORMS),
}
"""Names of the files of a folder."""


def write_web(
    bundle: Bundle,
    output: Path,
    name: str,
    precision: Literal["float32", "int8"],
    *,
    single_file: bool,
    force: bool = False,
) -> dict[str, int]:
    """Write the page of a model; on an error nothing is left.

    Args:
        bundle: The model.
        output: Path of the new directory, whose page is `index.html`; or of the page itself, if it is a single file and
            the path ends in `.html`.
        name: Name of the model, for the title of the page.
        precision: Precision of the weights, and of the products with them.
        single_file: Whether the page contains everything.
        force: Whether to replace a page that exists there, a folder by a folder or a file by a file.

    Returns:
        The bytes of each file, by name.

    Raises:
        ConfigError: If a browser cannot run the model, or this installation has no core for browsers.
        ModelError: If the path exists or cannot be written, or the weights cannot be rounded.
    """
    refuse = partial(refuse_other, single_file=single_file, force=force)
    refuse(output)
    contents = _contents(bundle, name, precision, single_file=single_file)
    if _is_one_file(output, single_file=single_file):
        with os_error_as(ModelError, f"cannot write {output}"), new_file(output) as temporary:
            temporary.write_bytes(contents["index.html"])
            refuse(output)
    else:
        write_folder(output, contents, refuse, _FOLDER)
    return {file: len(content) for file, content in contents.items()}


def write_folder(
    output: Path, contents: Mapping[str, bytes], refuse: Callable[[Path], None], replaced: Collection[str]
) -> None:
    """Write the files of an export; of an earlier one in its place, only files that are not `replaced` are kept.

    Args:
        output: Path of the folder.
        contents: The files, by name.
        refuse: Raises an error if the folder may not be replaced.
        replaced: Names of the files of such an export.

    Raises:
        ModelError: If the folder cannot be written; nothing of it is left.
    """
    with os_error_as(ModelError, f"cannot write {output}"), new_directory(output, refuse=refuse) as temporary:
        for file, content in contents.items():
            (temporary / file).write_bytes(content)
        keep_others(output, temporary, replaced)


def refuse_other(output: Path, *, single_file: bool, force: bool) -> None:
    """Require that nothing is in the place of a page or, with `force`, an earlier page; arguments as of `write_web`.

    Raises:
        ModelError: If something else is there, or the place cannot be written.
    """
    is_file = _is_one_file(output, single_file=single_file)
    require_new(output, lambda path: has_mark(path if is_file else path / "index.html", _MARK), force=force)


def _is_one_file(output: Path, *, single_file: bool) -> bool:
    return single_file and output.suffix == ".html"


def has_mark(path: Path, mark: bytes) -> bool:
    """Return whether a file is there and contains what every export of its kind does, and no other file."""
    with os_error_as(ModelError, f"cannot read {path}"):
        return path.is_file() and mark in path.read_bytes()


def _contents(
    bundle: Bundle, name: str, precision: Literal["float32", "int8"], *, single_file: bool
) -> dict[str, bytes]:
    """Return the files of the page, by name."""
    small, loaded = model_files(bundle, precision)
    settings = _page_settings(small, name, loaded)
    if single_file:
        return {"index.html": _page(settings, loaded).encode()}
    page = _page(settings, {}).encode()
    parts = {**loaded, "icon.svg": picture("icon.svg").encode(), "manifest.webmanifest": _manifest(name)}
    addresses = [f"{file}?{crc32(loaded[file])}" if file in loaded else file for file in parts]  # as in web/local.js
    return {"index.html": page, **parts, "service-worker.js": _service_worker(page, addresses)}


def model_files(bundle: Bundle, precision: Literal["float32", "int8"]) -> tuple[Bundle, dict[str, bytes]]:
    """Return a bundle in a precision, and the files that translate with it in a browser: the core and the model.

    Raises:
        ConfigError: If a browser cannot run the model, or this installation has no core for browsers.
        ModelError: If the weights cannot be rounded.
    """
    modules = core_modules()
    small = in_precision(bundle, precision)
    _require_fit(small)
    arrays = StoredModel.of(small.weights).arrays
    stored = arrays.stored if isinstance(arrays, RoundedWeights) else arrays
    weights = array_bytes(stored)
    if len(weights) > MOST_BYTES:
        raise ConfigError(
            f"the weights take {len(weights) / 1e6:,.0f} MB, and a page holds at most {MOST_BYTES / 1e6:,.0f} MB; "
            f"choose --precision int8, or train a smaller model (docs/more-data.md)"
        )
    return small, {**modules, "model.safetensors": weights, "tokenizer.json": small.tokenizer.text.encode()}


def core_modules() -> dict[str, bytes]:
    """Return the modules of the core in WebAssembly, by file name.

    Raises:
        ConfigError: If this installation has none.
    """
    directory = files("clearhead.kernels")
    try:
        return {f"core-{form}.wasm": (directory / f"core-{form}.wasm").read_bytes() for form in FORMS}
    except FileNotFoundError:
        raise ConfigError(
            "this installation has no core for browsers, as it was not made by a wheel of clearhead: in the directory "
            "of its sources, run pip install setuptools ziglang and python setup.py build_web"
        ) from None


def in_precision(bundle: Bundle, precision: Literal["float32", "int8"]) -> Bundle:
    """Return the bundle with its weights in a precision, in which it also translates.

    Raises:
        ConfigError: If it is rounded already, to another precision.
        ModelError: If the weights cannot be rounded.
    """
    if bundle.precision == "bf16":
        raise ConfigError(
            "this model is in bf16 already, which no browser computes with; export the one it was made of"
        )
    if bundle.precision == "int8" and precision == "float32":
        raise ConfigError(
            "this model is in int8 already, and float32 would only make it larger; choose --precision int8"
        )
    stored = StoredModel.of(bundle.weights)
    if precision == "int8" and bundle.precision is None:
        origin = str(bundle.directory or "the model")
        stored = StoredModel(stored.config, RoundedWeights.of(stored.arrays, "int8", origin=origin))
    decode = bundle.decode.with_changes({"precision": "int8" if precision == "int8" else "fp32", "shortlist": False})
    return replace(bundle, weights=stored, decode=decode)


def _require_fit(bundle: Bundle) -> None:
    """Make sure that a browser can run a model.

    Raises:
        ConfigError: If it cannot.
    """
    obstacle = NativeEngine.obstacle(bundle.weights, bundle.decode.precision)
    if obstacle is None and (unknown := unknown_settings(bundle.config, PAGE)):
        obstacle = f"the page does not compute {', '.join(unknown)}"
    if obstacle is None and not isinstance(bundle.tokenizer, Tokenizer):
        obstacle = (
            f"the page reads the vocabularies that clearhead trains, and this one is {bundle.tokenizer.kind}, imported "
            f"from another library; clearhead serve has a page for it"
        )
    if obstacle is not None:
        raise ConfigError(f"this model cannot be exported to a page: {obstacle}")


def model_settings(bundle: Bundle, name: str, contents: Mapping[str, bytes]) -> dict[str, Any]:
    """Return what `web/opening.js` and the translator need beside the files.

    Args:
        bundle: The model, as `model_files` returns it.
        name: Name of the model.
        contents: The files of the model.

    Raises:
        ConfigError: If there is no sentence to check the computation with.
    """
    sources, targets = bundle.languages
    return {
        **engine_settings(bundle.config),
        "name": name,
        "precision": bundle.decode.precision,
        "decode": bundle.decode.model_dump(mode="json"),
        "languages": {"sources": sources, "targets": targets},
        "text": text_settings(bundle, alignment_head(bundle)),
        "golden": _golden(bundle),
        "files": {file: {"bytes": len(content), "crc32": crc32(content)} for file, content in contents.items()},
    }


def _page_settings(bundle: Bundle, name: str, contents: Mapping[str, bytes]) -> dict[str, Any]:
    """Return what the page and its worker need beside the files; arguments as of `model_settings`."""
    settings = model_settings(bundle, name, contents)
    sources, targets = bundle.languages
    return {
        **settings,
        "named_languages": [
            {
                "code": code,
                "name": english_name(code) or code,
                "targets": [target for target in targets if target != code] if code in sources else [],
            }
            for code in dict.fromkeys([*sources, *targets])
        ],
        "explanation": explanation_settings(bundle),
        "example": _example(bundle, settings["golden"][0]["source"]),
    }


def _example(bundle: Bundle, source: str) -> dict[str, str | None]:
    """Return a golden sentence to try, and the languages that the page opens with: those of the model; None if unknown.

    Args:
        bundle: The model.
        source: The sentence, which may begin with a language tag.
    """
    sources, targets = bundle.languages
    target, text = split_tag(source, bundle.tokenizer.language_tags)
    own = bundle.decode.target_lang or target or (targets[0] if len(targets) == 1 else None)
    return {"text": text, "source": sources[0] if len(sources) == 1 else None, "target": own}


def _golden(bundle: Bundle) -> list[dict[str, Any]]:
    """Return the golden sentences with the texts and scores of a search in this precision.

    Sentences whose translation changes with rounding are left out, because a browser without fused multiply-add rounds
    differently.
    """
    translator = Translator(bundle, bundle.directory)
    if not (golden := bundle.golden or make_golden(translator)):
        raise ConfigError("the page would have nothing to check: the vocabulary has no words to make sentences of")
    sources = [str(sentence["source"]) for sentence in golden]
    parts = translator.pair_encoder.split_sources(sources, bundle.decode.target_lang)
    ids, _ = translator.pair_encoder.encode(parts, [""] * len(parts), bundle.decode)
    engine = translator.engines.of(bundle.decode.precision)
    best = [hypothesis for hypothesis, *_ in decode(engine, ids, SearchOptions(bundle.decode))]
    texts = bundle.tokenizer.decode_batch([hypothesis.tokens for hypothesis in best])
    results = [
        {"source": source, "text": text, "score": hypothesis.log_prob}
        for source, text, hypothesis in zip(sources, texts, best, strict=True)
    ]
    same = [result for result, sentence in zip(results, golden, strict=True) if result["text"] == sentence["text"]]
    return (same or results)[:MOST_GOLDEN]


def _page(settings: Mapping[str, Any], contents: Mapping[str, bytes]) -> Html:
    """Return the page; a single file if the contents of the model's files are given."""
    translate_style, explain_style = style("controls.css", "translate.css"), style("explain.css")
    scripts = {**view_scripts({"translate/server.js": "web/local.js"}), "choose": script("web/choosing.js")}
    if contents:
        allowed = ["worker-src blob:", "img-src data:"]
    else:
        allowed = ["worker-src 'self' blob:", "img-src 'self' data:", "connect-src 'self'", "manifest-src 'self'"]
    policy = content_policy(
        *allowed,
        styles=[translate_style, explain_style],
        scripts=["'wasm-unsafe-eval'", *scripts.values()],
    )
    return fill(
        "web.html",
        policy=policy,
        name=settings["name"],
        icon=b64encode(picture("icon.svg").encode()).decode(),
        manifest="" if contents else fill("web_parts.html#manifest"),
        translate_style=translate_style,
        explain_style=explain_style,
        translate_view=fill("translate_view.html", links="", before=fill("web_parts.html#notice"), extensions=""),
        explain_view=explain_view("Looking inside."),
        statistics=data_block(STATISTICS),
        settings=data_block(_SETTINGS),
        model=data_block(settings),
        worker=data_block(script("web/worker.js", made={RULES: rules_module(), TEXT_RULES: text_rules_module()})),
        files=joined(piece for name, content in contents.items() for piece in _pieces(name, content)),
        **scripts,
    )


def _pieces(name: str, content: bytes) -> Iterator[Html]:
    """Yield the elements of a single file with one of its files."""
    packed = b64encode(compress(content)).decode()
    for start in range(0, len(packed), PIECE):
        yield fill("web_parts.html#piece", name=name, content=packed[start : start + PIECE])


def _manifest(name: str) -> bytes:
    """Return what a browser reads to install the page as an app."""
    icons = [{"src": "icon.svg", "sizes": "any", "type": "image/svg+xml"}]
    facts = {"name": f"{name}: translate", "short_name": name, "start_url": "./", "display": "standalone"}
    return json.dumps({**facts, "icons": icons}, ensure_ascii=False).encode()


def _service_worker(page: bytes, addresses: Iterable[str]) -> bytes:
    """Return the script that keeps the page and the files at these addresses in the browser."""
    version = sha256(page).hexdigest()[:16]  # the page has the checksums of the model
    head = f"const [VERSION, FILES] = {json.dumps([version, ['./', *addresses]])};\n"
    return (head + script("web/service_worker.js")).encode()


def explanation_settings(bundle: Bundle) -> dict[str, Any]:
    """Return facts of a model and constants of explanations, as plain values for JSON.

    Args:
        bundle: An encoder-decoder.

    Raises:
        ModelError: If its alignment.json is damaged.
    """
    head = alignment_head(bundle)
    return {
        "version": SCHEMA_VERSION,
        "model": model_facts(bundle, bundle.directory, bundle.decode),
        "start_token": bundle.tokenizer.pieces([bundle.tokenizer.bos_id])[0],
        "alignment_head": {**head._asdict(), "name": str(head)},
        "roles": role_rules(),
        "num_candidates": NUM_CANDIDATES,
        "num_lens_candidates": NUM_LENS_CANDIDATES,
        "max_page_weights": MAX_PAGE_WEIGHTS,
        "most_exact": MOST_EXACT,
        "most_rounded": MOST_ROUNDED,
    }
