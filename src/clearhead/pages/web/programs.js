/** What programs give and get: in a page (local.js) and of the module (module.js). */

/** The options of a call, completed by defaults. Throws an Error if one is unknown. */
export function optionsOf(given, defaults) {
  const names = Object.keys(defaults);
  const unknown = Object.keys(given ?? {}).find((name) => !names.includes(name));
  if (unknown !== undefined) throw new Error(`unknown option '${unknown}'; the options are ${names.join(", ")}`);
  return Object.fromEntries(names.map((name) => [name, given?.[name] ?? defaults[name]]));
}

/** Checks the arguments of a call. Throws an Error that says which is wrong. */
export function requireArguments(texts, target, signal, { targets }) {
  if (!(signal === null || signal instanceof AbortSignal)) throw new Error("signal must be an AbortSignal");
  for (const text of texts)
    if (typeof text !== "string") throw new Error(`a text must be a string, not ${text === null ? "null" : typeof text}`);
  if (target === null || targets.includes(target)) return;
  const choice = targets.length ? `choose ${targets.join(" or ")}` : "this model does not say its languages: leave it out";
  throw new Error(`unknown target language '${String(target)}'; ${choice}`);
}

/** What a program gets of an answer of the translator; docs/web.md. */
export const answerForPrograms = ({ text, score, tokens, warnings, alternatives, source_truncated, alignment }) => ({
  text, score, tokens, warnings, alternatives, source_truncated, ...(alignment && { alignment }),
});
