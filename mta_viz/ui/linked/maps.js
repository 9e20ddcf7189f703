// Up to three maps of the same rows and columns side by side, a kernel between the first two: on two canvases,
// cells below, pointer and crosshair above.

const BOTTOM = 78, GAP = 9; // pixels: of the labels below, between them and the cells
const TOP = 42, DEEP = 24, SIDE = 44; // over the cells, their row's bars; their column's bars
const NARROWEST = 100, WIDEST = 640, BIGGEST = 44, LOWEST = 190; // of a map; a cell; a map of few rows
// Labels left of the cells, their height and letters; between maps; left of a kernel, its taps.
const WIDE = { left: 92, label: 12, font: 10, letters: 10, between: 18, taps: 34, tap: [8, 20] };
const NARROW = { left: 70, label: 9, font: 9, letters: 7, between: 10, taps: 24, tap: [6, 8] };
const NARROW_BELOW = 640, FONT = 'px "DejaVu Sans Mono", Menlo, Consolas, monospace';
const REST = 300; // ms
const DRAG = 4, CROSS = 6; // pixels of a drag, of a cell with a cross

export default function ({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector(".mta-maps");
  root.mtaView ??= new Maps(root);
  const sent = data.view ? null : decoded(data); // maps beside those of a text bring their own, and tell nothing
  root.mtaView.tell = sent ? () => {} : (seen) => setStateValue("seen", seen);
  root.mtaView.show(data.view ?? sent.header.view, sent);
  return () => root.mtaView.stop();
}

class Maps {
  constructor(root) {
    this.root = root;
    for (const name of ["crops", "hint", "map", "heads", "cells", "over"]) this[name] = root.querySelector(".mta-" + name);
    this.empty = this.heads.firstElementChild;
    this.map.onpointermove = (event) => this.move(event);
    this.map.onpointerleave = () => this.leave();
    this.map.onpointerdown = (event) => this.press(event);
    this.map.onpointerup = () => this.release();
    this.map.onpointercancel = () => { this.drag = null; };
    this.map.ondblclick = (event) => { if (this.cellAt(event)) this.store.show("whole"); };
    this.map.onkeydown = (event) => this.steer(event);
    this.map.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.resized = new ResizeObserver(() => this.layOut());
    this.resized.observe(root);
  }

  stop() {
    clearTimeout(this.telling);
    this.store?.views.delete(this);
    this.resized.disconnect();
  }

  show(view, sent) {
    this.store = storeOf(view);
    this.store.views.delete(this); // drawn once, below
    if (sent) this.store.take(sent);
    this.store.views.add(this);
    this.resized.observe(this.root);
    this.store.ask();
    this.laid = ""; // and drawn again: the theme may be another
    this.update("data");
  }

  update(what) {
    if (!this.store.header) return; // the text brings it
    if (what === "data") this.begin();
    if (what === "data" || what === "crop") this.layOut() || this.draw();
    else this.drawOver();
    this.say();
    if (what !== "hover") this.announce();
    if (what === "data" || what === "crop") this.sayWhatIsSeen();
  }

  sayWhatIsSeen() { // once a zoom rests
    clearTimeout(this.telling);
    this.telling = setTimeout(() => {
      const seen = this.store.seen(), told = JSON.stringify(seen), { state } = this.store;
      if (told === state.seen) return;
      state.seen = told;
      this.tell(seen);
    }, REST);
  }

  // ---- what a visitor chooses

  steer(event) {
    const step = KEYS[event.key], { store } = this;
    if (step && !event.altKey && !event.ctrlKey && !event.metaKey) store.move(...step);
    else if (event.key === "+" || event.key === "-") {
      const [row, column] = store.place(store.cell.query + 0.5, store.cell.key + 0.5);
      store.scale(event.key === "+" ? 0.7 : 1 / 0.7, row, column);
    } else if (event.key === "0") store.show("whole");
    else return;
    event.preventDefault();
    event.stopPropagation(); // the page's own arrows step along layers and heads
  }

  cellAt(event, drag) { // of a drag: in the map where it began, however far it went
    const box = this.map.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const inside = ({ x: left, y: top, wide, high }) => x >= left && y >= top && x < left + wide && y < top + high;
    const index = drag?.from.panel ?? this.plots?.findIndex(inside), plot = this.plots?.[index];
    if (!plot) return null;
    const [top, bottom, left, right] = this.store.state.box, [first, before] = this.store.header.start;
    const down = within((y - plot.y) / plot.high, 0, 1 - 1e-9), across = within((x - plot.x) / plot.wide, 0, 1 - 1e-9);
    const row = top + down * (bottom - top), column = left + across * (right - left);
    return { query: first + Math.floor(row), key: before + Math.floor(column), row, column, panel: index };
  }

  tapAt(event) {
    const { taps } = this, box = this.map.getBoundingClientRect();
    if (!taps) return null;
    const row = Math.floor((event.clientY - box.top - taps.y) / taps.tap), column = Math.floor((event.clientX - box.left - taps.x) / taps.tap);
    return row >= 0 && column >= 0 && row < taps.rows && column < taps.columns ? { row, column } : null;
  }

  move(event) {
    const { drag } = this, cell = this.cellAt(event, drag);
    if (drag) {
      drag.far ||= Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > DRAG;
      drag.to = cell;
      if (drag.far && drag.pan) return this.pan(cell);
    }
    this.pointTap(this.tapAt(event));
    this.store.point(drag?.far ? null : cell);
    if (drag?.far) this.drawOver();
  }

  leave() {
    this.pointTap(null);
    this.store.point(null);
  }

  pointTap(tap) {
    if (tap?.row === this.tap?.row && tap?.column === this.tap?.column) return;
    this.tap = tap;
    this.drawOver();
    this.say();
  }

  press(event) {
    const from = this.cellAt(event);
    if (event.button !== 0 || !from) return;
    this.drag = { from, to: from, x: event.clientX, y: event.clientY, pan: event.shiftKey };
    this.map.setPointerCapture(event.pointerId);
  }

  release() {
    const { drag, store } = this;
    this.drag = null;
    if (!drag) return;
    const { from, to } = drag, [first, before] = store.header.start;
    if (!drag.far) return store.choose({ query: from.query, key: from.key });
    if (drag.pan) return;
    const rows = [from.query - first, to.query - first].sort((a, b) => a - b);
    const columns = [from.key - before, to.key - before].sort((a, b) => a - b);
    store.zoom([rows[0], rows[1] + 1, columns[0], columns[1] + 1]);
  }

  pan(cell) {
    const [top, bottom, left, right] = this.store.state.box, { from } = this.drag;
    const down = from.row - cell.row, across = from.column - cell.column;
    this.store.zoom([top + down, bottom + down, left + across, right + across]);
  }

  wheel(event) {
    const cell = this.cellAt(event);
    if (!cell || !(event.ctrlKey || this.map.matches(":focus"))) return; // else the page scrolls
    event.preventDefault();
    this.store.scale(Math.exp(within(event.deltaY, -300, 300) * 0.002), cell.row, cell.column);
  }

  // ---- words

  begin() {
    const { header, panels } = this.store, { kernel } = header;
    this.pictures = panels.map(() => null);
    Object.assign(this.root.dataset, { title: header.title, run: header.run });
    this.hint.textContent = "Click: query and key. Drag: zoom.";
    const head = (title, words, panel) => {
      const node = this.empty.cloneNode(true);
      node.hidden = false;
      node.querySelector("strong").textContent = title;
      node.querySelector(".mta-what").textContent = words;
      legend(node, panel);
      return node;
    };
    this.titles = panels.map((panel) => head(panel.heading, `${panel.heading && "· "}${panel.stage} (${panel.unit})`, panel));
    this.kernel = kernel && head("kernel", `· ${kernel.title}`, { ...kernel, signed: true });
    this.heads.replaceChildren(...this.titles, ...(kernel ? [this.kernel] : []));
    this.crops.replaceChildren(...[...Object.keys(header.crops), "window", "whole"].map((name) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = button.dataset.crop = name;
      button.disabled = !this.store.boxOf(name);
      button.onclick = () => this.store.show(name);
      return button;
    }));
    this.laid = "";
  }

  say() {
    const { store } = this, cell = store.hovered ?? store.cell;
    if (!cell || !this.titles) return;
    store.panels.forEach((panel, at) => {
      const [value, rest] = store.facts(panel, cell.query, cell.key), node = this.titles[at];
      node.querySelector("output").textContent = value.replace(` (${panel.unit})`, ""); // the title says it
      node.querySelector("small").textContent = rest.replace(/^ · | in the row$/g, "");
    });
    if (this.kernel) this.sayTap();
    for (const button of this.crops.children) button.setAttribute("aria-pressed", button.dataset.crop === store.state.crop);
  }

  sayTap() {
    const { taps, query, key } = this.store.header.kernel, { row, column } = this.tap ?? { row: -query, column: -key };
    const value = taps[row]?.[column], where = [away(row + query, "query", "queries"), away(column + key, "key", "keys")];
    this.kernel.querySelector("output").textContent = Number.isFinite(value) ? digits(value, true) : "not a number";
    this.kernel.querySelector("small").textContent = where.filter(Boolean).join(", ") || "own tap";
  }

  announce() {
    const { store } = this;
    if (!store.cell) return;
    const { query, key } = store.cell, name = (at) => store.token(at).map(isolated).join("");
    const values = store.panels.map((panel) => `${panel.heading} ${store.facts(panel, query, key).join("")}`.trim());
    const words = `query${name(query)}, key${name(key)}: ${values.join("; ")}`;
    this.map.setAttribute("aria-label", `${store.header.title}. Arrows move the cell, + and - zoom. ${words}`);
    Object.assign(this.root.dataset, { query, key });
  }

  // ---- where everything stands

  layOut() { // whether anything moved
    const { store } = this, width = this.root.clientWidth;
    if (!width || !store?.header) return false;
    const laid = [width, ...store.state.frame, window.devicePixelRatio].join();
    if (laid === this.laid) return false;
    this.laid = laid;
    this.dots = window.devicePixelRatio || 1;
    this.arrange(width, ...store.state.frame);
    this.font = this.room.font + FONT;
    const down = Math.max(...[...this.plots, this.taps].filter(Boolean).map(({ y, high }) => y + high)) + BOTTOM;
    this.map.style.height = `${down}px`;
    for (const canvas of [this.cells, this.over]) {
      Object.assign(canvas, { width: Math.round(width * this.dots), height: Math.round(down * this.dots) });
      Object.assign(canvas.style, { width: `${width}px`, height: `${down}px` });
    }
    this.draw();
    return true;
  }

  arrange(width, rows, columns) {
    const { panels, header: { kernel } } = this.store, count = panels.length;
    const room = (this.room = width < NARROW_BELOW ? NARROW : WIDE), across = kernel?.taps[0].length;
    const tap = kernel && within(Math.floor((0.22 * width - room.taps) / across), ...room.tap);
    const beside = kernel ? room.taps + tap * across + room.between : 0;
    const share = (width - room.left - 8 - beside - room.between * (count - 1)) / count, stacked = count > 1 && share < NARROWEST;
    const slot = stacked ? width - room.left - 8 : share, side = slot >= 260 ? SIDE : 0;
    const most = within(slot - side, 80, WIDEST), size = sized(rows, columns, most);
    const head = Math.max(size.wide, Math.min(most, 150)), words = head < 300 && count > 1 ? 66 : count > 1 ? 50 : 34;
    let x = room.left, y = words + TOP;
    const place = (area, step) => {
      const placed = { ...area, x, y, words, head: Math.max(head, 0) };
      if (stacked) y += words + TOP + area.high + BOTTOM;
      else x += step + room.between;
      return placed;
    };
    this.plots = panels.flatMap((panel, index) => {
      const plot = place({ panel, index, side, first: stacked || !index, ...size }, head + side);
      if (index || !kernel) return [plot];
      const shape = { tap, rows: kernel.taps.length, columns: across, wide: tap * across, high: tap * kernel.taps.length };
      x += room.taps * !stacked;
      this.taps = place(shape, shape.wide);
      return [plot];
    });
    if (!kernel) this.taps = null;
    this.titles.forEach((node, at) => this.stand(node, this.plots[at]));
    if (this.kernel) this.stand(this.kernel, { ...this.taps, x: this.taps.x - room.taps + 2, head: this.taps.wide + room.taps + room.between - 14, more: 16 });
  }

  stand(node, { x, y, head, words, more = 0 }) { // more: of the bars' height, where none are
    Object.assign(node.style, { left: `${x}px`, top: `${y - words - TOP}px`, width: `${head}px`, height: `${words + more}px` });
  }

  x(plot, column) {
    const [, , left, right] = this.store.state.box;
    return plot.x + ((column - left) / (right - left)) * plot.wide;
  }

  y(plot, row) {
    const [top, bottom] = this.store.state.box;
    return plot.y + ((row - top) / (bottom - top)) * plot.high;
  }

  at(query, key, panel = 0) { // the middle of a cell on the screen
    const box = this.map.getBoundingClientRect(), [row, column] = this.store.place(query, key), plot = this.plots[panel];
    return [box.left + this.x(plot, column + 0.5), box.top + this.y(plot, row + 0.5)];
  }

  // ---- drawing

  start(canvas) {
    const pen = canvas.getContext("2d");
    pen.setTransform(this.dots, 0, 0, this.dots, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.font = this.font;
    pen.textBaseline = "middle";
    return pen;
  }

  inside(pen, { x, y, wide, high }, draw) {
    pen.save();
    pen.beginPath();
    pen.rect(x, y, wide, high);
    pen.clip();
    draw();
    pen.restore();
  }

  draw() {
    if (!this.plots) return;
    const pen = this.start(this.cells), ink = getComputedStyle(this.root).color;
    for (const plot of this.plots) {
      this.inside(pen, plot, () => { this.hatch(pen, plot); this.paint(pen, plot); });
      pen.strokeStyle = FRAME;
      pen.strokeRect(plot.x - 0.5, plot.y - 0.5, plot.wide + 1, plot.high + 1);
      this.label(pen, plot, ink);
      this.bars(pen, plot);
    }
    if (this.taps) this.drawTaps(pen, ink);
    this.drawOver();
  }

  hatch(pen, { x, y, wide, high }) {
    const { masked, ground } = this.store.header.colors;
    pen.fillStyle = ground;
    pen.fillRect(x, y, wide, high);
    pen.strokeStyle = masked;
    pen.beginPath();
    for (let at = 0; at < wide + high; at += 8) {
      pen.moveTo(x + at - high, y + high);
      pen.lineTo(x + at, y);
    }
    pen.stroke();
  }

  paint(pen, plot) {
    const { store } = this, { start, shape } = store.header, { panel, x, y, wide, high } = plot;
    const [top, bottom, left, right] = store.state.box;
    pen.imageSmoothingEnabled = false;
    if (Math.max((bottom - top) / high, (right - left) / wide) > this.dots)
      return pen.drawImage(this.pooled(panel, Math.round(wide * this.dots), Math.round(high * this.dots)), x, y, wide, high);
    const value = (row, column) => store.value(panel, row + start[0], column + start[1]);
    this.pictures[plot.index] ??= this.picture(panel, ...shape, value);
    pen.drawImage(this.pictures[plot.index], left, top, right - left, bottom - top, x, y, wide, high);
    this.cross(pen, plot);
  }

  pooled(panel, across, down) { // more cells than dots: a dot has the value of largest size under it
    const { store } = this, [top, bottom, left, right] = store.state.box, [first, before] = store.header.start;
    const [rows, columns] = store.header.shape, size = (value) => (Number.isNaN(value) ? Infinity : Math.abs(value));
    const best = new Array(across * down).fill(null);
    for (let row = Math.floor(top); row < Math.min(Math.ceil(bottom), rows); row++) {
      const line = within(Math.floor(((row - top) / (bottom - top)) * down), 0, down - 1) * across;
      for (let column = Math.floor(left); column < Math.min(Math.ceil(right), columns); column++) {
        const value = store.value(panel, row + first, column + before);
        if (value === null) continue;
        const at = line + within(Math.floor(((column - left) / (right - left)) * across), 0, across - 1);
        if (best[at] === null || size(value) > size(best[at])) best[at] = value;
      }
    }
    return this.picture(panel, down, across, (row, column) => best[row * across + column]);
  }

  picture(panel, rows, columns, value) {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: columns, height: rows });
    const pen = canvas.getContext("2d"), image = pen.createImageData(columns, rows), { bad } = this.store.header.colors;
    const wrong = [1, 3, 5].map((at) => parseInt(bad.slice(at, at + 2), 16));
    for (let row = 0, at = 0; row < rows; row++)
      for (let column = 0; column < columns; column++, at += 4) {
        const here = value(row, column);
        if (here === null) continue;
        const step = Number.isFinite(here) ? 3 * stepOf(panel, here) : 0;
        image.data.set(Number.isFinite(here) ? panel.colors.subarray(step, step + 3) : wrong, at);
        image.data[at + 3] = 255;
      }
    pen.putImageData(image, 0, 0);
    return canvas;
  }

  cross(pen, plot) {
    const { store } = this, [top, bottom, left, right] = store.state.box, [first, before] = store.header.start;
    const wide = plot.wide / (right - left), high = plot.high / (bottom - top);
    if (Math.min(wide, high) < CROSS) return;
    for (let row = Math.floor(top); row < bottom; row++)
      for (let column = Math.floor(left); column < right; column++) {
        const value = store.value(plot.panel, row + first, column + before);
        if (typeof value === "number" && !Number.isFinite(value))
          crossed(pen, this.x(plot, column), this.y(plot, row), wide, high, store.header.colors.bad);
      }
  }

  label(pen, plot, ink) {
    const { store } = this, [top, bottom, left, right] = store.state.box, [first, before] = store.header.start;
    pen.fillStyle = ink;
    if (plot.first) for (const row of ticks(top, bottom, plot.high, first, this.room.label)) this.tick(pen, plot, row, true);
    for (const column of ticks(left, right, plot.wide, before, this.room.label)) this.tick(pen, plot, column, false);
    if (!plot.first) return;
    pen.textAlign = "left";
    pen.fillText("query ↓", 2, plot.y - 12);
    pen.textAlign = "right";
    pen.fillText("key →", plot.x - GAP, plot.y + plot.high + 12);
  }

  tick(pen, plot, place, down, ground) {
    const { store } = this, at = place + store.header.start[down ? 0 : 1], text = `${at} ${isolated(cut(store.word(at, plot.panel), this.room.letters))}`;
    pen.save();
    if (down) pen.translate(plot.x - GAP - 2, this.y(plot, place + 0.5));
    else pen.translate(this.x(plot, place + 0.5), plot.y + plot.high + GAP + 2);
    if (!down) pen.rotate(-Math.PI / 2);
    if (ground) {
      const ink = pen.fillStyle, width = down ? this.room.left - GAP : BOTTOM - GAP;
      const [above, below] = this.covered(plot, place, down);
      pen.fillStyle = ground;
      pen.fillRect(-width, -above, width + 1, above + below);
      pen.fillStyle = ink;
    }
    pen.textAlign = "right";
    pen.fillText(text, 0, 0, down ? this.room.left - GAP - 4 : BOTTOM - GAP - 4);
    pen.restore();
  }

  covered(plot, place, down) { // pixels on both sides of a label laid over the others: those it meets are hidden whole
    const [from, to] = this.store.state.box.slice(down ? 0 : 2), size = down ? plot.high : plot.wide;
    const apart = ticks(from, to, size, this.store.header.start[down ? 0 : 1], this.room.label)
      .map((other) => ((other - place) * size) / (to - from));
    return [-1, 1].map((side) => {
      const next = Math.min(...apart.map((px) => px * side).filter((px) => px > 0));
      return next < this.room.label ? next + 6 : Math.min(8, next - 5);
    });
  }

  spansOf({ panel }) {
    return panel.pieces ? [] : this.store.header.spans; // they are the text's
  }

  bars(pen, plot) { // of named spans, outside along both axes, with their letters
    const [first, before] = this.store.header.start, end = plot.y + plot.high;
    const taken = [], inside = (low, high, from, to) => [within(low, from, to), within(high, from, to)];
    for (const { letter, color, start, stop } of this.spansOf(plot)) {
      const [top, bottom] = inside(this.y(plot, start - first), this.y(plot, stop - first), plot.y, end);
      const [left, right] = inside(this.x(plot, start - before), this.x(plot, stop - before), plot.x, plot.x + plot.wide);
      pen.fillStyle = color;
      if (bottom > top && plot.first) pen.fillRect(plot.x - GAP + 1, top, GAP - 3, bottom - top);
      if (right <= left) continue;
      pen.fillRect(left, end + 2, right - left, GAP - 3);
      const middle = (left + right) / 2;
      if (taken.some((other) => Math.abs(other - middle) < 9)) continue; // letters would touch
      taken.push(middle);
      pen.textAlign = "center";
      pen.font = "bold " + this.font;
      pen.fillText(letter, middle, plot.y - 8);
      pen.font = this.font;
    }
  }

  drawTaps(pen, ink) {
    const { taps: values, query, key, ...scale } = this.store.header.kernel, { x, y, tap, wide, high } = this.taps;
    values.forEach((line, row) => line.forEach((value, column) => {
      const left = x + column * tap, top = y + row * tap;
      pen.fillStyle = Number.isFinite(value) ? color(scale, stepOf({ ...scale, signed: true }, value)) : "#FFFFFF";
      pen.fillRect(left, top, tap, tap);
      if (!Number.isFinite(value)) crossed(pen, left, top, tap, tap, this.store.header.colors.bad);
    }));
    pen.strokeStyle = FRAME;
    pen.strokeRect(x - 0.5, y - 0.5, wide + 1, high + 1);
    pen.setLineDash([2, 2]); // right of the own key begin the later ones
    pen.strokeStyle = INK;
    pen.beginPath();
    pen.moveTo(x + (1 - key) * tap, y);
    pen.lineTo(x + (1 - key) * tap, y + high);
    pen.stroke();
    pen.setLineDash([]);
    pen.lineWidth = 2;
    pen.strokeRect(x - key * tap, y - query * tap, tap, tap);
    pen.lineWidth = 1;
    this.labelTaps(pen, ink);
  }

  labelTaps(pen, ink) {
    const { taps, query, key } = this.store.header.kernel, { x, y, tap, wide, high } = this.taps;
    const sign = (offset) => (offset > 0 ? `+${offset}` : `${offset}`.replace("-", "−"));
    pen.fillStyle = ink;
    pen.textAlign = "right";
    const ends = (first, count) => [...new Set([first, 0, first + count - 1])].filter((at) => at >= first && at < first + count);
    for (const row of ends(query, taps.length)) pen.fillText(sign(row), x - 5, y + (row - query + 0.5) * tap);
    pen.textAlign = "center";
    for (const column of ends(key, taps[0].length)) pen.fillText(sign(column), x + (column - key + 0.5) * tap, y + high + 9);
    pen.textAlign = "left";
    pen.fillText("query ↓", x - this.room.taps + 2, y - 12);
    pen.fillText("◂ earlier", x, y + high + 23);
    pen.fillText("own tap", x + 14, y + high + 52);
    pen.strokeStyle = ink;
    pen.lineWidth = 2;
    pen.strokeRect(x + 1, y + high + 47, 9, 9);
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.fillText("later ▸", x + wide, y + high + (wide < 110 ? 37 : 23));
    if (wide >= 110) pen.fillText("key", x + wide, y + high + 37);
  }

  drawOver() {
    const { store } = this;
    if (!this.plots || !store.cell) return;
    const pen = this.start(this.over), style = getComputedStyle(this.root), cell = store.hovered ?? store.cell;
    const ground = style.getPropertyValue("--st-background-color") || "#FFFFFF";
    const [top, bottom, left, right] = store.state.box, [row, column] = store.place(cell.query, cell.key);
    for (const plot of this.plots) {
      this.profiles(pen, plot, cell, style.color);
      this.inside(pen, plot, () => this.point(pen, plot));
      pen.font = "bold " + this.font;
      pen.fillStyle = style.color;
      if (plot.first && row >= top && row < bottom) this.tick(pen, plot, row, true, ground);
      if (column >= left && column < right) this.tick(pen, plot, column, false, ground);
      pen.font = this.font;
    }
    if (this.taps && this.tap) {
      const { x, y, tap } = this.taps;
      ringed(pen, x + this.tap.column * tap, y + this.tap.row * tap, tap, tap);
    }
  }

  point(pen, plot) {
    const { cell, hovered } = this.store;
    this.line(pen, plot, cell, INK, []);
    if (hovered) this.line(pen, plot, hovered, "#000000", [3, 3]);
    this.outlineRow(pen, plot);
    this.frame(pen, plot, cell);
    if (plot.index === 0 && this.taps && hovered?.panel !== 0) this.window(pen, plot, hovered ?? cell);
    if (this.drag?.far && !this.drag.pan) this.rubber(pen, plot);
  }

  line(pen, plot, { query, key }, color, dash) {
    const [row, column] = this.store.place(query, key), x = this.x(plot, column + 0.5), y = this.y(plot, row + 0.5);
    pen.strokeStyle = color;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(plot.x, y);
    pen.lineTo(plot.x + plot.wide, y);
    pen.moveTo(x, plot.y);
    pen.lineTo(x, plot.y + plot.high);
    pen.globalAlpha = 0.55;
    pen.stroke();
    pen.globalAlpha = 1;
    pen.setLineDash([]);
  }

  window(pen, plot, cell) { // what the kernel reads for a cell of the map after it, and the tap that is pointed at
    const { taps, query, key } = this.store.header.kernel, [row, column] = this.store.place(cell.query, cell.key);
    const box = (down, across, rows, columns) => {
      const left = this.x(plot, column + across), top = this.y(plot, row + down);
      return [left, top, this.x(plot, column + across + columns) - left, this.y(plot, row + down + rows) - top];
    };
    pen.lineWidth = 2.5;
    pen.strokeStyle = POINTED;
    pen.strokeRect(...box(query, key, taps.length, taps[0].length));
    pen.lineWidth = 1;
    if (this.tap) ringed(pen, ...box(query + this.tap.row, key + this.tap.column, 1, 1));
  }

  outlineRow(pen, plot) {
    const { store } = this, [row] = store.place(store.cell.query, 0), before = store.header.start[1];
    pen.lineWidth = 1.5;
    for (const { color, start, stop } of this.spansOf(plot)) {
      pen.strokeStyle = color;
      const left = this.x(plot, start - before), top = this.y(plot, row);
      pen.strokeRect(left, top, this.x(plot, stop - before) - left, this.y(plot, row + 1) - top);
    }
    pen.lineWidth = 1;
  }

  frame(pen, plot, { query, key }) {
    const [row, column] = this.store.place(query, key), [top, bottom, left, right] = this.store.state.box;
    const wide = Math.max(plot.wide / (right - left), 4), high = Math.max(plot.high / (bottom - top), 4);
    ringed(pen, this.x(plot, column + 0.5) - wide / 2, this.y(plot, row + 0.5) - high / 2, wide, high);
  }

  rubber(pen, plot) {
    const { from, to } = this.drag, x = this.x(plot, from.column), y = this.y(plot, from.row);
    pen.strokeStyle = "#000000";
    pen.setLineDash([4, 3]);
    pen.strokeRect(x, y, this.x(plot, to.column) - x, this.y(plot, to.row) - y);
    pen.setLineDash([]);
  }

  profiles(pen, plot, { query, key }, ink) { // the row above the map, the column at its right, in the map's colours
    const { store } = this, [top, bottom, left, right] = store.state.box, [first, before] = store.header.start;
    const { panel, x, y, wide, high, side } = plot, end = { x: x + wide, y: y + high }, across = side - 10;
    const zero = panel.signed ? 0.5 : 0, over = y - 16 - DEEP;
    const sizeOf = (value) => within((value ?? 0) / panel.limit || 0, -1, 1) * (1 - zero);
    const bar = (value) => { pen.fillStyle = color(panel, value < 0 ? 30 : panel.signed ? 225 : 190); };
    pen.fillStyle = ink;
    pen.strokeStyle = FRAME;
    pen.textAlign = "left";
    if (plot.first) pen.fillText(`row ${query}`, 2, over + DEEP / 2);
    pen.fillStyle = "#FFFFFF"; // as plots are
    pen.fillRect(x + 0.5, over + 0.5, wide - 1, DEEP);
    pen.strokeRect(x + 0.5, over + 0.5, wide - 1, DEEP);
    for (let column = Math.floor(left); column < right; column++) {
      const value = store.value(panel, query, before + column), size = sizeOf(value) * DEEP, from = Math.max(this.x(plot, column), x);
      if (!size) continue;
      bar(value);
      pen.fillRect(from, over + DEEP * (1 - zero) - Math.max(size, 0), Math.max(Math.min(this.x(plot, column + 1), end.x) - from, 1), Math.abs(size));
    }
    if (!side) return;
    pen.fillStyle = ink;
    pen.textAlign = "right"; // within the map's room, however long
    pen.fillText("col", end.x + 6.5 + across, over + DEEP / 2); // on two lines: no letter over the map is met
    pen.fillText(key, end.x + 6.5 + across, y - 8);
    pen.fillStyle = "#FFFFFF";
    pen.fillRect(end.x + 6.5, y + 0.5, across, high - 1);
    pen.strokeRect(end.x + 6.5, y + 0.5, across, high - 1);
    for (let row = Math.floor(top); row < bottom; row++) {
      const value = store.value(panel, first + row, key), size = sizeOf(value) * across, from = Math.max(this.y(plot, row), y);
      if (!size) continue;
      bar(value);
      pen.fillRect(end.x + 6.5 + across * zero + Math.min(size, 0), from, Math.abs(size), Math.max(Math.min(this.y(plot, row + 1), end.y) - from, 1));
    }
  }
}

