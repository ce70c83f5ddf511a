// Which view the address asks for. Addresses are fragments, so that every view can be linked to and "back" works:
//   #/                              every job               ?q= &state= &mode= &archived=1
//   #/jobs/JOB                      its signals             ?attempt=
//   #/jobs/JOB/incidents[/DETECTOR]
//   #/jobs/JOB/controls
//   #/jobs/JOB/events
//   #/jobs/JOB/settings
//   #/settings

import { withQuery } from "./query.js";

export const link = {
  jobs: () => "#/",
  job: (job, part = "") => `#/jobs/${encodeURIComponent(job)}${part && `/${part}`}`,
  incident: (job, detector) => `${link.job(job, "incidents")}/${encodeURIComponent(detector)}`,
};

// Messages to people link to `/?job=JOB`, since not all that carries a message leaves fragments alone.
export function followMessage() {
  const job = new URLSearchParams(location.search).get("job");
  if (job !== null) history.replaceState(null, "", `/${location.hash || link.job(job)}`);
}

// { name, job, detector, query }; an address that means nothing has the name "unknown".
export function route() {
  const [path, search = ""] = location.hash.replace(/^#/, "").split("?", 2);
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

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
