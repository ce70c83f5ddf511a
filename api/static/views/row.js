// A job in the list.

import { h, render } from "../app/dom.js";
import { duration, number, words } from "../app/format.js";
import { link } from "../app/router.js";
import { state, stateOf } from "../app/states.js";
import { Sparkline } from "../charts/sparkline.js";

export class Row {
  constructor(name, signal) {
    this.name = name;
    this.state = h("td", { class: "state-cell" });
    this.link = h("a", { href: link.job(name), title: name, "data-focus": `job-${name}` }, name);
    this.worst = h("td", { class: "worst" });
    this.firing = h("td", { class: "firing right number" });
    this.mode = h("td", { class: "mode" });
    this.step = h("td", { class: "step right number" });
    this.age = h("td", { class: "age right number" });
    this.chart = h("span", { class: "spark", role: "img" });
    this.reward = h("span", { class: "number" });
    this.line = new Sparkline(this.chart, signal);
    this.visible = false;
    this.element = h(
      "tr",
      { "data-job": name },
      this.state,
      h("td", { class: "name" }, this.link),
      h("td", { class: "reward-cell" }, h("div", { class: "reward" }, this.chart, this.reward)),
      this.worst,
      this.firing,
      this.mode,
      this.step,
      this.age,
    );
  }

  update(job) {
    this.job = job;
    const shown = stateOf(job);
    render(this.state, shown, (name) => state(name));
    this.element.dataset.state = shown;
    this.element.classList.toggle("silent-row", job.silent);
    this.firing.textContent = job.firing ? String(job.firing) : "";
    this.mode.textContent = job.log ? `${job.mode} (logs)` : job.mode;
    this.step.textContent = job.step === null ? "–" : String(job.step);
    const waiting = job.proposals && job.mode === "approve" ? job.proposals : 0;
    const what = job.worst ? words(job.worst.detector) : "",
      said = job.problem ?? job.worst?.message ?? "";
    render(this.worst, [waiting, what, said], () => [
      waiting ? h("span", { class: "tag waits" }, waiting === 1 ? "waits for you" : `${waiting} wait for you`) : null,
      waiting ? " " : null,
      what && h("b", {}, what),
      what && " ",
      h("span", { class: "said" }, said),
    ]);
    this.worst.title = [what, said].filter(Boolean).join(": ");
    this.draw();
  }

  // Charts are drawn where somebody sees them.
  see(visible) {
    this.visible = visible;
    this.draw();
  }

  draw() {
    const values = this.job.reward,
      finite = values.filter((value) => value !== null);
    this.reward.textContent = finite.length ? number(finite.at(-1)) : "";
    this.chart.setAttribute(
      "aria-label",
      finite.length
        ? `reward ${number(finite.at(-1))}, over the latest ${values.length} steps ${number(Math.min(...finite))} to ${number(Math.max(...finite))}`
        : "no reward reported",
    );
    if (this.visible && finite.length) this.line.show(values);
  }

  tick(passed) {
    this.age.textContent = this.job.age === null ? "never" : duration(this.job.age + passed);
  }
}
