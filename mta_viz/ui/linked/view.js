// A map on two canvases (cells; hover and crosshair above), its row and column as bars, the prompt as text.
// What it is sent is described in payload.py; it speaks to pointer.js by events of the document.

const LEFT = 92, RIGHT = 58, TOP = 50, BOTTOM = 78, GAP = 9; // pixels round the cells
const TICK = 12, FONT = '10px "DejaVu Sans Mono", Menlo, Consolas, monospace';
const INK = "#1F2933", FRAME = "#8A9099", QUERY = "#0072B2", KEY = "#B34700";
const UNDERLINED_FROM = 0.02; // of the limit: below it the colour of a negative weight is not seen
const DRAG = 4, CROSS = 6, SMALLEST = 4; // pixels of a drag, of a cell with a cross; cells in a window
const WAIT = 3000; // ms in which an answer to an earlier choice is not taken for a new one
const KEYS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const kept = (globalThis.mtaLinked ??= new Map()); // by view: what outlives its being hidden

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".mta-linked");
  root.mtaView ??= new View(root);
  root.mtaView.show(data);
  return () => root.mtaView.stop();
}

function decoded(bytes) {
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const colors = bytes.slice(4 + length, 4 + length + 768), body = bytes.slice(4 + length + 768).buffer;
  const cells = header.kind === "f4" ? new Float32Array(body) : halves(new Uint16Array(body), header.factor);
  const [rows, columns] = header.shape;
  let values = cells;
  if (header.triangle) {
    values = new Float32Array(rows * columns);
    for (let row = 0, at = 0; row < rows; at += ++row) values.set(cells.subarray(at, at + row + 1), row * columns);
  }
  return { header, colors, values };
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

const cut = (piece) => ([...piece].length > 10 ? [...piece].slice(0, 9).join("") + "…" : piece);
const isolated = (text) => "\u2068" + text + "\u2069"; // or a right-to-left token changes places with its position
const within = (value, low, high) => Math.min(Math.max(value, low), high);

class View {
  constructor(root) {
    this.root = root;
    for (const name of ["title", "low", "colors", "high", "whole", "hint", "text", "says", "map", "cells", "over", "live"])
      this[name] = root.querySelector(".mta-" + name);
    this.sides = [...root.querySelectorAll("[data-side]")];
    for (const button of this.sides) button.onclick = () => this.choose({ side: button.dataset.side });
    this.whole.onclick = () => this.zoom(null);
    this.map.onpointermove = (event) => this.move(event);
    this.map.onpointerleave = () => this.point(null);
    this.map.onpointerdown = (event) => this.press(event);
    this.map.onpointerup = (event) => this.release(event);
    this.map.onpointercancel = () => { this.drag = null; };
    this.map.ondblclick = () => this.zoom(null);
    this.map.onkeydown = (event) => this.steer(event);
    this.map.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.text.onpointermove = (event) => this.point(this.cellOf(event.target));
    this.text.onpointerleave = () => this.point(null);
    this.text.onclick = (event) => this.take(event);
    this.text.onkeydown = (event) => this.read(event);
    this.resized = new ResizeObserver(() => this.layOut());
    this.resized.observe(root);
    this.hear = (event) => this.told(event.detail);
  }

  stop() {
    this.resized.disconnect();
    document.removeEventListener("mta-cell:" + this.name, this.hear);
  }

  // ---- what the server sends

  show(bytes) {
    const { header, colors, values } = decoded(bytes);
    if (header.id !== this.header?.id) {
      Object.assign(this, { header, palette: colors, values, image: null, hovered: null });
      this.listen(header.view);
      if (this.state.run !== header.run || this.state.frame !== `${header.start} ${header.shape}`)
        Object.assign(this.state, { run: header.run, frame: `${header.start} ${header.shape}`, window: this.first() });
      this.write();
      this.entitle();
    }
    document.dispatchEvent(new CustomEvent("mta-ask:" + this.name));
    if (this.cell) this.follow();
    this.width = 0; // and drawn again: the theme may be another
    this.layOut();
  }

  listen(name) {
    if (this.name === name) return;
    document.removeEventListener("mta-cell:" + this.name, this.hear);
    document.addEventListener("mta-cell:" + name, this.hear);
    this.name = name;
    if (!kept.has(name)) kept.set(name, { run: "", frame: "", window: null, turn: 0, at: -WAIT });
    this.state = kept.get(name);
  }

  told({ query, key, side, turn }) {
    if (turn < this.state.turn && performance.now() - this.state.at < WAIT) return; // a later choice is under way
    const same = this.cell && this.cell.query === query && this.cell.key === key && this.cell.side === side;
    this.cell = { query, key, side };
    if (!same) this.follow();
  }

  // ---- what a visitor chooses

  choose(change, delay = 0) {
    const next = { ...this.cell, ...change };
    if (["query", "key", "side"].every((part) => next[part] === this.cell[part])) return;
    this.cell = next;
    this.follow();
    const detail = { ...next, turn: ++this.state.turn };
    this.state.at = performance.now();
    clearTimeout(this.sending);
    const send = () => document.dispatchEvent(new CustomEvent("mta-choice:" + this.name, { detail }));
    requestAnimationFrame(() => { clearTimeout(this.sending); this.sending = setTimeout(send, delay); }); // drawn first
  }

  follow() {
    const { query, key } = this.cell, [top, bottom, left, right] = this.box();
    const [row, column] = this.place(query, key);
    if (this.holds(row, column) && !(row >= top && row < bottom && column >= left && column < right))
      this.zoom([row - (bottom - top) / 2, row + (bottom - top) / 2, column - (right - left) / 2, column + (right - left) / 2]);
    this.color();
    this.drawOver();
    this.say();
    this.announce();
  }

  steer(event) {
    const step = KEYS[event.key];
    if (step && !event.altKey && !event.ctrlKey && !event.metaKey) {
      const [row, column] = this.place(this.cell.query, this.cell.key), [rows, columns] = this.header.shape;
      const [first, before] = this.header.start;
      const query = first + within(row + step[0], 0, rows - 1), key = before + within(column + step[1], 0, columns - 1);
      this.choose({ query, key }, 100);
    } else if (event.key === "+" || event.key === "-") {
      this.scale(event.key === "+" ? 0.7 : 1 / 0.7, ...this.place(this.cell.query + 0.5, this.cell.key + 0.5));
    } else if (event.key === "0") this.zoom(null);
    else return;
    event.preventDefault();
    event.stopPropagation(); // the page's own arrows step along layers and heads
  }

  read(event) {
    const step = KEYS[event.key];
    if (!step) return;
    event.stopPropagation();
    if (!step[1]) return; // up and down scroll
    event.preventDefault();
    const part = event.shiftKey ? "key" : "query", next = this.cell[part] + step[1];
    if (this.spans.has(next)) this.choose({ [part]: next }, 100);
  }

  take(event) {
    const token = event.target.closest("[data-at]");
    if (token) this.choose({ [event.shiftKey ? "key" : "query"]: +token.dataset.at });
  }

  // ---- the pointer

  cellOf(element) {
    const token = element.closest("[data-at]");
    if (!token || !this.cell) return null;
    const at = +token.dataset.at;
    return this.cell.side === "from the query" ? { query: this.cell.query, key: at } : { query: at, key: this.cell.key };
  }

  cellAt(event) {
    const box = this.map.getBoundingClientRect(), x = event.clientX - box.left - LEFT, y = event.clientY - box.top - TOP;
    if (x < 0 || y < 0 || x >= this.size || y >= this.size) return null;
    const [top, bottom, left, right] = this.box(), [first, before] = this.header.start;
    const row = top + (y / this.size) * (bottom - top), column = left + (x / this.size) * (right - left);
    return { query: first + Math.floor(row), key: before + Math.floor(column), row, column };
  }

  move(event) {
    const cell = this.cellAt(event), drag = this.drag;
    if (drag) {
      drag.far ||= Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > DRAG;
      if (cell) drag.to = cell;
      if (drag.far && drag.pan && cell) return this.pan(cell);
    }
    this.point(drag?.far ? null : cell);
    if (drag?.far) this.drawOver();
  }

  press(event) {
    const from = this.cellAt(event);
    if (event.button !== 0 || !from) return;
    this.drag = { from, to: from, x: event.clientX, y: event.clientY, pan: event.shiftKey, box: this.box() };
    this.map.setPointerCapture(event.pointerId);
  }

  release() {
    const drag = this.drag;
    this.drag = null;
    if (!drag) return;
    const { from, to } = drag, [first, before] = this.header.start;
    if (!drag.far) this.choose({ query: from.query, key: from.key });
    else if (!drag.pan) {
      const rows = [from.query - first, to.query - first].sort((a, b) => a - b);
      const columns = [from.key - before, to.key - before].sort((a, b) => a - b);
      this.zoom([rows[0], rows[1] + 1, columns[0], columns[1] + 1]);
    }
  }

  pan(cell) {
    const [top, bottom, left, right] = this.box(), { from } = this.drag;
    const down = from.row - cell.row, across = from.column - cell.column;
    this.zoom([top + down, bottom + down, left + across, right + across]);
  }

  wheel(event) {
    const cell = this.cellAt(event);
    if (!cell || !(event.ctrlKey || this.map.matches(":focus"))) return; // else the page scrolls
    event.preventDefault();
    this.scale(Math.exp(within(event.deltaY, -300, 300) * 0.002), cell.row, cell.column);
  }

  scale(by, row, column) {
    const [top, bottom, left, right] = this.box();
    this.zoom([row - (row - top) * by, row + (bottom - row) * by, column - (column - left) * by, column + (right - column) * by]);
  }

  point(cell) {
    if (cell?.query === this.hovered?.query && cell?.key === this.hovered?.key) return;
    for (const token of this.lit ?? []) token?.classList.remove("mta-hover");
    this.hovered = cell;
    this.lit = cell ? [this.spans.get(cell.query), this.spans.get(cell.key)] : [];
    for (const token of this.lit) token?.classList.add("mta-hover");
    this.drawOver();
    this.say();
  }

  // ---- cells

  place(query, key) {
    return [query - this.header.start[0], key - this.header.start[1]];
  }

  holds(row, column) {
    return row >= 0 && column >= 0 && row < this.header.shape[0] && column < this.header.shape[1];
  }

  value(query, key) { // null: masked; undefined: not among the cells that were sent
    const [row, column] = this.place(query, key);
    if (key > query) return null;
    return this.holds(row, column) ? this.values[row * this.header.shape[1] + column] : undefined;
  }

  step(value) { // which of the 256 colours
    const { limit, signed } = this.header, low = signed ? -limit : 0;
    return 3 * Math.round(within((value - low) / (limit - low), 0, 1) * 255);
  }

  first() {
    const { window, start, shape } = this.header;
    if (!window) return null;
    const [[top, bottom], [left, right]] = window;
    const box = [top - start[0], bottom - start[0], left - start[1], right - start[1]];
    return box[0] >= 0 && box[1] <= shape[0] && box[2] >= 0 && box[3] <= shape[1] ? box : null;
  }

  box() { // first and last row, first and last column of the window
    return this.state.window ?? [0, this.header.shape[0], 0, this.header.shape[1]];
  }

  zoom(box) {
    if (box) {
      const fitted = (low, high, count) => {
        const size = within(high - low, Math.min(SMALLEST, count), count), middle = (low + high) / 2;
        const start = within(middle - size / 2, 0, count - size);
        return [start, start + size];
      };
      const [rows, columns] = this.header.shape;
      box = [...fitted(box[0], box[1], rows), ...fitted(box[2], box[3], columns)];
      if (box[1] - box[0] >= rows && box[3] - box[2] >= columns) box = null;
    }
    this.state.window = box;
    this.hovered = null;
    this.draw();
  }

  // ---- words

  entitle() {
    const { header } = this;
    this.root.dataset.title = this.title.textContent = header.title;
    this.root.dataset.run = header.run;
    [this.low.textContent, this.high.textContent] = header.bar;
    const stops = Array.from({ length: 33 }, (_, at) => this.rgb(3 * Math.round((at / 32) * 255)));
    this.colors.style.background = `linear-gradient(to right, ${stops.join(",")})`;
    this.text.setAttribute("aria-label", "Tokens. Left and right choose the query, with Shift the key.");
    this.hint.textContent = "Click: query and key. Word: query, Shift: key. Drag or focus and scroll: zoom.";
  }

  rgb(at) {
    return `rgb(${this.palette[at]},${this.palette[at + 1]},${this.palette[at + 2]})`;
  }

  token(at) {
    const piece = this.spans.get(at)?.mtaPiece ?? "", part = this.header.parts[at];
    return [` ${at} `, `"${piece}"`, part ? ` (${part})` : ""];
  }

  facts(query, key) {
    const { header } = this, value = this.value(query, key);
    if (value === null) return `masked: key ${key} comes after query ${query}`;
    if (value === undefined) return "not among the cells shown here";
    if (!Number.isFinite(value)) return `${header.stage}: ${Number.isNaN(value) ? "not a number" : "infinite"}`;
    const near = header.kind === "f2" ? "about " : "";
    return `${header.stage}: ${near}${digits(value, header.signed)} (${header.unit})${this.inRow(query, value)}`;
  }

  inRow(query, value) { // share and rank, where the whole row is here
    const { header } = this;
    if (header.start[1] !== 0 || query >= header.shape[1]) return "";
    let larger = 0, size = 0, sum = 0;
    for (let key = 0; key <= query; key++) {
      const other = this.value(query, key);
      larger += other > value;
      size += Math.abs(other);
      sum += other;
    }
    const share = header.unit === "weight" && size ? `${((100 * Math.abs(value)) / size).toFixed(1)} %` : "";
    if (share && header.signed) return ` · ${share} of |row|, row sums to ${sum.toFixed(3)}`;
    return `${share && ` · ${share} of this row`} · rank ${larger + 1} of ${query + 1} in the row`;
  }

  say() {
    const cell = this.hovered ?? this.cell;
    this.says.replaceChildren();
    if (!cell) return;
    const words = ["query", ...this.token(cell.query), " · key", ...this.token(cell.key)];
    for (const word of words) {
      const part = document.createElement("bdi");
      part.style.whiteSpace = "pre-wrap";
      part.textContent = word;
      this.says.append(part);
    }
    const value = document.createElement("div");
    value.textContent = this.facts(cell.query, cell.key);
    this.says.append(value);
  }

  announce() {
    const { query, key } = this.cell, name = (at) => this.token(at).map(isolated).join("");
    const words = `query${name(query)}, key${name(key)}: ${this.facts(query, key)}`;
    this.map.setAttribute("aria-label", `${this.header.title}. Arrows move the cell, + and - zoom. ${words}`);
    Object.assign(this.root.dataset, { query, key });
    clearTimeout(this.announcing);
    this.announcing = setTimeout(() => { this.live.textContent = words; }, 300);
  }

  // ---- text

  write() {
    const nodes = [], { spans, marks, parts } = this.header;
    this.spans = new Map();
    const named = (at) => spans.find((span) => span.start <= at && at < span.stop);
    this.header.text.forEach(([start, pieces], index) => {
      if (index) nodes.push(" … ");
      pieces.forEach((piece, offset) => {
        const at = start + offset, token = document.createElement("span"), span = named(at);
        token.dataset.at = at;
        token.mtaPiece = piece;
        token.textContent = piece.replaceAll("␣", " ");
        if (parts[at]) token.classList.add("mta-byte");
        if (marks.some(([first, last]) => first <= at && at < last)) token.classList.add("mta-mark");
        if (span) nodes.push(...this.outline(token, span, at));
        this.spans.set(at, token);
        nodes.push(token, ...(piece.endsWith("⏎") ? ["\n"] : []));
      });
    });
    this.text.replaceChildren(...nodes);
  }

  outline(token, span, at) {
    token.classList.add("mta-span");
    token.style.setProperty("--span", span.color);
    if (at === span.stop - 1) token.classList.add("mta-span-stop");
    if (at !== span.start) return [];
    token.classList.add("mta-span-start");
    const letter = document.createElement("b");
    letter.textContent = span.letter;
    letter.title = span.name;
    letter.style.background = dark(span.color);
    return [letter];
  }

  color() {
    const { query, key, side } = this.cell, from = side === "from the query";
    for (const button of this.sides) button.setAttribute("aria-pressed", button.dataset.side === side);
    for (const [at, token] of this.spans) {
      const value = from ? this.value(query, at) : this.value(at, key), there = Number.isFinite(value);
      const step = there ? this.step(value) : 0;
      token.style.background = there ? this.rgb(step) : "";
      token.style.color = there && luminance(...this.palette.subarray(step, step + 3)) < 0.18 ? "#FFFFFF" : "";
      token.classList.toggle("mta-masked", value === null);
      token.classList.toggle("mta-bad", typeof value === "number" && !there);
      token.classList.toggle("mta-negative", value < -UNDERLINED_FROM * this.header.limit);
      token.classList.toggle("mta-query", at === query);
      token.classList.toggle("mta-key", at === key);
    }
    const chosen = this.spans.get(from ? query : key), { text } = this;
    if (chosen && (chosen.offsetTop < text.scrollTop || chosen.offsetTop + 20 > text.scrollTop + text.clientHeight))
      text.scrollTop = chosen.offsetTop - text.clientHeight / 2;
  }

  // ---- drawing

  layOut() {
    const width = this.root.clientWidth;
    if (!width || !this.header || width === this.width) return;
    this.width = width;
    this.size = Math.max(Math.min(width - LEFT - RIGHT, 640), 80);
    this.dots = window.devicePixelRatio || 1;
    const across = LEFT + this.size + RIGHT, down = TOP + this.size + BOTTOM;
    this.map.style.height = `${down}px`;
    for (const canvas of [this.cells, this.over]) {
      Object.assign(canvas, { width: Math.round(across * this.dots), height: Math.round(down * this.dots) });
      Object.assign(canvas.style, { width: `${across}px`, height: `${down}px` });
    }
    this.draw();
  }

  start(canvas) {
    const pen = canvas.getContext("2d");
    pen.setTransform(this.dots, 0, 0, this.dots, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    return pen;
  }

  x(column) {
    const [, , left, right] = this.box();
    return LEFT + ((column - left) / (right - left)) * this.size;
  }

  y(row) {
    const [top, bottom] = this.box();
    return TOP + ((row - top) / (bottom - top)) * this.size;
  }

  at(query, key) { // the middle of a cell on the screen
    const box = this.map.getBoundingClientRect(), [row, column] = this.place(query, key);
    return [box.left + this.x(column + 0.5), box.top + this.y(row + 0.5)];
  }

  draw() {
    if (!this.size) return;
    const pen = this.start(this.cells), { size } = this, ink = getComputedStyle(this.root).color;
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, TOP, size, size);
    pen.clip();
    this.hatch(pen);
    this.paint(pen);
    pen.restore();
    pen.strokeStyle = FRAME;
    pen.strokeRect(LEFT - 0.5, TOP - 0.5, size + 1, size + 1);
    this.label(pen, ink);
    this.bars(pen);
    this.whole.hidden = !this.state.window;
    this.drawOver();
  }

  hatch(pen) {
    const { masked, ground } = this.header.colors, { size } = this;
    pen.fillStyle = ground;
    pen.fillRect(LEFT, TOP, size, size);
    pen.strokeStyle = masked;
    pen.beginPath();
    for (let at = 0; at < 2 * size; at += 8) {
      pen.moveTo(LEFT + at - size, TOP + size);
      pen.lineTo(LEFT + at, TOP);
    }
    pen.stroke();
  }

  paint(pen) {
    const [top, bottom, left, right] = this.box(), { size } = this;
    const per = Math.max(bottom - top, right - left) / (size * this.dots);
    pen.imageSmoothingEnabled = false;
    if (per > 1) return pen.drawImage(this.pooled(Math.round(size * this.dots)), LEFT, TOP, size, size);
    this.image ??= this.picture(...this.header.shape, (row, column) => this.value(row + this.header.start[0], column + this.header.start[1]));
    pen.drawImage(this.image, left, top, right - left, bottom - top, LEFT, TOP, size, size);
    this.cross(pen);
  }

  pooled(dots) { // more cells than dots: a dot has the value of largest size under it
    const [top, bottom, left, right] = this.box(), [first, before] = this.header.start, [rows, columns] = this.header.shape;
    const best = new Array(dots * dots).fill(null), size = (value) => (Number.isNaN(value) ? Infinity : Math.abs(value));
    for (let row = Math.floor(top); row < Math.min(Math.ceil(bottom), rows); row++) {
      const down = within(Math.floor(((row - top) / (bottom - top)) * dots), 0, dots - 1) * dots;
      for (let column = Math.floor(left); column < Math.min(Math.ceil(right), columns); column++) {
        if (column + before > row + first) break;
        const at = down + within(Math.floor(((column - left) / (right - left)) * dots), 0, dots - 1);
        const value = this.values[row * columns + column];
        if (best[at] === null || size(value) > size(best[at])) best[at] = value;
      }
    }
    return this.picture(dots, dots, (row, column) => best[row * dots + column]);
  }

  picture(rows, columns, value) {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: columns, height: rows });
    const pen = canvas.getContext("2d"), image = pen.createImageData(columns, rows), bad = channels(this.header.colors.bad);
    for (let row = 0, at = 0; row < rows; row++)
      for (let column = 0; column < columns; column++, at += 4) {
        const here = value(row, column);
        if (here === null) continue;
        image.data.set(Number.isFinite(here) ? this.palette.subarray(this.step(here), this.step(here) + 3) : bad, at);
        image.data[at + 3] = 255;
      }
    pen.putImageData(image, 0, 0);
    return canvas;
  }

  cross(pen) {
    const [top, bottom, left, right] = this.box(), wide = this.x(1) - this.x(0), high = this.y(1) - this.y(0);
    if (Math.min(wide, high) < CROSS) return;
    const [rows, columns] = this.header.shape, [first, before] = this.header.start;
    pen.strokeStyle = this.header.colors.bad;
    pen.lineWidth = 2;
    for (let row = Math.floor(top); row < Math.min(bottom, rows); row++)
      for (let column = Math.floor(left); column < Math.min(right, columns); column++) {
        if (column + before > row + first || Number.isFinite(this.values[row * columns + column])) continue;
        const x = this.x(column), y = this.y(row);
        pen.fillStyle = "#FFFFFF";
        pen.fillRect(x, y, wide, high);
        pen.beginPath();
        pen.moveTo(x + 0.2 * wide, y + 0.2 * high);
        pen.lineTo(x + 0.8 * wide, y + 0.8 * high);
        pen.moveTo(x + 0.8 * wide, y + 0.2 * high);
        pen.lineTo(x + 0.2 * wide, y + 0.8 * high);
        pen.stroke();
      }
    pen.lineWidth = 1;
  }

  label(pen, ink) {
    const [top, bottom, left, right] = this.box(), [first, before] = this.header.start;
    pen.fillStyle = ink;
    for (const row of ticks(top, bottom, this.size, first)) this.tick(pen, row, true);
    for (const column of ticks(left, right, this.size, before)) this.tick(pen, column, false);
    pen.textAlign = "left";
    pen.fillText("query ↓", 2, TOP - 24);
    pen.textAlign = "right";
    pen.fillText("key →", LEFT - GAP, TOP + this.size + 12);
  }

  tick(pen, place, down, ground) {
    const at = place + this.header.start[down ? 0 : 1];
    const text = `${at} ${isolated(cut(this.spans.get(at)?.mtaPiece ?? ""))}`;
    pen.save();
    if (down) pen.translate(LEFT - GAP - 2, this.y(place + 0.5));
    else pen.translate(this.x(place + 0.5), TOP + this.size + GAP + 2);
    if (!down) pen.rotate(-Math.PI / 2);
    if (ground) {
      const ink = pen.fillStyle, width = down ? LEFT - GAP : BOTTOM - GAP;
      pen.fillStyle = ground;
      pen.fillRect(-width, -6, width + 1, 12);
      pen.fillStyle = ink;
    }
    pen.textAlign = "right";
    pen.fillText(text, 0, 0, down ? LEFT - GAP - 4 : BOTTOM - GAP - 4);
    pen.restore();
  }

  bars(pen) { // of named spans, outside along both axes, with their letters
    const [first, before] = this.header.start, end = TOP + this.size;
    const inside = (low, high, from, to) => [within(low, from, to), within(high, from, to)];
    for (const { letter, color, start, stop } of this.header.spans) {
      const [top, bottom] = inside(this.y(start - first), this.y(stop - first), TOP, end);
      const [left, right] = inside(this.x(start - before), this.x(stop - before), LEFT, LEFT + this.size);
      pen.fillStyle = color;
      if (bottom > top) pen.fillRect(LEFT - GAP + 1, top, GAP - 3, bottom - top);
      if (right <= left) continue;
      pen.fillRect(left, end + 2, right - left, GAP - 3);
      pen.textAlign = "center";
      pen.font = "bold " + FONT;
      pen.fillText(letter, (left + right) / 2, TOP - 7);
      pen.font = FONT;
    }
  }

  drawOver() {
    if (!this.size || !this.cell) return;
    const pen = this.start(this.over), style = getComputedStyle(this.root);
    const ground = style.getPropertyValue("--st-background-color") || "#FFFFFF";
    const cell = this.hovered ?? this.cell;
    this.profiles(pen, cell, style.color);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, TOP, this.size, this.size);
    pen.clip();
    this.line(pen, this.cell, INK, []);
    if (this.hovered) this.line(pen, this.hovered, "#000000", [3, 3]);
    this.outlineRow(pen);
    this.frame(pen, this.cell);
    if (this.drag?.far && !this.drag.pan) this.rubber(pen);
    pen.restore();
    pen.font = "bold " + FONT;
    const [top, bottom, left, right] = this.box(), [row, column] = this.place(cell.query, cell.key);
    pen.fillStyle = style.color;
    if (row >= top && row < bottom) this.tick(pen, row, true, ground);
    if (column >= left && column < right) this.tick(pen, column, false, ground);
  }

  line(pen, { query, key }, color, dash) {
    const [row, column] = this.place(query, key);
    pen.strokeStyle = color;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(LEFT, this.y(row + 0.5));
    pen.lineTo(LEFT + this.size, this.y(row + 0.5));
    pen.moveTo(this.x(column + 0.5), TOP);
    pen.lineTo(this.x(column + 0.5), TOP + this.size);
    pen.globalAlpha = 0.55;
    pen.stroke();
    pen.globalAlpha = 1;
    pen.setLineDash([]);
  }

  outlineRow(pen) {
    const [row] = this.place(this.cell.query, 0), before = this.header.start[1];
    pen.lineWidth = 1.5;
    for (const { color, start, stop } of this.header.spans) {
      pen.strokeStyle = color;
      const left = this.x(start - before), top = this.y(row);
      pen.strokeRect(left, top, this.x(stop - before) - left, this.y(row + 1) - top);
    }
    pen.lineWidth = 1;
  }

  frame(pen, { query, key }) {
    const [row, column] = this.place(query, key), wide = Math.max(this.x(1) - this.x(0), 4), high = Math.max(this.y(1) - this.y(0), 4);
    const box = [this.x(column + 0.5) - wide / 2, this.y(row + 0.5) - high / 2, wide, high];
    for (const [width, color] of [[4, "#000000"], [1.5, "#FFFFFF"]]) {
      pen.lineWidth = width;
      pen.strokeStyle = color;
      pen.strokeRect(...box);
    }
    pen.lineWidth = 1;
  }

  rubber(pen) {
    const { from, to } = this.drag;
    pen.strokeStyle = "#000000";
    pen.setLineDash([4, 3]);
    pen.strokeRect(this.x(from.column), this.y(from.row), this.x(to.column) - this.x(from.column), this.y(to.row) - this.y(from.row));
    pen.setLineDash([]);
  }

  profiles(pen, { query, key }, ink) { // the row above the map, the column at its right
    const [top, bottom, left, right] = this.box(), [first, before] = this.header.start, { limit, signed } = this.header;
    const deep = TOP - 18, wide = RIGHT - 14, zero = signed ? 0.5 : 0, reach = signed ? 0.5 : 1;
    const share = (value) => reach * within((value ?? 0) / limit || 0, -1, 1);
    pen.fillStyle = ink;
    pen.textAlign = "left";
    pen.fillText(`row ${query}`, 2, 10);
    pen.fillText(`col ${key}`, LEFT + this.size + 8, TOP - 8);
    pen.strokeStyle = FRAME;
    pen.strokeRect(LEFT + 0.5, 2.5, this.size - 1, deep);
    pen.strokeRect(LEFT + this.size + 8.5, TOP + 0.5, wide - 4, this.size - 1);
    const bar = (value) => { pen.fillStyle = value < 0 ? "#2166AC" : signed ? "#B2182B" : "#6A3D9A"; };
    for (let column = Math.floor(left); column < right; column++) {
      const value = this.value(query, before + column), size = share(value) * deep;
      if (!size) continue;
      bar(value);
      const from = Math.max(this.x(column), LEFT);
      pen.fillRect(from, 2.5 + deep * (1 - zero) - Math.max(size, 0), Math.max(Math.min(this.x(column + 1), LEFT + this.size) - from, 1), Math.abs(size));
    }
    for (let row = Math.floor(top); row < bottom; row++) {
      const value = this.value(first + row, key), size = share(value) * (wide - 4);
      if (!size) continue;
      bar(value);
      const from = Math.max(this.y(row), TOP);
      pen.fillRect(LEFT + this.size + 8.5 + (wide - 4) * zero + Math.min(size, 0), from, Math.abs(size), Math.max(Math.min(this.y(row + 1), TOP + this.size) - from, 1));
    }
  }
}

function ticks(low, high, size, offset) { // places to label: at least 12 pixels apart, at round positions
  const per = size / (high - low), steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
  const step = steps.find((each) => each * per >= TICK) ?? 2000, places = [];
  for (let at = Math.ceil((Math.ceil(low) + offset) / step) * step; at - offset + 0.5 < high; at += step) places.push(at - offset);
  return places;
}

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function luminance(...rgb) { // relative, as WCAG has it
  const [red, green, blue] = rgb.map((part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function dark(hex) { // the colour, so dark that white letters can be read on it
  let rgb = channels(hex);
  while (1.05 / (luminance(...rgb) + 0.05) < 4.6) rgb = rgb.map((part) => part * 0.92);
  return `rgb(${rgb.map(Math.round).join(",")})`;
}
