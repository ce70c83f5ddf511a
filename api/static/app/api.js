// The endpoints that the page uses, one function each.

import { get, send } from "./http.js";
import { withQuery } from "./query.js";

const job = (name, rest = "") => `/v1/jobs/${encodeURIComponent(name)}${rest}`;

export const jobs = (filter, signal) => get(withQuery("/v1/jobs", filter), signal);
export const archive = (name, archived, reason) =>
  send("POST", job(name, archived ? "/archive" : "/unarchive"), { reason });
export const health = (name, signal) => get(job(name, "/health"), signal);
export const signals = (name, { names, attempt, points }, signal) =>
  get(withQuery(job(name, "/signals"), { name: names, attempt, points }), signal);
export const baselines = (name, signal) => get(job(name, "/baselines"), signal);
export const incidents = (name, signal) => get(job(name, "/incidents"), signal);
export const settings = (name, signal) => get(job(name, "/settings"), signal);
export const silences = (name, signal) => get(job(name, "/silences"), signal);

// All that is newer than the event with the number `after`, page by page.
export async function eventsAfter(name, after, signal) {
  const found = [];
  for (let page = { next: after }; page.next !== null;) {
    page = await get(withQuery(job(name, "/events"), { cursor: page.next, limit: 1000 }), signal);
    found.push(...page.events);
  }
  return found;
}

export const acknowledge = (name, detector, reason) =>
  send("POST", job(name, `/incidents/${encodeURIComponent(detector)}/ack`), { reason });
export const silence = (name, detector, steps, reason) =>
  send("PUT", job(name, `/silences/${encodeURIComponent(detector)}`), { steps, reason });
export const unsilence = (name, detector, reason) =>
  send("DELETE", job(name, `/silences/${encodeURIComponent(detector)}`), { reason });

// Where `generation` is not the newest any more it is refused; without one it never is.
export const patch = (name, overrides, reason, generation = null) =>
  send("PATCH", job(name, "/controls"), { overrides, reason, base_generation: generation });
export const setMode = (name, mode, reason) => send("PUT", job(name, "/mode"), { mode, reason });
export const kill = (name, reason) => send("POST", job(name, "/kill"), { reason });
// Decides on just the changes that were shown; another proposal under that number is refused.
export const decide = (name, proposal, verdict, reason) =>
  send("POST", job(name, `/proposals/${proposal.id}/${verdict}`), { reason, changes: proposal.changes });

export const tokens = () => get("/v1/tokens");
export const createToken = (wanted) => send("POST", "/v1/tokens", wanted);
export const rotateToken = (id, reason) => send("POST", `/v1/tokens/${encodeURIComponent(id)}/rotate`, { reason });
export const revokeToken = (id, reason) =>
  send("DELETE", withQuery(`/v1/tokens/${encodeURIComponent(id)}`, { reason }));

const webhook = (id, rest = "") => `/v1/webhooks/${encodeURIComponent(id)}${rest}`;

export const webhooks = () => get("/v1/webhooks");
export const addWebhook = (wanted) => send("POST", "/v1/webhooks", wanted);
export const changeWebhook = (id, wanted) => send("PATCH", webhook(id), wanted);
export const removeWebhook = (id, reason) => send("DELETE", withQuery(webhook(id), { reason }));
export const testWebhook = (id) => send("POST", webhook(id, "/test"));
export const deliveries = (id) => get(webhook(id, "/deliveries"));
export const retryDelivery = (id, reason) => send("POST", `/v1/deliveries/${encodeURIComponent(id)}/retry`, { reason });
