"""What the Train page draws: the trainings there are, how far the chosen one is, and the form of another.

Of a training: its curves, the kernels that changed most, and what then. What is drawn are named figures of
the adapter that the run writes as it goes.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from mta_viz.analysis.kernels.finetuning import FEW_STEPS, FinetuningRun
from mta_viz.analysis.kernels.table import kernel_of
from mta_viz.checkpoint import door
from mta_viz.checkpoint.adapter import ADAPTER
from mta_viz.checkpoint.reading import Found, read_checkpoint
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import Source
from mta_viz.figures.kernels.gallery import KernelGallery
from mta_viz.figures.kernels.training import Finetuning
from mta_viz.model.transformer import HookedMTA, build_model
from mta_viz.printed import head_name, printable, time_text
from mta_viz.tasks.written import WrittenTask
from mta_viz.ui.kernels.inserting import TRAINING, open_adapter, train_such
from mta_viz.ui.shell import cache, models, state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.models import VARIANTS
from mta_viz.ui.shell.page import BESIDE, VIEW, WORKSPACE, Page, errors_as_messages
from mta_viz.ui.shell.show import show
from mta_viz.ui.shell.sidebar import use_prompt
from mta_viz.ui.shell.trainings import Settings, Training, command, find_trainings, read_training, start, stop
from mta_viz.ui.shell.uploads import READ_ONLY, read_only
from mta_viz.ui.shell.widgets import caption, menu, plain, pressed
from mta_viz.ui.train.form import SAMPLES, TASKS, TRAINED, draw_form, task_of

REFRESH = 3.0  # seconds
INTERRUPTED = "interrupted"  # the last word of a command that Ctrl-C or Stop ended
MOST_CHANGED = KernelGallery(("pre",), sort="distance_from_identity", most=12)


@dataclass
class Shown:
    """The newest adapter of the training that is shown, and what was drawn of it."""

    key: Hashable = None
    model: HookedMTA | None = None
    kept: dict[Hashable, Any] = field(default_factory=dict)

    def remember(self, make: Callable[[], Any], *key: Hashable) -> Any:
        """`make()`, once for this state of the adapter."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]


def draw_training(page: Page, training: Training) -> None:
    """The training, drawn anew every few seconds while it runs."""
    draw = partial(_draw, page, training.folder, training.alive)
    (st.fragment(draw, run_every=REFRESH) if training.alive else draw)()


def _draw(page: Page, folder: Path, was_alive: bool) -> None:
    with errors_as_messages():
        training = read_training(folder)
        if training.alive != was_alive:
            st.rerun()  # the whole page: other buttons, and no more refreshing
        _draw_state(training)
        _draw_numbers(training.run)
        source = source_of(page, folder)
        if source is None or training.run is None:
            return
        if not training.alive and training.run.step:
            _draw_next(page, training, source)
        show(source, Finetuning(), result=training.run, widget=f"finetuning.{folder}")
        st.markdown("**The kernels that changed most**")
        widget = f"changed.{folder}.{state.part(Shown).key}"
        show(source, MOST_CHANGED, widget=widget)


def source_of(page: Page, folder: Path) -> Source | None:
    """The adapter in a folder as it is now, its kernels alone; None before there is one."""
    if not door.is_there(folder / ADAPTER):
        return None
    shown, key = state.part(Shown), (str(folder), cache.changed(folder / ADAPTER))
    if shown.key != key or shown.model is None:
        model = build_model(read_checkpoint(folder))
        state.session().parts[Shown] = shown = Shown(key, model)
    kept = shown.remember
    return Source(shown.model, None, None, page.numbering, kept, kept, kept)  # type: ignore[arg-type]


def state_word(training: Training) -> str:
    """The same in a word or two, which stays true for a while."""
    if training.alive:
        return "runs"
    return "done" if training.done else "stopped" if training.resumable else "not begun"


def state_words(training: Training) -> str:
    """What it does now, in a sentence."""
    run = training.run
    if not training.alive:
        if training.done:
            return "Done."
        return "Stopped; what was trained is kept." if training.resumable else "Ended before its first step."
    measured = f": {training.measured}" if training.measured else ""
    if run is None or not training.begun or not run.step:
        when = f"Going on from step {run.step:,}" if run and run.step else "Before the first step"
        last = training.words[-1].partition(". ")[0] if training.words else INTERRUPTED  # of the part before
        return f"{when}: {'reading the base' if last == INTERRUPTED else last}{measured}"
    if run.step >= run.steps:
        return f"Trained; measuring the result{measured}"
    left = "" if run.seconds_left is None else f": about {time_text(run.seconds_left)} left"
    return f"Step {run.step:,} of {run.steps:,}{left}"


