"""The form of the Train page: what a training is asked for, how long it will take, and its command."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st
import torch

from mta_viz.analysis.kernels.finetuning import FEW_STEPS
from mta_viz.checkpoint.types import parameter_count
from mta_viz.config import LARGEST_KERNEL, ModelConfig
from mta_viz.errors import MtaVizError
from mta_viz.model.editing import insert_mta, usual_layers
from mta_viz.printed import layer_label, size_text, time_text
from mta_viz.run.corpus import check_corpus
from mta_viz.run.devices import TrainingCost, free_bytes, kernel_training, multiply_adds
from mta_viz.run.named_tasks import ENDING, read_divisible
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tasks.facts import Task
from mta_viz.tasks.needles import HELD_OUT, NeedleTask, PairsTask
from mta_viz.tasks.written import WrittenTask
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.ui.kernels.inserting import KEYS, LAYERS, QUERIES, check_name, pick_folder
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.trainings import Settings, Trained, command
from mta_viz.ui.shell.widgets import bar, caption, menu, number, plain, press_button, take_press

FILE = "file"
TASKS = {"pairs": "two words asked", "needle": "one word asked", "text": "text", FILE: "prompts of a file"}
ABOUT = {
    "pairs": "Sentences such as “The number that Ada has in Oslo is 47.” hidden in text; the question "
    "names a person and a city, and one word alone is not enough. The paper made kernels for such questions.",
    "needle": "A few sentences such as “The magic number of Oslo is 12.” hidden in text; the question names "
    "one city.",
    "text": "Texts alone, yours or else sentences of the project: the next token everywhere. No held-out "
    "answers, perplexity only.",
    FILE: "A file of JSON lines, each with prompt and answer; a tenth of them is held out.",
}
TRAINED: dict[Trained, str] = {"kernels": "kernels alone", "kernels+norms": "kernels and norm gains"}
ENDS = ("minutes", "steps")
TASK, TASK_FILE = Setting("train_task", "pairs"), Setting("train_file", "", private=True)
END, MINUTES, STEPS = Setting("train_end", ENDS[0]), Setting("train_minutes", 4), Setting("train_steps", 400)
WHAT, SEED = Setting[Trained]("trained", "kernels"), Setting("train_seed", 0)
CORPUS = Setting("train_corpus", "", private=True)
SIZES: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {  # pairs, and lengths of prompts
    "short": ((2, 2), (128,)),
    "long": ((3, 3), (256, 320, 384)),
}
SIZE_WORDS = {"short": "128 tokens", "long": "256 to 384 tokens"}
PROMPTS = Setting("train_prompts", "short")
SMALL = 50e6  # parameters below which a model learns short prompts in minutes
STEP_PROMPTS, STEP_TEXTS = 16, 6  # rows of a step of `finetune` with its usual settings
SAMPLES, TEXT_TOKENS = 100, 4096  # that base and result are measured on, of each text
ENOUGH_STEPS, LONG = 400, 1800.0
GPU_RATE, GPU_LEAST = 2.5e12, 0.05  # multiply-adds a second of an H200 in such steps, and seconds of a step


@dataclass(frozen=True)
class Estimate:
    """Seconds a step here and on a large GPU, bytes at the peak, seconds of measuring before and after."""

    step: float
    gpu_step: float
    n_bytes: int
    measuring: float
    free: int | None


@dataclass(frozen=True)
class Wanted:
    """What the form asks for, and into which folder."""

    settings: Settings
    folder: Path


def draw_form(page: Page) -> Wanted | None:
    """The fields, the estimate and the command; what is asked for once Train is pressed."""
    st.markdown(
        plain(
            f"Puts kernels into {Path(page.model_key.path).name} that change nothing at first (the "
            "identity), and trains them on a task. The model's own weights stay as they are."
        )
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        task = bar("Task", TASKS, TASK)
        size = _draw_size(page, task)
        ends = _draw_end()
    caption(ABOUT[task])
    if task == FILE:
        st.text_input("File of prompts", placeholder="/folder/prompts.jsonl", **TASK_FILE.widget())
    if task == "text":
        _draw_corpus()
    with st.expander("Layers, kernels, folder and more", icon=":material/tune:"):
        more = _draw_more(page)
        if task != "text":
            _draw_corpus()
        folder = pick_folder(Path(page.model_key.path), "trained", "train")
    name = task if task != FILE else whole_path(TASK_FILE.value)
    key = page.model_key
    corpus, device = whole_path(CORPUS.value) or None, str(page.model.device)
    settings = Settings(
        base=key.path, task=name, dtype=key.dtype, device=device, corpus=corpus, **size, **more, **ends
    )
    try:
        check(page, settings)
        estimate = estimate_of(page, settings)
    except MtaVizError as error:
        st.error(plain(str(error)))
        return None
    st.markdown(plain(" ".join(estimate_words(estimate, settings))))
    with st.container(horizontal=True, vertical_alignment="center", wrap=False):
        press_button("Train", "train.start", type="primary", icon=":material/play_arrow:")
        st.code(command(settings, folder), language=None, wrap_lines=True)
    if not take_press("train.start"):
        return None
    check_name(folder)
    return Wanted(settings, folder)


def _draw_size(page: Page, task: str) -> dict[str, Any]:
    """How long prompts are, and how many facts they have; small models begin with short ones."""
    if task not in ("pairs", "needle"):
        return {}  # the command is told none
    usual = "short" if parameter_count(page.model.config) < SMALL else "long"
    help = "Short ones ask for 1 of 2 x 2 facts, long ones for 1 of 3 x 3, where two words are asked for."
    pairs, lengths = SIZES[menu("Prompts", SIZE_WORDS, PROMPTS, default=usual, width=190, help=help)]
    return {"pairs": pairs, "lengths": lengths}


def _draw_end() -> dict[str, Any]:
    end = menu("For so many", ENDS, END, width=120)
    if end == "steps":
        steps = number("Steps", STEPS, (1, 100_000), width=130, label_visibility="collapsed")
        return {"steps": steps}
    minutes = number("Minutes", MINUTES, (1, 24 * 60), width=130, label_visibility="collapsed")
    return {"seconds": 60.0 * minutes}


def _draw_more(page: Page) -> dict[str, Any]:
    config = page.model.config
    layers, usual = list(range(config.n_layers)), usual_layers(config)

    def words(layer: int) -> str:
        return layer_label(layer, page.numbering)

    tied: dict[str, Any] = LAYERS.widget(layers, default=usual, words=words)
    help = "Each head there gets a kernel. The later the first of them, the quicker a step."
    chosen = st.multiselect("Layers with kernels", layers, format_func=words, help=help, **tied)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        c_q = number("Queries", QUERIES, (1, LARGEST_KERNEL), width=120)
        c_k = number(
            "Keys", KEYS, (1, LARGEST_KERNEL), width=120, help="An odd number: as many on either side."
        )
        help = "Norm gains: the scales before the attention of these layers, which learn fast themselves."
        train = menu("Trained", TRAINED, WHAT, width=230, help=help)
        seed = number("Seed", SEED, (0, 2**31), width=120, help="Of the data and its order.")
    return {"layers": tuple(chosen), "kernel": (c_q, c_k), "train": train, "seed": seed}


def _draw_corpus() -> None:
    """What is trained on where the task is text, and else keeps the model's language as it is."""
    help = (
        "A plain-text file, or a folder with such (.txt; .md and .py, which keep their lines; folders "
        "inside it are left out). Empty: sentences that the project makes itself."
    )
    st.text_input("Texts", placeholder="/folder/with/texts, or a file", help=help, **CORPUS.widget())


