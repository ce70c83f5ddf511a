// What happened to a job, a row for each detector that fired and each control that was overridden.

import { h } from "../app/dom.js";
import { words } from "../app/format.js";
import { colour } from "../app/theme.js";
import { Chart } from "./chart.js";
import { faded, layout } from "./look.js";
import { drawnMarks } from "./marks.js";
import { literal } from "./plotly.js";

const ROW = 24;
const BAR = {
  type: "bar",
  orientation: "h",
  hoverinfo: "skip",
  width: 0.62,
  textposition: "inside",
  insidetextanchor: "start",
  textangle: 0,
  constraintext: "none",
  cliponaxis: true,
};

export class Timeline extends Chart {
  constructor(group) {
    super({ id: "timeline", title: "Incidents and controls", unit: "over the steps", lines: [] }, group);
    this.element.classList.add("timeline");
    this.margin = { l: 132, r: 12, t: 18, b: 22 };
    this.rows = [];
    this.nothing.textContent = "No incident, and nothing overridden";
    const entry = (look, label) => h("li", {}, h("i", { class: `swatch block ${look}` }), label);
    this.legend.replaceChildren(
      entry("critical", "critical"),
      entry("warn", "warn"),
      entry("wanted", "wanted"),
      entry("applied", "in effect"),
    );
  }

  async show(facts) {
    this.facts = facts;
    const fired = new Set(facts.marks.spans.map(rowOf)),
      held = new Set(facts.segments.map(rowOf));
    this.rows = [...fired, ...held].reverse();
    this.nothing.hidden = this.seen;
    this.plot.hidden = !this.seen;
    if (this.seen) await this.drawOnce([facts.marks, facts.segments, facts.domain]);
  }

  get seen() {
    return this.rows.length > 0;
  }

  showGuides() {}

  traces() {
    const { marks, segments } = this.facts;
    const critical = marks.spans.filter((one) => one.severity === "critical");
    const others = marks.spans.filter((one) => one.severity !== "critical");
    const wanted = segments.map((one) => ({
      ...one,
      to: one.applied ?? one.to,
      text: one.applied === null ? `${one.value}, not in effect` : "",
    }));
    const applied = segments
      .filter((one) => one.applied !== null)
      .map((one) => ({ ...one, from: one.applied, text: `${one.value} (${one.issuer})` }));
    return [
      this.bars(critical, { color: faded("critical", 0.75) }, "ink"),
      this.bars(others, { color: faded("warn", 0.7) }, "ink"),
      this.bars(wanted, { color: faded("accent", 0.12), line: { width: 1, color: colour("accent") } }, "ink"),
      this.bars(applied, { color: faded("accent", 0.85) }, "accent-ink"),
    ];
  }

  // Of `pieces` each has a row, the steps from and to, and maybe a text.
  bars(pieces, marker, ink) {
    const [first, last] = this.facts.domain,
      thinnest = (last - first) / 400;
    const kept = pieces
      .map((one) => ({ text: "", ...one, to: one.to ?? last }))
      .filter((one) => one.to > one.from || one.to === last);
    return {
      ...BAR,
      y: kept.map((one) => literal(rowOf(one))),
      base: kept.map((one) => one.from),
      x: kept.map((one) => Math.max(one.to - one.from, thinnest)),
      text: kept.map((one) => literal(one.text)),
      textfont: { size: 11, color: colour(ink) },
      marker,
    };
  }

  layout() {
    const { marks, domain } = this.facts,
      { margin } = this;
    const drawn = drawnMarks({ spans: [], actions: marks.actions }, domain[1]);
    const height = this.rows.length * ROW + margin.t + margin.b;
    const yaxis = {
      type: "category",
      categoryorder: "array",
      categoryarray: this.rows.map(literal),
      range: [-0.6, this.rows.length - 0.4],
      nticks: undefined,
      tickformat: undefined,
      dtick: 1,
      showgrid: false,
      ticklabelstandoff: 4,
    };
    return { ...layout({ height, range: [...this.group.seen], yaxis, ...drawn }), margin, barmode: "overlay" };
  }

  told() {
    return this.rows.toReversed().join(", ");
  }

  described() {
    return `Incidents and controls over the steps. Rows: ${this.told()}.`;
  }
}

const rowOf = ({ detector, control }) => (detector ? `! ${words(detector)}` : words(control));
