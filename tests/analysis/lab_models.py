"""A tiny needle model for the labs' tests: random weights, bytes as tokens."""

from mta_viz.model.transformer import HookedMTA
from mta_viz.tokenizers.builtin import BytesTokenizer
from tests.tiny_models import FULL, config, random_weights


def byte_model(seed: int = 0, tokenizer: BytesTokenizer | None = None) -> HookedMTA:
    """4 layers x 4 heads with every kind of kernel."""
    model = HookedMTA(config(FULL, 258)).requires_grad_(False).eval()
    model.load_state_dict(random_weights(config(FULL, 258), seed))
    model.tokenizer = tokenizer or BytesTokenizer()
    return model
