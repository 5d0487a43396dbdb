/** Attention and attribution side by side: where the model looked, and what influenced its output. */

import { signedColour, signedLegend, weightColour, weightLegend } from "./colours.js";
import { unpack } from "./data.js";
import { byId } from "./dom.js";
import { HeatMap } from "./heat_map.js";
import { fixed, spoken } from "./text.js";

/** Draws the maps side by side; returns a function that redraws them. */
export function drawAttribution(selection, explanation) {
  const { target_tokens: rows, source_tokens: tokens, source_words: words, attribution } = explanation;
  const gradients = unpack(attribution.integrated_gradients);
  const occlusion = unpack(attribution.occlusion);
  const attention = unpack(explanation.alignment);
  const { name, head, is_reading: isReading } = explanation.alignment_head;
  byId("attribution-head").textContent = name;
  const largest = (numbers) => numbers.values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const views = [
    {
      id: "attribution-attention",
      label: `Attention: ${name}`,
      columns: tokens,
      numbers: attention,
      digits: 2,
      colour: (value) => weightColour(value),
      says: (value, row, column) => {
        const step = isReading ? "Reading" : "Writing";
        return head === null
          ? `${step} ${row}, the heads give ${column} ${fixed(value)} of their attention on average.`
          : `${step} ${row}, the head gives ${column} ${fixed(value)} of its attention.`;
      },
    },
    {
      id: "attribution-gradients",
      label: "Integrated gradients",
      columns: tokens,
      numbers: gradients,
      digits: 1,
      colour: signed(largest(gradients)),
      says: (value, row, column) => `${column} changed the log-probability of ${row} by ${fixed(value, 3)} nats.`,
    },
    {
      id: "attribution-occlusion",
      label: "Occlusion, word by word",
      columns: words.map(({ text }) => text),
      numbers: occlusion,
      digits: 1,
      colour: signed(largest(occlusion)),
      says: (value, row, column) =>
        `Without ${column}, the log-probability of ${row} is lower by ${fixed(value, 3)} nats.`,
    },
  ].filter(({ columns: those }) => those.length > 0);
  // A column of the last map is a word, of the others a token.
  const tokenAt = (names, column) => (names === tokens ? column : words[column].tokens[0]);
  const columnOf = (names) =>
    names === tokens ? selection.source : words.findIndex((word) => word.tokens.includes(selection.source));
  const maps = views.map(
    ({ id, columns }) =>
      new HeatMap(byId(id), (step, column) => selection.choose({ step, source: tokenAt(columns, column) })),
  );
  const show = () => {
    views.forEach(({ label, columns: names, numbers, digits, colour, says }, place) => {
      maps[place].picked = [selection.step, columnOf(names)];
      maps[place].show({
        rows,
        columns: names,
        rowName: "writing",
        columnName: "source",
        label,
        colour: (row, column) => colour(numbers.at(row, column)),
        text: (row, column) => fixed(numbers.at(row, column), digits),
        describe: (row, column) => says(numbers.at(row, column), spoken(rows[row]), spoken(names[column])),
      });
    });
    byId("attribution-legend").replaceChildren(
      weightLegend(false),
      signedLegend("Attribution, as a share of the largest number (in nats) of its map: against or for the token"),
    );
  };
  selection.onChange((changed) => {
    if (!changed.has("step") && !changed.has("source")) return;
    maps.forEach((map, place) => map.pick(selection.step, columnOf(views[place].columns)));
  });
  const gap = fixed(attribution.completeness_gap, 4);
  byId("attribution-gap").textContent =
    `Rows of integrated gradients sum to what the whole source did, to within ${gap} nats.`;
  show();
  return show;
}

function signed(largest) {
  return (value) => signedColour(value, largest);
}
