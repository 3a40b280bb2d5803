// @ts-check
/** Query: a text, its parameters, and two sliders: how long the window is, and as of when. */

import { answerTable, isNumber } from "../answer.js";
import { call, get, isAbort } from "../api.js";
import { lineChart } from "../chart.js";
import { ask as dialog, clock, count, counted, duration, empty, failure, fill, h, shown, soft, space } from "../dom.js";
import { editor } from "../editor.js";
import { logSlider } from "../slider.js";
import { findWindow, parameters, readWindow, roundSize, sources, withWindow, writeWindow } from "../sql.js";
import { explained } from "../tree.js";

const MAX_ROWS = 1000;
const MAX_WINDOW_ROWS = 1e6;
const DEFAULT_RETAIN_SECONDS = 30 * 86400;
const LIVE_PAUSE_MS = 1000;
const QUIET_MS = 350;
const CHART_ANSWERS = 60;
const CHART_CALLS = 4;
const MAX_LINES = 6;
// No column has this name.
const ROW_COUNT = " rows";
const SPANS = /** @type {[string, number][]} */ ([["15 minutes", 900], ["1 hour", 3600], ["6 hours", 21600], ["1 day", 86400], ["7 days", 604800], ["30 days", 2592000]]);

/** @param {import("../main.js").Context} context */
export async function query({ root, query, signal, poll, keep }) {
  // ---- what the address holds
  const state = {
    sql: query.get("sql") || "", key: query.get("key") || "", owner: query.get("owner") || "", window: query.get("window") || "",
    asOf: query.get("as_of") || "", span: Number(query.get("span")) || 3600, measure: query.get("measure") || "", live: query.get("live") || "",
  };
  /** @type {Map<string, string>} */
  const values = new Map([...query].filter(([name]) => name.startsWith("p.")).map(([name, value]) => [name.slice(2), value]));
  let registered = "", latest = Date.now(), kind = /** @type {"range" | "rows"} */ ("range"), retain = DEFAULT_RETAIN_SECONDS;
  /** @type {AbortController | null} */
  let asking = null;
  /** @type {AbortController | null} */
  let charting = null;
  /** @type {any} */
  let last = null;
  let quiet = 0;

  const streams = (await get("/v1/streams", {}, signal)).streams;
  if (state.key) {
    const registration = await get(`/v1/registrations/${encodeURIComponent(state.key)}`, { owner: state.owner }, signal);
    registered = registration.sql;
    state.sql ||= registered;
    for (const [name, value] of Object.entries(registration.parameters)) if (!values.has(name)) values.set(name, String(value));
  }
  if (!streams.length) return fill(root, h("h1", null, "Query"), empty("Nothing to ask yet", h("p", null, "A query reads streams, and there is none."), h("a", { class: "button main", href: "#/streams" }, "Create a stream")));
  const name = streams[0].name;
  state.sql ||= `SELECT count(*) AS rows FROM ${/^[a-z_]\w*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`}\nRANGE 10 MINUTES`;

  // ---- the parts of the page
  const text = editor(state.sql, { label: "The query", onRun: run, onChange: changed });
  const fields = h("div", { class: "row" }), message = h("div"), answer = h("div", { class: "stack" }), chart = h("div"), plan = h("div");
  const windowText = h("output"), asOfText = h("output"), windowEnd = h("span"), windowStart = h("span"), asOfEnd = h("span");
  const windowSlider = logSlider({ label: "The window", min: 1, max: retain, round: (size) => roundSize(kind, size), text: (size) => writeWindow(kind, size), onSlide(size) {
    state.window = writeWindow(kind, size);
    ask();
  } });
  const asOfSlider = logSlider({ label: "As of", min: 1, max: retain, zero: true, reversed: true, round: (size) => roundSize("range", size), text: (size) => (size ? `${duration(size)} ago` : "now"), onSlide(size) {
    state.asOf = size ? `${new Date(latest - size * 1000).toISOString().slice(0, 19)}Z` : "";
    ask();
  } });
  asOfSlider.node.classList.add("from-right");
  const kinds = /** @type {const} */ ([["range", "time"], ["rows", "rows"]]).map(([value, label]) => h("button", { type: "button", "data-kind": value, onclick() {
    kind = value;
    limits();
    state.window = value === "rows" ? "ROWS 100" : "RANGE 10 MINUTES";
    ask();
  } }, label));
  const asWritten = h("button", { class: "quiet", type: "button", onclick() {
    state.window = "";
    ask();
  } }, "as written");
  const toNow = h("button", { class: "quiet", type: "button", onclick() {
    state.asOf = "";
    ask();
  } }, "now");
  const live = h("input", { type: "checkbox", checked: Boolean(state.live), onchange() {
    state.live = live.checked ? "1" : "";
    remember();
  } });
  const spans = h("select", { "aria-label": "How far back the chart goes", onchange() {
    state.span = Number(spans.value);
    remember();
    drawChart();
  } }, SPANS.map(([label, seconds]) => h("option", { value: String(seconds), selected: seconds === state.span }, label)));
  const measures = h("select", { hidden: true, "aria-label": "What the chart shows", onchange() {
    state.measure = measures.value;
    remember();
    drawChart();
  } });

  fill(root,
    h("div", { class: "title" }, h("h1", null, "Query"), state.key && h("a", { class: "chip on", href: `#/registrations/${encodeURIComponent(state.key)}${state.owner ? `?owner=${encodeURIComponent(state.owner)}` : ""}` }, "registered as ", shown(state.key))),
    h("section", { class: "panel" }, text.node, fields, message,
      h("div", { class: "row" },
        h("button", { class: "main", type: "button", onclick: run }, "Ask ", h("kbd", null, "Ctrl ↵")),
        h("button", { type: "button", onclick: register }, "Register…"),
        h("button", { class: "quiet", type: "button", onclick: explain }, "Explain"),
        space(), h("label", { class: "check" }, live, "live"))),
    h("section", { class: "panel sliders" },
      h("div", { class: "slide" }, h("div", { class: "row" }, h("span", { class: "label" }, "Window"), windowText, space(), asWritten, h("span", { class: "segments", role: "group", "aria-label": "Window by" }, kinds)),
        windowSlider.node, h("div", { class: "ends" }, windowStart, windowEnd)),
      h("div", { class: "slide" }, h("div", { class: "row" }, h("span", { class: "label" }, "AS OF"), asOfText, space(), toNow),
        asOfSlider.node, h("div", { class: "ends" }, asOfEnd, h("span", null, "now")))),
    answer,
    h("section", { class: "panel" }, h("h2", null, "Over time", space(), measures, spans), chart,
      soft(`${CHART_ANSWERS} answers of this query, each as of its instant, with all rows known today.`)),
    plan);

  // ---- what it does
  function remember() {
    const own = Object.fromEntries([...values].map(([name, value]) => [`p.${name}`, value]));
    const { span, asOf, sql, ...others } = state;
    keep({ ...others, sql: sql === registered ? "" : sql, as_of: asOf, span: span === 3600 ? "" : String(span), ...own });
  }
  function parametersOf() {
    return Object.fromEntries(parameters(state.sql).map((name) => [`p.${name}`, values.get(name) ?? ""]).filter(([, value]) => value !== ""));
  }
  function drawFields() {
    const names = parameters(state.sql);
    if (names.join() === fields.dataset.names) return;
    fields.dataset.names = names.join();
    fields.hidden = !names.length;
    fill(fields, names.map((name) => {
      const input = h("input", { value: values.get(name) || "", placeholder: "a value", oninput() {
        values.set(name, input.value);
        ask();
      } });
      return h("label", { class: "field" }, `:${name}`, input);
    }));
  }
  function limits() {
    const over = streams.filter((stream) => sources(state.sql).includes(stream.name.toLowerCase()) && stream.retain_seconds);
    retain = Math.min(DEFAULT_RETAIN_SECONDS, ...over.map((stream) => stream.retain_seconds));
    windowSlider.limit(kind === "rows" ? MAX_WINDOW_ROWS : retain);
    asOfSlider.limit(retain);
    windowStart.textContent = kind === "rows" ? "1 row" : "1 s";
    asOfEnd.textContent = `${duration(retain)} ago`;
    windowEnd.textContent = kind === "rows" ? `${count(MAX_WINDOW_ROWS)} rows` : duration(retain);
  }
  function drawSliders() {
    const written = state.window || findWindow(state.sql).window, read = readWindow(written);
    if (read && read.kind !== kind) {
      kind = read.kind;
      limits();
    }
    windowText.textContent = state.window || written || "as written";
    asWritten.hidden = !state.window;
    windowSlider.set(read?.size || (kind === "rows" ? 100 : 600));
    kinds.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.kind === kind)));
    const ago = state.asOf ? Math.max(1, (latest - Date.parse(state.asOf)) / 1000) : 0;
    asOfText.textContent = state.asOf ? `${clock(state.asOf)} · ${duration(ago)} ago` : "now";
    toNow.hidden = !state.asOf;
    asOfSlider.set(ago);
  }
  function changed(sql) {
    state.sql = sql;
    state.window = "";
    fill(message);
    drawFields();
    limits();
    drawSliders();
    remember();
  }
  function run() {
    fill(plan);
    return ask();
  }
  /** @param {string} asOf @param {AbortSignal} stop @param {number} limit */
  function request(asOf, stop, limit) {
    const shared = { as_of: asOf, knowledge: asOf ? "today" : "", limit, bigint: "text" };
    if (state.key && state.sql === registered) return get(`/v1/answers/${encodeURIComponent(state.key)}`, { ...shared, owner: state.owner, window: state.window }, stop);
    const sql = state.window ? withWindow(state.sql, state.window) : state.sql;
    return call("POST", "/v1/ask", { query: { ...shared, ...parametersOf() }, body: sql, type: "application/sql", signal: stop });
  }
  async function ask(again = false) {
    asking?.abort();
    const stop = (asking = new AbortController());
    drawSliders();
    if (!again) {
      remember();
      charting?.abort();
      clearTimeout(quiet);
    }
    const begun = performance.now();
    try {
      last = await request(state.asOf, AbortSignal.any([stop.signal, signal]), MAX_ROWS);
      if (!state.asOf && last.now) latest = Date.parse(last.now);
      text.mark(null);
      fill(message);
      drawAnswer(performance.now() - begun);
      if (!again) quiet = setTimeout(drawChart, QUIET_MS);
    } catch (error) {
      if (isAbort(error) || signal.aborted) return;
      if (!error.status) throw error;
      // With a slid window the place in the text is another one, unless it stands before the window.
      text.mark(error);
      fill(message, failure(error));
    }
  }
  /** @param {number} took */
  function drawAnswer(took) {
    const { row_count, truncated, rows, window, elapsed_ms, computed_rows, now, notes } = last;
    const about = [
      `${counted(row_count, "row")}`, window.begin && `${clock(window.begin.slice(0, 19))} to ${clock(window.end?.slice(0, 19))}`, now && `NOW ${clock(now.slice(0, 19))}`,
      `${elapsed_ms.toFixed(1)} ms in the server, ${took.toFixed(0)} ms here`, computed_rows > 0 && `${count(computed_rows)} computed on the spot`,
    ];
    fill(answer, h("section", { class: "panel", "aria-live": "polite" },
      h("h2", null, counted(row_count, "row"), h("small", null, about.slice(1).filter(Boolean).join(" · "))),
      truncated && h("p", { class: "warn" }, `The page shows the first ${count(rows.length)} of ${count(row_count)} rows. The answer has all of them; this is a limit of the page.`),
      notes.map((note) => h("p", { class: "note" }, shown(note))),
      rows.length ? answerTable(last) : empty("No rows", h("p", null, "No row of this window fits. Slide the window wider, or AS OF to another time."))));
    const numeric = last.columns.filter((column) => isNumber(column.type)).map((column) => column.name);
    const options = [ROW_COUNT, ...numeric];
    measures.hidden = false;
    if (measures.dataset.options !== options.join("\0")) {
      measures.dataset.options = options.join("\0");
      if (!state.measure || !options.includes(state.measure)) state.measure = numeric[0] && last.row_count <= MAX_LINES ? numeric[0] : ROW_COUNT;
      fill(measures, options.map((name) => h("option", { value: name, selected: name === state.measure }, name === ROW_COUNT ? "number of rows" : shown(name))));
    }
  }
  async function drawChart() {
    charting?.abort();
    const stop = (charting = new AbortController());
    if (!last) return;
    const both = AbortSignal.any([stop.signal, signal]);
    const end = latest, step = (state.span * 1000) / (CHART_ANSWERS - 1);
    const instants = Array.from({ length: CHART_ANSWERS }, (_, place) => end - state.span * 1000 + place * step);
    /** @type {(any | null)[]} */
    const answers = instants.map(() => null);
    // From coarse to fine, so that the shape is there at once.
    const order = [...instants.keys()].sort((a, b) => coarse(b) - coarse(a) || a - b);
    let frame = 0;
    const draw = () => {
      frame = 0;
      if (!stop.signal.aborted) fill(chart, lineChart(instants, lines(answers, state.measure), { label: `the answer over ${duration(state.span)}`, width: chart.clientWidth, height: 260 }));
    };
    async function work() {
      for (let place = order.shift(); place !== undefined && !both.aborted; place = order.shift()) {
        answers[place] = await request(new Date(instants[place]).toISOString(), both, MAX_LINES * 4);
        frame ||= requestAnimationFrame(draw);
      }
    }
    try {
      await Promise.all(Array.from({ length: CHART_CALLS }, work));
    } catch (error) {
      if (both.aborted || isAbort(error)) return;
      stop.abort();
      fill(chart, failure(error));
    }
  }
  function register() {
    const key = h("input", { required: true, value: state.key, maxlength: "200", placeholder: "such as by-symbol" }), replace = h("input", { type: "checkbox" });
    dialog("Register", [
      soft("The store matches every new row with it from now on, also while you are away. The window can still be chosen with each answer."),
      h("label", { class: "field" }, "Client key", key), h("label", { class: "check" }, replace, "replace the query that has this key")], "Register", async () => {
      const sql = state.window ? withWindow(state.sql, state.window) : state.sql;
      await call("PUT", `/v1/registrations/${encodeURIComponent(key.value)}`, { query: parametersOf(), body: sql, type: "application/sql", headers: replace.checked ? { "if-match": "*" } : {}, signal });
      location.hash = `#/registrations/${encodeURIComponent(key.value)}`;
    });
  }
  async function explain() {
    const sql = state.window ? withWindow(state.sql, state.window) : state.sql;
    try {
      const explanation = await call("POST", "/v1/explain", { query: parametersOf(), body: sql, type: "application/sql", signal });
      fill(plan, h("section", { class: "panel" }, h("h2", null, "How it is answered"), explained(explanation, plan.clientWidth - 34)));
      plan.scrollIntoView({ block: "nearest" });
    } catch (error) {
      if (isAbort(error)) return;
      text.mark(error);
      fill(message, failure(error));
    }
  }

  drawFields();
  limits();
  await ask();
  await poll(async () => {
    if (live.checked && !state.asOf) await ask(true);
  }, LIVE_PAUSE_MS);
}

