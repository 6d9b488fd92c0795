// SPDX-License-Identifier: Apache-2.0
// The dialog of tasks: how many episodes have each, and a new text for it as a mark.

import { element } from "./dom.js";

/** Fill the list of tasks. `change` takes a mark and gives nothing before it is stored. */
export function showTasks(list, tasks, counts, marks, change) {
  const rows = tasks.map((text, i) => row(text, counts[i], marks.tasks[text], change));
  if (!rows.length) rows.push(element("li", "muted", "This dataset has no tasks."));
  list.replaceChildren(...rows);
}

function row(text, count, renamed, change) {
  const item = element("li");
  const form = element("form");
  const label = element("label");
  const input = element("input");
  input.type = "text";
  input.value = renamed ?? text;
  input.required = true;
  label.append(element("span", "old", text), element("span", "muted", `${count} ${count === 1 ? "episode" : "episodes"}`), input);
  const save = element("button", "button small", "Rename");
  const undo = element("button", "button small quiet", "Take back");
  undo.type = "button";
  undo.hidden = renamed === undefined;
  save.disabled = true;
  input.addEventListener("input", () => {
    save.disabled = !input.value.trim() || input.value.trim() === (renamed ?? text);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    change({ task: text, rename: input.value.trim() });
  });
  undo.addEventListener("click", () => change({ task: text, rename: null }));
  item.classList.toggle("renamed", renamed !== undefined);
  form.append(label, save, undo);
  item.append(form);
  return item;
}
