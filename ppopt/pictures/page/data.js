// Schedules as the page holds them. Times are in ticks until something is drawn or said.

const KINDS = ["F", "B", "I", "W", "SEND_F", "SEND_B", "OFFLOAD", "RELOAD"];
const PAIR = { first: 1, second: 2 };

async function inflated(text) {
  const packed = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// The first index in [low, high) for which the test holds; high: it holds for none. It holds from some index on.
function firstOf(low, high, test) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

class Schedule {
  constructor(facts, bytes) {
    this.facts = facts;
    this.devices = facts.devices;
    this.lines = facts.links.length;
    this.S = facts.stages;
    this.M = facts.microbatches;
    this.first = [0];
    for (const length of facts.rows) this.first.push(this.first.at(-1) + length);
    this.count = this.first.at(-1);
    this.unpack(bytes);
    this.curves = [];
  }

  // The planes as they are packed: steps between starts, durations, codes, waits, halves.
  unpack(bytes) {
    const n = this.count, wide = this.facts.doubles ? 8 : 4;
    const Times = this.facts.doubles ? Float64Array : Int32Array;
    const steps = new Times(bytes, 0, n), durations = new Times(bytes, n * wide, n);
    this.code = new Int32Array(bytes, 2 * n * wide, n);
    this.waits = new Uint8Array(bytes, 2 * n * wide + 4 * n, n);
    this.half = new Uint8Array(bytes, 2 * n * wide + 5 * n, n);
    this.start = new Float64Array(n);
    this.end = new Float64Array(n);
    this.kind = new Uint8Array(n);
    this.piece = new Int16Array(n).fill(-1);
    this.stage = new Int32Array(n);
    this.microbatch = new Int32Array(n);
    this.row = new Int32Array(n);
    this.where = new Int32Array((KINDS.length - 1 + Math.max(this.facts.pieces, 1)) * this.S * this.M).fill(-1);
    for (let row = 0; row + 1 < this.first.length; row++) {
      let time = 0;
      for (let i = this.first[row]; i < this.first[row + 1]; i++) {
        time += steps[i];
        const code = this.code[i], family = Math.floor(code / this.M);
        this.start[i] = time;
        this.end[i] = time + durations[i];
        this.microbatch[i] = code % this.M;
        this.stage[i] = family % this.S;
        const place = Math.floor(family / this.S), pieces = this.facts.pieces;
        this.kind[i] = place < KINDS.length ? place : 3;
        if (pieces > 1 && this.kind[i] === 3) this.piece[i] = place < KINDS.length ? 0 : place - KINDS.length + 1;
        this.row[i] = row;
        this.where[code] = i;
      }
    }
  }

  get rows() {
    return this.devices + this.lines;
  }

  // Of a row: the first operation that is not over at this time, and the first that starts then or later.
  notOver(row, time) {
    return firstOf(this.first[row], this.first[row + 1], (i) => this.end[i] > time);
  }
  later(row, time) {
    return firstOf(this.first[row], this.first[row + 1], (i) => this.start[i] >= time);
  }

  // What runs on a row at a time, of a pair the half that is asked for; -1: nothing.
  at(row, time, lower) {
    const i = this.notOver(row, time);
    if (i >= this.first[row + 1] || this.start[i] > time) return -1;
    return lower && this.half[i] === PAIR.first ? i + 1 : i;
  }

  route(microbatch) {
    return this.facts.route_of ? this.facts.route_of[microbatch] : 0;
  }

  find(kind, stage, microbatch) {
    if (stage < 0 || stage >= this.S) return -1;
    return this.where[(kind * this.S + stage) * this.M + microbatch];
  }
  backward(stage, microbatch) {
    const full = this.find(1, stage, microbatch);
    return full >= 0 ? full : this.find(2, stage, microbatch);
  }

  // The operations whose results this one needs, each with the time at which they are there.
  needs(i) {
    const kind = this.kind[i], stage = this.stage[i], m = this.microbatch[i], route = this.route(m);
    const latency = this.facts.latency, found = [];
    const add = (producer, transfer, wait) => {
      if (producer < 0) return;
      const last = transfer >= 0 ? transfer : producer;
      found.push({ index: producer, transfer, there: this.end[last] + wait });
    };
    if (kind === 0 && stage > 0) add(this.find(0, stage - 1, m), this.find(4, stage - 1, m), latency.forward[route][stage]);
    if (kind === 1 || kind === 2) {
      if (stage + 1 < this.S) add(this.backward(stage + 1, m), this.find(5, stage + 1, m), latency.backward[route][stage]);
      add(this.find(0, stage, m), -1, latency.over[route][stage]);
      add(this.find(7, stage, m), -1, 0);
    }
    if (kind === 6) add(this.find(0, stage, m), -1, 0);
    if (kind === 7) add(this.find(6, stage, m), -1, 0);
    if (kind === 3) add(this.piece[i] > 0 ? this.pieceOf(stage, m, this.piece[i] - 1) : this.find(2, stage, m), -1, 0);
    if (kind === 4) add(this.find(0, stage, m), -1, 0);
    if (kind === 5) add(this.backward(stage, m), -1, 0);
    return found.sort((a, b) => b.there - a.there);
  }

  // A piece of a weight gradient.
  pieceOf(stage, microbatch, piece) {
    if (piece >= this.facts.pieces) return -1;
    const place = piece ? KINDS.length - 1 + piece : 3;
    return this.where[(place * this.S + stage) * this.M + microbatch];
  }

  // The operations that need the result of this one.
  neededBy(i) {
    const kind = this.kind[i], stage = this.stage[i], m = this.microbatch[i], found = [];
    if (kind === 0) found.push(this.find(0, stage + 1, m), this.backward(stage, m));
    if (kind === 1 || kind === 2) found.push(this.backward(stage - 1, m), kind === 2 ? this.find(3, stage, m) : -1);
    if (kind === 3 && this.piece[i] >= 0) found.push(this.pieceOf(stage, m, this.piece[i] + 1));
    if (kind === 0) found.push(this.find(6, stage, m));
    if (kind === 6) found.push(this.find(7, stage, m));
    if (kind === 7) found.push(this.backward(stage, m));
    if (kind === 4) found.push(this.find(0, stage + 1, m));
    if (kind === 5) found.push(this.backward(stage - 1, m));
    return found.filter((j) => j >= 0).sort((a, b) => this.start[a] - this.start[b]);
  }

  // The operation before this one on its row; of a pair both halves are one.
  before(i) {
    const j = i - (this.half[i] === PAIR.second ? 2 : 1);
    return j >= this.first[this.row[i]] ? j : -1;
  }

  name(i) {
    return `${this.stage[i]}${KINDS[this.kind[i]]}${this.microbatch[i]}${this.piece[i] < 0 ? "" : `.${this.piece[i]}`}`;
  }

  // What a device holds: times, ascending, and the amount from each on. Amounts are whole units.
  held(device) {
    if (this.curves[device]) return this.curves[device];
    const { claims, releases, static: always, curves } = this.facts.memory, times = [], levels = [];
    if (curves) return (this.curves[device] = { times: curves[device][0], levels: curves[device][1], always: always[device] });
    let level = always[device];
    const change = (time, amount) => {
      if (!amount) return;
      level += amount;
      times.push(time);
      levels.push(level);
    };
    for (let i = this.first[device]; i < this.first[device + 1]; i++) {
      const kind = KINDS[this.kind[i]], route = this.route(this.microbatch[i]), stage = this.stage[i];
      change(this.start[i], claims[kind] ? claims[kind][route][stage] : 0);
      const more = this.piece[i] >= 0 && this.piece[i] < this.facts.pieces - 1 ? claims : releases; // the last piece gives back
      change(this.end[i], more[kind] ? -more[kind][route][stage] : 0);
    }
    return (this.curves[device] = { times, levels, always: always[device] });
  }

  // What a device holds at a time.
  holds(device, time) {
    const { times, levels, always } = this.held(device);
    const k = firstOf(0, times.length, (j) => times[j] > time);
    return k ? levels[k - 1] : always;
  }
}

// Numbers as tables have them: six significant digits, whole numbers as they are.
function number(value) {
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) < 1e6 ? String(Number(value.toPrecision(6))) : value.toFixed(1);
}
