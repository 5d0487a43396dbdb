/** Attention and attribution side by side: where the model looked, and what influenced its output. */

import { legend, signedColour, weightColour } from "./colours.js";
import { unpack } from "./data.js";
import { byId } from "./dom.js";
import { HeatMap } from "./heat_map.js";
import { fixed, spoken } from "./text.js";

/** Draws the maps side by side; returns a function that redraws them. */
export function drawAttribution(selection, explanation) {
  const { target_tokens: rows, source_tokens: columns, source_words: words, attribution } = explanation;
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
      columns,
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
      columns,
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
  const maps = views.map(({ id }) => new HeatMap(byId(id), (row) => selection.choose({ step: row })));
  const show = () => {
    views.forEach(({ label, columns: names, numbers, digits, colour, says }, place) => {
      maps[place].picked[0] = selection.step;
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
    const most = Math.max(largest(gradients), largest(occlusion));
    byId("attribution-legend").replaceChildren(
      legend(
        "Attribution, each map by its largest",
        [-1, -0.25, 0, 0.25, 1].map((share) => [
          { "-1": "against", 0: "nothing", 1: "for" }[share] ?? "",
          signedColour(share * most, most),
        ]),
      ),
    );
  };
  selection.onChange((changed) => {
    if (changed.has("step")) maps.forEach((map) => map.pick(selection.step, map.picked[1]));
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
