// SPDX-License-Identifier: Apache-2.0
// The cameras of an episode. A video is decoded by the browser and corrected to the clock; where that is not possible,
// the server decodes single pictures. Either way a canvas shows exactly the frame whose number stands on the tile.

import { pictureUrl, videoUrl } from "./api.js";
import { element } from "./dom.js";

const AHEAD = 12; // pictures fetched before they are needed
const AT_ONCE = 3;
const KEPT = 90;
const PATIENCE_MS = 10000;
const JUMP_S = 0.25; // a video further off than this is moved, a nearer one is played a little faster or slower

/** The frame of one camera on the page: canvas, name, and what is worth knowing about it. */
class Tile {
  constructor(camera) {
    this.camera = camera;
    this.root = element("figure", "tile");
    this.root.dataset.camera = camera.key;
    this.root.style.setProperty("--ratio", String(camera.width / camera.height));
    this.canvas = element("canvas");
    this.canvas.width = camera.width;
    this.canvas.height = camera.height;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `Camera ${camera.label}`);
    const caption = element("figcaption");
    this.note = element("span", "note");
    this.number = element("span", "number");
    this.grow = element("button", "grow");
    this.grow.type = "button";
    this.grow.title = "Larger or smaller";
    this.grow.setAttribute("aria-label", `Show camera ${camera.label} larger`);
    this.grow.setAttribute("aria-pressed", "false");
    this.grow.textContent = "⤢";
    this.grow.addEventListener("click", () => {
      const large = this.root.classList.toggle("large");
      this.grow.setAttribute("aria-pressed", String(large));
    });
    caption.append(element("span", "label", camera.label), this.note, this.number, this.grow);
    this.message = element("p", "message");
    this.message.hidden = true;
    const screen = element("div", "screen");
    screen.append(this.canvas, this.message);
    this.root.append(screen, caption);
    this.pen = this.canvas.getContext("2d", { alpha: false });
    this.frame = -1;
  }

  draw(image, width, height, frame) {
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.pen.drawImage(image, 0, 0, width, height);
    this.frame = frame;
    this.root.dataset.frame = String(frame);
    this.number.textContent = String(frame);
    this.say("");
  }

  clear() {
    this.frame = -1;
    delete this.root.dataset.frame;
    this.number.textContent = "";
  }

  say(text) {
    this.message.textContent = text;
    this.message.hidden = !text;
  }
}

/** Plays a video element that is never shown itself, and draws its frames while they belong to the episode. */
class VideoSource {
  constructor(tile, clock, giveUp) {
    this.tile = tile;
    this.clock = clock;
    this.giveUp = giveUp;
    this.video = document.createElement("video");
    this.video.muted = true;
    this.video.playsInline = true;
    this.video.preload = "auto";
    this.rate = 1;
    this.asked = NaN; // the time a paused video was last sent to, so that it is sent there once
    this.url = "";
    this.video.addEventListener("error", () => this.fail());
    this.video.addEventListener("seeked", () => {
      this.show(this.video.currentTime, true);
      this.sync();
    });
    this.video.addEventListener("loadeddata", () => {
      clearTimeout(this.timer);
      this.sync();
    });
    if ("requestVideoFrameCallback" in this.video) this.watch();
    else this.video.addEventListener("timeupdate", () => this.show(this.video.currentTime, true));
  }

  fail() {
    if (!this.url) return;
    const codec = this.tile.camera.codec ? ` (${this.tile.camera.codec})` : "";
    this.giveUp(`This browser cannot play the video${codec}: pictures are decoded by the server.`);
  }

  load(url, span) {
    this.start = span.start_s;
    this.asked = NaN;
    this.tile.clear();
    if (url === this.url) {
      this.sync();
      return;
    }
    this.url = url;
    this.video.src = url;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fail(), PATIENCE_MS);
  }

  watch() {
    this.video.requestVideoFrameCallback((now, shown) => {
      this.show(shown.mediaTime, false);
      if (this.url) this.watch();
    });
  }

  /** Draw what the video shows at `time`; a time that was asked for lies within its frame, a frame's own at its start. */
  show(time, asked) {
    if (!this.url || this.video.readyState < 2 || this.video.seeking) return;
    const position = (time - this.start) * this.clock.fps;
    const frame = asked ? Math.floor(position + 1e-3) : Math.round(position);
    if (frame < 0 || frame >= this.clock.length) return; // another episode of the same file
    this.tile.draw(this.video, this.video.videoWidth, this.video.videoHeight, frame);
  }

  sync() {
    const { video, clock } = this;
    if (!this.url || video.readyState < 1 || video.seeking) return;
    const target = this.start + clock.time;
    const drift = video.currentTime - target;
    if (!clock.playing) {
      if (!video.paused) video.pause();
      if (this.asked === target) return;
      this.asked = target;
      if (Math.abs(drift) > 0.2 / clock.fps || this.tile.frame !== clock.frame) video.currentTime = target;
      return;
    }
    this.asked = NaN;
    if (Math.abs(drift) > JUMP_S * Math.max(clock.speed, 0.5)) {
      video.currentTime = target;
      return;
    }
    const correction = Math.abs(drift) < 0.012 ? 0 : Math.max(-0.2, Math.min(0.2, -drift * 2));
    const rate = Math.round(clock.speed * (1 + correction) * 50) / 50 || clock.speed;
    if (rate !== this.rate) {
      this.rate = rate;
      video.playbackRate = rate;
    }
    if (video.paused) video.play().catch(() => {}); // paused again meanwhile
  }

  get late() {
    return this.video.readyState < 2 || this.video.seeking;
  }

  close() {
    clearTimeout(this.timer);
    this.url = "";
    this.video.pause();
    this.video.removeAttribute("src");
    this.video.load();
  }
}

