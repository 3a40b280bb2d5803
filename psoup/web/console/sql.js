// @ts-check
/** The language, as far as a page needs it: tokens to colour, and the window to slide. */

const KEYWORDS = new Set(
  ("all and any as asc begin between by case cast create cross default delete desc distinct div drop during else end escape except " +
    "exists false from full grant group having ilike in inner intersect interval is join key last left like limit not now null " +
    "offset on or order ordered outer over partition policy range refresh register retain revoke right row rows select slide " +
    "stream then to true unbounded union using values view when where window with ahead every role owner cascade " +
    "microsecond microseconds millisecond milliseconds second seconds minute minutes hour hours day days week weeks").split(" "),
);
const TYPES = new Set("bigint boolean date decimal double text timestamp".split(" "));
const TOKEN = /(?<comment>--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|(?<string>'(?:[^']|'')*(?:'|$))|(?<name>"[^"]*(?:"|$))|(?<parameter>:[a-z_]\w*)|(?<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)|(?<word>[a-z_]\w*)|(?<space>\s+)|(?<sign>[\s\S])/giu;

/** @typedef {{kind: string, text: string, start: number, end: number}} Token */

/**
 * Return the tokens of a text, end to end.
 * @param {string} text @returns {Token[]}
 */
export function tokens(text) {
  return [...text.matchAll(TOKEN)].map((match) => {
    const groups = match.groups || {};
    let kind = Object.keys(groups).find((name) => groups[name] !== undefined) || "sign";
    const word = match[0].toLowerCase();
    if (kind === "word") {
      const call = text.slice(match.index + match[0].length).trimStart().startsWith("(");
      kind = KEYWORDS.has(word) ? "keyword" : TYPES.has(word) ? "type" : call ? "function" : "name";
    }
    return { kind, text: match[0], start: match.index, end: match.index + match[0].length };
  });
}

/** @param {string} text @returns {string[]} the names of :parameters, in the order of the text */
export function parameters(text) {
  return [...new Set(tokens(text).filter((token) => token.kind === "parameter").map((token) => token.text.slice(1).toLowerCase()))];
}

const STARTS = new Set(["range", "rows", "during", "unbounded", "begin"]);

/**
 * Find the window of the whole text: where it stands, or where it would.
 * @param {string} text @returns {{start: number, end: number, window: string}}
 */
export function findWindow(text) {
  let depth = 0, start = -1, end = -1, last = 0;
  for (const token of tokens(text)) {
    if (token.kind === "space" || token.kind === "comment") continue;
    const word = token.kind === "keyword" ? token.text.toLowerCase() : token.text;
    if (word === "(") depth += 1;
    if (depth === 0 && (word === "refresh" || word === ";")) {
      end = last;
      break;
    }
    if (depth === 0 && STARTS.has(word)) start = token.start;
    // The window of one query of a UNION is not that of the whole.
    if (depth === 0 && (word === "select" || word === "union" || word === "from")) start = -1;
    if (word === ")") depth -= 1;
    last = token.end;
  }
  if (end < 0) end = last;
  return start < 0 ? { start: end, end, window: "" } : { start, end, window: text.slice(start, end) };
}

/** @param {string} text @param {string} window @returns {string} */
export function withWindow(text, window) {
  const place = findWindow(text);
  const before = text.slice(0, place.start), gap = place.window || /\s$/.test(before) ? "" : before.includes("\n") ? "\n" : " ";
  return before + gap + window + text.slice(place.end);
}

/** @param {string} text @returns {string[]} words after FROM and JOIN, as a guess at streams and views */
export function sources(text) {
  const words = tokens(text).filter((token) => token.kind !== "space" && token.kind !== "comment");
  const found = words.filter((token, place) => {
    const before = words[place - 1]?.text.toLowerCase();
    return (token.kind === "name" || token.kind === "function") && (before === "from" || before === "join");
  });
  return [...new Set(found.map((token) => token.text.replaceAll('"', "").toLowerCase()))];
}

// ---- windows as numbers

const UNITS = /** @type {const} */ ([["DAY", 86400], ["HOUR", 3600], ["MINUTE", 60], ["SECOND", 1]]);
/** @type {Record<string, number>} */
const SECONDS = { MICROSECOND: 1e-6, MILLISECOND: 1e-3, SECOND: 1, MINUTE: 60, HOUR: 3600, DAY: 86400, WEEK: 604800 };

/**
 * Read a window that a slider can show.
 * @param {string} window @returns {{kind: "range" | "rows", size: number} | null}
 */
export function readWindow(window) {
  const range = /^RANGE\s+(\d+(?:\.\d+)?)\s+([A-Z]+?)S?$/i.exec(window.trim());
  if (range && SECONDS[range[2].toUpperCase()]) return { kind: "range", size: Number(range[1]) * SECONDS[range[2].toUpperCase()] };
  const rows = /^ROWS\s+(\d+)$/i.exec(window.trim());
  return rows ? { kind: "rows", size: Number(rows[1]) } : null;
}

/** @param {"range" | "rows"} kind @param {number} size */
export function writeWindow(kind, size) {
  if (kind === "rows") return `ROWS ${Math.round(size)}`;
  const [unit, seconds] = UNITS.find(([, seconds]) => size >= 2 * seconds && size % seconds === 0) || UNITS[3];
  const number = size / seconds;
  return `RANGE ${number} ${unit}${number === 1 ? "" : "S"}`;
}

/**
 * Round to what people would say: two digits of a fitting unit.
 * @param {"range" | "rows"} kind @param {number} size
 */
export function roundSize(kind, size) {
  const seconds = kind === "rows" ? 1 : (UNITS.find(([, seconds]) => size >= 2 * seconds) || UNITS[3])[1];
  const number = size / seconds;
  const step = number < 100 ? 1 : 10 ** (Math.floor(Math.log10(number)) - 1);
  return Math.max(1, Math.round(number / step) * step) * seconds;
}
