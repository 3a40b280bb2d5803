// @ts-check
/** Streams: what there is, how fast it grows; one of them with its newest rows. */

import { call, get, isAbort } from "../api.js";
import { answerTable } from "../answer.js";
import { bytes, clock, copyButton, count, duration, empty, failure, fill, h, panel, shown, table, tile } from "../dom.js";
import { coloured, editor } from "../editor.js";

const LOOK_PAUSE_MS = 2000;
const TAIL_PAUSE_MS = 1000;
const TAIL_ROWS = 50;
const SAMPLE = "CREATE STREAM trades (symbol TEXT, price DOUBLE, size BIGINT, at TIMESTAMP)\n  ORDERED BY at RETAIN 30 DAYS";

/** @param {import("../main.js").Context} context */
export async function streams(context) {
  return context.parts[0] ? one(context, context.parts[0]) : all(context);
}

/** @param {import("../main.js").Context} context */
async function all({ root, signal, poll }) {
  const list = h("div", { class: "stack" });
  const maker = h("div", { hidden: true }, definer(signal));
  const button = h("button", { type: "button", onclick: () => (maker.hidden = !maker.hidden) }, "Create a stream");
  fill(root, h("div", { class: "title" }, h("h1", null, "Streams"), h("span", { class: "space" }), button), maker, list);
  /** @type {Map<string, {rows: number, at: number}>} */
  let before = new Map();
  await poll(async () => {
    const [answer, views] = await Promise.all([get("/v1/streams", {}, signal), get("/v1/views", {}, signal)]);
    const at = performance.now();
    if (!answer.streams.length) {
      maker.hidden = false;
      fill(list, empty("No streams yet", h("p", null, "A stream is a table that only grows. ORDERED BY says that rows bring their own time, RETAIN how long they are kept, KEY that a newer row of a key replaces the older one. Create the one above, or your own.")));
      return;
    }
    const rows = answer.streams.map((/** @type {any} */ stream) => line(stream, before.get(stream.name), at));
    fill(list, panel("", table(["stream", "rows", "rows/s", "NOW", "kept", "key", "registrations", "policies"], rows, { numbers: [1, 2, 6], links: answer.streams.map((/** @type {any} */ stream) => `#/streams/${encodeURIComponent(stream.name)}`) })));
    if (views.views.length) list.append(panel("Views", table(["view", "over", "text"], views.views.map((/** @type {any} */ view) => [shown(view.name), shown(view.over.join(", ")), h("code", null, shown(view.sql))]))));
    before = new Map(answer.streams.map((/** @type {any} */ stream) => [stream.name, { rows: stream.row_count, at }]));
  }, LOOK_PAUSE_MS);
}

/** @param {any} stream @param {{rows: number, at: number} | undefined} before @param {number} at */
function line(stream, before, at) {
  const speed = before ? ((stream.row_count - before.rows) * 1000) / (at - before.at) : null;
  const lag = stream.now ? (Date.now() - Date.parse(stream.now)) / 1000 : null;
  const now = stream.ordered_by ? [clock(stream.now?.slice(0, 19)), lag !== null && lag > 2 && h("small", null, ` ${duration(lag)} behind the clock`)] : "the store's clock";
  return [
    h("strong", null, shown(stream.name)), count(stream.row_count), speed === null ? "…" : count(Math.max(0, speed)), now,
    stream.retain_seconds ? duration(stream.retain_seconds) : "for ever", shown(stream.key.join(", ") || "–"),
    count(stream.registration_count), stream.policies.length ? shown(stream.policies.join(", ")) : "–",
  ];
}

