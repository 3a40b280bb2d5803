// @ts-check
/** Engine: how the store is, and the last quarter of an hour as this page has seen it. */

import { events, get } from "../api.js";
import { lineChart } from "../chart.js";
import { ago, bytes, clock, count, counted, duration, empty, fill, h, panel, shown, table, tile } from "../dom.js";
import { quotaTable } from "./people.js";

const LOOK_PAUSE_MS = 2000;
const KEPT_MS = 15 * 60 * 1000;

/** @type {{at: number, behind: number | null, backfill: number | null, cache: number | null, work: number | null}[]} */
let seen = [];
// A gap in the lines while the store is away.
events.addEventListener("away", () => seen.push({ at: Date.now(), behind: null, backfill: null, cache: null, work: null }));

/** @param {import("../main.js").Context} context */
export async function engine({ root, signal, poll }) {
  const tiles = h("div", { class: "tiles" }), charts = h("div", { class: "pair" }), more = h("div", { class: "stack" });
  fill(root, h("div", { class: "title" }, h("h1", null, "Engine")), tiles, charts, more);
  await poll(async () => {
    const status = await get("/v1/status", {}, signal);
    const now = status.clock?.clock || new Date().toISOString(), top = status.top_registrations;
    const work = top.reduce((/** @type {number} */ sum, /** @type {any} */ entry) => sum + entry.work, 0);
    seen = [...seen.filter((look) => look.at > Date.now() - KEPT_MS), { at: Date.now(), behind: status.behind_rows, backfill: status.backfill_rows, cache: status.cache_bytes, work }];
    fill(tiles,
      tile("engine", status.engine?.running ? "running" : "not running", status.engine ? `${status.engine.host}, process ${status.engine.pid}` : "answers are computed on the spot"),
      tile("epoch", count(status.epoch), status.epoch_at ? ago(status.epoch_at, now) : "none made yet"),
      tile("behind", counted(status.behind_rows, "row"), status.behind_rows ? duration(status.behind_seconds) : "up to date"),
      tile("back-fill", counted(status.backfill_rows, "row"), "to match for new queries"),
      tile("conditions", count(status.predicate_count), `of ${counted(status.registration_count, "registration")}`),
      tile("joins matched ahead", count(status.composite_count), status.suspended_count ? `${count(status.suspended_count)} suspended` : "none suspended"),
      tile("cache", bytes(status.cache_bytes), `of ${bytes(status.cache_limit_bytes)}`),
      tile("server up", duration(status.uptime_seconds), `version ${status.version}`));
    const width = charts.clientWidth > 976 ? charts.clientWidth / 2 - 42 : charts.clientWidth - 34;
    const instants = seen.map((look) => look.at);
    /** @param {string} title @param {"behind" | "backfill" | "cache" | "work"} name @param {(value: number) => string} [format] */
    const drawn = (title, name, format) => panel(title, lineChart(instants, [{ name: title, values: seen.map((look) => look[name]) }], { label: title, height: 180, width, format }));
    fill(charts, drawn("Rows behind", "behind"), drawn("Rows to back-fill", "backfill"), drawn("Cache", "cache", bytes), drawn("Work of answers in the last minute", "work"));
    fill(more, notices(status),
      panel("Most work in the last minute", top.length
        ? table(["registration", "owner", "work", "answers"], top.map((/** @type {any} */ entry) => [shown(entry.client_key || entry.handle), shown(entry.owner), count(entry.work), count(entry.pieces)]), { numbers: [2, 3], links: top.map((/** @type {any} */ entry) => `#/registrations/${encodeURIComponent(entry.client_key || entry.handle)}${entry.owner ? `?owner=${encodeURIComponent(entry.owner)}` : ""}`) })
        : empty("Quiet", h("p", null, "No registration was answered in the last minute, or your key may not see this."))),
      status.quotas.length > 0 && panel("Quotas", quotaTable(status.quotas)),
      h("p", { class: "muted" }, "The lines show what this page has seen since it was opened, at most 15 minutes. The server keeps no history."));
  }, LOOK_PAUSE_MS);
}

/** @param {any} status */
function notices(status) {
  const clockState = status.clock || {};
  const list = [
    clockState.problem && h("p", { class: "warn" }, "Clock: ", shown(clockState.problem)),
    ...(clockState.jumps || []).map(() => h("p", { class: "warn" }, "The store's time has jumped and nobody has confirmed it: psoup clock")),
    ...status.holes.map((/** @type {any} */ hole) => h("p", { class: "warn" }, shown(`${hole.stream}: ${counted(hole.row_count, "row")} can't be read (${hole.file}), ${clock(hole.begin)} to ${clock(hole.end)}`))),
    ...status.quarantine.map((/** @type {any} */ entry) => h("p", { class: "warn" }, shown(`${entry.stream}: ${counted(entry.registration_count, "registration")} answered on the spot: ${entry.reason}`))),
  ].filter(Boolean);
  return list.length ? panel("To look at", ...list) : null;
}
