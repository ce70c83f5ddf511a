// What is known of one job, and kept up to date: its health, its incidents, its baselines, its trail.

import * as api from "./api.js";
import { listen } from "./live.js";
import { Refresher } from "./refresher.js";

export class Job {
  // `changed()` is asynchronous, and draws what there is; `failed(error)` is told when it cannot be read.
  constructor(name, { changed, failed }) {
    Object.assign(this, { name, health: null, incidents: [], silences: [], baselines: null, events: [] });
    this.gone = new AbortController();
    this.refresher = new Refresher(
      async (signal) => {
        await this.load(signal);
        await changed(signal);
      },
      { failed },
    );
    listen(name, () => this.refresher.poke(), this.gone.signal);
    this.polling = setInterval(() => this.refresher.poke(), 10000); // silence is no event
  }

  async load(signal) {
    const after = this.events.at(-1)?.number ?? 0;
    const [health, incidents, silences, baselines, events] = await Promise.all([
      api.health(this.name, signal),
      api.incidents(this.name, signal),
      api.silences(this.name, signal),
      api.baselines(this.name, signal),
      api.eventsAfter(this.name, after, signal),
    ]);
    const silenced = new Set(silences.silences.map((one) => one.fingerprint)); // which an incident knows at its next step
    const known = (one) => ({ ...one, silenced: one.silenced || silenced.has(one.fingerprint) });
    this.health = { ...health, incidents: health.incidents.map(known) };
    this.incidents = incidents.incidents.map(known);
    this.silences = silences.silences;
    this.baselines = baselines;
    this.events.push(...events.filter((one) => one.number > after));
  }

  // After something was changed: everything anew, and the health.
  reload = async () => {
    await this.refresher.now();
    return this.health;
  };

  get controls() {
    return this.health.controls;
  }

  // Whether setting this mode would change nothing. It does where that lifts a lock, or the kill switch.
  stands(mode) {
    return mode === this.health.job.mode && !this.controls.killed && !this.controls.locked;
  }

  // What the agent foresaw of a proposal when it made it; empty where nothing is known.
  foreseen(id) {
    return this.events.findLast((one) => one.kind === "proposed" && one.detail.proposal === id)?.detail.foreseen ?? {};
  }

  stop() {
    this.gone.abort();
    this.refresher.stop();
    clearInterval(this.polling);
  }
}
