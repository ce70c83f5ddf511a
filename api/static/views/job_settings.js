// How a job is looked after: how far the agent may go, what nobody is told of, whether it is archived.

import * as actions from "../app/actions.js";
import * as api from "../app/api.js";
import { h, render } from "../app/dom.js";
import { moment, number, plural, words } from "../app/format.js";
import { session } from "../app/session.js";
import { MODES } from "../app/states.js";
import { nothing } from "./blanks.js";
import { button, facts, heading, table } from "./pieces.js";

export class JobSettings {
  constructor(root, job, place, done) {
    Object.assign(this, { job, done, config: null });
    this.mode = h("section", { class: "card" });
    this.limits = h("section", { class: "card" });
    this.silences = h("section", { class: "card" });
    this.away = h("section", { class: "card" });
    root.append(
      h("div", { class: "pair" }, h("div", { class: "stack" }, this.mode, this.silences, this.away), this.limits),
    );
  }

  async show(signal) {
    this.config ??= (await api.settings(this.job.name, signal)).config; // fixed once there is a ledger
    const { job, controls } = this.job.health,
      off = !session.may("control");
    this.showMode(job, controls, off);
    this.showSilences(off);
    this.showArchive(job, off);
    render(this.limits, this.config, ({ policy }) => [
      heading("Limits of the agent"),
      h(
        "p",
        { class: "muted small" },
        "They were given when the job was registered, and are fixed since its first step.",
      ),
      facts(limitsOf(policy), "limits"),
      bounds(policy.limits),
    ]);
  }

  showMode(job, controls, off) {
    const choice = ([mode, means]) =>
      h(
        "li",
        { class: "row" },
        button(mode, () => actions.setMode(job.name, mode).then(this.done), {
          key: `set-${mode}`,
          off: off || this.job.stands(mode),
        }),
        h(
          "span",
          { class: mode === job.mode ? "" : "muted" },
          means,
          mode === job.mode ? h("b", {}, " This is the mode.") : null,
        ),
      );
    render(this.mode, [job.mode, controls.killed, controls.locked, off], () => [
      heading("Mode"),
      h("ul", { class: "modes" }, Object.entries(MODES).map(choice)),
    ]);
  }

  showSilences(off) {
    const row = (one) =>
      h(
        "li",
        { class: "row" },
        h("b", {}, words(one.fingerprint.split("/").at(-1))),
        h(
          "span",
          { class: "muted" },
          `by ${one.issuer}, ${one.until_tick === null ? "until it is ended" : "for a number of steps"}`,
        ),
        button("End", () => actions.unsilence(this.job.name, one.fingerprint.split("/").at(-1)).then(this.done), {
          key: `end-${one.fingerprint}`,
          look: "small",
          off,
        }),
      );
    const { silences } = this.job;
    render(this.silences, [silences, off], () => [
      heading("Silences"),
      silences.length ? h("ul", { class: "lines" }, silences.map(row)) : nothing("People are told of everything."),
    ]);
  }

  showArchive(job, off) {
    const away = job.archived_at !== null,
      act = () => actions.archive(job.name, !away).then(this.done);
    render(this.away, [away, off], () => [
      heading(
        away ? "Archived" : "Archive",
        button(away ? "Bring back" : "Archive", act, { key: "archive", look: "small", off }),
      ),
      h(
        "p",
        { class: "muted small" },
        away
          ? `Since ${moment(job.archived_at)}. It is back by itself when it reports again.`
          : "A job that is over can leave the list and the metrics. Nothing of it is deleted.",
      ),
    ]);
  }
}

const ANY = 1e6; // what a limit is where there is none

const limitsOf = (policy) => [
  ["Remedies", policy.allow.map(words).join(", ") || "none"],
  ["Hands off", policy.limits.untouched.map(words).join(", ")],
  ["Budget", `${plural(policy.budget, "action")} in any 1000 steps, rollbacks included`],
  ["Cool-down", `${plural(policy.cooldown, "step")}, twice as many with each repeat`],
  ["Watched for harm", `${plural(policy.canary, "step")} after a change`],
  ["Next remedy", `after ${plural(policy.verify, "step")} without help`],
  ["Taken back", `${plural(policy.relax_after, "step")} after its cause is gone`],
  ["Proposals wait", plural(policy.expire, "step")],
  ["Settles for", `${plural(policy.settle, "step")} at the start of an attempt`],
];

function bounds(limits) {
  const row = ([name, { low, high, move }]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, words(name)),
      [low, high].map((value) => h("td", { class: "right number" }, value >= ANY ? "any" : number(value))),
      h("td", { class: "right number" }, move > 1 ? "any" : `${number(move * 100)} %`),
    );
  return table(
    ["Control", ">Least", ">Greatest", ">At once"],
    Object.entries(limits)
      .filter(([name]) => name !== "untouched")
      .map(row),
  );
}
