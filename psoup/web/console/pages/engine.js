// @ts-check
/** Engine: how the store is, and the last quarter of an hour as this tab has seen it. */

import { lineChart } from "../chart.js";
import { ago, bytes, clock, count, counted, duration, empty, fill, h, panel, shown, soft, table, tile } from "../dom.js";
import { history, lookAtStatus } from "../history.js";
import { quotaTable } from "./people.js";
import { linkTo, nameOf } from "./registrations.js";

const LOOK_PAUSE_MS = 2000;
const CHART_HEIGHT = 180;

/** @param {import("../main.js").Context} context */
export async function engine({ root, signal, poll }) {
  const tiles = h("div", { class: "tiles wide" }), charts = h("div", { class: "pair" }), notices = h("div", { class: "stack" }), more = h("div", { class: "stack" });
  fill(root, h("div", { class: "title" }, h("h1", null, "Engine")), notices, tiles, charts, more);
  await poll(async () => {
    const status = await lookAtStatus(signal);
    // Others than operators are not shown the machines.
    const { engine: process, clock: time, top_registrations: top, holes, quarantine, suspended_count } = status, now = time?.clock || new Date().toISOString();
    fill(notices, warnings(status));
    fill(tiles,
      tile("engine", process?.running ? "running" : "not running", process?.host ? shown(`${process.host}, process ${process.pid}`) : process?.running ? "on a machine for operators to see" : "answers are computed on the spot"),
      tile("epoch", count(status.epoch), status.epoch_at ? ago(status.epoch_at, now) : "none made yet"),
      tile("behind", counted(status.behind_rows, "row"), status.behind_rows ? duration(status.behind_seconds) : "up to date"),
      tile("back-fill", counted(status.backfill_rows, "row"), "to match for new queries"),
      tile("conditions", count(status.predicate_count), `of ${counted(status.registration_count, "registration")}`),
      tile("joins matched ahead", count(status.composite_count), suspended_count ? `${count(suspended_count)} suspended` : "none suspended"),
      tile("holes", holes.length ? count(holes.length) : "none", holes.length ? "rows can't be read" : `${quarantine.length ? count(quarantine.length) : "nothing"} in quarantine`),
      tile("clock", time?.problem ? "stopped" : time?.unconfirmed_seconds ? "has jumped" : time?.server ? "right" : "–", time?.server ? counted(time.others.length, "other server") : "for operators"),
      tile("cache", bytes(status.cache_bytes), status.cache_limit_bytes ? `of ${bytes(status.cache_limit_bytes)}` : ""),
      tile("server up", duration(status.uptime_seconds), `version ${status.version}`));
    const width = charts.clientWidth > 976 ? charts.clientWidth / 2 - 42 : charts.clientWidth - 34, looks = history(), instants = looks.map((look) => look.at);
    /** @param {string} title @param {"behind" | "backfill" | "cache" | "work"} name @param {(value: number) => string} [format] */
    const drawn = (title, name, format) => panel(title, lineChart(instants, [{ name: title, values: looks.map((look) => look[name]) }], { label: title, height: CHART_HEIGHT, width, format }));
    fill(charts, drawn("Rows behind", "behind"), drawn("Rows to back-fill", "backfill"), drawn("Cache", "cache", bytes), drawn("Work of answers in the last minute", "work"));
    const most = Math.max(1, ...top.map((entry) => entry.work));
    fill(more,
      soft("The lines show what this tab has seen, at most 15 minutes. The server keeps no history."),
      panel("Most work in the last minute", top.length
        ? table(["registration", "owner", "work", "", "answers"], top.map((entry) => [shown(nameOf(entry)), shown(entry.owner), count(entry.work), h("meter", { max: most, value: entry.work, "aria-label": "share of the most" }), count(entry.pieces)]), { numbers: [2, 4], links: top.map(linkTo) })
        : empty("Quiet", h("p", null, "No registration was answered in the last minute, or your key may not see this."))),
      panel("Quotas", status.quotas.length ? quotaTable(status.quotas) : empty("No quotas", h("p", null, "psoup quota set bounds what a tenant or an owner may have and do."))));
  }, LOOK_PAUSE_MS);
}

/** @param {any} status */
function warnings({ clock: time, holes, quarantine }) {
  const limited = !time?.server && h("p", { class: "note" }, "You see your own share: machines, clocks, holes, and what costs most are for operators and for those who administer the tenant.");
  return [limited, ...[
    time?.problem && ["Clock: ", shown(time.problem)],
    time?.unconfirmed_seconds > 0 && `The store's time has jumped by ${duration(time.unconfirmed_seconds)}, and nobody has confirmed it: psoup clock shows how.`,
    ...holes.map((hole) => shown(`${hole.stream}: ${counted(hole.row_count, "row")} can't be read (${hole.file}), ${clock(hole.begin)} to ${clock(hole.end)}`)),
    ...quarantine.map((entry) => shown(`${entry.stream}: ${counted(entry.registration_count, "registration")} answered on the spot: ${entry.reason}`)),
  ].filter(Boolean).map((text) => h("p", { class: "warn" }, text))];
}
