// Compact encodings of arrays for the page: inspection/page.py, which says how exact each is.

/** `float24`: each float32 without its lowest byte. */
export function packed({ values, shape }) {
  const bits = new Uint32Array(Float32Array.from(values).buffer);
  const bytes = new Uint8Array(3 * bits.length);
  bits.forEach((word, place) => {
    const rounded = word + 0x80; // to nearest; a number, so that it may have 33 bits
    for (let byte = 0; byte < 3; byte++) bytes[3 * place + byte] = rounded / 2 ** (8 + 8 * byte);
  });
  return { type: "float24", shape, data: base64(bytes) };
}

/** `root16`: 65535 times the fourth root of each number from 0 to 1, in two bytes. */
export function packedWeights({ values, shape }) {
  const bytes = new Uint8Array(2 * values.length);
  values.forEach((weight, place) => {
    const root = nearest(65535 * Math.sqrt(Math.sqrt(weight)));
    bytes[2 * place] = root;
    bytes[2 * place + 1] = root >> 8;
  });
  return { type: "root16", shape, data: base64(bytes) };
}

/** `int8`: rows of signed bytes, each to be multiplied by its row's scale. */
export function packedRows({ values, shape }) {
  const width = shape.at(-1);
  const scales = new Float32Array(values.length / width);
  values.forEach((value, place) => {
    const row = Math.floor(place / width);
    scales[row] = Math.max(scales[row], Math.abs(value) / 127);
  });
  const rows = Int8Array.from(values, (value, place) => nearest(value / (scales[Math.floor(place / width)] || 1)));
  const packedScales = packed({ values: scales, shape: shape.slice(0, -1) });
  return { type: "int8", shape, data: base64(new Uint8Array(rows.buffer)), scales: packedScales };
}

/** Nested lists of numbers with six decimal places. */
export function plain({ values, shape }) {
  if (shape.length === 1) return Array.from(values, sixDigits);
  const size = values.length / shape[0];
  return Array.from({ length: shape[0] }, (_, n) =>
    plain({ values: values.subarray(n * size, (n + 1) * size), shape: shape.slice(1) }));
}

export const sixDigits = (value) => Math.round(1e6 * value) / 1e6;

/** The nearest whole number; of two, the even one. */
export function nearest(value) {
  const below = Math.floor(value);
  if (value - below !== 0.5) return Math.round(value);
  return below % 2 === 0 ? below : below + 1;
}

function base64(bytes) {
  const parts = [];
  for (let at = 0; at < bytes.length; at += 8192) parts.push(String.fromCharCode(...bytes.subarray(at, at + 8192)));
  return btoa(parts.join(""));
}
