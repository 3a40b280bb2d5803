// @ts-check
/** The rows of an answer as a table. */

import { h, shown, table } from "./dom.js";

const NUMBERS = /^(BIGINT|DOUBLE|DECIMAL|INT|FLOAT)/;

/** @param {string} type */
export function isNumber(type) {
  return NUMBERS.test(type);
}

/** @param {any} answer */
export function answerTable(answer) {
  const head = answer.columns.map((column) => h("span", null, shown(column.name), h("small", null, column.type)));
  const numbers = answer.columns.flatMap((column, place) => (isNumber(column.type) ? [place] : []));
  const rows = answer.rows.map((row) => row.map((value, place) => cell(value, answer.columns[place].type)));
  const node = table(head, rows, { numbers, plain: true });
  node.classList.add("answer");
  return node;
}

/** @param {any} value @param {string} type */
function cell(value, type) {
  if (value === null) return h("span", { class: "null" }, "NULL");
  if (type === "TIMESTAMP") return String(value).replace("T", " ").replace(/\.?0*Z$/, "");
  if (type === "DOUBLE" && typeof value === "number" && !Number.isInteger(value)) return h("span", { title: String(value) }, Number(value.toPrecision(9)).toString());
  return shown(String(value));
}
