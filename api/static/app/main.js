// The page: what the address asks for is mounted, and what was there before is stopped.

import { failure, loading } from "../views/blanks.js";
import { JobView } from "../views/job.js";
import { Login } from "../views/login.js";
import { Overview } from "../views/overview.js";
import { Settings } from "../views/settings.js";
import { at } from "./dom.js";
import { followMessage, route } from "./router.js";
import { session } from "./session.js";
import { startTheme } from "./theme.js";
import { watchTouch } from "./touch.js";

const VIEWS = { overview: Overview, job: JobView, settings: Settings };
const AGAIN_MS = 2000;
let view = null;

async function start() {
  followMessage();
  startTheme();
  watchTouch();
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    at("main").focus();
  });
  at("main").replaceChildren(loading("Connecting"));
  await known();
  addEventListener("hashchange", () => show(true));
  addEventListener("trimtab:signed-out", signIn);
  show(false);
}

async function known() {
  try {
    await session.start();
  } catch (error) {
    at("main").replaceChildren(failure("The service does not answer", error.message));
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    await known();
  }
}

function show(moved) {
  const place = route();
  for (const link of at("main-nav").children) {
    const here = link.dataset.section === (place.name === "settings" ? "settings" : "jobs") && place.name !== "unknown";
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (session.name === null) return signIn();
  if (view?.goTo(place)) return undefined;
  view?.stop();
  const View = VIEWS[place.name];
  view = View ? new View(at("main"), place) : null;
  if (!View) at("main").replaceChildren(failure("There is nothing here", "The address leads nowhere."));
  if (moved) {
    scrollTo(0, 0);
    (at("main").querySelector("h1") ?? at("main")).focus();
  }
  return undefined;
}

function signIn() {
  if (view instanceof Login) return;
  view?.stop();
  document.body.classList.add("nobody");
  view = new Login(at("main"), () => {
    document.body.classList.remove("nobody");
    view = null;
    show(true);
  });
}

start();
