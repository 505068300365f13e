// What is drawn of a schedule at a range of times: single boxes where there are few, one image where there are many.

const MOST = 2500;    // boxes of one chart; with more it is an image
const BAR = 0.86;     // height of a bar; rows are 1 apart
const APART = 0.5;    // room between devices and links
const STACKED = 16;   // with at most so many colours the shares of a pixel are stacked, beyond they are mixed
const DENSE = 2;      // operations a pixel, from which shares are stacked
const CYCLE = 32;     // stages and microbatches have so many colours, from dark to light; then the same again
const PALE = 0.15;    // what is left of the colour of what is not looked at

const rgb = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
const css = (colour) => "#" + colour.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("");
const mixed = (a, b, share) => a.map((part, k) => part * share + b[k] * (1 - share));
const packedColour = (colour, opaque = 1) =>
  (Math.round(255 * opaque) << 24 | Math.round(colour[2]) << 16 | Math.round(colour[1]) << 8 | Math.round(colour[0])) >>> 0;

function ink(colour) {
  const linear = colour.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return 1.05 / (light + 0.05) > (light + 0.05) / 0.05 ? "#ffffff" : "#000000";
}

const heightOf = (schedule) => schedule.devices + (schedule.lines ? APART + schedule.lines : 0);
const middleOf = (schedule, row) => (row < schedule.devices ? row : row + APART);

function rowAt(schedule, y) {
  const row = y < schedule.devices - 0.5 ? Math.round(y) : Math.round(y - APART);
  const off = y - middleOf(schedule, row);
  return row >= 0 && row < schedule.rows && Math.abs(off) <= 0.5 ? { row, lower: off > 0 } : null;
}

// The colours of operations: the class of each, and the colour of each class; those that are pale come after all others. Nothing
// here depends on whether the page is light or dark.
class Colours {
  constructor(schedule, by, colours, lit) {
    this.lit = lit;
    const shades = schedule.facts.shades, ranks = shades[0].length, ramp = colours.ramp.map(rgb);
    const along = (k, count) => {
      const place = count > 1 ? (k / (count - 1)) * (ramp.length - 1) : 0, low = Math.min(Math.floor(place), ramp.length - 2);
      return mixed(ramp[low + 1], ramp[low], place - low);
    };
    if (by === "stage") {
      this.ramp(Math.min(schedule.S, CYCLE), along);
      this.of = (i) => schedule.stage[i] % CYCLE;
    } else if (by === "microbatch") {
      this.ramp(Math.min(schedule.M, CYCLE), along);
      this.of = (i) => schedule.microbatch[i] % CYCLE;
    } else {
      this.strong = [...shades.flat(), ...colours.sends].map(rgb);
      const rank = schedule.facts.rank;
      this.of = (i) => {
        const kind = schedule.kind[i];
        return kind < 4 ? kind * ranks + rank[schedule.route(schedule.microbatch[i])][schedule.stage[i]] : 4 * ranks + kind - 4;
      };
    }
    this.count = this.strong.length;
    this.all = [...this.strong, ...this.strong];
    this.opaque = this.all.map((_, k) => (k < this.count ? 1 : PALE));
    this.css = this.all.map((colour, k) => css(colour) + (k < this.count ? "" : Math.round(255 * PALE).toString(16)));
    this.ink = this.all.map((colour, k) => (k < this.count ? ink(colour) : "#8a8f98"));
  }

  ramp(count, along) {
    this.strong = Array.from({ length: count }, (_, k) => along(k, count));
  }

  // The class of an operation.
  index(i) {
    return this.of(i) + (this.lit && !this.lit(i) ? this.count : 0);
  }
}

// The range of operations that are seen on each row, and how many there are.
function seen(schedule, from, until) {
  const ranges = [];
  let count = 0;
  for (let row = 0; row < schedule.rows; row++) {
    const low = schedule.notOver(row, from), high = Math.max(low, schedule.later(row, until));
    ranges.push([low, high]);
    count += high - low;
  }
  return { ranges, count };
}

// Boxes, and the numbers that fit into what is seen of them; the wide ones say their kind, too. `scale`: pixels of a tick, and of a
// row. What is given back is in the user's unit.
function boxes(schedule, ranges, colours, from, until, scale) {
  const data = { left: [], right: [], top: [], bottom: [], colour: [], edge: [] };
  const text = { x: [], y: [], text: [], colour: [], size: [] };
  const per = schedule.facts.per;
  ranges.forEach(([low, high], row) => {
    const middle = middleOf(schedule, row);
    for (let i = low; i < high; i++) {
      if (schedule.end[i] <= schedule.start[i]) continue;
      const half = schedule.half[i], top = half === PAIR.second ? 0 : -BAR / 2, bottom = half === PAIR.first ? 0 : BAR / 2;
      const left = Math.max(schedule.start[i], from), right = Math.min(schedule.end[i], until), index = colours.index(i);
      data.left.push(schedule.start[i] / per);
      data.right.push(schedule.end[i] / per);
      data.top.push(middle + top);
      data.bottom.push(middle + bottom);
      data.colour.push(colours.css[index]);
      data.edge.push(index < colours.count && (schedule.end[i] - schedule.start[i]) * scale.tick > 4 ? 1 : 0);
      const size = Math.min(12, scale.row * (bottom - top) * 0.85), room = ((right - left) * scale.tick - 3) / (0.6 * size);
      let label = String(schedule.microbatch[i]);
      if (size < 6 || room < label.length) continue;
      if (schedule.kind[i] < 4 && room >= label.length + 3) label = KINDS[schedule.kind[i]] + label;
      text.x.push((left + right) / 2 / per);
      text.y.push(middle + (top + bottom) / 2);
      text.text.push(label);
      text.colour.push(colours.ink[index]);
      text.size.push(`${size}px`);
    }
  });
  return { data, text };
}

