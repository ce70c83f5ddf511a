// One incident: what was seen, what it most likely is, what a remedy would change, and what was done.

import * as actions from "../app/actions.js";
import { h, render } from "../app/dom.js";
import { words } from "../app/format.js";
import { link } from "../app/router.js";
import { session } from "../app/session.js";
import { phase } from "../app/states.js";
import { flags, proposalCard, span } from "./attention.js";
import { nothing } from "./blanks.js";
import { eventLine } from "./events.js";
import { Evidence } from "./evidence.js";
import { button, dotted, facts, heading } from "./pieces.js";

const SHOWN = 40; // events, at most

export class Incident {
  constructor(root, job, detector, done) {
    Object.assign(this, { job, detector, done });
    this.gone = new AbortController();
    this.head = h("section", { class: "card" });
    this.proposals = h("div", { class: "stack" });
    this.evidence = new Evidence(job, this.gone.signal);
    this.deeds = h("section", { class: "card" });
    const left = h("div", { class: "stack" }, this.head, this.proposals, this.evidence.charts);
    const right = h("div", { class: "stack" }, this.evidence.element, this.deeds);
    const back = h("a", { href: link.job(job.name, "incidents") }, "All incidents");
    this.both = h("div", { class: "incident" }, left, right);
    root.append(h("p", { class: "small crumbs" }, back), this.both);
  }

  stop() {
    this.gone.abort();
  }

  async show(signal) {
    const { incidents, health } = this.job;
    const one = incidents.find((each) => each.detector === this.detector);
    if (!one) {
      render(this.head, "none", () => [
        h("h2", {}, words(this.detector)),
        nothing("There is no such incident in this job."),
      ]);
      return;
    }
    this.showHead(one);
    const open = health.proposals.filter((proposal) => proposal.incident === one.fingerprint);
    render(this.proposals, [open, health.job.mode, session.may("control")], () =>
      open.map((proposal) => proposalCard(this.job, proposal, this.done)),
    );
    this.showDeeds(one);
    await this.evidence.show(one, signal);
  }

  showHead(one) {
    const off = !session.may("control"),
      { name } = this.job;
    const silence = this.job.silences.find((each) => each.fingerprint === one.fingerprint);
    const looked = one.acknowledged,
      over = one.phase === "resolved" || looked !== null;
    render(this.head, [one, silence, off], () => [
      h("div", { class: "row" }, h("h2", { class: "big" }, words(one.detector)), phase(one), flags(one)),
      h("p", { class: "said wrap" }, one.message),
      h(
        "p",
        { class: "muted small number" },
        dotted(
          span(one),
          one.firing_step !== null && `fired at step ${one.firing_step}`,
          one.flap_rate !== null && "it comes and goes",
        ),
      ),
      looked &&
        h("p", { class: "small wrap" }, `${looked.issuer} looks after it since step ${looked.step}: ${looked.reason}`),
      facts(
        [
          ["Likely cause", one.likely_cause],
          ["What to do", one.proposed],
          ["What it costs", one.cost],
          ["Explained by", one.cause],
        ],
        "advice",
      ),
      h(
        "div",
        { class: "buttons" },
        button("Acknowledge", () => actions.acknowledge(name, one).then(this.done), { key: "ack", off: off || over }),
        silence
          ? button("End the silence", () => actions.unsilence(name, one.detector).then(this.done), {
              key: "silence",
              off,
            })
          : button("Silence", () => actions.silence(name, one.detector).then(this.done), { key: "silence", off }),
      ),
    ]);
  }

  // What was proposed, done and undone about it; what is still in effect can be lifted here.
  showDeeds(one) {
    const { events, controls, name } = this.job;
    const mine = eventsAbout(one.fingerprint, events);
    const held = heldFor(mine, controls.overrides),
      off = !session.may("control");
    const undo = () => actions.undo(name, held).then(this.done);
    render(this.deeds, [mine.length, held, off], () => [
      heading("What happened", held.length ? button("Undo", undo, { key: "undo", look: "small", off }) : null),
      held.length
        ? h("p", { class: "small" }, "Still overridden for it: ", h("b", {}, held.map(words).join(", ")))
        : null,
      mine.length ? h("ol", { class: "trail" }, mine.slice(-SHOWN).reverse().map(eventLine)) : nothing("Nothing yet."),
    ]);
  }
}

// The events of an incident, and those of the proposals that were made about it.
function eventsAbout(fingerprint, events) {
  const direct = ({ detail }) => [detail.incident, detail.fingerprint].includes(fingerprint);
  const proposals = new Set(
    events.filter((one) => one.kind === "proposed" && direct(one)).map((one) => one.detail.proposal),
  );
  return events.filter((one) => direct(one) || proposals.has(one.detail.proposal));
}

// Controls that were overridden for an incident, by its events, and still are.
function heldFor(events, overrides) {
  const changes = events.filter((event) => event.kind === "controls_changed").map(({ detail }) => detail);
  const set = changes.flatMap(({ before, after }) => Object.keys(after).filter((name) => after[name] !== before[name]));
  return [...new Set(set)].filter((name) => name in overrides);
}
