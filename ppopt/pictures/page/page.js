// The page: what is seen, what is said of it, and what keys and pointers do.

const byId = (id) => document.getElementById(id);
const facts = JSON.parse(byId("facts").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const state = { by: "kind", microbatch: null, path: false, picked: null, measured: null };
const charts = [];
let range, waiting = false, printing = false;

// --- colours ---------------------------------------------------------------------------------------------------

function theme() {
  const light = !dark.matches || printing;
  return light
    ? { ink: "#1c1e21", soft: "#5a6069", paper: "#ffffff", idle: facts.colours.idle, limit: facts.colours.limit }
    : { ink: "#e8eaee", soft: "#a9b0bb", paper: "#16181c", idle: "#2b3038", limit: "#ff8a80" };
}

// What is light or dark is part of the figures themselves: they are painted at once, glyphs only later, which is too late to print.
function paintTheme() {
  const colours = theme();
  for (const chart of charts) {
    for (const { figure } of panels(chart)) {
      figure.background_fill_color = colours.idle;
      for (const axis of [...figure.below, ...figure.left, ...figure.right]) {
        if (!axis.major_label_overrides) continue;
        axis.major_label_text_color = axis.axis_label_text_color = axis.axis_line_color = colours.soft;
        axis.major_tick_line_color = axis.minor_tick_line_color = colours.soft;
      }
    }
    const { gap, end, bound, ruler, length, focus } = chart.gantt;
    if (gap) gap.fill_color = colours.paper;
    end.line_color = ruler.line_color = ruler.fill_color = length.text_color = colours.ink;
    length.background_fill_color = colours.paper;
    if (bound) bound.line_color = colours.limit;
    focus.glyph.line_color = { value: colours.ink };
  }
}

const panels = (chart) => [chart.gantt, chart.memory].filter(Boolean);

// --- what is drawn ---------------------------------------------------------------------------------------------

function lit(schedule) {
  if (state.microbatch !== null) return (i) => schedule.microbatch[i] === state.microbatch;
  if (state.path) return (i) => (schedule.waits[i] & 16) !== 0;
  return null;
}

function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const chart of charts) draw(chart);
    tellAddress();
  });
}

function draw(chart) {
  const { schedule, gantt, memory } = chart, per = schedule.facts.per;
  const from = range.start * per, until = range.end * per;
  const width = Math.max(1, gantt.figure.inner_width), height = Math.max(1, gantt.figure.inner_height);
  const { ranges, count } = seen(schedule, from, until);
  const colours = coloursOf(chart);
  chart.drawn = { count, few: count <= MOST };
  gantt.boxes.visible = gantt.numbers.visible = chart.drawn.few;
  gantt.bands.visible = !chart.drawn.few;
  if (chart.drawn.few) {
    const scale = { tick: width / (until - from), row: height / heightOf(schedule) };
    const { data, text } = boxes(schedule, ranges, colours, from, until, scale);
    gantt.boxes.data_source.data = data;
    gantt.numbers.data_source.data = text;
  } else {
    drawBands(chart, ranges, count, colours, from, until, width, height);
  }
  drawFocus(chart);
  if (memory) drawMemory(chart, from, until, width);
}

function drawBands(chart, ranges, count, colours, from, until, width, height) {
  const { schedule, gantt } = chart, ratio = devicePixelRatio || 1, per = schedule.facts.per;
  const pixels = Math.max(1, Math.floor(width * ratio)), rows = heightOf(schedule);
  const busiest = ranges.reduce((most, [low, high]) => Math.max(most, high - low), 0);
  const plan = columnsOf(from, until, pixels, busiest, colours);
  const lines = Math.max(2, 2 * Math.round((height * ratio) / rows / 2));
  const data = imageOf(gantt.bands, plan.columns, Math.round(lines * rows));
  chart.bands.paint(schedule, ranges, colours, plan.from, plan.step, plan.columns, lines, data, plan.stacked);
  place(gantt.bands, plan.from / per, (plan.step * plan.columns) / per, rows);
  chart.drawn = { ...chart.drawn, columns: plan.columns, stacked: plan.stacked };
}

