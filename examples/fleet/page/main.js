// @ts-check
/** The page: a map of the town as it is, and two phones that show what their copies have. */

import { Town } from "./town.js";

/** @typedef {[string, number, number, number]} Point a vehicle, its place, and how many seconds ago */
/** @typedef {{id: number, title: string, state: string, editor: string, waits: boolean}} Job */
/** @typedef {{received_bytes: number, received_rows: number, sent_rows: number, left_by_time: number, equals_store: boolean | null}} Meter */
/** @typedef {{seconds: number, left_by_time: number, received_bytes: number | null, received_rows: number, sent_rows: number, whole_bytes: number}} Absence */
/** @typedef {{name: string, west: number, east: number, plugged: boolean, problem: string, points: Point[], jobs: Job[], queued: number, meter: Meter, absence: Absence | null}} PhoneState */
/** @typedef {{store: {reports: number, epoch: number, behind_rows: number, problem: string}, vehicles: [string, number, number][], phones: PhoneState[]}} State */

/**
 * Make an element; texts of the store become text nodes, never HTML.
 * @param {string} tag @param {Record<string, any>} [properties] @param {...(Node | string | null)} children @returns {any}
 */
function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const count = (/** @type {number} */ value) => whole.format(value);
const rows = (/** @type {number} */ value) => `${count(value)} ${value === 1 ? "row" : "rows"}`;
const bytes = (/** @type {number} */ value) => (value < 1000 ? `${value} bytes` : `${(value / 1000).toFixed(1)} kB`);

/** @param {string} phone @param {string} action @param {object} [body] */
function command(phone, action, body = {}) {
  return fetch(`/phones/${phone}/${action}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }).catch(() => {});
}

/** One phone of the page. */
class Phone {
  /** @param {string} name @param {Town} town @param {number} west @param {number} east @param {() => void} onEdit */
  constructor(name, town, west, east, onEdit) {
    const side = west > 0 ? "east" : "west";
    this.name = name;
    this.canvas = h("canvas", { role: "img", "aria-label": `${name}'s copy, drawn on a map` });
    this.drawing = town.drawing(this.canvas, west, east, `--${side}`);
    this.note = h("div", { class: "note" });
    this.account = h("section", { class: `account ${side}`, "aria-label": `What ${name}'s phone has sent and received` });
    this.jobs = h("ul", { class: "jobs", "aria-label": `Jobs on ${name}'s phone` });
    this.meters = h("dl", { class: "meters" });
    this.report = h("p", { class: "report", role: "status" });
    this.cord = h("button", { class: "cord", type: "button", onclick: () => command(name, this.plugged ? "unplug" : "plug") });
    this.line = h("div", { class: `line ${side}`, "aria-hidden": "true" });
    const title = h("input", { placeholder: "New job…", "aria-label": `A new job on ${name}'s phone`, maxlength: "60" });
    const add = h("form", { class: "add" }, title, h("button", { type: "submit" }, "Add"));
    add.addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      if (title.value.trim()) command(name, "add", { title: title.value });
      title.value = "";
      onEdit();
    });
    this.onEdit = onEdit;
    this.plugged = true;
    this.drawn = "";
    const signal = h("span", { class: "signal" }, h("i"), h("i"), h("i"));
    const head = h("h2", {}, name, h("small", {}, `${side} half`));
    this.node = h("section", { class: `phone ${side}`, "aria-label": `${name}'s phone` },
      h("div", { class: "case" }, h("div", { class: "status" }, head, signal), h("div", { class: "view" }, this.canvas), this.note, this.jobs, add), this.cord);
    this.account.append(h("h2", {}, `${name}'s phone`), this.meters, this.report);
  }

  /** @param {PhoneState} state */
  show(state) {
    const away = !state.plugged, { meter, absence } = state;
    this.plugged = state.plugged;
    this.node.classList.toggle("away", away);
    this.line.classList.toggle("away", away);
    this.cord.textContent = away ? "Plug in" : "Unplug";
    this.cord.setAttribute("aria-pressed", String(away));
    this.note.replaceChildren(h("span", {}, `${rows(state.points.length)} in the copy`), h("span", {}, away ? `offline for ${count(absence?.seconds || 0)} s` : state.problem ? "no answer" : "online"));
    this.drawing.trails(state.points);
    this.showJobs(state.jobs);
    const equal = meter.equals_store;
    this.meters.replaceChildren(
      cell("received", bytes(meter.received_bytes), `${rows(meter.received_rows)}`),
      cell("left by time", rows(meter.left_by_time), "0 bytes"),
      cell("waiting to be sent", rows(state.queued), `${count(meter.sent_rows)} sent, each once`),
      cell("against the store", equal === null ? "…" : equal ? "equal" : "DIFFERENT", "at one instant"),
    );
    this.report.className = `report ${away ? "away" : absence ? "back" : ""}`;
    this.report.textContent = report(state);
  }

  /** @param {Job[]} jobs */
  showJobs(jobs) {
    // The list stays as it is while nothing changes, so that the focus stays, too.
    if (this.drawn === JSON.stringify(jobs)) return;
    this.drawn = JSON.stringify(jobs);
    const focus = this.jobs.contains(document.activeElement) && document.activeElement instanceof HTMLElement ? document.activeElement.dataset.job : "";
    this.jobs.replaceChildren(...jobs.map((job) => {
      const state = h("span", { class: job.state === "open" ? "chip" : job.state === "done" ? "chip on" : "chip late" }, job.state);
      const button = h("button", { type: "button", "data-job": job.id, title: "Set it to the next state", onclick: () => (command(this.name, "advance", { job: job.id }), this.onEdit()) },
        h("b", {}, job.title), state, h("small", {}, job.waits ? "changed here, waits to be sent" : `by ${job.editor}`));
      return h("li", { class: job.waits ? "waits" : "" }, button);
    }));
    if (focus) this.jobs.querySelector(`[data-job="${focus}"]`)?.focus();
  }
}

