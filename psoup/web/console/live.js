// @ts-check
/** An answer that follows its store: rows as they come, and when each of them leaves by time. */

import { answerTable } from "./answer.js";
import { Away, connection, eventsOf, isAbort } from "./api.js";
import { count, counted, duration, empty, failure, fill, h } from "./dom.js";

const SHOWN_ROWS = 10;
const MAX_ROWS = 20000;
const DRAW_PAUSE_MS = 500;
const RETRY_MS = 2000;

/** @typedef {{id: string, key: string | null, row: any[], visible_from: string | null, visible_until: string | null}} Row */

/**
 * Return a panel that follows a registration while the page is looked at.
 * @param {string} path @param {string} owner @param {AbortSignal} signal
 */
export function live(path, owner, signal) {
  const body = h("div"), title = h("h2", null, "Live");
  /** What holds, and what will at the next `end`. @type {Map<string, Row>[]} */
  let [rows, next] = [new Map(), new Map()];
  /** @type {any[]} */
  let columns = [];
  let since = "", came = 0, left = 0, changed = true, slides = false, now = 0, skew = 0;
  /** @type {AbortController | null} */
  let following = null;

  /** Apply events when their `end` is there, never before. @param {AbortSignal} stop */
  async function follow(stop) {
    let whole = false;
    next = new Map(rows);
    for await (const { name, id, data } of eventsOf(path, { owner, since, bigint: "text" }, stop)) {
      if (name === "whole") [next, columns, slides, whole] = [new Map(), data.columns, data.slides, true];
      // The NOW of streams with event time moves with their rows, not with the clock.
      if (data.now) now = Date.parse(data.now);
      if (name === "drop") next = new Map(rows);
      else if (name === "gone") data.ids.forEach((gone) => next.delete(gone));
      else if (name === "row") {
        if (next.size >= MAX_ROWS) throw new Error(`this answer has more than ${count(MAX_ROWS)} rows, too many to follow on a page`);
        if (data.key !== null && !whole) for (const [other, row] of next) if (row.key === data.key) next.delete(other);
        next.set(data.id, data);
        if (!whole) came += 1;
      } else if (name === "end") {
        [rows, since, whole, changed] = [next, id, false, true];
        next = new Map(rows);
        skew = Date.parse(data.store_now) - Date.now() || 0;
      } else if (name === "error") throw new Error(data.title);
    }
  }
  async function run() {
    while (!signal.aborted) {
      const stop = (following = new AbortController());
      try {
        if (!document.hidden && !connection.awaySince) await follow(AbortSignal.any([stop.signal, signal]));
      } catch (error) {
        if (signal.aborted) return;
        if (!isAbort(error) && !(error instanceof Away)) return fill(body, failure(error));
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
  function draw() {
    if (slides) now = Date.now() + skew;
    // Nothing is sent for rows that leave by time: each brought the instant of it.
    for (const [id, row] of rows) {
      if (!row.visible_until || Date.parse(row.visible_until) > now) continue;
      rows.delete(id);
      next.delete(id);
      [left, changed] = [left + 1, true];
    }
    if (!columns.length || (!changed && ![...rows.values()].some((row) => row.visible_until))) return;
    changed = false;
    const visible = [...rows.values()].filter((row) => !row.visible_from || Date.parse(row.visible_from) <= now);
    const newest = visible.slice(-SHOWN_ROWS).reverse();
    const leaves = newest.some((row) => row.visible_until);
    fill(title, "Live", h("small", null, `${counted(visible.length, "row")} · ${count(came)} came, ${count(left)} left by time, which needs no message`));
    fill(body, newest.length
      ? answerTable({
          columns: leaves ? [...columns, { name: "leaves in", type: "" }] : columns,
          rows: newest.map((row) => (leaves ? [...row.row, row.visible_until ? duration(Math.ceil((Date.parse(row.visible_until) - now) / 1000)) : "–"] : row.row)),
        })
      : empty("No rows at present", h("p", null, "Rows appear here as soon as they match.")));
  }
  const hide = () => document.hidden && following?.abort();
  document.addEventListener("visibilitychange", hide, { signal });
  const timer = setInterval(draw, DRAW_PAUSE_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  run();
  return h("section", { class: "panel" }, title, body);
}
