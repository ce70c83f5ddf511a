// The controls of a job: what is in effect, what is wanted of it, and a person's way to change it.

import * as actions from "../app/actions.js";
import { h, icon, render } from "../app/dom.js";
import { override, shown, words } from "../app/format.js";
import { session } from "../app/session.js";
import { ABOUT, GROUPS } from "./about.js";
import { nothing } from "./blanks.js";
import { button, dotted, head, heading } from "./pieces.js";

const COLUMNS = ["Control", "In effect", "Wanted", "Changes", ""];
const TAKES = {
  live: "at the next step",
  next_rollout: "with the next rollout",
  restart: "at a restart only",
  absent: "not possible here",
};

export class Controls {
  constructor(root, job) {
    Object.assign(this, { job, all: false });
    this.status = h("p", { class: "small wrap" });
    this.table = h("div", {});
    this.more = button("", () => this.toggle(), { key: "all-controls", look: "small" });
    root.append(h("section", { class: "card" }, heading("Controls", this.status, this.more), this.table));
  }

  async show() {
    this.draw();
  }

  toggle() {
    this.all = !this.all;
    this.draw();
  }

  draw() {
    const { controls } = this.job,
      may = session.may("control") && !controls.killed;
    const fixed = controls.controls.filter((one) => !possible(one) && one.desired === null).length;
    this.status.textContent = status(controls);
    this.more.hidden = !fixed;
    this.more.textContent = this.all
      ? "Hide what cannot be changed"
      : `Show ${fixed} more that this trainer cannot change live`;
    this.more.setAttribute("aria-expanded", String(this.all));
    const listed = controls.controls.filter((one) => this.all || possible(one) || one.desired !== null);
    render(this.table, [listed, controls.generation, may], () =>
      listed.length ? this.tabulate(listed, may) : nothing("The trainer has not said yet which controls it has."),
    );
  }

  tabulate(listed, may) {
    const groups = Object.entries(GROUPS).map(([title, names]) => [
      title,
      listed.filter((one) => names.includes(one.name)),
    ]);
    const body = ([title, rows]) =>
      h(
        "tbody",
        {},
        h("tr", { class: "group" }, h("th", { scope: "rowgroup", colspan: COLUMNS.length }, title)),
        rows.map((one) => this.row(one, may)),
      );
    const bodies = groups.filter(([, rows]) => rows.length).map(body);
    return h("div", { class: "scroll" }, h("table", { class: "table controls cards" }, head(COLUMNS), bodies));
  }

  row(one, may) {
    return h(
      "tr",
      { "data-control": one.name },
      h("th", { scope: "row" }, words(one.name), h("span", { class: "about muted small" }, ABOUT[one.name] ?? "")),
      h("td", { class: "number" }, shown(one.applied)),
      h("td", {}, wanted(one)),
      h("td", { class: "muted small" }, TAKES[one.liveness]),
      h("td", { class: "right" }, h("span", { class: "buttons" }, this.buttons(one, may))),
    );
  }

  buttons(one, may) {
    const label = words(one.name),
      now = one.desired ?? one.applied ?? false;
    const toggle = one.choices.length === 2 && one.choices.every((value) => typeof value === "boolean");
    const change = (value) => actions.change(this.job.name, this.job.controls, one, value, this.job.reload);
    const made = (key, text, title, value) =>
      button(text, () => change(value), { key: `${one.name}-${key}`, look: "small", title, off: !may });
    const switched = () => made("set", now ? "Turn off" : "Turn on", `Turn ${label} ${now ? "off" : "on"}`, !now);
    return [
      possible(one) ? (toggle ? switched() : made("set", "Set", `Set ${label}`, undefined)) : null,
      one.desired === null ? null : made("lift", "Lift", `Leave ${label} to the run again`, null),
    ];
  }
}

const possible = (one) => one.liveness === "live" || one.liveness === "next_rollout";

function wanted({ desired, by_person: person }) {
  if (desired === null) return h("span", { class: "muted" }, override(desired));
  const who = person ? "person" : "agent";
  return h("span", { class: "held" }, h("b", { class: "number" }, override(desired)), " ", icon(who), who);
}

function status(controls) {
  const refused = controls.refused.map(words).join(", ");
  const waiting = refused ? `refused by the trainer: ${refused}` : "waiting for the trainer";
  const inEffect = controls.in_sync ? "in effect" : waiting;
  const by = controls.issuer && `last changed by ${controls.issuer}: ${controls.reason}`;
  return dotted(
    `generation ${controls.generation}`,
    Object.keys(controls.overrides).length ? inEffect : "nothing overridden",
    by,
  );
}
