// What the text and the maps of a view share: the cells that were sent, the chosen cell, the pointer, the crop.
// What is sent is described in payload.py; choices go to pointer.js, and come from there, by events of the document.

const INK = "#1F2933", FRAME = "#8A9099", POINTED = "#B34700";
const SMALLEST = 4, WINDOW = 24; // cells a side: of what is zoomed to, and around the chosen cell
const WAIT = 3000; // ms in which an answer to an earlier choice is not taken for a new one
const KEYS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const stores = (globalThis.mtaLinked ??= new Map()); // by view: what outlives its being hidden

function storeOf(view) {
  if (!stores.has(view)) stores.set(view, new Store(view));
  return stores.get(view);
}

function decoded(bytes) {
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  let at = 4 + length;
  const take = (count) => {
    const part = bytes.slice(at, at + count);
    at += count + (-count & 3);
    return part;
  };
  const palettes = Array.from({ length: header.palettes }, () => take(768)), [rows, columns] = header.shape;
  const count = header.triangle ? (rows * (rows + 1)) / 2 : rows * columns;
  const panels = header.panels.map((panel) => {
    const body = take(count * (panel.kind === "f4" ? 4 : 2)).buffer;
    const cells = panel.kind === "f4" ? new Float32Array(body) : halves(new Uint16Array(body), panel.factor);
    const mask = panel.masked ? take(Math.ceil((rows * columns) / 8)) : null;
    return { ...panel, colors: palettes[panel.palette], values: header.triangle ? square(cells, rows) : cells, mask };
  });
  if (header.kernel) header.kernel.colors = palettes[header.kernel.palette];
  return { header, panels };
}

function square(cells, rows) {
  const values = new Float32Array(rows * rows);
  for (let row = 0, at = 0; row < rows; at += ++row) values.set(cells.subarray(at, at + row + 1), row * rows);
  return values;
}

function halves(codes, factor) {
  const values = new Float32Array(codes.length);
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at], power = (code >> 10) & 31, part = code & 1023;
    const size = power === 31 ? (part ? NaN : Infinity) : power ? (1 + part / 1024) * 2 ** (power - 15) : part * 2 ** -24;
    values[at] = (code & 32768 ? -size : size) / factor;
  }
  return values;
}

function digits(value, sign) {
  const [mantissa, power] = value.toPrecision(4).split("e");
  const short = mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa;
  return (sign && value > 0 ? "+" : "") + short + (power ? "e" + power : "");
}

const isolated = (text) => "\u2068" + text + "\u2069"; // or a right-to-left token changes places with its position
const within = (value, low, high) => Math.min(Math.max(value, low), high);
const same = (one, other) => one?.query === other?.query && one?.key === other?.key;

function color(panel, step) {
  const { colors } = panel;
  return `rgb(${colors[3 * step]},${colors[3 * step + 1]},${colors[3 * step + 2]})`;
}

function stepOf(panel, value) { // which of the 256 colours
  const low = panel.signed ? -panel.limit : 0;
  return Math.round(within((value - low) / (panel.limit - low), 0, 1) * 255);
}

function legend(node, panel) { // a colour bar between its two ends
  const stops = Array.from({ length: 33 }, (_, at) => color(panel, Math.round((at / 32) * 255)));
  node.querySelector(".mta-low").textContent = panel.bar[0];
  node.querySelector(".mta-high").textContent = panel.bar[1];
  node.querySelector(".mta-colors").style.background = `linear-gradient(to right, ${stops.join(",")})`;
}

class Store {
  constructor(view) {
    const [pointer] = view.split("."); // "map.beside" has that of "map"
    Object.assign(this, { pointer, views: new Set(), header: null, panels: [], cell: null, hovered: null });
    this.state = { opened: null, seen: "null", crop: "", box: null, frame: null, colored: 0, turn: 0, heard: 0, at: -WAIT };
    document.addEventListener("mta-cell:" + pointer, ({ detail }) => this.told(detail));
  }

  changed(what) {
    for (const view of this.views) view.update(what);
  }

  ask() { // the pointer, which may have spoken before anybody listened
    document.dispatchEvent(new CustomEvent("mta-ask:" + this.pointer));
  }

  // ---- what the server sends

