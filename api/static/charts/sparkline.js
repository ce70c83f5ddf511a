// A signal at a glance: a line without axes, drawn by plotly and not to be touched.

import { onTheme } from "../app/theme.js";
import { lineOf } from "./look.js";
import { plotly } from "./plotly.js";

const WIDTH = 132,
  HEIGHT = 30;

export class Sparkline {
  constructor(element, signal) {
    Object.assign(this, { element, signal, values: null });
    onTheme(() => this.draw(), signal);
  }

  // Values in order; null where one is not finite.
  async show(values) {
    if (JSON.stringify(values) === JSON.stringify(this.values)) return;
    this.values = values;
    await this.draw();
  }

  async draw() {
    if (!this.values) return;
    const library = await plotly();
    if (this.signal.aborted || !this.element.isConnected) return;
    const hidden = { visible: false, fixedrange: true };
    const finite = this.values.filter((value) => value !== null);
    const low = Math.min(...finite),
      high = Math.max(...finite),
      pad = (high - low) * 0.08 || 0.5;
    await library.react(
      this.element,
      [
        {
          y: this.values,
          mode: this.values.length > 1 ? "lines" : "markers",
          line: { ...lineOf("all"), width: 1.3 },
          marker: { size: 4, color: lineOf("all").color },
          hoverinfo: "skip",
        },
      ],
      {
        width: WIDTH,
        height: HEIGHT,
        margin: { l: 1, r: 1, t: 2, b: 2 },
        xaxis: hidden,
        yaxis: { ...hidden, range: [low - pad, high + pad] },
        showlegend: false,
        paper_bgcolor: "rgba(0, 0, 0, 0)",
        plot_bgcolor: "rgba(0, 0, 0, 0)",
      },
      { staticPlot: true },
    );
  }
}
