// SPDX-License-Identifier: Apache-2.0
// Plots of the numbers of an episode: lines over time on a canvas, with one cursor for all of them.

import { get } from "./api.js";
import { element } from "./dom.js";

const HEIGHT = 190;
const GUTTER = { left: 52, right: 12, top: 10, bottom: 22 };
const COLOURS = 10;
const MOST_DIGITS = 5;

/** A number as short as it can be read: `12.3`, `0.00412`, `1.2e7`. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace("e+", "e");
  const digits = Math.max(0, Math.min(MOST_DIGITS, 2 - Math.floor(Math.log10(size))));
  return value.toFixed(size >= 1000 ? 0 : Math.min(digits, 4)).replace("-", "−");
}

function niceTicks(low, high, about) {
  const span = high - low || 1;
  const raw = span / about;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 2.5, 5, 10].find((factor) => factor * unit >= raw * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) {
    ticks.push(Math.abs(tick) < step * 1e-9 ? 0 : tick);
  }
  return { ticks, step };
}

function tickText(value, step) {
  const digits = Math.max(0, Math.min(8, -Math.floor(Math.log10(step) + 1e-9)));
  const exact = Math.abs(Math.round(step * 10 ** digits) - step * 10 ** digits) > 1e-6 ? digits + 1 : digits;
  return Math.abs(value) >= 1e6 ? value.toExponential(1) : value.toFixed(exact).replace("-", "−");
}

/** One plot: some lines, a legend that shows and hides them, and their values at the cursor. */
class Plot {
  constructor(board, title, unit, lines) {
    this.board = board;
    this.lines = lines; // {key, element, name, colour, dash}
    this.hidden = new Set();
    this.root = element("section", "plot");
    this.root.setAttribute("aria-label", title);
    const head = element("header");
    head.append(element("h4", "", title));
    if (unit) head.append(element("span", "unit", unit));
    this.legend = element("div", "legend");
    this.legend.setAttribute("role", "group");
    this.legend.setAttribute("aria-label", `Lines of ${title}`);
    this.entries = lines.map((line) => this.entry(line));
    const area = element("div", "area");
    this.back = element("canvas");
    this.back.setAttribute("role", "img");
    this.front = element("canvas", "front");
    this.front.setAttribute("aria-hidden", "true");
    area.append(this.back, this.front);
    this.area = area;
    this.root.append(head, area, this.legend);
    this.listen();
  }

  entry(line) {
    const button = element("button", "entry");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    const swatch = element("i", line.dash ? "swatch dash" : "swatch");
    swatch.style.setProperty("--line", `var(--line-${line.colour})`);
    const value = element("span", "value", "–");
    button.append(swatch, element("span", "name", line.name), value);
    button.addEventListener("click", () => this.toggle(line));
    button.addEventListener("dblclick", () => this.alone(line));
    this.legend.append(button);
    return { button, value };
  }

  toggle(line) {
    if (this.hidden.has(line)) this.hidden.delete(line);
    else this.hidden.add(line);
    this.reveal();
  }

  alone(line) {
    const others = this.lines.filter((other) => other !== line);
    const isAlone = others.every((other) => this.hidden.has(other)) && !this.hidden.has(line);
    this.hidden = new Set(isAlone ? [] : others);
    this.reveal();
  }

  reveal() {
    this.lines.forEach((line, i) => this.entries[i].button.setAttribute("aria-pressed", String(!this.hidden.has(line))));
    this.draw();
  }

