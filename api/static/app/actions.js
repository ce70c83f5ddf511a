// What a person can do to a job, each with a dialog that says what it comes to and asks why.

import * as api from "./api.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { number, override, words } from "./format.js";
import { toast } from "./notice.js";
import { MODES } from "./states.js";

export async function decide(job, proposal, verdict, diff) {
  const approve = verdict === "approve";
  const done = await ask({
    title: `${approve ? "Approve" : "Reject"}: ${words(proposal.remedy)}`,
    what: [
      h(
        "p",
        {},
        approve
          ? "Exactly these changes are made:"
          : "The agent does not propose it again while the incident lasts. It proposed:",
      ),
      diffList(diff),
    ],
    confirm: approve ? "Approve" : "Reject",
    apply: ({ reason }) => api.decide(job, proposal, verdict, reason),
  });
  if (done) toast(approve ? "Approved; the trainer takes it up at its next step" : "Rejected");
  return done;
}

export const diffList = (diff) =>
  h(
    "ul",
    { class: "diff" },
    diff.map(({ name, before, after }) =>
      h("li", {}, h("b", {}, words(name)), " ", h("del", {}, override(before)), " → ", h("ins", {}, override(after))),
    ),
  );

// What a proposal changes, from what is in effect.
export function diffOf(proposal, controls) {
  const now = (name) => controls.overrides[name] ?? controls.controls.find((one) => one.name === name)?.applied ?? null;
  return Object.entries(proposal.changes).map(([name, after]) => ({ name, before: now(name), after }));
}

export async function setMode(job, mode) {
  const done = await ask({
    title: `Mode: ${mode}`,
    what: MODES[mode],
    confirm: "Set the mode",
    apply: ({ reason }) => api.setMode(job, mode, reason),
  });
  if (done) toast(`The mode is ${mode}`);
  return done;
}

export async function kill(job) {
  const certain = h("input", { type: "checkbox", name: "certain", required: true });
  const done = await ask({
    title: "Kill switch",
    danger: true,
    confirm: "Take the hands off",
    what: `Every override of ${job} is lifted, the agent’s and people’s, and its mode becomes observe. Nothing is overridden until somebody sets the mode again.`,
    fields: [{ name: "certain", label: `Yes, for ${job}`, input: certain }],
    apply: ({ reason }) => api.kill(job, reason),
  });
  if (done) toast("Every override is lifted; the agent only observes");
  return done;
}

// `value` undefined asks for one; null leaves the control to the run. Where somebody changed the controls meanwhile the
// dialog says so, `reload` brings them up to date, and the person decides again.
export function change(job, controls, control, value, reload) {
  const input = value === undefined ? valueInput(control) : null;
  let { generation } = controls;
  return ask({
    title: titleOf(words(control.name), value),
    what:
      value === null
        ? "The override is lifted."
        : "It overrides the run until it is lifted. The agent leaves it alone.",
    fields: input ? [{ name: "value", label: "Value", input, hint: bounds(control) }] : [],
    apply: async (given) => {
      try {
        await api.patch(job, { [control.name]: input ? given.value : value }, given.reason, generation);
      } catch (refusal) {
        if (refusal.status !== 409 || refusal.problems[0].field !== "base_generation") throw refusal;
        const now = (await reload()).controls;
        generation = now.generation;
        throw new Error(meanwhile(now, control.name), { cause: refusal });
      }
      await reload(); // so that the next change is worked out against this one
    },
  });
}

function titleOf(label, value) {
  if (value === undefined) return `Set ${label}`;
  return value === null ? `Leave ${label} to the run` : `Turn ${label} ${value ? "on" : "off"}`;
}

function meanwhile(controls, name) {
  const { desired } = controls.controls.find((one) => one.name === name);
  return (
    `Somebody changed the controls meanwhile: ${controls.issuer}, ${controls.reason}. ${words(name)} is now ` +
    `${override(desired)}, at generation ${controls.generation}. Apply again to change it from there.`
  );
}

// Lifts the overrides of these controls, whatever else has changed meanwhile.
export const undo = (job, names) =>
  ask({
    title: "Undo",
    confirm: "Lift",
    what: `These controls are left to the run again: ${names.map(words).join(", ")}.`,
    apply: ({ reason }) => api.patch(job, Object.fromEntries(names.map((name) => [name, null])), reason),
  });

export function silence(job, detector) {
  const steps = h("input", { type: "number", min: 1, step: 1, value: 100, inputmode: "numeric" });
  return ask({
    title: `Silence ${words(detector)}`,
    confirm: "Silence",
    what: "Nobody is told of it. It is judged, shown and acted on as before.",
    fields: [{ name: "steps", label: "For how many steps", hint: "Empty: until it is cancelled.", input: steps }],
    apply: ({ reason, steps: lasting }) => api.silence(job, detector, lasting, reason),
  });
}

export const unsilence = (job, detector) =>
  ask({
    title: `Be told of ${words(detector)} again`,
    confirm: "End the silence",
    apply: ({ reason }) => api.unsilence(job, detector, reason),
  });

export const acknowledge = (job, incident) =>
  ask({
    title: `Look after ${words(incident.detector)}`,
    confirm: "Acknowledge",
    what: "It is on record that you look after it. It is judged and acted on all the same, and is nobody’s again if it gets worse or comes back.",
    apply: ({ reason }) => api.acknowledge(job, incident.detector, reason),
  });

export const archive = (job, archived) =>
  ask({
    title: archived ? `Archive ${job}` : `Bring ${job} back`,
    confirm: archived ? "Archive" : "Bring back",
    what: archived
      ? "It leaves the list and the metrics; nothing of it is deleted."
      : "It is listed with the others again.",
    apply: ({ reason }) => api.archive(job, archived, reason),
  });

function valueInput(control) {
  const now = control.desired ?? control.applied;
  if (control.choices.length)
    return h(
      "select",
      {},
      control.choices.map((value) =>
        h("option", { value, selected: value === now }, value === "" ? "none" : String(value)),
      ),
    );
  if (control.low !== null)
    return h("input", { type: "number", step: "any", required: true, min: control.low, max: control.high, value: now });
  return h("input", { required: true, value: now });
}

const bounds = ({ low, high }) => (low === null ? null : `${number(low)} to ${high === null ? "any" : number(high)}`);
