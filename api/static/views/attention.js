// What asks for a person: proposals that wait, incidents that fire.

import * as actions from "../app/actions.js";
import { h, render } from "../app/dom.js";
import { plural, words } from "../app/format.js";
import { link } from "../app/router.js";
import { session } from "../app/session.js";
import { phase, rank, state } from "../app/states.js";
import { nothing } from "./blanks.js";
import { foresight } from "./foresight.js";
import { button, heading } from "./pieces.js";

// A proposal with what it changes, what it would do, and the two answers to it.
export function proposalCard(job, proposal, done) {
  const { mode } = job.health.job,
    may = session.may("control");
  const diff = actions.diffOf(proposal, job.controls);
  const answer = (verdict, label, look) =>
    button(label, () => actions.decide(job.name, proposal, verdict, diff).then(done), {
      key: `${verdict}-${proposal.id}`,
      look,
      off: !may,
    });
  return h(
    "section",
    { class: "card attention proposal" },
    heading(
      mode === "approve" ? "Waits for you" : "Advice",
      h("span", { class: "muted small number" }, `step ${proposal.step}, ${plural(proposal.steps_left, "step")} left`),
    ),
    h(
      "p",
      {},
      h("b", {}, proposal.direction === "relax" ? `Take back ${words(proposal.remedy)}` : words(proposal.remedy)),
    ),
    actions.diffList(diff),
    h("p", { class: "muted small wrap" }, proposal.reason),
    foresight(job.foreseen(proposal.id)),
    h("div", { class: "buttons" }, answer("approve", "Approve", "primary"), answer("reject", "Reject", "")),
  );
}

export class Attention {
  constructor(job, done) {
    Object.assign(this, { job, done });
    this.proposals = h("div", { class: "stack" });
    this.firing = h("section", { class: "card", "aria-labelledby": "firing-title" });
    this.element = h("div", { class: "stack attention-rail" }, this.proposals, this.firing);
  }

  show() {
    const { health } = this.job;
    const may = session.may("control");
    this.proposals.hidden = !health.proposals.length;
    render(this.proposals, [health.proposals, health.job.mode, health.controls.overrides, may], () =>
      health.proposals.map((one) => proposalCard(this.job, one, this.done)),
    );
    const open = health.incidents;
    render(
      this.firing,
      open.map((one) => [
        one.fingerprint,
        one.phase,
        one.severity,
        one.message,
        one.acknowledged,
        one.silenced,
        one.cause,
        span(one),
      ]),
      () => [
        h(
          "header",
          {},
          h("h2", { id: "firing-title" }, "Incidents"),
          h("a", { class: "small", href: link.job(this.job.name, "incidents") }, "All"),
        ),
        open.length
          ? h(
              "ul",
              { class: "lines" },
              open.map((one) => incidentLine(this.job.name, one)),
            )
          : nothing("Nothing fires."),
      ],
    );
  }
}

const incidentLine = (job, one) =>
  h(
    "li",
    { class: "incident-line" },
    h(
      "div",
      { class: "row" },
      h(
        "a",
        { href: link.incident(job, one.detector), "data-focus": `incident-${one.detector}` },
        h("b", {}, words(one.detector)),
      ),
      phase(one),
      flags(one),
    ),
    h("p", { class: "muted small wrap" }, one.message),
    h("p", { class: "muted small number" }, span(one)),
  );

export const flags = (one) => [
  one.silenced && h("span", { class: "tag" }, "silenced"),
  one.acknowledged &&
    h("span", { class: "tag", title: one.acknowledged.reason }, `${one.acknowledged.issuer} looks after it`),
  one.cause && h("span", { class: "tag", title: one.cause }, "explained by another"),
];

export const span = (one) =>
  [
    one.phase === "resolved" ? `steps ${one.since_step} to ${one.resolved_step}` : `since step ${one.since_step}`,
    one.occurrences > 1 && `${one.occurrences} times`,
  ]
    .filter(Boolean)
    .join(", ");

// The detectors' words on the newest step, alarms first.
export class Verdicts {
  constructor() {
    this.element = h("section", { class: "card verdicts", "aria-labelledby": "verdicts-title" });
  }

  show(verdicts) {
    const sorted = verdicts.toSorted((a, b) => rank(a.state) - rank(b.state));
    render(
      this.element,
      sorted.map((one) => [one.detector, one.state, one.message]),
      () => [
        h("header", {}, h("h2", { id: "verdicts-title" }, "Detectors, at the newest step")),
        sorted.length
          ? h(
              "ul",
              {},
              sorted.map((one) =>
                h(
                  "li",
                  {},
                  h(
                    "details",
                    {},
                    h("summary", {}, words(one.detector), state(one.state)),
                    h("p", { class: "muted small wrap" }, one.message || "It says nothing more."),
                  ),
                ),
              ),
            )
          : nothing("No step was judged yet."),
      ],
    );
  }
}