  listen() {
    const frameAt = (event) => {
      const box = this.area.getBoundingClientRect();
      const share = (event.clientX - box.left - GUTTER.left) / (box.width - GUTTER.left - GUTTER.right);
      return Math.round(Math.max(0, Math.min(1, share)) * (this.board.length - 1));
    };
    let dragging = false;
    this.area.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      dragging = true;
      this.area.setPointerCapture(event.pointerId);
      this.board.onSeek(frameAt(event));
    });
    this.area.addEventListener("pointermove", (event) => {
      const frame = frameAt(event);
      if (dragging) this.board.onSeek(frame);
      this.board.hover(event.pointerType === "touch" ? null : frame);
    });
    const end = () => {
      dragging = false;
    };
    this.area.addEventListener("pointerup", end);
    this.area.addEventListener("pointercancel", end);
    this.area.addEventListener("pointerleave", () => this.board.hover(null));
  }

  size() {
    const width = Math.max(this.area.clientWidth, 120);
    const scale = Math.min(window.devicePixelRatio || 1, 2);
    for (const canvas of [this.back, this.front]) {
      const [w, h] = [Math.round(width * scale), Math.round(HEIGHT * scale)];
      if (canvas.width !== w || canvas.height !== h) {
        canvas.width = w;
        canvas.height = h;
      }
    }
    this.scale = scale;
    this.width = width;
  }

  get shown() {
    return this.lines.filter((line) => !this.hidden.has(line));
  }

  range() {
    let low = Infinity;
    let high = -Infinity;
    for (const line of this.shown) {
      const data = this.board.data[line.key];
      if (!data) continue;
      for (const value of (data.values ?? data.low)[line.element]) if (value !== null && value < low) low = value;
      for (const value of (data.values ?? data.high)[line.element]) if (value !== null && value > high) high = value;
    }
    if (low > high) return [0, 1];
    if (low === high) return [low - (Math.abs(low) * 0.1 || 1), high + (Math.abs(high) * 0.1 || 1)];
    const margin = (high - low) * 0.06;
    return [low - margin, high + margin];
  }

  x(frame) {
    const last = Math.max(this.board.length - 1, 1);
    return GUTTER.left + (frame / last) * (this.width - GUTTER.left - GUTTER.right);
  }

  y(value) {
    const [low, high] = this.limits;
    return GUTTER.top + ((high - value) / (high - low)) * (HEIGHT - GUTTER.top - GUTTER.bottom);
  }

  draw() {
    this.size();
    this.limits = this.range();
    const style = getComputedStyle(this.root);
    const colour = (name) => style.getPropertyValue(name).trim();
    const pen = this.back.getContext("2d");
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    pen.clearRect(0, 0, this.width, HEIGHT);
    this.axes(pen, colour);
    pen.lineWidth = 1.5;
    pen.lineJoin = "round";
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER.left - 1, 0, this.width - GUTTER.left - GUTTER.right + 2, HEIGHT);
    pen.clip();
    for (const line of this.shown) this.path(pen, line, colour(`--line-${line.colour}`));
    pen.restore();
    this.back.setAttribute("aria-label", this.summary());
    this.point();
  }

  axes(pen, colour) {
    pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    pen.strokeStyle = colour("--grid");
    pen.fillStyle = colour("--muted");
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const { ticks, step } = niceTicks(...this.limits, 5);
    for (const tick of ticks) {
      const y = Math.round(this.y(tick)) + 0.5;
      pen.beginPath();
      pen.moveTo(GUTTER.left, y);
      pen.lineTo(this.width - GUTTER.right, y);
      pen.stroke();
      pen.fillText(tickText(tick, step), GUTTER.left - 8, y);
    }
    pen.textBaseline = "alphabetic";
    const seconds = (this.board.length - 1) / this.board.fps;
    const times = niceTicks(0, seconds, Math.max(2, Math.floor(this.width / 110)));
    for (const tick of times.ticks) {
      const x = this.x(tick * this.board.fps);
      pen.textAlign = x > this.width - 30 ? "right" : "center";
      pen.fillText(`${tickText(tick, times.step)} s`, Math.min(x, this.width - GUTTER.right), HEIGHT - 5);
    }
  }

  path(pen, line, colour) {
    const data = this.board.data[line.key];
    if (!data) return;
    pen.strokeStyle = colour;
    pen.setLineDash(line.dash ? [5, 4] : []);
    pen.beginPath();
    let down = false;
    const to = (frame, value) => {
      if (down) pen.lineTo(this.x(frame), this.y(value));
      else pen.moveTo(this.x(frame), this.y(value));
      down = true;
    };
    if (data.values) {
      data.values[line.element].forEach((value, frame) => {
        if (value === null) down = false;
        else to(frame, value);
      });
      if (this.board.length === 1 && down) to(1, data.values[line.element][0]);
    } else {
      const low = data.low[line.element];
      const high = data.high[line.element];
      low.forEach((value, i) => {
        const middle = Math.min((i + 0.5) * data.step, this.board.length - 1);
        if (value === null) down = false;
        else {
          to(middle, value);
          to(middle, high[i]);
        }
      });
    }
    pen.stroke();
    pen.setLineDash([]);
  }

  summary() {
    const [low, high] = this.range();
    return `${this.root.getAttribute("aria-label")}: ${this.shown.length} lines between ${short(low)} and ${short(high)}`;
  }

  /** Draw the cursor, and write the values at it into the legend. */
  point() {
    const { frame, hovered } = this.board;
    const pen = this.front.getContext("2d");
    const style = getComputedStyle(this.root);
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    pen.clearRect(0, 0, this.width, HEIGHT);
    const bar = (at, name) => {
      const x = Math.round(this.x(at)) + 0.5;
      pen.strokeStyle = style.getPropertyValue(name).trim();
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(x, GUTTER.top - 4);
      pen.lineTo(x, HEIGHT - GUTTER.bottom + 2);
      pen.stroke();
      return x;
    };
    const at = hovered ?? frame;
    if (hovered !== null) bar(hovered, "--muted");
    bar(frame, "--cursor");
    this.lines.forEach((line, i) => {
      const value = this.board.value(line.key, line.element, at);
      this.entries[i].value.textContent = value.text;
      if (this.hidden.has(line) || value.number === null) return;
      pen.fillStyle = style.getPropertyValue(`--line-${line.colour}`).trim();
      pen.beginPath();
      pen.arc(this.x(at), this.y(value.number), 3, 0, 7);
      pen.fill();
    });
  }
}