  take({ header, panels }) {
    if (header.id === this.header?.id) return;
    Object.assign(this, { header, panels, hovered: null, words: new Map(), quiet: true });
    for (const [start, pieces] of header.text) pieces.forEach((piece, offset) => this.words.set(start + offset, piece));
    this.ask();
    this.quiet = false;
    const { state } = this, { crop, opening } = header;
    if (state.opened !== opening) {
      state.opened = opening;
      this.crop(this.boxOf(crop) ? crop : "whole"); // and not around the cell
    } else if (this.cell) this.keepInside();
    state.colored = Math.min(state.named === panels.length ? state.colored : 1, panels.length - 1);
    state.named = panels.length;
    this.changed("data");
  }

  told({ query, key, side, turn }) {
    const { state } = this;
    state.heard = Math.max(state.heard, turn);
    if (turn < state.turn && performance.now() - state.at < WAIT) return; // a later choice is under way
    state.turn = Math.max(state.turn, turn);
    const first = !this.cell, again = same(this.cell, { query, key }) && this.cell.side === side;
    this.cell = { query, key, side };
    if (again || this.quiet || !this.header) return; // quiet: all is drawn anew anyway
    const moved = first ? state.crop === "window" : this.keepInside();
    if (first && moved) this.crop("window");
    if (moved) this.changed("crop");
    this.changed("cell");
  }

  // ---- what a visitor chooses

  choose(change, delay = 0) {
    const next = { ...this.cell, ...change };
    if (["query", "key", "side"].every((part) => next[part] === this.cell[part])) return;
    if (Math.max(next.query, next.key) >= this.header.tokens) return; // of a longer prompt beside the text's
    this.cell = next;
    this.follow();
    const detail = { ...next, turn: ++this.state.turn };
    this.state.at = performance.now();
    clearTimeout(this.sending);
    const send = (left = 5) => { // the server may not listen while the page is drawn anew: until it answers
      document.dispatchEvent(new CustomEvent("mta-choice:" + this.pointer, { detail }));
      this.sending = left && setTimeout(() => this.state.heard < detail.turn && send(left - 1), WAIT);
    };
    requestAnimationFrame(() => { clearTimeout(this.sending); this.sending = setTimeout(send, delay); }); // drawn first
  }

  follow() {
    if (this.keepInside()) this.changed("crop");
    this.changed("cell");
  }

  keepInside() { // the crop stays where it is until the chosen cell is outside it
    const [row, column] = this.place(this.cell.query, this.cell.key), [top, bottom, left, right] = this.state.box;
    if (!this.holds(row, column) || (row >= top && row < bottom && column >= left && column < right)) return false;
    this.state.box = this.around(row, column, bottom - top, right - left);
    if (this.state.crop !== "window") this.state.crop = "";
    return true;
  }

  move(rows, columns) { // the chosen cell, inside the map
    const [row, column] = this.place(this.cell.query, this.cell.key), { shape, start } = this.header;
    const query = start[0] + within(row + rows, 0, shape[0] - 1), key = start[1] + within(column + columns, 0, shape[1] - 1);
    this.choose({ query, key }, 100);
  }

  point(cell) {
    if (same(cell, this.hovered) && cell?.panel === this.hovered?.panel) return;
    this.hovered = cell;
    this.changed("hover");
  }

  paint(panel) { // whose colours the text has
    this.state.colored = panel;
    this.changed("cell");
  }

  // ---- cells

  place(query, key) {
    return [query - this.header.start[0], key - this.header.start[1]];
  }

  holds(row, column) {
    return row >= 0 && column >= 0 && row < this.header.shape[0] && column < this.header.shape[1];
  }

  value(panel, query, key) { // null: masked; undefined: not among the cells that were sent
    const [row, column] = this.place(query, key), at = row * this.header.shape[1] + column;
    if (key > query) return null;
    if (!this.holds(row, column)) return undefined;
    return panel.mask && (panel.mask[at >> 3] >> (7 - (at & 7))) & 1 ? null : panel.values[at];
  }

  // ---- crops: first and last row, first and last column

  around(row, column, rows, columns) {
    const side = (place, size, count) => {
      const all = Math.min(size, count), start = within(Math.round(place + 0.5 - all / 2), 0, count - all);
      return [start, start + all];
    };
    return [...side(row, rows, this.header.shape[0]), ...side(column, columns, this.header.shape[1])];
  }

