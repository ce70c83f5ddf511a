// Everything on the page that is not a chart.

import { at, chip, h, number, render, shown, words } from "./dom.js";

const MODES = { observe: "Observe", advise: "Advise", approve: "Approve", auto: "Auto" };
const MEANS = {
  observe: "Watch and alert; never propose.",
  advise: "Also put on record what it would do.",
  approve: "Act once a person approves the proposal.",
  auto: "Act.",
};
const TAKES = { live: "next step", next_rollout: "next rollout", restart: "restart only", absent: "not possible" };

export function showJobs(jobs, current, choose) {
  const facts = jobs.map(({ name, state, mode, step, age, silent, quarantined }) => ({ name, state, mode, step, since: silent ? ago(age) : "", quarantined, current: name === current }));
  render(at("jobs"), facts, () => facts.map((job) =>
    h("li", {}, h("button", { type: "button", "data-focus": job.name, "aria-current": String(job.current), onclick: () => choose(job.name) },
      h("span", { class: `dot ${job.state}`, "aria-hidden": "true" }),
      h("span", { class: "who" }, job.name),
      h("span", { class: "what" }, `${words(job.state)} · ${job.mode} · ${job.step === null ? "no step yet" : `step ${job.step}`}${job.since}${refused(job.quarantined)}`)))));
}

export function showHead({ job }, setMode) {
  at("name").textContent = job.name;
  render(at("overall"), job.state, chip);
  at("where").textContent = job.step === null ? "no summary yet" :
    `${job.judged} of ${job.detectors} detectors could judge · attempt ${job.attempt}, step ${job.step}${ago(job.age)}${refused(job.quarantined)}`;
  at("view").classList.toggle("stale", job.silent); // what is shown was true once: nothing is green
  render(at("mode"), job.mode, () => Object.entries(MODES).map(([mode, label]) =>
    h("button", { type: "button", "data-focus": mode, title: MEANS[mode], "aria-pressed": String(mode === job.mode), onclick: () => mode !== job.mode && setMode(mode, MEANS[mode]) }, label)));
}

const refused = (count) => (count ? `, ${count} in quarantine` : "");

function ago(passed) {
  if (passed < 90) return "";
  if (passed < 5400) return `, silent for ${Math.round(passed / 60)} min`;
  return `, silent for ${Math.round(passed / 3600)} h`;
}

export function showVerdicts({ verdicts }) {
  render(at("verdicts"), verdicts, () => verdicts.map((one) => h("li", { title: one.message }, words(one.detector), chip(one.state))));
  const loud = verdicts.filter((one) => one.state === "warn" || one.state === "critical");
  render(at("alarms"), loud, () => loud.map((one) =>
    h("li", {}, h("span", { class: `dot ${one.state}`, "aria-hidden": "true" }), h("b", {}, words(one.detector)), h("span", { class: "muted" }, one.message))));
}

export function showProposals({ proposals, job }, decide) {
  render(at("proposals"), [proposals, job.mode], () => proposals.map((one) => {
    const changes = Object.entries(one.overrides).map(([name, value]) => `${words(name)} = ${shown(value)}`).join(", ");
    const button = (verdict, label) => h("button", { type: "button", "data-focus": `${one.id}${verdict}`, onclick: () => decide(one.id, verdict, changes) }, label);
    return h("li", {},
      h("span", {}, h("b", {}, `${job.mode === "approve" ? "Waits for you" : "Advice"}: ${changes}`), h("br"), h("span", { class: "muted" }, `step ${one.step}: ${one.reason}`)),
      h("span", { class: "buttons" }, button("reject", "Reject"), button("approve", "Approve")));
  }));
}

let allControls = false;

export function showControls({ controls }, change) {
  const wanted = Object.keys(controls.overrides).length;
  at("sync").textContent = [
    `generation ${controls.generation}`,
    !wanted ? "nothing overridden" : controls.in_sync ? "in effect" : controls.refused.length ? `${controls.refused.map(words).join(", ")} refused by the trainer` : "waiting for the trainer",
    ...controls.refusals,
  ].join(" · ");
  const possible = (one) => one.liveness === "live" || one.liveness === "next_rollout";
  const fixed = controls.controls.filter((one) => !possible(one)).length;
  const facts = controls.controls.filter((one) => allControls || possible(one) || one.desired !== null);
  render(at("controls"), facts, () => facts.map((one) => controlRow(one, possible(one), change)));
  const more = at("more-controls");
  more.hidden = !fixed;
  more.textContent = allControls ? "Show only what can be changed" : `Show ${fixed} that this trainer cannot change live`;
  more.setAttribute("aria-expanded", String(allControls));
  more.onclick = () => { allControls = !allControls; showControls({ controls }, change); };
}

