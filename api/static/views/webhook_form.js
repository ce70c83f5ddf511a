// What is asked for a new webhook.

import { h } from "../app/dom.js";

const SHAPES = {
  slack: "Slack",
  discord: "Discord",
  pagerduty: "PagerDuty",
  alertmanager_api: "An Alertmanager",
  alertmanager_webhook: "What takes an Alertmanager’s webhooks",
  trimtab: "A program of yours",
};
const SEVERITIES = {
  "": "As it makes sense there",
  critical: "Critical only",
  warning: "Warnings too",
  info: "Everything",
};

const options = (choices) => Object.entries(choices).map(([value, label]) => h("option", { value }, label));

export function webhookFields() {
  const shape = h("select", {}, options(SHAPES));
  const url = h("input", {
    type: "url",
    required: true,
    maxlength: 2000,
    placeholder: "https://",
    autocomplete: "off",
  });
  const key = h("input", { pattern: "[0-9A-Za-z]{32}", autocomplete: "off", disabled: true });
  shape.addEventListener("change", () => {
    const pages = shape.value === "pagerduty";
    url.required = !pages; // it has an address of its own
    key.required = pages;
    key.disabled = !pages;
  });
  return [
    {
      name: "name",
      label: "What it is called",
      input: h("input", { required: true, maxlength: 64, autocomplete: "off" }),
    },
    { name: "shape", label: "What it goes to", input: shape },
    { name: "url", label: "Where it is reached", input: url },
    { name: "key", label: "Routing key", hint: "Of PagerDuty.", input: key },
    {
      name: "jobs",
      label: "Jobs",
      hint: "Names with * and ?, commas between them.",
      input: h("input", { value: "*", required: true }),
    },
    { name: "severity", label: "The least that it is told of", input: h("select", {}, options(SEVERITIES)) },
  ];
}

// The answers as the service takes them; what is left out is what the shape makes sense with.
export function webhookOf({ name, shape, url, key, jobs, severity, reason }) {
  const wanted = {
    name,
    shape,
    reason,
    jobs: jobs
      .split(",")
      .map((one) => one.trim())
      .filter(Boolean),
  };
  if (url) wanted.url = url;
  if (shape === "pagerduty") wanted.key = key;
  if (severity) wanted.severity = severity;
  return wanted;
}
