// @ts-check
/** Explain, drawn: the tree of operators, what is matched ahead, where the time goes. */

import { bytes, count, counted, empty, h, progress, shown, svg, table } from "./dom.js";

const BOX_WIDTH = 280, BOX_HEIGHT = 64, GAP_X = 40, GAP_Y = 52;
/** @type {Record<string, string>} */
const PATTERNS = {
  mon: "rows are added and stay",
  wks: "rows leave by time, in order",
  wk: "rows change, and leave by time",
  str: "rows may leave because of others",
};
/** @type {Record<string, string>} */
const ACCESS = {
  looked_up: "one hash look-up a row, for all queries together",
  searched: "one binary search a row, for all queries together",
  compared: "one comparison for each constant",
  evaluated: "evaluated where other conditions leave rows",
};

/** @typedef {{name: string, detail: string, pattern: string | null, leg: number | null, steps: any[], first_input: number | null, inputs: Operator[]}} Operator */
/** @typedef {{operator: Operator, x: number, depth: number, inputs: Box[]}} Box */

/** @param {any} explanation */
export function explained(explanation) {
  const run = explanation.run;
  return h(
    "div",
    { class: "stack" },
    explanation.operator ? h("div", { class: "scroll", tabindex: "0" }, tree(explanation)) : empty("Nothing to draw", h("p", null, "A condition of this query fails; see below.")),
    run && h(
      "p",
      { class: "muted" },
      `One answer: ${counted(run.considered_rows, "row")} considered, ${count(run.computed_rows)} computed on the spot, `,
      `${counted(run.answer_rows, "row")} in the answer (${bytes(run.answer_bytes)}).`,
      run.stored_combinations ? ` ${counted(run.stored_combinations, "combination")} had been found ahead.` : "",
    ),
    run && stages(run.stages),
    explanation.composite && h("p", { class: "muted" }, "Join: ", shown(explanation.composite)),
    h("div", { class: "columns" }, explanation.legs.map(leg)),
  );
}

/** @param {any} explanation */
function tree(explanation) {
  let next = 0, deepest = 0;
  /** @param {Operator} operator @param {number} depth @returns {Box} */
  function lay(operator, depth) {
    deepest = Math.max(deepest, depth);
    const inputs = operator.inputs.map((input) => lay(input, depth + 1));
    const x = inputs.length ? (inputs[0].x + inputs[inputs.length - 1].x) / 2 : next++;
    return { operator, x, depth, inputs };
  }
  const root = lay(explanation.operator, 0);
  const width = next * (BOX_WIDTH + GAP_X) - GAP_X + 4, height = (deepest + 1) * (BOX_HEIGHT + GAP_Y) - GAP_Y + 4;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "tree", role: "img", "aria-label": "the operators of the query, the answer at the top" });
  draw(picture, root, explanation);
  return picture;
}

/** @param {SVGElement} picture @param {Box} box @param {any} explanation */
function draw(picture, box, explanation) {
  const x = 2 + box.x * (BOX_WIDTH + GAP_X), y = 2 + box.depth * (BOX_HEIGHT + GAP_Y);
  box.inputs.forEach((input, place) => {
    const from = 2 + input.x * (BOX_WIDTH + GAP_X) + BOX_WIDTH / 2, top = y + BOX_HEIGHT + GAP_Y;
    const middle = x + BOX_WIDTH / 2, half = top - GAP_Y / 2;
    picture.append(svg("path", { d: `M${from},${top}C${from},${half} ${middle},${half} ${middle},${y + BOX_HEIGHT}`, class: "edge" }));
    const label = edge(box.operator, place, input.operator, explanation);
    if (label) picture.append(svg("text", { x: place === 0 && box.inputs.length > 1 ? from - 130 : from + 12, y: top - 8, class: "edge-label" }, label));
    draw(picture, input, explanation);
  });
  const { name, detail, pattern } = box.operator;
  const title = `${name} ${detail}${pattern ? ` · ${PATTERNS[pattern] || pattern}` : ""}`;
  picture.append(
    svg(
      "g",
      { class: box.inputs.length ? "box" : "box source" },
      svg("title", {}, title),
      svg("rect", { x, y, width: BOX_WIDTH, height: BOX_HEIGHT, rx: 8 }),
      svg("text", { x: x + 12, y: y + 22, class: "box-name" }, name),
      svg("text", { x: x + BOX_WIDTH - 12, y: y + 22, class: "box-pattern" }, (pattern || "").toUpperCase()),
      svg("text", { x: x + 12, y: y + 40, class: "box-detail" }, cut(detail, 38, 0)),
      svg("text", { x: x + 12, y: y + 54, class: "box-detail" }, cut(detail, 38, 1)),
    ),
  );
}

