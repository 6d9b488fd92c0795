// SPDX-License-Identifier: Apache-2.0
// Requests to the server of this page, and their errors as messages for people.

let token = "";

/** An answer that is no success; `hint` says what to do, if the server knows. */
export class ApiError extends Error {
  constructor(message, hint) {
    super(message);
    this.hint = hint;
  }
}

async function answer(response) {
  let body = null;
  try {
    body = await response.json();
  } catch {
    // not JSON: the status has to do
  }
  if (!response.ok) throw new ApiError(body?.error ?? `The server answered ${response.status}.`, body?.hint);
  return body;
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer.", "Is the command still running? Start it again and reload.");
  }
  return answer(response);
}

/** Fetch a JSON value below `api/`. */
export function get(path, signal) {
  return request(`api/${path}`, { signal });
}

/** Send a change of the marks; gives all marks as they are afterwards. */
export function changeMarks(change) {
  return request("api/marks", {
    method: "POST",
    headers: { "content-type": "application/json", "x-ulna-token": token },
    body: JSON.stringify(change),
  });
}

/** Remember what changes have to bring. */
export function setToken(value) {
  token = value;
}

/** The address of one picture. */
export function pictureUrl(episode, camera, frame, state) {
  return `api/episodes/${episode}/frames/${encodeURIComponent(camera)}/${frame}?v=${state}`;
}

/** The address of a video file. */
export function videoUrl(camera, span, state) {
  return `api/videos/${encodeURIComponent(camera)}/${span.chunk}/${span.file}?v=${state}`;
}
