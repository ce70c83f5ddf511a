// The page: one poll, one job in view.

import * as api from "./api.js";
import { Chart } from "./chart.js";
import { at, h, words } from "./dom.js";
import * as panels from "./panels.js";

const POLL_MS = 1500;
const CHARTS = [
  { title: "Reward", unit: "mean of the step", lines: [{ name: "reward_mean", label: "reward" }], floor: 0, ceiling: 1 },
  { title: "Entropy", unit: "nats", lines: [{ name: "entropy", label: "entropy" }], floor: 0 },
  { title: "5 % quantile of the log-ratio", unit: "nats", lines: [{ name: "update_q05_negative", label: "advantage < 0" }, { name: "update_q05_positive", label: "advantage > 0" }], ceiling: 0 },
  { title: "Clip fraction", unit: "share of tokens", lines: [{ name: "clip_fraction_negative", label: "advantage < 0" }, { name: "clip_fraction_positive", label: "advantage > 0" }], floor: 0 },
  { title: "Mismatch, trainer − sampler", unit: "std, nats", lines: [{ name: "mismatch_std", label: "std" }], floor: 0 },
  { title: "Garbage", unit: "share of responses", lines: [{ name: "garbage_fraction", label: "garbage" }], floor: 0 },
];
const NAMES = CHARTS.flatMap((chart) => chart.lines.map((line) => line.name));

let current = new URLSearchParams(location.search).get("job");
let trail = { job: null, events: [], after: 0 };
let polling = 0;

const move = (step) => charts.forEach((chart) => chart.show(step));
const charts = CHARTS.map((spec) => new Chart(spec, move));
const notes = h("ul", { class: "notes", "aria-label": "Changes of the controls" });
at("charts").append(...charts.map((chart) => chart.element), notes);
at("attach").textContent = `trimtab.attach(${JSON.stringify(location.origin)}, job="my-run")`;

async function poll() {
  const turn = ++polling;
  try {
    const jobs = await api.jobs();
    if (!jobs.some((job) => job.name === current)) current = jobs[0]?.name ?? null;
    at("empty").hidden = current !== null;
    at("view").hidden = current === null;
    panels.showJobs(jobs, current, choose);
    if (current !== null) await showJob(current, () => turn === polling);
    link("live", "live");
  } catch (error) {
    link("lost", error instanceof api.Refused ? error.message : "the service does not answer; trying again");
  }
  if (turn === polling) setTimeout(poll, POLL_MS);
}

async function showJob(name, wanted) {
  const health = await api.health(name);
  const [signals, incidents] = await Promise.all([api.signals(name, NAMES, health.job.attempt), api.incidents(name), follow(name)]);
  if (!wanted()) return;
  at("view").inert = false;
  document.title = `${name} · trimtab`;
  panels.showHead(health, (mode, means) => panels.ask({ title: `Mode ${mode}`, what: means }, (reason) => api.setMode(name, mode, reason).then(poll)));
  panels.showVerdicts(health);
  panels.showProposals(health, (id, verdict, what) =>
    panels.ask({ title: verdict === "approve" ? "Approve the proposal" : "Reject the proposal", what }, (reason) => api.decide(name, id, verdict, reason).then(poll)));
  panels.showControls(health, (control, value) => change(name, health.controls.generation, control, value));
  panels.showIncidents(incidents);
  panels.showEvents(trail.events);
  draw(signals, health.job.attempt);
}

function change(name, generation, control, value) {
  const label = words(control.name);
  const title = value === null ? `Leave ${label} to the run` : value === undefined ? `Set ${label}` : `Turn ${label} ${value ? "on" : "off"}`;
  const what = value === null ? "The override is lifted." : "Overrides the run until it is lifted. The agent leaves it alone.";
  panels.ask({ title, what, control: value === undefined ? control : null }, (reason, typed) =>
    api.patch(name, { [control.name]: value === undefined ? typed : value }, reason, generation).then(poll));
}

async function follow(name) {
  if (trail.job !== name) trail = { job: name, events: [], after: 0 };
  const mine = trail;
  for (let more = true; more;) {
    const page = await api.events(name, mine.after);
    mine.events.push(...page.events.filter((one) => one.number > mine.after));
    mine.after = mine.events.at(-1)?.number ?? 0;
    more = page.next !== null;
  }
}

function draw(signals, attempt) {
  const series = new Map(signals.series.map((one) => [one.name, one]));
  const steps = signals.series.flatMap((one) => one.steps);
  const first = steps.reduce((a, b) => Math.min(a, b), Infinity), last = steps.reduce((a, b) => Math.max(a, b), -Infinity);
  const domain = steps.length ? [first, Math.max(last, first + 1)] : [0, 1];
  const mine = trail.events.filter((one) => one.attempt === attempt && one.step >= domain[0]);
  const changes = mine.filter((one) => one.kind === "controls_changed").map((one, i) => ({ step: one.step, number: i + 1, label: panels.changeLabel(one) }));
  const facts = { series, spans: spans(mine), changes, domain };
  charts.forEach((chart) => chart.update({ ...facts, series: new Map(chart.lines.map((line) => [line.name, series.get(line.name)])) }));
  panels.showNotes(notes, changes);
}

// Firing opens a span, resolving closes it; an incident may come back.
function spans(events) {
  const open = new Map(), found = [];
  for (const { kind, step, detail } of events) {
    if (kind === "incident_firing") {
      const span = { from: detail.since_step ?? step, to: null, severity: detail.severity, label: words(detail.detector) };
      open.set(detail.fingerprint, span);
      found.push(span);
    } else if (kind === "incident_resolved" && open.has(detail.fingerprint)) {
      open.get(detail.fingerprint).to = step;
      open.delete(detail.fingerprint);
    }
  }
  return found;
}

function choose(name) {
  current = name;
  at("view").inert = true; // what is shown is still the other job's: it must not take a click meant for this one
  history.replaceState(null, "", `?job=${encodeURIComponent(name)}`);
  move(null);
  poll();
}

function link(state, text) {
  at("link").className = state;
  document.body.classList.toggle("stale", state !== "live"); // what is shown may be true no longer: nothing is green
  if (at("link").textContent !== text) at("link").textContent = text;
}

poll();
