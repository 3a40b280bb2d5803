// @ts-check
/** Explain, drawn: the tree of operators, what is matched ahead, where the time goes. */

import { bytes, count, counted, empty, h, plain, progress, shown, soft, svg, table } from "./dom.js";

const BOX_HEIGHT = 64, GAP_X = 32, GAP_Y = 52, TOP = 26;
const MIN_WIDTH = 152, MAX_WIDTH = 320, CHARACTER_WIDTH = 6.7;
/** @type {Record<string, string>} */
export const PATTERNS = {
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

/** @param {any} explanation @param {number} width of the place for it */
export function explained(explanation, width) {
  const run = explanation.run, picture = h("div", { class: "scroll", tabindex: "0" }, explanation.operator && tree(explanation, width));
  // The answer is in the middle of the top.
  requestAnimationFrame(() => (picture.scrollLeft = (picture.scrollWidth - picture.clientWidth) / 2));
  return h(
    "div",
    { class: "stack" },
    explanation.operator ? picture : empty("Nothing to draw", h("p", null, "A condition of this query fails; see below.")),
    explanation.composite && soft("Join: ", shown(explanation.composite)),
    run && stages(run.stages),
    run && h(
      "p",
      { class: "muted" },
      `One answer: ${counted(run.considered_rows, "row")} considered, ${count(run.computed_rows)} computed on the spot, `,
      `${counted(run.answer_rows, "row")} in the answer (${bytes(run.answer_bytes)}).`,
    ),
    h("div", { class: "columns" }, explanation.legs.map(leg)),
  );
}

/** @param {any} explanation @param {number} width */
function tree(explanation, width) {
  let next = 0, deepest = 0;
  /** @param {Operator} operator @param {number} depth @returns {Box} */
  function lay(operator, depth) {
    deepest = Math.max(deepest, depth);
    const inputs = operator.inputs.map((input) => lay(input, depth + 1));
    const x = inputs.length ? (inputs[0].x + inputs[inputs.length - 1].x) / 2 : next++;
    return { operator, x, depth, inputs };
  }
  const root = lay(explanation.operator, 0);
  const box = Math.max(MIN_WIDTH, Math.min(MAX_WIDTH, (width - 4 + GAP_X) / next - GAP_X));
  const wide = next * (box + GAP_X) - GAP_X + 4, high = TOP + (deepest + 1) * (BOX_HEIGHT + GAP_Y) - GAP_Y + 4;
  const picture = svg("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, class: "tree", role: "img", "aria-label": "the operators of the query, the answer at the top" });
  draw(picture, root, explanation, box);
  if (explanation.run) picture.append(svg("text", { x: 2 + root.x * (box + GAP_X) + box / 2, y: TOP - 8, class: "edge-label middle" }, `${counted(explanation.run.answer_rows, "row")} in the answer`));
  return picture;
}

/** @param {SVGElement} picture @param {Box} box @param {any} explanation @param {number} width */
function draw(picture, box, explanation, width) {
  const x = 2 + box.x * (width + GAP_X), y = TOP + box.depth * (BOX_HEIGHT + GAP_Y), middle = x + width / 2;
  box.inputs.forEach((input, place) => {
    const from = 2 + input.x * (width + GAP_X) + width / 2, top = y + BOX_HEIGHT + GAP_Y, half = top - GAP_Y / 2;
    picture.append(svg("path", { d: `M${from},${top}C${from},${half} ${middle},${half} ${middle},${y + BOX_HEIGHT}`, class: "edge" }));
    const label = passed(box.operator, place, input.operator, explanation);
    // Beside the line, on the side it does not bend to.
    if (label) picture.append(svg("text", { x: from + (from < middle ? -10 : 10), y: top - 8, class: from < middle ? "edge-label end" : "edge-label" }, label));
    draw(picture, input, explanation, width);
  });
  const { name, detail, pattern } = box.operator, length = Math.floor((width - 24) / CHARACTER_WIDTH);
  picture.append(
    svg(
      "g",
      { class: box.inputs.length ? "box" : "box source" },
      svg("title", {}, plain(`${name} ${detail}${pattern ? ` · ${PATTERNS[pattern] || pattern}` : ""}`)),
      svg("rect", { x, y, width, height: BOX_HEIGHT, rx: 8 }),
      svg("text", { x: x + 12, y: y + 22, class: "box-name" }, name),
      svg("text", { x: x + width - 12, y: y + 22, class: "box-pattern" }, (pattern || "").toUpperCase()),
      svg("text", { x: x + 12, y: y + 40, class: "box-detail" }, cut(detail, length, 0)),
      svg("text", { x: x + 12, y: y + 54, class: "box-detail" }, cut(detail, length, 1)),
    ),
  );
}

/** @param {string} text @param {number} length @param {number} line */
function cut(text, length, line) {
  const flat = plain(text.replace(/\s+/g, " "));
  const rest = flat.slice(line * length, (line + 1) * length);
  return line === 1 && flat.length > 2 * length ? `${rest.slice(0, -1)}…` : rest;
}

/**
 * Return what goes from an operator to the one above it: rows of a stream, pairs of a join.
 * @param {Operator} above @param {number} place @param {Operator} input @param {any} explanation
 */
function passed(above, place, input, explanation) {
  const step = above.steps.find((part) => part.input === place);
  if (step) return counted(step.input_rows, "row");
  if (above.first_input === place && above.steps.length) return counted(above.steps[0].joined_rows, input.inputs.length ? "pair" : "row");
  const last = input.steps[input.steps.length - 1];
  if (last) return `${counted(last.kept_pairs, "pair")}${last.method ? ` by ${last.method}` : ""}`;
  if (input.name.endsWith("join") && explanation.run?.stored_combinations) return `${counted(explanation.run.stored_combinations, "pair")} found ahead`;
  const rows = input.leg === null ? null : explanation.legs[input.leg]?.row_count;
  return rows === null || rows === undefined ? "" : counted(rows, "row");
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
    soft(`${count(one.matched_rows)} of ${counted(one.stream_rows, "row")} matched ahead. Stored: ${counted(stored.row_count || 0, "match", "matches")}, ${bytes(stored.byte_count || 0)} in ${counted(stored.file_count || 0, "file")}.`),
    one.registration_count > 1 && soft(`${count(one.registration_count)} registrations share this condition.`),
    one.index && soft("Found by ", shown(one.index.text), "."),
    one.implied_by && soft("Rows were looked for among those of ", shown(one.implied_by.condition), "."),
    one.quarantined && h("p", { class: "warn" }, shown(one.quarantined)),
    one.factors.length > 0 && table(["condition", "found by"], one.factors.map((factor) => [h("code", null, shown(factor.text)), found(factor)])),
  );
}

/** @param {any} factor */
function found(factor) {
  const how = ACCESS[factor.access] || factor.access || "";
  const others = factor.shared_by ? ` · shared with ${counted(factor.shared_by, "other condition")}` : "";
  return factor.operand ? `index of ${factor.operand}: ${how}${others}` : `${how}${others}`;
}
