// The signals of a job over the steps of an attempt, with what happened marked on all of them.

import * as api from "../app/api.js";
import { h, icon, render } from "../app/dom.js";
import { words } from "../app/format.js";
import { requery } from "../app/router.js";
import { Chart } from "../charts/chart.js";
import { ChartGroup } from "../charts/group.js";
import { guides } from "../charts/guides.js";
import { actionMarks, incidentSpans } from "../charts/marks.js";
import { controlSegments } from "../charts/segments.js";
import { single, SPECS } from "../charts/specs.js";
import { Timeline } from "../charts/timeline.js";
import { Attention, Verdicts } from "./attention.js";
import { Changes } from "./changes.js";
import { button } from "./pieces.js";

const POINTS = 400;

export class Signals {
  constructor(root, job, place, done) {
    Object.assign(this, { job, extra: place.query.getAll("more"), attempt: asNumber(place.query.get("attempt")) });
    this.gone = new AbortController();
    this.group = new ChartGroup((range) => this.zoomed(range), this.gone.signal);
    this.attention = new Attention(job, done);
    this.changes = new Changes();
    this.verdicts = new Verdicts();
    this.problem = h("div", {});
    const charts = [new Timeline(this.group), ...SPECS.map((spec) => new Chart(spec, this.group))];
    this.charts = h(
      "div",
      { class: "charts" },
      charts.map((chart) => this.group.add(chart).element),
    );
    root.append(
      h(
        "div",
        { class: "signals" },
        this.tools(),
        h("div", { class: "main-column" }, this.problem, this.charts),
        this.attention.element,
        h("div", { class: "stack rest" }, this.changes.element, this.verdicts.element),
      ),
    );
    for (const name of this.extra) this.addChart(name);
  }

  tools() {
    this.attempts = h("select", { onchange: () => this.choose(this.attempts.value) });
    this.more = h("select", { onchange: () => this.add(this.more.value) });
    this.follow = h("span", { class: "muted small" });
    this.reset = button("Show all steps", () => this.group.zoom(null), { look: "small" });
    this.reset.hidden = true;
    const labelled = (label, input, look = "") => h("label", { class: `check ${look}` }, label, input);
    return h(
      "div",
      { class: "row tools" },
      labelled("Attempt", this.attempts),
      this.follow,
      this.reset,
      labelled("Add", this.more, "more"),
    );
  }

  goTo(place) {
    this.attempt = asNumber(place.query.get("attempt"));
  }

  stop() {
    this.gone.abort();
  }

  async show(signal) {
    const { health, events } = this.job;
    this.attention.show();
    this.verdicts.show(health.verdicts);
    const names = [...new Set(this.group.charts.flatMap((chart) => chart.spec.lines.map((line) => line.name)))];
    const asked = this.attempt;
    const found = await api.signals(this.job.name, { names, attempt: asked, points: POINTS }, signal);
    if (signal.aborted || asked !== this.attempt) return;
    this.choices(found);
    const marks = { spans: incidentSpans(events, found.attempt), actions: actionMarks(events, found.attempt) };
    this.changes.show(marks.actions);
    const domain = domainOf(found.series);
    const guided = guides(this.job, found.attempt === health.job.attempt);
    const facts = {
      series: new Map(found.series.map((one) => [one.name, one])),
      ...guided,
      marks,
      segments: controlSegments(events, found.attempt, ...domain),
      domain,
    };
    try {
      await this.group.show(facts, this.gone.signal);
      render(this.problem, "", () => null);
    } catch (error) {
      render(this.problem, error.message, (text) =>
        h("p", { class: "notice critical" }, icon("critical"), `The charts cannot be drawn: ${text}. Reload the page.`),
      );
    }
  }

  choices({ attempt, attempts, names }) {
    render(this.attempts, [attempts, attempt], () =>
      attempts.length
        ? attempts.toReversed().map((one) => h("option", { value: one, selected: one === attempt }, String(one)))
        : h("option", {}, "none yet"),
    );
    this.follow.textContent =
      attempt === null ? "" : attempt === attempts.at(-1) ? "the newest, followed live" : "an older one";
    const shownNames = new Set(this.group.charts.flatMap((chart) => chart.spec.lines.map((line) => line.name)));
    const rest = names.filter((name) => !shownNames.has(name)).sort();
    render(this.more, rest, () => [
      h("option", { value: "" }, "Another signal …"),
      rest.map((name) => h("option", { value: name }, words(name))),
    ]);
    this.newest = attempts.at(-1);
  }

  choose(value) {
    const attempt = Number(value);
    this.attempt = attempt === this.newest ? null : attempt;
    this.group.zoom(null);
    this.remember();
    this.job.refresher.now();
  }

  add(name) {
    if (!name) return;
    this.extra.push(name);
    this.addChart(name).element.scrollIntoView({ block: "nearest" });
    this.remember();
    this.job.refresher.now();
  }

  addChart(name) {
    const chart = this.group.add(new Chart(single(name), this.group));
    this.charts.append(chart.element);
    return chart;
  }

  remember() {
    requery({ attempt: this.attempt ?? "", more: this.extra });
  }

  zoomed(range) {
    this.reset.hidden = range === null;
  }
}

function domainOf(series) {
  let first = Infinity,
    last = -Infinity;
  for (const { steps } of series) {
    if (steps.length) {
      first = Math.min(first, steps[0]);
      last = Math.max(last, steps.at(-1));
    }
  }
  return first > last ? [0, 1] : [first, Math.max(last, first + 1)];
}

const asNumber = (text) => (text === null || text === "" ? null : Number(text));
