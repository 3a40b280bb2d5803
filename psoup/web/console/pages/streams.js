// @ts-check
/** Streams: what there is, how fast it grows; one of them with its newest rows. */

import { answerTable } from "../answer.js";
import { call, get, isAbort } from "../api.js";
import { sparkline } from "../chart.js";
import { bytes, clock, copyButton, count, counted, duration, empty, failure, fill, h, panel, part, shown, soft, space, table, tile } from "../dom.js";
import { coloured, editor } from "../editor.js";
import { linkTo, nameOf } from "./registrations.js";

const LOOK_PAUSE_MS = 2000;
const TAIL_PAUSE_MS = 1000;
const TAIL_ROWS = 50;
const LISTED_REGISTRATIONS = 8;
const SPEEDS = 40;
const SAMPLE = "CREATE STREAM trades (symbol TEXT, price DOUBLE, size BIGINT, at TIMESTAMP)\n  ORDERED BY at RETAIN 30 DAYS";

/** What the page has seen of each stream: rows at its last look, and rows a second before.
 * @type {Map<string, {rows: number, at: number, speeds: number[]}>} */
const seen = new Map();

/** @param {import("../main.js").Context} context */
export async function streams(context) {
  return context.parts[0] ? one(context, context.parts[0]) : all(context);
}

/** @param {import("../main.js").Context} context */
async function all({ root, signal, poll }) {
  const list = h("div", { class: "stack" }), views = h("div");
  const maker = h("div", { hidden: true }, definer(signal));
  const button = h("button", { type: "button", onclick: () => (maker.hidden = !maker.hidden) }, "Create a stream");
  fill(root, h("div", { class: "title" }, h("h1", null, "Streams"), space(), button), maker, list, views);
  let first = true;
  await poll(async () => {
    const entries = (await get("/v1/streams", {}, signal)).streams;
    if (!entries.length) {
      if (first) maker.hidden = false;
      fill(list, empty("No streams yet", h("p", null, "A stream is a table that only grows. ORDERED BY says that rows bring their own time, RETAIN how long they are kept, KEY that a newer row of a key replaces the older one. Create the one above, or your own; a stream that you may not read is not listed.")));
    } else {
      const links = entries.map((stream) => `#/streams/${encodeURIComponent(stream.name)}`);
      fill(list, panel("", table(["stream", "rows", "rows/s", "", "NOW", "kept", "key", "registrations", "policies"], entries.map(line), { numbers: [1, 2, 7], links })));
    }
    first = false;
    await part(views, get("/v1/views", {}, signal), (body) => body.views.length + body.functions.length > 0 && h("div", { class: "stack" }, body.views.length > 0 && panel("Views", table(["view", "over", "text"], body.views.map((view) => [shown(view.name), shown(view.over.join(", ")), h("code", null, shown(view.sql))]))), body.functions.length > 0 && panel("Functions", table(["function", "value", "text"], body.functions.map((entry) => [shown(entry.name), shown(entry.type), h("code", null, shown(entry.sql))])))));
  }, LOOK_PAUSE_MS);
}

