// @ts-check
/** Lines over time, drawn as SVG. */

import { bytes, clock, fill, h, short, shown, svg } from "./dom.js";

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {(number | null)[]} values one for each instant; null is a gap
 */

const LEFT = 54, RIGHT = 12, TOP = 12, BOTTOM = 26;

/**
 * Draw lines. Instants are milliseconds, ascending.
 * @param {number[]} instants @param {Series[]} series
 * @param {{height?: number, width: number, format?: (value: number) => string, label: string, fromZero?: boolean}} options
 */
export function lineChart(instants, series, options) {
  const height = options.height || 220, width = Math.max(280, options.width);
  const format = options.format || short;
  const values = series.flatMap((line) => line.values).filter((value) => value !== null);
  const low = Math.min(...values, options.fromZero === false ? Infinity : 0);
  const high = Math.max(...values);
  const [bottom, top, step] = scale(values.length ? low : 0, values.length ? high : 1, format === bytes);
  const first = instants[0], last = instants[instants.length - 1];
  const x = (instant) => LEFT + ((instant - first) / (last - first || 1)) * (width - LEFT - RIGHT);
  const y = (value) => height - BOTTOM - ((value - bottom) / (top - bottom)) * (height - TOP - BOTTOM);

  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": options.label });
  for (let value = bottom; value <= top + step / 2; value += step) {
    picture.append(
      svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value), class: "grid" }),
      svg("text", { x: LEFT - 8, y: y(value) + 4, class: "axis end" }, format(value)),
    );
  }
  const places = last > first ? [first, (first + last) / 2, last] : [first];
  places.forEach((instant, place) => {
    const anchor = place === 0 ? "axis" : place === places.length - 1 ? "axis end" : "axis middle";
    picture.append(svg("text", { x: x(instant), y: height - 8, class: anchor }, tick(instant, last - first)));
  });
  series.forEach((line, number) => {
    for (const run of runs(instants, line.values)) {
      const points = run.map(([instant, value]) => `${x(instant).toFixed(1)},${y(value).toFixed(1)}`);
      if (series.length === 1 && run.length > 1) {
        const area = `M${points.join("L")}L${x(run[run.length - 1][0])},${y(bottom)}L${x(run[0][0])},${y(bottom)}Z`;
        picture.append(svg("path", { d: area, class: "area s0" }));
      }
      picture.append(
        run.length > 1
          ? svg("polyline", { points: points.join(" "), class: `line s${number}` })
          : svg("circle", { cx: x(run[0][0]), cy: y(run[0][1]), r: 2.5, class: `dot s${number}` }),
      );
    }
  });
  const box = h("div", { class: "chart-box" }, picture);
  if (values.length) follow(box, picture, instants, series, x, y, format);
  const legend = series.length > 1 && h("div", { class: "legend" }, series.map((line, number) => h("span", { class: `key s${number}` }, shown(line.name))));
  return h("figure", null, box, legend);
}

/** @param {number[]} instants @param {(number | null)[]} values @returns {[number, number][][]} */
function runs(instants, values) {
  /** @type {[number, number][][]} */
  const pieces = [];
  let open = false;
  values.forEach((value, place) => {
    if (value === null) open = false;
    else if (open) pieces[pieces.length - 1].push([instants[place], value]);
    else {
      pieces.push([[instants[place], value]]);
      open = true;
    }
  });
  return pieces;
}

/**
 * Show the values under the pointer.
 * @param {HTMLElement} box @param {SVGElement} picture @param {number[]} instants @param {Series[]} series
 * @param {(instant: number) => number} x @param {(value: number) => number} y @param {(value: number) => string} format
 */
function follow(box, picture, instants, series, x, y, format) {
  const [width, height] = String(picture.getAttribute("viewBox")).split(" ").slice(2).map(Number);
  const cursor = svg("line", { y1: TOP, y2: height - BOTTOM, class: "cursor" });
  const note = h("div", { class: "chart-note", hidden: true });
  picture.append(cursor);
  box.append(note);
  box.addEventListener("pointermove", (event) => {
    const frame = box.getBoundingClientRect();
    const at = ((event.clientX - frame.left) / frame.width) * width;
    let place = 0;
    instants.forEach((instant, number) => {
      if (Math.abs(x(instant) - at) < Math.abs(x(instants[place]) - at)) place = number;
    });
    cursor.setAttribute("x1", String(x(instants[place])));
    cursor.setAttribute("x2", String(x(instants[place])));
    cursor.classList.add("on");
    const lines = series.filter((line) => line.values[place] !== null);
    fill(
      note,
      h("span", { class: "muted" }, clock(new Date(instants[place]).toISOString())),
      lines.map((line) => h("span", { class: `key s${series.indexOf(line)}` }, [shown(line.name), ` ${format(Number(line.values[place]))}`].flat())),
    );
    note.hidden = false;
    note.classList.toggle("left", at > width / 2);
  });
  box.addEventListener("pointerleave", () => {
    cursor.classList.remove("on");
    note.hidden = true;
  });
}

/** @param {number} low @param {number} high @param {boolean} binary @returns {[number, number, number]} */
function scale(low, high, binary) {
  if (high === 0 && low === 0) return [0, 1, 1];
  const raw = (high - low || Math.abs(high)) / 4, power = 10 ** Math.floor(Math.log10(raw));
  const step = binary ? 2 ** Math.ceil(Math.log2(raw)) : [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw) || power;
  return [Math.floor(low / step) * step, Math.ceil((high || low + step) / step) * step, step];
}

/**
 * Draw a line without axes, for a cell of a table.
 * @param {number[]} values @param {string} label
 */
export function sparkline(values, label) {
  const most = Math.max(1, ...values), width = 80, height = 20;
  const points = values.map((value, place) => `${((place / (values.length - 1)) * width).toFixed(1)},${(height - 1 - (value / most) * (height - 2)).toFixed(1)}`);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "chart spark", role: "img", "aria-label": label },
    values.length > 1 && [svg("path", { d: `M0,${height}L${points.join("L")}L${width},${height}Z`, class: "area s0" }), svg("polyline", { points: points.join(" "), class: "line s0" })]);
}

/** @param {number} instant @param {number} span */
function tick(instant, span) {
  const text = new Date(instant).toISOString();
  return span > 2 * 86400e3 ? text.slice(0, 10) : span > 86400e3 / 2 ? text.slice(5, 16).replace("T", " ") : text.slice(11, 19);
}
