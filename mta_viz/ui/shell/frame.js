// What Streamlit leaves to the browser: one entry in its history for each deliberate act. Draws nothing.
//
// Streamlit adds an entry whenever the address changes, so that opening a page, or a step along the cells,
// would each need a Back of its own. Here an entry is added where a visitor did something since the last one
// and more than the chosen cell is another; else the present one is exchanged.
const CELL = ["q", "k"];

function place(url) {
  const { pathname, searchParams } = new URL(url, location.href);
  CELL.forEach((name) => searchParams.delete(name));
  searchParams.sort();
  return pathname + "?" + searchParams;
}

function keepHistory() {
  const add = history.pushState.bind(history);
  let acted = false;
  for (const kind of ["pointerdown", "keydown"]) {
    addEventListener(kind, () => { acted = true; }, true);
  }
  addEventListener("popstate", () => { acted = false; }, true);
  history.pushState = (state, title, url) => {
    const deliberate = acted && place(url) !== place(location.href);
    acted = acted && !deliberate;
    return deliberate ? add(state, title, url) : history.replaceState(state, title, url);
  };
}

export default function () {
  if (!window.mtaFrame) {
    window.mtaFrame = true;
    keepHistory();
  }
}