def failed(training: Training) -> bool:
    """Whether it ended by itself before its end, so that its last words say why."""
    ended = not training.alive and not training.done
    return ended and bool(training.words) and training.words[-1] != INTERRUPTED


def _draw_state(training: Training) -> None:
    """How far it is, what ends it or goes on, what it said where it failed, and its command."""
    run, words = training.run, plain(state_words(training))
    caption(about_words(training.job.settings))
    if training.alive:
        share = 0.0 if run is None else min(run.step / max(run.steps, 1), 1.0)
        st.progress(share, text=words)
    elif training.done:
        st.success(words)
    else:
        st.warning(words)
    with st.container(horizontal=True, vertical_alignment="center"):
        if training.alive:
            if pressed("Stop", "train.stop", icon=":material/stop:"):
                stop(training)
            caption("It goes on when this page is closed; Stop keeps what was trained.")
        elif not training.done:
            label = "Go on" if training.resumable else "Begin again"
            if pressed(label, "train.resume", icon=":material/play_arrow:"):
                start(training.job.settings, training.folder, resume=training.resumable)
                st.rerun()
    if failed(training):
        st.error(plain(printable("\n".join(training.words), 1000).replace("\\n", "\n")))
    with st.expander("Command", icon=":material/terminal:"):
        resume = training.resumable
        st.code(command(training.job.settings, training.folder, resume), language=None, wrap_lines=True)


def _draw_numbers(run: FinetuningRun | None) -> None:
    """Loss, right answers and perplexity, each with what it was."""
    if run is None:
        return
    with st.container(horizontal=True, key="train-numbers"):
        if run.loss:
            first, last = run.loss[0][1], run.loss[-1][1]  # of other texts: no colour says good or bad
            st.metric("Loss (nats)", f"{last:.3f}", f"{last - first:+.3f}", delta_color="off")
        _draw_right(run)
        for name, (before, after) in run.perplexity.items():
            change = None if after is None else f"{after / before - 1:+z.1%}"
            shown = before if after is None else after
            label = f"Perplexity of {name}" + (", base" if after is None else "")
            colour: Any = "off" if change == "+0.0%" else "inverse"
            st.metric(plain(label), f"{shown:.4g}", change, delta_color=colour)


def _draw_right(run: FinetuningRun) -> None:
    if run.before is None:
        return
    if run.after is None or run.change is None:
        st.metric("Right answers, base", f"{run.before.right} of {run.before.n}")
        if len(run.looks) > 1:
            look = run.looks[-1]
            moved = look.right - run.looks[0].right
            st.metric("Right now, of a few", f"{look.right} of {look.n}", f"{moved:+d}" if moved else None)
        return
    low, high = 100 * run.change.low, 100 * run.change.high
    words = f"{100 * run.change.value:+.0f} points, 95 % interval {low:+.0f} to {high:+.0f}"
    colour: Any = "normal" if low > 0 or high < 0 else "off"
    st.metric("Right answers", f"{run.after.right} of {run.after.n}", words, delta_color=colour)


def result_words(run: FinetuningRun) -> str:
    """What came of it: that few steps teach little, and the answers of a task that has some."""
    words = f"Trained for {run.step:,} steps: so few teach little, some hundreds are usual. "
    little = words if run.step < FEW_STEPS else ""
    if run.before is None or run.after is None or run.change is None:
        return little
    low, high = 100 * run.change.low, 100 * run.change.high
    few = "" if run.before.n >= SAMPLES else ", or on a file of more prompts, of which a tenth is asked,"
    verdict = "" if low > 0 else f" The interval holds 0 or less: train longer{few} to tell."
    return (
        f"{little}Held-out questions answered right: {run.before.right} of {run.before.n} before, "
        f"{run.after.right} after; {100 * run.change.value:+.0f} points, paired 95 % interval {low:+.0f} to "
        f"{high:+.0f}.{verdict}"
    )


def _draw_next(page: Page, training: Training, source: Source) -> None:
    """The result in a sentence, and the ways to the kernel that changed most and to a prompt."""
    st.markdown(plain(result_words(training.run)) if training.run else "")
    kernel = kernel_of(MOST_CHANGED.result(source).shown[0])
    name = head_name(kernel.layer, kernel.head, page.numbering)
    chosen = {"layer": kernel.layer, "head": kernel.head, "place": kernel.where}
    prompt = prompt_of(page, training)
    with st.container(horizontal=True):
        label = f"Open {name} in Kernels"
        if pressed(label, "train.kernels", type="primary", icon=":material/apps:"):
            open_adapter(training.folder, **chosen)
            st.switch_page("pages/kernels.py")
        help = "Model with kernels and base side by side, on the prompt at the left."
        look: Any = {"icon": ":material/compare:", "help": help}
        own = pressed("Its effect on your prompt", "train.compare", **look)
        help = "The same, on a question of the task whose words no training step used."
        of_task = bool(prompt) and pressed("On a prompt of the task", "train.task", help=help)
        if own or of_task:
            if of_task:
                use_prompt(prompt)
            open_adapter(training.folder, **chosen)
            VIEW.put(BESIDE)
            st.switch_page(WORKSPACE)


