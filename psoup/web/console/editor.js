// @ts-check
/** An editor of SQL: a textarea over the same text in colours, with the place of an error underlined. */

import { fill, h, shown } from "./dom.js";
import { tokens } from "./sql.js";

/**
 * @typedef {object} Editor
 * @property {HTMLElement} node
 * @property {string} value
 * @property {(problem: {line: number, column: number} | null) => void} mark
 * @property {() => void} focus
 */

/**
 * @param {string} value
 * @param {{label: string, onChange?: (value: string) => void, onRun?: () => void, rows?: number}} options
 * @returns {Editor}
 */
export function editor(value, options) {
  const area = h("textarea", {
    "aria-label": options.label,
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
    rows: options.rows || 4,
  });
  const colours = h("pre", { "aria-hidden": "true" });
  const node = h("div", { class: "editor" }, colours, area);
  /** @type {[number, number] | null} */
  let marked = null;

  function draw() {
    const text = area.value;
    // A last line without characters would have no height.
    fill(colours, pieces(text, marked), "\n");
    area.rows = Math.max(options.rows || 4, text.split("\n").length);
  }

  area.value = value;
  area.addEventListener("input", () => {
    marked = null;
    draw();
    options.onChange?.(area.value);
  });
  area.addEventListener("scroll", () => colours.scrollTo(area.scrollLeft, area.scrollTop));
  area.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      options.onRun?.();
    }
  });
  draw();
  return {
    node,
    get value() {
      return area.value;
    },
    set value(text) {
      if (text === area.value) return;
      area.value = text;
      marked = null;
      draw();
    },
    mark(problem) {
      marked = problem && problem.line ? place(area.value, problem.line, problem.column) : null;
      area.setAttribute("aria-invalid", String(Boolean(marked)));
      draw();
    },
    focus: () => area.focus(),
  };
}

/**
 * Return the token at a line and column, both counted from 1.
 * @param {string} text @param {number} line @param {number} column @returns {[number, number]}
 */
function place(text, line, column) {
  const lines = text.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + column - 1;
  const token = tokens(text).find((one) => one.start <= start && start < one.end && one.kind !== "space");
  return token ? [token.start, token.end] : [Math.max(0, Math.min(start, text.length) - 1), start + 1];
}

/** @param {string} text @param {[number, number] | null} marked */
function pieces(text, marked) {
  return tokens(text).map((token) => {
    const bad = marked && token.start < marked[1] && marked[0] < token.end && token.kind !== "space";
    if (!bad && (token.kind === "space" || token.kind === "sign" || token.kind === "name")) return token.text;
    return h("span", { class: `t-${token.kind}${bad ? " t-bad" : ""}` }, token.text);
  });
}

/** @param {string} text a text to look at, in which nothing is invisible */
export function coloured(text) {
  return h("pre", { class: "sql" }, tokens(text).map((token) => h("span", { class: `t-${token.kind}` }, shown(token.text))));
}