def whole_path(text: str) -> str:
    """The path from the root on; empty for nothing."""
    return str(Path(text.strip()).expanduser().absolute()) if text.strip() else ""


def check(page: Page, settings: Settings) -> None:
    """Raises MtaVizError for what no training can be made of, in one sentence."""
    if not settings.layers:
        raise MtaVizError("no layer is chosen; choose those that get kernels")
    insert_mta(page.model, settings.layers, kernel=settings.kernel)
    if page.model.tokenizer is None:
        raise MtaVizError(
            "this model came without its tokenizer, and training reads text; give it at the left"
        )
    if settings.corpus is not None:
        check_corpus(Path(settings.corpus))
    if task := task_of(settings):
        task.sample(page.model.tokenizer, 0)
    elif settings.task != "text":
        raise MtaVizError("give a file of prompts, whose name ends in .jsonl")


def task_of(settings: Settings) -> Task | None:
    """Prompts of words that training never sees, or a file's; None without prompts. Raises MtaVizError."""
    if settings.task.endswith(ENDING):
        return read_divisible(Path(settings.task))
    length = min(settings.lengths)
    if settings.task == "pairs":
        return PairsTask(*settings.pairs, length, 50, **vars(HELD_OUT))
    return NeedleTask(4, length, 50) if settings.task == "needle" else None


