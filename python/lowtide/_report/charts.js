// What both charts have: a canvas with axes, one view of the time, one cursor, keys and the mouse.
"use strict";

const MARGIN = { left: 76, right: 28, top: 10, bottom: 26 };

const colors = new Map(); // of the theme that is shown, asked for once each

function color(name) {
  if (!colors.has(name)) colors.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return colors.get(name);
}

// Which steps are seen: in steps or in nanoseconds, for all plans alike.
class TimeView {
  constructor(timelines, unit) {
    this.timelines = timelines;
    this.listeners = [];
    this.cursor = null; // in the same unit
    const timed = timelines.every((timeline) => timeline.elapsed[timeline.steps] > 0);
    this.setUnit(timed ? unit : "step");
  }

  setUnit(unit) {
    this.unit = unit;
    this.full = Math.max(1, ...this.timelines.map((timeline) => this.edges(timeline)[timeline.steps]));
    this.from = 0;
    this.to = this.full;
    this.cursor = null;
    this.tell();
  }

  // Where each step begins, and where the last one ends.
  edges(timeline) {
    return this.unit === "step" ? timeline.counted : timeline.elapsed;
  }

  stepAt(timeline, x) {
    return Math.min(timeline.steps - 1, intervalOf(this.edges(timeline), x));
  }

  show(from, to) {
    const least = this.unit === "step" ? 4 : this.full / 1e6;
    const span = Math.min(this.full, Math.max(least, to - from));
    this.from = Math.min(Math.max(0, from), this.full - span);
    this.to = this.from + span;
    this.tell();
  }