/** @param {number} place @returns {number} how coarse a grid is that still has this place */
function coarse(place) {
  return [16, 8, 4, 2].find((size) => place % size === 0) || 1;
}

/**
 * Return the lines of a chart: one for each value of the first text column if there are few.
 * @param {any[]} answers @param {string} measure
 */
function lines(answers, measure) {
  const first = answers.find(Boolean);
  const column = first.columns.findIndex((one) => one.name === measure);
  if (column < 0) return [{ name: "rows", values: answers.map((answer) => answer && answer.row_count) }];
  const label = first.columns.findIndex((one) => one.type === "TEXT");
  const number = (value) => (value === null || Number.isNaN(Number(value)) ? null : Number(value));
  const labels = label < 0 ? [] : [...new Set(answers.flatMap((answer) => (answer ? answer.rows.map((row) => String(row[label])) : [])))].sort();
  const singular = answers.every((answer) => !answer || new Set(answer.rows.map((row) => row[label])).size === answer.rows.length);
  if (labels.length && labels.length <= MAX_LINES && singular) {
    return labels.map((name) => ({ name, values: answers.map((answer) => number(answer?.rows.find((row) => String(row[label]) === name)?.[column] ?? null)) }));
  }
  const mean = (/** @type {any[][]} */ rows) => {
    const numbers = rows.map((row) => number(row[column])).filter((value) => value !== null);
    return numbers.length ? numbers.reduce((sum, value) => sum + value, 0) / numbers.length : null;
  };
  const several = answers.some((answer) => answer && answer.rows.length > 1);
  return [{ name: several ? `mean of ${measure} (first rows)` : measure, values: answers.map((answer) => answer && mean(answer.rows)) }];
}
