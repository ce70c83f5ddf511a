// The numbers that an incident was judged by: as a table, and over the steps around it.

import * as api from "../app/api.js";
import { h, render } from "../app/dom.js";
import { number, words } from "../app/format.js";
import { Chart } from "../charts/chart.js";
import { ChartGroup } from "../charts/group.js";
import { guides } from "../charts/guides.js";
import { actionMarks, incidentSpans } from "../charts/marks.js";
import { single } from "../charts/specs.js";
import { nothing } from "./blanks.js";
import { heading, table } from "./pieces.js";

const AROUND = 40; // steps that are shown before an incident began and after it ended
const LIMIT = /_(limit|floor|ceiling)$/;

export class Evidence {
  constructor(job, signal) {
    this.job = job;
    this.signal = signal;
    this.group = new ChartGroup(() => {}, signal);
    this.element = h("section", { class: "card" });
    this.charts = h("div", { class: "charts" });
  }

  async show(incident, signal) {
    const limits = limitNames(Object.keys(incident.evidence));
    this.tabulate(incident, limits);
    await this.chart(incident, limits, signal);
  }

  tabulate({ evidence, last_alarm_step: step }, limits) {
    const names = Object.keys(evidence).filter((name) => !Object.values(limits).includes(name));
    const row = (name) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, words(name)),
        h("td", { class: "right number" }, number(evidence[name])),
        h("td", { class: "right number muted" }, limits[name] ? number(evidence[limits[name]]) : ""),
      );
    render(this.element, [evidence, step], () => [
      heading("Evidence", h("span", { class: "muted small" }, `at step ${step}, the newest that alarmed`)),
      names.length ? table(["Number", ">Seen", ">Limit"], names.map(row)) : nothing("It says no numbers."),
    ]);
  }

  // Those numbers that are signals, and the reward.
  async chart(incident, limits, signal) {
    const names = [...Object.keys(incident.evidence), "reward_mean"];
    const found = await api.signals(this.job.name, { names, attempt: null, points: 400 }, signal);
    const seen = found.series.filter((one) => one.steps.length);
    if (!seen.length || signal.aborted) return;
    const guided = guides(this.job, true);
    for (const { name } of seen) {
      if (!this.group.charts.some((chart) => chart.spec.id === single(name).id)) this.add(name);
      const limit = incident.evidence[limits[name]];
      if (limit !== undefined)
        guided.limits.set(name, [{ value: limit, label: "limit", means: "by which it was judged" }]);
    }
    const domain = window(incident, seen);
    const marks = {
      spans: incidentSpans(this.job.events, found.attempt).filter((one) => one.detector === incident.detector),
      actions: actionMarks(this.job.events, found.attempt),
    };
    const series = new Map(seen.map((one) => [one.name, within(one, domain)]));
    await this.group.show({ series, ...guided, marks, domain }, this.signal);
  }

  add(name) {
    const chart = this.group.add(new Chart(single(name), this.group));
    this.charts.append(chart.element);
  }
}

// By the name of a number, that of its limit: `entropy_rise` goes with `rise_limit`, `reward_mean` with `reward_floor`.
function limitNames(names) {
  const found = {},
    numbers = names.filter((name) => !LIMIT.test(name));
  for (const limit of names.filter((name) => LIMIT.test(name))) {
    const stem = limit.replace(LIMIT, "");
    const owner =
      numbers.find((name) => name === stem) ?? numbers.find((name) => !(name in found) && name.includes(stem));
    if (owner) found[owner] = limit;
  }
  return found;
}

// First and last step that are shown of an incident.
function window({ since_step: since, resolved_step: resolved, phase }, series) {
  const newest = Math.max(...series.map((one) => one.steps.at(-1)));
  const last = phase === "resolved" ? Math.min(resolved + AROUND, newest) : newest;
  const first = Math.max(Math.min(...series.map((one) => one.steps[0])), Math.min(since, last) - AROUND);
  return [first, Math.max(last, first + 1)];
}

function within({ steps, values, kinds }, [first, last]) {
  const kept = steps.flatMap((step, i) => (step >= first && step <= last ? [i] : []));
  return { steps: kept.map((i) => steps[i]), values: kept.map((i) => values[i]), kinds: kept.map((i) => kinds[i]) };
}