def prompt_of(page: Page, training: Training) -> str:
    """A held-out prompt of the task; empty where it has none that can be made here."""
    try:
        task = task_of(training.job.settings)
        if page.model.tokenizer is None or task is None:
            return ""
        last = len(task.samples) - 1 if isinstance(task, WrittenTask) else 0  # of a file it is held out
        return task.sample(page.model.tokenizer, last).tokens.text or ""
    except MtaVizError:
        return ""


def about_words(settings: Settings) -> str:
    """What is trained, in a line."""
    layers = ", ".join(f"L{layer}" for layer in settings.layers)
    size = " x ".join(map(str, settings.kernel))
    task = TASKS.get(settings.task, printable(Path(settings.task).name))
    return (
        f"Kernels of {size} in {layers} of {Path(settings.base).name}; trained: {TRAINED[settings.train]}; "
        f"task: {task}; seed {settings.seed}."
    )


NONE = ""


def draw_train(page: Page) -> None:
    """The page's body."""
    draw_address(f"{state.selection().checkpoint} · train kernels")
    trainings = {str(each.folder): each for each in find_trainings(models.roots())}
    with errors_as_messages():
        chosen = _choose(page, trainings)
        if chosen is not None:
            draw_training(page, chosen)
    with errors_as_messages():
        _draw_new(page, chosen is None)


def _choose(page: Page, trainings: dict[str, Training]) -> Training | None:
    """The training that is shown: the visitor's choice, else the usual one; None: a new one."""
    if not trainings:
        return None
    words = {NONE: "a new one"} | {
        folder: f"{printable(each.folder.name)} · {state_word(each)}" for folder, each in trainings.items()
    }
    with st.container(horizontal=True, vertical_alignment="bottom"):
        default = usual(page.model_key.path, list(trainings.values()))
        folder = menu("Training", words, TRAINING, default=default)
        if folder != NONE:
            st.button("Train another", key="train.another", on_click=TRAINING.put, args=(NONE,))
    return trainings.get(folder)


def usual(model: str, newest_first: Sequence[Training]) -> str:
    """The folder of one that runs, else of the newest that made this model or began with it, else of none."""
    running = [each for each in newest_first if each.alive]
    own = [each for each in newest_first if model in (str(each.folder), each.job.settings.base)]
    return next((str(each.folder) for each in [*running, *own]), NONE)


def _draw_new(page: Page, shown: bool) -> None:
    """The form, or which models fit; nothing while a training is looked at."""
    if not shown:
        return
    if problem := why_not(page):
        st.info(plain(problem))
        _draw_fitting(page)
        return
    wanted = draw_form(page)
    if wanted is not None:
        start(wanted.settings, wanted.folder)
        TRAINING.put(str(wanted.folder))
        st.rerun()


def _draw_fitting(page: Page) -> None:
    """The way to the form: with kernels such as this model's on its base or twin, else on a plain model."""
    fitting, twin = plain_models(), models.twin_beside(page.model_key)
    if not fitting or read_only():
        return
    own = [name for name, model in fitting.items() if twin is not None and str(model.path) == twin[1].path]
    name = next(iter([*own, *fitting]))
    words = f"Train {'such ' if own else ''}kernels into {printable(name)}"
    if pressed(words, "train.base", type="primary"):
        state.session().selection = state.Selection(checkpoint=name)
        if own:
            train_such(page.model.config)
        st.rerun()


def why_not(page: Page) -> str:
    """Why no kernels can be trained into the page's model, and which models fit; empty where they can."""
    if read_only():
        return READ_ONLY
    if page.model.kernels_only:
        problem = "this file holds kernels only, and training needs the whole model"
    elif page.model.config.variant != "transformer":
        takes = "it takes none" if page.model.config.differential else "it has its own already"
        problem = f"{takes} ({VARIANTS[page.model.config.variant]})"
    else:
        return ""
    name = Path(page.model_key.path).name
    fitting = ", ".join(map(printable, plain_models()))
    there = f": {fitting}" if fitting else ", such as a Llama folder or a GGUF file"
    return (
        f"Kernels are trained into a plain model, and {name} is none: {problem}. Choose a plain one at the "
        f"left{there}."
    )


def plain_models() -> dict[str, Found]:
    """Those that can be chosen, by what tells each among all."""
    return {
        name: model
        for name, model in models.named().items()
        if models.can_run(model) and model.summary is not None and model.summary.format != "adapter"
        if model.summary.config.variant == "transformer"
    }
