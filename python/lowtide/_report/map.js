// Where each block lies in the arena while it lives. Every rectangle is written into an image, pixel by pixel: blocks do
// not overlap, so a frame takes the pixels of the image and a look at each block, however many are seen.
"use strict";

class AddressMap extends Chart {
  constructor(canvas, view, timelines, said) {
    super(canvas, view);
    this.said = said;
    this.timelines = timelines;
    this.up = 0.5; // of the cursor, as a share of what is seen
    this.choose(timelines[timelines.length - 1]);
  }

  choose(timeline) {
    this.timeline = timeline;
    this.low = 0;
    this.high = Math.max(1, timeline.arena);
    this.redraw();
  }

  // The bytes of a color as the image has them, and of its darker edge.
  pixels(name) {
    const probe = document.createElement("canvas").getContext("2d");
    probe.fillStyle = color(name);
    probe.fillRect(0, 0, 1, 1);
    const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
    const word = (share) => new Uint32Array(Uint8Array.from([red * share, green * share, blue * share, 255]).buffer)[0];
    return [word(1), word(0.72)];
  }

  palette() {
    const theme = color("--paper");
    if (this.paletteOf !== theme) {
      this.paletteOf = theme;
      this.colors = this.timeline.data.bands.map((_, band) => this.pixels(`--band-${band}`));
      this.background = this.pixels("--panel")[0];
    }
  }

  draw() {
    this.begin();
    this.palette();
    const { plot, context } = this;
    if (!this.image || this.image.width !== plot.width || this.image.height !== plot.height) {
      this.image = context.createImageData(plot.width, plot.height);
      this.words = new Uint32Array(this.image.data.buffer);
    }
    this.words.fill(this.background);
    this.fillBlocks();
    context.putImageData(this.image, plot.left, plot.top);
    this.axes(this.low, this.high);
    this.drawCursor();
    this.outline();
  }

  fillBlocks() {
    const { begins, ends, offsets, sizes, bands } = this.timeline;
    const { words, colors, low, high, view } = this;
    const { width, height } = this.plot;
    const edges = view.edges(this.timeline);
    const first = view.stepAt(this.timeline, view.from);
    const last = view.stepAt(this.timeline, view.to);
    const perUnit = width / (view.to - view.from);
    const perByte = height / (high - low);
    for (let i = 0; i < begins.length; i += 1) {
      if (begins[i] > last) break;
      if (ends[i] <= first || offsets[i] >= high || offsets[i] + sizes[i] <= low) continue;
      const left = Math.max(0, Math.floor((edges[begins[i]] - view.from) * perUnit));
      const right = Math.min(width, Math.max(left + 1, Math.floor((edges[ends[i]] - view.from) * perUnit)));
      const bottom = Math.min(height - 1, height - 1 - Math.floor((offsets[i] - low) * perByte));
      const above = height - 1 - Math.floor((offsets[i] + sizes[i] - low) * perByte);
      const top = Math.max(-1, Math.min(bottom - 1, above));
      const [fill, edge] = colors[bands[i]];
      const edged = right - left > 3 && bottom - top > 3;
      for (let row = top + 1; row <= bottom; row += 1) {
        const start = row * width;
        const shade = edged && row === bottom ? edge : fill;
        if (right - left > 16) words.fill(shade, start + left, start + right);
        else for (let pixel = start + left; pixel < start + right; pixel += 1) words[pixel] = shade; // faster
        if (edged) words[start + left] = edge;
      }
    }
  }

  // Around what the cursor is on.
  outline() {
    const block = this.pointed();
    if (block < 0) return;
    const { context, plot, ratio, low, high, view, timeline } = this;
    const edges = view.edges(timeline);
    const left = Math.max(0, this.acrossOf(edges[timeline.begins[block]]));
    const right = Math.min(plot.width, this.acrossOf(edges[timeline.ends[block]]));
    const heightOf = (bytes) => Math.min(plot.height, Math.max(0, ((bytes - low) / (high - low)) * plot.height));
    const bottom = heightOf(timeline.offsets[block]);
    const top = heightOf(timeline.offsets[block] + timeline.sizes[block]);
    context.strokeStyle = color("--ink");
    context.lineWidth = 2 * ratio;
    context.strokeRect(plot.left + left, plot.top + plot.height - top, Math.max(1, right - left), Math.max(1, top - bottom));
  }

  get address() {
    return this.low + this.up * (this.high - this.low);
  }

  // The block under the cursor; -1 if there is none.
  pointed() {
    const { view, timeline } = this;
    if (view.cursor === null || !timeline.steps) return -1;
    return timeline.blockAt(view.stepAt(timeline, view.cursor), this.address);
  }

  say() {
    if (this.view.cursor === null || !this.timeline.steps) return;
    const block = this.pointed();
    const step = this.view.stepAt(this.timeline, this.view.cursor);
    this.said.textContent =
      block < 0
        ? `Step ${step}, address ${Math.round(this.address)} (${formatBytes(Math.round(this.address))}): free`
        : this.timeline.describe(block);
  }

  showBytes(low, high) {
    const arena = Math.max(1, this.timeline.arena);
    const span = Math.min(arena, Math.max(256, high - low));
    this.low = Math.min(Math.max(0, low), arena - span);
    this.high = this.low + span;
    this.redraw();
  }

  moveUp(by, pans) {
    const span = this.high - this.low;
    if (pans) this.showBytes(this.low + (by * span) / 10, this.high + (by * span) / 10);
    else this.up = Math.min(1, Math.max(0, this.up + by / 50));
    return true;
  }

  pointUp(up) {
    this.up = up;
  }

  panUp(share) {
    const by = share * (this.high - this.low);
    this.showBytes(this.low + by, this.high + by);
  }

  zoomUp(factor, up) {
    const around = this.low + up * (this.high - this.low);
    this.showBytes(around - (around - this.low) * factor, around + (this.high - around) * factor);
  }

  showAll() {
    this.showBytes(0, this.timeline.arena);
    super.showAll();
  }
}
