"""The sidebar, the same on every page: checkpoint, prompt, Run, settings.

It decides WHAT is wanted (a `Request`); loading and running it is `open_page`'s business.

The settings at the sidebar's end: device, dtype, numbering, scale; and the search for new models.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from mta_viz.checkpoint.reading import Found, Summary
from mta_viz.config import DTYPES
from mta_viz.errors import MtaVizError
from mta_viz.run.cost import multiply_adds
from mta_viz.tokenizers.base import Tokenizer, Tokens
from mta_viz.tokenizers.pasted import ids_from_text, tokens_from_ids
from mta_viz.ui.shell import cache, link, models, state, work
from mta_viz.ui.shell.cache import ModelKey, RunKey
from mta_viz.ui.shell.link import Box, fitting, prompt_for
from mta_viz.ui.shell.pickers import Part
from mta_viz.ui.shell.plan import draw_interventions
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.uploads import TokenizerFiles, keep_upload
from mta_viz.ui.shell.widgets import caption, plain

CHECKPOINT = "checkpoint"
STEP = Setting[int | None]("step", None)
DEVICE = Setting("device", "cpu", private=True)
DTYPE = Setting("dtype", DTYPES[0])
NUMBERING = Setting("numbering", 0)
FIRST_TOKEN = Setting("first_token", False)
RUN = "run"  # the name of the work that loads the model and runs the prompt
ONLY_KERNELS = (
    "This file holds kernels only. Look at them on the Kernels page; for attention maps open the whole model."
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
    button: Any = None
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
        """Whether a prompt can be run: not with a file that holds kernels only."""
        return self.summary.format != "kernels"

    @property
    def model_key(self) -> ModelKey:
        """`model`, where it is known to be set."""
        if self.model is None:
            raise RuntimeError("no usable checkpoint is chosen")
        return self.model


def draw_sidebar() -> Request:
    """Draw the sidebar and say what is wanted."""
    request = Request()
    link.restore()
    DTYPE.declare(options=DTYPES)  # these three count before their widgets are drawn
    NUMBERING.declare(options=(0, 1))
    FIRST_TOKEN.declare()
    with st.sidebar:
        _draw_checkpoint(request)
        if request.model is not None:
            (_draw_prompt if request.runs else _say_kernels_only)(request)
        draw_interventions(NUMBERING.value)
        state.session().link.prompt = link.parameters(request.run.prompt if request.run else None)
        request.settings = st.expander("Settings", icon=":material/tune:")
        request.check = st.container()
    return request


def _draw_checkpoint(request: Request) -> None:
    roots = models.roots()
    found = cache.discovery(tuple(map(str, roots)))
    if not found.found:
        request.problem = models.nothing_found(roots, found.skipped)
        return
    request.found = _pick(found.found)
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


def _pick(found: tuple[Found, ...]) -> Found:
    names = [one.name for one in found]
    by_id = {models.identity(one, names): one for one in found}
    wanted = state.selection().checkpoint
    if wanted is not None and wanted not in by_id:
        st.warning(plain(f"The link names the model {wanted}, which is not in the folders given."))
    usable = [name for name, one in by_id.items() if one.problem is None]
    key = state.borrow(CHECKPOINT, wanted if wanted in by_id else next(iter([*usable, *by_id])))
    chosen = st.selectbox(
        "Checkpoint",
        list(by_id),
        format_func=lambda name: models.label(by_id[name], names),
        key=key,
        on_change=_choose_checkpoint,
        args=(key,),
    )
    if chosen != state.selection().checkpoint:
        state.select(checkpoint=chosen)
    return by_id[chosen]


def _choose_checkpoint(key: str) -> None:
    """Another model: its heads and positions are others, so the page picks again."""
    state.session().selection = state.Selection(checkpoint=st.session_state[key])
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
        tokenizer=state.part(TokenizerFiles).of.get(str(found.path)),
        step=step,
    )


def _say_kernels_only(request: Request) -> None:
    caption(ONLY_KERNELS)
    request.empty, request.button = ONLY_KERNELS, st.empty()


def _draw_prompt(request: Request) -> None:
    tokenizer, problem = _tokenizer(request)
    if tokenizer is None:
        _draw_missing_tokenizer(request, problem)
        _draw_ids(request)
    else:
        _draw_text(request, tokenizer)
    request.estimate = st.empty()
    request.button = st.empty()


def _tokenizer(request: Request) -> tuple[Tokenizer | None, str]:
    """The tokenizer, or None and why."""
    model, name, path = request.model_key, request.summary.tokenizer_name, request.summary.tokenizer_path
    if name is None:
        return None, "params.json names no tokenizer. Paste token ids instead of text."
    try:
        return cache.tokenizer(name, path, model.path, model.tokenizer, model.changed), ""
    except MtaVizError as error:
        return None, str(error)


def _draw_missing_tokenizer(request: Request, problem: str) -> None:
    st.warning(plain(problem))
    upload = st.file_uploader("Tokenizer file", key="widget.tokenizer", max_upload_size=50)
    if upload is not None:
        file = keep_upload(upload.name, upload.getvalue())
        state.part(TokenizerFiles).of[request.model_key.path] = str(file)
        st.rerun()


def _draw_text(request: Request, tokenizer: Tokenizer) -> None:
    n_ctx = request.summary.config.n_ctx
    box, text = state.part(Box), prompt_for(tokenizer, state.part(Box).text, n_ctx)
    if box.text != text:  # first visit, or a model for which the example means nothing
        box.ask(text)
    key, box.kind = state.borrow("prompt", text), "text"
    text = st.text_area(
        "Prompt",
        height=120,
        placeholder="Type something, or choose an example.",
        key=key,
        on_change=lambda: setattr(box, "text", st.session_state[key]),
    )
    _draw_examples(tokenizer)
    _say(link.problem(text))
    if not text:
        request.empty = "Type something, or choose an example."
        return
    _count(request, lambda: tokenizer.encode(text))
    _want(request, text, str)


def _draw_examples(tokenizer: Tokenizer) -> None:
    with st.popover("Examples", icon=":material/lightbulb:", width="stretch"):
        for example in fitting(tokenizer):
            st.button(
                plain(example.name),
                key=f"example.{example.name}",
                width="stretch",
                on_click=use_prompt,
                args=(example.text,),
            )


def use_prompt(text: str) -> None:
    """Put a text into the prompt's box and run it."""
    state.part(Box).text = text
    request_run(text)


