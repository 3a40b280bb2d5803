// @ts-check
/** Calls of /v1, and nothing else: who is logged in, what went wrong, whether the store answers. */

const TOKEN_KEY = "psoup-token";
const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 5000;

/** An answer that is an error, as `application/problem+json` has it. */
export class Problem extends Error {
  /** @param {number} status @param {Record<string, any>} body */
  constructor(status, body) {
    super(String(body.title || `the store answered with status ${status}`));
    this.status = status;
    this.reason = String(body.reason || "");
    this.hint = String(body.hint || "");
    this.line = Number(body.line || 0);
    this.column = Number(body.column || 0);
    this.excerpt = String(body.excerpt || "");
    this.retryAfter = Number(body.retry_after_seconds || 0);
  }
}

/** The store could not be reached. */
export class Away extends Error {
  constructor() {
    super("the store does not answer");
  }
}

/** Fires `login` when a key is asked for, `away` when the store is gone and `back` when it returns. */
export const events = new EventTarget();

/** @type {Date | null} */
let awaySince = null;
let token = sessionStorage.getItem(TOKEN_KEY) || "";

export const connection = {
  /** @returns {Date | null} */
  get awaySince() {
    return awaySince;
  },
};

/**
 * @typedef {object} Options
 * @property {Record<string, string | number | boolean | null | undefined>} [query]
 * @property {string} [body]
 * @property {string} [type]
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 */

/**
 * Make a call and return its JSON. Throws Problem, Away, and AbortError if the signal fires.
 * @param {string} method @param {string} path @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function call(method, path, options = {}) {
  const response = await send(method, path, options);
  const text = await read(response, options.signal);
  let body = {};
  try {
    body = text ? JSON.parse(text) : {};
  } catch {
    if (response.ok) throw new Problem(502, { title: "the answer is not JSON; is this a PSoup store?" });
  }
  if (response.ok) return body;
  const problem = new Problem(response.status, body);
  if (problem.status === 401) events.dispatchEvent(new CustomEvent("login", { detail: problem }));
  throw problem;
}

/** @param {string} path @param {Options["query"]} [query] @param {AbortSignal} [signal] */
export function get(path, query, signal) {
  return call("GET", path, { query, signal });
}

/**
 * Log in with a key or JWT. Throws Problem if it is refused.
 * @param {string} credential
 */
export async function logIn(credential) {
  const { cookie } = await call("POST", "/v1/session", { body: "{}", headers: { authorization: `Bearer ${credential}` } });
  // Without TLS there is no cookie, which every port of this host would get: the token goes with the tab.
  token = cookie ? "" : credential;
  if (token) sessionStorage.setItem(TOKEN_KEY, token);
  else sessionStorage.removeItem(TOKEN_KEY);
}

export async function logOut() {
  token = "";
  sessionStorage.removeItem(TOKEN_KEY);
  await call("DELETE", "/v1/session").catch(() => {});
}

/**
 * Yield the events of a stream of them as they come. Throws as `call` does.
 * @param {string} path @param {Options["query"]} query @param {AbortSignal} signal
 * @returns {AsyncGenerator<{name: string, id: string, data: any}>}
 */
export async function* eventsOf(path, query, signal) {
  const response = await send("GET", path, { query, signal, headers: { accept: "text/event-stream" } });
  if (!response.ok || !response.body) throw new Problem(response.status, JSON.parse((await read(response, signal)) || "{}"));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ; ) {
    const piece = await reader.read().catch((error) => Promise.reject(lost(error, signal)));
    if (piece.done) return;
    const blocks = (text + piece.value).split("\n\n");
    text = blocks.pop() || "";
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      if (fields.event) yield { name: fields.event, id: fields.id || "", data: JSON.parse(fields.data) };
    }
  }
}

/** @param {string} method @param {string} path @param {Options} options */
async function send(method, path, options) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(options.query || {})) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, String(value));
  }
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json", "psoup-request": "1" };
  if (token) headers.authorization = `Bearer ${token}`;
  if (options.body !== undefined) headers["content-type"] = options.type || "application/json";
  Object.assign(headers, options.headers);
  try {
    const response = await fetch(url, {
      method,
      headers,
      body: options.body,
      signal: options.signal,
      cache: "no-store",
    });
    if (awaySince) returned();
    return response;
  } catch (error) {
    throw lost(error, options.signal);
  }
}

/** @param {Response} response @param {AbortSignal} [signal] */
async function read(response, signal) {
  try {
    return await response.text();
  } catch (error) {
    throw lost(error, signal);
  }
}

/** @param {unknown} error @param {AbortSignal} [signal] */
function lost(error, signal) {
  if (signal?.aborted) return error;
  if (!awaySince) {
    awaySince = new Date();
    events.dispatchEvent(new Event("away"));
    setTimeout(tryAgain, FIRST_RETRY_MS, FIRST_RETRY_MS);
  }
  return new Away();
}

/** @param {number} pause */
async function tryAgain(pause) {
  if (!awaySince) return;
  await call("GET", "/v1/status").catch(() => {});
  if (awaySince) setTimeout(tryAgain, pause, Math.min(MAX_RETRY_MS, pause * 1.5));
}

function returned() {
  awaySince = null;
  events.dispatchEvent(new Event("back"));
}

/** @param {unknown} error */
export function isAbort(error) {
  return error instanceof DOMException && error.name === "AbortError";
}
