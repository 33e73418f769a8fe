// Bytes alive at each step: one plan stacked by band, the other plans as lines over it.
"use strict";

class LiveChart extends Chart {
  constructor(canvas, view, timelines, said) {
    super(canvas, view);
    this.timelines = timelines;
    this.timeline = timelines[timelines.length - 1];
    this.said = said;
    this.highest = 1.03 * Math.max(1, ...timelines.map((timeline) => timeline.peakBytes));
  }

  choose(timeline) {
    this.timeline = timeline;
    this.redraw();
    this.say();
  }

  // For each column of pixels the step with the most bytes in it, -1 beyond the plan's end.
  columns(timeline) {
    const { view, plot } = this;
    const edges = view.edges(timeline);
    const steps = new Int32Array(plot.width);
    const perPixel = (view.to - view.from) / plot.width;
    let last = view.stepAt(timeline, view.from);
    for (let column = 0; column < plot.width; column += 1) {
      const until = view.from + (column + 1) * perPixel;
      if (view.from + column * perPixel >= edges[timeline.steps]) {
        steps[column] = -1;
        continue;
      }
      let best = last;
      while (last + 1 < timeline.steps && edges[last + 1] < until) {
        last += 1;
        if (timeline.totals[last] > timeline.totals[best]) best = last;
      }
      steps[column] = best;
    }
    return steps;
  }

  draw() {
    this.begin();
    const { context, plot, timeline } = this;
    const perByte = plot.height / this.highest;
    const bottom = plot.top + plot.height;
    const columns = this.columns(timeline);
    const below = new Float64Array(plot.width);
    timeline.live.forEach((band, index) => {
      context.fillStyle = color(`--band-${index}`);
      for (let column = 0; column < plot.width; ) {
        const step = columns[column];
        let end = column + 1;
        while (end < plot.width && columns[end] === step) end += 1;
        if (step >= 0 && band[step] > 0) {
          const base = below[column];
          const top = Math.round((base + band[step]) * perByte);
          context.fillRect(plot.left + column, bottom - top, end - column, top - Math.round(base * perByte));
          below.fill(base + band[step], column, end);
        }
        column = end;
      }
    });
    for (const other of this.timelines) if (other !== timeline) this.line(other, perByte);
    this.axes(0, this.highest);
    this.drawCursor();
  }

  line(timeline, perByte) {
    const { context, plot, ratio } = this;
    context.strokeStyle = color("--over");
    context.lineWidth = 1.5 * ratio;
    context.beginPath();
    this.columns(timeline).forEach((step, column) => {
      if (step < 0) return;
      const y = plot.top + plot.height - timeline.totals[step] * perByte;
      context.lineTo(plot.left + column, y);
      context.lineTo(plot.left + column + 1, y);
    });
    context.stroke();
  }

  say() {
    const { view, timeline } = this;
    if (view.cursor === null || !timeline.steps) return;
    const step = view.stepAt(timeline, view.cursor);
    const parts = timeline.data.bands
      .map((name, band) => (timeline.live[band][step] ? `${name} ${formatBytes(timeline.live[band][step])}` : ""))
      .filter(Boolean);
    this.said.textContent =
      `Step ${step} of ${timeline.steps} (${timeline.name}), ${timeline.opAt(step)}: ` +
      `${formatBytes(timeline.totals[step])} alive: ${parts.join(", ")}`;
  }
}
