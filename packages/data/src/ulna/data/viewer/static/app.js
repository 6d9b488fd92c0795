// SPDX-License-Identifier: Apache-2.0
// The page: loads the dataset, opens episodes, and joins clock, cameras, plots, list, marks and keyboard.

import { changeMarks, get, setToken } from "./api.js";
import { Cameras } from "./cameras.js";
import { Clock, SPEEDS } from "./clock.js";
import { element } from "./dom.js";
import { duration, EpisodeList } from "./episodes.js";
import { PlotBoard } from "./plots.js";
import { showTasks } from "./tasks.js";

const at = (id) => document.getElementById(id);
const narrow = window.matchMedia("(max-width: 860px)");

const clock = new Clock();
const cameras = new Cameras(at("cameras"), clock);
const plots = new PlotBoard(
  at("plots"),
  (frame) => {
    clock.pause();
    clock.seek(frame);
  },
  (hovered) => {
    at("cursor-time").textContent = hovered === null ? "" : `at ${(hovered / clock.fps).toFixed(2)} s, frame ${hovered}`;
  },
);
const list = new EpisodeList(
  {
    list: at("list"),
    count: at("count"),
    search: at("search"),
    task: at("filter-task"),
    order: at("order"),
    show: document.querySelectorAll("input[name=show]"),
  },
  (episode, close) => {
    open(episode, 0);
    if (close) closeList();
  },
);

let facts = null;
let marks = { delete: [], tasks: {}, command: "" };
let current = -1;
let loading = null;

// messages

function notice(error, kind = "error") {
  const box = element("div", `notice ${kind}`);
  box.setAttribute("role", kind === "error" ? "alert" : "status");
  const text = element("p", "", error.message);
  if (error.hint) text.append(element("span", "hint", error.hint));
  const close = element("button", "button small quiet", "Dismiss");
  close.addEventListener("click", () => box.remove());
  box.append(text, close);
  at("notices").append(box);
  return box;
}

function dropErrors() {
  for (const box of document.querySelectorAll("#notices .error")) box.remove();
}

// one episode

async function open(episode, frame) {
  if (!facts || episode === undefined || episode < 0 || episode >= facts.episodes) return;
  if (episode === current && !loading) {
    clock.seek(frame);
    return;
  }
  loading?.abort();
  loading = new AbortController();
  const { signal } = loading;
  current = episode;
  clock.pause();
  list.choose(episode);
  describe();
  dropErrors();
  try {
    const found = await get(`episodes/${episode}`, signal);
    loading = null;
    cameras.current = null; // until the clock knows the new length, nothing may be drawn
    clock.load(found.length, facts.fps, frame);
    at("scrub").max = String(found.length - 1);
    cameras.load(found, facts.state);
    plots.load(found, facts.fps);
    tasksByFrame = found.tasks;
    at("stage").classList.remove("failed");
    at("stage").dataset.episode = String(episode);
    update();
  } catch (error) {
    if (error.name === "AbortError") return;
    loading = null;
    at("stage").classList.add("failed");
    notice(error);
  }
}

let tasksByFrame = [];

function describe() {
  const seconds = list.lengths[current] / facts.fps;
  at("episode-title").textContent = `Episode ${current}`;
  at("episode-title").append(element("span", "muted", `${duration(seconds)}, ${list.lengths[current]} frames`));
  at("episode-task").textContent = list.taskText(current);
  const problems = list.problems.get(current) ?? [];
  at("problems").hidden = !problems.length;
  at("problems").replaceChildren(...problems.map((text) => element("li", "", text)));
  const isMarked = marks.delete.includes(current);
  at("mark").setAttribute("aria-pressed", String(isMarked));
  at("mark").textContent = isMarked ? "Marked for deletion" : "Mark for deletion";
  at("previous").disabled = list.neighbour(-1) === undefined;
  at("next").disabled = list.neighbour(1) === undefined;
  document.title = `Episode ${current} – ${facts.name}`;
}

