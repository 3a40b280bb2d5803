// @ts-check
/** Sliders on a logarithmic scale, for sizes of windows and for how long ago. */

import { h } from "./dom.js";

const STEPS = 400;

/**
 * @typedef {object} Slider
 * @property {HTMLElement} node
 * @property {(size: number) => void} set
 * @property {(max: number) => void} limit
 */

/**
 * A slider from `min` to `max`, both above 0. With `zero` its first place stands for 0.
 * @param {{label: string, min: number, max: number, zero?: boolean, reversed?: boolean, round: (size: number) => number,
 *   onSlide: (size: number) => void, text: (size: number) => string}} options
 * @returns {Slider}
 */
export function logSlider(options) {
  let max = options.max;
  const input = h("input", { type: "range", min: "0", max: String(STEPS), step: "1", "aria-label": options.label });
  const share = (size) => Math.log(Math.max(size, options.min) / options.min) / Math.log(max / options.min || 2);
  const place = (size) => {
    const from = options.zero ? 1 : 0;
    const at = options.zero && size <= 0 ? 0 : from + Math.round(Math.min(1, share(size)) * (STEPS - from));
    return options.reversed ? STEPS - at : at;
  };
  const size = () => {
    const at = options.reversed ? STEPS - Number(input.value) : Number(input.value);
    if (options.zero && at === 0) return 0;
    const from = options.zero ? 1 : 0;
    const raw = options.min * (max / options.min) ** ((at - from) / (STEPS - from));
    return Math.min(max, options.round(raw));
  };
  /** @param {number} value */
  function show(value) {
    input.setAttribute("aria-valuetext", options.text(value));
    input.style.setProperty("--share", String(Number(input.value) / STEPS));
  }
  input.addEventListener("input", () => {
    const value = size();
    show(value);
    options.onSlide(value);
  });
  return {
    node: input,
    set(value) {
      input.value = String(place(value));
      show(value);
    },
    limit(value) {
      max = Math.max(value, options.min * 2);
    },
  };
}
