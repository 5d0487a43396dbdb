"""The page that shows one explanation: a single HTML file that needs no other file, no script of others, no network."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from string import Template

import numpy as np
from jaxtyping import Float32

from clearhead.errors import DataError

__all__ = ["MAX_PAGE_TOKENS", "render_frame", "render_page"]

MAX_PAGE_TOKENS = 300
"""Longest side of a page, in tokens: browsers stall on tables with much more than 100,000 cells."""

StepRow = tuple[str, float, Sequence[tuple[str, float]]]
"""A token written, its probability, and the most probable tokens with theirs."""

_VISIBLE_SPACES = str.maketrans({" ": "␣", "\u00a0": "⍽", "\u202f": "⍽", "\n": "↵", "\r": "↵", "\t": "⇥"})


def render_page(
    *,
    source: str,
    translation: str,
    score: float,
    source_tokens: Sequence[str],
    decoder_tokens: Sequence[str],
    target_tokens: Sequence[str],
    weights: Mapping[str, Float32[np.ndarray, "..."]],
    steps: Sequence[StepRow],
) -> str:
    """Return the whole page.

    Args:
        source: The line translated.
        translation: Its translation.
        score: Log-probability of the translation, in nats.
        source_tokens: Pieces of the source.
        decoder_tokens: What the decoder read at each position.
        target_tokens: What it predicted there.
        weights: `cross`, `encoder` and `decoder`, each [layers, heads, rows, columns].
        steps: One for each target token.

    Raises:
        DataError: If a side is longer than `MAX_PAGE_TOKENS`.
    """
    if (longest := max(len(source_tokens), len(target_tokens))) > MAX_PAGE_TOKENS:
        raise DataError(
            f"a page shows at most {MAX_PAGE_TOKENS} tokens a side, and this sentence has {longest:,}; "
            f"split it into sentences, or take the numbers as JSON"
        )
    data = {
        "source": _readable(source_tokens),
        "read": _readable(decoder_tokens),
        "written": _readable(target_tokens),
        # Thousandths: short to write, and finer than an eye can tell shades apart.
        "weights": {view: np.rint(values * 1000).astype(np.int32).tolist() for view, values in weights.items()},
    }
    return _PAGE.substitute(
        title=html.escape(_shortened(source)),
        source=html.escape(source),
        translation=html.escape(translation),
        score=f"{score:.4f}",
        num_tokens=len(target_tokens),
        steps="\n".join(_step_row(number, step) for number, step in enumerate(steps, start=1)),
        style=_STYLE,
        script=_SCRIPT,
        data=_json_for_script(data),
    )


def render_frame(page: str) -> str:
    """Return the page as a frame that a notebook can show among its own content."""
    # Without allow-same-origin the page's script cannot reach into the notebook.
    return (
        f'<iframe srcdoc="{html.escape(page)}" title="Attention" sandbox="allow-scripts" '
        f'style="width: 100%; height: 45rem; border: 0"></iframe>'
    )


def _json_for_script(data: Mapping[str, object]) -> str:
    # Within a script element "</" would end it and "<!--" would open a comment; written so, JSON reads the same.
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _step_row(number: int, step: StepRow) -> str:
    token, probability, candidates = step
    others = " ".join(
        f"<li{' class=chosen' if other == (token, probability) else ''}>"
        f"<bdi>{_text(other[0])}</bdi> {_percent(other[1])}</li>"
        for other in candidates
    )
    return (
        f"<tr><td>{number}</td><th scope=row><bdi>{_text(token)}</bdi></th>"
        f'<td><span class=bar style="--p: {probability:.4f}"></span>{_percent(probability)}</td>'
        f"<td><ul>{others}</ul></td></tr>"
    )


def _percent(probability: float) -> str:
    return f"{100 * probability:.1f}%" if probability >= 0.0005 else "&lt;0.1%"


def _text(token: str) -> str:
    return html.escape(_readable([token])[0])


def _readable(tokens: Sequence[str]) -> list[str]:
    return [token.translate(_VISIBLE_SPACES) for token in tokens]


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:59] + "…"


_STYLE = """
:root { color-scheme: light dark; --heat: 29 78 216; --ink: #1b1f27; --soft: #5a6474; --line: #d7dce4;
  --paper: #ffffff; --panel: #f5f7fa; }
@media (prefers-color-scheme: dark) {
  :root { --heat: 96 165 250; --ink: #e6e9ef; --soft: #9aa5b5; --line: #353c48; --paper: #14171c; --panel: #1d2128; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.25rem; margin: 0 0 .75rem; }
h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
.choices { display: flex; flex-wrap: wrap; gap: .75rem; }
.choices label { display: grid; gap: .15rem; font-size: .85rem; color: var(--soft); }
select { font: inherit; color: var(--ink); background: var(--panel); border: 1px solid var(--line);
  border-radius: .4rem; padding: .4rem .6rem; max-width: 100%; }
select:focus-visible, .scroll:focus-visible { outline: 2px solid rgb(var(--heat)); outline-offset: 2px; }
.about, .legend { color: var(--soft); font-size: .9rem; margin: .75rem 0; max-width: 46rem; }
.reading { min-height: 3rem; padding: .6rem .8rem; background: var(--panel); border-radius: .4rem; margin: .75rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
.heat th { font-weight: 400; font-size: .85rem; white-space: pre; }
.heat thead th { writing-mode: vertical-rl; text-align: right; vertical-align: bottom; padding: .3rem 0; }
.heat tbody th { position: sticky; left: 0; background: var(--paper); text-align: right; padding: 0 .5rem 0 0; }
.heat tbody th small { font-size: inherit; color: var(--soft); }
.heat tbody td { width: 1.7rem; min-width: 1.7rem; height: 1.7rem; border: 1px solid var(--line); padding: 0;
  background: rgb(var(--heat) / var(--a)); }
.heat td.hidden { background: repeating-linear-gradient(45deg, var(--line) 0 1px, transparent 1px 5px); }
.heat td.picked { outline: 2px solid var(--ink); outline-offset: -1px; }
.heat th.picked, .heat th.picked small { color: rgb(var(--heat)); text-decoration: underline; }
.legend span { display: inline-block; width: 1.1rem; height: 1.1rem; border: 1px solid var(--line);
  margin: 0 .3rem 0 .8rem; vertical-align: -.2rem; background: rgb(var(--heat) / var(--a)); }
.steps { width: 100%; font-size: .9rem; }
.steps td, .steps th { text-align: left; padding: .3rem .9rem .3rem 0; border-top: 1px solid var(--line);
  vertical-align: top; white-space: nowrap; }
.steps thead th { color: var(--soft); font-weight: 400; border: 0; }
.steps ul { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem .4rem; margin: 0; padding: 0; }
.steps li { background: var(--panel); border-radius: .3rem; padding: 0 .4rem; color: var(--soft); }
.steps li bdi { color: var(--ink); }
.steps li.chosen { box-shadow: inset 0 0 0 1px rgb(var(--heat)); }
.steps td:last-child { width: 100%; white-space: normal; padding-right: 0; }
.bar { display: inline-block; width: 3.5rem; height: .6rem; margin-right: .5rem; border-radius: .3rem;
  background: linear-gradient(90deg, rgb(var(--heat)) calc(100% * var(--p)), var(--line) 0); }
@media (max-width: 36rem) {
  body { padding: .75rem; }
  .bar { display: none; }
  .reading { min-height: 5.75rem; }
  .steps td, .steps th { padding-right: .5rem; }
  .heat tbody td { width: 1.4rem; min-width: 1.4rem; height: 1.4rem; }
}
"""

_SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const views = {
  cross: { rows: "decoder", columns: data.source,
    about: "Each row is one step of the decoder: it has read the token before the arrow and writes the one after it. "
      + "The columns are the source tokens it looks at." },
  encoder: { rows: "encoder", columns: data.source,
    about: "Each row is a source token; the columns are the source tokens it looks at." },
  decoder: { rows: "decoder", columns: data.read,
    about: "Each row is one step of the decoder: it has read the token before the arrow and writes the one after it. "
      + "The columns are the tokens read so far; what comes later is hidden from it." },
};
const [view, layer, head] = ["view", "layer", "head"].map(id => document.getElementById(id));
const table = document.getElementById("heat");
const reading = document.getElementById("reading");
let shown = [];

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fill(select, entries, wanted) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value)));
  select.value = entries.some(([value]) => String(value) === wanted) ? wanted : String(entries[0][0]);
}

function chooseView() {
  const layers = data.weights[view.value];
  const last = String(layers.length - 1);
  const wanted = Number(layer.value || last) < layers.length ? layer.value || last : last;
  fill(layer, layers.map((_, index) => [index, String(index + 1)]), wanted);
  const heads = layers[0].map((_, index) => [index, String(index + 1)]);
  fill(head, [["mean", "mean of all"], ...heads], head.value);
  draw();
}

function chosenWeights() {
  const heads = data.weights[view.value][layer.value];
  if (head.value !== "mean") return heads[head.value];
  return heads[0].map((row, r) => row.map((_, c) => heads.reduce((sum, one) => sum + one[r][c], 0) / heads.length));
}

function rowHeader(row) {
  const header = element("th");
  header.scope = "row";
  if (views[view.value].rows === "encoder") {
    header.append(element("bdi", data.source[row]));
  } else {
    header.append(element("small", data.read[row] + " → "), element("bdi", data.written[row]));
  }
  return header;
}

function draw() {
  const { columns, about } = views[view.value];
  shown = chosenWeights();
  const top = element("tr");
  top.append(element("td"), ...columns.map(token => {
    const header = element("th", token);
    header.scope = "col";
    return header;
  }));
  const header = element("thead");
  header.append(top);
  const body = element("tbody");
  shown.forEach((weights, row) => {
    const line = element("tr");
    line.append(rowHeader(row), ...weights.map((weight, column) => {
      const cell = element("td", undefined, view.value === "decoder" && column > row ? "hidden" : "");
      cell.style.setProperty("--a", Math.sqrt(weight / 1000).toFixed(3));
      return cell;
    }));
    body.append(line);
  });
  table.replaceChildren(header, body);
  document.getElementById("about").textContent = about;
  reading.textContent = "Point at a cell, or tap it, to read its weight.";
}

function pick(event) {
  const cell = event.target.closest("tbody td");
  if (!cell) return;
  const row = cell.parentNode.sectionRowIndex, column = cell.cellIndex - 1;
  table.querySelectorAll(".picked").forEach(old => old.classList.remove("picked"));
  for (const marked of [cell, cell.parentNode.cells[0], table.tHead.rows[0].cells[column + 1]]) {
    marked.classList.add("picked");
  }
  const { rows, columns } = views[view.value];
  const who = rows === "encoder"
    ? "Token " + (row + 1) + " “" + data.source[row] + "”"
    : "Step " + (row + 1) + ", “" + data.read[row] + "” read, “" + data.written[row] + "” written next,";
  reading.textContent = cell.className.includes("hidden")
    ? who + " cannot see “" + columns[column] + "”: it comes later."
    : who + " gives " + (shown[row][column] / 1000).toFixed(3) + " of its attention to “" + columns[column] + "”.";
}

view.addEventListener("change", chooseView);
layer.addEventListener("change", draw);
head.addEventListener("change", draw);
table.addEventListener("pointerover", pick);
table.addEventListener("click", pick);
chooseView();
"""

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title · attention</title>
<style>$style</style>
</head>
<body>
<h1>What the model looked at</h1>
<dl>
<dt>Source</dt><dd><bdi>$source</bdi></dd>
<dt>Translation</dt><dd><bdi>$translation</bdi></dd>
<dt>Log-probability</dt><dd>$score over $num_tokens tokens</dd>
</dl>
<h2>Attention</h2>
<div class="choices">
<label>Attention <select id="view">
<option value="cross">cross: target to source</option>
<option value="encoder">encoder: source to source</option>
<option value="decoder">decoder: target to target</option>
</select></label>
<label>Layer <select id="layer"></select></label>
<label>Head <select id="head"></select></label>
</div>
<p class="about" id="about"></p>
<div class="scroll" tabindex="0" role="region" aria-label="Attention weights">
<table class="heat" id="heat"></table>
</div>
<p class="reading" id="reading" role="status">The table of weights needs JavaScript.</p>
<p class="legend">Weight
<span style="--a: 0"></span>0
<span style="--a: .224"></span>0.05
<span style="--a: .5"></span>0.25
<span style="--a: .707"></span>0.5
<span style="--a: 1"></span>1 ·
each row sums to 1; “␣” in a token is a space</p>
<h2>Steps</h2>
<div class="scroll" tabindex="0" role="region" aria-label="Decoding steps"><table class="steps">
<thead><tr><th scope="col">#</th><th scope="col">Written</th><th scope="col">Probability</th>
<th scope="col">Most probable tokens</th></tr></thead>
<tbody>
$steps
</tbody>
</table></div>
<script type="application/json" id="data">$data</script>
<script>$script</script>
</body>
</html>
""")