/** @param {string} text @param {number} length @param {number} line */
function cut(text, length, line) {
  const flat = text.replace(/\s+/g, " ");
  const rest = flat.slice(line * length, (line + 1) * length);
  return line === 1 && flat.length > 2 * length ? `${rest.slice(0, -1)}…` : rest;
}

/** @param {Operator} above @param {number} place @param {Operator} input @param {any} explanation */
function edge(above, place, input, explanation) {
  const step = above.steps.find((one) => one.input === place);
  const rows = input.leg === null ? null : explanation.legs[input.leg]?.row_count;
  const inputRows = step ? step.input_rows : rows;
  const label = inputRows === null || inputRows === undefined ? "" : counted(inputRows, "row");
  if (!step) return label;
  return `${label} → ${counted(step.kept_pairs, "pair")}`;
}

/** @param {{name: string, duration_seconds: number}[]} list */
function stages(list) {
  const total = list.reduce((sum, stage) => sum + stage.duration_seconds, 0);
  const parts = list.map((stage, place) => {
    const part = h("span", { class: `part s${place % 6}`, title: `${stage.name} ${milliseconds(stage.duration_seconds)}` });
    part.style.setProperty("flex-grow", String(Math.max(stage.duration_seconds / (total || 1), 0.004)));
    return part;
  });
  const keys = list.map((stage, place) => h("span", { class: `key s${place % 6}` }, `${stage.name} ${milliseconds(stage.duration_seconds)}`));
  return h("div", null, h("div", { class: "parts", role: "img", "aria-label": "time of each stage" }, parts), h("div", { class: "legend" }, keys, h("span", { class: "muted" }, `in all ${milliseconds(total)}`)));
}

/** @param {number} seconds */
function milliseconds(seconds) {
  return `${(seconds * 1000).toFixed(2)} ms`;
}

/** @param {any} one @param {number} place */
function leg(one, place) {
  const stored = one.stored || {};
  return h(
    "section",
    { class: "card" },
    h("h3", null, `${place + 1}  `, shown(one.stream || "behind a view"), h("small", null, one.window || "looked up")),
    progress(one.matched_rows, one.stream_rows, "matched ahead"),
    h("p", { class: "muted" }, `${count(one.matched_rows)} of ${counted(one.stream_rows, "row")} matched ahead. Stored: ${counted(stored.row_count || 0, "match", "matches")}, ${bytes(stored.byte_count || 0)} in ${counted(stored.file_count || 0, "file")}.`),
    one.registration_count > 1 && h("p", { class: "muted" }, `${count(one.registration_count)} registrations share this condition.`),
    one.implied_by && h("p", { class: "muted" }, "Rows were looked for among those of ", shown(one.implied_by.condition), "."),
    one.quarantined && h("p", { class: "warn" }, shown(one.quarantined)),
    one.factors.length > 0 && table(["condition", "found by"], one.factors.map((/** @type {any} */ factor) => [h("code", null, shown(factor.text)), found(factor)])),
  );
}

/** @param {any} factor */
function found(factor) {
  const how = ACCESS[factor.access] || factor.access || "";
  const others = factor.shared_by ? ` · shared with ${counted(factor.shared_by, "other condition")}` : "";
  return factor.operand ? `index of ${factor.operand}: ${how}${others}` : `${how}${others}`;
}
