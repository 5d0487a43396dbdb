/** File translation: files are chosen or dropped, translated one after another, and offered as links. */

import { byId, make } from "../explain/dom.js";
import { counted } from "../explain/text.js";
import { announce } from "./messages.js";
import { openReview } from "./opening_reviews.js";
import { translateFile } from "./server.js";

/** Accepts files. `settings` are the page's; `fieldsOf` returns the languages, or throws an error that says why not. */
export function takeFiles(settings, fieldsOf) {
  let last = Promise.resolve();
  const take = (files) => {
    byId("files").open = true;
    for (const file of files) {
      const row = rowOf(file);
      byId("file-list").append(row.element);
      last = last.then(() => translateOne(file, row, settings, fieldsOf));
    }
  };
  byId("file-open").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", () => {
    take([...byId("file").files]);
    byId("file").value = "";
  });
  const hasFiles = (event) => event.dataTransfer !== null && event.dataTransfer.types.includes("Files");
  let depth = 0;
  const shown = (change) => {
    depth = Math.max(0, depth + change);
    byId("drop").hidden = depth === 0;
  };
  addEventListener("dragenter", (event) => hasFiles(event) && shown(1));
  addEventListener("dragleave", (event) => hasFiles(event) && shown(-1));
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    shown(-depth);
    take([...event.dataTransfer.files]);
  });
}

/** A row in the list of files, with functions to update it. */
function rowOf(file) {
  const controller = new AbortController();
  const state = make("span", { class: "soft" }, "waits");
  const result = make("span", {});
  const stop = make("button", { type: "button", class: "quiet" }, "Cancel");
  const element = make("li", {}, make("bdi", { class: "file-name" }, file.name), " ", state, " ", result, " ", stop);
  stop.addEventListener("click", () => {
    controller.abort();
    element.remove();
    byId("file-open").focus();
  });
  return {
    element,
    signal: controller.signal,
    /** Shows the state of the file; `child` is its result. */
    say: (text, className, child = null) => {
      state.textContent = text;
      state.className = className;
      result.replaceChildren(...(child === null ? [] : [child]));
      stop.textContent = child === null ? "Cancel" : "Remove";
    },
  };
}

async function translateOne(file, row, settings, fieldsOf) {
  if (row.signal.aborted) return;
  try {
    const fields = fieldsOf();
    requireTranslatable(file, settings);
    row.say("is being translated …", "soft");
    const { address, name, report, segments, toCheck } = await translateFile(file, fields, row.signal);
    const found = segments === 0 ? "nothing to translate" : `${counted(segments, "segment")}, ${toCheck.toLocaleString("en")} to check`;
    const link = make("a", { href: report, target: "_blank" }, found);
    const links = make("span", {}, make("a", { href: address, download: name }, name), " · ", link);
    if (settings.takes_reviews && segments > 0) links.append(" · ", reviewButton(address));
    row.say("", "soft", links);
    announce(`${name} is ready: ${found}.`);
  } catch (error) {
    if (row.signal.aborted) return;
    const again = () => translateOne(file, row, settings, fieldsOf);
    const button = make("button", { type: "button", class: "quiet", onclick: again }, "Try again");
    row.say(`${error.message.replace(/[.;]$/, "")}.`, "serious", button);
    announce(`${file.name}: ${error.message}`);
  }
}

/** A button that begins the review of a translated file; the link to the review then takes its place. */
function reviewButton(address) {
  const problem = make("span", { class: "serious", role: "status" });
  const button = make("button", { type: "button", class: "quiet" }, "Review");
  const begin = async () => {
    button.disabled = true;
    try {
      const review = await openReview(async () => address);
      button.replaceWith(make("a", { href: review, target: "_blank" }, "Review"));
      problem.remove();
    } catch (error) {
      button.disabled = false;
      problem.textContent = ` ${error.message}`;
    }
  };
  button.addEventListener("click", begin);
  return make("span", {}, button, problem);
}

/** Throws an error for a file that need not be sent, for its size; the server says which formats it reads. */
function requireTranslatable(file, { max_file_bytes: mostBytes }) {
  if (file.size > mostBytes) {
    throw new Error(`the file has ${file.size.toLocaleString("en")} bytes, and ${mostBytes.toLocaleString("en")} are the most`);
  }
  if (file.size === 0) throw new Error("the file is empty");
}
