from __future__ import annotations

from random import Random

from moldau.perf.measure.payload import Choice, Monotonic, RandomLetters, split_payloads


def test_values_are_letters_numbers_or_lines() -> None:
    letters = RandomLetters(1000, Random(1)).take(0, 3)
    assert [len(value) for value in letters] == [1000] * 3
    assert set(b"".join(letters)) == set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    assert len(set(letters)) == 3
    assert RandomLetters(0, Random(1)).take(0, 2) == [b"", b""]
    assert Monotonic().take(9, 3) == [b"9", b"10", b"11"]
    assert set(Choice([b"a", b"b"], Random(1)).take(0, 50)) == {b"a", b"b"}


def test_a_file_is_split_as_java_splits_it() -> None:
    assert split_payloads("one\n\ntwo\n\n", "\n") == [b"one", b"", b"two"]
    assert split_payloads("a;b", ";") == [b"a", b"b"]
