// @ts-check
/** Elements and texts. Everything from the store becomes a text node, never HTML. */

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Make an element. `on…` are listeners, `class` and other names are attributes or properties.
 * @param {string} tag @param {Record<string, any> | null} [properties] @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list" && typeof value !== "string") Reflect.set(element, name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** @param {Element} element @param {(Child | Child[])[]} children */
function append(element, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element of SVG.
 * @param {string} tag @param {Record<string, string | number>} [attributes] @param {...(Child | Child[])} children
 * @returns {any}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  append(element, children);
  return element;
}

/** @param {Element} element @param {...(Child | Child[])} children */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

// Characters that have no shape of their own, or change the direction of others.
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/**
 * Return a text as nodes in which characters that could mislead are written out.
 * @param {string} value @returns {Child[]}
 */
export function shown(value) {
  /** @type {Child[]} */
  const nodes = [];
  let end = 0;
  for (const match of value.matchAll(ODD)) {
    const code = match[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
    nodes.push(value.slice(end, match.index), h("span", { class: "odd", title: "an invisible character" }, `U+${code}`));
    end = match.index + 1;
  }
  nodes.push(value.slice(end));
  return nodes;
}

/** @param {string} value the same as one text, for places that take no nodes */
export function plain(value) {
  return value.replace(ODD, "\u2423");
}

// ---- formats

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** @param {number | string | null | undefined} value */
export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(Number(value));
}

/** @param {number} number @param {string} noun @param {string} [plural] */
export function counted(number, noun, plural) {
  return `${count(number)} ${Number(number) === 1 ? noun : plural || `${noun}s`}`;
}

/** @param {number} value */
export function short(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9)} G`;
  if (size >= 1e6) return `${trim(value / 1e6)} M`;
  if (size >= 1e4) return `${trim(value / 1e3)} k`;
  if (size >= 100 || Number.isInteger(value)) return whole.format(value);
  return trim(value);
}

/** @param {number} value */
function trim(value) {
  return String(Number(value.toPrecision(3)));
}

/** @param {number} value */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = value, unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit ? size.toFixed(size < 10 ? 1 : 0) : count(size)} ${units[unit]}`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const size = Math.abs(seconds);
  if (size < 1) return `${Math.round(seconds * 1000)} ms`;
  if (size < 120) return `${trim(seconds)} s`;
  if (size < 7200) return `${trim(seconds / 60)} min`;
  if (size < 172800) return `${trim(seconds / 3600)} h`;
  return `${trim(seconds / 86400)} days`;
}

/** @param {string | null | undefined} instant */
export function clock(instant) {
  if (!instant) return "–";
  return instant.replace("T", " ").replace(/(\.\d*?)0*Z$/, "$1").replace(/\.$/, "").replace(/Z$/, "");
}

/** @param {string | null | undefined} instant @param {string | null | undefined} now */
export function ago(instant, now) {
  if (!instant || !now) return "–";
  return `${duration(Math.max(0, (Date.parse(now) - Date.parse(instant)) / 1000))} ago`;
}

// ---- parts that pages share

/** Push what follows to the right. */
export function space() {
  return h("span", { class: "space" });
}

/** @param {...(Child | Child[])} children a paragraph that explains */
export function soft(...children) {
  return h("p", { class: "muted" }, ...children);
}

/** @param {string} title @param {...(Child | Child[])} children */
export function panel(title, ...children) {
  return h("section", { class: "panel" }, title && h("h2", null, title), ...children);
}

/** @param {string} label @param {Child | Child[]} value @param {Child | Child[]} [more] */
export function tile(label, value, more) {
  return h("div", { class: "tile" }, h("span", { class: "label" }, label), h("strong", null, value), more ? h("small", null, more) : null);
}

/** @param {string} title @param {...(Child | Child[])} children */
export function empty(title, ...children) {
  return h("div", { class: "empty" }, h("h3", null, title), ...children);
}

/**
 * Say what went wrong and what to do about it.
 * @param {any} error
 */
export function failure(error) {
  const wait = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : "";
  return h(
    "div",
    { class: "failure", role: "alert" },
    h("strong", null, shown(error.message)),
    (error.hint || wait) && h("p", null, shown((error.hint || "") + wait)),
    error.reason && h("code", null, shown(error.reason)),
  );
}

/**
 * Show what a call returns, or why the caller may not see it. Other failures are thrown.
 * @param {Element} place @param {Promise<any>} call @param {(body: any) => Child | Child[]} draw
 */
export async function part(place, call, draw) {
  try {
    fill(place, draw(await call));
  } catch (error) {
    if (![403, 404, 501].includes(error.status)) throw error;
    fill(place, empty("Not for you to see", h("p", null, shown(error.message)), h("p", null, shown(error.hint || "Those who administer the tenant can."))));
  }
}

/**
 * Make a table. On a narrow screen each row becomes a list, unless it is `plain`.
 * @param {Child[]} head @param {(Child | Child[])[][]} rows
 * @param {{numbers?: number[], links?: (string | null)[], plain?: boolean}} [options] columns on the right; a link for each row
 */
export function table(head, rows, options = {}) {
  const right = new Set(options.numbers || []);
  const side = (column) => (right.has(column) ? { class: "number" } : {});
  const line = (/** @type {(Child | Child[])[]} */ row, place) => {
    const link = options.links?.[place];
    const cells = row.map((cell, column) => h("td", { ...side(column), "data-label": options.plain ? null : head[column] }, link && column === 0 ? h("a", { href: link }, cell) : cell));
    return h("tr", link ? { class: "link", onclick: () => (location.hash = link) } : null, cells);
  };
  return h("div", { class: "scroll", tabindex: "0" },
    h("table", { class: options.plain ? "plain" : "stacked" },
      h("thead", null, h("tr", null, head.map((name, column) => h("th", { ...side(column), scope: "col" }, name)))),
      h("tbody", null, rows.map(line))));
}

/**
 * Open a form over the page. It closes when `submit` is done, and shows what `submit` throws.
 * @param {string} title @param {Child[]} content @param {string} action @param {() => Promise<void>} submit @param {boolean} [danger]
 */
export function ask(title, content, action, submit, danger = false) {
  const message = h("div");
  const form = h("form", { method: "dialog" }, h("h1", null, title), content, message,
    h("div", { class: "row" }, h("button", { class: danger ? "danger" : "main", type: "submit" }, action), h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
  const dialog = h("dialog", { onclose: () => dialog.remove() }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await submit();
      dialog.close();
    } catch (error) {
      fill(message, failure(error));
    }
  });
  document.body.append(dialog);
  dialog.showModal();
}

/** @param {() => string} text @param {string} [label] */
export function copyButton(text, label = "Copy") {
  const button = h("button", { class: "quiet", type: "button" }, label);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Copying is not allowed";
    }
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}

/** @param {number} done @param {number} total @param {string} label */
export function progress(done, total, label) {
  const share = total ? Math.min(1, done / total) : 1;
  const bar = h("span", { class: "bar" });
  bar.style.setProperty("--share", String(share));
  const percent = `${Math.floor(share * 100)} %`;
  const role = { role: "progressbar", "aria-valuenow": String(Math.floor(share * 100)), "aria-label": label };
  return h("div", { class: "progress" }, h("span", { class: "track", ...role }, bar), h("span", null, percent));
}
