"""The sidebar, the same on every page: checkpoint, prompt, Run.

It decides WHAT is wanted (a `Request`); loading and running it, and the settings, are the business of
`preparing`.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import streamlit as st

from mta_viz.checkpoint.reading import Found
from mta_viz.checkpoint.types import Summary
from mta_viz.config import DTYPES
from mta_viz.errors import MtaVizError, TooLongError
from mta_viz.printed import printable
from mta_viz.run.devices import multiply_adds
from mta_viz.tokenizers.base import Tokenizer, Tokens, cut_text, ids_from_text, tokens_from_ids, tokens_of
from mta_viz.tokenizers.chat import KIND
from mta_viz.tokenizers.loading import keep_given
from mta_viz.ui.shell import cache, link, models, state, work
from mta_viz.ui.shell.cache import ModelKey, RunKey
from mta_viz.ui.shell.link import Box, Prompt, fitting, in_template
from mta_viz.ui.shell.machine import draw_jobs, draw_models
from mta_viz.ui.shell.page import ASSETS
from mta_viz.ui.shell.pickers import Part
from mta_viz.ui.shell.plan import draw_interventions
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.uploads import keep_upload, upload
from mta_viz.ui.shell.widgets import Bases, TokenizerFiles, caption, offer_cuts, plain, window_button

P = TypeVar("P", str, tuple[int, ...])

STEP = Setting[int | None]("step", None)
DEVICE = Setting("device", "cpu", private=True)
DTYPE = Setting("dtype", DTYPES[0])
NUMBERING = Setting("numbering", 0)
FIRST_TOKEN = Setting("first_token", False)
FIRST = "needle-mta"  # of those shipped, which stand behind a visitor's own
FITS = 22  # characters of a checkpoint's line, of which more is cut: all of it stands behind a sign
THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
LIST = "examples"  # the key of the list of examples, which holds whether it is open
RUN = "run"  # the name of the work that loads the model and runs the prompt
ONLY_KERNELS = (
    "This file holds kernels only. Look at them on the Kernels page; for attention maps open the whole model."
)
NO_BASE = (
    "The base of this adapter is not here. Its kernels can be seen on the Kernels page; to run prompts, say "
    "at the left where the base lies."
)


@dataclass
class Request:
    """What the visitor wants to see, and the places in the sidebar that are filled later.

    `model` is None without a usable checkpoint (`problem` then says why); `run` is None without a
    prompt (`empty` then says what to do). `stale` says that the prompt was edited after the run.
    """

    found: Found | None = None
    model: ModelKey | None = None
    run: RunKey | None = None
    n_tokens: int = 0
    stale: bool = False
    problem: str = ""
    empty: str = ""
    details: Any = None
    estimate: Any = None
    settings: Any = None
    check: Any = None

    @property
    def summary(self) -> Summary:
        """The chosen checkpoint's facts; there are some wherever `model` is set."""
        if self.found is None or self.found.summary is None:
            raise RuntimeError("no usable checkpoint is chosen")
        return self.found.summary

    @property
    def runs(self) -> bool:
        """Whether a prompt can be run: not with kernels only, nor with an adapter without its base."""
        if self.summary.format == "adapter":
            return self.model is not None and self.model.base is not None
        return self.summary.format != "kernels"


def draw_sidebar() -> Request:
    """Draw the sidebar and say what is wanted."""
    request = Request()
    link.restore()
    DTYPE.declare(options=DTYPES)  # these three count before their widgets are drawn
    NUMBERING.declare(options=(0, 1))
    FIRST_TOKEN.declare()
    with st.sidebar:
        _draw_checkpoint(request)
        if request.model is not None and request.runs:
            _draw_prompt(request, request.model)
        elif request.model is not None:
            request.empty = NO_BASE if request.summary.format == "adapter" else ONLY_KERNELS
            caption(request.empty)
        draw_interventions(NUMBERING.value)
        # one that cannot be run stays in the address, as in its box
        prompt = request.run.prompt if request.run else _boxed_prompt()
        state.session().link.prompt = link.parameters(prompt)
        link.keep_typed(newer=bool(request.run and request.stale))
        request.settings = st.expander("Settings", icon=":material/tune:")
        draw_jobs(request.found, request.model)
        request.check = st.container()
    return request


