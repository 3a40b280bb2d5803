// @ts-check
/** The frame: header, log-in, what page the address names, and what to do while the store is away. */

import { connection, events, isAbort, Away, logIn, logOut } from "./api.js";
import { clock, failure, fill, h, plain, shown, soft } from "./dom.js";
import { lookAtStatus } from "./history.js";
import { engine } from "./pages/engine.js";
import { people } from "./pages/people.js";
import { query } from "./pages/query.js";
import { registrations } from "./pages/registrations.js";
import { streams } from "./pages/streams.js";

/**
 * @typedef {object} Context what a page has
 * @property {HTMLElement} root
 * @property {string[]} parts the path behind the page's name
 * @property {URLSearchParams} query
 * @property {AbortSignal} signal fires when the page is left
 * @property {(work: () => Promise<void>, pauseMs: number) => Promise<void>} poll
 * @property {(query: Record<string, string>) => void} keep put values into the address
 */

/** @type {Record<string, {title: string, show: (context: Context) => Promise<void>}>} */
const PAGES = {
  streams: { title: "Streams", show: streams },
  query: { title: "Query", show: query },
  registrations: { title: "Registrations", show: registrations },
  engine: { title: "Engine", show: engine },
  people: { title: "People", show: people },
};
const STATE_PAUSE_MS = 5000;
const THEMES = ["system", "light", "dark"];

const state = h("span", { class: "state", role: "status" }, "…");
const banner = h("div", { class: "banner", role: "alert", hidden: true });
const trouble = h("div", { class: "trouble" });
const who = h("span", { class: "row" });
const content = h("main", { id: "content", tabindex: "-1" });
const links = Object.entries(PAGES).map(([name, page]) => h("a", { href: `#/${name}` }, page.title));
const login = loginDialog();

/** @type {AbortController | null} */
let leaving = null;

async function show() {
  const [path, search] = (location.hash.slice(2) || "streams").split("?");
  const [name, ...parts] = path.split("/").map(decode);
  const page = PAGES[name] || PAGES.streams;
  leaving?.abort();
  const controller = (leaving = new AbortController());
  const signal = controller.signal;
  links.forEach((link) => {
    if (link.getAttribute("href") === `#/${name in PAGES ? name : "streams"}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  document.title = plain(`${[page.title, ...parts].join(" · ")} · PSoup`);
  fill(content);
  fill(trouble);
  /** @param {() => Promise<void>} work @param {number} pauseMs */
  async function poll(work, pauseMs) {
    while (!signal.aborted) {
      // A page that nobody looks at asks for nothing.
      if (!document.hidden && !connection.awaySince) {
        try {
          await work();
          fill(trouble);
        } catch (error) {
          if (isAbort(error) || signal.aborted) return;
          if (!(error instanceof Away)) fill(trouble, failure(error));
        }
      }
      await pause(pauseMs, signal);
    }
  }
  /** @param {Record<string, string>} values */
  function keep(values) {
    const text = new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
    history.replaceState(null, "", `#/${path}${text ? `?${text}` : ""}`);
  }
  try {
    await page.show({ root: content, parts, query: new URLSearchParams(search || ""), signal, poll, keep });
  } catch (error) {
    if (isAbort(error) || signal.aborted) return;
    content.append(error instanceof Away ? soft("Waiting for the store…") : failure(error));
    // Nothing of the page came before the store went: it is drawn anew when the store is back.
    if (error instanceof Away) events.addEventListener("back", () => signal.aborted || show(), { once: true, signal });
  }
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @param {number} ms @param {AbortSignal} signal @returns {Promise<void>} */
function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

// ---- the state of the store

async function look() {
  if (document.hidden || connection.awaySince) return;
  try {
    const status = await lookAtStatus();
    const late = !status.engine?.running || status.quarantine.length > 0;
    state.className = late ? "state late" : "state";
    state.textContent = status.engine?.running ? `epoch ${status.epoch}` : "no engine; answers are computed on the spot";
    state.title = `store ${status.store_id}, version ${status.version}`;
    const { owner, tenant } = status.security || {};
    fill(who, owner && h("span", { class: "muted", title: `tenant ${tenant}` }, shown(owner)), owner && h("button", { class: "quiet", type: "button", onclick: leave }, "Log out"));
  } catch (error) {
    if (error instanceof Away) return;
    state.className = "state late";
    state.textContent = "not logged in";
  }
}

async function leave() {
  await logOut();
  location.reload();
}

events.addEventListener("away", () => {
  state.className = "state away";
  state.textContent = "away";
  const since = clock(connection.awaySince?.toISOString().slice(0, 19));
  fill(banner, `The store has not answered since ${since} UTC. What you see is from before. The page tries again by itself.`);
  banner.hidden = false;
});
events.addEventListener("back", () => {
  banner.hidden = true;
  look();
});

// ---- logging in

function loginDialog() {
  const input = h("input", { type: "password", autocomplete: "current-password", required: true, name: "key" });
  const message = h("div");
  const form = h(
    "form",
    { method: "dialog" },
    h("h1", null, "Log in"),
    soft("This store asks who calls. Paste an access key or a JWT; ", h("code", null, "psoup key create"), " makes a key."),
    h("label", { class: "field" }, "Key or JWT", input),
    message,
    h("button", { class: "main", type: "submit" }, "Log in"),
  );
  const dialog = h("dialog", null, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await logIn(input.value.trim());
      input.value = "";
      dialog.close();
      fill(message);
      look();
      show();
    } catch (error) {
      fill(message, failure(error));
    }
  });
  // There is nothing to see without a key.
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  return dialog;
}

events.addEventListener("login", () => {
  if (!login.open) login.showModal();
});

// ---- themes

function themeButton() {
  let theme = localStorage.getItem("psoup-theme") || "system";
  const button = h("button", { class: "quiet", type: "button" });
  function apply() {
    document.documentElement.style.colorScheme = theme === "system" ? "light dark" : theme;
    button.textContent = { system: "◐", light: "☀", dark: "☾" }[theme] || "◐";
    button.title = `Theme: ${theme}`;
    button.setAttribute("aria-label", `Theme: ${theme}`);
  }
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    localStorage.setItem("psoup-theme", theme);
    apply();
  });
  apply();
  return button;
}

// 1 to 5 go to the pages.
addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.altKey || event.ctrlKey || event.metaKey || target.closest("input, textarea, select, dialog")) return;
  const link = links[Number(event.key) - 1];
  if (link) location.hash = link.getAttribute("href") || "";
});

const brand = h("a", { class: "brand", href: "#/streams" }, h("img", { src: "icon.svg", alt: "" }), "PSoup");
fill(
  /** @type {Element} */ (document.getElementById("app")),
  h("header", null, brand, h("nav", { "aria-label": "Pages" }, links), h("div", { class: "aside" }, state, who, themeButton())),
  banner,
  trouble,
  content,
  login,
);
addEventListener("hashchange", () => show().then(() => content.focus({ preventScroll: true })));
setInterval(look, STATE_PAUSE_MS);
look();
show();