  boxOf(name) { // null where the crop is not among the cells that were sent
    const { crops, start, shape } = this.header;
    if (name === "whole") return [0, shape[0], 0, shape[1]];
    if (name === "window") {
      const cell = this.cell ?? { query: start[0] + shape[0] - 1, key: start[1] };
      return this.around(...this.place(cell.query, cell.key), WINDOW, WINDOW);
    }
    if (!crops[name]) return null;
    const [[top, bottom], [left, right]] = crops[name];
    const box = [top - start[0], bottom - start[0], left - start[1], right - start[1]];
    return this.holds(box[0], box[2]) && this.holds(box[1] - 1, box[3] - 1) ? box : null;
  }

  crop(name) {
    const box = this.boxOf(name);
    Object.assign(this.state, { crop: name, box, frame: [box[1] - box[0], box[3] - box[2]] });
  }

  show(name) {
    this.crop(name);
    this.hovered = null;
    this.changed("crop");
  }

  zoom(box) { // by hand: the picture keeps its size
    const fitted = (low, high, count) => {
      const size = within(high - low, Math.min(SMALLEST, count), count), middle = (low + high) / 2;
      const start = within(middle - size / 2, 0, count - size);
      return [start, start + size];
    };
    const [rows, columns] = this.header.shape;
    this.state.box = [...fitted(box[0], box[1], rows), ...fitted(box[2], box[3], columns)];
    this.state.crop = this.state.box.every((side, at) => side === [0, rows, 0, columns][at]) ? "whole" : "";
    this.hovered = null;
    this.changed("crop");
  }

  scale(by, row, column) {
    const [top, bottom, left, right] = this.state.box;
    this.zoom([row - (row - top) * by, row + (bottom - row) * by, column - (column - left) * by, column + (right - column) * by]);
  }

  seen() { // the part in view as the server is told it, where it is not the crop that was opened
    const { state, header } = this, [first, before] = header.start, [top, bottom, left, right] = state.box;
    if (state.crop === header.crop && state.crop !== "window") return null;
    const part = [first + Math.floor(top), first + Math.ceil(bottom), before + Math.floor(left), before + Math.ceil(right)];
    return { opening: header.opening, part };
  }

  // ---- words

  token(at) {
    const part = this.header.parts[at];
    return [` ${at} `, `"${this.words.get(at) ?? ""}"`, part ? ` (${part})` : ""];
  }

  word(at, panel) {
    return (panel.pieces ? panel.pieces[at] : this.words.get(at)) ?? "";
  }

  facts(panel, query, key) { // the value, and what it means in its row
    const value = this.value(panel, query, key);
    if (value === null) {
      const why = panel.difference ? "the tokens differ" : `no token ${query} here`;
      return [`masked: ${key > query ? `key ${key} comes after query ${query}` : why}`, ""];
    }
    if (value === undefined) return ["not among the cells shown here", ""];
    if (!Number.isFinite(value)) return [Number.isNaN(value) ? "not a number" : "infinite", ""];
    const near = panel.kind === "f2" ? "about " : "";
    const own = panel.pieces && ` · from "${isolated(this.word(query, panel))}" to "${isolated(this.word(key, panel))}"`;
    return [`${near}${digits(value, panel.signed)} (${panel.unit})`, (own ?? "") + this.inRow(panel, query, value)];
  }

  inRow(panel, query, value) { // share and rank, where the whole row is here
    const { start, shape } = this.header;
    if (panel.difference || start[1] !== 0 || query >= shape[1]) return "";
    let larger = 0, size = 0, sum = 0;
    for (let key = 0; key <= query; key++) {
      const other = this.value(panel, query, key);
      larger += other > value;
      size += Math.abs(other);
      sum += other;
    }
    const share = panel.unit === "weight" && size ? `${((100 * Math.abs(value)) / size).toFixed(1)} %` : "";
    if (share && panel.signed) return ` · ${share} of |row|, row sums to ${sum.toFixed(3)}`;
    return `${share && ` · ${share} of this row`} · rank ${larger + 1} of ${query + 1} in the row`;
  }
}