/** @param {any} stream */
function line(stream) {
  const at = performance.now(), before = seen.get(stream.name);
  const speed = before && at > before.at ? Math.max(0, ((stream.row_count - before.rows) * 1000) / (at - before.at)) : null;
  const speeds = [...(before?.speeds || []), ...(speed === null ? [] : [speed])].slice(-SPEEDS);
  seen.set(stream.name, { rows: stream.row_count, at, speeds });
  const lag = stream.now ? (Date.now() - Date.parse(stream.now)) / 1000 : null;
  const now = stream.ordered_by && !stream.by_clock ? [clock(stream.now?.slice(0, 19)), lag !== null && lag > 2 && h("small", null, ` ${duration(lag)} behind the clock`)] : "the store's clock";
  return [
    h("strong", null, shown(stream.name)), count(stream.row_count), speed === null ? "…" : speed < 10 ? speed.toFixed(1) : count(speed), sparkline(speeds, "rows a second"), now,
    stream.retain_seconds ? duration(stream.retain_seconds) : "for ever", shown(stream.key.join(", ") || "–"),
    count(stream.registration_count), stream.policies.length ? counted(stream.policies.length, "policy", "policies") : "–",
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
      fill(message, h("p", { class: "note" }, "Done. Open the stream below to publish its first row."));
    } catch (error) {
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
  // A window over rows with a validity holds those that are valid, not those that came last.
  const newest = stream.sql.includes("\n    VALID FROM ") ? `ORDER BY row_id DESC LIMIT ${TAIL_ROWS} UNBOUNDED` : `ROWS ${TAIL_ROWS}`;
  const sql = `SELECT * FROM ${quoted} ${newest}`;
  const tiles = h("div", { class: "tiles" }), tail = h("div"), readers = h("div");
  const follow = h("input", { type: "checkbox", checked: true });
  const publisher = publishing(stream, `${path}/rows`, signal);
  fill(
    root,
    h("div", { class: "title" }, h("a", { href: "#/streams" }, "Streams"), h("span", { class: "muted" }, "/"), h("h1", null, shown(name)), space(),
      h("a", { class: "button main", href: `#/query?${new URLSearchParams({ sql: `SELECT * FROM ${quoted}\nRANGE 10 MINUTES` })}` }, "Query it")),
    tiles,
    h("section", { class: "panel" }, h("h2", null, `Newest ${TAIL_ROWS} rows`, space(), h("label", { class: "check" }, follow, "follow")), tail),
    h("div", { class: "columns" },
      publisher.node,
      h("section", { class: "panel" }, h("h2", null, "Text", space(), copyButton(() => [stream.sql, ...stream.policies].join(";\n"))), coloured(stream.sql), stream.policies.map(coloured),
        table(["column", "type"], stream.columns.map((column) => [shown(column.name), h("span", null, h("code", null, column.type), column.optional ? [" added, default ", ...shown(String(column.default ?? "NULL"))] : null)]), { plain: true })),
      h("section", { class: "panel" }, h("h2", null, "Registrations"), readers)),
  );
  let rounds = 0;
  await poll(async () => {
    if (rounds++ % 5 === 0) {
      const { row_count, now, ordered_by, by_clock, retain_seconds, stats, policies } = await get(path, {}, signal);
      fill(tiles,
        tile("rows", count(row_count)), tile("NOW", ordered_by && !by_clock ? clock(now?.slice(11, 19)) : "the store's clock", now?.slice(0, 10)),
        tile("kept", retain_seconds ? duration(retain_seconds) : "for ever"), tile("policies", policies.length ? count(policies.length) : "none", policies.length ? "callers see some rows" : "readers see all rows"),
        tile("on disk", stats ? bytes(stats.log_bytes + stats.stem_bytes + stats.match_bytes) : "–", stats ? `log ${bytes(stats.log_bytes)} · matches ${bytes(stats.match_bytes)}` : "for those who may read all rows"),
        tile("not in an epoch yet", stats ? count(stats.behind_rows) : "–", stats && (stats.behind_rows ? duration(stats.behind_seconds) : "the engine is up to date")));
      await part(readers, get("/v1/registrations", { stream: name, page_size: LISTED_REGISTRATIONS }, signal), (body) => body.registrations.length
        ? [table(["key", "window"], body.registrations.map((entry) => [shown(nameOf(entry)), shown(entry.window)]), { links: body.registrations.map(linkTo) }),
          body.next_page_token && h("a", { href: `#/registrations?${new URLSearchParams({ stream: name })}` }, "All of them")]
        : empty("None of yours", h("p", null, "A query that is registered over this stream has its answer ready at any time.")));
    }
    if (!follow.checked && rounds > 1) return;
    await part(tail, get("/v1/ask", { sql, bigint: "text" }, signal), (answer) => {
      answer.rows.reverse();
      publisher.sample(answer);
      return answer.rows.length ? answerTable(answer) : empty("No rows yet", h("p", null, "Publish the first one below, or a file: "), h("code", null, shown(`psoup publish ${name} FILE`)));
    });
  }, TAIL_PAUSE_MS);
}

/** @type {Record<string, any>} */
const SAMPLES = { BOOLEAN: true, BIGINT: 1, DOUBLE: 1.5, DECIMAL: "1.50", TEXT: "text", DATE: "2026-01-31" };

/**
 * A form that publishes rows that are pasted: JSON, JSON lines or CSV.
 * @param {any} stream @param {string} path @param {AbortSignal} signal
 */
function publishing(stream, path, signal) {
  const area = h("textarea", { class: "plain", rows: 4, spellcheck: "false", "aria-label": "Rows to publish" }), message = h("div");
  let touched = false;
  /** @param {any} [answer] the newest row is the sample */
  function sample(answer) {
    if (touched) return;
    const row = stream.columns.map((column) => {
      const place = answer?.columns.findIndex((other) => other.name === column.name) ?? -1, value = answer?.rows[0]?.[place];
      if (column.type === "TIMESTAMP") return [column.name, `${new Date().toISOString().slice(0, 19)}Z`];
      return [column.name, value === undefined ? SAMPLES[column.type.split("(")[0]] ?? null : value];
    });
    area.value = JSON.stringify(Object.fromEntries(row), null, 1).replace(/\n\s*/g, " ");
  }
  async function publish() {
    const body = area.value.trim(), lines = body.split("\n");
    const type = body[0] === "[" ? "json" : body[0] === "{" ? (lines.length > 1 && lines[1].trim()[0] === "{" ? "x-ndjson" : "json") : "csv";
    try {
      const { rows } = await call("POST", path, { body: type === "csv" ? `${body}\n` : body, type: type === "csv" ? "text/csv" : `application/${type}`, signal });
      fill(message, h("p", { class: "note" }, `${counted(rows, "row")} published.`));
    } catch (error) {
      if (!isAbort(error)) fill(message, failure(error));
    }
  }
  area.addEventListener("input", () => (touched = true));
  area.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && publish());
  sample();
  const node = h("section", { class: "panel" }, h("h2", null, "Publish"), soft("Paste rows as JSON, as one JSON object a line, or as CSV with a line of names."), area, message,
    h("div", { class: "row" }, h("button", { class: "main", type: "button", onclick: publish }, "Publish ", h("kbd", null, "Ctrl ↵")), space(), h("code", null, shown(`psoup publish ${stream.name} FILE`))));
  return { node, sample };
}
