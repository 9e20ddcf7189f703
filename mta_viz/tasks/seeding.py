"""Random streams named by words and numbers. Owns no generator: callers hold their own."""

import hashlib

import torch


def stream_seed(stream: str, *numbers: int) -> int:
    """A 63-bit seed of (`stream`, *numbers): equal on every machine, unrelated between streams."""
    text = "/".join([stream, *map(str, numbers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def stream_generator(stream: str, *numbers: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator on `device` at the start of the stream (`stream`, *numbers)."""
    return torch.Generator(device=device).manual_seed(stream_seed(stream, *numbers))