function update() {
  const { frame, length, fps } = clock;
  at("scrub").value = String(frame);
  at("scrub").style.setProperty("--share", `${(100 * frame) / Math.max(length - 1, 1)}%`);
  at("scrub").setAttribute("aria-valuetext", `frame ${frame} of ${length}, ${(frame / fps).toFixed(2)} seconds`);
  const time = element("span", "", `${(frame / fps).toFixed(2)} / ${(length / fps).toFixed(2)} s`);
  at("position").replaceChildren(time, element("span", "muted", `frame ${frame}`));
  at("play").setAttribute("aria-label", clock.playing ? "Pause" : "Play");
  at("play").classList.toggle("playing", clock.playing);
  at("speed").value = String(clock.speed);
  if (tasksByFrame.length > 1) {
    const now = tasksByFrame.findLast(([from]) => from <= frame);
    at("episode-task").textContent = facts.tasks[now[1]] ?? "";
  }
  plots.show(frame);
  remember();
}

clock.addEventListener("change", update);

// address of the page

let remembered = 0;

function remember() {
  clearTimeout(remembered);
  remembered = setTimeout(() => {
    if (current < 0) return;
    const hash = clock.frame ? `#episode=${current}&frame=${clock.frame}` : `#episode=${current}`;
    if (location.hash !== hash) history.replaceState(null, "", hash);
  }, clock.playing ? 500 : 120);
}

function wanted() {
  const values = new URLSearchParams(location.hash.slice(1));
  const number = (name) => Math.max(0, Number.parseInt(values.get(name) ?? "0", 10) || 0);
  return [number("episode"), number("frame")];
}

window.addEventListener("hashchange", () => {
  clearTimeout(remembered);
  const [episode, frame] = wanted();
  if (facts && episode >= facts.episodes) notice(new Error(`There is no episode ${episode}.`));
  else open(episode, frame);
});

// marks

function showMarks() {
  const renamed = Object.keys(marks.tasks).length;
  const parts = [];
  if (marks.delete.length) parts.push(`${marks.delete.length} ${marks.delete.length === 1 ? "episode" : "episodes"} to delete`);
  if (renamed) parts.push(`${renamed} ${renamed === 1 ? "task" : "tasks"} to rename`);
  at("marks").hidden = !parts.length;
  at("marks-text").textContent = parts.join(", ");
  at("marks-command").textContent = marks.command;
  list.setMarks(marks);
  const all = list.lengths.map((_, episode) => episode);
  at("count-marked").textContent = String(all.filter((episode) => list.isMarked(episode)).length);
  at("count-problems").textContent = String(list.problems.size);
  if (current >= 0) describe();
  const counts = facts.tasks.map(() => 0);
  for (const tasks of list.tasksOf) for (const i of tasks) counts[i] += 1;
  showTasks(at("task-list"), facts.tasks, counts, marks, change);
}

async function change(what) {
  try {
    marks = await changeMarks(what);
    showMarks();
  } catch (error) {
    notice(error);
  }
}

function toggleMark() {
  if (current >= 0) change({ episode: current, delete: !marks.delete.includes(current) });
}

at("mark").addEventListener("click", toggleMark);
at("copy-command").addEventListener("click", async () => {
  const button = at("copy-command");
  try {
    await navigator.clipboard.writeText(marks.command);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(at("marks-command"));
    button.textContent = "Selected";
  }
  setTimeout(() => {
    button.textContent = "Copy";
  }, 1500);
});

// controls

function step(frames) {
  clock.pause();
  clock.seek(clock.frame + frames);
}

function faster(by) {
  const position = SPEEDS.indexOf(clock.speed) + by;
  clock.setSpeed(SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, position))]);
}

function go(by) {
  const episode = list.neighbour(by);
  if (episode !== undefined) open(episode, 0);
}

at("play").addEventListener("click", () => clock.toggle());
at("back").addEventListener("click", () => step(-1));
at("forward").addEventListener("click", () => step(1));
at("previous").addEventListener("click", () => go(-1));
at("next").addEventListener("click", () => go(1));
at("scrub").addEventListener("input", () => {
  clock.pause();
  clock.seek(Number(at("scrub").value));
});
at("speed").append(...SPEEDS.map((speed) => new Option(`${speed}×`, String(speed))));
at("speed").addEventListener("input", () => clock.setSpeed(Number(at("speed").value)));
at("grouping").addEventListener("change", (event) => plots.group(event.target.value));
document.querySelector(".filters").addEventListener("submit", (event) => {
  event.preventDefault();
  if (list.visible.length) open(list.visible[0], 0);
});
document.querySelector(".filters").addEventListener("input", () => current >= 0 && describe());

