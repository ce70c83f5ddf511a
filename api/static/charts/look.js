// How charts look, in the colours of the page.

import { colour } from "../app/theme.js";

export const MARGIN = { l: 48, r: 12, t: 16, b: 22 };

// By the `look` of a line: the colour, and what tells it apart without one.
const LOOKS = {
  negative: { color: "negative", width: 1.6, dash: "solid" },
  positive: { color: "positive", width: 1.6, dash: "solid" },
  all: { color: "all", width: 1.6, dash: "solid" },
  second: { color: "second", width: 1.5, dash: "5px,2px" },
  third: { color: "third", width: 1.5, dash: "2px,2px" },
};

export const lineOf = (look) => ({ ...LOOKS[look], color: colour(LOOKS[look].color), simplify: true });

export function faded(name, share) {
  const [r, g, b] = colour(name).match(/[\d.]+/g);
  return `rgba(${r}, ${g}, ${b}, ${share})`;
}

export const CONFIG = {
  displayModeBar: false,
  doubleClick: false,
  scrollZoom: false,
  showTips: false,
  responsive: true,
};

export function layout({ height, range, yaxis, shapes = [], annotations = [] }) {
  const ink = colour("muted");
  const axis = {
    color: ink,
    gridcolor: colour("grid"),
    linecolor: colour("line"),
    zeroline: false,
    automargin: false,
    ticklen: 3,
    tickcolor: "rgba(0, 0, 0, 0)",
    tickfont: { size: 11, color: ink },
  };
  return {
    height,
    autosize: true,
    margin: MARGIN,
    paper_bgcolor: "rgba(0, 0, 0, 0)",
    plot_bgcolor: "rgba(0, 0, 0, 0)",
    font: { family: "ui-sans-serif, system-ui, Liberation Sans, Arial, sans-serif", size: 11, color: ink },
    showlegend: false,
    hovermode: false,
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    xaxis: { ...axis, range, showgrid: false, showline: true, nticks: 8, tickformat: "d" },
    yaxis: { ...axis, fixedrange: true, nticks: 5, tickformat: "~g", hoverformat: "~g", exponentformat: "e", ...yaxis },
    yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
    shapes,
    annotations,
  };
}