  zoom(factor, around = this.cursor ?? (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  pan(by) {
    this.show(this.from + by, this.to + by);
  }

  point(x) {
    this.cursor = x === null ? null : Math.min(this.full, Math.max(0, x));
    if (this.cursor !== null && this.cursor < this.from) return this.pan(this.cursor - this.from);
    if (this.cursor !== null && this.cursor > this.to) return this.pan(this.cursor - this.to);
    return this.tell();
  }

  tell() {
    for (const listener of this.listeners) listener();
  }
}

class Chart {
  constructor(canvas, view) {
    this.canvas = canvas;
    this.view = view;
    this.context = canvas.getContext("2d");
    this.waiting = false;
    view.listeners.push(() => this.redraw());
    new ResizeObserver(() => this.redraw()).observe(canvas);
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    canvas.addEventListener("pointerup", () => { this.dragged = null; });
    canvas.addEventListener("pointercancel", () => { this.dragged = null; });
  }

  // At most once a frame.
  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  // The canvas at the screen's own pixels: `plot` is what is inside the axes.
  begin() {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const { clientWidth, clientHeight } = this.canvas;
    const width = Math.max(1, Math.round(clientWidth * ratio));
    const height = Math.max(1, Math.round(clientHeight * ratio));
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.ratio = ratio;
    this.plot = {
      left: Math.round(MARGIN.left * ratio),
      top: Math.round(MARGIN.top * ratio),
      width: Math.max(1, width - Math.round((MARGIN.left + MARGIN.right) * ratio)),
      height: Math.max(1, height - Math.round((MARGIN.top + MARGIN.bottom) * ratio)),
    };
    this.context.fillStyle = color("--paper");
    this.context.fillRect(0, 0, width, height);
  }

  // Ticks below, of the time, and at the left, of bytes from `low` to `high`.
  axes(low, high) {
    const { context, plot, ratio, view } = this;
    context.font = `${12 * ratio}px system-ui, sans-serif`;
    context.fillStyle = color("--ink");
    context.strokeStyle = color("--line");
    context.lineWidth = ratio;
    context.textBaseline = "middle";
    context.textAlign = "right";
    const byteStep = byteTick(high - low, 7);
    for (let bytes = Math.ceil(low / byteStep) * byteStep; bytes <= high; bytes += byteStep) {
      const y = plot.top + plot.height * (1 - (bytes - low) / (high - low));
      context.fillText(formatBytes(bytes).replace(/\.00 /, " "), plot.left - 6 * ratio, y);
      context.beginPath();
      context.moveTo(plot.left - 3 * ratio, y);
      context.lineTo(plot.left, y);
      context.stroke();
    }
    context.textBaseline = "top";
    context.textAlign = "center";
    const scale = view.unit === "step" ? 1 : 1e6;
    const span = (view.to - view.from) / scale;
    const shrink = view.unit === "step" ? 1 : 1e6;
    const timeStep = countTick(span * shrink, Math.max(2, Math.floor(plot.width / (90 * ratio)))) / shrink;
    const digits = Math.max(0, -Math.floor(Math.log10(timeStep) + 1e-9));
    for (let i = Math.ceil(view.from / scale / timeStep); i * timeStep <= view.to / scale; i += 1) {
      const text = (i * timeStep).toFixed(digits) + (view.unit === "step" ? "" : " ms");
      context.fillText(text, plot.left + this.acrossOf(i * timeStep * scale), plot.top + plot.height + 6 * ratio);
    }
    context.strokeRect(plot.left, plot.top, plot.width, plot.height);
  }

  acrossOf(x) {
    return ((x - this.view.from) / (this.view.to - this.view.from)) * this.plot.width;
  }

  drawCursor() {
    const { context, plot, view, ratio } = this;
    if (view.cursor === null || view.cursor < view.from || view.cursor > view.to) return;
    const x = plot.left + this.acrossOf(view.cursor);
    context.strokeStyle = color("--ink");
    context.lineWidth = ratio;
    context.beginPath();
    context.moveTo(x, plot.top);
    context.lineTo(x, plot.top + plot.height);
    context.stroke();
  }

  // Where the mouse is: across in the view's unit, up as a share of the plot.
  placeOf(event) {
    const box = this.canvas.getBoundingClientRect();
    const { plot, ratio, view } = this;
    const across = ((event.clientX - box.left) * ratio - plot.left) / plot.width;
    const up = 1 - ((event.clientY - box.top) * ratio - plot.top) / plot.height;
    return { x: view.from + Math.min(1, Math.max(0, across)) * (view.to - view.from), up: Math.min(1, Math.max(0, up)) };
  }

  onDown(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.dragged = event;
  }

  onMove(event) {
    const place = this.placeOf(event);
    if (this.dragged) {
      const { plot, ratio, view } = this;
      const by = ((event.clientX - this.dragged.clientX) * ratio) / plot.width;
      this.panUp((((event.clientY - this.dragged.clientY) * ratio) / plot.height));
      this.dragged = event;
      view.pan(-by * (view.to - view.from));
    } else {
      this.pointUp(place.up);
      this.view.point(place.x);
      this.say();
    }
  }

  onWheel(event) {
    if (!event.ctrlKey && !event.metaKey && !event.altKey) return; // the page scrolls
    event.preventDefault();
    const factor = 1.2 ** Math.sign(event.deltaY);
    const place = this.placeOf(event);
    this.zoomUp(factor, place.up);
    if (!event.altKey) this.view.zoom(factor, place.x);
    this.redraw();
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { view } = this;
    const span = view.to - view.from;
    const sideways = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const upwards = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (sideways && event.shiftKey) view.pan((sideways * span) / 10);
    else if (sideways) this.moveCursor(sideways);
    else if (upwards && !this.moveUp(upwards, event.shiftKey)) return;
    else if (upwards) this.redraw();
    else if (event.key === "+" || event.key === "=") this.zoomBoth(1 / 1.5);
    else if (event.key === "-") this.zoomBoth(1.5);
    else if (event.key === "0") this.showAll();
    else if (event.key === "p" || event.key === "P") this.goToPeak();
    else return;
    event.preventDefault();
    this.say();
  }

  // By a step, or by a hundredth of what is seen if that is more.
  moveCursor(by) {
    const { view, timeline } = this;
    const edges = view.edges(timeline);
    const step = view.cursor === null ? timeline.peak : view.stepAt(timeline, view.cursor);
    let next = Math.min(timeline.steps - 1, Math.max(0, step + by));
    const far = (view.cursor ?? edges[step]) + (by * (view.to - view.from)) / 100;
    if (view.cursor !== null && Math.abs(far - view.cursor) > Math.abs(edges[next] - view.cursor)) {
      next = view.stepAt(timeline, Math.max(0, far));
    }
    view.point((edges[next] + edges[next + 1]) / 2);
  }

  goToPeak() {
    const { view, timeline } = this;
    const edges = view.edges(timeline);
    view.point((edges[timeline.peak] + edges[timeline.peak + 1]) / 2);
  }

  zoomBoth(factor) {
    this.zoomUp(factor, 0.5);
    this.view.zoom(factor);
  }

  showAll() {
    this.view.show(0, this.view.full);
  }

  // Charts that can move up and down say how.
  moveUp() { return false; }
  pointUp() {}
  panUp() {}
  zoomUp() {}
}
