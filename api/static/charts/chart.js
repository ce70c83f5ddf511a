// One chart of some signals over the steps of an attempt. Its legend is also its readout, at the step under the cursor.

import { h, render } from "../app/dom.js";
import { number } from "../app/format.js";
import { CONFIG, layout, MARGIN } from "./look.js";
import { drawnMarks } from "./marks.js";
import { plotly } from "./plotly.js";
import { bandTrace, baselineShapes, brokenTrace, extent, limitShapes, lineTraces } from "./traces.js";

const HEIGHT = 172;
const NONE = { steps: [], values: [], kinds: [] };

export class Chart {
  // `group` is told of the cursor and of zooming; see group.js.
  constructor(spec, group) {
    Object.assign(this, { spec, group, series: [], facts: null, step: null, drawnKey: "", margin: MARGIN });
    this.build();
    this.listen();
  }

  build() {
    const { id, title, unit, lines } = this.spec;
    this.plot = h("div", { class: "plot", tabindex: "0", role: "img", "data-focus": `chart-${id}` });
    this.cursor = h("div", { class: "cursor", hidden: true });
    this.nothing = h("p", { class: "nothing", hidden: true }, "Not observed");
    this.values = lines.map(() => h("b", { class: "number" }));
    this.at = h("span", { class: "at number muted" });
    this.guides = h("li", { class: "guides" });
    const entry = ({ look, as = "", label }, i) =>
      h("li", {}, h("i", { class: `swatch ${look} ${as}` }), label, " ", this.values[i]);
    this.legend = h("ul", { class: "legend" }, lines.map(entry), this.guides);
    this.spoken = h("p", { class: "unseen", "aria-live": "polite" });
    this.element = h(
      "figure",
      { class: "chart card", id: `chart-${id}` },
      h("figcaption", {}, h("h3", {}, title), h("span", { class: "muted small" }, unit), this.at, this.legend),
      h("div", { class: "canvas" }, this.plot, this.cursor, this.nothing),
      this.spoken,
    );
  }

  // { series: Map of name to columns, baselines: Map of name, limits: Map of name, marks, domain: [first, last] }
  async show(facts) {
    this.facts = facts;
    this.series = this.spec.lines.map((line) => facts.series.get(line.name) ?? NONE);
    await this.drawOnce([this.series, this.baselines, this.limits, facts.marks, facts.domain]);
  }

  async drawOnce(key) {
    const text = JSON.stringify(key);
    if (text === this.drawnKey) return;
    this.drawnKey = text;
    try {
      await this.draw();
    } catch (error) {
      this.drawnKey = ""; // it is tried again
      throw error;
    }
  }

  get seen() {
    return this.series.some((one) => one.steps.length);
  }

  get limits() {
    const { floor = -Infinity, ceiling = Infinity, lines } = this.spec;
    const found = lines.flatMap(({ name }) => this.facts.limits.get(name) ?? []);
    return found.filter(({ value }) => value >= floor && value <= ceiling); // others are never reached
  }

  get extent() {
    const grounds = this.baselines.flatMap((one) => [one.low, one.high]);
    return extent(this.series, [...this.limits.map((one) => one.value), ...grounds], this.spec);
  }

  get baselines() {
    const found = this.spec.lines.map(({ name, look }) => ({ look, ...this.facts.baselines.get(name) }));
    return found.filter((one) => one.low !== undefined);
  }

  async draw() {
    if (!this.facts) return;
    this.nothing.hidden = this.seen;
    this.showGuides();
    this.read(this.step);
    this.plot.setAttribute("aria-label", this.described());
    const library = await plotly();
    if (!this.element.isConnected) return;
    await library.react(this.plot, this.traces(), this.layout(), CONFIG);
    if (!this.hooked) this.hook();
  }

