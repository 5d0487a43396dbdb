/** Requests, and their errors. */

import { Refused } from "./refused.js";

/** Returns the response to a request: `GET`, or `POST` with a body; throws `Refused` unless its status is good. */
export async function ask(path, { signal, body, headers = {} } = {}) {
  const response = await reached(fetch(path, { method: body === undefined ? "GET" : "POST", body, headers, signal }));
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  const seconds = Number.parseInt(response.headers.get("retry-after"), 10);
  const message = typeof said.error === "string" ? said.error : `the server answered with status ${response.status}`;
  throw new Refused(message, response.status, Number.isNaN(seconds) ? null : seconds, said);
}

/** Awaits a promise, and turns its failure, which only the network can cause, into a `Refused`. */
export async function reached(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(navigator.onLine ? "The server does not answer" : "This device is offline", 0);
  }
}

/** Options of `ask` for a body in JSON. */
export const json = (body, signal) => ({
  signal,
  body: JSON.stringify(body),
  headers: { "content-type": "application/json" },
});
