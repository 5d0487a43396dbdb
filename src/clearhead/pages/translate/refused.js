/** A failed request: `status` is the HTTP status, or 0 if the server could not be reached. */
export class Refused extends Error {
  constructor(message, status, seconds = null, said = {}) {
    super(message);
    this.status = status;
    /** Seconds until a retry, as given by the server; null if it gives none. */
    this.seconds = seconds;
    /** The server's whole answer. */
    this.said = said;
  }

  /** Whether a retry may succeed. */
  get passes() {
    return [0, 429, 503].includes(this.status);
  }

  /** Whether an API key is missing or unknown. */
  get wantsKey() {
    return this.status === 401 || this.status === 403 || (this.status === 400 && /\bAPI key\b/.test(this.message));
  }
}
