// What Streamlit leaves to the browser: its history, the link over a sign-in, the focus in a dialog. Draws nothing.
//
// One entry in the history for each deliberate act: Streamlit adds an entry whenever the address changes, so that opening a page, or a step along the cells,
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

// A button that is disabled while its file is made loses the focus, without an event, and the dialog its keys.
const DIALOG = '[role="dialog"]';

function keepFocus() {
  let last = null;
  const lost = () => document.activeElement === document.body && document.querySelector(DIALOG);
  addEventListener("focusin", ({ target }) => { last = target.closest?.(DIALOG) ? target : null; }, true);
  new MutationObserver(() => {
    if (last?.isConnected && !last.disabled && lost()) last.focus();
  }).observe(document.body, { subtree: true, attributeFilter: ["disabled"] });
  addEventListener("keydown", ({ key, code }) => {
    const dialog = key === "Escape" && lost();
    if (dialog) {
      dialog.focus();
      dialog.dispatchEvent(new KeyboardEvent("keydown", { key, code, bubbles: true }));
    }
  }, true);
}

// Who has signed in comes back to the first page, whatever link was opened before.
const LINK = "mta_viz.link";

function keepLink(signIn) {
  const link = sessionStorage.getItem(LINK);
  sessionStorage.removeItem(LINK);
  if (!signIn && link) location.replace(link);
  else if (signIn && (location.search || !location.pathname.endsWith("/"))) sessionStorage.setItem(LINK, location.href);
}

export default function ({ data }) {
  if (!window.mtaFrame) {
    window.mtaFrame = true;
    keepLink(data.signIn);
    keepHistory();
    keepFocus();
  }
}