function sized(rows, columns, most) { // as large as there is room; square where that leaves some height
  const cell = Math.min(most / columns, BIGGEST), wide = Math.round(cell * columns);
  const high = Math.max(rows * cell, Math.min(rows * 13, LOWEST));
  return { wide, high: Math.round(Math.min(high, Math.max(most, 320))) };
}

function ticks(low, high, size, offset, label) { // places to label: so many pixels apart, at round positions
  const per = size / (high - low), steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
  const step = steps.find((each) => each * per >= label) ?? 2000, places = [];
  for (let at = Math.ceil((Math.ceil(low) + offset) / step) * step; at - offset + 0.5 < high; at += step) places.push(at - offset);
  return places;
}

function away(offset, one, many) {
  const count = Math.abs(offset);
  return count && `${count} ${count > 1 ? many : one} ${offset < 0 ? "earlier" : "later"}`;
}

function cut(piece, most) {
  const letters = [...piece];
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : piece;
}

function ringed(pen, ...box) { // seen on every colour
  for (const [width, ink] of [[4, "#000000"], [1.5, "#FFFFFF"]]) {
    pen.lineWidth = width;
    pen.strokeStyle = ink;
    pen.strokeRect(...box);
  }
  pen.lineWidth = 1;
}

function crossed(pen, x, y, wide, high, ink) {
  pen.fillStyle = "#FFFFFF";
  pen.fillRect(x, y, wide, high);
  pen.strokeStyle = ink;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(x + 0.2 * wide, y + 0.2 * high);
  pen.lineTo(x + 0.8 * wide, y + 0.8 * high);
  pen.moveTo(x + 0.8 * wide, y + 0.2 * high);
  pen.lineTo(x + 0.2 * wide, y + 0.8 * high);
  pen.stroke();
  pen.lineWidth = 1;
}
