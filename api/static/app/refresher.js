// Loads again when something has happened: at once, but never twice at a time, and with a pause between that is longer
// where loading takes longer.

import { Refused, Unreachable } from "./http.js";

const LEAST_MS = 300;
const MOST_MS = 1000;
const AGAIN_MS = 2000; // after which it is tried again where the service does not answer

export class Refresher {
  // `load(signal)` is asynchronous; `failed(error)` is told when it does not work out.
  constructor(load, { failed }) {
    Object.assign(this, { load, failed, wanted: false, busy: false, timer: 0, next: -Infinity });
    this.gone = new AbortController();
  }

  // Something may have changed.
  poke() {
    if (this.gone.signal.aborted) return;
    this.wanted = true;
    if (this.busy || this.timer) return;
    this.timer = setTimeout(() => this.run(), Math.max(this.next - performance.now(), 0));
  }

  // Loads anew, and resolves when that is done: what was done before this call is in it.
  async now() {
    while (this.busy) await this.busy;
    clearTimeout(this.timer);
    await this.run();
  }

  stop() {
    clearTimeout(this.timer);
    this.gone.abort();
  }

  run() {
    this.timer = 0;
    this.wanted = false;
    const began = performance.now();
    this.busy = this.once().finally(() => {
      this.busy = false;
      const now = performance.now();
      this.next = now + Math.min(Math.max(now - began, LEAST_MS), MOST_MS);
      if (this.wanted) this.poke();
    });
    return this.busy;
  }

  async once() {
    try {
      await this.load(this.gone.signal);
    } catch (error) {
      if (this.gone.signal.aborted) return;
      if (!(error instanceof Refused || error instanceof Unreachable)) reportError(error); // a mistake of the page's own
      this.failed(error);
      if (error instanceof Unreachable) setTimeout(() => this.poke(), AGAIN_MS);
    }
  }
}
