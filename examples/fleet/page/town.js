// @ts-check
/** The town, drawn: roads, water and parks, vans that move, and the trails that a copy has. */

const TRAIL_SECONDS = 45;
const TICK_MS = 1000;
// Drawn only: water and parks are in nobody's way, and in no stream. Shares of the width and height.
const RIVER = [[-0.05, 0.2], [0.18, 0.28], [0.3, 0.52], [0.52, 0.55], [0.7, 0.72], [1.05, 0.8]];
const PARKS = [[0.17, 0.72, 0.07], [0.62, 0.22, 0.08], [0.87, 0.45, 0.05], [0.42, 0.1, 0.045]];

/** @typedef {{width: number, height: number, middle: number, roads: [[number, number], [number, number]][]}} Plan */

/** @param {string} name @returns {string} a colour of the style sheet, as it is in this theme */
function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** What there is to draw. */
export class Town {
  /** @param {Plan} plan */
  constructor(plan) {
    this.plan = plan;
  }

  /**
   * Return a drawing of the part of the town between two edges.
   * @param {HTMLCanvasElement} canvas @param {number} west @param {number} east @param {string} tint
   */
  drawing(canvas, west, east, tint) {
    return new Drawing(this.plan, canvas, west, east, tint);
  }
}

class Drawing {
  /** @param {Plan} plan @param {HTMLCanvasElement} canvas @param {number} west @param {number} east @param {string} tint */
  constructor(plan, canvas, west, east, tint) {
    this.plan = plan;
    this.canvas = canvas;
    this.west = west;
    this.east = east;
    this.tint = tint;
    this.ground = document.createElement("canvas");
    /** @type {Map<string, {from: number[], to: number[], angle: number}>} */
    this.vans = new Map();
    this.changed = 0;
    /** @type {import("./main.js").Point[]} */
    this.points = [];
    const again = () => this.prepare();
    new ResizeObserver(again).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    this.still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (!tint) requestAnimationFrame(() => this.animate());
  }

  /** Draw what does not move, in the size that the canvas has now. */
  prepare() {
    const { plan, canvas, ground } = this, ratio = devicePixelRatio || 1;
    const wide = Math.round(canvas.clientWidth * ratio), high = Math.round(canvas.clientHeight * ratio);
    if (!wide || !high) return;
    for (const element of [canvas, ground]) Object.assign(element, { width: wide, height: high });
    this.scale = Math.min(wide / (this.east - this.west), high / plan.height);
    this.colours = Object.fromEntries(["land", "block", "road", "kerb", "water", "park", "west", "east", "surface", "soft"].map((name) => [name, colour(`--${name}`)]));
    const pen = this.pen(ground), { land, block, road, kerb, water, park } = this.colours;
    pen.fillStyle = land;
    pen.fillRect(0, 0, wide, high);
    this.place(pen, wide, high);
    pen.lineCap = pen.lineJoin = "round";
    pen.fillStyle = block;
    for (let x = 20; x < plan.width; x += 100) for (let y = 20; y < plan.height; y += 100) for (const [dx, dy, w, d] of [[6, 8, 26, 18], [40, 4, 16, 26], [8, 36, 20, 22], [36, 40, 26, 16]]) pen.fillRect(x + dx, y + dy, w, d);
    pen.fillStyle = park;
    for (const [x, y, size] of PARKS) {
      pen.beginPath();
      pen.ellipse(x * plan.width, y * plan.height, size * plan.width, size * plan.width * 0.66, 0.4, 0, 7);
      pen.fill();
    }
    pen.strokeStyle = water;
    pen.lineWidth = 34;
    pen.beginPath();
    RIVER.forEach(([x, y], place) => {
      const [fx, fy] = RIVER[Math.max(0, place - 1)], half = ((fx + x) / 2) * plan.width;
      if (!place) pen.moveTo(x * plan.width, y * plan.height);
      else pen.bezierCurveTo(half, fy * plan.height, half, y * plan.height, x * plan.width, y * plan.height);
    });
    pen.stroke();
    for (const [style, width] of /** @type {[string, number][]} */ ([[kerb, 15], [road, 11]])) {
      pen.strokeStyle = style;
      pen.lineWidth = width;
      pen.beginPath();
      for (const [[x, y], [otherX, otherY]] of plan.roads) {
        pen.moveTo(x, y);
        pen.lineTo(otherX, otherY);
      }
      pen.stroke();
    }
    if (!this.tint) {
      pen.strokeStyle = this.colours.soft;
      pen.lineWidth = 1.5;
      pen.setLineDash([10, 10]);
      pen.beginPath();
      pen.moveTo(plan.middle, 0);
      pen.lineTo(plan.middle, plan.height);
      pen.stroke();
      pen.setLineDash([]);
      pen.font = "600 15px system-ui, sans-serif";
      pen.textAlign = "center";
      [["Ann’s half", this.colours.west, plan.middle / 2], ["Ben’s half", this.colours.east, (plan.middle + plan.width) / 2]].forEach(([text, style, x]) => {
        pen.fillStyle = String(style);
        pen.fillText(String(text), Number(x), 24);
      });
    }
    this.draw();
  }

