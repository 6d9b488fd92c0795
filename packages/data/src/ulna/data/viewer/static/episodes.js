// SPDX-License-Identifier: Apache-2.0
// The list of episodes: search, filter and order over columns, and rows only where somebody looks.

import { element } from "./dom.js";

const ROW = 52;
const AROUND = 6;

/** Seconds as `2.5 s` or `3:07`. */
export function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  const rest = String(whole % 60).padStart(2, "0");
  return minutes < 60 ? `${minutes}:${rest} min` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest} h`;
}

/** Episodes as columns, and what the marks add to them. */
export class EpisodeList {
  constructor(parts, onChoose) {
    Object.assign(this, parts); // list, count, search, task, order, show
    this.rows = this.list.firstElementChild;
    this.onChoose = onChoose;
    this.lengths = [];
    this.visible = [];
    this.chosen = -1;
    this.marks = { delete: [], tasks: {} };
    this.deleted = new Set();
    this.drawn = new Map();
    this.list.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.list);
    for (const input of [this.search, this.task, this.order]) input.addEventListener("input", () => this.filter());
    for (const input of this.show) input.addEventListener("change", () => this.filter());
    this.list.addEventListener("click", (event) => {
      const row = event.target.closest("[data-episode]");
      if (row) this.onChoose(Number(row.dataset.episode), true);
    });
    this.list.addEventListener("keydown", (event) => this.key(event));
  }

  load(columns, tasks, fps) {
    this.lengths = columns.lengths;
    this.fps = fps;
    this.texts = tasks;
    this.tasksOf = columns.tasks.map((value) => (Array.isArray(value) ? value : [value]));
    this.problems = new Map(Object.entries(columns.problems).map(([episode, found]) => [Number(episode), found]));
    this.longest = this.lengths.reduce((most, length) => Math.max(most, length), 1);
    this.lowered = tasks.map((text) => text.toLowerCase());
    this.task.replaceChildren(new Option("All tasks", ""), ...tasks.map((text, i) => new Option(text, String(i))));
    this.task.hidden = tasks.length < 2;
    this.filter();
  }

  setMarks(marks) {
    this.marks = marks;
    this.deleted = new Set(marks.delete);
    this.filter();
  }

  taskText(episode) {
    return this.tasksOf[episode].map((i) => this.texts[i]).join(" · ");
  }

  isMarked(episode) {
    return this.deleted.has(episode) || this.tasksOf[episode].some((i) => this.texts[i] in this.marks.tasks);
  }

  filter() {
    const words = this.search.value.trim().toLowerCase();
    const range = /^#?(\d+)(?:\s*[-–]\s*(\d+))?$/.exec(words);
    const task = this.task.value === "" ? -1 : Number(this.task.value);
    const show = [...this.show].find((input) => input.checked).value;
    const found = words && !range ? new Set(this.lowered.flatMap((text, i) => (text.includes(words) ? [i] : []))) : null;
    const keep = (episode) => {
      if (range) {
        const first = Number(range[1]);
        const last = range[2] === undefined ? first : Number(range[2]);
        const byNumber = range[2] === undefined ? String(episode).startsWith(range[1]) : episode >= first && episode <= last;
        if (!byNumber) return false;
      }
      if (found && !this.tasksOf[episode].some((i) => found.has(i))) return false;
      if (task >= 0 && !this.tasksOf[episode].includes(task)) return false;
      if (show === "problems") return this.problems.has(episode);
      return show !== "marked" || this.isMarked(episode);
    };
    this.visible = this.lengths.flatMap((_, episode) => (keep(episode) ? [episode] : []));
    const sign = { short: 1, long: -1 }[this.order.value];
    if (sign) this.visible.sort((a, b) => sign * (this.lengths[a] - this.lengths[b]) || a - b);
    const frames = this.visible.reduce((sum, episode) => sum + this.lengths[episode], 0);
    const all = this.lengths.length;
    const number = (value) => value.toLocaleString("en");
    const some = this.visible.length === all ? number(all) : `${number(this.visible.length)} of ${number(all)}`;
    this.count.textContent = `${some} ${all === 1 ? "episode" : "episodes"}, ${duration(frames / this.fps)}`;
    this.list.setAttribute("aria-label", `Episodes, ${some}`);
    this.rows.style.height = `${this.visible.length * ROW}px`;
    this.drawn.clear();
    this.rows.replaceChildren();
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - AROUND);
    const last = Math.min(this.visible.length, Math.ceil((this.list.scrollTop + this.list.clientHeight) / ROW) + AROUND);
    for (const [position, row] of this.drawn) {
      if (position < first || position >= last) {
        row.remove();
        this.drawn.delete(position);
      }
    }
    for (let position = first; position < last; position += 1) {
      if (!this.drawn.has(position)) {
        const row = this.row(position);
        this.drawn.set(position, row);
        this.rows.append(row);
      }
    }
    this.highlight();
  }

  row(position) {
    const episode = this.visible[position];
    const row = element("div", "episode");
    row.id = `episode-${episode}`;
    row.dataset.episode = String(episode);
    row.setAttribute("role", "option");
    row.setAttribute("aria-posinset", String(position + 1));
    row.setAttribute("aria-setsize", String(this.visible.length));
    row.style.transform = `translateY(${position * ROW}px)`;
    const top = element("div", "line");
    top.append(element("span", "index", `Episode ${episode}`));
    if (this.deleted.has(episode)) top.append(element("span", "tag danger", "delete"));
    if (this.problems.has(episode)) {
      const tag = element("span", "tag warn", "problem");
      tag.title = this.problems.get(episode).join("\n");
      top.append(tag);
    }
    top.append(element("span", "length", duration(this.lengths[episode] / this.fps)));
    const text = element("div", "task", this.taskText(episode) || "no task");
    text.title = text.textContent;
    const track = element("div", "track");
    const bar = element("i");
    bar.style.width = `${(100 * this.lengths[episode]) / this.longest}%`;
    track.append(bar);
    row.append(top, text, track);
    row.classList.toggle("deleted", this.deleted.has(episode));
    return row;
  }

  highlight() {
    for (const row of this.drawn.values()) {
      row.setAttribute("aria-selected", String(Number(row.dataset.episode) === this.chosen));
    }
    if (this.chosen >= 0) this.list.setAttribute("aria-activedescendant", `episode-${this.chosen}`);
  }

  /** Show which episode is open; bring it into view. */
  choose(episode) {
    this.chosen = episode;
    const position = this.visible.indexOf(episode);
    if (position >= 0) {
      const top = position * ROW;
      const { scrollTop, clientHeight } = this.list;
      if (top < scrollTop) this.list.scrollTop = top;
      else if (top + ROW > scrollTop + clientHeight) this.list.scrollTop = top + ROW - clientHeight;
    }
    this.draw();
  }

  /** The episode before or after the open one, in the order that is shown. */
  neighbour(step) {
    const position = this.visible.indexOf(this.chosen);
    if (position < 0) return this.visible[step > 0 ? 0 : this.visible.length - 1];
    return this.visible[position + step];
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.list.clientHeight / ROW) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (!(event.key in steps) || !this.visible.length) return;
    event.preventDefault();
    const position = this.visible.indexOf(this.chosen);
    const next = Math.max(0, Math.min(this.visible.length - 1, position + steps[event.key]));
    this.onChoose(this.visible[next], false);
  }
}
