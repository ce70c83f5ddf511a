// One small line chart: steps across, incidents as spans, changes of the controls as numbered flags.

import { h, number, s } from "./dom.js";

const WIDTH = 560, HEIGHT = 220;
const PLOT = { left: 46, right: WIDTH - 10, top: 44, bottom: HEIGHT - 24 };
const LANES = 3, LANE = 13, LETTER = 6.2;

export class Chart {
  constructor({ title, unit, lines, floor, ceiling }, onCursor) {
    Object.assign(this, { title, lines, floor, ceiling, onCursor, data: [], step: null });
    this.svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: "0" });
    this.readout = h("p", { class: "readout", "aria-live": "off" });
    const legend = lines.length > 1 ? h("span", { class: "legend" }, ...lines.map((line, i) => h("span", { class: `s${i}` }, h("i"), line.label))) : null;
    this.element = h("figure", { class: "chart" },
      h("figcaption", {}, h("span", {}, title, " ", h("span", { class: "unit" }, unit)), legend), this.svg, this.readout);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => onCursor(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("blur", () => onCursor(null));
  }

  update({ series, spans, changes, domain }) {
    const key = JSON.stringify([series, spans, changes, domain]);
    if (key === this.drawn) return;
    this.drawn = key;
    this.domain = domain;
    this.data = this.lines.map((line) => series.get(line.name) ?? { steps: [], values: [], kinds: [] });
    this.range = this.extent();
    this.svg.replaceChildren(...this.axes(), ...this.spans(spans), ...this.changes(changes), ...this.paths());
    this.cursor = s("line", { class: "cursor", y1: PLOT.top, y2: PLOT.bottom, visibility: "hidden" });
    this.svg.append(this.cursor);
    this.svg.setAttribute("aria-label", `${this.title}. ${this.told(domain[1])}. Arrow keys read single steps.`);
    this.show(this.step);
  }

  x(step) {
    const [first, last] = this.domain;
    return PLOT.left + ((step - first) / Math.max(last - first, 1)) * (PLOT.right - PLOT.left);
  }

  y(value) {
    const [low, high] = this.range;
    return PLOT.bottom - ((value - low) / (high - low)) * (PLOT.bottom - PLOT.top);
  }

  extent() {
    const finite = this.data.flatMap((one) => one.values.filter((value) => value !== null));
    let low = Math.min(...finite, this.floor ?? Infinity), high = Math.max(...finite, this.ceiling ?? -Infinity);
    if (!finite.length) [low, high] = [this.floor ?? 0, this.ceiling ?? 1];
    const pad = high > low ? (high - low) * 0.06 : Math.abs(high) * 0.1 || 0.1;
    return [low === this.floor ? low : low - pad, high === this.ceiling ? high : high + pad];
  }

  axes() {
    const [low, high] = this.range;
    const marks = ticks(low, high, 4).flatMap((value) => [
      s("line", { class: "grid", x1: PLOT.left, x2: PLOT.right, y1: this.y(value), y2: this.y(value) }),
      s("text", { x: PLOT.left - 6, y: this.y(value) + 4, "text-anchor": "end" }, number(value)),
    ]);
    const steps = ticks(...this.domain, 6).filter(Number.isInteger).map((step) =>
      s("text", { x: this.x(step), y: HEIGHT - 7, "text-anchor": "middle" }, String(step)));
    const axis = s("line", { class: "axis", x1: PLOT.left, x2: PLOT.right, y1: PLOT.bottom, y2: PLOT.bottom });
    return [...marks, axis, ...steps];
  }

  // The ground is tinted once, by the worst incident of each stretch; every incident has its own edge and label.
  spans(spans) {
    const end = (span) => span.to ?? this.domain[1];
    const cuts = [...new Set(spans.flatMap((span) => [span.from, end(span)]))].sort((a, b) => a - b);
    const ground = cuts.slice(1).flatMap((right, i) => {
      const left = cuts[i], here = spans.filter((span) => span.from <= left && end(span) >= right);
      if (!here.length) return [];
      const worst = here.some((span) => span.severity === "critical") ? "critical" : "warn";
      const x = this.x(left), width = this.x(right) - x;
      return [s("rect", { class: `span ${worst}`, x, y: PLOT.top, width, height: PLOT.bottom - PLOT.top }, s("title", {}, here.map((span) => span.label).join(", ")))];
    });
    const free = Array(LANES).fill(-Infinity);
    const labels = spans.flatMap((span) => {
      const left = this.x(span.from), width = span.label.length * LETTER + 8;
      const flipped = left + width > WIDTH, lane = free.findIndex((taken) => taken < left - (flipped ? width : 0));
      const edge = s("line", { class: `edge ${span.severity}`, x1: left, x2: left, y1: PLOT.top - 3, y2: PLOT.bottom },
        s("title", {}, `${span.label}, steps ${span.from} to ${span.to ?? "now"}`));
      if (lane < 0) return [edge];
      free[lane] = flipped ? left : left + width;
      return [edge, s("text", { class: `tag ${span.severity}`, x: left, y: PLOT.top - 7 - lane * LANE, "text-anchor": flipped ? "end" : "start" }, span.label)];
    });
    return [...ground, ...labels];
  }

  changes(changes) {
    return changes.flatMap(({ step, number: n, label }) => {
      const x = this.x(step);
      return [
        s("line", { class: "change", x1: x, x2: x, y1: PLOT.top, y2: PLOT.bottom }),
        s("rect", { class: "flag", x: x - 7, y: PLOT.top + 2, width: 14, height: 13, rx: 3 }, s("title", {}, `step ${step}: ${label}`)),
        s("text", { class: "flag-label", x, y: PLOT.top + 12, "text-anchor": "middle" }, String(n)),
      ];
    });
  }

  paths() {
    if (!this.data.some((one) => one.steps.length)) {
      return [s("text", { class: "empty-text", x: (PLOT.left + PLOT.right) / 2, y: (PLOT.top + PLOT.bottom) / 2, "text-anchor": "middle" }, "not observed")];
    }
    return this.data.flatMap((one, i) => {
      const drawn = [];
      let path = "", pen = false;
      one.steps.forEach((step, place) => {
        const value = one.values[place], x = this.x(step).toFixed(1);
        if (value === null) {
          pen = false;
          const y = PLOT.bottom - 5;
          drawn.push(s("path", { class: "broken", d: `M${x - 3} ${y - 3}l6 6m0 -6l-6 6` }, s("title", {}, `step ${step}: ${one.kinds[place]}`)));
          return;
        }
        path += `${pen ? "L" : "M"}${x} ${this.y(value).toFixed(1)}`;
        pen = true;
      });
      drawn.unshift(s("path", { class: `s${i}`, d: path }));
      const last = one.values.findLastIndex((value) => value !== null);
      if (last >= 0) drawn.push(s("circle", { class: `p${i}`, cx: this.x(one.steps[last]), cy: this.y(one.values[last]), r: 2.6 }));
      return drawn;
    });
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width * WIDTH - PLOT.left) / (PLOT.right - PLOT.left);
    const [first, last] = this.domain;
    this.onCursor(Math.round(first + Math.min(Math.max(share, 0), 1) * (last - first)));
  }

  key(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (move === undefined || !this.domain) return;
    event.preventDefault();
    const [first, last] = this.domain;
    this.onCursor(Math.min(Math.max((this.step ?? last) + move, first), last));
    this.readout.setAttribute("aria-live", "polite");
  }

  show(step) {
    this.step = step;
    if (!this.cursor) return;
    this.cursor.setAttribute("visibility", step === null ? "hidden" : "visible");
    const shown = step ?? this.domain[1];
    this.cursor.setAttribute("x1", this.x(shown));
    this.cursor.setAttribute("x2", this.x(shown));
    this.readout.textContent = this.told(shown);
  }

  told(step) {
    const parts = this.lines.map((line, i) => {
      const { steps, values, kinds } = this.data[i];
      const place = steps.findLastIndex((one) => one <= step);
      const value = place < 0 ? "not observed" : values[place] === null ? kinds[place] : number(values[place]);
      return this.lines.length > 1 ? `${line.label}: ${value}` : value;
    });
    return `step ${step} · ${parts.join(" · ")}`;
  }
}

export function ticks(low, high, wanted) {
  const raw = (high - low) / wanted || 1, power = 10 ** Math.floor(Math.log10(raw));
  const size = [1, 2, 5, 10].map((m) => m * power).find((candidate) => candidate >= raw);
  const found = [];
  const first = Math.ceil(low / size); // counted from here: near 2^53 adding 1 to a number may leave it as it is
  for (let k = 0; (first + k) * size <= high + size * 1e-9 && k <= 2 * wanted; k++) {
    const mark = (first + k) * size;
    found.push(Number.isInteger(mark) ? mark : Number(mark.toPrecision(12)));
  }
  return [...new Set(found)];
}