/** @param {AbortSignal} signal */
function definer(signal) {
  const message = h("div");
  const text = editor(SAMPLE, { label: "A statement that creates a stream or a view", onRun: run, rows: 3 });
  async function run() {
    text.mark(null);
    try {
      await call("POST", "/v1/define", { body: text.value, type: "application/sql", signal });
      fill(message, h("p", { class: "note" }, "Done. Publish rows with psoup publish."));
    } catch (/** @type {any} */ error) {
      if (isAbort(error)) return;
      text.mark(error);
      fill(message, failure(error));
    }
  }
  return panel("Create a stream or a view", text.node, message, h("div", { class: "row" }, h("button", { class: "main", type: "button", onclick: run }, "Create ", h("kbd", null, "Ctrl ↵"))));
}

// ---- one stream

/** @param {import("../main.js").Context} context @param {string} name */
async function one({ root, signal, poll }, name) {
  const path = `/v1/streams/${encodeURIComponent(name)}`;
  const stream = await get(path, {}, signal);
  const quoted = /^[a-z_]\w*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
  const ask = `SELECT * FROM ${quoted} ROWS ${TAIL_ROWS}`;
  const tiles = h("div", { class: "tiles" });
  const tail = h("div");
  const follow = h("input", { type: "checkbox", checked: true });
  fill(
    root,
    h("div", { class: "title" }, h("a", { href: "#/streams" }, "Streams"), h("span", { class: "muted" }, "/"), h("h1", null, shown(name)), h("span", { class: "space" }),
      h("a", { class: "button main", href: `#/query?${new URLSearchParams({ sql: `SELECT * FROM ${quoted}\nRANGE 10 MINUTES` })}` }, "Query it")),
    tiles,
    h("section", { class: "panel" }, h("h2", null, `Newest ${TAIL_ROWS} rows`, h("span", { class: "space" }), h("label", { class: "check" }, follow, "follow")), tail),
    h("div", { class: "columns" },
      h("section", { class: "panel" }, h("h2", null, "Text", h("span", { class: "space" }), copyButton(() => stream.sql)), coloured(stream.sql),
        table(["column", "type"], stream.columns.map((/** @type {any} */ column) => [shown(column.name), h("code", null, column.type)]))),
      publishing(stream)),
  );
  let rounds = 0;
  await poll(async () => {
    if (rounds++ % 3 === 0) {
      const { row_count, now, ordered_by, retain_seconds, registration_count, stats, policies } = await get(path, {}, signal);
      fill(tiles,
        tile("rows", count(row_count)), tile("NOW", ordered_by ? clock(now?.slice(0, 19)) : "the store's clock"),
        tile("kept", retain_seconds ? duration(retain_seconds) : "for ever"), tile("registrations", count(registration_count)),
        stats && tile("on disk", bytes(stats.log_bytes + stats.stem_bytes + stats.match_bytes), `log ${bytes(stats.log_bytes)} · matches ${bytes(stats.match_bytes)}`),
        stats && tile("not in an epoch yet", count(stats.behind_rows), stats.behind_rows ? duration(stats.behind_seconds) : "the engine is up to date"),
        policies.length > 0 && tile("policies", count(policies.length), policies.join(", ")));
    }
    if (!follow.checked && rounds > 1) return;
    try {
      const answer = await get("/v1/ask", { sql: ask, bigint: "text" }, signal);
      answer.rows.reverse();
      fill(tail, answer.rows.length ? answerTable(answer) : empty("No rows yet", h("p", null, "Publish some with "), h("code", null, `psoup publish ${name} FILE`)));
    } catch (/** @type {any} */ error) {
      if (isAbort(error) || !error.status) throw error;
      fill(tail, failure(error));
    }
  }, TAIL_PAUSE_MS);
}

/** @param {any} stream */
function publishing(stream) {
  const names = stream.columns.map((/** @type {any} */ column) => column.name);
  const command = `psoup publish ${stream.name} FILE`;
  return h("section", { class: "panel" }, h("h2", null, "Publish", h("span", { class: "space" }), copyButton(() => command)),
    h("p", { class: "muted" }, "Rows come from programs and files: CSV with the line below, JSON lines or Parquet. A file is published once, however often it is sent."),
    h("pre", { class: "sql" }, shown(names.join(","))), h("pre", { class: "sql" }, shown(command)));
}
