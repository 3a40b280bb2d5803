// @ts-check
/** Registrations: all of them, and one with its text, its back-fill and how it is answered. */

import { call, get, isAbort } from "../api.js";
import { ago, ask, clock, copyButton, count, counted, duration, empty, failure, fill, h, panel, part, progress, shown, soft, space, table, tile } from "../dom.js";
import { coloured } from "../editor.js";
import { live } from "../live.js";
import { explained, PATTERNS } from "../tree.js";

const PAGE_SIZE = 50;
const LOOK_PAUSE_MS = 2000;

/** @param {import("../main.js").Context} context */
export async function registrations(context) {
  return context.parts[0] ? one(context, context.parts[0]) : all(context);
}

/** @param {any} registration */
export function nameOf(registration) {
  return registration.client_key || registration.handle;
}

/** @param {any} registration */
export function linkTo(registration) {
  return `#/registrations/${encodeURIComponent(nameOf(registration))}${registration.owner ? `?owner=${encodeURIComponent(registration.owner)}` : ""}`;
}

/** @param {import("../main.js").Context} context */
async function all({ root, query, signal, poll, keep }) {
  const filters = { contains: query.get("contains") || "", stream: query.get("stream") || "" };
  const list = h("div"), more = h("div", { class: "row" });
  const contains = h("input", { type: "search", value: filters.contains, placeholder: "text contains…", "aria-label": "Text contains", oninput: () => filter("contains", contains.value) });
  const stream = h("input", { type: "search", value: filters.stream, placeholder: "stream", "aria-label": "Stream", oninput: () => filter("stream", stream.value.trim()) });
  let pages = 1;
  /** @param {"contains" | "stream"} name @param {string} value */
  function filter(name, value) {
    filters[name] = value;
    pages = 1;
    keep(filters);
    look().catch(complain);
  }
  /** @param {any} error */
  function complain(error) {
    if (!isAbort(error)) fill(list, failure(error));
  }
  let round = 0;
  async function look() {
    const mine = ++round;
    /** @type {any[]} */
    const entries = [];
    let token = "";
    for (let page = 0; page < pages; page += 1) {
      const answer = await get("/v1/registrations", { ...filters, page_size: PAGE_SIZE, page: token }, signal);
      entries.push(...answer.registrations);
      token = answer.next_page_token;
      if (!token) break;
    }
    if (mine !== round) return;
    if (!entries.length) {
      fill(list, filters.contains || filters.stream
        ? empty("None fits", h("p", null, "No registration has this text over this stream."))
        : empty("No registrations yet", h("p", null, "A registered query is matched with every new row, so that its answer is there when you come back. Try a text on the Query page, then register it."), h("a", { class: "button main", href: "#/query" }, "Write a query")));
    } else {
      fill(list, panel("", table(["key", "owner", "text", "window", "matched ahead", "lease until"], entries.map(line), { links: entries.map(linkTo) })));
    }
    fill(more, token && h("button", { type: "button", onclick() {
      pages += 1;
      look().catch(complain);
    } }, "More"));
  }
  fill(root, h("div", { class: "title" }, h("h1", null, "Registrations"), space(), contains, stream), list, more);
  await poll(look, LOOK_PAUSE_MS * 2);
}

/** @param {any} registration */
function line(registration) {
  const { client_key, handle, owner, sql, window, matched_rows, stream_rows, lease_until } = registration;
  return [
    h("strong", null, client_key ? shown(client_key) : h("code", null, `${handle.slice(0, 8)}…`)), shown(owner), h("code", null, shown(sql.replace(/\s+/g, " ").slice(0, 160))),
    shown(window), progress(matched_rows, stream_rows, "matched ahead"), lease_until ? clock(lease_until.slice(0, 16)) : "for ever",
  ];
}

// ---- one registration

/** @param {import("../main.js").Context} context @param {string} key */
async function one({ root, query, signal, poll }, key) {
  const owner = query.get("owner") || "", path = `/v1/registrations/${encodeURIComponent(key)}`;
  const registration = await get(path, { owner }, signal);
  const tiles = h("div", { class: "tiles" }), legs = h("div", { class: "stack" }), plan = h("div");
  const values = Object.entries(registration.parameters);
  const unregister = () => ask("Unregister", [h("p", null, "End ", h("strong", null, shown(nameOf(registration))), "? Its answers go, and clients that use it must register again.")], "Unregister", async () => {
    await call("DELETE", path, { query: { owner }, signal });
    location.hash = "#/registrations";
  }, true);
  const explain = () => part(plan, get(`${path}/explain`, { owner }, signal), (explanation) => explained(explanation, plan.clientWidth));
  fill(root,
    h("div", { class: "title" }, h("a", { href: "#/registrations" }, "Registrations"), h("span", { class: "muted" }, "/"), h("h1", null, shown(nameOf(registration))), space(),
      h("a", { class: "button main", href: `#/query?${new URLSearchParams({ key: nameOf(registration), ...(owner && { owner }) })}` }, "Ask with sliders"),
      h("button", { class: "danger", type: "button", onclick: unregister }, "Unregister")),
    tiles,
    h("section", { class: "panel" }, h("h2", null, "Text", space(), copyButton(() => registration.sql)), coloured(registration.sql),
      values.length > 0 && table(["parameter", "value"], values.map(([name, value]) => [h("code", null, `:${name}`), shown(String(value))])),
      h("dl", null, h("dt", null, "handle"), h("dd", null, h("code", null, registration.handle)), h("dt", null, "registered"), h("dd", null, clock(registration.registered_at)),
        registration.views.length > 0 && [h("dt", null, "views"), h("dd", null, shown(registration.views.join(", ")))])),
    live(`/v1/answers/${encodeURIComponent(key)}/changes`, owner, signal),
    h("section", { class: "panel" }, h("h2", null, "Back-fill"), soft("How much of each stream the engine has matched ahead. The rest is computed when you ask, so answers are whole at any time."), legs),
    h("section", { class: "panel" }, h("h2", null, "How it is answered", space(), h("button", { class: "quiet", type: "button", onclick: explain }, "Explain again")), plan));
  await explain();
  await poll(async () => {
    const { window, pattern, refresh, lease_seconds, lease_until, legs: parts, matched_rows, stream_rows, stream } = await get(path, { owner }, signal);
    const contact = lease_until && lease_seconds ? new Date(Date.parse(lease_until) - lease_seconds * 1000).toISOString() : "";
    fill(tiles,
      tile("window", shown(window || "one for each stream"), "an answer may choose another"),
      tile("lease", lease_seconds ? duration(lease_seconds) : "for ever", lease_until ? `until ${clock(lease_until.slice(0, 16))}` : ""),
      tile("last contact", contact ? ago(contact, new Date().toISOString()) : "–", "of a client or a copy, as the lease has it"),
      refresh && tile("refresh", shown(refresh)), pattern && tile("updates", pattern.toUpperCase(), PATTERNS[pattern]));
    const list = parts.length ? parts : [{ stream, matched_rows, stream_rows, window }];
    fill(legs, list.map((leg) => h("div", { class: "row" }, h("strong", null, shown(leg.stream)), h("span", { class: "muted" }, `${leg.window} · ${count(leg.matched_rows)} of ${counted(leg.stream_rows, "row")}`), space(), progress(leg.matched_rows, leg.stream_rows, `matched ahead in ${leg.stream}`))));
  }, LOOK_PAUSE_MS);
}
