import { h } from "../app/dom.js";
export class Webhooks {
  constructor() {
    this.element = h("section", {});
  }
  load() {}
}
