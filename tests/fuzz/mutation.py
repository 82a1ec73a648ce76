"""How a file goes bad: bytes that change, vanish or come twice, numbers that cannot be, JSON of another shape."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]

TOKENS = [
    b"", b"\x00", b"\xff", b"\x1b[31m", b"\n", b"\r\n", b"\t", b'"', b"{", b"[" * 3000, b"{}", b"null", b"NaN", b"-1",
    b"1e999", b"9" * 5000, b"0x10", b"\\ud800", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"../../../etc/passwd", b"true",
    b"\xe2\x80\xae", b"</script>", b"=1+1",
]  # fmt: skip
ODD: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 10**18, 900_000_000, 1.5, 1e308, float("nan"), float("inf"), "", "x", "../x",
    "~/x", "/etc/passwd", "weights.dat", "\x1b[2J", [], {}, [[]], [None], {"": None}, ["a", "b", "c"], "9" * 300,
    "torch.hub.load", "os.system",
]  # fmt: skip
NUMBERS = [0, 1, -1, 2**15, 2**31 - 1, -(2**31), 2**40, 2**63 - 1]


def flip(data: bytes, random: random.Random) -> bytes:
    spoiled = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 16])):
        spoiled[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(spoiled)


def cut(data: bytes, random: random.Random) -> bytes:
    return data[: random.randrange(len(data))]


def leave_out(data: bytes, random: random.Random) -> bytes:
    start = random.randrange(len(data))
    return data[:start] + data[start + random.choice([1, 2, 8, 64, 512]) :]


def repeat(data: bytes, random: random.Random) -> bytes:
    start = random.randrange(len(data))
    end = min(len(data), start + random.choice([1, 8, 64, 512]))
    return data[:end] + data[start:end] * random.choice([1, 2, 20]) + data[end:]


def put_in(data: bytes, random: random.Random) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.choice(TOKENS) + data[place + random.choice([0, 1, 4]) :]


def overwrite_number(data: bytes, random: random.Random) -> bytes:
    """As binary formats hold lengths and offsets."""
    place = random.randrange(len(data)) // 4 * 4
    number = struct.pack("<q", random.choice(NUMBERS))[: random.choice([4, 8])]
    return data[:place] + number + data[place + len(number) :]


def swap_lines(data: bytes, random: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    random.shuffle(lines)
    return b"".join(lines[: random.randrange(len(lines) + 1)] + lines[: random.choice([0, 1])])


def noise(data: bytes, random: random.Random) -> bytes:
    return random.randbytes(random.choice([0, 1, 16, 300]))


def reshape(data: bytes, random: random.Random) -> bytes:
    """One value in a JSON file, or in one line of JSON lines, becomes another, goes, or changes its name."""
    lines = data.splitlines(keepends=True)
    whole = len(lines) > 1 and not lines[1].startswith(b"{")
    number = 0 if whole else random.randrange(max(1, len(lines)))
    try:
        value = json.loads(data if whole or not lines else lines[number])
    except (ValueError, RecursionError):
        return put_in(data, random)
    places = list(_places(value))
    if not places:
        return json.dumps(random.choice(ODD)).encode()
    owner, key = random.choice(places)
    if random.random() < 0.2:
        del owner[key]
    elif isinstance(owner, dict) and random.random() < 0.1:
        owner[random.choice(["", "x", "__class__"])] = owner.pop(key)
    else:
        owner[key] = random.choice(ODD)
    text = json.dumps(value, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    return text if whole or not lines else b"".join([*lines[:number], text + b"\n", *lines[number + 1 :]])


def multiply(data: bytes, random: random.Random) -> bytes:
    """One item of a list in a JSON file comes many times: steps of a tokenizer, modules, tokens."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return repeat(data, random)
    places = [(owner, key) for owner, key in _places(value) if isinstance(owner, list)]
    if not places:
        return reshape(data, random)
    owner, key = random.choice(places)
    owner[key:key] = [owner[key]] * random.choice([1, 31, 1000])
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every list or object in a value, with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in [(value, key), *_places(value[key])]]


DAMAGE: list[Mutation] = [flip, cut, leave_out, repeat, overwrite_number]
"""What disks, networks and broken-off copies do."""
MUTATIONS: list[Mutation] = [*DAMAGE, put_in, put_in, swap_lines, noise, reshape, reshape, reshape, multiply]


def mutate(data: bytes, random: random.Random, among: list[Mutation] = MUTATIONS) -> bytes:
    """The data after one to three mutations."""
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        data = random.choice(among)(data, random) if data else noise(data, random)
    return data
