"""Codes: sign, pack, unpack, Hamming distance, against plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kenthash.codes import check_bits, hamming, pack, unpack
from kenthash.errors import UsageError


def test_a_code_by_hand() -> None:
    outputs = np.array([[0.5, -0.5, 0.0, -0.0, -1, -1, -1, 2, 1, -1, -1, -1, -1, -1, -1, -1]])
    assert pack(outputs).tolist() == [[0b10001101, 0b00000001]]  # sign(0) = +1, the first bit is the lowest


def test_64_bits_read_as_one_word() -> None:
    outputs = -np.ones((1, 64))
    outputs[0, [0, 9, 63]] = 1
    assert int(pack(outputs).view("<u8")[0, 0]) == 1 + 2**9 + 2**63


@given(arrays(np.int8, st.tuples(st.integers(1, 5), st.sampled_from([8, 24, 64])), elements=st.sampled_from([-1, 1])))
def test_unpack_undoes_pack_and_distances_count_differences(signs: np.ndarray) -> None:
    codes = pack(signs)
    assert codes.shape == (len(signs), signs.shape[1] // 8)
    assert np.array_equal(unpack(codes), signs)
    expected = [[sum(int(x != y) for x, y in zip(a, b, strict=True)) for b in signs] for a in signs]
    assert hamming(codes, codes).tolist() == expected


def test_nan_has_no_sign() -> None:
    outputs = np.ones((3, 8))
    outputs[1, 4] = np.nan
    with pytest.raises(UsageError, match="item 1 hold NaN"):
        pack(outputs)


@pytest.mark.parametrize("outputs", [np.ones((2, 8), bool), np.ones((2, 8), np.uint8), np.ones((2, 8), complex)])
def test_values_without_a_sign_are_refused(outputs: np.ndarray) -> None:
    with pytest.raises(UsageError, match="have no sign"):
        pack(outputs)


def test_shapes_and_lengths_that_are_no_codes() -> None:
    with pytest.raises(UsageError, match="two dimensions"):
        pack(np.ones(8))
    for bits in (0, 7, 12, 1032):
        with pytest.raises(UsageError, match=f"{bits} bits"):
            check_bits(bits)
    with pytest.raises(UsageError, match="64 and 8 bits"):
        hamming(np.zeros((1, 8), np.uint8), np.zeros((1, 1), np.uint8))