// An image of all rows: `width` columns and, for each row, `height` lines. Each column shows what runs in its time.
class Bands {
  constructor() {
    this.shares = new Float32Array(0);
  }

  // How much of each column each class has. Columns are `step` ticks wide.
  accumulate(schedule, low, high, colours, from, step, columns, classes) {
    const size = columns * classes;
    if (this.shares.length < size) this.shares = new Float32Array(size);
    const shares = this.shares.fill(0, 0, size), until = from + step * columns;
    for (let i = low; i < high; i++) {
      const a = Math.max(schedule.start[i], from), b = Math.min(schedule.end[i], until);
      if (b <= a) continue;
      const index = colours.index(i), weight = (schedule.half[i] ? 0.5 : 1) / step;
      const x = (a - from) / step, y = (b - from) / step;
      const first = Math.min(columns - 1, Math.floor(x)), last = Math.min(columns - 1, Math.floor(y));
      if (first === last) {
        shares[first * classes + index] += (b - a) * weight;
        continue;
      }
      shares[first * classes + index] += (first + 1 - x) * step * weight;
      for (let k = first + 1; k < last; k++) shares[k * classes + index] += step * weight;
      shares[last * classes + index] += (y - last) * step * weight;
    }
    return shares;
  }

  // The mean colour of each column, how opaque it is, and its share of the time: red, green and blue times opaque, opaque, share.
  mean(schedule, low, high, colours, from, step, columns) {
    const size = columns * 5;
    if (this.shares.length < size) this.shares = new Float32Array(size);
    const sums = this.shares.fill(0, 0, size), until = from + step * columns;
    const add = (column, k, amount) => {
      const at = column * 5, colour = colours.all[k], opaque = colours.opaque[k] * amount;
      sums[at] += colour[0] * opaque;
      sums[at + 1] += colour[1] * opaque;
      sums[at + 2] += colour[2] * opaque;
      sums[at + 3] += opaque;
      sums[at + 4] += amount;
    };
    for (let i = low; i < high; i++) {
      const a = Math.max(schedule.start[i], from), b = Math.min(schedule.end[i], until);
      if (b <= a) continue;
      const index = colours.index(i), weight = schedule.half[i] ? 0.5 : 1;
      const x = (a - from) / step, y = (b - from) / step;
      const first = Math.min(columns - 1, Math.floor(x)), last = Math.min(columns - 1, Math.floor(y));
      if (first === last) {
        add(first, index, (y - x) * weight);
        continue;
      }
      add(first, index, (first + 1 - x) * weight);
      for (let k = first + 1; k < last; k++) add(k, index, weight);
      add(last, index, (y - last) * weight);
    }
    return sums;
  }

  // `pixels`: lines of `columns` pixels, the first line at the top; every row has `height` lines.
  paint(schedule, ranges, colours, from, step, columns, height, pixels, stacked) {
    pixels.fill(0);
    const packed = colours.all.map((colour, k) => packedColour(colour, colours.opaque[k])), classes = colours.all.length;
    const margin = Math.round(((1 - BAR) / 2) * height), inside = Math.max(1, height - 2 * margin);
    ranges.forEach(([low, high], row) => {
      if (low === high) return;
      const bottom = Math.round((middleOf(schedule, row) + 1) * height) - margin - 1; // the first row begins 0.5 above 0
      if (stacked) {
        const shares = this.accumulate(schedule, low, high, colours, from, step, columns, classes);
        for (let column = 0; column < columns; column++) {
          let level = 0, line = 0;
          for (let k = 0; k < classes; k++) {
            const share = shares[column * classes + k];
            if (!share) continue;
            level += share;
            for (const upto = Math.min(inside, Math.round(level * inside)); line < upto; line++) {
              pixels[(bottom - line) * columns + column] = packed[k];
            }
          }
        }
      } else {
        const sums = this.mean(schedule, low, high, colours, from, step, columns);
        for (let column = 0; column < columns; column++) {
          const [red, green, blue, opaque, share] = sums.subarray(column * 5, column * 5 + 5);
          if (!share) continue;
          const colour = packedColour([red / opaque, green / opaque, blue / opaque], Math.min(1, opaque / share));
          const upto = Math.min(inside, Math.max(1, Math.round(share * inside)));
          for (let line = 0; line < upto; line++) pixels[(bottom - line) * columns + column] = colour;
        }
      }
    });
  }
}

// How an image has its columns: where the first begins, how wide they are in ticks, how many there are, and what they show.
function columnsOf(from, until, pixels, operations, colours) {
  const dense = operations / pixels;
  if (dense <= DENSE || colours.count > STACKED) return { from, step: (until - from) / pixels, columns: pixels, stacked: false };
  const wide = Math.min(8, Math.max(1, Math.round(16 / dense))), step = ((until - from) / pixels) * wide;
  if (wide === 1) return { from, step, columns: pixels, stacked: true };
  const begin = Math.floor(from / step) * step; // the same columns wherever the chart is moved to
  return { from: begin, step, columns: Math.ceil((until - begin) / step), stacked: true };
}

// The most that a device holds in each of `columns` parts of the time.
function most(schedule, device, from, step, columns) {
  const { times, levels } = schedule.held(device), found = new Float64Array(columns);
  let k = firstOf(0, times.length, (j) => times[j] > from);
  for (let column = 0; column < columns; column++) {
    let level = k ? levels[k - 1] : schedule.holds(device, -Infinity);
    const until = from + step * (column + 1);
    while (k < times.length && times[k] < until) level = Math.max(level, levels[k++]);
    found[column] = level;
  }
  return found;
}
