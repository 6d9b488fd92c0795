// SPDX-License-Identifier: Apache-2.0
// The one clock of the page: everything that moves is shown at its frame.

export const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];

const LONGEST_HOLD_MS = 3000;

/** Time within an episode. Emits `change` when the frame or the state changed; `hold()` may ask it to wait. */
export class Clock extends EventTarget {
  constructor() {
    super();
    this.length = 0;
    this.fps = 1;
    this.time = 0; // seconds since the beginning of the episode
    this.speed = 1;
    this.playing = false;
    this.hold = () => false;
    this.held = 0;
    this.tick = this.tick.bind(this);
  }

  /** Begin with another episode. */
  load(length, fps, frame) {
    this.length = length;
    this.fps = fps;
    this.seek(frame);
  }

  get frame() {
    return Math.max(0, Math.min(this.length - 1, Math.floor(this.time * this.fps + 1e-6)));
  }

  /** Go to a frame: to the middle of the time it is shown, so that rounding cannot land beside it. */
  seek(frame) {
    const wanted = Math.max(0, Math.min(this.length - 1, Math.round(frame)));
    this.time = (wanted + 0.5) / this.fps;
    this.emit();
  }

  play() {
    if (this.playing || this.length === 0) return;
    if (this.frame >= this.length - 1) this.time = 0.5 / this.fps;
    this.playing = true;
    this.last = performance.now();
    this.held = 0;
    this.emit();
    requestAnimationFrame(this.tick);
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    this.seek(this.frame);
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  setSpeed(speed) {
    this.speed = speed;
    this.emit();
  }

  tick(now) {
    if (!this.playing) return;
    const passed = Math.min(Math.max(now - this.last, 0), 250);
    this.last = now;
    if (this.held < LONGEST_HOLD_MS && this.hold()) {
      this.held += passed;
    } else {
      if (!this.hold()) this.held = 0;
      this.time += (passed / 1000) * this.speed;
    }
    if (this.time * this.fps >= this.length - 0.5) {
      this.playing = false;
      this.seek(this.length - 1);
      return;
    }
    this.emit();
    requestAnimationFrame(this.tick);
  }

  emit() {
    this.dispatchEvent(new Event("change"));
  }
}