// The pixels of an image, a new array where its size changes.
function imageOf(renderer, columns, lines) {
  const source = renderer.data_source;
  let image = source.data.image[0];
  if (image.shape[0] !== lines || image.shape[1] !== columns) {
    image = new image.constructor(lines * columns, [lines, columns]);
    source.data.image = [image];
  }
  return image;
}

function place(renderer, left, width, rows) {
  const source = renderer.data_source;
  Object.assign(source.data, { x: [left], dw: [width], y: [-0.5], dh: [rows] });
  source.change.emit();
}

function drawFocus(chart) {
  const { schedule, gantt } = chart, i = state.picked && state.picked.chart === chart ? state.picked.index : -1;
  const data = { left: [], right: [], top: [], bottom: [] };
  if (i >= 0) {
    const middle = middleOf(schedule, schedule.row[i]), half = schedule.half[i], per = schedule.facts.per;
    data.left.push(schedule.start[i] / per);
    data.right.push(schedule.end[i] / per);
    data.top.push(middle - (half === PAIR.second ? 0 : BAR / 2));
    data.bottom.push(middle + (half === PAIR.first ? 0 : BAR / 2));
  }
  gantt.focus.data_source.data = data;
}

const FULL = 0.8; // height of the largest amount of memory
const HELD = 0.55; // how opaque what is held is

function drawMemory(chart, from, until, width) {
  const { schedule, memory } = chart, about = schedule.facts.memory, per = schedule.facts.per, devices = schedule.devices;
  const top = Math.max(1, ...about.peak, ...(about.limit || []));
  const steps = [];
  let count = 0;
  for (let device = 0; device < devices; device++) {
    const { times } = schedule.held(device);
    const low = firstOf(0, times.length, (k) => times[k] > from), high = firstOf(low, times.length, (k) => times[k] >= until);
    steps.push([low, high]);
    count += high - low + 1;
  }
  const few = count <= MOST;
  memory.steps.visible = few;
  memory.bands.visible = !few;
  if (few) {
    const data = { left: [], right: [], top: [], bottom: [] };
    steps.forEach(([low, high], device) => {
      const { times, levels } = schedule.held(device), always = about.static[device];
      for (let k = low - 1; k < high; k++) {
        const level = k < 0 ? always : levels[k];
        if (level <= always) continue;
        data.left.push(Math.max(from, k < 0 ? from : times[k]) / per);
        data.right.push((k + 1 < times.length ? Math.min(until, times[k + 1]) : until) / per);
        data.bottom.push(device + FULL / 2 - (FULL * always) / top);
        data.top.push(device + FULL / 2 - (FULL * level) / top);
      }
    });
    memory.steps.data_source.data = data;
  } else {
    const ratio = devicePixelRatio || 1, columns = Math.max(1, Math.floor(width * ratio));
    const lines = Math.max(2, Math.round((memory.figure.inner_height * ratio) / devices));
    const pixels = imageOf(memory.bands, columns, lines * devices).fill(0), colour = packedColour(rgb(facts.colours.kinds.F), HELD);
    for (let device = 0; device < devices; device++) {
      const highest = most(schedule, device, from, (until - from) / columns, columns);
      const bottom = Math.round((device + 0.5 + FULL / 2) * lines) - 1, always = Math.round(((about.static[device] * FULL) / top) * lines);
      for (let column = 0; column < columns; column++) {
        const upto = Math.round(((highest[column] * FULL) / top) * lines);
        for (let line = always; line < upto; line++) pixels[(bottom - line) * columns + column] = colour;
      }
    }
    place(memory.bands, from / per, (until - from) / per, devices);
  }
}

// The colours of a chart, made anew only where something of them has changed.
function coloursOf(chart) {
  const key = JSON.stringify([state.by, state.microbatch, state.path]);
  if (chart.coloured !== key) {
    chart.coloured = key;
    chart.colours = new Colours(chart.schedule, state.by, facts.colours, lit(chart.schedule));
  }
  return chart.colours;
}

// --- the legend ------------------------------------------------------------------------------------------------

