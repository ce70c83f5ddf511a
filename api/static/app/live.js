// What happens at the service, as it happens: server-sent events, and a poll where they cannot be had. A page that nobody
// sees listens to nothing, since a browser has only a few connections to a service for all of its pages.

import { withQuery } from "./query.js";

const POLL_MS = 2000;
const AGAIN_MS = 15000; // until a stream that was refused is tried again
const KINDS = ["ready", "summary", "event", "job"];

// Calls `heard()` whenever something may be new about `job`, or about any job where it is null. Ends with `signal`.
export function listen(job, heard, signal) {
  const path = withQuery("/v1/stream", { job });
  let source = null,
    poll = 0,
    again = 0;

  function open() {
    close();
    if (document.hidden) return;
    source = new EventSource(path);
    for (const kind of KINDS) source.addEventListener(kind, heard);
    source.addEventListener("ready", () => {
      clearInterval(poll);
      poll = 0;
      tell("live");
    });
    source.onerror = () => {
      if (!poll) poll = setInterval(heard, POLL_MS);
      tell("polling");
      if (source.readyState === EventSource.CLOSED) again = setTimeout(open, AGAIN_MS); // else it tries again by itself
    };
  }

  function close() {
    source?.close();
    clearInterval(poll);
    clearTimeout(again);
    poll = 0;
  }

  open();
  document.addEventListener("visibilitychange", open, { signal });
  signal.addEventListener("abort", () => {
    close();
    tell("idle");
  });
}

const tell = (how) => dispatchEvent(new CustomEvent("trimtab:live", { detail: how }));