def _draw_checkpoint(request: Request) -> None:
    roots = models.roots()
    found = cache.discovery(tuple(map(str, roots)))
    if not found.found:
        request.problem = models.nothing_found(roots, found.skipped)
        return
    request.found = _pick(found.found)
    window_button("All models", "models", draw_models, icon=":material/table:", width="stretch")
    caption(models.grey_line(request.found, DTYPE.value))
    for problem in found.skipped:
        caption(problem)
    request.details = st.expander("Details", icon=":material/info:")
    summary = request.found.summary
    if summary is not None and summary.format == "params":
        request.problem = "This is a params.json without weights: shapes only, nothing to run. See Details."
        request.details.code("\n".join(models.shape_lines(summary.config)), language=None, wrap_lines=True)
    elif summary is None or request.found.problem:
        request.problem = request.found.problem or "This model cannot be read."
    else:
        request.model = _model_key(request.found)
        if summary.format == "adapter":
            _put_on_base(request, request.model)


def _put_on_base(request: Request, adapter: ModelKey) -> None:
    """The adapter with its base; a field for the base's place where it is not found."""
    base = models.base_of(adapter.path)
    if base.path is not None and request.found is not None:
        request.found = models.on_base(request.found, base)
        request.model = dataclasses.replace(adapter, base=base.path)
        return
    st.warning(plain(base.problem))
    bases = state.part(Bases)
    key = state.borrow("base", bases.get(adapter.path, ""))

    def keep(base: str) -> None:
        bases[adapter.path] = base.strip()

    change = state.on_choice(key, keep)
    st.text_input(
        "Base", bases.get(adapter.path, ""), key=key, placeholder="its folder or file", on_change=change
    )


def _pick(found: tuple[Found, ...]) -> Found:
    names = [model.name for model in found]
    by_id = {models.identity(model, names): model for model in found}
    wanted = state.selection().checkpoint
    if wanted is not None and wanted not in by_id:
        named = printable(wanted)
        st.warning(plain(f"The link names the model {named}, which is not in the folders given."))
    usable = [name for name, model in by_id.items() if model.problem is None]
    usable.sort(key=lambda name: name != FIRST and ASSETS in by_id[name].path.parents)
    first = wanted if wanted in by_id else next(iter([*usable, *by_id]))
    key = state.borrow("checkpoint", first)
    words = {name: models.label(model, names) for name, model in by_id.items()}
    look: dict[str, Any] = {"on_change": state.on_choice(key, _begin_at), "index": [*by_id].index(first)}
    if len(words[first]) > FITS:
        look["help"] = plain(words[first])
    chosen = st.selectbox("Checkpoint", list(by_id), format_func=words.__getitem__, key=key, **look)
    if chosen != state.selection().checkpoint:
        state.select(checkpoint=chosen)
    return by_id[chosen]


def _begin_at(checkpoint: str | None) -> None:
    """Another model's heads and positions are others, and so are those that matter on another example."""
    state.session().selection = state.Selection(checkpoint=checkpoint)
    state.part(Part).crop = None


def _model_key(found: Found) -> ModelKey:
    steps = found.summary.steps if found.summary else ()
    step = None
    if len(steps) > 1:
        step = st.selectbox("Training step", steps, **STEP.widget(steps, default=steps[-1]))
    return ModelKey(
        path=str(found.path),
        changed=cache.changed(found.path, step),
        device=DEVICE.value,
        dtype=DTYPE.value,
        tokenizer=state.part(TokenizerFiles).get(str(found.path)),
        step=step,
    )