function legend() {
  const box = byId("legend");
  box.replaceChildren();
  const entry = (text, ...swatches) => {
    const line = document.createElement("span");
    for (const [style, name] of swatches) {
      const swatch = document.createElement("i");
      swatch.className = name || "";
      Object.assign(swatch.style, style);
      line.append(swatch);
    }
    line.append(text);
    box.append(line);
  };
  if (state.by === "kind") {
    const kinds = new Set(charts.flatMap(({ schedule }) => [...new Set(schedule.kind)]));
    const widest = charts.reduce((a, b) => (a.schedule.facts.shades[0].length >= b.schedule.facts.shades[0].length ? a : b));
    const shades = widest.schedule.facts.shades, ranks = shades[0].length;
    const shown = ranks <= 4 ? shades[0].map((_, k) => k) : [0, 1, 2, 3].map((k) => Math.round((k * (ranks - 1)) / 3));
    for (const kind of [...kinds].sort()) {
      const tones = kind < 4 ? shown.map((k) => shades[kind][k]) : [facts.colours.sends[kind - 4]];
      entry(facts.colours.meaning[KINDS[kind]], ...tones.map((tone) => [{ background: tone }]));
    }
    if (ranks > 1) entry("dark to light: first to last stage of a device");
  } else {
    const largest = Math.max(...charts.map(({ schedule }) => (state.by === "stage" ? schedule.S : schedule.M))) - 1;
    const ramp = `linear-gradient(90deg, ${facts.colours.ramp.join(", ")})`;
    entry(largest < CYCLE ? `${state.by} 0 to ${largest}` : `${state.by} 0 to ${CYCLE - 1}, then again`, [{ background: ramp }, "ramp"]);
  }
  if (charts.some(({ schedule }) => schedule.facts.margins.length)) entry("before the first and after the last operation", [{}, "hatched"]);
  entry("idle", [{ background: theme().idle }, "idle"]);
  entry("end", [{}, "line"]);
  if (charts.some(({ gantt }) => gantt.bound)) entry("lower bound", [{ color: theme().limit }, "line dashed"]);
  if (facts.memory) {
    entry("held", [{ background: css(mixed(rgb(facts.colours.kinds.F), rgb(theme().idle), HELD)) }]);
    if (charts.some(({ schedule }) => schedule.facts.memory.static.some(Boolean))) entry("always held", [{ background: facts.colours.always }]);
    if (charts.some(({ schedule }) => schedule.facts.memory.limit)) entry("memory limit", [{ color: facts.colours.most }, "line dashed"]);
  }
}

// --- what is said ----------------------------------------------------------------------------------------------

const timed = (schedule, ticks) => number(ticks / schedule.facts.per);
const unitOf = (schedule) => (schedule.facts.unit ? ` ${/^\d/.test(schedule.facts.unit) ? "× " : ""}${schedule.facts.unit}` : "");

// What an operation waited for, in words.
function reasons(schedule, i) {
  const bits = schedule.waits[i], words = [], transfer = schedule.kind[i] >= 4;
  const arriving = schedule.needs(i).filter(({ there }) => there === schedule.start[i]);
  if (bits & 1) {
    const whom = arriving.map(({ index }) => schedule.name(index)).join(", ");
    words.push(transfer ? `its result${whom && `: ${whom}`}` : `data${whom && ` of ${whom}`}, there at ${timed(schedule, schedule.start[i])}`);
  }
  if (bits & 2) {
    const before = schedule.before(i);
    words.push(transfer ? "what one of its ends computes" : `the device${before >= 0 ? `, until ${schedule.name(before)} ended` : ""}`);
  }
  if (bits & 4) words.push("memory: it did not fit before");
  if (bits & 8) words.push(transfer ? "its link, in a queue" : "a link");
  if (bits & 32) words.push("the all-gather of its weights");
  return words.length ? words : ["nothing"];
}

