"""What a run costs, by hand for a tiny model; and the threads chosen by it."""

import pytest
import torch

from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.model.attention import SLAB_CELLS
from mta_viz.run import devices

# one layer in which everything is small enough to count
TINY = ModelConfig(d_model=4, n_layers=1, n_heads=2, n_kv_heads=1, d_head=2, d_mlp=5, vocab_size=7)
KERNELS = MTAOptions(pre_kernel=(2, 3), post_kernel=(3, 3), head_pre=True, head_post_group=2)
LARGE = ModelConfig(d_model=256, n_layers=8, n_heads=8, n_kv_heads=8, d_head=32, d_mlp=1024, vocab_size=32000)


class Threads:
    """torch's thread count without torch: the machine's own number is 6."""

    def __init__(self) -> None:
        self.now, self.changes = 6, 0

    def set(self, count: int) -> None:
        self.now, self.changes = count, self.changes + 1


@pytest.fixture
def threads(monkeypatch):
    threads = Threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads.now)
    monkeypatch.setattr(torch, "set_num_threads", threads.set)
    devices.all_threads.cache_clear()
    yield threads
    devices.all_threads.cache_clear()


def test_multiply_adds_of_a_plain_layer():
    # a token: queries and output 2 * 4*4, keys and values 2 * 4*2, MLP 3 * 4*5, unembedding 4*7
    per_token = 32 + 16 + 60 + 28
    # a cell: scores 2, values 2, softmax 20; of 3 tokens 1 + 2 + 3 cells a head
    assert devices.multiply_adds(TINY, 3) == 3 * per_token + 2 * 6 * (2 + 2 + 20)


def test_kernels_add_their_taps_and_heads_to_every_cell():
    kernels = ModelConfig(**{**vars(TINY), "mta": KERNELS})
    added = devices.multiply_adds(kernels, 3) - devices.multiply_adds(TINY, 3)
    assert added == 2 * 6 * (2 * 3 + 3 * 3 + 2 + 2)


def test_a_small_run_takes_one_thread_and_a_large_one_the_machines_own_even_after_it(threads):
    devices.set_threads(TINY, 8)
    assert threads.now == 1
    devices.set_threads(LARGE, 1024)
    assert threads.now == 6
    devices.set_threads(TINY, 8)
    assert threads.now == 1


def test_a_batch_counts_as_one_run(threads):
    alone = devices.SMALL_RUN / devices.multiply_adds(TINY, 8)
    devices.set_threads(TINY, 8, batch=int(alone))
    assert threads.now == 1
    devices.set_threads(TINY, 8, batch=int(alone) + 1)
    assert threads.now == 6


def test_threads_are_left_alone_when_they_are_right(threads):
    devices.set_threads(LARGE, 1024)
    assert threads.changes == 0


def test_a_gpus_slabs_are_larger():
    n_tokens = 4096  # more cells than any slab holds
    maps = devices.FLOAT_BYTES * devices.LIVE_MAPS * (SLAB_CELLS["cuda"] - SLAB_CELLS["cpu"])
    on_cpu = devices.capture_bytes(LARGE, n_tokens)
    for device in ("cuda", "mps"):
        assert devices.capture_bytes(LARGE, n_tokens, device) - on_cpu == maps


def test_a_capture_grows_linearly_once_a_slab_is_full():
    def grows(n_tokens: int) -> int:
        return devices.capture_bytes(LARGE, 2 * n_tokens) - devices.capture_bytes(LARGE, n_tokens)

    full = int((SLAB_CELLS["cpu"] / LARGE.n_heads) ** 0.5) + 1  # tokens whose whole map is a slab
    per_token = 4 * ((LARGE.n_layers + 1) * 256 + 4 * 256 + 3 * 1024)
    assert [grows(full), grows(2 * full), grows(4 * full)] == [
        count * full * per_token for count in (1, 2, 4)
    ]
    assert grows(full // 2) > full * per_token  # below, the whole map counts


def test_a_step_of_training_goes_back_through_the_layers_that_kernels_reach():
    # a layer keeps 12 widths of 4 and 4 of 5 a token, and a map a head; text of 2 tokens has logits, 3 times
    kept = 2 * (3 * 68 + 2 * 9) + (2 * 68 + 2 * 4)
    step = devices.kernel_training(TINY, 0, (2, 3), (1, 2))
    assert step.n_bytes == 4 * (kept + 3 * 2 * 7)
    forward = 2 * devices.multiply_adds(TINY, 3) + devices.multiply_adds(TINY, 2)
    assert step.multiply_adds == 3 * forward
    assert devices.kernel_training(TINY, 1, (2, 3), (1, 2)).multiply_adds == forward
