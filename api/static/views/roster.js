// A card with a table of what the service keeps of something, and a button that adds to it. For admins.

import { h, render } from "../app/dom.js";
import { failure, nothing } from "./blanks.js";
import { button, heading, table } from "./pieces.js";

export class Roster {
  // `title` is of many, `add` of one more; the table has `columns` and a `look`, and `none` is said where it is empty.
  // A roster has three methods besides: `read()` resolves to the items, `row(one)` is the <tr> of one, and `create()`
  // asks for one more.
  constructor({ title, add, columns, look, none }) {
    Object.assign(this, { title, columns, look, none });
    this.list = h("div", {});
    const adding = button(add, () => this.create(), { key: add, look: "small" });
    this.element = h("section", { class: "card", "aria-label": title }, heading(title, adding), this.list);
  }

  async load() {
    try {
      this.show(await this.read());
    } catch (error) {
      const title = `The ${this.title.toLowerCase()} cannot be shown`;
      render(this.list, error.message, (text) => failure(title, text));
    }
  }

  show(items) {
    const row = (one) => this.row(one);
    render(this.list, items, () =>
      items.length ? table(this.columns, items.map(row), `${this.look} cards`) : nothing(this.none),
    );
  }
}