def _draw_prompt(request: Request, model: ModelKey) -> None:
    name, path, tokenizer = request.summary.tokenizer_name, request.summary.tokenizer_path, None
    problem = "params.json names no tokenizer. Paste token ids instead of text."
    if name is not None:
        try:
            tokenizer = cache.tokenizer(name, path, model.base or model.path, model.tokenizer, model.changed)
        except MtaVizError as error:
            problem = str(error)
    if tokenizer is None:
        st.warning(plain(problem))
        chosen = upload("Tokenizer file", None, 50, "widget.tokenizer")
        if chosen is not None:
            state.part(TokenizerFiles)[model.path] = str(keep_upload(chosen.name, chosen.getvalue()))
            if st.get_option("server.address") in THIS_MACHINE:  # else it would be every visitor's
                keep_given(Path(model.base or model.path), chosen.name, chosen.getvalue())
            st.rerun()
        text = _draw_box("ids", "ids", "Token ids", "256, 72, 105").strip()
        tokens = partial(tokens_from_ids, vocab_size=request.summary.config.vocab_size)
        _want(request, text, "Paste token ids, or choose the tokenizer file.", ids_from_text, tokens)
    else:
        if before := getattr(tokenizer, "given_before", None):
            caption(f"With the tokenizer given for this model before: {printable(before.name)}")
        _draw_text(request, model, tokenizer)
    if request.n_tokens:  # now, so that what is under it stays in its place; the rest needs the model
        request.estimate = st.caption(f"{request.n_tokens:,} tokens")
    _draw_run(request)


def _draw_run(request: Request) -> None:
    """The Run button. Never disabled: a disabled one would swallow the click that ends the typing."""
    up_to_date = request.run is not None and not request.stale and not request.empty
    st.button(
        "Run",
        key=RUN,
        type="secondary" if up_to_date else "primary",
        icon=":material/play_arrow:",
        shortcut="Ctrl+Enter",
        width="stretch",
        on_click=request_run,
        help="Up to date: what is shown is of this prompt." if up_to_date else None,
    )


def _draw_text(request: Request, model: ModelKey, tokenizer: Tokenizer) -> None:
    box, nothing = state.part(Box), "Type something, or choose an example."
    box.fill(tokenizer, request.summary.config.n_ctx, request.summary.task)
    text = _draw_box("text", "prompt", "Prompt", nothing)
    look: dict[str, Any] = {"key": LIST, "on_change": "rerun", "width": "stretch"}
    with st.popover("Examples", icon=":material/lightbulb:", **look):
        for example in fitting(tokenizer):
            name, key = plain(example.name), f"example.{example.name}"
            st.button(name, key=key, width="stretch", on_click=_use_example, args=(example.text,))
    _draw_chat(model, tokenizer)
    _want(request, text, nothing, str, partial(tokens_of, tokenizer))


def _draw_chat(model: ModelKey, tokenizer: Tokenizer) -> None:
    """A switch that puts the text into the model's chat template and takes it out again; none without one."""
    box, place = state.part(Box), cache.chat_place(model.base or model.path, model.changed)
    if tokenizer.kind != KIND or place is None:
        return
    link.open_message(tokenizer, place)
    chat = box.chat if box.text and box.chat and box.chat.place == place else None
    on = chat is not None and not chat.problem
    link.keep_message(chat.message if chat is not None and on else "")
    key = state.borrow("chat", on)
    put = state.on_choice(key, partial(_put_chat, tokenizer, place))
    help = (
        "Puts the text into the model's own chat template, as a user's message. What is in the box then is "
        "what the model sees, special tokens and all, and can be edited. Off: your message again."
    )
    st.toggle("Chat template", on, key=key, on_change=put, help=help)
    if chat is not None and chat.problem:
        st.error(plain(chat.problem))
    elif chat is not None and chat.note:
        caption(chat.note)


