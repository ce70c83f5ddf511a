// One job: its head, and the part of it that is in sight.

import { announce } from "../app/notice.js";
import * as actions from "../app/actions.js";
import { h, icon, render } from "../app/dom.js";
import { duration, plural, words } from "../app/format.js";
import { Job } from "../app/job.js";
import { link } from "../app/router.js";
import { session } from "../app/session.js";
import { MODES, state, stateOf } from "../app/states.js";
import { failure, loading } from "./blanks.js";
import { Controls } from "./controls.js";
import { Events } from "./events.js";
import { Incidents } from "./incidents.js";
import { JobSettings } from "./job_settings.js";
import { button, dotted } from "./pieces.js";
import { Signals } from "./signals.js";

const PARTS = {
  signals: ["Signals", Signals],
  incidents: ["Incidents", Incidents],
  controls: ["Controls", Controls],
  events: ["Events", Events],
  settings: ["Settings", JobSettings],
};

export class JobView {
  constructor(root, place) {
    this.place = place;
    this.root = root;
    this.missing = false;
    this.alarmed = null;
    this.build(root);
    this.job = new Job(place.job, { changed: (signal) => this.show(signal), failed: (error) => this.fail(error) });
    this.open(place);
    this.job.refresher.now();
    this.ticking = setInterval(() => this.tick(), 5000);
  }

  // Goes to another part of the same job.
  goTo(place) {
    if (this.missing || place.name !== "job" || place.job !== this.place.job) return false;
    const other = place.part !== this.place.part || place.detector !== this.place.detector;
    this.place = place;
    if (other) this.open(place);
    else this.part.goTo?.(place);
    if (this.job.health) this.job.refresher.now();
    return true;
  }

  stop() {
    clearInterval(this.ticking);
    this.part.stop?.();
    this.job.stop();
  }

  build(root) {
    const { job } = this.place;
    this.badge = h("span", {});
    this.facts = h("p", { class: "facts-line muted" });
    this.mode = h("div", { class: "segments", role: "group", "aria-label": "Mode" });
    this.kill = button("Kill switch", () => actions.kill(job).then(this.done), { key: "kill", look: "danger" });
    this.notices = h("div", {});
    this.tabs = h("nav", { class: "tabs", "aria-label": `Parts of ${job}` });
    this.content = h("div", {}, loading(`Loading ${job}`));
    root.replaceChildren(
      h(
        "div",
        { class: "job-head" },
        h(
          "div",
          { class: "who" },
          h("p", { class: "crumbs small" }, h("a", { href: link.jobs() }, "Jobs"), " / "),
          h("div", { class: "row" }, h("h1", { tabindex: "-1" }, job), this.badge),
          this.facts,
        ),
        h("div", { class: "row deeds" }, this.mode, this.kill),
      ),
      this.notices,
      this.tabs,
      this.content,
    );
  }

  open(place) {
    this.part?.stop?.();
    const [label, Part] = PARTS[place.part];
    document.title = `${place.job} · ${place.detector ? words(place.detector) : label} · trimtab`;
    this.holder = h("div", {});
    this.part = new Part(this.holder, this.job, place, this.done);
    if (this.job.health) this.content.replaceChildren(this.holder);
  }

  async show(signal) {
    if (this.holder.parentNode !== this.content) this.content.replaceChildren(this.holder);
    this.readAt = performance.now();
    this.head();
    this.warn();
    await this.part.show(signal);
  }

  fail(error) {
    if (error.status === 404) this.miss(error);
    else if (this.job.health)
      render(this.notices, error.message, (text) => h("p", { class: "notice critical" }, icon("critical"), text));
    else this.content.replaceChildren(failure(`${this.place.job} cannot be shown`, error.message));
  }

  // There is nothing to be done to a job that is not there, nor to wait for.
  miss(error) {
    this.missing = true;
    this.stop();
    document.title = "No such job · trimtab";
    this.root.replaceChildren(failure("There is no such job", error.message));
  }

