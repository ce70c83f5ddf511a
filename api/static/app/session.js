// Who is at the page, and what they may do.

import { at, h } from "./dom.js";
import { get, send, useCsrf } from "./http.js";

export const session = {
  name: null, // null: nobody, until a token is shown
  scopes: [],

  // Asks the service who this is.
  async start() {
    take(await get("/v1/session"));
  },

  // Throws `Refused` where the token opens nothing.
  async signIn(token) {
    take(await send("POST", "/v1/session", { token }));
  },

  async signOut() {
    await send("DELETE", "/v1/session");
    take({ name: null, scopes: [], csrf: null });
    dispatchEvent(new Event("trimtab:signed-out"));
  },

  may: (scope) => session.scopes.includes(scope),
};

function take({ name, scopes, csrf }) {
  Object.assign(session, { name, scopes });
  useCsrf(csrf);
  const box = at("session");
  box.replaceChildren();
  if (csrf === null) return; // no cookie stands for a token: there is nothing to sign out of
  box.append(
    h("span", {}, name),
    h("button", { type: "button", class: "quiet small", onclick: () => session.signOut() }, "Sign out"),
  );
}
