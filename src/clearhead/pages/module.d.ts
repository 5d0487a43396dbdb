/** A translator that runs where it is loaded: in Node.js, a browser, or a worker of either. */

export interface LoadOptions {
  /** Address of the folder with the model's files, ending in `/`; by default they are beside this module. */
  base?: string | URL | null;
  /** Called with the share of the weights that was fetched, from 0 to 1; not where they are read from disk. */
  onProgress?: ((share: number) => void) | null;
}

export interface TranslateOptions {
  /** Beam size; by default the model's. */
  beam?: number | null;
  /** Number of translations of each text, at most. */
  nbest?: number | null;
  /** Language to translate into, for a model of several. */
  target?: string | null;
  /** Whether to link the words of a text to those of its translation. */
  alignments?: boolean | null;
  /** Whether to compute scores, as by default; without them greedy translation takes less than half the time. */
  scores?: boolean | null;
  /** Ends the translation when it is aborted: the call throws its reason. */
  signal?: AbortSignal | null;
}

export interface Translation {
  text: string;
  /** Log-probability of the tokens in nats; null without `scores`, and for what is not translated, such as `...`. */
  score: number | null;
  /** Ids of the tokens, with the end token of each sentence. */
  tokens: number[];
  /** Kinds of the quality flags, such as `numbers`. */
  warnings: string[];
  /** The best translations, the first of which is `text`; empty unless `nbest` is above 1. */
  alternatives: { text: string; score: number | null }[];
  /** Whether the text was longer than the model reads, and its end is not translated. */
  source_truncated: boolean;
  /** Pairs of words, of the text and of the translation, counted from 0; with the option `alignments`. */
  alignment?: [number, number][];
}

export interface Translator {
  readonly name: string;
  /** Codes of the languages; empty if the model does not say them. */
  readonly languages: { readonly sources: readonly string[]; readonly targets: readonly string[] };
  /**
   * Which form of the core runs: `relaxed` translates as clearhead does, to the last bit; `simd` and `plain`, where an
   * engine lacks relaxed SIMD or all SIMD, are slower, and a few words can differ.
   */
  readonly form: "relaxed" | "simd" | "plain";
  /**
   * Translates a text line by line: the translation has as many lines, with the same white space around each. Calls run
   * one after another, with pauses for other events.
   */
  translate(text: string, options?: TranslateOptions | null): Promise<Translation>;
  /** Translates texts, in order: faster than one call for each. */
  translate(texts: readonly string[], options?: TranslateOptions | null): Promise<Translation[]>;
  /** Lets go of the model's memory; later calls throw. */
  dispose(): void;
}

/**
 * Loads the model, compares its files with their checksums, and translates up to four sentences as a check.
 *
 * It and `translate` throw an Error that says what is wrong, such as a damaged file or an unknown option.
 */
export function load(options?: LoadOptions | null): Promise<Translator>;