  head() {
    const { job, controls, incidents, proposals } = this.job.health;
    const may = session.may("control"),
      counted = stateOf(job);
    document.body.classList.toggle("silent-job", job.silent);
    render(this.badge, [counted, job.silent], () => [
      state(counted),
      job.silent && counted !== "silent" && [" ", state("silent")],
    ]);
    this.tick();
    render(this.mode, [job.mode, may], () =>
      Object.entries(MODES).map(([mode, means]) =>
        h(
          "button",
          {
            type: "button",
            "data-focus": `mode-${mode}`,
            title: means,
            disabled: !may,
            "aria-pressed": String(mode === job.mode),
            onclick: () => !this.job.stands(mode) && actions.setMode(job.name, mode).then(this.done),
          },
          mode,
        ),
      ),
    );
    this.kill.disabled = !may || controls.killed;
    const firing = incidents.filter((one) => one.phase === "firing"),
      worst = firing.some((one) => one.severity === "critical") ? "critical" : "warn";
    const counts = {
      incidents: [firing.length, worst],
      controls: [Object.keys(controls.overrides).length, ""],
      signals: [proposals.length && job.mode === "approve" ? proposals.length : 0, "warn"],
    };
    render(this.tabs, [this.place.part, counts], () =>
      Object.entries(PARTS).map(([part, [label]]) =>
        h(
          "a",
          {
            href: link.job(job.name, part === "signals" ? "" : part),
            "data-focus": `tab-${part}`,
            "aria-current": part === this.place.part ? "page" : null,
          },
          label,
          counts[part]?.[0] ? h("span", { class: `count ${counts[part][1]}` }, String(counts[part][0])) : null,
        ),
      ),
    );
    this.showTab();
    this.tell(firing);
  }

  // Scrolls to the tab of a part once it is opened, where the tabs are wider than the screen.
  showTab() {
    if (this.shownPart === this.place.part) return;
    this.shownPart = this.place.part;
    const tab = this.tabs.querySelector("[aria-current]");
    this.tabs.scrollLeft = tab.offsetLeft - this.tabs.offsetLeft - tab.offsetWidth;
  }

  tick() {
    if (!this.job.health) return;
    const { job, dropped } = this.job.health;
    const age = job.age === null ? null : job.age + (performance.now() - this.readAt) / 1000;
    const said =
      job.step === null
        ? ["no summary yet"]
        : [
            `step ${job.step}`,
            `attempt ${job.attempt}`,
            `last seen ${duration(age)} ago`,
            `${job.judged} of ${job.detectors} detectors could judge`,
            job.log && `read from logs (${job.log.source}, ${job.log.framework})`,
            job.log && job.log.lag_seconds !== null && `${duration(job.log.lag_seconds)} behind when read`,
            job.quarantined && `${job.quarantined} in quarantine`,
            dropped && `${plural(dropped, "summary", "summaries")} lost in the trainer`,
          ];
    const text = dotted(...said);
    if (this.facts.textContent !== text) this.facts.textContent = text;
  }

  // What keeps the agent from acting, or the job from being judged.
  warn() {
    const { job, controls } = this.job.health;
    const told = [
      job.problem && ["critical", job.problem],
      controls.killed && ["critical", "The kill switch is set: nothing is overridden until somebody sets the mode."],
      controls.locked && ["warn", `The agent acts no more until somebody sets the mode: ${controls.locked}.`],
      job.log && ["not_observed", observed(job.log)],
      job.log?.vanished.length && ["warn", `Missing from the log, where every step had it: ${job.log.vanished.join(", ")}.`],
      job.silent && ["warn", "Nothing has come for long. What is shown was true when it fell silent."],
      controls.refused.length && [
        "warn",
        `The trainer refuses ${controls.refused.map(words).join(", ")}: ${controls.refusals.join("; ")}`,
      ],
    ].filter(Boolean);
    render(this.notices, told, () =>
      told.map(([kind, text]) => h("p", { class: `notice ${kind}` }, icon(kind), h("span", {}, text))),
    );
  }

  // Says aloud what has begun to fire since the page was opened.
  tell(firing) {
    const now = new Set(firing.map((one) => one.fingerprint));
    const fresh = this.alarmed === null ? [] : firing.filter((one) => !this.alarmed.has(one.fingerprint));
    if (fresh.length)
      announce(fresh.map((one) => `${words(one.detector)} is ${one.severity}: ${one.message}`).join(". "));
    this.alarmed = now;
  }

  done = (changed) => changed && this.job.reload();
}

// What a job that is read from its log is, and which of its numbers are only bounds.
function observed(log) {
  const bounds = Object.entries(log.censored).map(([name, bound]) => `${name} ${bound}`);
  const censored = bounds.length ? ` Logged after a clamp or a mask: ${bounds.join(", ")}.` : "";
  return `Observe only (read from logs): nothing in the job can be changed from here.${censored}`;
}