function about(schedule, i) {
  const f = schedule.facts, unit = unitOf(schedule), kind = KINDS[schedule.kind[i]], row = schedule.row[i];
  const lines = [`${schedule.name(i)}: ${facts.colours.meaning[kind]}`];
  const stage = `stage ${schedule.stage[i]}, microbatch ${schedule.microbatch[i]}`;
  lines.push(row < schedule.devices ? `${stage}, device ${row}` : `${stage}, ${schedule.kind[i] >= 6 ? "engine" : "link"} ${f.links[row - schedule.devices]}`);
  lines.push(`${timed(schedule, schedule.start[i])} to ${timed(schedule, schedule.end[i])}${unit}, takes ${timed(schedule, schedule.end[i] - schedule.start[i])}`);
  if (schedule.half[i]) {
    const other = schedule.half[i] === PAIR.first ? i + 1 : i - 1;
    lines.push(`one operation with ${schedule.name(other)} (overlapped pair)`);
  }
  lines.push(`waited for ${reasons(schedule, i).join("; ")}`);
  if (schedule.waits[i] & 16) lines.push("on the critical path");
  return lines;
}

function aboutIdle(schedule, row, time) {
  const unit = unitOf(schedule), low = schedule.first[row], high = schedule.first[row + 1];
  const next = schedule.later(row, time), before = next - 1;
  const since = before >= low ? schedule.end[before] : schedule.facts.begin;
  const until = next < high ? schedule.start[next] : schedule.facts.end;
  const margin = schedule.facts.margins.find(([device, a, b]) => device === row && a <= time && time < b);
  if (margin) return [time < schedule.start[low] ? "before its first operation (all-gather)" : "after its last operation (reduce-scatter, optimizer)",
    `${timed(schedule, margin[1])} to ${timed(schedule, margin[2])}${unit}, takes ${timed(schedule, margin[2] - margin[1])}`];
  const head = `idle ${timed(schedule, since)} to ${timed(schedule, until)}${unit}, ${timed(schedule, until - since)} long`;
  if (next >= high) return [head, "nothing comes after it"];
  return [head, `then ${schedule.name(next)}, which waited for ${reasons(schedule, next).join("; ")}`];
}

function aboutMemory(schedule, device, time) {
  const { per, unit, limit, peak, static: always } = schedule.facts.memory, shown = (amount) => number(amount / per) + (unit ? ` ${unit}` : "");
  const lines = [`device ${device} holds ${shown(schedule.holds(device, time))}`, `at ${timed(schedule, time)}${unitOf(schedule)}`];
  lines.push(`peak ${shown(peak[device])}${limit ? `, limit ${shown(limit[device])}` : ""}${always[device] ? `, always ${shown(always[device])}` : ""}`);
  return lines;
}

function tip(lines, x, y) {
  const box = byId("tip");
  if (!lines) {
    box.hidden = true;
    return;
  }
  const [first, ...rest] = lines.map((line, k) => {
    const part = document.createElement(k ? "span" : "b");
    part.textContent = line;
    return part;
  });
  box.replaceChildren(first, ...rest);
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
  box.style.top = `${Math.max(4, y + 18 + height > innerHeight ? y - height - 10 : y + 18)}px`;
}

const say = (text) => (byId("said").textContent = text);

// --- where the pointer is --------------------------------------------------------------------------------------

// The time (ticks) and the height under the pointer; null: it is beside the rows.
function under(chart, panel, event) {
  const box = panel.view.el.getBoundingClientRect(), frame = panel.view.frame.bbox;
  const x = event.clientX - box.left - frame.left, y = event.clientY - box.top - frame.top;
  if (x < 0 || y < 0 || x > frame.width || y > frame.height) return null;
  const time = (range.start + (x / frame.width) * (range.end - range.start)) * chart.schedule.facts.per;
  return { time, y: -0.5 + (y / frame.height) * panel.rows, pixel: ((range.end - range.start) / frame.width) * chart.schedule.facts.per };
}

function hover(chart, panel, event) {
  const place = under(chart, panel, event), { schedule } = chart;
  if (!place || (event.buttons && !state.measuring)) return tip(null);
  if (panel === chart.memory) {
    const device = Math.round(place.y);
    return tip(device >= 0 && device < schedule.devices ? aboutMemory(schedule, device, place.time) : null, event.clientX, event.clientY);
  }
  const at = rowAt(schedule, place.y);
  if (!at || place.time < schedule.facts.begin || place.time > schedule.facts.end) return tip(null);
  const i = schedule.at(at.row, place.time, at.lower);
  tip(i >= 0 ? about(schedule, i) : aboutIdle(schedule, at.row, place.time), event.clientX, event.clientY);
}

