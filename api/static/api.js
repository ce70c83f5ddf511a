// The service, as this page sees it.

export class Refused extends Error {}

async function ask(path, options = {}) {
  const response = await fetch(path, { headers: { "content-type": "application/json" }, cache: "no-store", ...options });
  const body = await response.json();
  if (response.ok) return body;
  throw new Refused(body.errors.map((one) => (one.field ? `${one.field}: ${one.message}` : one.message)).join("; "));
}

const job = (name) => `/v1/jobs/${encodeURIComponent(name)}`;
const send = (method, path, body) => ask(path, { method, body: JSON.stringify(body) });

export const jobs = () => ask("/v1/jobs").then((body) => body.jobs);
export const health = (name) => ask(`${job(name)}/health`);
export const incidents = (name) => ask(`${job(name)}/incidents`).then((body) => body.incidents);
export const signals = (name, names, attempt) => {
  const query = new URLSearchParams([["points", "400"], ...names.map((one) => ["name", one])]);
  if (attempt !== null) query.set("attempt", attempt);
  return ask(`${job(name)}/signals?${query}`);
};
export const events = (name, after) => ask(`${job(name)}/events?limit=1000&after=${after}`);
export const patch = (name, overrides, reason, generation) =>
  send("PATCH", `${job(name)}/controls`, { overrides, reason, base_generation: generation, issuer: "dashboard" });
export const setMode = (name, mode, reason) => send("PUT", `${job(name)}/mode`, { mode, reason, issuer: "dashboard" });
export const decide = (name, id, verdict, reason) =>
  send("POST", `${job(name)}/proposals/${id}/${verdict}`, { reason, issuer: "dashboard" });