def _put_chat(tokenizer: Tokenizer, place: Path, on: bool) -> None:
    box = state.part(Box)
    if on:
        box.text, box.chat = in_template(tokenizer, place, box.text or "")
    elif box.chat:
        box.text, box.chat = box.chat.message, None


def _use_example(text: str) -> None:
    """Run it, at the head and stage that the page picks, and close the list."""
    _begin_at(state.selection().checkpoint)
    use_prompt(text)
    state.set_widget(LIST, False)


def _draw_box(kind: Literal["text", "ids"], name: str, label: str, placeholder: str) -> str:
    box = state.part(Box)
    text, box.kind = getattr(box, kind), kind
    key = state.borrow(name, text)
    keep = state.on_choice(key, lambda text: setattr(box, kind, text))
    return st.text_area(label, text, height=120, placeholder=placeholder, key=key, on_change=keep)


def _want(
    request: Request, text: str, nothing: str, read: Callable[[str], P], encode: Callable[[P], Tokens]
) -> None:
    """What is wrong with the text in the box is said beside it, and on the page only where to look."""
    problem = link.problem(_boxed_prompt())
    if problem:
        st.warning(plain(problem))
    prompt = None
    try:
        if text:
            prompt = read(text)
            request.n_tokens = len(encode(prompt))
        request.empty = "" if text else nothing
    except MtaVizError as error:
        request.empty = "This prompt cannot be run: why stands under its box."
        if isinstance(error, TooLongError):  # the buttons over the message, which may be long
            offer_cuts(lambda place: use_prompt(cut_text(text, place)))
        else:
            _offer_model(request, prompt)
        st.error(plain(str(error)))
    _want_run(request, prompt, encode)


def _offer_model(request: Request, prompt: Prompt | None) -> None:
    """A button for the first model in the list that can take a text this one cannot."""
    able = (
        (name, model)
        for name, model in models.named().items()
        if isinstance(prompt, str) and models.takes(model, prompt)
    )
    for name, model in able:

        def go(name: str = name) -> None:
            _begin_at(name)
            request_run()

        words = plain(f"Run it in {model.name}")
        st.button(words, key="offer", icon=":material/swap_horiz:", width="stretch", on_click=go)
        return


def _want_run(request: Request, prompt: Prompt | None, encode: Callable[[Any], Tokens]) -> None:
    """The run to show is the last one asked for that can be run; the text in the box may be newer."""
    box = state.part(Box)
    if prompt and link.take(prompt, multiply_adds(request.summary.config, request.n_tokens)):
        box.run = prompt
    if request.model is None:
        return
    asked, last = box.run, box.last.get(request.model.path)
    if isinstance(asked, str) == (box.kind == "text") and _can_take(asked, encode):
        last = asked
    if last:
        box.last[request.model.path] = last
        request.run = RunKey(request.model, last)
        request.stale = last != prompt
    elif not request.empty:
        request.empty = "Press Run to see this prompt."


def _can_take(prompt: Prompt | None, encode: Callable[[Any], Tokens]) -> bool:
    try:
        return bool(prompt and len(encode(prompt)))
    except MtaVizError:
        return False


def use_prompt(prompt: Prompt) -> None:
    """Put a prompt into its box and run it."""
    state.part(Box).ask(prompt)
    request_run(prompt)


def request_run(prompt: Prompt | None = None) -> None:
    """Ask for a run of `prompt`; of what is in the box when None. A failed run is tried again."""
    asked = state.part(Box).run = _boxed_prompt() if prompt is None else prompt
    if not asked:  # the run before is what the page shows, also where it was stopped
        return
    work.forget(RUN)
    link.forget()
    state.select(query=None, key=None)
    state.part(Part).crop = None


def _boxed_prompt() -> Prompt:
    """What is in the box that is on the page; a box of another model may still have its text."""
    box = state.part(Box)
    if box.kind == "text":
        return box.text or ""
    try:
        return ids_from_text(box.ids)
    except MtaVizError:
        return ()
