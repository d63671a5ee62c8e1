"""A language model of 115 kB with random weights, written in the format that llama.cpp reads: it babbles bytes, fast."""

import random
import struct
from math import prod
from pathlib import Path

_U32, _F32, _BOOL, _STRING, _ARRAY, _I32 = 4, 6, 7, 8, 9, 5
_WIDTH, _INNER, _HEADS, _ALIGNMENT = 32, 64, 2, 32
_TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
_UNKNOWN, _CONTROL, _BYTE = 2, 3, 6
_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "

_LAYER = {
    "attn_norm": (_WIDTH,),
    "attn_q": (_WIDTH, _WIDTH),
    "attn_k": (_WIDTH, _WIDTH),
    "attn_v": (_WIDTH, _WIDTH),
    "attn_output": (_WIDTH, _WIDTH),
    "ffn_norm": (_WIDTH,),
    "ffn_gate": (_WIDTH, _INNER),
    "ffn_up": (_WIDTH, _INNER),
    "ffn_down": (_INNER, _WIDTH),
}
_SHAPES: dict[str, tuple[int, ...]] = {
    "token_embd.weight": (_WIDTH, len(_TOKENS)),
    "output_norm.weight": (_WIDTH,),
    "output.weight": (_WIDTH, len(_TOKENS)),
    **{f"blk.0.{name}.weight": shape for name, shape in _LAYER.items()},
}


def write_model(path: Path) -> None:
    """Write the file; always the same bytes."""
    facts = [
        _text("general.architecture", "llama"),
        _text("general.name", "tiny"),
        _number("llama.context_length", 2048),
        _number("llama.embedding_length", _WIDTH),
        _number("llama.block_count", 1),
        _number("llama.feed_forward_length", _INNER),
        _number("llama.attention.head_count", _HEADS),
        _number("llama.attention.head_count_kv", _HEADS),
        _number("llama.rope.dimension_count", _WIDTH // _HEADS),
        _named("llama.attention.layer_norm_rms_epsilon", _F32, struct.pack("<f", 1e-5)),
        _number("llama.vocab_size", len(_TOKENS)),
        _text("tokenizer.ggml.model", "llama"),
        _list("tokenizer.ggml.tokens", _STRING, b"".join(map(_string, _TOKENS))),
        _list("tokenizer.ggml.scores", _F32, bytes(4 * len(_TOKENS))),
        _list("tokenizer.ggml.token_type", _I32, struct.pack("<259i", _UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256)),
        _number("tokenizer.ggml.bos_token_id", 1),
        _number("tokenizer.ggml.eos_token_id", 2),
        _number("tokenizer.ggml.unknown_token_id", 0),
        _named("tokenizer.ggml.add_bos_token", _BOOL, b"\1"),
        _text("tokenizer.chat_template", _TEMPLATE),
    ]
    infos, data = _tensors(random.Random(7))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(_SHAPES), len(facts)) + b"".join(facts) + infos
    path.write_bytes(_padded(head) + data)


def _tensors(chance: random.Random) -> tuple[bytes, bytes]:
    infos, data = b"", b""
    for name, shape in _SHAPES.items():
        place = struct.pack("<IQ", 0, len(data))
        infos += _string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + place
        count = prod(shape)
        values = [1.0] * count if len(shape) == 1 else [chance.gauss(0, 0.3) for _ in range(count)]
        data += _padded(struct.pack(f"<{count}f", *values))
    return infos, data


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _named(name: str, kind: int, value: bytes) -> bytes:
    return _string(name) + struct.pack("<I", kind) + value


def _text(name: str, value: str) -> bytes:
    return _named(name, _STRING, _string(value))


def _number(name: str, value: int) -> bytes:
    return _named(name, _U32, struct.pack("<I", value))


def _list(name: str, kind: int, values: bytes) -> bytes:
    return _named(name, _ARRAY, struct.pack("<IQ", kind, len(_TOKENS)) + values)