/** All plots of an episode, with their common cursor. */
export class PlotBoard {
  constructor(container, onSeek, onCursor) {
    this.container = container;
    this.onSeek = onSeek;
    this.onCursor = onCursor;
    this.plots = [];
    this.features = [];
    this.grouping = "feature";
    this.length = 1;
    this.fps = 1;
    this.data = {};
    this.frame = 0;
    this.hovered = null;
    this.exact = new Map();
    new ResizeObserver(() => this.draw()).observe(container);
  }

  setFeatures(features) {
    this.features = features;
    this.build();
  }

  group(grouping) {
    this.grouping = grouping;
    this.build();
    this.draw();
  }

  /** Whether features share names of elements, so that grouping by element says something. */
  get canGroup() {
    const counts = new Map();
    for (const { names } of this.features) for (const name of new Set(names)) counts.set(name, (counts.get(name) ?? 0) + 1);
    return [...counts.values()].some((count) => count > 1);
  }

  build() {
    this.plots = this.grouping === "element" ? this.byElement() : this.byFeature();
    this.container.classList.toggle("small", this.grouping === "element");
    this.container.replaceChildren(...this.plots.map((plot) => plot.root));
  }

  byFeature() {
    return this.features.map((feature) => {
      const lines = feature.names.map((name, i) => ({
        key: feature.key,
        element: i,
        name,
        colour: i % COLOURS,
        dash: Math.floor(i / COLOURS) % 2 === 1,
      }));
      const more = feature.left_out ? `first ${lines.length} of ${lines.length + feature.left_out}` : "";
      return new Plot(this, feature.key, [feature.unit, more].filter(Boolean).join(", "), lines);
    });
  }

  byElement() {
    const groups = new Map();
    this.features.forEach((feature) => {
      feature.names.forEach((name, i) => {
        if (!groups.has(name)) groups.set(name, []);
        const lines = groups.get(name);
        const label = feature.key.replace(/^observation\./, "");
        lines.push({ key: feature.key, element: i, name: label, colour: lines.length % COLOURS, dash: false, unit: feature.unit });
      });
    });
    return [...groups].map(([name, lines]) => {
      const units = [...new Set(lines.map((line) => line.unit).filter(Boolean))];
      return new Plot(this, name, units.join(", "), lines);
    });
  }

  load(episode, fps) {
    this.episode = episode.episode;
    this.data = episode.series;
    this.length = episode.length;
    this.fps = fps;
    this.hovered = null;
    this.exact.clear();
    this.draw();
  }

  draw() {
    for (const plot of this.plots) plot.draw();
  }

  show(frame) {
    if (frame === this.frame && this.hovered === null) return;
    this.frame = frame;
    this.point();
  }

  hover(frame) {
    if (frame === this.hovered) return;
    this.hovered = frame;
    this.point();
  }

  point() {
    cancelAnimationFrame(this.pending);
    this.pending = requestAnimationFrame(() => {
      for (const plot of this.plots) plot.point();
      this.onCursor(this.hovered);
      this.refine();
    });
  }

  /** A value at a frame; of a long episode its stretch's range, until the exact one has come. */
  value(key, i, frame) {
    const data = this.data[key];
    if (!data) return { text: "–", number: null };
    if (data.values) {
      const number = data.values[i]?.[frame] ?? null;
      return { text: short(number), number };
    }
    const exact = this.exact.get(frame)?.[key]?.[i];
    if (exact !== undefined) return { text: short(exact), number: exact };
    const at = Math.floor(frame / data.step);
    const [low, high] = [data.low[i][at], data.high[i][at]];
    if (low === null || low === undefined) return { text: "–", number: null };
    return { text: low === high ? short(low) : `${short(low)} … ${short(high)}`, number: null };
  }

  /** Fetch the exact values at the cursor of a long episode, once it rests. */
  refine() {
    clearTimeout(this.timer);
    const frame = this.hovered ?? this.frame;
    const isLong = Object.values(this.data).some((data) => !data.values);
    if (!isLong || this.exact.has(frame)) return;
    const { episode } = this;
    this.timer = setTimeout(async () => {
      try {
        const values = await get(`episodes/${episode}/values/${frame}`);
        if (episode !== this.episode) return;
        this.exact.set(frame, values);
        for (const plot of this.plots) plot.point();
      } catch {
        // the range of the stretch stays
      }
    }, 80);
  }
}