function click(chart, event) {
  const place = under(chart, chart.gantt, event), at = place && rowAt(chart.schedule, place.y);
  const i = at ? chart.schedule.at(at.row, place.time, at.lower) : -1;
  const again = i >= 0 && state.picked && state.picked.chart === chart && state.picked.index === i;
  if (i < 0 || again) return pick(null);
  pick({ chart, index: i });
}

function pick(picked) {
  state.picked = picked;
  state.microbatch = picked ? picked.chart.schedule.microbatch[picked.index] : null;
  byId("microbatch").value = state.microbatch ?? "";
  if (picked) say(about(picked.chart.schedule, picked.index).join(". "));
  else say("");
  redraw();
}

// To an operation that the picked one waited for (back), or to one that needs it.
function step(back) {
  if (!state.picked) {
    const chart = charts.find(({ box }) => box.contains(document.activeElement)) || charts[0], { schedule } = chart;
    let first = -1;
    for (let row = 0; row < schedule.devices; row++) {
      const i = schedule.notOver(row, range.start * schedule.facts.per);
      if (i < schedule.first[row + 1] && (first < 0 || schedule.start[i] < schedule.start[first])) first = i;
    }
    if (first >= 0) pick({ chart, index: first });
    return;
  }
  const { chart, index } = state.picked, { schedule } = chart;
  const bits = schedule.waits[index], needs = schedule.needs(index), before = schedule.before(index);
  const data = needs.length ? (needs[0].transfer >= 0 ? needs[0].transfer : needs[0].index) : -1;
  const next = back ? ((bits & 1) || before < 0 || !(bits & 2) ? data : before) : schedule.neededBy(index)[0];
  if (next === undefined || next < 0) return say(back ? "nothing comes before it" : "nothing needs it");
  pick({ chart, index: next });
  bring(schedule, next);
}

// Move so that an operation is seen.
function bring(schedule, i) {
  const per = schedule.facts.per, start = schedule.start[i] / per, end = schedule.end[i] / per, length = range.end - range.start;
  if (start >= range.start && end <= range.end) return;
  show(Math.max(0, (start + end) / 2 - length / 2), Math.max(0, (start + end) / 2 - length / 2) + length);
}

// --- measuring -------------------------------------------------------------------------------------------------

// The nearest edge of an operation of this row, where one is near; else the time itself.
function snapped(chart, place) {
  const at = rowAt(chart.schedule, place.y), near = 8 * place.pixel;
  let best = place.time;
  if (!at) return best;
  const { schedule } = chart, low = schedule.first[at.row], high = schedule.first[at.row + 1];
  const i = schedule.notOver(at.row, place.time);
  for (let k = Math.max(low, i - 2); k < Math.min(high, i + 2); k++) {
    for (const edge of [schedule.start[k], schedule.end[k]]) {
      if (Math.abs(edge - place.time) <= near && (best === place.time || Math.abs(edge - place.time) < Math.abs(best - place.time))) best = edge;
    }
  }
  return best;
}

function measure(chart, a, b) {
  const per = chart.schedule.facts.per, [left, right] = [a, b].map((time) => time / per).sort((x, y) => x - y);
  state.measured = { left, right };
  for (const { gantt } of charts) {
    Object.assign(gantt.ruler, { left, right, visible: true });
    Object.assign(gantt.length, { x: (left + right) / 2, text: ` ${number(right - left)}${unitOf(chart.schedule)} `, visible: true });
  }
  say(`${number(left)} to ${number(right)}: ${number(right - left)}${unitOf(chart.schedule)}`);
}

function unmeasure() {
  state.measured = null;
  for (const { gantt } of charts) gantt.ruler.visible = gantt.length.visible = false;
}

// --- moving ----------------------------------------------------------------------------------------------------

