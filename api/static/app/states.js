// The states of a job, a verdict and an incident, each with a word and a sign beside its colour. Only OK is green.

import { h, icon } from "./dom.js";

export const STATES = {
  critical: "Critical",
  warn: "Warn",
  inconclusive: "Inconclusive",
  silent: "Silent",
  not_observed: "Not observed",
  ok: "OK",
};
export const WORST_FIRST = Object.keys(STATES);

export const state = (name, word = STATES[name]) => h("span", { class: `state ${name}` }, icon(name), word ?? name);

// What a job is counted as. Silence hides nothing worse.
export const stateOf = (job) => (job.silent && !["critical", "warn"].includes(job.state) ? "silent" : job.state);

export const rank = (name) => WORST_FIRST.indexOf(name);

export function phase(incident) {
  if (incident.phase === "resolved") return state("resolved", "Resolved");
  if (incident.phase === "pending") return state("pending", "Pending");
  return state(incident.severity);
}

export const MODES = {
  observe: "Watches and alerts; never proposes.",
  advise: "Also puts on record what it would do.",
  approve: "Acts once a person approves the proposal.",
  auto: "Acts by itself, within its limits.",
};
