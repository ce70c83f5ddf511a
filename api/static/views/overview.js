// Every job at a glance, the worst first.

import * as api from "../app/api.js";
import { h, icon, render } from "../app/dom.js";
import { plural } from "../app/format.js";
import { listen } from "../app/live.js";
import { Refresher } from "../app/refresher.js";
import { requery } from "../app/router.js";
import { MODES, rank, stateOf, STATES, WORST_FIRST } from "../app/states.js";
import { blankJobs, failure, loading } from "./blanks.js";
import { Row } from "./row.js";

const PAGE = 200,
  MOST = 1000;

export class Overview {
  constructor(root, { query }) {
    this.gone = new AbortController();
    this.rows = new Map();
    this.jobs = null;
    this.asked = {
      q: query.get("q") ?? "",
      state: query.get("state") ?? "",
      mode: query.get("mode") ?? "",
      archived: query.get("archived") === "1",
    };
    document.title = "Jobs · trimtab";
    this.build(root);
    this.refresher = new Refresher((signal) => this.load(signal), { failed: (error) => this.fail(error) });
    this.seen = new IntersectionObserver((entries) => this.look(entries), { rootMargin: "120px" });
    listen(null, () => this.refresher.poke(), this.gone.signal);
    this.ticking = setInterval(() => this.tick(), 5000);
    this.polling = setInterval(() => this.refresher.poke(), 15000); // silence is no event
    this.refresher.now();
  }

  goTo() {
    return false;
  }

  stop() {
    this.gone.abort();
    this.refresher.stop();
    this.seen.disconnect();
    clearInterval(this.ticking);
    clearInterval(this.polling);
    clearTimeout(this.typing);
  }

  build(root) {
    this.search = h("input", {
      type: "search",
      value: this.asked.q,
      placeholder: "Search jobs",
      "aria-label": "Search jobs by name",
      oninput: () => this.typed(),
    });
    this.modes = h(
      "select",
      { "aria-label": "Mode", onchange: () => this.filter({ mode: this.modes.value }) },
      h("option", { value: "" }, "Any mode"),
      Object.keys(MODES).map((mode) => h("option", { value: mode, selected: mode === this.asked.mode }, mode)),
    );
    const archived = h("input", {
      type: "checkbox",
      checked: this.asked.archived,
      onchange: () => this.refilter({ archived: archived.checked }),
    });
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Filter by state" });
    this.body = h("tbody");
    const head = (name, label, right) => h("th", { scope: "col", class: `c-${name}${right ? " right" : ""}` }, label);
    this.table = h(
      "div",
      { class: "card jobs", hidden: true },
      h(
        "table",
        {},
        h("caption", { class: "unseen" }, "Jobs, the worst first"),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            head("state", "State"),
            head("name", "Job"),
            head("reward", "Reward"),
            head("worst", "Worst signal"),
            head("firing", "Firing", true),
            head("mode", "Mode"),
            head("step", "Step", true),
            head("age", "Last seen", true),
          ),
        ),
        this.body,
      ),
    );
    this.note = h("div", { class: "below", role: "status" });
    this.blank = h("div", {}, loading("Loading jobs"));
    root.replaceChildren(
      h(
        "section",
        { "aria-labelledby": "title" },
        h(
          "div",
          { class: "filters" },
          h("h1", { id: "title", tabindex: "-1" }, "Jobs"),
          this.chips,
          this.search,
          this.modes,
          h("label", { class: "check" }, archived, "Archived"),
        ),
        this.blank,
        this.table,
        this.note,
      ),
    );
  }

  async load(signal) {
    const found = [];
    let cursor = null;
    do {
      const page = await api.jobs(
        { query: this.asked.q, archived: this.asked.archived ? "true" : null, cursor, limit: PAGE },
        signal,
      );
      found.push(...page.jobs);
      cursor = page.next;
    } while (cursor !== null && found.length < MOST);
    this.jobs = found;
    this.more = cursor !== null;
    this.loadedAt = performance.now();
    this.show();
  }

  fail(error) {
    if (this.jobs === null) render(this.blank, error.message, () => failure("The jobs cannot be shown", error.message));
  }

  show() {
    const counts = Map.groupBy(this.jobs, stateOf);
    const chips = [
      ["", this.jobs.length, "All"],
      ...WORST_FIRST.map((name) => [name, counts.get(name)?.length ?? 0, STATES[name]]),
    ].filter(([name, count]) => count || name === "" || name === this.asked.state);
    render(this.chips, [chips, this.asked.state], () =>
      chips.map(([name, count, word]) =>
        h(
          "button",
          {
            type: "button",
            class: name,
            "data-focus": `chip-${name}`,
            "aria-pressed": String(name === this.asked.state),
            onclick: () => this.filter({ state: name }),
          },
          name && icon(name),
          word,
          " ",
          h("b", {}, String(count)),
        ),
      ),
    );
    const wanted = this.jobs
      .filter(
        (job) =>
          (!this.asked.state || stateOf(job) === this.asked.state) &&
          (!this.asked.mode || job.mode === this.asked.mode),
      )
      .sort((a, b) => rank(stateOf(a)) - rank(stateOf(b)) || b.firing - a.firing || a.name.localeCompare(b.name));
    this.place(wanted);
    const filtered = this.asked.q || this.asked.state || this.asked.mode || this.asked.archived;
    this.table.hidden = !wanted.length;
    this.blank.hidden = wanted.length > 0;
    if (!wanted.length) render(this.blank, [filtered], () => blankJobs(Boolean(filtered)));
    this.note.textContent = this.more
      ? `These are ${plural(this.jobs.length, "job")}; there are more, which a search finds`
      : "";
    this.tick();
  }

  // Rows stay the elements that they are, so that focus and sparklines stay too.
  place(wanted) {
    const names = new Set(wanted.map((job) => job.name));
    for (const [name, row] of this.rows) {
      if (names.has(name)) continue;
      this.seen.unobserve(row.element);
      row.element.remove();
      this.rows.delete(name);
    }
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    wanted.forEach((job, place) => {
      let row = this.rows.get(job.name);
      if (!row) {
        row = new Row(job.name, this.gone.signal);
        this.rows.set(job.name, row);
        this.seen.observe(row.element);
      }
      row.update(job);
      if (this.body.children[place] !== row.element)
        this.body.insertBefore(row.element, this.body.children[place] ?? null);
    });
    if (focused && document.activeElement !== focused) focused.focus();
  }

  look(entries) {
    for (const { target, isIntersecting } of entries) this.rows.get(target.dataset.job)?.see(isIntersecting);
  }

  tick() {
    const passed = (performance.now() - this.loadedAt) / 1000;
    for (const row of this.rows.values()) row.tick(passed);
  }

  typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.refilter({ q: this.search.value.trim() }), 200);
  }

  filter(change) {
    Object.assign(this.asked, change);
    requery({ ...this.asked, archived: this.asked.archived ? "1" : "" });
    if (this.jobs) this.show();
  }

  refilter(change) {
    this.filter(change);
    this.refresher.now();
  }
}