  traces() {
    const { domain } = this.facts,
      { steps } = this.group,
      { lines, band } = this.spec;
    const drawn = [...lineTraces(lines, this.series, domain, steps), brokenTrace(this.series)];
    if (!band) return drawn;
    const of = (name) => this.series[lines.findIndex((line) => line.name === name)];
    return [bandTrace(of(band.low), of(band.high), band.look, domain, steps), ...drawn];
  }

  layout() {
    const { marks, domain } = this.facts,
      [first, last] = domain;
    const drawn = drawnMarks(marks, last);
    const guides = [...baselineShapes(this.baselines, first, last), ...limitShapes(this.limits, first, last)];
    const yaxis = { range: this.extent },
      shapes = [...guides, ...drawn.shapes];
    return layout({ height: HEIGHT, range: [...this.group.seen], yaxis, shapes, annotations: drawn.annotations });
  }

  // Says what the dashed lines and the grounds are.
  showGuides() {
    const { limits, baselines } = this,
      [low, high] = this.extent;
    const beyond = (value) => (value > high ? " ↑" : value < low ? " ↓" : "");
    const told = ({ label, value, means }) =>
      h(
        "span",
        { title: means },
        h("i", { class: "swatch limit" }),
        label,
        " ",
        h("b", {}, number(value), beyond(value)),
      );
    render(this.guides, [limits, baselines.length, low, high], () => [
      baselines.length ? h("span", {}, h("i", { class: "swatch block baseline" }), "baseline") : null,
      limits.map(told),
    ]);
  }

  // Shows the cursor at a step, and the values there; the newest where it is null.
  read(step) {
    this.step = step;
    this.series.forEach(({ steps, values, kinds, censored }, i) => {
      const place = step === null ? steps.length - 1 : steps.indexOf(step);
      this.values[i].textContent = place < 0 ? "–" : values[place] === null ? kinds[place] : shown(values[place], censored);
    });
    this.at.textContent = step === null ? "" : `step ${step}`;
    const x = this.pixel(step);
    this.cursor.hidden = x === null;
    if (x !== null) this.cursor.style.transform = `translateX(${x}px)`;
  }

  pixel(step) {
    const [low, high] = this.group.seen;
    if (step === null || step < low || step > high) return null;
    return this.margin.l + ((step - low) / (high - low)) * this.width;
  }

  nearest(x) {
    const [low, high] = this.group.seen,
      share = (x - this.margin.l) / this.width;
    return this.group.nearest(low + Math.min(Math.max(share, 0), 1) * (high - low));
  }

  get width() {
    return this.plot.clientWidth - this.margin.l - this.margin.r;
  }

  listen() {
    const { plot, group } = this;
    plot.addEventListener("pointermove", (event) =>
      group.move(this.nearest(event.clientX - plot.getBoundingClientRect().left)),
    );
    plot.addEventListener("pointerleave", () => group.move(null));
    plot.addEventListener("blur", () => group.move(null));
    plot.addEventListener("keydown", (event) => {
      if (!group.key(event.key)) return;
      event.preventDefault();
      if (this.step !== null) this.spoken.textContent = `Step ${this.step}: ${this.told()}`;
    });
  }

  hook() {
    this.hooked = true;
    this.plot.on("plotly_relayout", (change) => {
      const range = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (range.every((end) => end !== undefined)) this.group.zoom(range);
    });
    this.plot.on("plotly_doubleclick", () => this.group.zoom(null));
  }

  told() {
    return this.spec.lines.map((line, i) => `${line.label} ${this.values[i].textContent}`).join(", ");
  }

  described() {
    const { title, unit } = this.spec,
      [first, last] = this.facts.domain;
    if (!this.seen) return `${title}: not observed`;
    return `${title}, ${unit}, steps ${first} to ${last}. Newest: ${this.told()}. Arrow keys read single steps, plus and minus zoom.`;
  }
}

// A value; one that was logged after a clamp or a mask is a bound on the true one.
const shown = (value, censored) =>
  censored ? `${censored === "above" ? "≥" : "≤"} ${number(value)} (censored)` : number(value);