function show(start, end) {
  const whole = facts.end - facts.begin || 1, length = Math.min(Math.max(end - start, whole / 1e7), whole * 3);
  const from = Math.min(Math.max(start, facts.begin - length * 0.9), facts.end - length * 0.1);
  range.setv({ start: from, end: from + length });
}

const whole = () => show(facts.begin, facts.begin + (facts.end - facts.begin || 1) * 1.02);

function zoom(factor) {
  const middle = (range.start + range.end) / 2, half = ((range.end - range.start) / 2) * factor;
  show(middle - half, middle + half);
}

function move(share) {
  const by = (range.end - range.start) * share;
  show(range.start + by, range.end + by);
}

const ACTIONS = {
  ArrowLeft: () => move(-0.2),
  ArrowRight: () => move(0.2),
  ArrowUp: () => zoom(0.7),
  ArrowDown: () => zoom(1 / 0.7),
  KeyA: () => move(-0.2),
  KeyD: () => move(0.2),
  KeyW: () => zoom(0.7),
  KeyS: () => zoom(1 / 0.7),
  "+": () => zoom(0.7),
  "=": () => zoom(0.7),
  "-": () => zoom(1 / 0.7),
  0: whole,
  "[": () => step(true),
  "]": () => step(false),
  BracketLeft: () => step(true),
  BracketRight: () => step(false),
  c: () => togglePath(!state.path),
  "?": () => byId("keys").showModal(),
  Escape: () => {
    unmeasure();
    togglePath(false);
    pick(null);
  },
};

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  const field = event.target.closest && event.target.closest("input, select, textarea, button, summary");
  if (field && event.key !== "Escape") return;
  const arrow = event.code.startsWith("Arrow"), inChart = event.target.closest && event.target.closest(".chart");
  if (arrow && !inChart && (event.code === "ArrowUp" || event.code === "ArrowDown")) return; // the page scrolls
  const action = ACTIONS[event.key] || ACTIONS[event.code];
  if (!action) return;
  event.preventDefault();
  action();
}

function togglePath(on) {
  state.path = on;
  byId("path").checked = on;
  if (on) state.microbatch = state.picked = null;
  if (on) byId("microbatch").value = "";
  if (on) say(charts.map(({ schedule }) => schedule.facts.path).join(" "));
  redraw();
}

// --- the address -----------------------------------------------------------------------------------------------

const exact = (value) => String(Number(value.toPrecision(9)));

function tellAddress() {
  clearTimeout(tellAddress.timer);
  tellAddress.timer = setTimeout(() => {
    const parts = [`t=${exact(range.start)}~${exact(range.end)}`, `by=${state.by}`];
    if (state.microbatch !== null) parts.push(`m=${state.microbatch}`);
    if (state.path) parts.push("path=1");
    try {
      history.replaceState(null, "", `#${parts.join("&")}`);
    } catch {
      // a frame without an address of its own
    }
  }, 150);
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const time = /^(-?[\d.]+(?:e[+-]?\d+)?)[-~](-?[\d.]+(?:e[+-]?\d+)?)$/.exec(given.get("t") || "");
  if (time && Number(time[1]) < Number(time[2])) show(Number(time[1]), Number(time[2]));
  const by = given.get("by");
  if (["kind", "stage", "microbatch"].includes(by)) byId("by").value = state.by = by;
  const m = given.get("m");
  if (m !== null && /^\d+$/.test(m)) byId("microbatch").value = state.microbatch = Number(m);
  if (given.get("path") === "1") byId("path").checked = state.path = true;
}

// --- printing --------------------------------------------------------------------------------------------------

// What is printed is a picture of each chart in light colours, as wide as the paper.
function print() {
  printing = true;
  paintTheme();
  legend();
  for (const chart of charts) {
    for (const panel of panels(chart)) {
      const picture = panel.view.export("png").canvas, copy = panel.printed;
      copy.width = picture.width;
      copy.height = picture.height;
      copy.getContext("2d").drawImage(picture, 0, 0);
    }
  }
}

function printed() {
  printing = false;
  paintTheme();
  legend();
  redraw();
}

// --- the beginning ---------------------------------------------------------------------------------------------