def estimate_of(page: Page, settings: Settings) -> Estimate:
    """From a short run of the model here, and what a step has more than it."""
    trained = insert_mta(page.model, settings.layers, kernel=settings.kernel).config
    prompts = prompts_of(page.model.tokenizer, settings)
    cost = training_cost(trained, settings, prompts.usual)
    n_bytes = training_cost(trained, settings, prompts.longest).n_bytes
    rate = estimate_seconds(page.model, 320) / multiply_adds(page.model.config, 320)
    answers = prompts.n_held_out * multiply_adds(trained, prompts.held_out)
    window = min(trained.n_ctx, TEXT_TOKENS)  # each begins half a window after the one before
    texts = (1 + bool(settings.corpus)) * (2 * TEXT_TOKENS / window - 1) * multiply_adds(trained, window)
    measuring = 2 * rate * (answers + texts)
    weights = sum(value.numel() * value.element_size() for value in page.model.parameters())
    free = free_bytes(torch.device(settings.device))
    on_gpu = max(cost.multiply_adds / GPU_RATE, GPU_LEAST)
    return Estimate(rate * cost.multiply_adds, on_gpu, 2 * weights + n_bytes, measuring, free)


@dataclass(frozen=True)
class Prompts:
    """Tokens of a step's prompts, usually and at most, and of the held-out ones; how many these are."""

    usual: int
    longest: int
    held_out: int
    n_held_out: int


def prompts_of(tokenizer: Tokenizer | None, settings: Settings) -> Prompts:
    """Of a file by its own prompts: those of a step are filled up to the longest of them."""
    task = task_of(settings)
    if tokenizer is None or not isinstance(task, WrittenTask):
        length = piece_length(settings)  # the middle one
        return Prompts(length, length, length, 0 if task is None else SAMPLES)
    lengths = task.lengths(tokenizer)
    first, last = sorted(lengths[: task.n_trained]), sorted(lengths[task.n_trained :])
    usual = first[len(first) * STEP_PROMPTS // (STEP_PROMPTS + 1)]
    return Prompts(usual, first[-1], last[len(last) // 2], min(len(last), SAMPLES))


def piece_length(settings: Settings) -> int:
    """Tokens of a piece of text, and of the held-out prompts that are made: the middle of the lengths."""
    return sorted(settings.lengths)[len(settings.lengths) // 2]


def training_cost(config: ModelConfig, settings: Settings, prompt: int) -> TrainingCost:
    """Of a step of the command with its usual settings, on prompts of so many tokens."""
    prompts = (0 if settings.task == "text" else STEP_PROMPTS, prompt)
    text = (STEP_TEXTS, piece_length(settings))
    size = torch.finfo(getattr(torch, settings.dtype)).bits // 8
    return kernel_training(config, min(settings.layers), prompts, text, dtype_bytes=size)


def estimate_words(estimate: Estimate, settings: Settings) -> list[str]:
    """How long, how much memory, and what to do where that is long or little."""
    steps = settings.steps or max(1, round((settings.seconds or 0.0) / estimate.step))
    seconds = max(settings.seconds or steps * estimate.step, estimate.step)
    place = "CPU" if settings.device == "cpu" else settings.device
    step = f"{estimate.step:.2g} s" if estimate.step < 10 else time_text(estimate.step)
    many = f"{steps:,} {'step' if steps == 1 else 'steps'}"
    words = [
        f"On this {place}, as it is now, a step takes about {step}: {many} in {time_text(seconds)}, and "
        f"{time_text(estimate.measuring)} to measure before and after.",
        f"Memory: about {size_text(estimate.n_bytes)}.",
    ]
    if estimate.free is not None and estimate.n_bytes > estimate.free:
        words.append(f"That is more than the {size_text(estimate.free)} that are free.")
    if settings.device == "cpu":
        little = steps < FEW_STEPS or seconds > LONG
        gpu = time_text((ENOUGH_STEPS if little else steps) * estimate.gpu_step)
        rate = f"about {gpu}, by the rate of another model on one"
        if little:
            enough = time_text(ENOUGH_STEPS * estimate.step)
            words.append(
                f"Some hundreds of steps are usual: {ENOUGH_STEPS} take about {enough} here, on a large GPU "
                f"{rate} (the command there, with --device cuda)."
            )
        else:
            words.append(f"A large GPU would take {rate}.")
    return words