function controlRow(one, possible, change) {
  const label = words(one.name);
  const button = (key, text, title, onclick) => h("button", { type: "button", "data-focus": `${one.name}:${key}`, "aria-label": title, title, onclick }, text);
  const toggle = one.choices.length === 2 && one.choices.every((value) => typeof value === "boolean");
  const now = one.desired ?? one.applied ?? false;
  return h("tr", {},
    h("th", { scope: "row" }, label),
    h("td", { class: "num" }, shown(one.applied)),
    h("td", {}, one.desired === null ? h("span", { class: "muted" }, "the run’s own") : h("span", { class: "held num" }, shown(one.desired), one.by_person ? " (person)" : " (agent)")),
    h("td", { class: "muted takes" }, TAKES[one.liveness]),
    h("td", {},
      possible && toggle ? button("set", now ? "Turn off" : "Turn on", `Turn ${label} ${now ? "off" : "on"}`, () => change(one, !now)) : null,
      possible && !toggle ? button("set", "Set", `Set ${label}`, () => change(one, undefined)) : null,
      one.desired !== null ? button("lift", "Lift", `Leave ${label} to the run again`, () => change(one, null)) : null));
}

export function showIncidents(incidents) {
  render(at("incidents"), incidents, () => incidents.length ? incidents.map((one) => {
    const until = one.phase === "resolved" ? `–${one.resolved_step}` : "–";
    const state = one.phase === "resolved" ? h("span", { class: "chip" }, "Resolved") : chip(one.severity);
    return h("li", {},
      h("span", { class: "at num" }, `${one.since_step}${until}`),
      h("span", {}, h("span", { class: "kind" }, words(one.detector), " "), state,
        one.phase === "pending" ? " pending" : "", one.occurrences > 1 ? ` ${one.occurrences} times` : "",
        h("br"), h("span", { class: "said" }, one.message)));
  }) : h("li", {}, h("span", { class: "none" }, "None.")));
}

const QUIET = new Set(["verdict_changed"]);

export function showEvents(events) {
  const facts = events.filter((one) => !QUIET.has(one.kind)).slice(-60).reverse();
  render(at("events"), facts, () => facts.length ? facts.map((one) =>
    h("li", {},
      h("span", { class: "at num" }, `step ${one.step}`),
      h("span", {}, h("span", { class: "kind" }, words(one.kind)), subject(one), h("br"), h("span", { class: "said" }, one.message)))) : h("li", {}, h("span", { class: "none" }, "Nothing yet.")));
}

const subject = ({ detail }) => `${detail.detector ? ` · ${words(detail.detector)}` : ""}${detail.issuer ? ` by ${detail.issuer}` : ""}`;

// What a change of the overrides comes to, in words.
export function changeLabel({ detail }) {
  const before = detail.before ?? {}, after = detail.after ?? {};
  const set = Object.entries(after).filter(([name, value]) => before[name] !== value).map(([name, value]) => `${words(name)} = ${shown(value)}`);
  const lifted = Object.keys(before).filter((name) => !(name in after)).map((name) => `${words(name)} lifted`);
  return `${[...set, ...lifted].join(", ") || "nothing"} (${detail.issuer ?? "?"})`;
}

export function showNotes(container, changes) {
  render(container, changes, () => changes.map(({ number: n, step, label }) => h("li", {}, h("b", {}, String(n)), `step ${step}: ${label}`)));
}

// Asks for a reason, and for a value where one is needed; `apply(reason, value)` may refuse, and the dialog says why.
export function ask({ title, what, control }, apply) {
  at("ask-title").textContent = title;
  at("ask-what").textContent = what;
  at("ask-reason").value = "";
  at("ask-error").hidden = true;
  const field = control ? valueField(control) : null;
  at("ask-value").replaceChildren(...(field ? [h("label", { for: "ask-input" }, `Value${limits(control)}`), field] : []));
  at("ask-no").onclick = () => at("ask").close();
  at("ask-form").onsubmit = async (event) => {
    event.preventDefault();
    at("ask-yes").disabled = true;
    try {
      const typed = field && (field.type === "number" ? Number(field.value) : field.value);
      await apply(at("ask-reason").value, typed);
      at("ask").close();
    } catch (error) {
      at("ask-error").textContent = error.message;
      at("ask-error").hidden = false;
    } finally {
      at("ask-yes").disabled = false;
    }
  };
  at("ask").showModal();
  (field ?? at("ask-reason")).focus();
}

function valueField(control) {
  const now = control.desired ?? control.applied;
  if (control.choices.length) {
    return h("select", { id: "ask-input" }, ...control.choices.map((value) => h("option", { value, selected: value === now }, String(value))));
  }
  if (control.low !== null) {
    return h("input", { id: "ask-input", type: "number", step: "any", required: true, min: control.low, max: control.high, value: now });
  }
  return h("input", { id: "ask-input", required: true, value: now });
}

const limits = ({ low, high }) => (low === null ? "" : `, ${number(low)} to ${high === null ? "any" : number(high)}`);
