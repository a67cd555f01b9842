"""The frame of an answer: bytes in their places, there and back."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qkv.errors import InputError
from qkv.look.wire import RefusalError, Reply


def test_there_and_back() -> None:
    arrays: dict[str, NDArray[Any]] = {
        "attn": np.arange(7, dtype=np.uint8),
        "points": np.arange(6, dtype=np.float32).reshape(2, 3) / 3,
        "nothing": np.zeros((0, 4), np.float32),
        "spans": np.array([-1, 2**31 - 1], np.int32),
        "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T,  # not as it lies in memory
        "one": np.array(2.5, np.float32),
    }
    again = Reply.from_bytes(Reply({"text": "他 </script>", "n": 1}, arrays).to_bytes())
    assert again.head == {"text": "他 </script>", "n": 1}
    assert list(again.arrays) == list(arrays)
    for name, array in arrays.items():
        assert again.arrays[name].dtype == array.dtype and again.arrays[name].shape == array.shape
        assert np.array_equal(again.arrays[name], array)


def test_arrays_begin_where_a_browser_can_see_them() -> None:
    for text in ("", "a", "他", "abcdefg"):
        frame = Reply({"text": text}, {"a": np.ones(3, np.uint8), "b": np.ones(2, np.float32)}).to_bytes()
        assert frame[:4] == b"qkv1" and len(frame) % 8 == 0
        (length,) = struct.unpack("<I", frame[4:8])
        places = {one["name"]: one["at"] for one in json.loads(frame[8 : 8 + length])["arrays"]}
        assert (8 + length) % 8 == 0 and places == {"a": 0, "b": 8}
        assert frame[8 + length : 8 + length + 8] == b"\1\1\1\0\0\0\0\0"


def test_what_the_wire_does_not_have() -> None:
    with pytest.raises(AssertionError, match="attn is of float64"):
        Reply({}, {"attn": np.zeros(1)}).to_bytes()
    with pytest.raises(ValueError, match="JSON"):
        Reply({"mean": float("nan")}).to_bytes()
    with pytest.raises(InputError, match="qkv1"):
        Reply.from_bytes(b"<html>")


def test_a_refusal_is_bad_input_with_a_code() -> None:
    refusal = RefusalError("too_long", "Too long.", most=3)
    assert isinstance(refusal, InputError) and str(refusal) == "Too long."
    assert refusal.code == "too_long" and refusal.about == {"most": 3}