const KEYS = {
  " ": () => clock.toggle(),
  ArrowLeft: () => step(-1),
  ArrowRight: () => step(1),
  "shift+ArrowLeft": () => step(-clock.fps),
  "shift+ArrowRight": () => step(clock.fps),
  Home: () => step(-clock.length),
  End: () => step(clock.length),
  "[": () => faster(-1),
  "]": () => faster(1),
  j: () => go(1),
  k: () => go(-1),
  d: toggleMark,
  "/": () => {
    openList();
    at("search").focus();
    at("search").select();
  },
  "?": () => at("help").showModal(),
};

window.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const target = event.target;
  const isField = target.matches?.("input:not([type=range], [type=radio]), select, textarea");
  if (event.key === "Escape" && isField) target.blur();
  else if (event.key === "Escape") closeList();
  if (isField || (event.key === " " && target.matches?.("button, [type=radio]"))) return;
  if (target.matches?.("[type=radio]") && event.key.startsWith("Arrow")) return;
  const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const act = KEYS[event.shiftKey && event.key.startsWith("Arrow") ? `shift+${name}` : name];
  if (!act) return;
  event.preventDefault();
  act();
});

for (const [button, dialog] of [["show-help", "help"], ["show-tasks", "tasks"]]) {
  at(button).addEventListener("click", () => at(dialog).showModal());
  at(dialog).addEventListener("click", (event) => event.target === at(dialog) && at(dialog).close());
}

// theme

at("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("ulna-theme", root.dataset.theme);
  } catch {
    // storage is off: the choice lasts as long as the page
  }
  plots.draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.draw());

// the list on a narrow window

function setList(isOpen) {
  document.body.classList.toggle("list-open", isOpen);
  at("open-list").setAttribute("aria-expanded", String(isOpen));
  at("veil").hidden = !isOpen;
  at("player").inert = isOpen;
  at("sidebar").inert = narrow.matches && !isOpen;
  list.draw();
}

function openList() {
  if (narrow.matches) setList(true);
}

function closeList() {
  if (document.body.classList.contains("list-open")) {
    setList(false);
    at("open-list").focus();
  }
}

at("open-list").addEventListener("click", () => {
  openList();
  at("list").focus();
});
at("veil").addEventListener("click", closeList);
narrow.addEventListener("change", () => setList(false));
setList(false);

// start

function showFacts() {
  const number = (value) => value.toLocaleString("en");
  at("name").textContent = facts.name;
  at("name").title = facts.folder;
  const parts = [
    facts.robot,
    `${number(facts.episodes)} ${facts.episodes === 1 ? "episode" : "episodes"}`,
    `${number(facts.frames)} frames`,
    `${facts.fps} fps`,
  ];
  at("facts").textContent = parts.filter(Boolean).join(" · ");
  for (const problem of facts.problems) notice({ message: problem }, "warning");
}

async function start() {
  try {
    const [found, columns] = [await get("dataset"), await get("episodes")];
    facts = found;
    setToken(facts.token);
    showFacts();
    list.load(columns, facts.tasks, facts.fps);
    marks = facts.marks;
    showMarks();
    if (!facts.episodes) {
      at("empty").textContent = "This dataset has no episodes yet.";
      at("empty").hidden = false;
      return;
    }
    at("stage").hidden = false;
    at("transport").hidden = false;
    cameras.setCameras(facts.cameras);
    plots.setFeatures(facts.series);
    at("grouping").hidden = !plots.canGroup;
    const [episode, frame] = wanted();
    if (episode >= facts.episodes) notice(new Error(`There is no episode ${episode}; this is the last one.`), "warning");
    await open(Math.min(episode, facts.episodes - 1), frame);
  } catch (error) {
    notice(error);
  }
  document.body.dataset.ready = "true";
}

start();
