// Charts over the same steps: one cursor and one zoom for all of them.

import { onTheme } from "../app/theme.js";
import { plotly } from "./plotly.js";

const SMALLEST = 2; // steps that a zoom shows at least

export class ChartGroup {
  // `zoomed(range)` is told of every change of the range; null is all of it.
  constructor(zoomed, signal) {
    Object.assign(this, { charts: [], range: null, step: null, steps: [], domain: [0, 1], zoomed, moving: 0 });
    onTheme(() => this.redraw(), signal);
    addEventListener("resize", () => this.charts.forEach((chart) => chart.read(chart.step)), { signal });
  }

  add(chart) {
    this.charts.push(chart);
    return chart;
  }

  // First and last step in sight.
  get seen() {
    return this.range ?? this.domain;
  }

  // `facts` as a chart takes them; drawn one after another, so that the page stays alive.
  async show(facts, signal) {
    this.domain = facts.domain;
    this.steps = [...new Set([...facts.series.values()].flatMap((one) => one.steps))].sort((a, b) => a - b);
    for (const chart of this.charts) {
      if (signal.aborted) return;
      await chart.show(facts);
    }
  }

  async redraw() {
    for (const chart of this.charts) await chart.draw();
  }

  // The step there is that is nearest to a place between two; null where there is none.
  nearest(place) {
    const nearer = (best, step) => (Math.abs(step - place) < Math.abs(best - place) ? step : best);
    return this.steps.length ? this.steps.reduce(nearer) : null;
  }

  move(step) {
    this.step = step;
    this.moving ||= requestAnimationFrame(() => {
      this.moving = 0;
      this.charts.forEach((chart) => chart.read(this.step));
    });
  }

  async zoom(range) {
    if (JSON.stringify(range) === JSON.stringify(this.range)) return;
    this.range = range;
    this.zoomed(range);
    const library = await plotly();
    for (const chart of this.charts) {
      if (chart.hooked) await library.relayout(chart.plot, { "xaxis.range": [...this.seen] });
      chart.read(this.step);
    }
  }

  // Whether the key meant something here.
  key(name) {
    if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(name)) return this.walk(name);
    if (name === "+" || name === "-") return this.scale(name === "+" ? 0.5 : 2);
    if (name !== "Escape" || (this.range === null && this.step === null)) return false;
    this.zoom(null);
    this.move(null);
    return true;
  }

  walk(name) {
    const [low, high] = this.seen,
      steps = this.steps.filter((step) => step >= low && step <= high);
    const end = steps.length - 1,
      now = steps.indexOf(this.step);
    if (end < 0) return false;
    const places = { ArrowLeft: now < 0 ? end : now - 1, ArrowRight: now < 0 ? end : now + 1, Home: 0, End: end };
    this.step = steps[Math.min(Math.max(places[name], 0), end)];
    this.charts.forEach((chart) => chart.read(this.step));
    return true;
  }

  // Shows `factor` times as many steps, around the cursor.
  scale(factor) {
    const [low, high] = this.seen,
      [first, last] = this.domain;
    const centre = this.step ?? high,
      half = ((high - low) / 2) * factor;
    const range = [Math.max(centre - half, first), Math.min(centre + half, last)];
    if (range[1] - range[0] >= SMALLEST) this.zoom(range[0] === first && range[1] === last ? null : range);
    return true;
  }
}
