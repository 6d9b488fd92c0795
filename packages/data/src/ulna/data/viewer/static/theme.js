// SPDX-License-Identifier: Apache-2.0
// Applies the chosen theme before anything is drawn. Without a choice, the system's is followed.
(function () {
  "use strict";
  let chosen = null;
  try {
    chosen = localStorage.getItem("ulna-theme");
  } catch {
    // storage is off: the choice lasts as long as the page
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
