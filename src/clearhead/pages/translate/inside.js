/** Fetches the explanation for which this tab was opened, and shows its page. */

import { byId, make } from "../explain/dom.js";
import { toExplain } from "./look_inside.js";
import { drawExplanation, explained } from "./server.js";
import { keepTheme } from "./storage.js";

const say = (text) => {
  byId("without-script").textContent = text;
};

const fields = toExplain();
if (fields === null) say("There is nothing to look into: translate a sentence, and choose “Look inside”.");
else {
  say("The model reads the sentence once more …");
  try {
    const explanation = await explained(fields);
    const meanings = JSON.parse(byId("statistics-meanings").textContent);
    const data = JSON.stringify({ ...explanation, statistics_meaning: meanings });
    document.body.append(make("div", { id: "explanation", hidden: true }, data));
    document.title = `${explanation.source.slice(0, 60)} · attention`;
    await drawExplanation();
    byId("theme").addEventListener("click", keepTheme);
  } catch (error) {
    if (byId("without-script") === null) throw error;
    say(`${error.message.slice(0, 1).toUpperCase()}${error.message.slice(1)}. Reload to ask again.`);
  }
}
