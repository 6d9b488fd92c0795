// SPDX-License-Identifier: Apache-2.0
// Making elements of the page.

/** Make an element with a class and a text. */
export function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
