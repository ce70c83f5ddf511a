// The incidents of a job: all of them, or one with its evidence and what can be done about it.

import { h, render } from "../app/dom.js";
import { words } from "../app/format.js";
import { link } from "../app/router.js";
import { phase } from "../app/states.js";
import { flags, span } from "./attention.js";
import { nothing } from "./blanks.js";
import { Incident } from "./incident.js";
import { table } from "./pieces.js";

export class Incidents {
  constructor(root, job, place, done) {
    this.job = job;
    this.one = place.detector === null ? null : new Incident(root, job, place.detector, done);
    if (this.one) return;
    this.list = h("section", { class: "card", "aria-label": "Incidents" });
    root.append(this.list);
  }

  stop() {
    this.one?.stop();
  }

  async show(signal) {
    if (this.one) {
      await this.one.show(signal);
      return;
    }
    const { incidents, name } = this.job;
    const row = (one) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, h("a", { href: link.incident(name, one.detector) }, words(one.detector))),
        h("td", {}, h("span", { class: "row" }, phase(one), flags(one))),
        h("td", { class: "number" }, span(one)),
        h("td", { class: "wrap muted" }, one.message),
      );
    render(this.list, incidents, () =>
      incidents.length
        ? table(["Incident", "State", "Steps", "What was seen"], incidents.map(row), "incidents cards")
        : nothing("No incident so far."),
    );
  }
}
