// The service, as this page reaches it.

// The service refuses: `status` is HTTP's, `problems` its list of { field, value, message }.
export class Refused extends Error {
  constructor(status, problems) {
    super(problems.map((one) => (one.field ? `${one.field}: ${one.message}` : one.message)).join("; "));
    this.name = "Refused";
    this.status = status;
    this.problems = problems;
  }
}

// The service does not answer.
export class Unreachable extends Error {}

let token = null; // against forged requests, of the session there is

export const useCsrf = (given) => {
  token = given;
};

export const get = (path, signal) => request("GET", path, undefined, signal);
export const send = (method, path, body = {}) => request(method, path, body);

async function request(method, path, body, signal) {
  const headers = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && token !== null) headers["x-csrf-token"] = token;
  const response = await reached(path, {
    method,
    headers,
    signal,
    cache: "no-store",
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const answer = await read(response);
  if (response.ok) return answer;
  if (response.status === 401) dispatchEvent(new Event("trimtab:signed-out"));
  throw new Refused(
    response.status,
    answer?.errors ?? [{ field: "", message: `the service answered ${response.status}` }],
  );
}

async function reached(path, options) {
  try {
    const response = await fetch(path, options);
    tell(true);
    return response;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    tell(false);
    throw new Unreachable("the service does not answer; trying again");
  }
}

async function read(response) {
  const text = await response.text();
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

const tell = (reachable) => dispatchEvent(new CustomEvent("trimtab:reached", { detail: reachable }));
