// Tells the view which cell is chosen, and the server what a visitor chooses. Draws nothing.
export default function ({ data, parentElement, setTriggerValue }) {
  const tell = () => document.dispatchEvent(new CustomEvent("mta-cell:" + data.view, { detail: data }));
  const take = ({ detail }) => setTriggerValue("choice", detail);
  parentElement.mtaStop?.();
  document.addEventListener("mta-choice:" + data.view, take);
  document.addEventListener("mta-ask:" + data.view, tell);
  parentElement.mtaStop = () => {
    document.removeEventListener("mta-choice:" + data.view, take);
    document.removeEventListener("mta-ask:" + data.view, tell);
  };
  tell();
  return () => parentElement.mtaStop();
}
