// @ts-check
/** The last quarter of an hour, as this tab has seen it. The server keeps no history. */

import { events, get } from "./api.js";

/** @typedef {{at: number, behind: number | null, backfill: number | null, cache: number | null, work: number | null}} Look */

const KEPT_MS = 15 * 60 * 1000;
const KEY = "psoup-history";

/** @type {Look[]} */
let looks = read();

/** @returns {Look[]} */
function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) || "[]");
  } catch {
    return [];
  }
}

/** @param {Omit<Look, "at">} look */
function add(look) {
  looks = [...looks.filter((old) => old.at > Date.now() - KEPT_MS), { at: Date.now(), ...look }];
  sessionStorage.setItem(KEY, JSON.stringify(looks));
}

// A gap in the lines while the store is away.
events.addEventListener("away", () => add({ behind: null, backfill: null, cache: null, work: null }));

/**
 * Return the status of the store, and remember it.
 * @param {AbortSignal} [signal]
 */
export async function lookAtStatus(signal) {
  const status = await get("/v1/status", {}, signal);
  const work = status.top_registrations.reduce((sum, entry) => sum + entry.work, 0);
  add({ behind: status.behind_rows, backfill: status.backfill_rows, cache: status.cache_bytes, work });
  return status;
}

export function history() {
  return looks;
}
