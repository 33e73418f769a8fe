// Puts the charts on the page.
"use strict";

function radios(holder, name, timelines, chosen, choose) {
  timelines.forEach((timeline, index) => {
    const label = document.createElement("label");
    const input = document.createElement("input");
    input.type = "radio";
    input.name = name;
    input.value = String(index);
    input.checked = timeline === chosen;
    input.addEventListener("change", () => choose(timeline));
    label.append(input, ` ${timeline.name}`);
    holder.append(label);
  });
}

function fillLegend(list, data, chart) {
  list.replaceChildren();
  const add = (band, text) => {
    const item = document.createElement("li");
    const swatch = document.createElement("span");
    swatch.className = "swatch";
    swatch.dataset.band = band;
    item.append(swatch, text);
    list.append(item);
  };
  data.bands.forEach((name, band) => {
    if (chart.timeline.live[band].some((bytes) => bytes > 0)) add(String(band), name);
  });
  for (const other of chart.timelines) if (other !== chart.timeline) add("over", `${other.name}, all of it`);
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

// How fast the map zooms, counted: frames a second over in and out again. Asked for by the address page.html#measure.
async function measureZoom(map, view) {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const frames = 120;
  const drawn = [];
  const draw = map.draw.bind(map);
  map.draw = () => {
    const before = performance.now();
    draw();
    drawn.push(performance.now() - before);
  };
  await frame();
  const begin = performance.now();
  for (let i = 0; i < frames; i += 1) {
    const factor = i < frames / 2 ? 1 / 1.1 : 1.1;
    map.zoomUp(factor, 0.5);
    view.zoom(factor, view.full / 2);
    await frame();
  }
  const seconds = (performance.now() - begin) / 1000;
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  document.documentElement.dataset.measured = JSON.stringify({
    blocks: map.timeline.begins.length,
    frames: drawn.length,
    framesPerSecond: drawn.length / seconds,
    slowestDrawMs: Math.max(...drawn),
    firstPaintMs: paint ? paint.startTime : null,
    readyMs: begin,
  });
}

async function main() {
  const data = await readData();
  const timelines = data.plans.map((plan) => new Timeline(plan, data));
  for (const element of document.querySelectorAll(".needs-script, #theme")) element.hidden = false;
  const view = new TimeView(timelines, document.getElementById("live-unit").dataset.first);
  const byId = (id) => document.getElementById(id);
  const live = new LiveChart(byId("live-canvas"), view, timelines, byId("live-said"));
  const map = new AddressMap(byId("map-canvas"), view, timelines, byId("map-said"));
  fillLegend(byId("live-legend"), data, live);
  radios(byId("live-plans"), "stacked", timelines, live.timeline, (timeline) => {
    live.choose(timeline);
    fillLegend(byId("live-legend"), data, live);
  });
  radios(byId("map-plans"), "mapped", timelines, map.timeline, (timeline) => map.choose(timeline));
  for (const input of document.querySelectorAll("input[name=unit]")) {
    input.checked = input.value === view.unit;
    input.disabled = input.value === "time" && !timelines.some((timeline) => timeline.elapsed[timeline.steps] > 0);
    input.addEventListener("change", () => view.setUnit(input.value));
  }
  const viewButtons = { in: () => view.zoom(1 / 1.5), out: () => view.zoom(1.5), all: () => live.showAll(), peak: () => live.goToPeak() };
  for (const button of document.querySelectorAll("[data-view]")) {
    button.addEventListener("click", () => {
      viewButtons[button.dataset.view]();
      live.say();
    });
  }
  const mapButtons = { in: () => map.zoomUp(1 / 1.5, map.up), out: () => map.zoomUp(1.5, map.up), all: () => map.showAll() };
  for (const button of document.querySelectorAll("[data-map]")) {
    button.addEventListener("click", () => mapButtons[button.dataset.map]());
  }
  const repaint = () => {
    colors.clear();
    view.tell();
  };
  byId("theme").addEventListener("click", () => {
    switchTheme();
    repaint();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  document.documentElement.dataset.ready = JSON.stringify(timelines.map((timeline) => timeline.peakBytes));
  if (location.hash === "#measure") await measureZoom(map, view);
}

main();
