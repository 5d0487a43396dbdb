/** Requests to the server of a review; a segment is an object with the fields of `GET /segments/N`. */

import { ask, json, reached } from "../translate/request.js";

const answerTo = async (path, options) => reached((await ask(path, options)).json());

/**
 * Segments, the place of the first, and the counts. `from` is that place, {start}, or {after}, the number of a segment;
 * `show` is `open`, `done` or `all`, and `find` a text they have.
 */
export const segmentsFrom = (from, count, { show, find }) =>
  answerTo(`segments?${new URLSearchParams({ ...from, count, show, ...(find && { find }) })}`);

export const segmentAt = (number, signal) => answerTo(`segments/${number}`, { signal });

/** Saves the text and the state of a segment of this revision, and returns the segment. */
export const saveSegment = (number, body) => answerTo(`segments/${number}`, json(body));

/** Undoes the last change, and returns its segment; null if there is no change. */
export const undoLast = async () => (await answerTo("undo", json({}))).segment;

/** What looks wrong with a text of a segment: `flags`, `terms` and `placeholders`. */
export const checkText = (body, signal) => answerTo("check", json(body, signal));

/** Other translations of a segment, and the links between the words of its source and its text. */
export const alternativesOf = (number, signal) => answerTo(`segments/${number}/alternatives`, { signal });

/** How many segments are done, and whether the document has them. */
export const reviewStatus = () => answerTo("status");

/** Address of the explanation of a segment. */
export const insideOf = (number) => `segments/${number}/inside`;