/** Fetches single pictures around the clock's frame, the needed one first, and keeps some. */
class PictureSource {
  constructor(tile, clock) {
    this.tile = tile;
    this.clock = clock;
    this.kept = new Map();
    this.loading = new Map();
  }

  load(episode, state) {
    this.close();
    this.tile.clear();
    this.episode = episode;
    this.state = state;
    this.failed = false;
    this.sync();
  }

  sync() {
    if (this.episode === undefined || this.failed) return;
    const wanted = this.clock.frame;
    const picture = this.kept.get(wanted);
    if (picture && this.tile.frame !== wanted) this.tile.draw(picture, picture.width, picture.height, wanted);
    const last = Math.min(this.clock.length - 1, wanted + (this.clock.playing ? AHEAD : 1));
    for (let frame = wanted; frame <= last && this.loading.size < AT_ONCE; frame += 1) {
      if (!this.kept.has(frame) && !this.loading.has(frame)) this.fetch(frame);
    }
  }

  async fetch(frame) {
    const { episode } = this;
    const stop = new AbortController();
    this.loading.set(frame, stop);
    try {
      const response = await fetch(pictureUrl(episode, this.tile.camera.key, frame, this.state), { signal: stop.signal });
      if (!response.ok) throw new Error((await response.json()).error);
      const picture = await createImageBitmap(await response.blob());
      if (stop.signal.aborted) {
        picture.close();
        return;
      }
      this.keep(frame, picture);
    } catch (error) {
      if (stop.signal.aborted) return;
      this.failed = true;
      this.tile.say(`This picture cannot be shown. ${error.message}`);
    } finally {
      if (this.loading.get(frame) === stop) this.loading.delete(frame);
    }
    this.sync();
  }

  keep(frame, picture) {
    this.kept.set(frame, picture);
    if (this.kept.size <= KEPT) return;
    const here = this.clock.frame;
    let farthest = frame;
    for (const number of this.kept.keys()) {
      if (Math.abs(number - here) > Math.abs(farthest - here)) farthest = number;
    }
    this.kept.get(farthest).close();
    this.kept.delete(farthest);
  }

  get late() {
    return !this.failed && this.episode !== undefined && Math.abs(this.tile.frame - this.clock.frame) > 2;
  }

  close() {
    for (const stop of this.loading.values()) stop.abort();
    for (const picture of this.kept.values()) picture.close();
    this.loading.clear();
    this.kept.clear();
  }
}

/** All cameras of a dataset. */
export class Cameras {
  constructor(container, clock) {
    this.container = container;
    this.clock = clock;
    this.views = [];
    clock.addEventListener("change", () => this.sync());
    clock.hold = () => this.views.some((view) => view.source.late);
  }

  /** Make a tile for each camera. */
  setCameras(cameras) {
    this.container.replaceChildren();
    this.views = cameras.map((camera) => {
      const tile = new Tile(camera);
      const view = { tile, source: null };
      view.source = camera.kind === "video" ? this.makeVideo(view) : new PictureSource(tile, this.clock);
      if (camera.kind === "depth") tile.note.textContent = "depth";
      this.container.append(tile.root);
      return view;
    });
    this.container.hidden = cameras.length === 0;
    const stage = this.container.parentElement;
    stage.classList.toggle("no-cameras", cameras.length === 0);
    const across = cameras.length > 3 ? 2 : 1;
    stage.style.setProperty("--across", String(across));
    stage.style.setProperty("--down", String(Math.ceil(cameras.length / across) || 1));
    stage.style.setProperty("--widest", String(Math.max(...cameras.map(({ width, height }) => width / height), 0.5)));
  }

  makeVideo(view) {
    return new VideoSource(view.tile, this.clock, (reason) => {
      if (!(view.source instanceof VideoSource)) return;
      view.source.close();
      view.source = new PictureSource(view.tile, this.clock);
      view.tile.root.dataset.fallback = "true";
      view.tile.note.textContent = "decoded by the server";
      view.tile.note.title = reason;
      if (this.current) view.source.load(this.current.episode, this.state);
    });
  }

  /** Show an episode. The clock has its length already. */
  load(episode, state) {
    this.current = episode;
    this.state = state;
    for (const { tile, source } of this.views) {
      const span = episode.videos[tile.camera.key];
      tile.say("");
      if (source instanceof VideoSource) source.load(videoUrl(tile.camera.key, span, state), span);
      else source.load(episode.episode, state);
    }
  }

  sync() {
    if (this.current) for (const { source } of this.views) source.sync();
  }
}
