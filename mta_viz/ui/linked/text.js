// The prompt as text, coloured by a row or a column of one of the maps.

const UNDERLINED_FROM = 0.02; // of the limit: below it the colour of a negative weight is not seen

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".mta-words");
  root.mtaView ??= new Text(root);
  root.mtaView.show(data);
  return () => root.mtaView.stop();
}

class Text {
  constructor(root) {
    this.root = root;
    for (const name of ["title", "bar", "panels", "hint", "text", "says", "live"])
      this[name] = root.querySelector(".mta-" + name);
    this.sides = [...root.querySelectorAll("[data-side]")];
    for (const button of this.sides) button.onclick = () => this.store.choose({ side: button.dataset.side });
    this.text.onpointermove = (event) => this.store.point(this.cellOf(event.target));
    this.text.onpointerleave = () => this.store.point(null);
    this.text.onclick = (event) => this.take(event);
    this.text.onkeydown = (event) => this.read(event);
  }

  stop() {
    this.store?.views.delete(this);
  }

  show(bytes) {
    const sent = decoded(bytes), store = storeOf(sent.header.view);
    if (store !== this.store) this.stop();
    this.store = store;
    this.shown = null;
    store.views.add(this);
    store.take(sent);
    store.ask();
    this.update("data");
  }

  update(what) {
    const { store } = this;
    if (what === "data" && this.shown !== store.header.id) {
      this.shown = store.header.id;
      this.write();
      this.offer();
    }
    if (!store.cell || what === "crop") return;
    if (what !== "hover") this.color();
    this.light();
    this.say();
  }

  // ---- what a visitor chooses

  take(event) {
    const token = event.target.closest("[data-at]");
    if (token) this.store.choose({ [event.shiftKey ? "key" : "query"]: +token.dataset.at });
  }

  read(event) {
    const step = KEYS[event.key];
    if (!step) return;
    event.stopPropagation(); // the page's own arrows step along layers and heads
    if (!step[1]) return; // up and down scroll
    event.preventDefault();
    const part = event.shiftKey ? "key" : "query", next = this.store.cell[part] + step[1];
    if (this.spans.has(next)) this.store.choose({ [part]: next }, 100);
  }

  cellOf(element) {
    const token = element.closest("[data-at]"), { cell } = this.store;
    if (!token || !cell) return null;
    const at = +token.dataset.at;
    return cell.side === "from the query" ? { query: cell.query, key: at } : { query: at, key: cell.key };
  }

  // ---- words

  offer() { // one of several maps can be chosen to colour the text
    const { store } = this, { header, panels } = store;
    Object.assign(this.root.dataset, { title: header.title, run: header.run });
    this.text.setAttribute("aria-label", "Tokens. Left and right choose the query, with Shift the key.");
    this.hint.textContent = "Click: query. Shift and click: key.";
    this.panels.hidden = panels.length < 2;
    this.panels.replaceChildren(...panels.map((panel, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = panel.heading;
      button.onclick = () => store.paint(at);
      return button;
    }));
  }

  say() {
    const { store } = this, { query, key } = store.hovered ?? store.cell, panel = store.panels[store.state.colored];
    const words = ["query", ...store.token(query), " · key", ...store.token(key)];
    const parts = words.map((word) => {
      const part = document.createElement("bdi");
      part.textContent = word;
      return part;
    });
    const value = document.createElement("span"), facts = store.facts(panel, query, key);
    value.textContent = `${panel.heading || panel.stage}: ${facts.join("")}`;
    this.says.replaceChildren(...parts, " · ", value);
    if (store.hovered) return;
    const name = (at) => store.token(at).map(isolated).join("");
    const announced = `query${name(query)}, key${name(key)}: ${value.textContent}`;
    clearTimeout(this.announcing);
    this.announcing = setTimeout(() => { this.live.textContent = announced; }, 300);
  }

  write() {
    const nodes = [], { spans, marks, parts, text } = this.store.header;
    this.spans = new Map();
    const named = (at) => spans.find((span) => span.start <= at && at < span.stop);
    text.forEach(([start, pieces], index) => {
      if (index) nodes.push(" … ");
      pieces.forEach((piece, offset) => {
        const at = start + offset, token = document.createElement("span"), span = named(at);
        token.dataset.at = at;
        token.textContent = piece.replaceAll("␣", " ");
        if (parts[at]) token.classList.add("mta-byte");
        if (marks.some(([first, last]) => first <= at && at < last)) token.classList.add("mta-mark");
        if (span) nodes.push(...this.outline(token, span, at));
        this.spans.set(at, token);
        nodes.push(token, ...(piece.endsWith("⏎") ? ["\n"] : []));
      });
    });
    this.text.replaceChildren(...nodes);
    this.lit = [];
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
    const { store } = this, { query, key, side } = store.cell, from = side === "from the query";
    const panel = store.panels[store.state.colored];
    for (const button of this.sides) button.setAttribute("aria-pressed", button.dataset.side === side);
    [...this.panels.children].forEach((button, at) => button.setAttribute("aria-pressed", at === store.state.colored));
    this.title.textContent = `${store.header.head} · ${panel.stage} (${panel.unit})`;
    legend(this.bar, panel);
    for (const [at, token] of this.spans) {
      const value = from ? store.value(panel, query, at) : store.value(panel, at, key), there = Number.isFinite(value);
      const step = there ? stepOf(panel, value) : 0;
      token.style.background = there ? color(panel, step) : "";
      const dark = there && luminance(...panel.colors.subarray(3 * step, 3 * step + 3)) < 0.18;
      token.style.color = dark ? "#FFFFFF" : there ? "#000000" : ""; // 4.5 to 1 on every colour
      token.classList.toggle("mta-masked", value === null);
      token.classList.toggle("mta-bad", typeof value === "number" && !there);
      token.classList.toggle("mta-negative", panel.unit === "weight" && value < -UNDERLINED_FROM * panel.limit);
      token.classList.toggle("mta-query", at === query);
      token.classList.toggle("mta-key", at === key);
    }
    this.reveal(this.spans.get(from ? query : key));
  }

  reveal(token) {
    const { text } = this;
    if (token && (token.offsetTop < text.scrollTop || token.offsetTop + 20 > text.scrollTop + text.clientHeight))
      text.scrollTop = token.offsetTop - text.clientHeight / 2;
  }

  light() {
    const { hovered } = this.store;
    for (const token of this.lit) token?.classList.remove("mta-hover");
    this.lit = hovered ? [this.spans.get(hovered.query), this.spans.get(hovered.key)] : [];
    for (const token of this.lit) token?.classList.add("mta-hover");
  }
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