function listen(chart) {
  const { box } = chart;
  let down = null;
  for (const panel of panels(chart)) {
    panel.box.addEventListener("pointermove", (event) => hover(chart, panel, event));
    panel.box.addEventListener("pointerleave", () => tip(null));
  }
  const capture = { capture: true };
  box.addEventListener("pointerdown", (event) => {
    const place = under(chart, chart.gantt, event);
    down = place && { x: event.clientX, y: event.clientY };
    if (!place || !event.shiftKey || event.button) return;
    event.stopPropagation();
    event.preventDefault();
    state.measuring = { chart, from: snapped(chart, place) };
    box.setPointerCapture(event.pointerId);
  }, capture);
  box.addEventListener("pointermove", (event) => {
    if (!state.measuring || state.measuring.chart !== chart) return;
    event.stopPropagation();
    const place = under(chart, chart.gantt, event);
    if (place) measure(chart, state.measuring.from, snapped(chart, place));
  }, capture);
  box.addEventListener("pointerup", (event) => {
    const moved = !down || Math.hypot(event.clientX - down.x, event.clientY - down.y) > 4;
    down = null;
    if (state.measuring) {
      state.measuring = null;
      event.stopPropagation();
    } else if (!moved && !event.button) {
      click(chart, event);
    }
  }, capture);
}

function panelOf(views, kind, k, names) {
  const find = (name) => Bokeh.documents[0].get_model_by_name(`${kind}-${name}-${k}`);
  const figure = find("figure"), box = byId(`${kind}-${k}`);
  const panel = { figure, view: views.get_one(figure), box, printed: byId(`${kind}-printed-${k}`) };
  for (const name of names) panel[name] = find(name);
  return panel;
}

async function begin() {
  const schedules = await Promise.all(facts.charts.map(async (each, k) => new Schedule(each, await inflated(byId(`bars-${k}`).textContent))));
  const document_ = JSON.parse(byId("figures").textContent);
  const [views] = await Bokeh.embed.embed_items(document_.docs, document_.items);
  range = Bokeh.documents[0].get_model_by_name("time");
  schedules.forEach((schedule, k) => {
    const chart = { schedule, bands: new Bands(), box: byId(`gantt-${k}`) };
    chart.gantt = panelOf(views, "gantt", k, ["boxes", "numbers", "bands", "focus", "margins", "gap", "end", "bound", "ruler", "length"]);
    chart.gantt.rows = heightOf(schedule);
    if (facts.memory) {
      chart.memory = panelOf(views, "memory", k, ["steps", "bands"]);
      chart.memory.rows = schedule.devices;
    }
    charts.push(chart);
    listen(chart);
  });
  paintTheme();
  readAddress();
  legend();
  range.change.connect(redraw);
  for (const chart of charts) for (const { figure } of panels(chart)) figure.properties.inner_width.change.connect(redraw);
  dark.addEventListener("change", () => {
    paintTheme();
    legend();
    redraw();
  });
  controls();
  for (const chart of charts) draw(chart);
  requestAnimationFrame(() => requestAnimationFrame(() => (document.body.dataset.ready = "1")));
}

function controls() {
  addEventListener("keydown", pressed);
  addEventListener("beforeprint", print);
  addEventListener("afterprint", printed);
  addEventListener("hashchange", () => {
    readAddress();
    legend();
    redraw();
  });
  byId("by").addEventListener("change", (event) => {
    state.by = event.target.value;
    legend();
    redraw();
  });
  byId("microbatch").addEventListener("input", (event) => {
    state.picked = null;
    state.microbatch = event.target.value === "" ? null : Number(event.target.value);
    redraw();
  });
  byId("path").addEventListener("change", (event) => togglePath(event.target.checked));
  byId("whole").addEventListener("click", whole);
  byId("in").addEventListener("click", () => zoom(0.7));
  byId("out").addEventListener("click", () => zoom(1 / 0.7));
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("close").addEventListener("click", () => byId("keys").close());
}

function failed(error) {
  document.body.dataset.error = "1";
  const told = byId("failed");
  told.hidden = false;
  told.textContent = `This page cannot be shown in this browser: ${error && error.message ? error.message : error}`;
  console.error(error);
}

begin().catch(failed);