/** @param {string} label @param {string} value @param {string} more */
function cell(label, value, more) {
  return h("div", {}, h("dt", {}, label), h("dd", {}, value, h("small", {}, more)));
}

/** @param {PhoneState} state */
function report({ plugged, absence, queued }) {
  if (!absence) return "Connected since it was switched on. It asks for changes twice a second.";
  const left = `${rows(absence.left_by_time)} left by time`;
  if (!plugged) return `Away for ${count(absence.seconds)} s: ${left}, nothing was sent or received.${queued ? ` ${rows(queued)} waiting in its file.` : ""}`;
  if (absence.received_bytes === null) return "Coming back…";
  const sent = absence.sent_rows ? `${rows(absence.sent_rows)} sent, ` : "";
  return `Back after ${count(absence.seconds)} s: ${sent}${rows(absence.received_rows)} received in ${bytes(absence.received_bytes)}; a whole copy is ${bytes(absence.whole_bytes)}. Meanwhile ${left}, at no cost.`;
}

// ---- the page

const main = /** @type {HTMLElement} */ (document.querySelector("main"));
const store = /** @type {HTMLElement} */ (document.querySelector(".store"));
const banner = /** @type {HTMLElement} */ (document.querySelector(".banner"));
const plan = await (await fetch("/map")).json();
const town = new Town(plan);
const overview = town.drawing(/** @type {HTMLCanvasElement} */ (document.getElementById("town")), 0, plan.width, "");
/** @type {Map<string, Phone>} */
const phones = new Map();
const steps = new Set();

/** Mark what has been tried, and what comes next. */
function drawSteps() {
  const items = [...document.querySelectorAll(".story li")].map((item) => /** @type {HTMLElement} */ (item));
  const next = items.find((item) => !steps.has(item.dataset.step));
  for (const item of items) {
    item.classList.toggle("past", steps.has(item.dataset.step));
    item.classList.toggle("next", item === next);
  }
}

/** @param {State} state */
function show(state) {
  for (const phone of state.phones) {
    let shown = phones.get(phone.name);
    if (!shown) {
      shown = new Phone(phone.name, town, phone.west, phone.east, () => {
        if (!phones.get(phone.name)?.plugged) steps.add("edit");
      });
      phones.set(phone.name, shown);
      main.append(shown.node, shown.line, shown.account);
    }
    shown.show(phone);
    if (!phone.plugged) steps.add("unplug");
    if (phone.plugged && phone.absence && steps.has("edit")) steps.add("plug");
  }
  drawSteps();
  overview.vehicles(state.vehicles);
  const { reports, epoch, behind_rows, problem } = state.store;
  const engine = epoch ? [`chip on`, `Spark: epoch ${count(epoch)}, ${behind_rows ? `${rows(behind_rows)} behind` : "up to date"}`] : ["chip late", "Spark is starting; answers don't wait for it"];
  store.replaceChildren(h("span", { class: "chip" }, `${count(reports)} reports`), h("span", { class: engine[0] }, engine[1]), plan.console ? h("a", { href: plan.console, target: "_blank", rel: "noopener" }, "Open the console") : "");
  banner.hidden = !problem;
  banner.textContent = problem ? `The store does not answer: ${problem}` : "";
}

const source = new EventSource("/events");
source.onmessage = (/** @type {MessageEvent} */ event) => show(JSON.parse(event.data));
source.onerror = () => {
  banner.hidden = false;
  banner.textContent = "The demo has ended, or can't be reached. What you see is from before.";
};
drawSteps();