def _draw_ids(request: Request) -> None:
    box = state.part(Box)
    key, box.kind = state.borrow("ids", box.ids), "ids"
    text = st.text_area(
        "Token ids",
        height=120,
        placeholder="256, 72, 105",
        key=key,
        on_change=lambda: setattr(box, "ids", st.session_state[key]),
    )
    _say(link.problem(_boxed_prompt()))
    if not text.strip():
        request.empty = "Paste token ids, or choose the tokenizer file."
        return
    try:
        ids = ids_from_text(text)
    except MtaVizError as error:
        _refuse(request, error)
        return
    vocab_size = request.summary.config.vocab_size
    _count(request, lambda: tokens_from_ids(ids, vocab_size=vocab_size))
    _want(request, ids, tuple)


def _say(problem: str) -> None:
    if problem:
        st.warning(plain(problem))


def _count(request: Request, encode: Callable[[], Tokens]) -> None:
    try:
        request.n_tokens = len(encode())
    except MtaVizError as error:
        _refuse(request, error)


def _refuse(request: Request, error: MtaVizError) -> None:
    """Say what is wrong with the prompt beside it, and on the page only where to look."""
    request.empty = "This prompt cannot be run. What is wrong with it stands under it, at the left."
    st.error(plain(str(error)))


def _want(request: Request, prompt: str | tuple[int, ...], kind: type[str] | type[tuple]) -> None:
    """The run to show is the last one asked for; the text in the box may be newer."""
    if link.take(prompt, multiply_adds(request.summary.config, request.n_tokens)):
        state.part(Box).run = prompt
    asked: Any = state.part(Box).run
    if asked == prompt and request.empty:  # it was refused, and running it would only say so again
        return
    if isinstance(asked, kind) and asked:
        request.run = RunKey(request.model_key, asked)
        request.stale = asked != prompt
    elif not request.empty:
        request.empty = "Press Run to see this prompt."


def request_run(prompt: str | tuple[int, ...] | None = None) -> None:
    """Ask for a run of `prompt`; of what is in the box when None. A failed run is tried again."""
    if prompt is None:
        prompt = _boxed_prompt()
    state.part(Box).run = prompt
    work.forget(RUN)
    link.forget()
    state.select(query=None, key=None)
    state.part(Part).crop = None


def _boxed_prompt() -> str | tuple[int, ...]:
    """What is in the box that is on the page; a box of another model may still have its text."""
    box = state.part(Box)
    if box.kind == "text":
        return box.text or ""
    try:
        return ids_from_text(box.ids)
    except MtaVizError:
        return ()


def draw_settings(request: Request, devices: list[str]) -> None:
    """Device, dtype, numbering and scale; drawn last, since naming GPUs needs torch."""
    with request.settings:
        st.selectbox("Device", devices, **DEVICE.widget(devices))
        st.selectbox("Compute in", DTYPES, **DTYPE.widget(DTYPES))
        st.selectbox(
            "Layers and heads",
            (0, 1),
            format_func=lambda first: "from 0" if first == 0 else "from 1 (as in the paper)",
            **NUMBERING.widget((0, 1)),
        )
        st.toggle(
            "First token sets the colour scale too",
            help="The first token often draws most of the attention; it is left out of the automatic limits.",
            **FIRST_TOKEN.widget(),
        )
        if st.button("Look for new models", icon=":material/refresh:"):
            cache.discovery.clear()
            st.rerun()
