// Which view the address asks for. Addresses are fragments, so that every view can be linked to and "back" works:
//   #/                              every job               ?q= &state= &mode= &archived=1
//   #/jobs/JOB                      its signals             ?attempt=
//   #/jobs/JOB/incidents[/DETECTOR]
//   #/jobs/JOB/controls
//   #/jobs/JOB/events
//   #/jobs/JOB/settings
//   #/settings

export const link = {
  jobs: (query = {}) => withQuery("#/", query),
  job: (job, part = "", query = {}) => withQuery(`#/jobs/${encodeURIComponent(job)}${part && `/${part}`}`, query),
  incident: (job, detector) => `#/jobs/${encodeURIComponent(job)}/incidents/${encodeURIComponent(detector)}`,
  settings: () => "#/settings",
};

// Messages to people link to `/?job=JOB`, since not all that carries a message leaves fragments alone.
export function followMessage() {
  const job = new URLSearchParams(location.search).get("job");
  if (job !== null) history.replaceState(null, "", `/${location.hash || link.job(job)}`);
}

// { name, job, detector, query }; an address that means nothing has the name "unknown".
export function route(hash = location.hash) {
  const [path, search = ""] = hash.replace(/^#/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decoded);
  const query = new URLSearchParams(search);
  if (!parts.length) return { name: "overview", query };
  if (parts[0] === "settings" && parts.length === 1) return { name: "settings", query };
  if (parts[0] === "jobs" && parts.length >= 2) {
    const [, job, part = "signals", detector = null] = parts;
    if (["signals", "incidents", "controls", "events", "settings"].includes(part))
      return { name: "job", job, part, detector, query };
  }
  return { name: "unknown", query };
}

// Changes what is asked of the view in sight without a step in the history.
export function requery(query) {
  const [path] = location.hash.split("?", 1);
  history.replaceState(null, "", withQuery(path || "#/", query));
}

function withQuery(path, query) {
  const entries = Object.entries(query).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
  const kept = entries.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  return kept.length ? `${path}?${new URLSearchParams(kept)}` : path;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
