// Weir in a browser: submit a task, watch it to its end, find its results. No dependency, no build.
// Guide: docs/browser.md.

const FINAL = new Set(["SUCCESS", "FAILED", "TIMEOUT", "CANCELED"]); // any other word, known or not, goes on
const FIRST_MS = 1500;
const LONGEST_MS = 15_000;
const TRIES = 6;

/** An answer that is not a success: `status`, `problem` (RFC 9457, or null) and `requestId`. */
export class WeirError extends Error {
  constructor(response, problem) {
    super(problem?.detail ?? problem?.title ?? `HTTP ${response.status}`);
    this.name = "WeirError";
    this.status = response.status;
    this.problem = problem;
    this.requestId = response.headers.get("X-Request-Id");
  }
}

/** Send a task once: its key is made here and is the same in every try, so that none is paid twice. */
export async function submit(body, { key, base = "", idempotencyKey = newKey(), signal } = {}) {
  const headers = { ...auth(key), "Content-Type": "application/json", "Idempotency-Key": idempotencyKey };
  for (let tried = 1; ; tried += 1) {
    const response = await ask(`${base}/v1/tasks`, { method: "POST", headers, body: JSON.stringify(body), signal });
    if (response?.ok) return response.json();
    if (response && !passing(response.status)) throw await failure(response);
    if (tried === TRIES) throw response ? await failure(response) : new TypeError("Weir could not be reached");
    await pause(delay(tried, response), signal);
  }
}

/** Ask for a task until it has ended; `onUpdate` gets each new version. Returns the last one. */
export async function watch(taskUrl, { key, onUpdate = () => {}, signal } = {}) {
  let etag = null;
  for (let round = 1; ; round += 1) {
    await seen(signal);
    const headers = etag ? { ...auth(key), "If-None-Match": etag } : auth(key);
    const response = await ask(taskUrl, { headers, signal, cache: "no-store" });
    if (response?.ok) {
      const task = await response.json();
      etag = response.headers.get("ETag");
      onUpdate(task);
      if (FINAL.has(task.status)) return task;
    } else if (response && response.status !== 304 && !passing(response.status)) {
      throw await failure(response);
    }
    await pause(delay(round, response), signal, true);
  }
}

/** Where the bytes of output `n` are; they need the key in `Authorization`. */
export function outputUrl(taskUrl, n = 0) {
  return `${taskUrl.replace(/\/$/, "")}/outputs/${n}`;
}

// Not randomUUID: browsers have it on https and localhost only.
function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function auth(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

// null: nobody answered (offline, or the server starts anew). Giving up is the caller's word alone.
async function ask(url, options) {
  try {
    return await fetch(url, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    return null;
  }
}

function passing(status) {
  return status === 429 || status >= 500;
}

async function failure(response) {
  return new WeirError(response, await response.json().catch(() => null));
}

// Full jitter over a growing span, so that many pages do not ask in step; Retry-After is the least.
function delay(round, response) {
  const span = Math.min(LONGEST_MS, FIRST_MS * 1.3 ** (round - 1));
  const least = Number(response?.headers.get("Retry-After")) * 1000 || 0;
  return least + Math.max(200, Math.random() * span);
}

// Ends early when the network returns.
function pause(ms, signal, wakes = false) {
  return new Promise((resolve, reject) => {
    const done = (settle, value) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
      removeEventListener("online", wake);
      settle(value);
    };
    const wake = () => done(resolve);
    const stop = () => done(reject, signal.reason);
    const timer = setTimeout(wake, ms);
    if (signal?.aborted) return stop();
    signal?.addEventListener("abort", stop);
    if (wakes) addEventListener("online", wake);
  });
}

// A hidden page asks nothing, and asks at once when it is looked at.
function seen(signal) {
  return new Promise((resolve, reject) => {
    const done = (settle, value) => {
      document.removeEventListener("visibilitychange", look);
      signal?.removeEventListener("abort", stop);
      settle(value);
    };
    const look = () => document.hidden || done(resolve);
    const stop = () => done(reject, signal.reason);
    if (signal?.aborted) return stop();
    document.addEventListener("visibilitychange", look);
    signal?.addEventListener("abort", stop);
    look();
  });
}
