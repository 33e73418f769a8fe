// What the page shows, as it was packed, and how its numbers are written.
"use strict";

async function readData() {
  const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function formatBytes(bytes) {
  let unit = 0;
  while (bytes >= 1024 && unit < UNITS.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${bytes} B` : `${bytes.toFixed(2)} ${UNITS[unit]}`;
}

function formatTime(nanos) {
  return `${(nanos / 1e6).toFixed(3)} ms`;
}

// Round distances between ticks, of which `most` at most are in `span`.
function tickOf(span, most, bases, power) {
  let scale = 1;
  for (;;) {
    for (const base of bases) if (span / (base * scale) <= most) return base * scale;
    scale *= power;
  }
}
const byteTick = (span, most) => tickOf(span, most, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512], 1024);
const countTick = (span, most) => tickOf(span, most, [1, 2, 5], 10);

// The first index in sorted values with values[index] > x, less 1: the interval that holds x.
function intervalOf(values, x) {
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > x) high = middle;
    else low = middle + 1;
  }
  return Math.max(0, values[low] > x ? low - 1 : low);
}

// A plan over its steps: its blocks in the order of their begins, and by band the bytes alive at each step.
class Timeline {
  constructor(plan, data) {
    const steps = plan.order.length;
    const blocks = plan.buffers.length;
    this.name = plan.name;
    this.data = data;
    this.steps = steps;
    this.order = plan.order;
    this.arena = plan.arena;
    this.buffers = Int32Array.from(plan.buffers);
    this.begins = new Int32Array(blocks);
    this.ends = new Int32Array(blocks);
    this.offsets = Float64Array.from(plan.offsets);
    this.sizes = Float64Array.from(plan.sizes, (size, i) => size || data.buffers.sizes[plan.buffers[i]]);
    this.bands = new Uint8Array(blocks);
    this.elapsed = new Float64Array(steps + 1);
    this.counted = Float64Array.from({ length: steps + 1 }, (_, step) => step);
    for (let step = 0; step < steps; step += 1) this.elapsed[step + 1] = this.elapsed[step] + plan.times[step];
    const changes = data.bands.map(() => new Float64Array(steps + 1));
    for (const buffer of plan.resident) changes[data.buffers.bands[buffer]][0] += data.buffers.sizes[buffer];
    let begin = 0;
    for (let i = 0; i < blocks; i += 1) {
      begin += plan.begins[i];
      this.begins[i] = begin;
      this.ends[i] = begin + plan.lasts[i];
      this.bands[i] = this.buffers[i] < 0 ? data.workspaces : data.buffers.bands[this.buffers[i]];
      const band = changes[this.bands[i]];
      band[begin] += this.sizes[i];
      band[this.ends[i]] -= this.sizes[i];
    }
    this.live = changes.map((band) => {
      for (let step = 0; step < steps; step += 1) band[step + 1] += band[step];
      return band;
    });
    this.totals = new Float64Array(steps);
    for (let step = 0; step < steps; step += 1) for (const band of this.live) this.totals[step] += band[step];
    this.peak = this.highestIn(0, steps - 1);
  }

  get peakBytes() {
    return this.steps ? this.totals[this.peak] : 0;
  }

  // The first step from one to the other with the most bytes alive.
  highestIn(first, last) {
    let best = first;
    for (let step = first + 1; step <= last; step += 1) if (this.totals[step] > this.totals[best]) best = step;
    return best;
  }

  // "aten.mm (train.py:12, in layers.0)"
  opAt(step) {
    const { texts, ops } = this.data;
    const op = this.order[step];
    const where = [texts[ops.sources[op]], texts[ops.modules[op]] && `in ${texts[ops.modules[op]]}`].filter(Boolean);
    return texts[ops.names[op]] + (where.length ? ` (${where.join(", ")})` : "");
  }

  // The block that covers an address at a step; -1 if none does.
  blockAt(step, address) {
    for (let i = 0; i < this.begins.length && this.begins[i] <= step; i += 1) {
      if (this.ends[i] > step && this.offsets[i] <= address && address < this.offsets[i] + this.sizes[i]) return i;
    }
    return -1;
  }

  describe(block) {
    const { data } = this;
    const buffer = this.buffers[block];
    const last = this.ends[block] - 1;
    const name = buffer < 0 ? "workspace" : data.texts[data.buffers.names[buffer]] || `buffer ${buffer}`;
    const life = last === this.begins[block]
      ? `at step ${last}, ${this.opAt(last)}`
      : `from step ${this.begins[block]}, ${this.opAt(this.begins[block])}, to step ${last}, ${this.opAt(last)}`;
    return `${name}: ${formatBytes(this.sizes[block])} at ${this.offsets[block]}, ${data.bands[this.bands[block]]}, ${life}`;
  }
}