  /** @param {HTMLCanvasElement} canvas */
  pen(canvas) {
    return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} wide @param {number} high */
  place(pen, wide, high) {
    const scale = this.scale || 1;
    pen.setTransform(scale, 0, 0, scale, (wide - (this.east - this.west) * scale) / 2 - this.west * scale, (high - this.plan.height * scale) / 2);
  }

  /** @param {import("./main.js").Point[]} points */
  trails(points) {
    this.points = points;
    this.draw();
  }

  /** @param {[string, number, number][]} vehicles */
  vehicles(vehicles) {
    const now = performance.now();
    let moved = false;
    for (const [name, x, y] of vehicles) {
      const van = this.vans.get(name);
      if (van && van.to[0] === x && van.to[1] === y) continue;
      moved = true;
      const from = van ? this.between(van, now) : [x, y];
      const angle = van && (x !== from[0] || y !== from[1]) ? Math.atan2(y - from[1], x - from[0]) : van?.angle || 0;
      this.vans.set(name, { from, to: [x, y], angle });
    }
    if (moved) this.changed = now;
    if (this.still) this.draw();
  }

  /** @param {{from: number[], to: number[]}} van @param {number} now */
  between(van, now) {
    const share = this.still ? 1 : Math.min(1, (now - this.changed) / TICK_MS);
    return [0, 1].map((axis) => van.from[axis] + (van.to[axis] - van.from[axis]) * share);
  }

  animate() {
    if (!this.still && !document.hidden) this.draw();
    requestAnimationFrame(() => this.animate());
  }

  draw() {
    if (!this.scale || !this.colours) return;
    const { canvas, plan } = this, pen = this.pen(canvas);
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.drawImage(this.ground, 0, 0);
    this.place(pen, canvas.width, canvas.height);
    if (this.tint) this.drawTrails(pen);
    else for (const van of this.vans.values()) this.drawVan(pen, this.between(van, performance.now()), van.angle, van.to[0] < plan.middle ? this.colours.west : this.colours.east);
  }

  /** @param {CanvasRenderingContext2D} pen */
  drawTrails(pen) {
    const style = this.colours?.[this.tint.slice(2)] || "";
    /** @type {Map<string, import("./main.js").Point[]>} */
    const trails = new Map();
    for (const point of this.points) {
      const trail = trails.get(point[0]);
      if (trail) trail.push(point);
      else trails.set(point[0], [point]);
    }
    pen.strokeStyle = pen.fillStyle = style;
    pen.lineCap = "butt";
    for (const trail of trails.values()) {
      trail.sort((a, b) => b[3] - a[3]);
      trail.forEach((point, place) => {
        const next = trail[place + 1];
        // A vehicle that left this half and came back has a gap.
        if (!next || point[3] - next[3] > 2.5) return;
        pen.globalAlpha = 0.08 + 0.6 * Math.max(0, 1 - point[3] / TRAIL_SECONDS);
        pen.lineWidth = 5;
        pen.beginPath();
        pen.moveTo(point[1], point[2]);
        pen.lineTo(next[1], next[2]);
        pen.stroke();
      });
      const [, x, y, age] = trail[trail.length - 1];
      pen.globalAlpha = 0.25 + 0.75 * Math.max(0, 1 - age / TRAIL_SECONDS);
      pen.beginPath();
      pen.arc(x, y, 7, 0, 7);
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  /** @param {CanvasRenderingContext2D} pen @param {number[]} place @param {number} angle @param {string} style */
  drawVan(pen, [x, y], angle, style) {
    pen.save();
    pen.translate(x, y);
    pen.rotate(angle);
    pen.fillStyle = style;
    pen.strokeStyle = this.colours?.surface || "";
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.roundRect(-9, -5, 18, 10, 3);
    pen.fill();
    pen.stroke();
    pen.fillStyle = this.colours?.surface || "";
    pen.fillRect(3, -3, 3, 6);
    pen.restore();
  }
}
